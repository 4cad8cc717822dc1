"""The command of the paper's figures: costs, bars, places and seeds."""

import json

import pytest

from infattn_nb.paper import explicit_seconds, infattn_figures, reproduce, sweep
from infattn_nb.paper.command import cost_table


def testcost_table():
    assert explicit_seconds("heads") == 0
    one, ten = (
        explicit_seconds("fig3b", trials=t, samples=s)
        for t, s in ((1, 100), (10, 1000))
    )
    assert ten == pytest.approx(100 * one)
    assert one > 0
    head, *rows = cost_table({"fig3b": 30.0, "heads": 4000.0}, 10, None, 2)
    assert "extrapolated" in head
    assert [r.split()[:3] for r in rows] == [
        ["fig3b", "30.0", "s"],
        ["heads", "1.1", "h"],
        ["total", "1.1", "h"],
    ]


def test_two_runs_in_one_folder_keep_their_timings(tmp_path, undrawn):
    for name in ("fig2a", "fig2b"):
        reproduce(tmp_path, name, trials=1, samples=32)
    assert set(json.loads((tmp_path / "timings.json").read_text())) == {
        "fig2a",
        "fig2b",
    }
    (tmp_path / "timings.json").write_text("damaged")
    reproduce(tmp_path, "fig2a", trials=1, samples=33)
    assert set(json.loads((tmp_path / "timings.json").read_text())) == {"fig2a"}


SMALL = dict(trials=2, samples=100)


def test_what_is_in_the_way_is_named_at_once(tmp_path):
    (tmp_path / "a/fig2a.csv").mkdir(parents=True)
    for folder, what in (("a", "fig2a.csv"), ("c\0", "null")):
        with pytest.raises(ValueError, match=f"`out` must .*{what}"):
            reproduce(tmp_path / folder, only="fig2a", **SMALL)


@pytest.mark.parametrize("name", ["trials", "samples", "seed", "workers"])
def test_typed_numbers_of_figures_end_as_those_of_reports(name, tmp_path):
    with pytest.raises(SystemExit, match=f"`--{name}` must be a whole number, got 'x'"):
        infattn_figures.__wrapped__(out=str(tmp_path / "a"), quiet=True, **{name: "x"})
    assert not list(tmp_path.iterdir())


def test_figures_are_not_printed():
    with pytest.raises(SystemExit, match="`out` must be a folder, got '-'"):
        infattn_figures.__wrapped__(out="-", quiet=True)


def test_seeds_of_figures_are_whole_numbers():
    for ask in (sweep, reproduce):
        assert ask.__annotations__["rng"] in (int, "int")
