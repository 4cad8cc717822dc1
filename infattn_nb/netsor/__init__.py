"""Programs: any network of matrices, nonlinearities and attention, its limit, its gradients and its training."""
import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
