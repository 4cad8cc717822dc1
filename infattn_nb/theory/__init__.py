"""The theorem, its proof and its hypotheses, each checked by computation."""
from .._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
