"""The infinite-width limit of an attention layer, exact and executable."""
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# The front door: every public name and the room it lives in, from the ground up.
# `python tools/written.py` writes what follows from it.
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
    "programs.gradients": "gradients ProgramGradients",
    "programs.training": "train Training",
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
