"""Whole networks at initialisation, forward and backward: norms, attention, MLPs, blocks."""
from .._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
