"""One test for each rule: it looks at everything and names what breaks it."""

import inspect
from functools import wraps

from run_pages import PAGES, name


def on_every(things):
    """A test of `rule(thing, …)` on all of them; other arguments are fixtures."""
    return lambda rule: _on_all(things, rule)


def _on_all(things, rule):
    first, *fixtures = inspect.signature(rule).parameters.values()

    @wraps(rule)
    def test(**found):
        broken = {}
        for thing in things:
            try:
                rule(thing, **found)
            except AssertionError as error:
                broken[thing] = error
        assert not broken, "\n\n".join(f"{x}: {error}" for x, error in broken.items())

    test.__signature__ = inspect.Signature(fixtures)
    return test


on_every_page = on_every([*map(name, PAGES)])  # a page is `attention/spec`
