"""Whoever compares random numbers says what the comparison sees; `python
tools/seeds.py` finds the statistical tests by that.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from written import ROOT

FILES = sorted(Path(__file__).parents[1].rglob("test_*.py"))


def cases(path):
    return [
        x
        for x in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(x, ast.FunctionDef) and x.name.startswith("test_")
    ]


def powers(test):
    return [
        d.args[0].value
        for d in test.decorator_list
        if isinstance(d, ast.Call) and ast.unparse(d.func) == "pytest.mark.power"
    ]


def calls(test):
    return {
        ast.unparse(node.func) for node in ast.walk(test) if isinstance(node, ast.Call)
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_statistical_tests_state_their_power(path):
    for test in cases(path):
        if calls(test) & {"ks_2samp", "kstest", "same", "differ", "np.hypot"}:
            assert powers(test), (
                f"{test.name} compares samples: what does it see? Mark its power."
            )
        assert all(len(text) > 2 for text in powers(test))


@pytest.mark.slow
def test_they_run_under_other_seeds():
    "One that draws p-values, and one whose draws are a fixture."
    names = "numerics/test_linalg: bartlett", "test_quantities: the_range_by_seed_holds"
    tool = [sys.executable, ROOT / "tools/seeds.py", "--last", "2", "--only"]
    run = subprocess.run([*tool, "|".join(names)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert all(name in run.stdout for name in names)
    assert "in all 18 p-values" in run.stdout
    assert run.stdout.endswith(" 0 failures\n")
