"""Whoever compares random numbers says what the comparison sees; `python
tools/seeds.py` finds the statistical tests by that.
"""

import ast
from pathlib import Path

import pytest

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
