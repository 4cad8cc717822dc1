"""The pages that are made from the package say what the package says now: all public names, every class and its methods."""
import inspect
import json
import re
from pathlib import Path

import pytest
from fastcore.xtras import working_directory

import infattn_nb

ROOT = Path(__file__).parent.parent
CLASSES = [name for name in infattn_nb.__all__ if inspect.isclass(getattr(infattn_nb, name))]

def made(name, *ids):
    "The names that some cells of a page make, and the text that the page has stored."
    cells = json.loads((ROOT/"nbs"/name).read_text(encoding="utf-8"))["cells"]
    here = {}
    with working_directory(ROOT/"nbs"):
        for cell in cells:
            if cell["id"] in ids: exec("".join(cell["source"]), here)
    stored = ["".join(o["data"]["text/markdown"]) for c in cells for o in c.get("outputs", []) if "text/markdown" in o.get("data", {})]
    texts = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
    return here, "\n\n".join([*stored, *texts])

@pytest.fixture(scope="module")
def classes(): return made("31_classes.ipynb", "climports", "clcode")

def test_the_index_has_a_line_for_every_public_name_and_method():
    here, stored = made("30_names.ipynb", "nmimports", "nmcode", "nmowners")
    with working_directory(ROOT/"nbs"):
        for table in ("index", "method_rows"): assert here[table]() in stored, "run the page again: `python tools/run_pages.py 30_names`"
    rows = re.findall(r"^\| \[([^]]+)\]", stored, flags=re.M)
    assert [row.replace("\\", "") for row in rows] == sorted(infattn_nb.__all__, key=str.casefold)

@pytest.mark.parametrize("name", CLASSES)
def test_every_class_stands_as_the_package_documents_it(classes, name):
    here, stored = classes
    cls = getattr(infattn_nb, name)
    assert re.search(rf"^###? {name} {{#{name.lower()}}}$", stored, flags=re.M), f"{name} has no entry"
    assert here["documented"](cls).data in stored, "run the page again: `python tools/run_pages.py 31_classes.ipynb`"
    for method, (_, function) in here["methods"](cls).items():
        assert f"{{#{name.lower()}.{method}}}" in stored and inspect.getdoc(function)

def test_search_finds_what_was_looked_for(classes):
    "Search reads headings: these three were looked for and not found."
    for heading in ("Transformer.chain", "Transformer.from_torch", "AttentionRegressor.predictive"):
        assert f"### {heading} {{#{heading.lower()}}}" in classes[1]

def test_a_parameter_without_its_meaning_would_be_seen(classes):
    "The reader of docstrings: names, defaults, meanings and sections."
    here, _ = classes
    def f(a, b=2, *, c=None):
        """Do it.

        Parameters
        ----------
        a : int
            first | one
        b
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
    text = here["described"](inspect.getdoc(f), f)
    assert r"| <code>a</code> | required | int. first \| one |" in text and "| <code>b</code> | `2` | second, longer |" in text
    assert "**Returns** float: all" in text and "**Raises** ValueError: if not" in text
    assert here["signature"]("f", f) == "f(a, b=2, *, c=None)"
