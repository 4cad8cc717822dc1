"""The API reference: a table of all public names, and a page for each class. They are
made from docstrings, and examples from the cells of `nbs/reference/classes.ipynb`.

Quarto runs it before rendering, in the folder of the pages. There it also puts what
nbdev shows of a cell, in reverse, into the order of the code, linked to its module.
"""

import ast
import inspect
import json
import re
import sys
import zlib
from importlib import import_module
from itertools import groupby
from pathlib import Path
from textwrap import wrap

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the package of this copy, whatever is installed

from written import CFG, NBS, PUBLIC, read, text  # noqa: E402

OBJECTS = {n: getattr(import_module(place), n) for n, (place, _) in PUBLIC.items()}
PAGES = {p.relative_to(NBS).as_posix(): read(p)["cells"] for p in NBS.rglob("*.ipynb")}
FILES = {page: Path("infattn_nb", page).with_suffix(".py") for page in sorted(PAGES)}
MODULES = {page: file for page, file in FILES.items() if (ROOT / file).exists()}

MAIN = "Attention", "Transformer", "Program", "AttentionRegressor", "AttentionDescent"


def plain(said):
    "Text of a docstring as Markdown; formulas and code stay what they are."
    parts = re.split(r"(\$[^$]*\$|`[^`]*`)", said)
    for k, part in enumerate(parts):
        if k % 2 == 0:
            parts[k] = re.sub(r"([|~^<[])", r"\\\1", part).replace("*", "∗")
        elif part.startswith("$"):
            parts[k] = part.replace(r"\|", r"\Vert{}").replace("|", r"\vert{}")
    return "".join(parts).replace("``", "`")


def table(columns, rows):
    "A table of Markdown, if it has rows; its rules are shares of the width."
    lines = [f"| {' | '.join(line)} |" for line in (columns, columns.values(), *rows)]
    return "\n".join(lines) if len(lines) > 2 else ""


def paragraph(doc):
    "The first paragraph of a docstring."
    return plain(doc.split("\n\n")[0].replace("\n", " "))


def kind_of(annotation):
    "A type as written, without the modules it comes from; '' if there is none."
    if annotation is inspect.Parameter.empty:
        return ""
    kind = inspect.formatannotation(annotation).strip("'").replace("NoneType", "None")
    if union := re.fullmatch(r"(?:typing\.)?Union\[(.*)\]", kind):
        kind = union[1].replace(", ", " | ")
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])", "", kind)


def signature(name, thing):
    "The call without the types of its parameters, in lines of 88 characters."
    call = inspect.signature(thing)
    bare = [p.replace(annotation=p.empty) for p in call.parameters.values()]
    bare = [p for p in bare if p.name not in ("self", "cls")]
    shown = f"{name}{call.replace(parameters=bare, return_annotation=call.empty)}"
    shown = shown.replace("=inf", "=np.inf")
    shown = re.sub(r"<function (?:\w+\.)*(\w+) at \w+>", r"\1", shown)
    lines = wrap(shown, 87, subsequent_indent="    ", break_on_hyphens=False)
    kind = kind_of(call.return_annotation)
    return "\n".join(lines) + (f" -> {kind}" if kind not in ("", "None", "Any") else "")


def sections(doc):
    "The numpydoc sections of a docstring: head -> pairs (entry, what is said of it)."
    _, *parts = re.split(r"^(\w+)\n-{3,}$", doc, flags=re.M)
    entry = re.compile(r"^(\S.*?)(?: : (.*))?$((?:\n +\S.*|\n *$)*)", flags=re.M)
    found = {}
    for head, body in zip(parts[::2], parts[1::2]):
        found[head] = []
        for name, kind, more in entry.findall(body):
            said = f"{kind}. {more}" if kind else more
            found[head].append((name, plain(" ".join(said.split()))))
    return found


def described(doc, thing=None):
    "The first paragraph of a docstring, its parameters, results and errors."
    parts = sections(doc)
    known = inspect.signature(thing).parameters if thing else {}
    rows = []
    for names, said in parts.get("Parameters", []):
        first = re.search(r"\w+", names)[0]  # of several that are alike
        if first in known:
            kind = plain(kind_of(known[first].annotation))
            code = kind and f"<code>{kind}</code>"
            rows.append((f"<code>{plain(names)}</code>", code, said))
    columns = {"parameter": ":---", "type": ":---", "meaning": ":--------"}
    found = [paragraph(doc), table(columns, rows)]
    for head in "Returns", "Raises":
        for kind, said in parts.get(head, []):
            found.append(f"**{head}** {plain(kind)}{said and ': ' + said}")
    return "\n\n".join(filter(None, found))


def methods(cls):
    "Public methods and properties that tab completion shows, also inherited ones."
    found = {}
    fields = getattr(cls, "__dataclass_fields__", ())
    offered = getattr(cls, "_shown", dir(cls))
    own = [base for base in cls.__mro__ if base.__module__.startswith("infattn_nb")]
    for name, member in (item for base in own for item in vars(base).items()):
        function = getattr(member, "__func__", getattr(member, "fget", member))
        documented = inspect.isfunction(function) and function.__doc__
        if documented and name[0] != "_" and name in offered and name not in fields:
            found.setdefault(name, (member, function))
    return dict(sorted(found.items(), key=lambda item: item[0] != "law"))


def example(name):
    "The example of a class and what it prints."
    cells = {cell["id"]: cell for cell in PAGES["reference/classes.ipynb"]}
    if (cell := cells.get(f"cl-{name.lower()}-ex")) is None:
        return ""
    outputs = [o.get("text") or o["data"]["text/plain"] for o in cell["outputs"]]
    printed = "".join(map("".join, outputs)).rstrip()
    return f"```python\n{text(cell)}\n```\n\n```text\n{printed}\n```"


