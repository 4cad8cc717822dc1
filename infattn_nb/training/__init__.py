"""Training by gradient descent: losses, optimizers, one run for every kind of network, and programs of any width."""
from .._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
