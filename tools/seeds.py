"""The statistical checks again under many other seeds: do they ever fail?

    python tools/seeds.py [--last 200] [--first 1] [--reduce 20] [--only regex]
        [--pages]

Every test that states its power (`@pytest.mark.power`), or with --pages every cell of
every page, runs once for each seed: all integer seeds in tests, pages and package are
replaced by others. Tests with an argument `size` get one so many times smaller. Prints
for each how many p-values it computed, the smallest, and how often it failed, which
must be never. (A p-value below 1e-9 that does not make a test fail belongs to a check
that is there to be small: it shows the power, and is left out.)
"""

import inspect
import itertools
import os
import re
import shutil
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # one process per processor

import matplotlib
import numpy as np
import pytest
import scipy.stats
from fastcore.script import call_parse
from tqdm import tqdm

matplotlib.use("agg")
TESTS = Path(__file__).parent.parent / "tests"
REAL, RNG = np.random.SeedSequence, np.random.default_rng
WHOLE = int, np.integer, list, tuple  # seeds: a number, or several
p_values = []


class Seeds(type):
    "Stands in for SeedSequence: seeds, one number or several, are shifted."

    shift = 0

    def __instancecheck__(cls, x):
        return isinstance(x, REAL)

    def __call__(cls, entropy=None, **options):
        given = isinstance(entropy, WHOLE) and not options.get("spawn_key")
        return REAL([cls.shift, *np.ravel(entropy)] if given else entropy, **options)


class Shifted(metaclass=Seeds):
    pass


def shifted_rng(seed=None):
    return RNG(Shifted(seed) if isinstance(seed, WHOLE) else seed)


def recorded(test):
    def run(*args, **kwargs):
        result = test(*args, **kwargs)
        if result.pvalue > 1e-9:
            p_values.append(result.pvalue)
        return result

    return run


def prepare():
    "Before the package is imported."
    warnings.simplefilter("ignore")
    np.random.SeedSequence, np.random.default_rng = Shifted, shifted_rng
    for name in ("ks_2samp", "kstest"):
        setattr(scipy.stats, name, recorded(getattr(scipy.stats, name)))


class Checks:
    "A plugin of pytest: tests with smaller sizes, and what is found."

    def __init__(self, reduce, only):
        self.reduce = reduce
        self.only = only
        self.results = defaultdict(lambda: ([], [], []))

    def pytest_collection_modifyitems(self, items):
        items[:] = [x for x in items if re.search(self.only, named(x.nodeid))]

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem):
        p_values.clear()
        size = inspect.signature(pyfuncitem.obj).parameters.get("size")
        if "size" in pyfuncitem.funcargs:
            pyfuncitem.funcargs["size"] //= self.reduce
        elif size:
            smaller = size.default // self.reduce
            pyfuncitem.obj = partial(pyfuncitem.obj, size=smaller)

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.failed:
            ps, failures, seconds = self.results[named(report.nodeid)]
            ps.extend(p_values)
            seconds.append(report.duration)
            if report.failed:
                text = report.longreprtext[-2000:]
                failures.append(f"{report.nodeid}, seed {Seeds.shift}: {text}")


def named(nodeid):
    "The name of a test, without its case."
    path, _, test = nodeid.partition(".py::")
    return f"{path.removeprefix('tests/')}: {test.partition('[')[0][5:]}"


def tests(reduce, only):
    "Of every statistical test, by pytest; its modules draw by this seed, too."
    for name, module in list(sys.modules.items()):
        if str(TESTS) in (getattr(module, "__file__", None) or ""):
            del sys.modules[name]
    checks = Checks(reduce, only)
    options = "-n0 -s --assert=plain -W ignore -p no:terminal -p no:cacheprovider"
    chosen = "-m", "power and not site", str(TESTS)
    code = pytest.main([*options.split(), *chosen], plugins=[checks])
    if code not in (0, 1, 5):  # passed, failed, nothing of that name
        raise RuntimeError(f"pytest stopped ({code}): look at `pytest -m power`")
    return dict(checks.results)


def pages(reduce, only):
    "Of every page, run in a copy of their folder."
    copy = shutil.copytree(TESTS.parent / "nbs", Path(tempfile.mkdtemp()) / "nbs")
    results = {}
    for path in sorted(copy.rglob("*.ipynb")):
        name = path.relative_to(copy).with_suffix("").as_posix()
        if re.search(only, name):
            p_values.clear()
            start = time.perf_counter()
            failures = [f"{name}, seed {Seeds.shift}: {x}" for x in run_page(path)]
            results[name] = [*p_values], failures, [time.perf_counter() - start]
    return results


def run_page(path):
    "What fails on a page."
    from execnb.nbio import read_nb
    from execnb.shell import CaptureShell

    os.chdir(path.parent)
    main, shell, failed = sys.modules["__main__"], CaptureShell(path), []
    for cell in read_nb(path).cells:
        if cell.cell_type == "code" and "eval: false" not in cell.source:
            shell.cell(cell)
            if shell.exc:
                failed.append(f"{shell.exc!r:.200} in {cell.source:.200}")
    sys.modules["__main__"] = main  # of which the shell makes another one
    return failed


def run_all(checks, reduce, only, seed):
    "{name: (p-values, failures, seconds)} for one seed."
    Seeds.shift = seed
    return checks(reduce, only)


@call_parse
def main(
    last: int = 200,  # last seed
    first: int = 1,  # first seed
    reduce: int = 20,  # what `size` is divided by
    only: str = "",  # regular expression that names must match
    pages: bool = False,  # the pages instead of the tests?
):
    "Run the statistical checks under many seeds."
    total, seeds = defaultdict(lambda: ([], [], [])), range(first, last + 1)
    with ProcessPoolExecutor(initializer=prepare) as pool:
        for result in tqdm(
            pool.map(
                partial(run_all, globals()["pages"] if pages else tests, reduce, only),
                seeds,
            ),
            total=len(seeds),
        ):
            for name, parts in result.items():
                for all_of_them, some in zip(total[name], parts):
                    all_of_them.extend(some)
            for failure in itertools.chain(
                *(failures for _, failures, _ in result.values())
            ):
                print(failure, flush=True)
    print(
        f"seeds {first}…{last}, sizes divided by {reduce}\n"
        f"{'check':76s}{'p-values':>10s}{'smallest':>12s}{'failures':>10s}{'s/seed':>8s}"
    )
    for name, (ps, failures, seconds) in total.items():
        print(
            f"{name:76s}{len(ps):10d}{min(ps, default=np.nan):12.1e}"
            f"{len(failures):10d}{sum(seconds) / len(seeds):8.2f}"
        )
    ps = [p for some, _, _ in total.values() for p in some]
    print(
        f"in all {len(ps)} p-values, smallest {min(ps, default=np.nan):.1e}, "
        f"{sum(len(f) for _, f, _ in total.values())} failures"
    )
