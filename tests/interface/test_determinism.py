"""Same seed, same bytes; and the tables on the page are what the command writes."""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import nightly

from infattn_nb import Attention, Tokens
from infattn_nb.nonlinearities import relu
from infattn_nb.numerics import parallel
from infattn_nb.paper import read_table, reproduce, sweep
from infattn_nb.paper.figures import PLANS
from infattn_nb.paper.tables import matching_rows

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "drawn",
    [("fig2a",), pytest.param(("fig3a", "heads"), marks=pytest.mark.slow)],
    ids=", ".join,
)
@pytest.mark.long
def test_same_bytes_for_any_number_of_workers(drawn, tmp_path):
    "One figure of each kind: drawing is what takes time."
    for workers in (1, 4):
        with parallel(workers):
            reproduce(tmp_path / str(workers), drawn, trials=2, samples=64, rng=3)
    files = [
        f"{name}.{kind}" for name in drawn for kind in ("csv", "json", "png", "pdf")
    ]
    for name in files:
        one, *others = ((tmp_path / str(w) / name).read_bytes() for w in (1, 4))
        assert all(one == other for other in others), name
    assert set(json.loads((tmp_path / "1/timings.json").read_text())) == set(drawn)
    assert sorted(p.name for p in (tmp_path / "1").iterdir()) == sorted(
        [*files, "timings.json"]
    )


def test_seed_semantics():
    law = Attention(Tokens(3, relu), heads=2).law(5)
    ints, seeds = (law.rvs(5000, rng=r) for r in (7, np.random.SeedSequence(7)))
    np.testing.assert_array_equal(ints, seeds)
    seed = np.random.SeedSequence(7)
    # a seed is a value
    np.testing.assert_array_equal(law.rvs(10, seed), law.rvs(10, seed))
    assert seed.n_children_spawned == 0
    g = np.random.default_rng(7)
    first, second = law.rvs(5000, g), law.rvs(5000, g)  # a Generator is a state
    np.testing.assert_array_equal(first, ints)
    assert not (first == second).any()
    assert not (law.rvs(5) == law.rvs(5)).any()
    np.testing.assert_array_equal(law.rvs((50, 100), 7).reshape(-1, 3), ints)
    np.testing.assert_array_equal(law.rvs(4096, 7), ints[:4096])  # block by block


def test_global_state_is_untouched():
    state = np.random.get_state()[1].copy()
    Attention(Tokens(3, relu)).law(5).rvs(10)
    np.testing.assert_array_equal(state, np.random.get_state()[1])


BLOCKS = {
    "fig1a": dict(n=16),
    "fig1b": dict(n=16),
    "fig2a": dict(n=64, scaling="linear"),
    "fig2b": dict(heads=1),
    "fig3a": dict(n=64),
    "fig3b": dict(n=64),
    "relu_a": dict(n=16),
    "relu_b": dict(n=64),
    "heads": dict(heads=2),
}


@pytest.mark.parametrize("name", nightly(BLOCKS, *set(BLOCKS) - {"fig2a", "heads"}))
def test_stored_tables_are_what_the_command_writes(name):
    "One block of each full-protocol table, computed again."
    stored, block = read_table(ROOT / f"nbs/data/{name}.csv"), BLOCKS[name]
    fresh = sweep(name, keep=lambda cell: all(cell[k] == v for k, v in block.items()))
    for panel in np.unique(fresh["panel"]):
        where = dict(panel=panel, n=fresh["n"][0], heads=fresh["heads"][0])
        for new, old in zip(
            matching_rows(fresh, **where), matching_rows(stored, **where)
        ):
            np.testing.assert_allclose(new, old, rtol=1e-6, atol=1e-12)
    parameters = json.loads((ROOT / f"nbs/data/{name}.json").read_text())
    assert parameters["trials"] == 10
    assert parameters["samples"] == PLANS[name].study.samples
    assert parameters["seed"] == 0
