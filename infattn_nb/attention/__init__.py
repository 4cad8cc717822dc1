"""One attention layer: its tokens, its scores, its law at every width."""
from .._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
