from .rng import draw as draw, fold as fold, seed_sequence as seed_sequence
from .workers import parallel as parallel
from .linalg import psd_factor as psd_factor, wishart_factor as wishart_factor

__all__: list[str]
