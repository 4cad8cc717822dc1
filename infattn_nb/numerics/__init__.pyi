from .rng import (
    draw as draw,
    fold as fold,
    parallel as parallel,
    seed_sequence as seed_sequence,
)
from .linalg import psd_factor as psd_factor, wishart_factor as wishart_factor

__all__: list[str]
