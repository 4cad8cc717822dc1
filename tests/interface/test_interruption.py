"""Runs that are killed, stopped or doubled end with the files of an undisturbed one."""

import pytest
from paper_cases import SMALL, computed

from infattn_nb.numerics.files import write
from infattn_nb.paper import command as running
from infattn_nb.paper import reproduce


def contents(out):
    return {p.name: p.read_bytes() for p in out.iterdir() if p.name != "timings.json"}


def csv(out):
    return {
        name: content
        for name, content in contents(out).items()
        if name.endswith(".csv")
    }


@pytest.mark.parametrize("written", [1, 2, 3])
@pytest.mark.long
def test_a_figure_that_is_half_replaced_is_not_kept(
    written, tmp_path, monkeypatch, undrawn
):
    "With the files of one seed there, the run of another is stopped between its files."
    computed(tmp_path, monkeypatch)
    first = csv(tmp_path)

    def write_some(path, content):
        done.append(path)
        if len(done) > written:
            raise KeyboardInterrupt
        write(path, content)

    done = []
    with monkeypatch.context() as m:
        m.setattr(running, "write", write_some)
        with pytest.raises(KeyboardInterrupt):
            reproduce(tmp_path, "fig2a", rng=1, **SMALL)
    assert computed(tmp_path, monkeypatch) == 8
    assert csv(tmp_path) == first
