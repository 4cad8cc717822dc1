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

import importlib
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
from _pytest.mark import ParameterSet
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


def marks(function, name):
    return [m for m in getattr(function, "pytestmark", []) if m.name == name]


def tests(reduce):
    "(name, what to run) of every case of every statistical test."
    sys.path[:0] = [str(TESTS), str(TESTS.parent / "benchmarks")]
    for path in sorted(TESTS.rglob("test_*.py")):
        if path.parent.name == "site":
            continue
        sys.path.insert(1, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except pytest.skip.Exception:
            continue  # what it needs is not installed
        for name, function in list(
            vars(module).items()
        ):  # a copy: warnings are noted in the module
            if not name.startswith("test_") or not marks(function, "power"):
                continue
            parameters = inspect.signature(function).parameters
            if "found" in parameters:
                continue  # a browser has its own random numbers
            size = {p.name: p.default for p in parameters.values() if p.name == "size"}
            for values in itertools.product(
                *(m.args[1] for m in marks(function, "parametrize"))
            ):
                arguments = dict(size)
                for mark, value in zip(marks(function, "parametrize"), values):
                    names = [n.strip() for n in mark.args[0].split(",")]
                    if isinstance(value, ParameterSet):
                        value = value.values
                    elif len(names) == 1:
                        value = [value]
                    arguments |= dict(zip(names, value))
                if size:
                    arguments["size"] //= reduce
                run = (
                    partial(patched, function)
                    if "monkeypatch" in parameters
                    else function
                )
                yield (
                    f"{path.relative_to(TESTS).with_suffix('')}: {name[5:]}",
                    partial(run, **arguments),
                )


def patched(function, **arguments):
    with pytest.MonkeyPatch.context() as monkeypatch:
        function(monkeypatch=monkeypatch, **arguments)


def pages(reduce):
    "(name, what to run) of every page, in a copy of their folder."
    copy = shutil.copytree(TESTS.parent / "nbs", Path(tempfile.mkdtemp()) / "nbs")
    for path in sorted(copy.rglob("*.ipynb")):
        name = path.relative_to(copy).with_suffix("").as_posix()
        yield name, partial(run_page, path)


def run_page(path):
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
    assert not failed, "\n".join(failed)


def run_all(checks, reduce, only, seed):
    "{name: (p-values, failures, seconds)} for one seed."
    Seeds.shift, results = seed, defaultdict(lambda: ([], [], []))
    for name, check in checks(reduce):
        if not re.search(only, name):
            continue
        p_values.clear()
        ps, failures, seconds = results[name]
        start = time.perf_counter()
        try:
            check()
        except Exception as e:
            failures.append(
                f"{name}, seed {seed}, {getattr(check, 'keywords', {})!r:.200}: "
                f"{e!r:.2000}"
            )
        seconds.append(time.perf_counter() - start)
        ps.extend(p_values)
    return dict(results)


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
