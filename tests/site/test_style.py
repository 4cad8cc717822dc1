"""One style: one idea per line, findings of ruff and mypy."""

import ast
import subprocess
import sys
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import pytest
from written import ROOT

pytestmark = pytest.mark.xdist_group("style")
BENCHMARKS = sorted(ROOT.glob("benchmarks/*.py"))
SCRIPTS = [p for p in BENCHMARKS if "__main__" in p.read_text(encoding="utf-8")]


@lru_cache
def nodes(path):
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def tool(*command):
    return subprocess.run(
        [Path(sys.executable).with_name(command[0]), *command[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_ruff():
    run = tool("ruff", "check", ".")
    assert run.returncode == 0, run.stdout


def test_code_beside_the_package_is_formatted():
    folders = ("tests", "tools", "benchmarks")
    run = tool("ruff", "format", "--check", *folders)
    assert run.returncode == 0, f"{run.stdout}run `ruff format {' '.join(folders)}`"


def missing_names(path):
    "What a file imports from the package, but is not there."
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and "infattn_nb" in (node.module or ""):
            module = import_module(node.module)
            for name in node.names:
                if not hasattr(module, name.name):
                    yield f"{path.name}: {node.module}.{name.name}"


def test_benchmarks_and_tools_import_what_there_is(tmp_path):
    "They run rarely: a name that has gone is noticed here."
    files = [*BENCHMARKS, *ROOT.glob("tools/*.py")]
    assert len(files) > 15
    assert not [name for path in files for name in missing_names(path)]
    gone = tmp_path / "gone.py"
    gone.write_text("from infattn_nb.numerics.hermite import mehler, mehlers")
    assert list(missing_names(gone)) == ["gone.py: infattn_nb.numerics.hermite.mehlers"]


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_benchmarks_say_what_they_do_before_they_do_it(path):
    "A question is no reason to measure for minutes, or to write a table."
    run = subprocess.run(
        [sys.executable, path, "--help"], capture_output=True, text=True, timeout=120
    )
    if "No module named" in run.stderr:
        pytest.skip("what it compares with is not installed")
    assert run.returncode == 0, run.stderr
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) in run.stdout


def test_mypy(tmp_path):
    run = tool("mypy", "--cache-dir", tmp_path)
    assert run.returncode == 0, run.stdout
