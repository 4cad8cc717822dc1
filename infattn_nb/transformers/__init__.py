"""Whole networks at initialisation, by their public names: `from infattn_nb.transformers import Transformer, scan, report`."""
from importlib import import_module
from typing import Any

# Rooms of this tower, from blocks to initialisation: their public names are found
# here, too.
_TOWER = ("blocks.stream", "blocks.parts", "blocks.attention", "blocks.block",
          "blocks.walk", "transformers.transformer", "initialisation.scan",
          "initialisation.report", "initialisation.report_command")


def _names() -> list[str]:
    public = import_module("infattn_nb").PUBLIC
    return [name for room in _TOWER for name in public[room].split()]


def __dir__() -> list[str]:
    own = {name for name in globals() if name.startswith("__")}
    return sorted({*own, "transformer", *_names()})


def __getattr__(name: str) -> Any:
    "On demand, as at the front door."
    if name == "__all__":
        return _names()
    if name not in _names():
        raise AttributeError(f"module 'infattn_nb.transformers' has no attribute "
                             f"{name!r}; its names are {', '.join(_names())}")
    return getattr(import_module("infattn_nb"), name)
