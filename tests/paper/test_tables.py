"""Tables survive their files and are kept only if nothing has changed."""

import numpy as np
import pytest
from paper_cases import computed

from infattn_nb.paper import read_table, sweep, tables, write_table
from infattn_nb.paper.tables import matching_rows


@pytest.mark.long
def test_a_figure_is_kept_if_nothing_has_changed(tmp_path, monkeypatch, undrawn):
    whole = computed(tmp_path, monkeypatch)
    assert whole == 8
    assert computed(tmp_path, monkeypatch) == 0
    for change in (dict(rng=1), dict(samples=101)):
        assert computed(tmp_path, monkeypatch, **change) == whole
    assert computed(tmp_path, monkeypatch, trials=3) == 12
    assert computed(tmp_path, monkeypatch) == whole  # the first parameters again
    (tmp_path / "fig2a.pdf").unlink()
    assert computed(tmp_path, monkeypatch) == whole
    assert computed(tmp_path, monkeypatch) == 0
    monkeypatch.setattr(tables, "code_version", lambda: "another")
    assert computed(tmp_path, monkeypatch) == whole


def test_the_version_of_the_code_is_that_of_every_module(tmp_path, monkeypatch):
    package = tmp_path / "infattn_nb"
    (package / "numerics").mkdir(parents=True)
    (package / "__init__.py").write_text("a")
    (package / "numerics/rng.py").write_text("b")
    monkeypatch.setattr(tables.resources, "files", lambda name: package)
    version = tables.code_version.__wrapped__
    before = version()
    (package / "numerics/notes.txt").write_text("no module")
    assert version() == before
    (package / "numerics/rng.py").write_text("c")
    assert version() != before


@pytest.mark.parametrize("name", ["fig1b", "relu_b"])
def test_a_width_alone_is_what_it_is_among_others(name):
    whole = sweep(name, trials=2, samples=100)
    for n in (16, 64):
        alone = sweep(name, trials=2, samples=100, keep=lambda cell: cell["n"] == n)
        np.testing.assert_array_equal(
            matching_rows(alone, n=n), matching_rows(whole, n=n)
        )


def test_tables_survive_the_file(tmp_path):
    data = sweep(
        "fig1b", trials=2, samples=100, keep=lambda cell: cell["n"] in (16, np.inf)
    )
    write_table(data, tmp_path / "t.csv")
    for c, v in read_table(tmp_path / "t.csv").items():
        np.testing.assert_array_equal(v, data[c])
    assert data["trial"].max() == 1
    assert set(data["series"]) == {"kde", "law"}
