import os
import re
from functools import lru_cache
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1") # the tests run side by side, one process per processor

import matplotlib
import pytest

matplotlib.use("agg")

def nightly(cases, *dear):
    "The cases of a parametrised test, some of them only for `pytest -m slow`."
    return [pytest.param(case, marks=pytest.mark.slow) if case in dear else case for case in cases]

@pytest.fixture
def undrawn(monkeypatch):
    "Runs write their tables alone: drawing is what takes time."
    from infattn_nb.paper.tables import as_csv
    monkeypatch.setattr("infattn_nb.paper.command.files", lambda data, fig, parameters: [("csv", as_csv(data))])

@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    "A file that names a group runs in one process. xdist 3.8 alone would lose the group: it notes it in `_nodeid`, which pytest 9.2 does not read."
    from xdist.scheduler import LoadGroupScheduling

    @lru_cache
    def group(file):
        named = re.search(r'xdist_group\("(\w+)"\)', Path(config.rootpath, file).read_text(encoding="utf-8"))
        return named and named[1]

    class Groups(LoadGroupScheduling):
        def _split_scope(self, nodeid): return group(nodeid.partition("::")[0]) or nodeid

    return Groups(config, log)
