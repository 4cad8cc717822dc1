"""Distances between laws; how fast the limit is reached, how far it holds, long rows."""
from .._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
