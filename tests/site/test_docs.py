"""What an editor, GitHub and a reader of the source see: griffe reads docstrings
without importing anything.
"""

import ast
import re
from pathlib import Path

import griffe
import pytest
import written

ROOT = Path(__file__).parents[2]
PACKAGE = griffe.load("infattn_nb", search_paths=[ROOT], allow_inspection=False)
COMMANDS = {
    "infattn_figures",
    "infattn_report",
    "infattn_train",
}  # fastcore reads the comments beside their options


def entries(x):
    "Names of parameters and what the docstring says of them."
    texts = [x.docstring.value if x.docstring else ""]
    if x.is_class and "__init__" in x.members and x.members["__init__"].docstring:
        texts.append(x.members["__init__"].docstring.value)
    found = {}
    for text in texts:
        for names, said in re.findall(
            r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)\n((?:    \S.*\n?)+)", text, flags=re.M
        ):
            for name in names.split(", "):
                found[name.strip("*")] = said
    return found


def parameters(x):
    "Names and annotations."
    init = x.members.get("__init__") if x.is_class else x
    if init is not None:
        return [
            (p.name, str(p.annotation or ""))
            for p in init.parameters
            if p.name not in ("self", "cls")
            and p.name[0] not in "_*"
            and "variadic" not in p.kind.value
        ]
    return [
        (name, str(m.annotation))
        for name, m in x.members.items()
        if m.is_attribute and m.annotation and name[0] != "_" and name[-1] != "_"
    ]


def public():
    "Every public function, class and method, by its name."
    for name, (_, home) in written.PUBLIC.items():
        x = PACKAGE[f"{home}.{name}"]
        if not (x.is_function or x.is_class) or name in COMMANDS:
            continue
        if x.is_class and any(
            str(base).endswith(("Error", "Warning", "ValueError")) for base in x.bases
        ):
            continue
        yield name, x
        if x.is_class:
            for method, m in x.members.items():
                if m.is_function and not method.startswith("_"):
                    yield f"{name}.{method}", m


PUBLIC = dict(public())


@pytest.mark.parametrize("name", PUBLIC)
def test_every_parameter_is_described(name):
    "A sentence in the source, a type, and of an array its shape or what its axes are."
    said = entries(PUBLIC[name])
    for parameter, kind in parameters(PUBLIC[name]):
        assert parameter in said, f"{parameter} is not described"
        assert kind, f"{parameter} has no type"
        if re.search("ndarray|ArrayLike", kind):
            assert re.search(
                r"\(|shape|1-d|axis|array|number|one per", said[parameter]
            ), f"{parameter}: {said[parameter]}"


@pytest.mark.parametrize("name", PUBLIC)
def test_a_docstring_opens_with_words(name):
    "A sentence that ends, no formula in front."
    doc = PUBLIC[name].docstring
    assert doc is not None, name
    assert not doc.value.startswith(("$", "\\")), name
    assert re.match(r".*?[.?!:)…$]\s*(\n\n|$)", doc.value, flags=re.S), doc.value[:100]


def test_a_bare_parameter_is_seen():
    def f(code):
        return griffe.visit("m", filepath=Path("m.py"), code=code)["f"]

    x = f(
        'def f(a: int, b):\n    """Do it.\n\n    Parameters\n    ----------\n'
        '    a\n        how often\n    """'
    )
    assert entries(x) == {"a": "    how often"}
    assert parameters(x) == [("a", "int"), ("b", "")]


@pytest.mark.parametrize("name", PUBLIC)
def test_no_parameter_is_described_that_there_is_not(name):
    x = PUBLIC[name]
    section = re.search(
        r"^Parameters\n-+\n(.*?)(?=\n\n\w+\n-+\n|\Z)",
        x.docstring.value if x.docstring else "",
        flags=re.M | re.S,
    )
    known = (
        {p for p, _ in parameters(x)}
        | {p.name for p in getattr(x, "parameters", [])}
        | {m for m in x.members if x.is_class}
    )
    named = re.findall(r"^([\w, ]+)$", section[1], flags=re.M) if section else []
    assert (
        not {
            n for names in named for n in names.split(", ") if not names.startswith(" ")
        }
        - known
    )


# Options that pages name


def arguments():
    "Names of all arguments and fields in the package."
    found = set()
    for path in (ROOT / "infattn_nb").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.arguments):
                found |= {x.arg for x in node.posonlyargs + node.args + node.kwonlyargs}
            if isinstance(node, ast.AnnAssign):
                found.add(ast.unparse(node.target))
    return found


ARGUMENTS = arguments() | {"linear_scaling"}  # neural-tangents'


def unknown_options(text):
    "Of code in a sentence: `name=…` where nothing has an argument of that name."
    codes = re.findall(r"`([^`\n]+)`", text)
    return [
        name
        for code in codes
        for name in re.findall(r"(?<![\w.])([A-Za-z_]\w*)=(?!=)", code)
        if name not in ARGUMENTS
    ]


@pytest.mark.parametrize("path", written.PAGES, ids=lambda p: p.stem)
def test_pages_name_options_that_there_are(path):
    found = unknown_options(
        "\n".join(
            written.text(c)
            for c in written.read(path)["cells"]
            if c["cell_type"] == "markdown"
        )
    )
    assert not found, found


def test_an_option_of_yesterday_is_seen():
    assert unknown_options(
        "`Thresholds(similar=.9)` and `max_cosine=.9`, `a == b`"
    ) == ["similar"]
