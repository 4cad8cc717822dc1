"""What gets installed: the package alone, light to import."""

import ast
import inspect
import re
import shutil
import subprocess
import sys
import zipfile
from functools import lru_cache
from graphlib import TopologicalSorter
from importlib import import_module

import pytest
import written
from public import PUBLIC
from written import CFG, ROOT

import infattn_nb

pytestmark = pytest.mark.xdist_group("package")  # its fixtures are made once


def test_source_holds_tests_that_run_there(dist, tmp_path):
    "Those that need neither pages nor tools."
    shutil.unpack_archive(next(dist.glob("*.tar.gz")), tmp_path)
    (tests,) = tmp_path.glob("*/tests")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "--collect-only", "-q"],
        cwd=tests.parent,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-1000:]
    assert len(run.stdout.splitlines()) > 100, run.stdout[-1000:]
    for part in ("netsor", "training", "learning", "huggingface"):
        assert f"tests/{part}/" in run.stdout, part
    for path in tests.rglob("*.py"):
        assert not re.search(
            r"parents\[2\]|\bROOT\b", path.read_text(encoding="utf-8")
        ), path.name


def test_wheel_holds_the_package_alone(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {n.split("/")[0] for n in names} == {
        "infattn_nb",
        f"infattn_nb-{CFG['version']}.dist-info",
    }
    assert set(
        """infattn_nb/py.typed infattn_nb/__init__.pyi
    infattn_nb/infattn.mplstyle infattn_nb/initialisation/report.html
    infattn_nb/attention/layer.py infattn_nb/paper/command.py""".split()
    ) <= set(names)


def test_wheel_works_in_a_foreign_folder(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = (
        "import infattn_nb as a, numpy as np; assert a.__file__.startswith({!r}); "
        "print(a.Attention(a.Tokens(2, a.nonlinearities.relu)).law(np.inf).rvs(3, "
        "rng=0).shape); a.paper.figure_2a(trials=1, samples=50)[1].savefig('f.png')"
    )
    run = subprocess.run(
        [sys.executable, "-c", code.format(str(tmp_path / "site"))],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert run.stdout.strip() == "(3, 2)", run.stderr


def test_light_import():
    code = (
        "import sys; from infattn_nb import Attention; sys.exit(any(m.split('.')[0] "
        "in ('matplotlib', 'seaborn', 'pandas', 'sklearn', 'IPython', 'nbdev') for m "
        "in sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


WITHOUT = """import sys
sys.modules["sklearn"] = None # as if it were not installed
import infattn_nb
from infattn_nb import *
for name in dir(infattn_nb):
    try: getattr(infattn_nb, name)
    except ImportError as e: print(name, e, sep=": ")
from infattn_nb.paper import reproduce
from infattn_nb import AttentionDescent"""


def test_scikit_learn_is_needed_by_its_models_alone():
    "And they say so; the package itself does not import it."
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True
    )
    said = (
        "AttentionRegressor, AttentionDescent and CircuitDescent need scikit-learn 1.6 "
        "or newer; pip install 'infattn_nb[learning]'"
    )
    assert sorted(run.stdout.splitlines()) == [
        f"AttentionDescent: {said}",
        f"AttentionRegressor: {said}",
        f"CircuitDescent: {said}",
    ]
    assert run.stderr.splitlines()[-1] == f"ImportError: {said}"


PACKAGE = ROOT / "infattn_nb"
FILES = {
    ".".join(p.relative_to(PACKAGE).with_suffix("").parts): p
    for p in sorted(PACKAGE.rglob("[a-z]*.py"))
}


@lru_cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(module_name, path):
    "The modules that a module imports, at any indentation, by its syntax tree."
    package = module_name.rpartition(".")[0]
    for node in ast.walk(tree(path)):
        if (
            isinstance(node, ast.ImportFrom) and node.level
        ):  # .module or ..package.module
            start = [package] if node.level == 1 and package else []
            module = ".".join([*start, *filter(None, [node.module])])
            yield from {module, *(f"{module}.{a.name}" for a in node.names)} & set(
                FILES
            )
        absolute = (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
        absolute += [a.name for a in node.names] if isinstance(node, ast.Import) else []
        yield from (
            name.removeprefix("infattn_nb.")
            for name in absolute
            if name.startswith("infattn_nb")
        )


ORDER = """numerics nonlinearities plotting distributions attention netsor
training convergence transformer theory huggingface initialisation learning
paper""".split()


def level(module):
    return ORDER.index(module.partition(".")[0])


def test_imports_go_one_way():
    "No later subpackage, no circle; at most thirteen levels."
    below = {module: set(imported(module, path)) for module, path in FILES.items()}
    for module, others in below.items():
        assert "infattn_nb" not in others, f"{module} imports the whole package"
        for other in others:
            assert level(other) <= level(module), f"{module} imports {other}"
    assert len([*levels_of(below)]) <= 13  # raises CycleError for a circle


def levels_of(below):
    sorter = TopologicalSorter(below)
    sorter.prepare()
    while sorter.is_active():
        level = sorter.get_ready()
        yield level
        sorter.done(*level)


def test_no_private_name_is_imported():
    for path in FILES.values():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and (
                node.level or (node.module or "").startswith("infattn_nb")
            ):
                assert not [a.name for a in node.names if a.name.startswith("_")], (
                    path.name
                )


def test_version_stands_in_one_place():
    assert infattn_nb.__version__ == CFG["version"]
    assert f"version: {CFG['version']}" in (ROOT / "CITATION.cff").read_text()


STUB = (ROOT / "infattn_nb/__init__.pyi").read_text(encoding="utf-8")


def test_public_names_are_those_of_the_stubs():
    "The objects themselves, not modules."
    for name, (_, home) in written.PUBLIC.items():
        assert PUBLIC[name] is getattr(import_module(f"infattn_nb.{home}"), name)
        assert not inspect.ismodule(PUBLIC[name])
    assert set(infattn_nb.__all__) <= set(dir(infattn_nb))
    assert [*dir(infattn_nb)] == re.findall(r" as (\w+)", STUB)  # in their order
    assert 40 <= len(dir(infattn_nb)) <= 50 and dir(infattn_nb)[0] == "Attention"


def test_every_part_exports_its_own_names():
    "Those at the top as well, but for two functions that have their module's name."
    same = {("initialisation", "report"), ("initialisation", "scan")}
    same |= {("netsor", "gradients")}
    for name, (_, home) in written.PUBLIC.items():
        part = home.partition(".")[0]
        if (part, name) not in same:
            assert getattr(import_module(f"infattn_nb.{part}"), name) is PUBLIC[name]


def test_looking_for_a_name_imports_nothing():
    "`hasattr` with a dunder leaves the package alone, a hint reads the stubs' text."
    code = """import sys, infattn_nb
before = set(sys.modules)
assert not hasattr(infattn_nb, "__wrapped__")
try: infattn_nb.netsor.gaussien
except AttributeError as error: print(error)
assert not [m for m in set(sys.modules) - before if "scipy" in m or "netsor." in m]"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "did you mean infattn_nb.convergence.gaussian?" in run.stdout, run.stderr
