"""The infinite-width limit of an attention layer, exact and executable."""
import sys
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import lazy_loader

__version__ = "0.1.0"

_find, __dir__, _NAMES = lazy_loader.attach_stub(__name__, __file__)
# without scikit-learn `*` leaves out what needs it, which says so when it is used
_LEARNING = {"AttentionDescent", "AttentionRegressor"}
__all__ = [name for name in _NAMES if find_spec("sklearn") or name not in _LEARNING]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return _find(name)
    text = f"module 'infattn_nb' has no attribute {name!r}{_hint(name)}"
    caller = sys._getframe(1).f_code.co_name
    imported = caller == "_handle_fromlist" and not name.startswith("_")
    # `from infattn_nb import X` would swallow an AttributeError and its hint
    raise ImportError(text, name=name) if imported else AttributeError(text)


def _hint(name: str) -> str:
    "Where a name lives that is not here, or which one may have been meant."
    places = dict.fromkeys(_NAMES, "infattn_nb")
    for module in ("numerics", "nonlinearities", "netsor", "theory", "convergence",
                   "initialisation", "paper"):
        found = import_module(f"infattn_nb.{module}")
        places |= {other: found.__name__ for other in found.__all__
                   if other not in places}
    if name in places:
        return f"; it is {places[name]}.{name}"
    near = get_close_matches(name, places, 1)
    return f"; did you mean {places[near[0]]}.{near[0]}?" if near else ""
