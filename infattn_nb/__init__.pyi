"""Every public name of the package and where it lives; other names live one level down."""
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
from .numerics.rng import draw as draw, fold as fold
from .numerics.workers import parallel as parallel
from .nonlinearities import Nonlinearity as Nonlinearity
from .distributions.hierarchical import HierarchicalGaussian as HierarchicalGaussian
from .distributions.scale_mixture import (
    Mixture as Mixture,
    ScaleMixture as ScaleMixture,
    mixture_of_heads as mixture_of_heads,
)
from .convergence.distances import (
    hellinger as hellinger,
    kde_kl as kde_kl,
    kl_divergence as kl_divergence,
    paired_kl as paired_kl,
    total_variation as total_variation,
    wasserstein as wasserstein,
)
from .attention.tokens import CommonTokens as CommonTokens, Tokens as Tokens
from .attention.layer import Attention as Attention, simulate_dense as simulate_dense
from .netsor.nodes import (
    AssumptionError as AssumptionError,
    AssumptionWarning as AssumptionWarning,
)
from .netsor.program import Program as Program
from .netsor.infinite_width import Limit as Limit, limit as limit
from .netsor.finite_width import (
    ProgramTokens as ProgramTokens,
    gram as gram,
    simulate as simulate,
)
from .netsor.gradients import (
    ProgramGradients as ProgramGradients,
    gradients as gradients,
)
from .training.optimizers import (
    SGD as SGD,
    Adam as Adam,
    AdamW as AdamW,
    Lion as Lion,
    Muon as Muon,
)
from .training.programs import Training as Training, train as train
from .convergence.regimes import (
    LimitErrorResult as LimitErrorResult,
    limit_error as limit_error,
    tail_probability as tail_probability,
)
from .transformer.stream import (
    embedding_cov as embedding_cov,
    text_labels as text_labels,
)
from .transformer.norms import Norm as Norm
from .transformer.attention import Rotary as Rotary, SelfAttention as SelfAttention
from .transformer.mlp import FeedForward as FeedForward
from .transformer.block import Block as Block
from .transformer.passes import Chain as Chain, Gradients as Gradients
from .transformer.network import Transformer as Transformer
from .huggingface.read import from_config as from_config, from_torch as from_torch
from .huggingface.weights import init_table as init_table, initialise as initialise
from .huggingface.trained import weights_of as weights_of
from .initialisation.quantities import Thresholds as Thresholds
from .initialisation.rules import with_rule as with_rule
from .initialisation.scan import Scan as Scan, scan as scan
from .initialisation.report import Report as Report, report as report
from .learning.sequences import (
    embed_features as embed_features,
    make_recall as make_recall,
    patches as patches,
)
from .learning.regressor import AttentionRegressor as AttentionRegressor
from .learning.descent import AttentionDescent as AttentionDescent
from .learning.circuits import CircuitDescent as CircuitDescent

__version__: str
__all__: list[str]
