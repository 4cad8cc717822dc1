"""One style: one idea per line, types and documentation on the public face,
findings of ruff and mypy.
"""

import ast
import inspect
import re
import subprocess
import sys
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import pytest
from public import PUBLIC

pytestmark = pytest.mark.xdist_group("style")

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path for path in (ROOT / "infattn_nb").rglob("*.py") if path.name != "_modidx.py"
)


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


def test_a_test_asserts_one_thing_at_a_time():
    found = [
        f"{path.name}:{node.lineno}"
        for path in sorted(Path(__file__).parents[1].glob("*.py"))
        for node in nodes(path)
        if isinstance(node, ast.Assert)
        and isinstance(node.test, ast.BoolOp)
        and isinstance(node.test.op, ast.And)
    ]
    assert not found


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
    files = [*ROOT.glob("benchmarks/*.py"), *ROOT.glob("tools/*.py")]
    assert len(files) > 15
    assert not [name for path in files for name in missing_names(path)]
    gone = tmp_path / "gone.py"
    gone.write_text("from infattn_nb.numerics.hermite import mehler, mehlers")
    assert list(missing_names(gone)) == ["gone.py: infattn_nb.numerics.hermite.mehlers"]


def test_mypy(tmp_path):
    run = tool("mypy", "--cache-dir", tmp_path)
    assert run.returncode == 0, run.stdout


def packed(node):
    "`a, b = x, y`"
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
    )


def compound(node):
    "`if a: b`"
    return (
        isinstance(node, (ast.If, ast.For, ast.While, ast.With, ast.Try))
        and node.body[0].lineno == node.lineno
    )


def tuple_statement(node):
    "`f(x), g(y)`"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Tuple)


@pytest.mark.parametrize(
    "kind, most",
    [(packed, 60), (compound, 60), (tuple_statement, 0)],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_one_idea_per_line(kind, most):
    found = [
        f"{path.name}:{node.lineno}"
        for path in FILES
        for node in nodes(path)
        if kind(node)
    ]
    assert len(found) <= most, found


@pytest.mark.parametrize(
    "line, kind",
    [
        ("a, b = x, y", packed),
        ("if a: b", compound),
        ("with a: b", compound),
        ("f(x), g(y)", tuple_statement),
    ],
)
def test_packed_lines_are_seen(line, kind):
    assert kind(ast.parse(line).body[0])


def public_calls():
    "Every public function, class and method: name, and the object."
    for name, x in PUBLIC.items():
        if inspect.isfunction(x):
            yield name, x
        if inspect.isclass(x):
            if x.__module__.startswith("infattn_nb") and not issubclass(x, Exception):
                yield name, x
            for method, f in vars(x).items():
                f = inspect.unwrap(getattr(f, "__func__", f))
                if (
                    not method.startswith("_")
                    and inspect.isfunction(f)
                    and f.__module__.startswith("infattn_nb")
                ):
                    yield f"{name}.{method}", f


CALLS = dict(public_calls())
BY_HAND = {
    "infattn_figures",
    "infattn_report",
    "infattn_train",
}  # commands document their options as fastcore reads them


def parameters(x):
    kinds = inspect.Parameter
    return [
        p
        for p in inspect.signature(x).parameters.values()
        if p.name not in ("self", "cls")
        and not p.name.startswith("_")
        and p.kind not in (kinds.VAR_KEYWORD, kinds.VAR_POSITIONAL)
    ]


def text(x):
    return (inspect.getdoc(x) or "") + (
        inspect.getdoc(x.__init__) or "" if inspect.isclass(x) else ""
    )


@pytest.mark.parametrize("name", sorted(set(CALLS) - BY_HAND))
def test_help_tells_every_parameter(name):
    """What `help` and an editor show: a numpydoc section with each public parameter,
    and a type in the signature.
    """
    x = CALLS[name]
    entries = re.findall(
        r"^\*{0,2}(\w+(?:, \w+)*)\n    \S", text(x), flags=re.M
    )  # `var_q, var_k` may share one
    documented = [name for entry in entries for name in entry.split(", ")]
    missing = [p.name for p in parameters(x) if p.name not in documented]
    assert not missing, f"not documented: {missing}"
    assert not (bare := [p.name for p in parameters(x) if p.annotation is p.empty]), (
        f"without a type: {bare}"
    )


RESULTS = {
    "Chain",
    "Gradients",
    "ProgramGradients",
    "Training",
    "Report",
    "Scan",
    "Limit",
    "ScaleMixture.rvs",
    "Nonlinearity",
}  # made by the package, in scipy's order, or the claims of one definition


@pytest.mark.parametrize("name", sorted(set(CALLS) - BY_HAND - RESULTS))
def test_options_have_names(name):
    """After the third argument only keywords, but for programs, scipy's methods and
    pairs that belong together.
    """
    places = [p for p in parameters(CALLS[name]) if p.kind is p.POSITIONAL_OR_KEYWORD]
    optional = [p.name for p in places[3:] if p.default is not p.empty]
    assert len([p for p in optional if p not in ("rng", "size")]) == 0, optional
