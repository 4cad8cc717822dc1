"""Tables of wrong calls: in each row an expression, ` ~ `, and words of the sentence
that rejects it. A row that is indented goes on with the one before it.
"""

import re

import pytest


def rows(table):
    "[(expression, words), …] of a table."
    return [row.split(" ~ ") for row in re.sub(r"\n +", " ", table.strip()).split("\n")]


def rejects(call, words):
    "A call raises an error of one line that contains these words; what it says."
    with pytest.raises((TypeError, ValueError, OSError)) as error:
        call()
    said = str(error.value)
    assert words in said, said
    assert "\n" not in said, said
    return said
