"""The API reference: all names, all methods, and a page for each class, made from
docstrings. Examples come, with their outputs, from the page
`nbs/reference/classes.ipynb`, where they are run.

    python tools/api_pages.py [FOLDER]

Quarto runs it before rendering (`_quarto.yml`), in the folder of the pages. There it
also puts what nbdev shows of a cell into the order in which the cell defines it
(nbdev's is the reverse), and each link to the source into the module of the page.
"""

import ast
import inspect
import json
import re
import sys
import zlib
from importlib import import_module
from pathlib import Path
from textwrap import wrap
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the package of this copy, whatever is installed

from written import CFG, PUBLIC  # noqa: E402

NBS = ROOT / "nbs"
SUBPACKAGES = dict(
    numerics="Numbers",
    nonlinearities="Nonlinearities",
    distributions="Distributions",
    attention="One attention layer",
    netsor="Programs",
    training="Training",
    theory="The theorem",
    convergence="How far from the limit",
    transformer="Transformers",
    huggingface="Models of Hugging Face",
    initialisation="Initialisation",
    learning="Learning",
    paper="The paper's experiments",
)


def public(name):
    "The object of a public name."
    return getattr(import_module(PUBLIC[name][0]), name)


HEADS = "Parameters", "Returns", "Raises"


def sections(doc):
    "A docstring in parts: what stands first, and the numpydoc sections as lines."
    parts, head = {"": []}, ""
    lines = doc.splitlines()
    for line, below in zip(lines, [*lines[1:], ""]):
        if below and set(below) == {"-"}:
            head = line.strip()
            parts[head] = []
        elif not (line and set(line) == {"-"}):
            parts[head].append(line)
    return parts


def entries(lines):
    "Names of a section and what is said of them."
    found = []
    for line in lines:
        if line and not line.startswith(" "):
            name, _, kind = line.partition(" : ")
            found.append((name.strip(), [f"{kind.strip()}."] if kind.strip() else []))
        elif line.strip() and found:
            found[-1][1].append(line.strip())
    return [(name, " ".join(text)) for name, text in found]


def plain(text):
    "Text of a docstring as Markdown: signs that Markdown would take for its own."
    parts = re.split(r"(\$[^$]*\$|`[^`]*`)", text)
    parts[1::2] = [
        x.replace(r"\|", r"\Vert{}").replace("|", r"\vert{}") if x[0] == "$" else x
        for x in parts[1::2]
    ]
    signs = {"|": r"\|", "*": "∗", "~": r"\~", "^": r"\^", "<": r"\<", "[": r"\["}
    for k in range(0, len(parts), 2):
        parts[k] = "".join(signs.get(c, c) for c in parts[k])
    return "".join(parts).replace("``", "`")


def shown(value):
    "A default as one would type it."
    name = getattr(value, "name", None) or getattr(value, "__name__", None)
    if value == slice(None):
        return "slice(None)"
    return "np.inf" if value == float("inf") else name or repr(value)


def kind_of(annotation):
    "A type as written, without the modules it comes from."
    text = (
        annotation
        if isinstance(annotation, str)
        else inspect.formatannotation(annotation)
    )
    text = text.replace("NoneType", "None")
    if union := re.fullmatch(r"(?:typing\.)?Union\[(.*)\]", text):
        text = " | ".join(union[1].split(", "))
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])", "", text)


def signature(name, thing):
    "The call, in lines of 88 characters."
    call = inspect.signature(thing)
    parts, star = [], False
    for p in call.parameters.values():
        if p.name in ("self", "cls"):
            continue
        if p.kind is p.KEYWORD_ONLY and not star:
            parts.append("*")
        star = star or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        mark = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = "" if p.default is p.empty else f"={shown(p.default)}"
        parts.append((mark + p.name + default).replace(" ", "\0"))  # no break within
    lines = wrap(
        f"{name}({', '.join(parts)})",
        87,
        subsequent_indent="    ",
        break_long_words=False,
    )
    returned = call.return_annotation
    if inspect.isclass(thing) or returned in (call.empty, None, Any, "None", "Any"):
        return "\n".join(lines).replace("\0", " ")
    return "\n".join(lines).replace("\0", " ") + f" -> {kind_of(returned)}"


