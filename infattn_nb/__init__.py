"""The infinite-width limit of an attention layer, exact and executable."""
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# The front door: every public name and the room it lives in, from the ground up.
# `python tools/front_door.py` writes what follows from it.
PUBLIC = {
    "numerics.sampling": "draw fold seed_sequence psd_factor wishart_factor",
    "numerics.nonlinearities":
        "Nonlinearity identity relu leaky_relu clip erf tanh sigmoid gelu gelu_tanh "
        "silu softplus sin cos absolute quadratic step times softmax",
    "laws.mixtures": "ScaleMixture mixture_of_heads Mixture",
    "laws.hierarchical": "HierarchicalGaussian",
    "layer.tokens": "Tokens",
    "layer.attention": "Attention simulate_dense",
    "programs.nodes": "AssumptionError AssumptionWarning",
    "programs.program": "Program",
    "programs.architectures": "mlp rnn lstm conv1d attention",
    "programs.infinite_width": "limit Limit",
    "programs.finite_width": "simulate gram ProgramTokens",
    "theorem.pseudo_lipschitz":
        "compose product growth softmax_weight break_pseudo_lipschitz",
    "theorem.score_clt":
        "variance_gamma ExchangeableScores score_cov score_gram quadratic_form "
        "cumulants",
    "theorem.averages": "averages conditional_average curves",
    "theorem.proof": "averaged_constant gaussian_mean split",
    "convergence.divergence":
        "kl_divergence total_variation hellinger wasserstein paired_kl kde kde_kl "
        "kde_trials",
    "convergence.regimes":
        "tied_scores tied_law gaussian_limits gaussian_distances tail_risk "
        "importance_tail good_enough GoodEnough",
    "convergence.rates":
        "fluctuations first_order scaled_difference kl_constant smoothed noise_floor",
    "convergence.robustness":
        "gaussian uniform rademacher sparse student simulate_weights positions "
        "distance_bias equicorrelated cross_mask",
    "convergence.long_sequences":
        "participation_moments mean_entropy entropy frozen effective_alpha "
        "row_overlap width_term",
    "blocks.stream": "embedding_cov text_labels",
    "blocks.parts": "Norm Rotary FeedForward",
    "blocks.attention": "SelfAttention",
    "blocks.block": "Block",
    "blocks.walk": "Chain Gradients",
    "transformers.transformer": "Transformer",
    "initialisation.scan": "Thresholds with_rule scan Scan",
    "initialisation.report": "report Report",
    "initialisation.report_command": "infattn_report",
    "learning.estimator": "embed_features patches",
    "learning.regressor": "AttentionRegressor recall",
    "learning.descent": "AttentionDescent",
    "paper.figures":
        "figure_1a figure_1b figure_2a figure_2b figure_3a figure_3b figure_relu_a "
        "figure_relu_b figure_heads paper_layer sweep",
    "paper.tables": "read_table write_table",
    "paper.command": "reproduce literal_seconds infattn_figures",
}
ROOM_OF = {name: room for room, names in PUBLIC.items() for name in names.split()}
WINGS = tuple(dict.fromkeys(room.partition(".")[0] for room in PUBLIC))
__all__ = list(ROOM_OF) # noqa: PLE0605


def __dir__() -> list[str]:
    own = {name for name in globals() if name.startswith("__")}
    return sorted({*own, *ROOM_OF, *WINGS})


def __getattr__(name: str) -> Any:
    "`from infattn_nb import Attention`: on demand."
    if name in ROOM_OF:
        found = getattr(import_module(f"infattn_nb.{ROOM_OF[name]}"), name)
        globals()[name] = found
        return found
    if name in WINGS:
        return import_module(f"infattn_nb.{name}")
    raise _misspelt(name)


