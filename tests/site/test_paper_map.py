"""The page "The paper, item by item": every link, symbol and test that it names exists,
and no item is missing.
"""

import importlib
import inspect
import json
import os
import re
from functools import lru_cache

import pytest
from public import PUBLIC
from written import PAGES, ROOT


FOLDER = ROOT / "nbs/reference"  # of the page
ITEMS = """§2.1, P(1); P(2)–P(4); §2.1 (i), (ii); §2.2, P(5); §2.2, P(6); Definition 1
(A)(i)–(iii); Definition 1 (B)(iv); Fact 1, P(7); Assumption 1 (a), (b);
Theorem 1; Corollary 2; Example 1; Theorem 3; section 4; Figure 1 (A); Figure
1 (B); Figure 2 (A); Figure 2 (B); Figure 3 and its KL; ReLU figure and KL;
KL of the limit by H; A.1; A.2; Lemma 4; Lemma 5; Facts 2, 3; Definition 2,
Fact 4; Proposition 6, Lemma 7, footnote 3; Proposition 8; Lemma 9; Lemmas
10–15; Lemma 16, P(8); C.1.2, P(9)–P(12); Lemma 17; Lemma 18; C.1.3; C.2;
§5.1 protocol; §6: deeper stacks; §6: longer sequences; §6: training"""


@lru_cache
def text(path):
    return "\n\n".join(
        "".join(c["source"])
        for c in json.loads((ROOT / path).read_text(encoding="utf-8"))["cells"]
    )


def rows(columns=5):
    "The rows of all tables with so many columns: lists of cells."
    lines = [
        line
        for line in text("nbs/reference/paper_map.ipynb").splitlines()
        if line.startswith("|")
    ]
    cells = [
        [c.strip() for c in line.strip("|").split(" | ")]
        for line in lines
        if not re.match(r"\| ?(-|item |question )", line)
    ]
    return [[c.strip("| ") for c in row] for row in cells if len(row) == columns]


def wrong_links(cell):
    for page, anchor in re.findall(r"\]\(([\w./]+?)(?:#([\w-]+))?\)", cell):
        path = FOLDER / page
        if (
            not path.is_file()
            or not anchor
            or not re.search(rf"\{{#{anchor}[ }}]", text(path))
        ):
            yield f"{page}#{anchor}"


def resolve(name):
    "A public name with its attributes, or package.module.name."
    path = name.split(".")
    if path[0] in PUBLIC:
        x, path = PUBLIC[path[0]], path[1:]
    elif len(path) == 1:
        raise AttributeError(name)
    else:
        x, path = importlib.import_module(f"infattn_nb.{path[0]}.{path[1]}"), path[2:]
    for part in path:
        x = getattr(x, part)
    return x


def wrong_symbols(cell):
    for name in re.findall(r"`([\w.]+)`", cell):
        try:
            resolve(name)
        except (ImportError, AttributeError):
            yield name


# "cross term (netsor/program)" is tests/netsor/test_program.py::test_cross_term
CHECK = re.compile(r"(\w[\w ]*) \(([\w/]+)\)")


def wrong_tests(cell):
    for name, file in CHECK.findall(cell):
        folder, _, module = file.rpartition("/")
        path = ROOT / "tests" / folder / f"test_{module}.py"
        if not path.is_file() or not re.search(
            rf"^def test_{name.replace(' ', '_')}\(",
            path.read_text(encoding="utf-8"),
            flags=re.M,
        ):
            yield f"{name} ({file})"


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_row(row):
    item, says, page, code, check = row
    assert says
    assert (
        re.sub(r"\[[^]]+\]\([\w./]+#[\w-]+\)(, )?", "", page)
        == re.sub(r"`\w[\w.]*`(, )?", "", code)
        == re.sub(rf"{CHECK.pattern}(, )?", "", check)
        == ""
    )  # nothing is skipped
    assert page
    assert code
    assert check
    assert not [*wrong_links(page), *wrong_symbols(code), *wrong_tests(check)]


def test_questions_are_answered_by_names_that_exist():
    assert len(rows(3)) > 15
    assert not [x for question, page, code in rows(3) for x in wrong_symbols(code)]


def test_every_public_name_answers_a_question():
    named = {x for row in rows(3) for x in re.findall(r"`(\w+)", row[2])}
    names = {name for name, x in PUBLIC.items() if not inspect.ismodule(x)}
    assert names - named == set()


def test_every_result_of_ours_is_linked_from_the_essay():
    "One of the links in its row of the table."
    first = text("nbs/essay.ipynb") + text("nbs/index.ipynb")
    linked = {*re.findall(r"\]\(([\w./]+(?:#[\w-]+)?)\)", first)}
    results = re.findall(r"^\| (O\d+) \|(.*)", text("nbs/reference/ours.ipynb"), re.M)
    assert len(results) >= 20
    for number, row in results:
        own = re.findall(r"\]\(\.\./([\w./]+(?:#[\w-]+)?)\)", row)
        assert {*own} & linked, number


def test_every_item_of_the_paper_is_there_once():
    items = [row[0] for row in rows()]
    assert len(items) == len(set(items))
    assert [
        x for x in map(str.strip, ITEMS.replace("\n", " ").split(";")) if x not in items
    ] == []


def test_every_statement_of_the_site_is_on_the_map():
    "Boxes like `::: {#lemma-9 .statement}` on any page."
    boxes = {
        f"{os.path.relpath(path, FOLDER)}#{a}"
        for path in PAGES
        for a in re.findall(r"::: \{#([\w-]+) \.statement\}", text(path))
    }
    linked = {
        link for row in rows() for link in re.findall(r"\]\(([\w./]+#[\w-]+)\)", row[2])
    }
    assert len(boxes) > 15, boxes - linked
    assert boxes <= linked, boxes - linked
