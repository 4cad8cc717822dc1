"""Scale mixtures of Gaussians, and Gaussians with a random covariance."""
from .._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