def defaults(thing):
    "Parameter -> its default as shown, `required` if there is none."
    found = {}
    for p in inspect.signature(thing).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        found[p.name] = "required" if p.default is p.empty else f"`{shown(p.default)}`"
    return found


def types(thing):
    "Parameter -> its type."
    return {
        p.name: kind_of(p.annotation)
        for p in inspect.signature(thing).parameters.values()
        if p.annotation is not p.empty
    }


def code(name):
    "The name of a parameter; in backticks it would be a link to its namesake."
    return f"`{name}`" if "*" in name else f"<code>{name}</code>"


def described(doc, thing):
    "What a docstring says, as Markdown: text, a table of parameters, returns, raises."
    parts, known = sections(doc), defaults(thing) if thing else {}
    kinds = types(thing) if thing else {}
    text = ["\n".join(parts[""]).strip().split("\n\n")[0].replace("\n", " ")]
    text = [plain(text[0])]
    rows = []
    for name, said in entries(parts.get("Parameters", [])):
        first = name.split(", ")[0].strip(
            "*"
        )  # parameters that share an entry are alike
        kind = f"<code>{plain(kinds[first])}</code>" if first in kinds else ""
        rows.append(
            f"| {code(name)} | {kind} | {known.get(first, '')} | {plain(said)} |"
        )
    if rows:
        head = ["| parameter | type | default | meaning |", "|:---|:---|:--|:--------|"]
        text.append("\n".join([*head, *rows]))
    for head in HEADS[1:]:
        for name, said in entries(parts.get(head, [])):
            text.append(f"**{head}** {plain(name)}{': ' + plain(said) if said else ''}")
    return "\n\n".join(filter(None, text))


def methods(cls):
    """Public methods and properties, those of the package's own base classes included;
    those that tab completion shows, if the class says which.
    """
    found, fields = {}, getattr(cls, "__dataclass_fields__", ())
    offered = getattr(cls, "_shown", None)
    for base in cls.__mro__:
        if base.__module__.startswith("infattn_nb"):
            for name, member in vars(base).items():
                function = getattr(member, "__func__", getattr(member, "fget", member))
                documented = inspect.isfunction(function) and function.__doc__
                if offered and name not in offered:
                    continue
                if documented and name not in fields and not name.startswith("_"):
                    found.setdefault(name, (member, function))
    return dict(
        sorted(found.items(), key=lambda item: item[0] != "law")
    )  # what one asks first


def documented(cls):
    "The entry of a class: how it is made, and every method."
    name = cls.__name__
    doc = inspect.getdoc(cls) or ""
    made = inspect.getdoc(cls.__init__) or ""
    if "Parameters" not in sections(doc) and "Parameters" in sections(made):
        doc += "\n\n" + made
    text = []
    if not issubclass(cls, Exception):
        text.append(f"```python\n{signature(name, cls)}\n```")
    text.append(described(doc, None if issubclass(cls, Exception) else cls))
    text.append(example(name))
    for method, (member, function) in methods(cls).items():
        text.append(
            f"## {name}.<wbr>{method} {{#{name.lower()}.{method}}}"
        )  # may break here
        if isinstance(member, property):
            text.append("A property.")
        else:
            text.append(f"```python\n{signature(f'{name}.{method}', function)}\n```")
        known = None if isinstance(member, property) else function
        text.append(described(inspect.getdoc(function), known))
    return "\n\n".join(filter(None, text))


# Examples and pages


def notebooks():
    "Name of a notebook -> its cells."
    return {
        path.relative_to(NBS).as_posix(): json.loads(path.read_text(encoding="utf-8"))[
            "cells"
        ]
        for path in sorted(NBS.rglob("*.ipynb"))
    }


PAGES = notebooks()


def source(cell):
    return "".join(cell["source"])


def page_of(module):
    "The notebook that makes a module, and its title."
    for name, cells in PAGES.items():
        if any(source(c) == f"#| default_exp {module}" for c in cells):
            return name, re.match("# (.+)", source(cells[0]))[1]


def example(name):
    "The example of a class and what it prints."
    for cell in PAGES["reference/classes.ipynb"]:
        if cell["id"] == f"cl-{name.lower()}-ex":
            printed = [
                "".join(o.get("text", o.get("data", {}).get("text/plain", "")))
                for o in cell["outputs"]
            ]
            shown = "".join(printed).rstrip()
            return f"```python\n{source(cell)}\n```\n\n```text\n{shown}\n```"
    return ""


