from .read import from_config as from_config, from_torch as from_torch
from .weights import init_table as init_table, initialise as initialise
from .families import families_table as families_table

__all__: list[str]
