"""Distances between laws, rates of convergence, robustness of the limit, long rows."""
from .._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