def _misspelt(name: str) -> Exception:
    "The error that says which public name may have been meant."
    near = get_close_matches(name, ROOM_OF, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    text = f"module 'infattn_nb' has no attribute {name!r}{hint}"
    caller = sys._getframe(2).f_code.co_name
    imported = caller == "_handle_fromlist" and not name.startswith("_")
    # `from infattn_nb import X` would swallow an AttributeError and its hint
    return ImportError(text, name=name) if imported else AttributeError(text)


if TYPE_CHECKING: # written by tools/front_door.py, for editors and mypy
    from .numerics.sampling import draw as draw
    from .numerics.sampling import fold as fold
    from .numerics.sampling import seed_sequence as seed_sequence
    from .numerics.sampling import psd_factor as psd_factor
    from .numerics.sampling import wishart_factor as wishart_factor
    from .numerics.nonlinearities import Nonlinearity as Nonlinearity
    from .numerics.nonlinearities import identity as identity
    from .numerics.nonlinearities import relu as relu
    from .numerics.nonlinearities import leaky_relu as leaky_relu
    from .numerics.nonlinearities import clip as clip
    from .numerics.nonlinearities import erf as erf
    from .numerics.nonlinearities import tanh as tanh
    from .numerics.nonlinearities import sigmoid as sigmoid
    from .numerics.nonlinearities import gelu as gelu
    from .numerics.nonlinearities import gelu_tanh as gelu_tanh
    from .numerics.nonlinearities import silu as silu
    from .numerics.nonlinearities import softplus as softplus
    from .numerics.nonlinearities import sin as sin
    from .numerics.nonlinearities import cos as cos
    from .numerics.nonlinearities import absolute as absolute
    from .numerics.nonlinearities import quadratic as quadratic
    from .numerics.nonlinearities import step as step
    from .numerics.nonlinearities import times as times
    from .numerics.nonlinearities import softmax as softmax
    from .laws.mixtures import ScaleMixture as ScaleMixture
    from .laws.mixtures import mixture_of_heads as mixture_of_heads
    from .laws.mixtures import Mixture as Mixture
    from .laws.hierarchical import HierarchicalGaussian as HierarchicalGaussian
    from .layer.tokens import Tokens as Tokens
    from .layer.attention import Attention as Attention
    from .layer.attention import simulate_dense as simulate_dense
    from .programs.nodes import AssumptionError as AssumptionError
    from .programs.nodes import AssumptionWarning as AssumptionWarning
    from .programs.program import Program as Program
    from .programs.architectures import mlp as mlp
    from .programs.architectures import rnn as rnn
    from .programs.architectures import lstm as lstm
    from .programs.architectures import conv1d as conv1d
    from .programs.architectures import attention as attention
    from .programs.infinite_width import limit as limit
    from .programs.infinite_width import Limit as Limit
    from .programs.finite_width import simulate as simulate
    from .programs.finite_width import gram as gram
    from .programs.finite_width import ProgramTokens as ProgramTokens
    from .theorem.pseudo_lipschitz import compose as compose
    from .theorem.pseudo_lipschitz import product as product
    from .theorem.pseudo_lipschitz import growth as growth
    from .theorem.pseudo_lipschitz import softmax_weight as softmax_weight
    from .theorem.pseudo_lipschitz import break_pseudo_lipschitz as break_pseudo_lipschitz
    from .theorem.score_clt import variance_gamma as variance_gamma
    from .theorem.score_clt import ExchangeableScores as ExchangeableScores
    from .theorem.score_clt import score_cov as score_cov
    from .theorem.score_clt import score_gram as score_gram
    from .theorem.score_clt import quadratic_form as quadratic_form
    from .theorem.score_clt import cumulants as cumulants
    from .theorem.averages import averages as averages
    from .theorem.averages import conditional_average as conditional_average
    from .theorem.averages import curves as curves
    from .theorem.proof import averaged_constant as averaged_constant
    from .theorem.proof import gaussian_mean as gaussian_mean
    from .theorem.proof import split as split
    from .convergence.divergence import kl_divergence as kl_divergence
    from .convergence.divergence import total_variation as total_variation
    from .convergence.divergence import hellinger as hellinger
    from .convergence.divergence import wasserstein as wasserstein
    from .convergence.divergence import paired_kl as paired_kl
    from .convergence.divergence import kde as kde
    from .convergence.divergence import kde_kl as kde_kl
    from .convergence.divergence import kde_trials as kde_trials
    from .convergence.regimes import tied_scores as tied_scores
    from .convergence.regimes import tied_law as tied_law
    from .convergence.regimes import gaussian_limits as gaussian_limits
    from .convergence.regimes import gaussian_distances as gaussian_distances
    from .convergence.regimes import tail_risk as tail_risk
    from .convergence.regimes import importance_tail as importance_tail
    from .convergence.regimes import good_enough as good_enough
    from .convergence.regimes import GoodEnough as GoodEnough
    from .convergence.rates import fluctuations as fluctuations
    from .convergence.rates import first_order as first_order
    from .convergence.rates import scaled_difference as scaled_difference
    from .convergence.rates import kl_constant as kl_constant
    from .convergence.rates import smoothed as smoothed
    from .convergence.rates import noise_floor as noise_floor
    from .convergence.robustness import gaussian as gaussian
    from .convergence.robustness import uniform as uniform
    from .convergence.robustness import rademacher as rademacher
    from .convergence.robustness import sparse as sparse
    from .convergence.robustness import student as student
    from .convergence.robustness import simulate_weights as simulate_weights
    from .convergence.robustness import positions as positions
    from .convergence.robustness import distance_bias as distance_bias
    from .convergence.robustness import equicorrelated as equicorrelated
    from .convergence.robustness import cross_mask as cross_mask
    from .convergence.long_sequences import participation_moments as participation_moments
    from .convergence.long_sequences import mean_entropy as mean_entropy
    from .convergence.long_sequences import entropy as entropy
    from .convergence.long_sequences import frozen as frozen
    from .convergence.long_sequences import effective_alpha as effective_alpha
    from .convergence.long_sequences import row_overlap as row_overlap
    from .convergence.long_sequences import width_term as width_term
    from .blocks.stream import embedding_cov as embedding_cov
    from .blocks.stream import text_labels as text_labels
    from .blocks.parts import Norm as Norm
    from .blocks.parts import Rotary as Rotary
    from .blocks.parts import FeedForward as FeedForward
    from .blocks.attention import SelfAttention as SelfAttention
    from .blocks.block import Block as Block
    from .blocks.walk import Chain as Chain
    from .blocks.walk import Gradients as Gradients
    from .transformers.transformer import Transformer as Transformer
    from .initialisation.scan import Thresholds as Thresholds
    from .initialisation.scan import with_rule as with_rule
    from .initialisation.scan import scan as scan
    from .initialisation.scan import Scan as Scan
    from .initialisation.report import report as report
    from .initialisation.report import Report as Report
    from .initialisation.report_command import infattn_report as infattn_report
    from .learning.estimator import embed_features as embed_features
    from .learning.estimator import patches as patches
    from .learning.regressor import AttentionRegressor as AttentionRegressor
    from .learning.regressor import recall as recall
    from .learning.descent import AttentionDescent as AttentionDescent
    from .paper.figures import figure_1a as figure_1a
    from .paper.figures import figure_1b as figure_1b
    from .paper.figures import figure_2a as figure_2a
    from .paper.figures import figure_2b as figure_2b
    from .paper.figures import figure_3a as figure_3a
    from .paper.figures import figure_3b as figure_3b
    from .paper.figures import figure_relu_a as figure_relu_a
    from .paper.figures import figure_relu_b as figure_relu_b
    from .paper.figures import figure_heads as figure_heads
    from .paper.figures import paper_layer as paper_layer
    from .paper.figures import sweep as sweep
    from .paper.tables import read_table as read_table
    from .paper.tables import write_table as write_table
    from .paper.command import reproduce as reproduce
    from .paper.command import literal_seconds as literal_seconds
    from .paper.command import infattn_figures as infattn_figures
