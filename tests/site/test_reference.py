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
