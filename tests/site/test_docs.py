"""What `help`, an editor and a reader of the source see of the public face."""

import ast
import inspect
import re

from every import on_every, on_every_page
from public import PUBLIC
from run_pages import NBS, ROOT, cells


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
COMMANDS = {"infattn_figures", "infattn_report", "infattn_train"}
CALLS = {name: x for name, x in CALLS.items() if name not in COMMANDS}
# fastcore reads what stands beside the options of a command


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


def entries(doc):
    "Names of parameters, and what the docstring says of them."
    found = {}
    pattern = r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)\n((?:    \S.*\n?)+)"
    for names, said in re.findall(pattern, doc, flags=re.M):
        for name in names.split(", "):
            found[name.strip("*")] = said
    return found


@on_every(CALLS)
def test_every_parameter_is_described(name):
    "A sentence, a type, and of an array its shape or what its axes are."
    said = entries(text(CALLS[name]))
    for p in parameters(CALLS[name]):
        assert p.name in said, f"{p.name} is not described"
        assert p.annotation is not p.empty, f"{p.name} has no type"
        if re.search("ndarray|ArrayLike", inspect.formatannotation(p.annotation)):
            assert re.search(r"\(|shape|1-d|axis|array|number|one per", said[p.name]), (
                f"{p.name}: {said[p.name]}"
            )


@on_every(CALLS)
def test_no_parameter_is_described_that_there_is_not(name):
    x = CALLS[name]
    section = r"^Parameters\n-+\n(.*?)(?=\n\n\w+\n-+\n|\Z)"
    found = re.search(section, text(x), flags=re.M | re.S)
    known = {*inspect.signature(x).parameters}
    if inspect.isclass(x):
        known |= {*dir(x), *inspect.get_annotations(x)}
    unknown = {*entries(found[1] if found else "")} - known
    assert not unknown, unknown


@on_every(CALLS)
def test_a_docstring_opens_with_words(name):
    "A sentence that ends, no formula in front."
    doc = inspect.getdoc(CALLS[name])
    assert doc is not None, "no docstring"
    assert not doc.startswith(("$", "\\")), doc[:100]
    assert re.match(r".*?[.?!:)…$]\s*(\n\n|$)", doc, flags=re.S), doc[:100]


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


@on_every_page
def test_pages_name_options_that_there_are(page):
    text = "\n".join(source for _, source in cells(NBS / f"{page}.ipynb", "markdown"))
    found = unknown_options(text)
    assert not found, found