def class_page(name):
    "The page of a class: how it is made, an example, every method."
    cls = OBJECTS[name]
    page = PUBLIC[name][1].replace(".", "/") + ".ipynb"
    doc = inspect.getdoc(cls)
    made = inspect.getdoc(cls.__init__) or ""
    if "Parameters\n-" in made and "Parameters\n-" not in doc:
        doc += "\n\n" + made
    explained = f"explained on the page {opening(page)[0]}"
    found = [f"---\ntitle: {name}\n---", f"[API reference](index.qmd) · {explained}"]
    if issubclass(cls, Exception):
        found.append(described(doc))
    else:
        found += [f"```python\n{signature(name, cls)}\n```", described(doc, cls)]
    found.append(example(name))
    for method, (member, function) in methods(cls).items():
        found.append(f"## {name}.<wbr>{method} {{#{name.lower()}.{method}}}")
        call = f"```python\n{signature(f'{name}.{method}', function)}\n```"
        found.append("A property." if isinstance(member, property) else call)
        found.append(described(inspect.getdoc(function), function))
    return "\n\n".join(filter(None, found)) + "\n"


INDEX = """---
title: "API reference"
description: "Every public name of `infattn_nb` with a line, a page for each class, \
and the pages that make the modules."
---

Each line is the first sentence of a docstring, and `help(Attention.law)` prints the \
rest. Each class has a page of its own. A function is described on the page of its \
module. An invalid argument raises `ValueError` or `TypeError`, with [one \
sentence](../numerics/checks.ipynb) that states the problem and the remedy. The page \
[An example for each class](../reference/classes.ipynb) shows the classes in use.

## Five classes to begin with"""


def entry(name):
    "A row of the index: a name with its link, where to import it from, its line."
    place, module = PUBLIC[name]
    target = f"../{module.replace('.', '/')}.ipynb"
    thing = OBJECTS[name]
    if inspect.isclass(thing):
        target = f"{name.lower()}.qmd"
    line = re.split(r"(?<=[.!?]) (?=[A-Z])", paragraph(inspect.getdoc(thing)))[0]
    return f"[{plain(name)}]({target})", f"`{place}`", line


def of_names(names):
    "The rows of some names; on a phone the cells of a row stand one below the other."
    columns = {"name": ":--", "import from": ":--", "what it is": ":-----"}
    rows = table(columns, map(entry, names))
    return rows and f"::: {{.api-names}}\n{rows}\n:::"


def opening(page):
    "The title of a page, with a link, and its claim."
    title, claim = re.match("# (.+)\n\n> (.+)", text(PAGES[page][0])).groups()
    return f"[{title}](../{page})", claim


def index():
    "The main classes, then each part: its public names, and the pages that make it."
    of_pages = {"page": ":---", "what it says": ":-----"}
    found = [INDEX, of_names(MAIN)]
    for part, pages in groupby(MODULES, lambda page: re.match(r"\w+", page)[0]):
        about = import_module(f"infattn_nb.{part}").__doc__
        names = [n for n in PUBLIC if re.match(rf"{part}\b", PUBLIC[n][1])]
        found += [f"## {part}", about, of_names(sorted(names, key=str.casefold))]
        found.append(table(of_pages, map(opening, pages)))
    return "\n\n".join(filter(None, found)) + "\n"


def pages():
    "File -> text of the whole reference."
    classes = [name for name, thing in OBJECTS.items() if inspect.isclass(thing)]
    return {f"{n.lower()}.qmd": class_page(n) for n in classes} | {"index.qmd": index()}


def inventory():
    "`objects.inv`, by which Sphinx and other sites link to names, a line for each."
    rows = []
    for name, (place, module) in PUBLIC.items():
        kind, page = "function", f"{module.replace('.', '/')}.html#{name}"
        if inspect.isclass(OBJECTS[name]):
            kind, page = "class", f"api/{name.lower()}.html"
            for method in methods(OBJECTS[name]):
                at = f"{page}#{name.lower()}.{method}"
                rows.append(f"{place}.{name}.{method} py:method 1 {at} -\n")
        rows.append(f"{place}.{name} py:{kind} 1 {page} -\n")
    head = "# Sphinx inventory version 2\n# Project: {lib_name}\n# Version: {version}\n"
    head += "# The remainder of this file is compressed using zlib.\n"
    return head.format(**CFG).encode() + zlib.compress("".join(rows).encode())


SHOWN = re.compile(r"show_doc\((\w+)\)")


def in_order(page, name):
    "A page of nbdev, with documentation in the order of the code, and linked to it."
    if (file := MODULES.get(name)) is None:
        return page
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    lines = {node.name: node.lineno for node in tree.body if hasattr(node, "name")}
    cells = [*page["cells"]]
    shown = [(m[1], k) for k, c in enumerate(cells) if (m := SHOWN.search(text(c)))]
    places = {name: k for name, k in shown if name in lines}
    for n, k in zip(sorted(places, key=lines.get), sorted(places.values())):
        link = rf"\1/{file}#L{lines[n]}"
        moved = json.dumps(page["cells"][places[n]])
        cells[k] = json.loads(re.sub(r"(/blob/\w+)/[\w/]+\.py#L\w+", link, moved))
    return page | {"cells": cells}


if __name__ == "__main__":
    for path in Path().rglob("*.ipynb"):
        path.write_text(json.dumps(in_order(read(path), path.as_posix())))
    Path("api").mkdir(exist_ok=True)
    for file, text_of_page in pages().items():
        Path("api", file).write_text(text_of_page, encoding="utf-8")
    Path("objects.inv").write_bytes(inventory())
