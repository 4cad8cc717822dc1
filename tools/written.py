"""What is written from something else: modules and pages. `python tools/written.py`
writes it, and names what has changed.

- the modules: from the notebooks (`nbdev_export`);
- imports that the visible cells of a page lack, so that what stands open on it can be
  copied and runs from top to bottom in a fresh interpreter: from its syntax tree;
- `README.md`: from `nbs/index.ipynb`.
"""

import ast
import builtins
import configparser
import json
import re
import subprocess
import symtable
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
NBS = ROOT / "nbs"
PAGES = sorted(NBS.rglob("*.ipynb"))
parser = configparser.ConfigParser(delimiters=["="])
parser.read(ROOT / "settings.ini", encoding="utf-8")
CFG = parser["DEFAULT"]


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def text(cell):
    return "".join(cell["source"])


def written(nb):
    return json.dumps(nb, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


# Public names


def offered(stub, package):
    """What a hand-written stub says: name -> (where to import it from, module that
    makes it).
    """
    return {
        a.name: (package, f"{package}.{node.module}".removeprefix("infattn_nb."))
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.module
        for a in node.names
    }


def public():
    "Every public name, those at the top first."
    found = offered(ROOT / "infattn_nb/__init__.pyi", "infattn_nb")
    for stub in sorted((ROOT / "infattn_nb").glob("*/__init__.pyi")):
        found = offered(stub, f"infattn_nb.{stub.parent.name}") | found
    code = (ROOT / "infattn_nb/nonlinearities.py").read_text(encoding="utf-8")
    ready_made = re.findall(r'"(\w+)"', code[code.rindex("__all__ = ") :])
    home = "infattn_nb.nonlinearities", "nonlinearities"
    return dict.fromkeys(ready_made, home) | found


PUBLIC = public()


# What stands open can be copied

UNSEEN = re.compile(
    r"^#\| *(hide\b|export\b|exporti\b|exportc\b|default_exp|echo: false|"
    r"include: false|code-fold: true|eval: false)",
    flags=re.M,
)
KNOWN = {*dir(builtins), "__name__", "display"}  # to every interpreter of notebooks


def is_visible(cell):
    return (
        cell["cell_type"] == "code"
        and text(cell) != ""
        and not cell["metadata"].get("code-fold")
        and not UNSEEN.search(text(cell))
    )


def visible(nb):
    return [text(c) for c in nb["cells"] if is_visible(c)]


# Names that a piece of code gives and takes


def scopes(table):
    "A scope and all that it holds."
    yield table
    for child in table.get_children():
        yield from scopes(child)


@cache
def names(source):
    """Global names of a piece of code: what it leaves for the code below, what it uses
    at once, and what it uses when its functions are called.
    """
    left, now, later = set(), set(), set()
    for scope in scopes(symtable.symtable(source, "cell", "exec")):
        outermost = scope.get_type() == "module"
        used = now if outermost else later
        for s in scope.get_symbols():
            is_global = outermost or s.is_global()
            if is_global and s.is_referenced():
                used.add(s.get_name())
            is_left = outermost or s.is_declared_global()
            if is_left and (s.is_assigned() or s.is_imported()):
                left.add(s.get_name())
    return left, now, later


def given(source):
    "Names that a cell leaves for the cells below it."
    return names(source)[0]


def statements(source):
    return map(ast.unparse, ast.parse(source).body)


def from_nowhere(sources):
    """Names that visible cells use and no visible cell gives: above for code that runs
    at once, anywhere for what functions call.
    """
    everywhere = KNOWN.union(*map(given, sources))
    known = set(KNOWN)
    missing = []
    for statement in (s for source in sources for s in statements(source)):
        left, now, later = names(statement)
        if not re.match(r"[^=(]*[-+*/@|]?= ", statement):  # x = x + 1 asks for x
            now = now - left
        missing += sorted((now - known) | (later - everywhere))
        known |= left
    return list(dict.fromkeys(missing))


# Writing what is missing


def imports(source):
    "name -> (module, name there, name here) for the imports of a cell."
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            for a in node.names:
                found[a.asname or a.name] = (None, a.name, a.asname)
        elif isinstance(node, ast.ImportFrom):
            for a in node.names:
                found[a.asname or a.name] = (node.module, a.name, a.asname)
    return found


def is_import(source):
    return source != "" and all(
        isinstance(node, (ast.Import, ast.ImportFrom))
        for node in ast.parse(source).body
    )


def lines(found):
    "Imports as ruff sorts them: standard library, others, this package."
    statements = []
    for module, name, here in found.values():
        origin = f"from {module} " if module else ""
        renamed = f" as {here}" if here else ""
        statements.append(f"{origin}import {name}{renamed}\n")
    ruff = Path(sys.executable).with_name("ruff")
    command = [ruff, "check", "--select=I", "--fix", "--quiet", "-"]
    text = "".join(statements)
    result = subprocess.run(
        command, cwd=ROOT, input=text, stdout=subprocess.PIPE, encoding="utf-8"
    )
    return result.stdout.rstrip()


def origin(name, nb):
    "Where a page has a name from: one of its imports, or the module that it makes."
    sources = [
        text(c)
        for c in nb["cells"]
        if c["cell_type"] == "code" and not text(c).startswith(("!", "%"))
    ]
    place, home = PUBLIC.get(name, (None, None))
    for source in sources:
        if found := imports(source).get(name):
            return (
                (place, name, None)
                if home and found[0] == f"infattn_nb.{home}"
                else found
            )
    module = re.search(r"^#\| default_exp (\S+)", "\n".join(sources), flags=re.M)
    made = set().union(
        *(given(s) for s in sources if re.search(r"^#\| *exports?\b", s, flags=re.M))
    )
    if not module or name not in made:
        return None
    return place if home == module[1] else f"infattn_nb.{module[1]}", name, None


def lost(nb):
    """Names that some cell, folded and hidden ones too, uses before a cell gives them,
    and that could be imported or are given nowhere.
    """
    code = [
        text(c)
        for c in nb["cells"]
        if c["cell_type"] == "code"
        and not re.search(r"^[!%]|eval: false", text(c), flags=re.M)
    ]
    somewhere = set().union(*map(given, code))
    return [
        name for name in from_nowhere(code) if name not in somewhere or origin(name, nb)
    ]


def with_imports(nb):
    "The page: missing imports stand in the visible imports."
    cells = nb["cells"]
    wanted = {
        name: found
        for name in from_nowhere(visible(nb))
        if not name.startswith("_") and (found := origin(name, nb))
    }
    for name in lost(nb):
        if found := origin(name, nb) or (
            name in PUBLIC and (PUBLIC[name][0], name, None)
        ):
            wanted[name] = found
    if not wanted:
        return nb
    target = next((c for c in cells if is_visible(c) and is_import(text(c))), None)
    if target is None:
        first = next(k for k, c in enumerate(cells) if is_visible(c))
        target = dict(
            cell_type="code",
            execution_count=None,
            id="needs",
            metadata={},
            outputs=[],
            source=[],
        )
        cells.insert(first, target)
    target["source"] = lines(imports(text(target)) | wanted).splitlines(keepends=True)
    return nb


# README.md

BLOB = f"{CFG['git_url']}/blob/{CFG['branch']}/"  # beside the README it needs no host


def readme():
    """The notebook as GitHub markdown: hidden cells and what moves dropped, figures as
    images, links relative to the root.
    """
    cells = read(NBS / "index.ipynb")["cells"]
    return "\n\n".join(filter(None, map(_markdown, cells))) + "\n"


def _markdown(cell):
    source = text(cell)
    # the API reference is made with the site
    source = source.replace("](api/index.qmd)", "](reference/classes.ipynb)")
    if "data-live" in source:
        return ""  # for the site
    if cell["cell_type"] == "markdown":
        source = re.sub(r"\]\(([\w/]+\.ipynb)", r"](nbs/\1", source)
        return source.replace(f"]({BLOB}", "](")
    if "#| hide" in source:
        return ""
    if image := re.search(r'"(images/\w+\.png)"', source):
        caption, alt = (
            re.search(rf'#\| {key}: "(.*)"', source)[1]
            for key in ("fig-cap", "fig-alt")
        )
        return f"![{alt}](nbs/{image[1]})\n\n*{caption}*"
    printed = "".join("".join(o["text"]) for o in cell["outputs"])
    return f"```python\n{source}\n```\n\n```\n{printed.rstrip()}\n```"


def wanted():
    "Files and what they should hold."
    for path in PAGES:
        nb = with_imports(read(path))
        yield path, written(nb)
        if left := from_nowhere(visible(nb)):
            print(path.relative_to(NBS), "shows, but nowhere gives,", *left)
    yield ROOT / "README.md", readme()


if __name__ == "__main__":
    subprocess.run(
        [Path(sys.executable).with_name("nbdev_export")], cwd=ROOT, check=True
    )
    for path, new in wanted():
        if not path.exists() or path.read_text(encoding="utf-8") != new:
            path.write_text(new, encoding="utf-8")
            print(path.relative_to(ROOT))
