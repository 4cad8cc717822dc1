"""The infinite-width limit of an attention layer, exact and executable."""
from importlib.util import find_spec

from ._lazy import attach

__version__ = "0.1.0"

__getattr__, __dir__, _NAMES = attach(__name__, __file__)
# without scikit-learn `*` leaves out what needs it, which says so when it is used
_LEARNING = {"AttentionDescent", "AttentionRegressor", "CircuitDescent"}
__all__ = [name for name in _NAMES if find_spec("sklearn") or name not in _LEARNING]