def class_page(name):
    "The page of a class."
    cls = public(name)
    notebook, title = page_of(PUBLIC[name][1])
    made = (
        f"[API reference](index.qmd) · explained on the page [{title}](../{notebook})"
    )
    front = f"---\ntitle: {name}\n---"
    return "\n\n".join([front, made, documented(cls)]) + "\n"


# The index


def first_sentence(thing):
    "The first sentence of a docstring, fit for a table."
    head = (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")
    sentence = re.split(r"(?<=[.!?]) (?=[A-Z])", head)[0].strip()
    parts = re.split(r"(\$[^$]*\$)", sentence)
    parts[1::2] = [
        x.replace(r"\|", r"\Vert{}").replace("|", r"\vert{}") for x in parts[1::2]
    ]
    return "".join(parts).replace("|", r"\|").replace("*", "∗")


def line_of(name):
    "What a name is, in a line."
    thing = public(name)
    if inspect.isclass(thing) or inspect.isroutine(thing):
        return first_sentence(thing)
    return first_sentence(type(thing))


def entry(name):
    "A row of the index: the name with its link, and its line."
    if inspect.isclass(public(name)):
        target = f"{name.lower()}.qmd"
    else:
        target = f"../{page_of(PUBLIC[name][1])[0]}"
    shown = name.replace("_", chr(92) + "_")
    return f"| [{shown}]({target}) | `{PUBLIC[name][0]}` | {line_of(name)} |"


def names_of(package):
    "The public names of a subpackage, in the order of the alphabet."
    names = [
        name for name, (_, home) in PUBLIC.items() if home.partition(".")[0] == package
    ]
    return sorted(names, key=str.casefold)


MAIN = "Attention", "Transformer", "Program", "AttentionRegressor", "AttentionDescent"


def ready(name):
    "Is it a nonlinearity, such as `relu`?"
    return isinstance(public(name), public("Nonlinearity"))


def table_of(names):
    "A table of names; ready-made nonlinearities share a row."
    head = ["| name | import from | what it is |", "|:--|:--|:-----|"]
    rows = [entry(name) for name in names if not ready(name)]
    if together := [f"`{name}`" for name in names if ready(name)]:
        page = page_of("nonlinearities")[0]
        rows.append(
            f"| {', '.join(together)} | `infattn_nb.nonlinearities` | Ready-made "
            f"[nonlinearities](../{page}), with their dual activations. |"
        )
    return "\n".join([*head, *rows])


def index():
    "The main classes, then the tables of all public names, one for each subpackage."
    tables = {"Five classes to begin with": MAIN}
    tables |= {title: names_of(package) for package, title in SUBPACKAGES.items()}
    return "\n\n".join(
        f"## {title}\n\n{table_of(names)}" for title, names in tables.items()
    )


def classes():
    "The public classes, in the order of the alphabet."
    return sorted(name for name in PUBLIC if inspect.isclass(public(name)))


def method_rows():
    "The table of all methods."
    owners = {}
    for name in classes():
        for method in methods(public(name)):
            link = f"[{name}]({name.lower()}.qmd#{name.lower()}.{method})"
            owners.setdefault(method, []).append(link)
    ordered = sorted(owners, key=lambda method: (method != "law", method))
    rows = [f"| `{method}` | {', '.join(owners[method])} |" for method in ordered]
    return "\n".join(["| method | of |", "|:--|:------|", *rows])


INDEX = """---
title: "API reference"
description: "Every public name of `infattn_nb` and its subpackages: each name with a \
line, a page for each class, every method by its name."
---

The lines are the first sentences of the docstrings; `help(Attention.law)` says what a \
page says. A name leads to its entry: a class to its page, a function to the page that \
makes it. A wrong argument raises `ValueError` or `TypeError` with [one \
sentence](../numerics/checks.ipynb): what it is, what was got, what is wanted. A name \
that is not here may be [a method](#methods); [an example for each \
class](../reference/classes.ipynb) shows how they are used.

{index}

## Methods

{methods}
"""


# The pages that make the modules


def parts_of_the_sidebar():
    "Under the hood: name of a part -> its pages, from `_quarto.yml`."
    text = (ROOT / "_quarto.yml").read_text(encoding="utf-8")
    (hood,) = (
        item["contents"]
        for section in yaml.safe_load(text)["website"]["sidebar"]["contents"]
        for item in section["contents"]
        if isinstance(item, dict) and item.get("section") == "Under the hood"
    )
    return {item["section"]: item["contents"] for item in hood if "section" in item}


def described_page(name):
    "A row for a page: its title with a link, and its claim."
    title, claim = re.match("# (.+)\n\n> (.+)", source(PAGES[name][0])).groups()
    return f"| [{title}](../{name}) | {claim} |"


HOOD = """---
title: "Under the hood"
description: "The pages that make the modules, part by part, with a line on each."
---

[How this is built](../reference/built.ipynb) explains how the parts fit together. \
Each page below makes the module of the same name.

{parts}
"""


def hood():
    head = ["| page | what it says |", "|:---|:-----|"]
    return HOOD.format(
        parts="\n\n".join(
            "\n".join([f"## {part}\n", *head, *map(described_page, names)])
            for part, names in parts_of_the_sidebar().items()
        )
    )


def pages():
    "File -> text of the whole reference."
    found = {f"{name.lower()}.qmd": class_page(name) for name in classes()}
    found["under_the_hood.qmd"] = hood()
    return found | {"index.qmd": INDEX.format(index=index(), methods=method_rows())}


def inventory():
    """What Sphinx and other sites link to names by: `objects.inv`, a line for each name
    in the form of intersphinx.
    """
    head = "# Sphinx inventory version 2\n# Project: {lib_name}\n# Version: {version}\n"
    rows = []
    for name, (place, _) in PUBLIC.items():
        if not inspect.isclass(public(name)):
            page = page_of(PUBLIC[name][1])[0].removesuffix(".ipynb")
            rows.append(f"{place}.{name} py:function 1 {page}.html#{name} -")
            continue
        page = f"api/{name.lower()}.html"
        rows.append(f"{place}.{name} py:class 1 {page} -")
        for method in methods(public(name)):
            at = f"{page}#{name.lower()}.{method}"
            rows.append(f"{place}.{name}.{method} py:method 1 {at} -")
    packed = zlib.compress("".join(f"{row}\n" for row in rows).encode())
    compressed = "# The remainder of this file is compressed using zlib.\n"
    return (head.format(**CFG) + compressed).encode() + packed


# What nbdev shows of a cell

SHOWN = re.compile(r"show_doc\((\w+)\)")


def definitions(tree):
    return {
        node.name: node.lineno
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }


def in_order(page, name):
    """A page that nbdev has made: documentation in the order of the code, and linked to
    it.
    """
    code = [source(c) for c in PAGES[name] if c["cell_type"] == "code"]
    module = next(
        (m[1] for c in code if (m := re.match(r"#\| default_exp (\S+)", c))), None
    )
    if module is None:
        return page
    file = f"infattn_nb/{module.replace('.', '/')}.py"
    lines = definitions(ast.parse((ROOT / file).read_text(encoding="utf-8")))
    cells = [*page["cells"]]
    places = {
        m[1]: k
        for k, c in enumerate(cells)
        if (m := SHOWN.search(source(c))) and m[1] in lines
    }
    for c in code:
        if not c.startswith("#| export"):
            continue
        names = [n for n in definitions(ast.parse(c)) if n in places]
        for n, k in zip(names, sorted(places[n] for n in names)):
            shown = json.dumps(page["cells"][places[n]])
            cells[k] = json.loads(
                re.sub(r"(/blob/\w+)/[\w/]+\.py#L\w+", rf"\1/{file}#L{lines[n]}", shown)
            )
    return page | {"cells": cells}


if __name__ == "__main__":
    for path in Path().rglob("*.ipynb"):
        page = in_order(json.loads(path.read_text(encoding="utf-8")), path.as_posix())
        path.write_text(json.dumps(page), encoding="utf-8")
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "api")
    folder.mkdir(exist_ok=True)
    for file, text in pages().items():
        (folder / file).write_text(text, encoding="utf-8")
    Path("objects.inv").write_bytes(inventory())
