"""What a reader types into the search box, and where it is: `nbs/live/search.js` over
the documents of `tools/search_index.py`. Wants Node. That their addresses exist on the
site is tested in site/test_browser.py.
"""

import json
import re
import shutil
import subprocess

import pytest
import search_index
from searches import ASKED, ENGINEER, EXACT, NOTHING, STUDENT
from written import ROOT

pytestmark = pytest.mark.xdist_group("search")  # the index is made once
NODE = shutil.which("node")
SCRIPT = """
import {Words} from "SEARCH";
const index = new Words();
let input = "";
for await (const chunk of process.stdin) input += chunk;
const {documents, queries} = JSON.parse(input);
for (const item of documents) index.add(item);
const found = queries.map(query => index.search(query).map(({item}) => item));
console.log(JSON.stringify(found));
"""


def searched(queries, items):
    script = SCRIPT.replace("SEARCH", (ROOT / "nbs/live/search.js").as_uri())
    run = subprocess.run(
        [NODE, "--input-type=module", "-e", script],
        input=json.dumps(dict(documents=items, queries=queries)),
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def pages(found):
    return list(dict.fromkeys(re.sub(r"\.html.*", "", item["href"]) for item in found))


def test_words_in_any_order_prose_before_code():
    if not NODE:
        pytest.skip("Node is not installed")
    written = [
        ("a.html", "Apes", "a kernel that is tangent to nothing", "", ""),
        ("b.html", "Bees", "nothing", "", "tangent kernel"),
        ("c.html", "Cats", "tangents only", "", ""),
        ("d.html", "Dogs", "the kernel of a tangent", "['Code']", ""),
    ]
    names = "href", "title", "text", "crumbs", "code"
    items = [dict(zip(names, x, strict=True)) | dict(section="") for x in written]
    both, code, idle, nothing = searched(
        ["tangent kernel", "tangent kernel nothing", "the of", "zebra"], items
    )
    assert pages(both) == ["a", "d", "b"]
    assert pages(code) == ["a", "b"]
    assert pages(idle)
    assert "kernel that is tangent" in both[0]["text"]
    assert [item["nothing"] for item in nothing] == [True]


def test_numbers_and_letters_are_kept():
    if not NODE:
        pytest.skip("Node is not installed")
    named = [("Lemma 5", "lemma-5"), ("Lemma 9", "lemma-9"), ("Lemma 15", "lemma-15")]
    items = [
        dict(href=f"a.html#{x}", title="A", section=name, text=name, kind="statement")
        for name, x in named
    ]
    items.append(dict(href="b.html", title="B", section="", text="a rate of .02"))
    five, nine, rate, half = searched(["lemma 5", "LEMMA 9", "0.02", "0.05"], items)
    assert five[0]["href"] == "a.html#lemma-5" and len(five) == 1
    assert nine[0]["href"] == "a.html#lemma-9" and len(nine) == 1
    assert pages(rate) == ["b"] and not rate[0].get("nothing")
    assert half[0]["nothing"]


@pytest.fixture(scope="module")
def documents():
    return search_index.documents()


@pytest.fixture(scope="module")
def answers(documents):
    if not NODE:
        pytest.skip("Node is not installed")
    queries = [*EXACT, *ASKED, *NOTHING, *STUDENT, *ENGINEER]
    return dict(zip(queries, searched(queries, documents), strict=True))


def test_items_and_names_come_first(answers):
    found = {query: answers[query][0]["href"] for query in EXACT}
    assert found == EXACT


def test_pages_are_among_the_first_two(answers):
    asked = ASKED | STUDENT | ENGINEER
    missed = {
        query: found[:5]
        for query, wanted in asked.items()
        if not {*(found := pages(answers[query]))[:2]} & {*wanted.split()}
    }
    assert not missed


def test_nothing_says_so_and_names_a_page(answers, documents):
    known = {doc["href"] for doc in documents}
    for query in NOTHING:
        (only,) = answers[query]
        assert only["nothing"] and only["href"] in known, query
        assert only["text"].startswith("The nearest page"), query
    assert not any(answers[query][0].get("nothing") for query in [*ASKED, *STUDENT])


def test_each_item_is_a_document_of_its_own(documents):
    kinds = {
        kind: [doc for doc in documents if doc["kind"] == kind]
        for kind in ("section", "statement", "figure", "equation", "name")
    }
    assert all(len(docs) > 30 for docs in kinds.values())
    assert sum(map(len, kinds.values())) == len(documents)
    assert len({doc["objectID"] for doc in documents}) > 0.99 * len(documents)
    boxes = {
        f"{path.relative_to(search_index.NBS).with_suffix('.html')}#{address}"
        for path in search_index.PAGES
        for cell in search_index.read(path)["cells"]
        for address in re.findall(
            r"^::: *\{#([\w-]+) [^}]*\.statement", "".join(cell["source"]), re.M
        )
    }
    assert {doc["href"] for doc in kinds["statement"]} == boxes


def test_documents_hold_what_is_visible(documents):
    "No attributes, no commands of formulas, no keys of citations."
    assert {"index.html", "api/index.html", "essay.html"} <= {
        doc["href"] for doc in documents
    }
    raw = r"\\[a-zA-Z]{2,}|\[-?@|(?<!\w)@\w+\d{4}|\{#|:::|\{\."
    assert not [doc["href"] for doc in documents if re.search(raw, doc["text"])]
