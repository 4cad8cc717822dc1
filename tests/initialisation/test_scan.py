"""Diagnostics against explicit networks and plain loops, rules against numbers by hand,
scans against what their cells say of themselves.
"""

import re
from dataclasses import replace
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from conftest import nightly
from scan_cases import NAMES, SMALL, WORDS, numbers, powers
from tables import LENGTHS_PATH, NETWORKS, PATH, network, scan_rows

from infattn_nb import Block, FeedForward, Nonlinearity, Rotary, SelfAttention
from infattn_nb import Transformer, report, scan
from infattn_nb.initialisation import Scan, with_rule
from infattn_nb.initialisation.diagnosis import diagnose, joined
from infattn_nb.initialisation.quantities import Thresholds
from infattn_nb.initialisation.scan import repeated
from infattn_nb.numerics import parallel


@pytest.mark.parametrize("zero", ["var_q", "var_k"])
def test_queries_and_keys_are_not_pooled_where_one_is_dead(zero):
    "With queries of zeros they learn, and keys get nothing: no factor would suffice."
    t = Transformer.uniform(np.eye(4), layers=2, heads=2, **{zero: 0.0})
    found = report(t, 24, 4, 0)
    said = {v.name: v for v in found.verdicts}
    other = {"var_q": "keys", "var_k": "queries"}[zero]
    mine = {"var_q": "queries", "var_k": "keys"}[zero]
    assert said["dead"].text == (
        f"exactly no gradient at the first step for {other} in every block, because "
        f"{mine} start at zero"
    )
    assert said["queries"].mark == "·"
    assert not said["queries"].advice
    assert said["depth"].mark != "✓"


# Scans

GRID = dict(residual=[0.1, 1, 4], scores=[0.2, 1, 6], layers=[3, 9])


@pytest.fixture(scope="module")
def small():
    return scan(SMALL, **GRID, width=np.inf, size=6, rng=3, relative=True)


@pytest.mark.long
def test_a_cell_is_what_its_gradients_say(small):
    row = small.table.query(
        "rule == '' and layers == 9 and residual == 4 and scores == 6"
    ).iloc[0]
    block = SMALL.blocks[0]
    block = replace(
        block, branch_scale=4.0, attention=replace(block.attention, score_scale=6.0)
    )
    t = Transformer(WORDS, blocks=[block] * 9, final_norm=True)
    streams = np.random.SeedSequence(3).spawn(1)[0].spawn(2)
    d = joined(
        diagnose(
            t, t.gradients(np.inf, k, stream, readout=np.eye(6) / 6), 1, relative=True
        )
        for k, stream in zip((4, 2), streams)
    )
    found = numbers(d)
    np.testing.assert_allclose(row[NAMES].astype(float), list(found.values()))
    margins = powers(found)
    assert row["score"] == max(margins.values())
    assert margins[row["worst"]] == row["score"]
    fresh = t.gradients(np.inf, 6, 4, readout=np.eye(6) / 6)
    other = diagnose(t, fresh, 1, relative=True)
    assert not np.allclose(row[NAMES].astype(float), list(numbers(other).values()))


@pytest.mark.long
def test_rules_stand_in_the_same_table(small):
    row = small.table.query("rule == 'GPT-2' and layers == 9").iloc[0]
    np.testing.assert_allclose([row["residual"], row["scores"]], [18**-0.5, 1])
    alone = scan(
        with_rule(repeated(SMALL, 9), "GPT-2"),
        residual=[1],
        scores=[1],
        rules=(),
        size=6,
        rng=3,
        relative=True,
    ).table.iloc[0]
    assert (alone[NAMES] == row[NAMES]).all()
    assert alone["score"] == row["score"]


def test_best_is_lowest_at_each_depth(small):
    best = small.best.set_index("layers")
    for L in (3, 9):
        grid = small.table.query(f"rule == '' and layers == {L}")
        assert best.loc[L, "score"] == grid["score"].min()


@pytest.mark.slow
def test_same_bytes_for_any_workers(small):
    expected = small.table.to_csv()
    for workers in (1, 3):
        with parallel(workers):
            again = scan(SMALL, **GRID, size=6, rng=3, relative=True)
            assert again.table.to_csv() == expected
    assert scan(SMALL, **GRID, size=6, rng=4).table.to_csv() != expected


def test_a_generator_moves_on():
    rng = np.random.default_rng(0)
    a, b = (
        scan(SMALL, residual=[1], scores=[1], rules=(), size=4, rng=rng).table
        for _ in range(2)
    )
    assert not a.equals(b)


