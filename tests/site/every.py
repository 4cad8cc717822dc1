"""One test for each rule: it looks at all pages and names those that break it."""

import inspect
from functools import wraps

from run_pages import PAGES, name


def on_every_page(rule):
    """A test of `rule(page, …)` on all pages; `page` is `attention/spec`, other
    arguments are fixtures.
    """

    @wraps(rule)
    def test(**fixtures):
        broken = {}
        for page in map(name, PAGES):
            try:
                rule(page, **fixtures)
            except AssertionError as error:
                broken[page] = error
        assert not broken, "\n\n".join(f"{p}: {error}" for p, error in broken.items())

    first, *fixtures = inspect.signature(rule).parameters.values()
    assert first.name == "page"
    test.__signature__ = inspect.Signature(fixtures)
    return test
