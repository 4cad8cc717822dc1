"""Each quantity of a report by hand, its threshold and its range by seed."""

from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import nightly
from scan_cases import NAMES, SMALL, WORDS, numbers, powers

from infattn_nb import Block, FeedForward, Transformer, report, scan
from infattn_nb.initialisation.diagnosis import dead_matrices, drawn
from infattn_nb.initialisation.quantities import QUANTITIES, WIDTH, Thresholds, ends_of
from infattn_nb.initialisation.quantities import judge, number_said, quantity
from infattn_nb.initialisation.quantities import range_by_seed, score_of

GOOD = dict(dead=0.0, cosine=0.5, entropy=0.8, even=0.9, depth=2.0, queries=0.3)
GOOD |= dict(spread=0.1, blocks=0.9)
WORSE = dict(dead=1.0, cosine=0.95, entropy=0.1, even=0.99, depth=30.0, queries=1 / 30)
WORSE |= dict(spread=2.0, blocks=0.01)


@pytest.mark.parametrize("name, worse", WORSE.items())
def test_each_number_alone_can_fail_a_network(name, worse):
    assert set(GOOD) == set(NAMES)
    assert max(powers(GOOD).values()) < 0
    found = powers(GOOD | {name: worse})
    assert found[name] > 0
    assert all(x < 0 for k, x in found.items() if k != name)


def test_powers_by_hand():
    names = "cosine entropy even depth queries spread blocks".split()
    found = powers(dict(zip(names, (0.99, 0.025, 0.995, 100.0, 1.0, 0.05, 1.0))))
    expected = [1, 1, 1, 1, -1, -1, -1]
    np.testing.assert_allclose(list(found.values()), expected, atol=1e-9)
    worst = (1.0, 0.0, 1.0, np.inf, 0.0, np.inf, 0.0)
    lost = dict(zip(names, worst)) | dict(dead=3.0)
    assert powers(lost) == dict.fromkeys(lost, np.inf)


def test_the_share_of_blocks_by_hand():
    "A mean over networks; of networks without gradients of embeddings it is no number."
    share = quantity("blocks").parts
    slopes = dict(
        tangent=np.array([1.0, 3.0, 0.0]), embedding=np.array([1.0, 0.0, 0.0])
    )
    assert share(SimpleNamespace(**slopes)) == pytest.approx(0.5)
    assert np.isnan(share(SimpleNamespace(**slopes | dict(embedding=np.zeros(3)))))


def test_every_threshold_has_one_quantity():
    "Defaults lie in their intervals; names of columns, sentences and fields agree."
    known = [q.threshold for q in (*QUANTITIES, WIDTH)]
    assert sorted(known) == sorted(f.name for f in fields(Thresholds))
    assert len(set(NAMES)) == len(NAMES)
    Thresholds(**{q.threshold: q.default for q in (*QUANTITIES, WIDTH)})
    for q in (*QUANTITIES, WIDTH):
        assert q.asked.endswith("?")
        assert q.number
        assert q.beyond


def random_network(rng):
    "Of any kind: depth, heads, norms, masks, scales from tiny to large."
    s = int(rng.integers(2, 7))
    scale = lambda: float(10 ** rng.uniform(-1.5, 1.5))
    kind = rng.choice(["uniform", "mixed", "zeros"], p=[0.7, 0.2, 0.1])
    shared = float(rng.choice([0.0, 0.5, 5.0]))
    t = Transformer.uniform(
        np.eye(s) * scale() + shared,
        layers=int(rng.integers(1, 6)),
        heads=int(rng.choice([1, 2, 4])),
        ff=float(rng.choice([0, 4])),
        mask=rng.choice(["causal", None]) or None,
        norm_placement=str(rng.choice(["pre", "post"])),
        final_norm=bool(rng.integers(2)),
        var_q=scale(),
        var_v=scale(),
        var_o=0.0 if kind == "zeros" else scale(),
        var_1=scale(),
        var_2=0.0 if kind == "zeros" else scale(),
    )
    if kind == "mixed":
        t = replace(t, blocks=[*t.blocks, Block(None, FeedForward())])
    return t


@pytest.mark.filterwarnings("ignore:this (scan|report) takes")
@pytest.mark.power("a quantity that one of the two judges otherwise, in one of sixty")
@pytest.mark.parametrize("part", nightly(range(8), *range(2, 8)))
@pytest.mark.slow
def test_what_a_scan_calls_good_a_report_calls_good(part):
    """Random networks, thresholds, readouts and widths; the same seed draws the same
    networks. A cell holds if and only if the report of it crosses no threshold.
    """
    rng = np.random.default_rng(part)
    held = []
    for k in range(12):
        t = random_network(rng)
        if k % 6 == 0:  # far from all of which it lies
            d = drawn(t, np.inf, 4, np.random.SeedSequence(k))
            thresholds = Thresholds(**far_thresholds(numbers(d)))
        elif rng.random() < 0.5:  # thresholds near which the network lies
            d = drawn(t, np.inf, 4, np.random.SeedSequence(k))
            thresholds = Thresholds(**near_thresholds(numbers(d), rng))
        else:
            thresholds = Thresholds()
        readout = str(rng.choice(["all", "last", "mean"]))
        width = float(rng.choice([32, np.inf]))
        how = dict(width=width, size=6, readout=readout, thresholds=thresholds, rng=k)
        cell = scan(t, residual=[1], scores=[1], rules=(), **how)
        row = cell.table.iloc[0]
        found = report(cell.network(0), **how)
        judged = found.measured.finite
        np.testing.assert_array_equal(
            row[NAMES].astype(float), list(numbers(judged).values())
        )
        crossed = set(found.crossed) - {"width"}
        assert (row["score"] <= 0) == (not crossed), (row, found)
        if row["score"] > 0:
            assert row["worst"] in crossed
        marks = {v.name: v.mark for v in found.verdicts}
        assert all(marks[name] != "✓" for name in crossed)
        assert all(
            marks.get(name, "✓") in "✓·" for name in NAMES if name not in crossed
        )
        held.append(row["score"] <= 0)
    assert 0 < sum(held) < len(held)


