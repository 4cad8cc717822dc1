"""Programs: any network of matrices, nonlinearities and attention, its limit and its gradients."""
from .._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
