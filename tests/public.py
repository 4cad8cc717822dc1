"""Every public name of the package and its subpackages, with its object."""

from importlib import import_module

import written

PUBLIC = {
    name: getattr(import_module(place), name)
    for name, (place, _) in written.PUBLIC.items()
}
