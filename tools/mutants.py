"""Small errors, put into formulas one at a time: do the tests see them?

    python tools/mutants.py [--number 200] [--seed 0] [--only regex] [--reach 1]
    python tools/mutants.py --again # those of the table that no test saw

Each error changes an operator, a constant, a sign, a comparison, an axis, a function
or the letters of a sum in one place of a copy of the project. Tests run on it: quick
ones of the module (`--reach 1`), its longer ones (2), quick ones of its subpackage and
of its users (3), their longer ones (4), and all other quick ones (5). An error that was
not seen runs again where the reach is greater than 1. It is *seen* if a test fails by a
wrong value. Other exceptions, import errors and time-outs are counted apart. A row is
added to the table for each error; in the row of one that changes no result, enter that
and the reason.
"""

import ast
import csv
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MPLBACKEND"] = "agg"
os.environ["COLUMNS"] = "300"  # pytest cuts its summary

import hypothesis, matplotlib.pyplot, numpy as np, pandas, pytest  # noqa
import scipy.integrate, scipy.optimize, scipy.sparse, scipy.stats  # noqa
from fastcore.script import call_parse

try:
    import torch, transformers  # noqa
except ImportError:
    pass

ROOT = Path(__file__).parent.parent
AGAIN = "not seen", "time-out"  # with other tests, or more time
PLACE = "file line column old new".split()
LEFT_OUT = re.compile(  # messages, files, pictures, commands, estimates of time
    "__|_modidx|_lazy|plotting|paper/|numerics/(checks|files|workers)|command|html|"
    "panels|describe|factors|measure|huggingface/(module|beside|read|verified)"
)
SILENT = re.compile(  # calls and functions whose arguments are messages or estimates
    r"(^|\.)(checks|warnings|logging)\.|reject|warn|Error$|Warning$|cost|seconds|memory|"
    r"message|report_time|progress|__repr__|_repr_|format|print|takes|size_in|bytes"
)
OPERATORS = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.Pow: ("**", "*"),
    ast.Lt: ("<", ">="),
    ast.LtE: ("<=", ">"),
    ast.Gt: (">", "<="),
    ast.GtE: (">=", "<"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
PAIRS = "sum mean,max min,maximum minimum,argmax argmin,sin cos,any all,exp expm1"
PAIRS = dict(
    pair.split() for pair in (PAIRS + ",log log1p,tril triu,ceil floor").split(",")
)
PAIRS |= {b: a for a, b in PAIRS.items()}


class Places(ast.NodeVisitor):
    "Places of a module: (start, end, old, new) in bytes, and its line."

    def __init__(self, source):
        self.source, self.found = source, []
        ends = [0, *(m.end() for m in re.finditer(b"\n", source))]
        self.at = lambda line, column: ends[line - 1] + column
        self.visit(ast.parse(source))

    def span(self, node):
        end = self.at(node.end_lineno, node.end_col_offset)
        return self.at(node.lineno, node.col_offset), end

    def add(self, start, end, old, new, node):
        self.found.append((start, end, old, new, node.lineno))

    def between(self, left, right, operator, node):
        if type(operator) in OPERATORS:
            old, new = OPERATORS[type(operator)]
            start, end = self.span(left)[1], self.span(right)[0]
            place = self.source.find(old.encode(), start, end)
            if place >= 0:
                self.add(place, place + len(old), old, new, node)

    def visit_FunctionDef(self, node):
        if not SILENT.search(node.name):
            for child in node.body:
                self.visit(child)

    def visit_Raise(self, node):
        pass

    visit_JoinedStr = visit_AnnAssign = visit_Assert = visit_Raise

    def visit_Call(self, node):
        name = ast.unparse(node.func)
        if SILENT.search(name):
            return
        if name.endswith("einsum") and isinstance(node.args[0], ast.Constant):
            self.letters(node.args[0])
        self.generic_visit(node)

    def letters(self, node):
        "The last two letters of the first term of an Einstein sum, exchanged."
        first = re.match(r"[^,>-]*", node.value)[0]
        if len(first) > 1 and first[-1] != first[-2]:
            new = first[:-2] + first[-1] + first[-2] + node.value[len(first) :]
            self.add(*self.span(node), node.value, repr(new), node)

    def visit_BinOp(self, node):
        texts = (ast.JoinedStr, ast.List, ast.Tuple)
        sides = node.left, node.right
        if not any(isinstance(x, texts) or is_text(x) for x in sides):
            self.between(*sides, node.op, node)
        self.generic_visit(node)

    def visit_AugAssign(self, node):
        self.between(node.target, node.value, node.op, node)
        self.generic_visit(node)

    def visit_Compare(self, node):
        if not any(map(is_text, (node.left, *node.comparators))):
            for left, op, right in zip(
                (node.left, *node.comparators), node.ops, node.comparators
            ):
                self.between(left, right, op, node)
        self.generic_visit(node)

    def visit_BoolOp(self, node):
        self.between(*node.values[:2], node.op, node)
        self.generic_visit(node)

    def visit_UnaryOp(self, node):
        start, end = self.span(node)
        if isinstance(node.op, ast.USub):
            self.add(start, start + 1, "-", " ", node)
        elif isinstance(node.op, ast.Not):
            self.add(start, start + 3, "not", "   ", node)
        self.generic_visit(node)

    def visit_Constant(self, node):
        x = node.value
        if isinstance(x, (int, float)) and not isinstance(x, bool):
            new = repr(x + 1 if isinstance(x, int) else 2 * x or 1.0)
            self.add(*self.span(node), repr(x), new, node)

    def visit_Attribute(self, node):
        end = self.span(node)[1]
        if node.attr == "T":
            self.add(end - 2, end, ".T", "", node)
        elif node.attr in PAIRS:
            start = end - len(node.attr)
            self.add(start, end, node.attr, PAIRS[node.attr], node)
        self.generic_visit(node)


def is_text(node):
    return isinstance(node, ast.Constant) and not isinstance(node.value, (int, float))


def mutated(source, place):
    start, end, _, new, _ = place
    return source[:start] + new.encode() + source[end:]


def places(only):
    "All (path, place) of the mathematics."
    package = ROOT / "infattn_nb"
    files = [p for p in sorted(package.rglob("*.py")) if re.search(only, str(p))]
    files = [p for p in files if not LEFT_OUT.search(str(p.relative_to(package)))]
    return [(p, place) for p in files for place in Places(p.read_bytes()).found]


def row_of(path, place):
    "What the table says of a place."
    start, _, old, new, line = place
    column = start - path.read_bytes().rfind(b"\n", 0, start)
    file = str(path.relative_to(ROOT / "infattn_nb"))
    return file, str(line), str(column), old, new


def draw(every, rng, number):
    chosen = rng.choice(len(every), min(number, len(every)), replace=False)
    return [every[k] for k in chosen]


def stages(folder, path):
    "Options of pytest for the nearest tests, those of the part, longer ones, the rest."
    module = path.relative_to(ROOT / "infattn_nb").with_suffix("")
    every = (folder / "tests").rglob("test_*.py")
    tests = [p for p in every if p.parent.name != "site"]
    own = folder / "tests" / module.parent / f"test_{module.name}.py"
    near = [p for p in tests if p == own]
    beside = [p for p in own.parent.glob("test_*.py") if p.parent.name != "tests"]
    dotted = ".".join(("infattn_nb", *module.parts))
    users = [p for p in tests if dotted in p.read_text()]
    part = [p for p in dict.fromkeys([*users, *beside]) if p not in near]
    quick = "not slow and not site and not long and not torch"
    longer = "not slow and (long or torch)"
    groups = [(quick, near), (longer, near), (quick, part), (longer, part)]
    groups += [(quick, sorted({*tests} - {*near, *part}))]
    for marks, files in groups:
        yield marks, [str(p.relative_to(folder)) for p in files]


def run_tests(folder, marks, files, limit):
    "What pytest prints, in a process that is forked, so that imports cost nothing."
    said = folder / "said.txt"
    child = os.fork()
    if not child:
        os.setpgrp()
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        out = os.open(said, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        options = "-n0 -x -q --tb=no -rfE -p no:cacheprovider".split()
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-m"]
        os._exit(pytest.main([*options, marks, *files]))
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return None
    return said.read_text()


def verdict(folder, path, limit, reach):
    "(what, by which test) of the copy as it is."
    for marks, files in islice(stages(folder, path), reach):
        if not files:
            continue
        out = run_tests(folder, marks, files, limit)
        if out is None:
            return "time-out", " ".join(files)[:80]
        lines = re.findall(r"^(FAILED|ERROR) (.+?)( - .*)?$", out, re.M)
        if lines:
            kind, test, why = lines[0]
            if kind == "ERROR" and "::" not in test:
                return "import error", test
            wrong = not why or re.match(" - (assert|AssertionError|Failed)", why)
            return "seen" if wrong else "exception", test
        if (
            " passed" not in out
            and "no tests ran" not in out
            and "deselected" not in out
        ):
            return "import error", " ".join(out.split())[-80:]
    return "not seen", ""


@call_parse
def main(
    number: int = 200,  # how many errors
    seed: int = 0,  # of the draws
    out: str = "nbs/data/mutants.csv",  # errors that it contains are not run again
    only: str = "",  # regular expression that paths of modules must match
    reach: int = 5,  # how many of the five groups of tests
    limit: int = 400,  # seconds of processor time for one run of tests
    again: bool = False,  # errors of the table that were not seen, no others
):
    "Put errors into a copy of the project and run the tests."
    folder = Path(tempfile.mkdtemp(prefix="mutants"))
    ignore = shutil.ignore_patterns("__pycache__", ".*", "*.ipynb", "_docs", "_proc")
    shutil.copytree(ROOT, folder, ignore=ignore, dirs_exist_ok=True)
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.check_output(git, cwd=ROOT, text=True).strip()
    table = Path(out)
    with table.open(encoding="utf-8", newline="") as f:
        rows = {tuple(row[k] for k in PLACE): row for row in csv.DictReader(f)}
    unseen = {at for at, row in rows.items() if row["verdict"] in AGAIN}
    chosen = places(only)
    if again:
        chosen = [x for x in chosen if row_of(*x) in unseen]
    else:
        chosen = draw(chosen, np.random.default_rng(seed), number)
    for path, place in chosen:
        file, source = path.relative_to(ROOT), path.read_bytes()
        at = row_of(path, place)
        if at in rows and not ((again or reach > 1) and at in unseen):
            continue
        begun = time.perf_counter()
        (folder / file).write_bytes(mutated(source, place))
        what, why = verdict(folder, path, limit, reach)
        (folder / file).write_bytes(source)
        part = file.parts[1].removesuffix(".py")
        values = commit, part, *at, what, why
        rows[at] = dict(zip(["commit", "part", *PLACE, "verdict", "reason"], values))
        with table.open("w", encoding="utf-8", newline="") as f:
            writer = csv.DictWriter(f, rows[at], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows.values())
        print(what, *at, why, f"{time.perf_counter() - begun:.0f} s", flush=True)
    shutil.rmtree(folder)
