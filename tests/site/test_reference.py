"""The pages that are made from the package say what the package says now: all public
names, every class and its methods.
"""

import inspect
import re
import subprocess
import zlib

import api_pages
import pypandoc
import pytest

import infattn_nb
from public import PUBLIC
from run_pages import ROOT, makes_a_module

CLASSES = [name for name, x in PUBLIC.items() if inspect.isclass(x)]

PAGES = api_pages.pages()


def test_the_index_has_a_line_for_every_public_name():
    rows = re.findall(
        r"^\| \[([^]]+)\].* \| `infattn_nb", PAGES["index.qmd"], flags=re.M
    )
    top = [x for x in dir(infattn_nb) if not inspect.ismodule(getattr(infattn_nb, x))]
    first, others = rows[: len(top)], rows[len(top) :]
    assert first == top  # in the order of the story
    assert sorted(others) == sorted(PUBLIC)
    assert not re.search(r"\|\s+\|$", PAGES["index.qmd"], flags=re.M), (
        "a name without a sentence"
    )


def test_the_index_has_every_page_that_makes_a_module():
    index = PAGES["index.qmd"]
    made = [p for p in (ROOT / "nbs").rglob("*.ipynb") if makes_a_module(p)]
    for page in made:
        title, claim = api_pages.opening(page.relative_to(ROOT / "nbs").as_posix())
        assert index.count(f"| {title} | {claim} |") == 1
    assert len(made) > 80


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_has_a_page_with_all_methods(name):
    page = PAGES[f"{name.lower()}.qmd"]
    for method, member in api_pages.methods(PUBLIC[name]).items():
        assert (
            page.count(f"\n## {name}.<wbr>{method} {{#{name.lower()}.{method}}}\n") == 1
        )
        assert inspect.getdoc(member)


def test_examples_are_of_classes():
    ids = [
        cell["id"]
        for cell in api_pages.PAGES["reference/classes.ipynb"]
        if cell["id"].endswith("-ex")
    ]
    assert len(ids) > 12
    assert {id[3:-3] for id in ids} <= {name.lower() for name in CLASSES}


@pytest.mark.parametrize("file", PAGES)
def test_pages_are_markdown_and_their_links_lead_somewhere(file):
    text = PAGES[file].partition("\n---\n")[2]
    command = [
        pypandoc.get_pandoc_path(),
        "-f",
        "markdown",
        "-t",
        "html",
        "--mathjax",
        "--syntax-highlighting=none",
        "--fail-if-warnings",
    ]
    html = subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    ).stdout
    for target, anchor in re.findall(r'href="([^"#]*)#?([^"]*)"', html):
        if target.startswith("../"):
            assert (ROOT / "nbs" / target[3:]).exists(), target
        else:
            assert target in ("", *PAGES), target
            assert not anchor or f"{{#{anchor}}}" in PAGES[target or file], target


def test_an_inventory_leads_to_every_name():
    "As intersphinx reads it: name, kind, priority, address, name as shown."
    head, packed = api_pages.inventory().split(b"using zlib.\n")
    assert head.startswith(b"# Sphinx inventory version 2\n# Project: infattn_nb\n")
    rows = [row.split(" ") for row in zlib.decompress(packed).decode().splitlines()]
    names = {row[0] for row in rows}
    assert {"infattn_nb.Attention.law", "infattn_nb.kl_divergence"} <= names
    assert len(names) == len(rows) > 2 * len(PUBLIC)
    for _, kind, _, address, shown in rows:
        assert (kind[:3], shown) == ("py:", "-")
        page, _, anchor = address.partition("#")
        if page.startswith("api/"):
            text = PAGES[page[4:].replace(".html", ".qmd")]
            assert not anchor or f"{{#{anchor}}}" in text
        else:
            assert (ROOT / "nbs" / page.replace(".html", ".ipynb")).exists()


def test_only_what_users_call_is_listed():
    assert "start" not in api_pages.methods(PUBLIC["Transformer"])
    assert "chain" in api_pages.methods(PUBLIC["Transformer"])


def test_a_parameter_without_its_meaning_would_be_seen():
    "The reader of docstrings: names, types, meanings and sections."

    def f(a: float, b=2, *, c=None):
        """Do it.

        Parameters
        ----------
        a : int
            first | one
        b : number
            second,
            longer

        Returns
        -------
        float
            all

        Raises
        ------
        ValueError
            if not
        """

    text = api_pages.described("f", f)
    assert text.startswith("```python\nf(a, b=2, *, c=None)\n```\n\nDo it.\n\n")
    assert r"| <code>a</code> | <code>float</code> | first \| one |" in text
    assert "| <code>b</code> | <code>number</code> | second, longer |" in text
    assert "**Returns** float: all" in text
    assert "**Raises** ValueError: if not" in text


def test_types_stand_in_tables_and_law_stands_first():
    page = PAGES["attention.qmd"]
    assert "| <code>heads</code> | <code>float</code> |" in page
    kinds = [
        kind
        for page in PAGES.values()
        for kind in re.findall(
            r"^\| <code>[^|]*</code> \| <code>(.*?)</code> \|", page, flags=re.M
        )
    ]
    assert len(kinds) > 300
    assert all(len(kind) < 70 and "._" not in kind for kind in kinds)
    assert not [kind for kind in kinds if re.search(r"Union|Optional", kind)]
    assert re.search(r"^## Attention.<wbr>(\w+)", page, flags=re.M)[1] == "law"
