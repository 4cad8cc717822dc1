"""Random streams, factors of covariances, softmax, quadrature, series, particles, checks, files: nothing of networks."""
import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
