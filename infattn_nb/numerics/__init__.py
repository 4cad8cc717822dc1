"""Random numbers, workers, factors of covariances, softmax, quadrature, series, particles, checks, files. Nothing here depends on networks."""
from .._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
