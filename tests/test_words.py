"""Plain words: what only we would understand stands neither in the code nor on the
pages.
"""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PRIVATE = re.compile(
    r"(?<![-#/\w])(refus\w*|rooms?|wings?|towers?|front door|verbs?|told|oracles?"
    r"|literal|by night|way back|way there|there and back"
    r"|(?<!multilayer )(?<!Multilayer )perceptrons?)(?![-/\w])",
    flags=re.I,
)
ALLOWED = re.compile(r"ast\.literal_eval|Literal\[")  # Python's


def private(text):
    spaced = ALLOWED.sub("", text).replace("_", " ")  # names are words, too
    return [m[0] for m in PRIVATE.finditer(spaced)]


def sources():
    for path in sorted(ROOT.glob("nbs/*.ipynb")):
        yield (
            path.name,
            "\n".join(
                "".join(c["source"])
                for c in json.loads(path.read_text(encoding="utf-8"))["cells"]
            ),
        )
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("tools/*.py"),
        *ROOT.glob("benchmarks/*.py"),
        *(path for path in ROOT.glob("tests/*.py") if path != Path(__file__)),
        *ROOT.glob("infattn_nb/**/__init__.py*"),
    ]:
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


SOURCES = dict(sources())


@pytest.mark.parametrize("name", SOURCES)
def test_no_private_word(name):
    assert not private(SOURCES[name])


@pytest.mark.parametrize(
    "text, words",
    [
        ("It refuses a room.", ["refuses", "room"]),
        ("the verb, told on the way back", ["verb", "told", "way back"]),
        ("[a link](a.ipynb#sec-room), a multilayer perceptron", []),
        ("an oracle and a perceptron", ["oracle", "perceptron"]),
    ],
)
def test_private_words_are_seen(text, words):
    assert private(text) == words
