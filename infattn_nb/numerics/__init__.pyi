from .rng import seed_sequence as seed_sequence
from .linalg import psd_factor as psd_factor, wishart_factor as wishart_factor

__all__: list[str]
