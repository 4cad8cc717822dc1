"""The path through the pages: each carries its line, and the short way follows the
sidebar.
"""

import pytest
from written import NBS, ORDER, SHORT, read, with_path


@pytest.mark.parametrize("name", ORDER)
def test_page_carries_its_path(name):
    assert read(NBS / name)["cells"] == with_path(name, read(NBS / name))["cells"], (
        "run `python tools/written.py`"
    )


def test_the_short_way_follows_the_sidebar():
    assert sorted(SHORT, key=ORDER.index) == list(SHORT)