def test_what_grows_with_what(small):
    "Among networks of the same random numbers."
    grid = small.table[small.table["rule"] == ""]
    # nearly uniform attention: every sum makes tokens more alike
    flat = grid[grid["scores"] == 0.2]

    def falls(table, name, *axes):
        rows = table.sort_values([*axes]).groupby([*axes[:-1]])[name]
        return rows.apply(lambda x: x.is_monotonic_decreasing).all()

    assert falls(grid, "entropy", "layers", "residual", "scores")
    for table, name, *axes in (
        (grid, "blocks", "layers", "scores", "residual"),
        (flat, "cosine", "residual", "layers"),
        (flat, "cosine", "layers", "residual"),
    ):
        assert falls(table.assign(**{name: -table[name]}), name, *axes)


@pytest.mark.long
def test_stricter_thresholds_never_help(small):
    again = partial(scan, SMALL, **GRID, size=6, rng=3, relative=True)
    strict = dict(max_cosine=0.5, min_entropy=0.5, max_entropy=0.7, max_spread=0.1)
    strict |= dict(max_gradient_ratio=3.0, min_query_gradient=1 / 3)
    strict = again(thresholds=Thresholds(**strict, min_block_share=0.9))
    assert (strict.table["score"] > small.table["score"]).all()
    lax = Thresholds(max_gradient_ratio=None, min_query_gradient=None)
    lax = again(thresholds=lax)
    assert (lax.table["score"] <= small.table["score"]).all()
    assert not set(lax.table["worst"]) & {"depth", "queries"}


def test_finite_width_spreads_more():
    scores = [
        scan(SMALL, residual=[1], scores=[1], rules=(), width=n, size=60, rng=0)
        .table["spread"]
        .item()
        for n in (16, np.inf)
    ]
    assert scores[0] > 2 * scores[1]


def test_repeated_blocks():
    two = Transformer(
        WORDS,
        blocks=[
            Block(SelfAttention(2, mask=np.tri(6, dtype=bool)), None),
            Block(None, FeedForward()),
        ]
        * 3,
    )
    kinds = [b.attention is None for b in repeated(two, 4).blocks]
    assert kinds == [False, True] * 2
    fresh = Transformer(
        WORDS,
        blocks=[
            Block(SelfAttention(2, rotary=Rotary(), mask=np.tri(6, dtype=bool)))
            for _ in range(5)
        ],
    )
    assert len(repeated(fresh, 7).blocks) == 7  # equal, though not the same objects
    with pytest.raises(ValueError, match="multiples of 2"):
        repeated(two, 3)
    other = Transformer(
        WORDS,
        blocks=[Block(SelfAttention(2, mask=m)) for m in ("causal", None, "causal")],
    )
    with pytest.raises(ValueError, match="multiples of 3"):
        repeated(other, 4)


def test_networks_in_which_a_question_makes_no_sense():
    mlp = Transformer(np.eye(3), blocks=[Block(None)] * 2)
    row = scan(mlp, residual=[0.5], scores=[1], rules=(), size=3, rng=0).table.iloc[0]
    assert np.isnan([row["entropy"], row["even"], row["queries"]]).all()
    assert row["worst"] in ("cosine", "depth", "spread", "blocks")
    one = scan(
        Transformer.uniform(np.eye(1), layers=2, heads=2),
        residual=[1],
        scores=[1],
        size=3,
        rng=0,
    )
    assert np.isnan(one.table["cosine"]).all()
    assert np.isfinite(one.table["score"]).all()


@pytest.mark.parametrize("error", (ValueError, TypeError, ZeroDivisionError))
def test_a_bug_is_no_overflow(error, monkeypatch):
    "Only numbers beyond floating point are: what else the engine raises comes through."

    def broken(*args, **options):
        raise error("a bug")

    monkeypatch.setattr(FeedForward, "backward", broken)
    with pytest.raises(error, match="a bug"):
        scan(SMALL, residual=[1], scores=[1], rules=(), size=2, rng=0)


@pytest.mark.long
@pytest.mark.power("an error wrong by a factor of two")
def test_the_error_of_a_score_is_its_spread_over_seeds():
    grid = dict(residual=[1], scores=[3], rules=(), size=16)
    grid["thresholds"] = Thresholds(max_spread=None)  # a maximum of one quantity
    rows = pd.concat(scan(SMALL, rng=seed, **grid).table for seed in range(60))
    stated = np.sqrt((rows["error"] ** 2).mean())
    assert 0.6 < rows["score"].std() / stated < 1.6


def test_a_table_read_back_is_a_scan(small, tmp_path):
    small.table.to_csv(tmp_path / "scan.csv", index=False)
    again = Scan(pd.read_csv(tmp_path / "scan.csv"))
    assert repr(again) == repr(small)
    again.plot()
    plt.close("all")


