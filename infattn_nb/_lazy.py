"""Packages that import a public name when it is used; their names stand in stubs."""
import re
import sys
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

import lazy_loader

_HERE = Path(__file__).parent


def attach(package, file):
    """`__getattr__`, `__dir__` and `__all__` of a package, from the stub beside it.

    A name that the package does not have raises an error that says where the name
    lives, or which name may have been meant.
    """
    find, _, names = lazy_loader.attach_stub(package, file)
    names = sorted(names, key=_offered(Path(file).with_suffix(".pyi")).index)

    def find_or_hint(name):
        if name in names or name.startswith("__"):
            return find(name)
        if Path(file).with_name(f"{name}.py").exists():
            return import_module(f"{package}.{name}")
        text = f"module {package!r} has no attribute {name!r}{_hint(name, package)}"
        caller = sys._getframe(1).f_code.co_name
        imported = caller == "_handle_fromlist" and not name.startswith("_")
        # `from package import name` would swallow an AttributeError and its hint
        raise ImportError(text, name=name) if imported else AttributeError(text)

    return find_or_hint, lambda: [*map(_Placed, names, range(len(names)))], names


class _Placed(str):
    "A name that sorts by its place in a stub, since `dir` sorts what it lists."
    place: int

    def __new__(cls, name, place):
        new = super().__new__(cls, name)
        new.place = place
        return new

    def __lt__(self, other):
        return self.place < getattr(other, "place", self.place)


def _hint(name, package):
    "Where a name lives that a package does not have, or which one may be meant."
    places = _places()
    if name in places:
        return f"; it is {places[name]}.{name}"
    near = get_close_matches(name, places, 1)
    return f"; did you mean {places[near[0]]}.{near[0]}?" if near else ""


def _places():
    "Public name -> the package that offers it, read from texts; the top comes first."
    places = dict.fromkeys(_offered(_HERE/"__init__.pyi"), "infattn_nb")
    module = (_HERE/"nonlinearities.py").read_text(encoding="utf-8")
    listed = re.findall(r'"(\w+)"', module[module.rindex("__all__ = "):])
    others = {"infattn_nb.nonlinearities": listed}
    for stub in sorted(_HERE.glob("*/__init__.pyi")):
        others[f"infattn_nb.{stub.parent.name}"] = _offered(stub)
    for place, names in others.items():
        for name in names:
            places.setdefault(name, place)
    return places


def _offered(stub):
    return re.findall(r"\b(\w+) as \1\b", stub.read_text(encoding="utf-8"))
