"""Names from users reach no terminal as they are."""

from infattn_nb.plotting import printable


def test_names_reach_no_terminal_as_they_are():
    assert (
        printable("a\x1b[31mb\ud800") == "a\N{REPLACEMENT CHARACTER}[31mb"
        "\N{REPLACEMENT CHARACTER}"
    )
    assert len(printable("x" * 1000)) == 80
