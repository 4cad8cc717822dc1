"""The names at the top of the package, in the order of the story, and its parts.

Other public names stand in their part: see the stubs of the folders."""
# the layer and its law
from .attention.layer import Attention as Attention
from .attention.tokens import Tokens as Tokens, CommonTokens as CommonTokens
from .distributions.scale_mixture import ScaleMixture as ScaleMixture
from .distributions.hierarchical import HierarchicalGaussian as HierarchicalGaussian
from .convergence.distances import (
    paired_kl as paired_kl,
    kl_divergence as kl_divergence,
    total_variation as total_variation,
)
from .convergence.regimes import limit_error as limit_error
# programs and the theorem
from .nonlinearities import Nonlinearity as Nonlinearity
from .netsor.program import Program as Program
from .netsor.finite_width import simulate as simulate
from .netsor.infinite_width import limit as limit
from .netsor.gradients import gradients as gradients
from .netsor.nodes import (
    AssumptionError as AssumptionError,
    AssumptionWarning as AssumptionWarning,
)
# models
from .transformer.network import Transformer as Transformer
from .transformer.block import Block as Block
from .transformer.attention import SelfAttention as SelfAttention
from .transformer.mlp import FeedForward as FeedForward
from .transformer.parts import Norm as Norm
from .transformer.attention import Rotary as Rotary
from .huggingface.read import from_config as from_config, from_torch as from_torch
from .huggingface.weights import initialise as initialise
from .huggingface.trained import weights_of as weights_of
from .initialisation.report import report as report
from .initialisation.scan import scan as scan
# training
from .training.programs import train as train
from .training.optimizers import (
    SGD as SGD,
    Adam as Adam,
    AdamW as AdamW,
    Muon as Muon,
    Lion as Lion,
)
# learning
from .learning.regressor import AttentionRegressor as AttentionRegressor
from .learning.descent import AttentionDescent as AttentionDescent
from .learning.circuits import CircuitDescent as CircuitDescent
# the parts
from . import numerics as numerics
from . import nonlinearities as nonlinearities
from . import distributions as distributions
from . import attention as attention
from . import netsor as netsor
from . import training as training
from . import theory as theory
from . import convergence as convergence
from . import transformer as transformer
from . import huggingface as huggingface
from . import initialisation as initialisation
from . import learning as learning
from . import paper as paper

__version__: str
__all__: list[str]
