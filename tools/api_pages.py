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
from types import FunctionType
from typing import Union, get_args, get_origin

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the package of this copy, whatever is installed

from written import CFG, NBS, PUBLIC, offered, read, text  # noqa: E402

HOME = {name: module.replace(".", "/") for name, (_, module) in PUBLIC.items()}
OBJECTS = {n: getattr(import_module(place), n) for n, (place, _) in PUBLIC.items()}
PAGES = {p.relative_to(NBS).as_posix(): read(p)["cells"] for p in NBS.rglob("*.ipynb")}
FILES = {page: Path("infattn_nb", page).with_suffix(".py") for page in sorted(PAGES)}
MODULES = {page: file for page, file in FILES.items() if (ROOT / file).exists()}
CLASSES = [name for name, thing in OBJECTS.items() if inspect.isclass(thing)]
EXAMPLES = PAGES["reference/classes.ipynb"]

TOP = [*offered(ROOT / "infattn_nb/__init__.pyi", "infattn_nb")]


def plain(said):
    "Text of a docstring as Markdown, in a line; formulas and code stay what they are."
    parts = re.split(r"(\$[^$]*\$|`[^`]*`)", " ".join(said.split()))
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


def kind_of(annotation):
    "A type as written, without the modules it comes from; '' if there is none."
    if annotation is inspect.Parameter.empty:
        return ""
    if get_origin(annotation) is Union:
        return " | ".join(map(kind_of, get_args(annotation)))
    kind = inspect.formatannotation(annotation).strip("'").replace("NoneType", "None")
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
    "The numpydoc sections of a docstring: head -> triples (name, type, meaning)."
    _, *parts = re.split(r"^(\w+)\n-{3,}$", doc, flags=re.M)
    entry = re.compile(r"^(\S.*?)(?: : (.*))?$((?:\n +\S.*|\n *$)*)", flags=re.M)
    return dict(zip(parts[::2], map(entry.findall, parts[1::2])))


def described(name, member):
    "A call, the first paragraph of its docstring, its parameters, results and errors."
    thing = getattr(member, "fget", member)
    call = f"```python\n{signature(name, thing)}\n```"
    doc = inspect.getdoc(thing)
    parts = sections(inspect.getdoc(thing.__init__)) | sections(doc)
    known = inspect.signature(thing).parameters
    rows = []
    for names, kind, said in parts.get("Parameters", []):
        first = re.search(r"\w+", names)[0]  # of several that are alike
        if first in known:
            kind = kind_of(known[first].annotation) or kind
            code = [x and f"<code>{plain(x)}</code>" for x in (names, kind)]
            rows.append((*code, plain(said)))
    columns = {"parameter": ":---", "type": ":---", "meaning": ":--------"}
    found = ["A property." if isinstance(member, property) else call]
    found += [plain(doc.partition("\n\n")[0]), table(columns, rows)]
    for head in "Returns", "Raises":
        for name, kind, said in parts.get(head, []):
            meaning = said and f": {plain(said)}"
            found.append(f"**{head}** {plain(kind or name)}{meaning}")
    return "\n\n".join(filter(None, found))


def methods(cls):
    "Public methods and properties that tab completion shows, also inherited ones."
    found = {}
    fields = getattr(cls, "__dataclass_fields__", ())
    offered = getattr(cls, "_shown", dir(cls))
    own = [base for base in cls.__mro__ if base.__module__.startswith("infattn_nb")]
    for name, member in (item for base in own for item in vars(base).items()):
        member = getattr(member, "__func__", member)
        documented = isinstance(member, (FunctionType, property)) and member.__doc__
        if documented and name[0] != "_" and name in offered and name not in fields:
            found.setdefault(name, member)
    return dict(sorted(found.items(), key=lambda item: item[0] != "law"))


def example(cell):
    "The example of a class and what it prints."
    outputs = [o.get("text") or o["data"]["text/plain"] for o in cell["outputs"]]
    printed = "".join(map("".join, outputs)).rstrip()
    return f"```python\n{text(cell)}\n```\n\n```text\n{printed}\n```"


def class_page(name):
    "The page of a class: how it is made, an example, every method."
    link, _ = opening(f"{HOME[name]}.ipynb")
    found = [f"---\ntitle: {name}\n---"]
    found.append(f"[API reference](index.qmd) · explained on the page {link}")
    found.append(described(name, OBJECTS[name]))
    found += [example(c) for c in EXAMPLES if c["id"] == f"cl-{name.lower()}-ex"]
    for method, member in methods(OBJECTS[name]).items():
        found.append(f"## {name}.<wbr>{method} {{#{name.lower()}.{method}}}")
        found.append(described(f"{name}.{method}", member))
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

## The top level

The names at the top of the package, in the order of the pages. Other names stand in \
their part."""


def of_names(names):
    "A table: names with links, where to import them from, what their docstrings say."
    rows = []
    for name in names:
        own_page = f"{name.lower()}.qmd"
        target = own_page if name in CLASSES else f"../{HOME[name]}.ipynb"
        doc = inspect.getdoc(OBJECTS[name])
        line = plain(re.split(r"(?<=[.!?])\s(?=[A-Z])|\n\n", doc)[0])
        rows.append((f"[{plain(name)}]({target})", f"`{PUBLIC[name][0]}`", line))
    columns = {"name": ":--", "import from": ":--", "what it is": ":-----"}
    return rows and f"::: {{.api-names}}\n{table(columns, rows)}\n:::"


def opening(page):
    "The title of a page, with a link, and its claim."
    title, claim = re.match("# (.+)\n\n> (.+)", text(PAGES[page][0])).groups()
    return f"[{title}](../{page})", claim


def index():
    "The top level, then each part: its other names, and the pages that make it."
    of_pages = {"page": ":---", "what it says": ":-----"}
    found = [INDEX, of_names(TOP)]
    for part, pages in groupby(MODULES, lambda page: re.match(r"\w+", page)[0]):
        about = import_module(f"infattn_nb.{part}").__doc__
        names = [name for name in HOME if HOME[name].split("/")[0] == part]
        found += [f"## {part}", about, of_names(names)]
        found.append(table(of_pages, map(opening, pages)))
    return "\n\n".join(filter(None, found)) + "\n"


def pages():
    "File -> text of the whole reference."
    return {f"{n.lower()}.qmd": class_page(n) for n in CLASSES} | {"index.qmd": index()}


def inventory():
    "`objects.inv`, by which Sphinx and other sites link to names, a line for each."
    rows = []
    for name, (place, _) in PUBLIC.items():
        kind, page = "function", f"{HOME[name]}.html#{name}"
        if name in CLASSES:
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
    shown = {m[1]: k for k, c in enumerate(cells) if (m := SHOWN.search(text(c)))}
    ordered = [name for name in lines if name in shown]
    for name, k in zip(ordered, sorted(shown[name] for name in ordered)):
        link = rf"\1/{file}#L{lines[name]}"
        moved = json.dumps(page["cells"][shown[name]])
        cells[k] = json.loads(re.sub(r"(/blob/\w+)/[\w/]+\.py#L\w+", link, moved))
    return page | {"cells": cells}


if __name__ == "__main__":
    for path in Path().rglob("*.ipynb"):
        path.write_text(json.dumps(in_order(read(path), path.as_posix())))
    Path("api").mkdir(exist_ok=True)
    for file, text_of_page in pages().items():
        Path("api", file).write_text(text_of_page, encoding="utf-8")
    Path("objects.inv").write_bytes(inventory())
