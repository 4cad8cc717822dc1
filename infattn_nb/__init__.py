"""The infinite-width limit of an attention layer, exact and executable."""
from importlib import import_module

__version__ = "0.1.0"

# from the ground up: importing a room imports those below it, never one above
ROOMS = """checks sampling quadrature factors functions growth mixture doubling rows hierarchical tokens attention
dense divergence regimes vectors netsor architectures paths limit finite from_program clt theorem proof
rates robustness length stream modules transformer particles likelihood learning
store experiments running live""".split()

def lookup(name):
    "What the first room that offers the name calls so; rooms whose names moved ask here."
    if not name.startswith("_"):
        for room in ROOMS:
            module = import_module(f"infattn_nb.{room}")
            if name in module.__all__: return getattr(module, name)
    raise AttributeError(f"module 'infattn_nb' has no attribute {name!r}")

def __getattr__(name):
    "`from infattn_nb import Attention`: on demand."
    return import_module(f"infattn_nb.{name}") if name in ROOMS else lookup(name)