# The stored table of the page


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.long
def test_stored_table_is_computed_again(kind):
    stored = pd.read_csv(PATH, keep_default_na=False).query(f"network == '{kind}'")
    ours = scan_rows(
        kind,
        residual=[0.2, 2],
        scores=[10],
        layers=[12],
        rules=("DeepScaleLM", "T-Fixup", "Depth-µP"),
    )
    for _, row in ours.iterrows():
        at = np.isclose(
            stored[["layers", "residual", "scores"]],
            list(row[["layers", "residual", "scores"]]),
            rtol=1e-5,
        ).all(1)
        twin = stored[at & (stored["rule"] == row["rule"]).to_numpy()]
        assert len(twin) == 1
        assert twin["worst"].item() == row["worst"]
        names = [*NAMES, "score"]
        np.testing.assert_allclose(
            row[names].astype(float),
            twin[names].astype(float).iloc[0],
            rtol=1e-4,
            atol=1e-5,
        )
    assert len(ours) == 5


@pytest.mark.parametrize("kind", nightly(NETWORKS, "encoder"))
@pytest.mark.long
def test_stored_table_of_lengths_is_computed_again(kind):
    "An unscaled network and a rule at 64 tokens; at 16 they are others."
    stored = pd.read_csv(LENGTHS_PATH, keep_default_na=False)
    names = [*NAMES, "score"]
    for tokens, same in ((64, True), (16, False)):
        ours = scan(
            network(kind, tokens),
            residual=[1],
            scores=[1],
            layers=12,
            rules=("DeepScaleLM",),
            width=np.inf,
            size=4,
            rng=0,
            relative=True,
        ).table
        twins = stored.query(
            f"network == '{kind}' and tokens == 64 and layers == 12 and (rule == "
            f"'DeepScaleLM' or (rule == '' and residual == 1))"
        )
        assert (
            np.allclose(
                ours[names].astype(float),
                twins[names].astype(float),
                rtol=1e-4,
                atol=1e-5,
            )
            == same
        )


# What is rejected

ZERO, NULL = (
    Transformer.uniform(np.zeros((2, 2)), layers=2, heads=2),
    Transformer.uniform(
        np.eye(2),
        layers=2,
        heads=1,
        activation=Nonlinearity(lambda x: 0 * x, name="null"),
    ),
)


def rejected(call, fragment):
    with pytest.raises((ValueError, TypeError)) as e:
        call()
    assert fragment in str(e.value), str(e.value)
    assert "\n" not in str(e.value), str(e.value)
    assert len(str(e.value)) < 320, str(e.value)


@pytest.mark.parametrize(
    "call, fragment",
    [
        (partial(scan, ZERO, size=2), "`transformer` must have embeddings"),
        (partial(report, ZERO, 64, 8), "`transformer` must have embeddings"),
        (partial(with_rule, ZERO, "T-Fixup"), "`transformer` must have embeddings"),
        (partial(with_rule, NULL, "DeepScaleLM"), "`activation` must not be zero"),
        (partial(scan, NULL, size=2), "`activation` must not be zero"),
    ],
)
def test_dead_networks_are_rejected(call, fragment):
    rejected(call, fragment)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.sort_values("score"),
        lambda t: t.sample(frac=1, random_state=0),
        lambda t: t[t["rule"] != "GPT-2"],
    ],
    ids=["sorted", "shuffled", "filtered"],
)
def test_the_advised_row_is_the_one_that_is_meant(change):
    t = Transformer.uniform(0.5 * np.eye(2) + 0.5, layers=2, heads=1)
    found = scan(
        t,
        residual=[3.0, 10.0],
        scores=[30.0],
        rules=["GPT-2", "DeepNorm"],
        size=2,
        rng=0,
    )
    other = Scan(change(found.table), found.transformer, found.width)
    said = " ".join(repr(other).split())
    rule, number = re.search(r"the rule (\S+) is .*\.network\((\d+)\)", said).groups()
    row = other.table.iloc[int(number)]
    rules = other.table[other.table["rule"] != ""]
    assert row["rule"] == rule
    assert row["score"] == rules["score"].min()
    assert repr(other.network(int(number))) == repr(with_rule(t, rule))


@pytest.mark.parametrize("width", (16, np.inf))
@pytest.mark.parametrize(
    "axes",
    [
        dict(residual=[1, 1e155]),
        dict(residual=[1, 1e308]),
        dict(embeddings=[1, 1e155]),
        dict(embeddings=[1, 1e80]),
        dict(embeddings=[1, 1e-200]),
    ],
    ids=str,
)
def test_what_floating_point_does_not_hold_is_marked(axes, width):
    t = Transformer.uniform(0.5 * np.eye(4) + 0.5, layers=2, heads=2)
    found = scan(
        t, **dict(residual=[1], scores=[1], rules=(), width=width, size=2, rng=0) | axes
    )
    assert list(found.table["worst"] == "overflow") == [False, True]
    assert repr(found.network()) == repr(t)


def test_scores_that_floating_point_does_not_hold():
    t = Transformer.uniform(0.5 * np.eye(4) + 0.5, layers=2, heads=2)
    found = scan(t, residual=[1], scores=[1e300], rules=(), size=2, rng=0)
    assert found.table["worst"].item() == "overflow"
