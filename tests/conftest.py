import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

# the tests run side by side, one process per processor
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["MPLBACKEND"] = "agg"

import numpy as np
import pytest

# a run in the background may have been made to ignore it; its children heed it too
signal.signal(signal.SIGINT, signal.default_int_handler)

BEYOND_THEOREM = pytest.mark.filterwarnings(
    "ignore::infattn_nb.netsor.nodes.AssumptionWarning"
)  # the theorem as printed does not cover these programs, and they say so
ROUGH_POSTERIOR = pytest.mark.filterwarnings(
    "ignore:the posterior is rough:RuntimeWarning"
)  # small clouds of particles are rough, and say so
CHROMIUM = next(
    filter(
        None,
        map(
            shutil.which,
            """chromium-headless-shell google-chrome google-chrome-stable
            chromium chromium-browser""".split(),
        ),
    ),
    None,
)


@contextmanager
def browser(address, profile, *options):
    """A browser without a window that looks at a page. It has a session of its own:
    Debian's command is a script, and the browser outlives it.
    """
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--remote-debugging-port=0",
        f"--user-data-dir={profile}",
    ]
    session = subprocess.Popen(
        [*command, *options, address],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(session.pid, signal.SIGKILL)
        session.wait()


@pytest.fixture(autouse=True)
def own_figures():
    "No test draws into the figure of another."
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


def copy_project(root, to, *folders, without=()):
    "What nbdev reads, with some folders of the project."
    ignore = shutil.ignore_patterns("__pycache__", *without)
    for folder in folders:
        shutil.copytree(root / folder, to / folder, ignore=ignore)
    for file in "settings.ini pyproject.toml setup.py README.md _quarto.yml".split():
        shutil.copy(root / file, to)


@lru_cache
def large(name):
    """Statistics of some hundred thousand explicit networks; the source that the site
    offers leaves them out (tools/pack_source.py).
    """
    path = Path(__file__).parent / "data" / f"{name}.npz"
    return (
        np.load(path)
        if path.exists()
        else pytest.skip(f"{path.name} is not in this copy of the source")
    )


def nightly(cases, *dear):
    """The cases of a parametrised test (a tuple holds several arguments), some of them
    only for `pytest -m slow`.
    """
    slow = lambda case: pytest.param(
        *(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow
    )
    return [slow(case) if case in dear else case for case in cases]


def distance(x, y):
    "Kolmogorov's and Smirnov's, of two sorted samples: near a point of the shorter."
    at = min(x, y, key=len)
    return max(
        abs(
            np.searchsorted(x, at, side) / len(x)
            - np.searchsorted(y, at, side) / len(y)
        ).max()
        for side in ("left", "right")
    )


def least_p(a, b):
    """The smallest p-value of Kolmogorov and Smirnov over the columns of (N, k) and (M,
    k), times k. It belongs to the largest distance, so that one call of SciPy is
    enough.
    """
    a, b = np.sort(a.T), np.sort(b.T)
    # here: the process that hands out the tests need not wait for it
    from scipy.stats import ks_2samp

    k = np.argmax([distance(x, y) for x, y in zip(a, b, strict=True)])
    return len(a) * ks_2samp(a[k], b[k], method="asymp").pvalue


def columns(pairs):
    "Pairs (N, …), (M, …) as tables (N, k), (M, k), without entries that never move."
    a, b = (
        np.concatenate([x.reshape(len(x), -1) for x in side], axis=1).round(9)
        for side in zip(*pairs, strict=True)
    )
    moves = np.maximum(a.max(0), b.max(0)) - np.minimum(a.min(0), b.min(0)) > 1e-6
    return a[:, moves], b[:, moves]


def of_site(path):
    return path.parent.name == "site"


def pytest_ignore_collect(collection_path, config):
    "Files of which no test will run are not even imported: that takes seconds."
    asked = config.option.markexpr
    if collection_path.match("test_*.py") and (asked == "site" or "not site" in asked):
        return (asked == "site") != of_site(collection_path) or None


def needs_torch(item):
    "Whether a test stops without torch, as its file or its function says."
    group = item.get_closest_marker("xdist_group")
    code = item.function.__code__
    return (group is not None and group.args == ("torch",)) or (
        "importorskip" in code.co_names and "torch" in code.co_consts
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    "`pytest -m site`: pages, sources and wheel; `pytest -m torch`: beside torch."
    for item in items:
        if of_site(item.path) and not item.get_closest_marker("slow"):
            item.add_marker("site")
        if needs_torch(item):
            item.add_marker("torch")
        if item.get_closest_marker("torch") and not find_spec("torch"):
            item.add_marker(pytest.mark.skip(reason="needs torch"))


@pytest.fixture
def undrawn(monkeypatch):
    "Runs write their tables alone: drawing is what takes time."
    from infattn_nb.paper.tables import as_csv

    monkeypatch.setattr(
        "infattn_nb.paper.command.files",
        lambda data, fig: [("csv", as_csv(data)), ("png", b""), ("pdf", b"")],
    )


@pytest.fixture(scope="session")
def dist(pytestconfig, tmp_path_factory):
    "A folder with what is published: the source, and the wheel built from it."
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out]
    subprocess.run([*build, pytestconfig.rootpath], check=True, capture_output=True)
    return out


@pytest.fixture(scope="session")
def wheel(dist):
    return next(dist.glob("*.whl"))


def departures(t):
    "Tensors that differ from the intended initialisation: pairs (name, factor)."
    from infattn_nb.huggingface.weights import departed

    return [(x.where, x.factor) for x in departed(t)]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A file that names a group runs in one process. xdist 3.8 alone would lose the
    group: it notes it in `_nodeid`, which pytest 9.2 does not read.
    """
    from xdist.scheduler import LoadGroupScheduling

    @lru_cache
    def group(file):
        named = re.search(
            r'xdist_group\("(\w+)"\)',
            Path(config.rootpath, file).read_text(encoding="utf-8"),
        )
        return named and named[1]

    class Groups(LoadGroupScheduling):
        def _split_scope(self, nodeid):
            return group(nodeid.partition("::")[0]) or nodeid

    return Groups(config, log)


@pytest.fixture(scope="session")
def transformers():
    "Hugging Face's transformers; without them the test is skipped."
    return pytest.importorskip(
        "transformers",
        reason="the models come from transformers; pip install transformers",
    )