def far_thresholds(found):
    "One that is ten times beyond the number of a network; no other is asked."
    asked = dict.fromkeys(q.threshold for q in QUANTITIES)
    if np.isfinite(found["depth"]):
        return asked | dict(max_gradient_ratio=10 * found["depth"])
    return asked | dict(max_cosine=1.0)


def near_thresholds(found, rng):
    "Thresholds around the numbers of a network, some of them not asked."
    chosen = {}
    for q in QUANTITIES:
        x = found[q.name]
        if q.name in ("dead", "entropy", "even") or not np.isfinite(x):
            continue
        low, high = ends_of(q.interval)
        factor = rng.uniform(0.8, 1.25)
        chosen[q.threshold] = float(np.clip(x * factor, low, high))
        if rng.random() < 0.1:
            chosen[q.threshold] = None
    return chosen


def test_the_last_block_alone_would_be_another_judge():
    "Tokens that are alike in the middle, and not at the end: both say so."
    t = Transformer.uniform(np.eye(5), layers=6, heads=2, ff=4)
    d = drawn(t, np.inf, 4, np.random.SeedSequence(0))
    risen = d.each(lambda x: x)
    risen.cosine[:, 3] = 0.95
    q = quantity("cosine")
    assert q.value(risen) == pytest.approx(0.95)
    assert q.worst(risen) == 3
    assert risen.cosine[:, -1].mean() < 0.9
    (found,) = [x for x in judge(risen, Thresholds()) if x.quantity is q]
    assert found.is_crossed
    risen.cosine[:, 3] = 0.5
    risen.cosine[:, 0] = 0.99  # the text's own
    assert q.value(risen) < 0.9


@pytest.fixture(scope="module")
def many_draws():
    "Pairs of ensembles of eight networks."
    t = Transformer.uniform(WORDS, layers=3, heads=2, mask="causal", final_norm=True)
    draws = drawn(t, 24, 8 * 400, np.random.SeedSequence(0))
    pieces = [draws.some(slice(8 * k, 8 * k + 8)) for k in range(400)]
    return list(zip(pieces[::2], pieces[1::2]))


@pytest.mark.parametrize("name", ["cosine", "depth", "queries", "spread", "blocks"])
@pytest.mark.power("a range of a third of its width, in 200 pairs")
@pytest.mark.slow
def test_the_range_by_seed_holds(name, many_draws):
    """Nine of ten reports of another seed lie in it: of 200, 180 ± 4; the bound is five
    standard errors off, and a range of a third of the width fails.
    """
    q = quantity(name)
    inside = narrow = 0
    for first, second in many_draws:
        low, high = range_by_seed(q, first)
        x, y = q.value(first), q.value(second)
        inside += low <= y <= high
        narrow += x + (low - x) / 3 <= y <= x + (high - x) / 3
    assert inside > 200 * 0.9 - 5 * np.sqrt(200 * 0.09)
    assert narrow < 200 * 0.9 - 5 * np.sqrt(200 * 0.09)


def test_numbers_with_their_range():
    assert number_said(23.71, (17.9, 24.2)) == "23.7 (18–24 by seed)"
    assert number_said(0.9941, (0.99381, 0.99432)) == "0.9941 (0.9938–0.9943 by seed)"
    assert number_said(2.0, None) == "2"
    d = drawn(SMALL, np.inf, 2, np.random.SeedSequence(0))
    assert range_by_seed(quantity("spread"), d) is None


def test_a_range_stays_within_what_a_quantity_can_be():
    "The ratio of the largest gradient to the smallest, over blocks, is at least one."
    seeds = np.random.SeedSequence(0).spawn(8)
    ranges = [
        range_by_seed(quantity("depth"), drawn(SMALL, np.inf, 4, seed))
        for seed in seeds
    ]
    assert min(low for low, _ in ranges) == 1.0


def test_dead_matrices_are_dead():
    "Exactly none: in torch's sense, and not merely little."
    t = Transformer.uniform(np.eye(4), layers=3, heads=2, var_o=0.0, var_2=0.0)
    d = drawn(t, 24, 4, np.random.SeedSequence(0))
    dead = dead_matrices(d)
    assert {k for k, none in dead.items() if none.all()} == {"q", "k", "v", "1"}
    assert not any(dead[k].any() for k in ("o", "2"))
    assert quantity("dead").value(d) == 12
    score, worst = score_of(judge(d, Thresholds()))
    assert (score, worst) == (np.inf, "dead")
    some = score_of(judge(d, Thresholds(max_dead=None)))
    assert some[1] != "dead"
    little = Transformer.uniform(np.eye(4), layers=3, heads=2, var_o=1e-30, var_2=1e-30)
    assert quantity("dead").value(drawn(little, 24, 4, np.random.SeedSequence(0))) == 0
