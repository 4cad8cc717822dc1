"""Diagnostics against explicit networks and plain loops, rules against numbers by hand,
scans against what their cells say of themselves.
"""

import re
from dataclasses import fields, replace
from functools import partial
from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from conftest import nightly
from tables import LENGTHS_PATH, NETWORKS, PATH, network, scan_rows

from infattn_nb import (
    Block,
    FeedForward,
    Nonlinearity,
    Norm,
    Rotary,
    Scan,
    SelfAttention,
    Transformer,
    embedding_cov,
    from_config,
    parallel,
    report,
    scan,
    with_rule,
)
from infattn_nb.initialisation.diagnosis import (
    attended,
    dead_matrices,
    depth_ratio,
    diagnose,
    drawn,
    joined,
    kernel_share,
    score_ratio,
    spread,
    typical_norm,
)
from infattn_nb.initialisation.quantities import (
    QUANTITIES,
    WIDTH,
    Thresholds,
    ends_of,
    judge,
    number_said,
    quantity,
    range_by_seed,
    score_of,
)
from infattn_nb.initialisation.rules import (
    PUBLISHED_RULES,
    follows,
    scaled,
    score_scale_of,
    strength_of,
)
from infattn_nb.initialisation.scan import repeated
from infattn_nb.nonlinearities import relu, silu

WORDS = embedding_cov(range(6), 1.0, 0.3)
SMALL = Transformer.uniform(WORDS, layers=3, heads=2, mask="causal", final_norm=True)
NAMES = [q.name for q in QUANTITIES]


def numbers(d):
    return {q.name: q.value(d) for q in QUANTITIES}


# Diagnostics: the same by loops


def test_cosines_and_entropies_by_loops():
    texts = np.array([0, 0, 0, 1, 1, 1])
    t = Transformer.uniform(
        WORDS + 0.2, layers=2, heads=3, mask="causal", texts=texts, var_q=9.0
    )
    g = t.gradients(np.inf, 5, 0, count_readout=False)
    seen = diagnose(t, g)
    for b, l in product(range(5), range(3)):
        K = g.chain.gram[b, l]
        pairs = [
            K[i, j] / np.sqrt(K[i, i] * K[j, j])
            for i in range(6)
            for j in range(i)
            if texts[i] == texts[j]
        ]
        assert len(pairs) == 6
        np.testing.assert_allclose(seen.cosine[b, l], np.mean(pairs))
        np.testing.assert_allclose(seen.stream[b, l], np.trace(g.gram[b, l]))
    for b, l in product(range(5), range(2)):
        rows = [
            g.chain.entropy[b, l, h, i] / np.log(k)
            for h in range(3)
            for i, k in enumerate([1, 2, 3] * 2)
            if k > 1
        ]
        np.testing.assert_allclose(seen.entropy[b, l], np.mean(rows))
    np.testing.assert_allclose(
        seen.tangent, g.tangent.sum((-2, -1))
    )  # of both texts together


def test_shapes_are_flattened_to_networks():
    g = SMALL.gradients(np.inf, (2, 3), 0)
    seen = diagnose(SMALL, g)
    assert seen.cosine.shape == (6, 4)
    assert seen.squared_norms["q"].shape == (6, 3)
    assert seen.embedding.shape == (6,)
    np.testing.assert_array_equal(
        seen.squared_norms["q"], g.squared_norms["q"].reshape(6, 3)
    )


def test_blocks_without_a_part_do_not_count():
    t = Transformer(
        WORDS,
        blocks=[
            Block(SelfAttention(2)),
            Block(None, FeedForward()),
            Block(SelfAttention(2), None),
        ],
    )
    seen = diagnose(t, t.gradients(np.inf, 4, 0))
    np.testing.assert_array_equal(attended(t), [[6] * 6, [1] * 6, [6] * 6])
    assert np.isnan(seen.entropy[:, 1]).all()
    assert not np.isnan(seen.entropy[:, ::2]).any()
    assert np.isfinite(list(numbers(seen).values())).all()


def softmax(P):
    A = np.exp(P - P.max(-1, keepdims=True))
    return A / A.sum(-1, keepdims=True)


def explicit_slopes(K, n, size, rng, small=1e-4):
    """Derivative of the loss along X → X + ε K^(1/2) g, in networks of two blocks of
    attention with all their matrices, and their least entropy.
    """
    s = len(K)
    root = np.linalg.cholesky(K)
    normal = lambda *shape: rng.standard_normal((size, *shape))
    weights = [[normal(n, n) / np.sqrt(n) for _ in "qkvo"] for _ in range(2)]
    r = normal(s, n) / np.sqrt(n)

    def loss(x):
        for q, k, v, o in weights:
            u = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
            x = x + softmax(2 * (u @ q) @ (u @ k).mT / np.sqrt(n)) @ u @ v @ o
        return (r * x).sum((-2, -1))

    x = np.sqrt(n) * root @ np.eye(s, n)
    step = small * root @ normal(s, n)
    return (loss(x + step) - loss(x - step)) / (2 * small)


@pytest.mark.power("five standard errors of the embeddings' θ: a tenth of it")
def test_the_embeddings_gradient_is_that_of_explicit_networks(seed=0):
    n, K = 16, 0.3 + np.diag([0.1, 0.4, 6.0])
    X = np.sqrt(n) * np.linalg.cholesky(K) @ np.eye(3, n)
    block = Block(SelfAttention(1, var_q=4.0), None, norm=Norm("rms"))
    t = Transformer(np.cov(X, bias=True), blocks=[block] * 2, mean=X.mean(1))
    slopes = explicit_slopes(K, n, 6000, np.random.default_rng(seed))
    g = t.gradients(n, 4000, seed + 1, readout=np.eye(3))
    ours = diagnose(t, g).embedding
    error = lambda x: x.std() / np.sqrt(len(x))
    far = lambda x: (
        abs((slopes**2).mean() - x.mean())
        / np.sqrt(error(slopes**2) ** 2 + error(x) ** 2)
    )
    assert far(ours) < 5
    assert (
        far(g.gram[:, 0].trace(axis1=-2, axis2=-1)) > 5
    )  # and tr dX dXᵀ is not what is meant


@pytest.mark.power(
    "five standard errors of the mean cosine and entropy: a tenth of either"
)
def test_cosine_and_entropy_are_those_of_explicit_networks(seed=0):
    n, H, size = 24, 3, 3000
    rng = np.random.default_rng(seed)
    x = np.broadcast_to(np.sqrt(n) * np.eye(4, n), (size, 4, n))
    q, k, v, o = (rng.standard_normal((size, n, n)) / np.sqrt(n) for _ in "qkvo")
    heads = lambda W: np.moveaxis((x @ W).reshape(size, 4, H, n // H), 2, 1)
    P = np.where(
        np.tri(4, dtype=bool), 3 * heads(q) @ heads(k).mT / np.sqrt(n // H), -np.inf
    )
    A = softmax(P)
    entropy = -np.sum(A * np.log(np.where(A > 0, A, 1)), axis=-1)[..., 1:] / np.log(
        [2, 3, 4]
    )
    y = x + np.moveaxis(A @ heads(v), 1, 2).reshape(size, 4, n) @ o
    y = y / np.linalg.norm(y, axis=-1, keepdims=True)
    cosine = (y @ y.mT)[:, *np.triu_indices(4, 1)].mean(-1)
    X = x[0]
    t = Transformer(
        np.cov(X, bias=True),
        blocks=[Block(SelfAttention(H, var_q=9.0, mask="causal"), None, None)],
        mean=X.mean(1),
    )
    seen = diagnose(t, t.gradients(n, size, seed + 1))
    for theirs, ours in (
        (entropy.mean((1, 2)), seen.entropy[:, 0]),
        (cosine, seen.cosine[:, 1]),
    ):
        error = np.sqrt((theirs.var() + ours.var()) / size)
        assert abs(theirs.mean() - ours.mean()) < 5 * error < 0.1 * abs(theirs.mean())
    unshared = (
        np.log(4) * entropy / np.log([2, 3, 4])
    )  # every row over the longest row's log
    assert abs(unshared.mean() - seen.entropy.mean()) > 0.05


def test_spread_is_that_of_logarithms_and_knows_no_unit():
    θ = diagnose(SMALL, SMALL.gradients(64, 300, 0)).squared_norms["q"]
    np.testing.assert_allclose(spread(θ), np.log(θ).std(0, ddof=1))
    np.testing.assert_allclose(spread(7 * θ), spread(θ))
    narrow = 1 + 0.01 * np.random.default_rng(0).uniform(-1, 1, 500)
    np.testing.assert_allclose(
        spread(narrow), narrow.std(ddof=1) / narrow.mean(), rtol=1e-3
    )


def test_ratios_by_hand():
    θ = np.array(
        [[4.0, 1.0, 9.0], [4.0, 4.0, 1.0]]
    )  # geometric means of norms: 2, √2, √3
    np.testing.assert_allclose(typical_norm(θ), np.sqrt([4, 2, 3]))
    np.testing.assert_allclose(depth_ratio(θ), np.sqrt(2))
    norms = dict(
        q=np.array([[1.0, 2.0]]), k=np.array([[1.0, 6.0]]), v=np.array([[4.0, 0.0]])
    )
    np.testing.assert_allclose(score_ratio(norms), [0.5, np.nan])


@pytest.mark.power("a share of variance: a tenth of it")
def test_share_that_infinite_width_leaves(seed=0):
    rng = np.random.default_rng(seed)
    limit = rng.normal(0, 0.3, (20_000, 2))
    finite = rng.normal(0, 0.3, (20_000, 2)) + rng.normal(0, 0.4, (20_000, 2))
    share = kernel_share(finite, limit)
    assert (abs(share.value - 0.36) < 5 * share.error).all()
    assert (share.error < 0.01).all()
    assert (
        abs(share.value - 0.6) > 5 * share.error
    ).all()  # not the ratio of deviations


# Rules, by hand


def first(t):
    return t.blocks[0], t.blocks[0].attention, t.blocks[0].feedforward


SIXTEEN = Transformer.uniform(
    np.eye(5), layers=16, heads=4, ff=4, activation=relu, final_norm=True, var_q=2.0
)
CAUSAL = Transformer.uniform(
    np.eye(5), layers=16, heads=4, ff=4, activation=relu, mask="causal"
)


def test_gpt2_by_hand():
    block, a, f = first(with_rule(SIXTEEN, "GPT-2"))
    assert (
        a.var_o,
        f.var_2,
        a.var_q,
        a.var_v,
        f.var_1,
        block.norm_placement,
        block.branch_scale,
    ) == (1 / 32, 1 / 32, 2.0, 1.0, 1.0, "pre", 1.0)
    alone = Transformer.uniform(np.eye(3), layers=16, heads=4, ff=0)
    assert (
        with_rule(alone, "GPT-2").blocks[3].attention.var_o == 1 / 16
    )  # one sum in a block


def test_tfixup_by_hand():
    for t, gain in ((SIXTEEN, 0.67 / 2), (CAUSAL, 12**-0.5)):
        ruled = with_rule(t, "T-Fixup")
        block, a, f = first(ruled)
        assert (block.norm_placement, ruled.last_norm, ruled.first_norm) == (
            None,
            None,
            None,
        )
        np.testing.assert_allclose(
            [a.var_q, a.var_k, a.var_v, a.var_o], [1, 1, gain**2, gain**2]
        )
        np.testing.assert_allclose([f.var_1, f.var_2], [0.4 * gain**2, 1.6 * gain**2])
        np.testing.assert_allclose(ruled.cov, np.eye(5) / 12)


def test_deepnorm_by_hand():
    ruled = with_rule(replace(SIXTEEN, cov=9 * np.eye(5)), "DeepNorm")
    block, a, f = first(ruled)
    np.testing.assert_allclose(ruled.cov, np.eye(5))
    assert (block.norm_placement, block.branch_scale, ruled.last_norm) == (
        "post",
        1.0,
        None,
    )
    np.testing.assert_allclose(block.skip_scale, 2.378414230005442)
    β2 = 0.08838834764831845  # (8·16)^(−1/2)
    np.testing.assert_allclose(
        [a.var_q, a.var_k, a.var_v, a.var_o, f.var_1, f.var_2],
        [1, 1, β2, β2, 0.4 * β2, 1.6 * β2],
    )


def test_depth_mup_by_hand():
    for t, width, m in (
        (SIXTEEN, None, 64),
        (SIXTEEN, 256, 64),
        (SIXTEEN, 1024, 256),
        (replace_width(512), None, 128),
    ):
        block, a, f = first(with_rule(t, "Depth-µP", width=width))
        np.testing.assert_allclose(
            [block.branch_scale, a.score_scale], [1 / 4, (64 / m) ** 0.5]
        )
        assert (a.var_q, a.var_o, f.var_2) == (2.0, 1.0, 1.0)


def replace_width(n):
    return replace(SIXTEEN, width=n)


def test_deepscale_by_hand():
    ruled = with_rule(SIXTEEN, "DeepScaleLM")
    r = 0.0
    for block in ruled.blocks:
        a, f = block.attention, block.feedforward
        np.testing.assert_allclose(
            [block.skip_scale**2, block.branch_scale**2], [15 / 16, 1 / 16]
        )
        np.testing.assert_allclose(a.var_v * a.var_o, 1 / (r + (1 - r) / 5))
        np.testing.assert_allclose(
            [a.var_q, a.var_k, f.var_1, f.var_2], [1, 1, 2**-0.5, 4 * 2**-0.5]
        )  # their numbers for ReLU and four units
        r = 15 / 16 * r + 1 / 16
        r = (
            15 / 16 * r
            + 1 / 16 * (np.sqrt(1 - r * r) + r * (np.pi - np.arccos(r))) / np.pi
        )
    np.testing.assert_allclose(
        np.diag(
            with_rule(
                Transformer.uniform(7 * np.eye(3), layers=4, heads=2), "DeepScaleLM"
            ).cov
        ),
        1,
    )


@pytest.mark.power("mean square of 10⁶ entries: half a per cent")
def test_xavier_is_what_a_program_draws(rng=0):
    "Fan-in × mean square of matrices drawn as T-Fixup's and DeepNorm's programs do."
    n, u, L = 512, 4, 16
    draw = np.random.default_rng(rng).normal
    gain = dict([("T-Fixup", 0.67 * L**-0.25), ("DeepNorm", (8 * L) ** -0.25)])
    for rule, g in gain.items():
        _, a, f = first(with_rule(SIXTEEN, rule))
        for fan_in, fan_out, var in (
            (n, n, a.var_v),
            (n, u * n, f.var_1),
            (u * n, n, f.var_2),
        ):
            W = g * draw(0, np.sqrt(2 / (fan_in + fan_out)), (fan_out, fan_in))
            assert abs(fan_in * np.mean(W**2) / var - 1) < 6 * np.sqrt(2 / W.size)


def test_strength_and_scores_by_hand():
    assert strength_of(SIXTEEN) == 1
    assert np.isclose(score_scale_of(SIXTEEN), np.sqrt(2))
    np.testing.assert_allclose(strength_of(with_rule(SIXTEEN, "GPT-2")), 32**-0.5)
    np.testing.assert_allclose(
        strength_of(with_rule(SIXTEEN, "T-Fixup")), 0.335**2 * 0.8**0.5
    )
    np.testing.assert_allclose(strength_of(scaled(SIXTEEN, 0.3, 5.0)), 0.3)
    np.testing.assert_allclose(
        score_scale_of(scaled(SIXTEEN, 0.3, 5.0)), 5 * np.sqrt(2)
    )
    assert np.isnan(score_scale_of(Transformer(np.eye(3), blocks=[Block(None)] * 2)))
    assert strength_of(Transformer.uniform(np.eye(3), heads=1, var_o=0.0)) == 0


LLAMA = Transformer(
    WORDS,
    blocks=[
        Block(
            SelfAttention(4, groups=2, head_width=8, rotary=Rotary(), mask="causal"),
            FeedForward(2.0, silu, gated=True),
            norm=Norm("rms"),
        )
    ]
    * 4,
    final_norm=True,
    first_norm=Norm(),
    width=32,
)
PARALLEL = Transformer(
    WORDS,
    blocks=[
        Block(SelfAttention(2, qk_norm=Norm()), FeedForward(), parallel=True),
        Block(None, FeedForward()),
    ]
    * 2,
    mean=0.3,
)


@pytest.mark.parametrize("rule", PUBLISHED_RULES)
@pytest.mark.parametrize("t", (LLAMA, PARALLEL), ids=("llama", "parallel"))
def test_rules_apply_to_every_kind_of_block(rule, t):
    ruled = with_rule(t, rule)
    assert ruled.width == t.width
    assert len(ruled.blocks) == 4
    for before, after in zip(t.blocks, ruled.blocks):
        for part in ("attention", "feedforward"):
            assert (getattr(before, part) is None) == (getattr(after, part) is None)
    assert np.isfinite(ruled.gradients(np.inf, 2, 0).tangent).all()
    if ruled.blocks[0].attention.groups and rule in ("T-Fixup", "DeepNorm"):
        assert np.isclose(ruled.blocks[0].attention.var_k, 4 / 3)  # n in, n/2 out


# The criterion

GOOD = dict(
    dead=0.0,
    cosine=0.5,
    entropy=0.8,
    even=0.9,
    depth=2.0,
    queries=0.3,
    spread=0.1,
    blocks=0.9,
)


def powers(found, thresholds=Thresholds()):
    "Of numbers that stand for a network."
    limits = {q.name: getattr(thresholds, q.threshold) for q in QUANTITIES}
    return {
        name: quantity(name).power(x, limits[name])
        for name, x in found.items()
        if limits[name] is not None
    }


@pytest.mark.parametrize(
    "name, worse",
    [
        ("dead", 1.0),
        ("cosine", 0.95),
        ("entropy", 0.1),
        ("even", 0.99),
        ("depth", 30.0),
        ("queries", 1 / 30),
        ("spread", 2.0),
        ("blocks", 0.01),
    ],
)
def test_each_number_alone_can_fail_a_network(name, worse):
    assert set(GOOD) == set(NAMES)
    assert max(powers(GOOD).values()) < 0
    found = powers(GOOD | {name: worse})
    assert found[name] > 0
    assert all(x < 0 for k, x in found.items() if k != name)


def test_powers_by_hand():
    found = powers(
        dict(
            cosine=0.99,
            entropy=0.025,
            even=0.995,
            depth=100.0,
            queries=1.0,
            spread=0.05,
            blocks=1.0,
        )
    )
    np.testing.assert_allclose(
        list(found.values()), [1, 1, 1, 1, -1, -1, -1], atol=1e-9
    )
    lost = dict(
        dead=3.0,
        cosine=1.0,
        entropy=0.0,
        even=1.0,
        depth=np.inf,
        queries=0.0,
        spread=np.inf,
        blocks=0.0,
    )
    assert powers(lost) == dict.fromkeys(NAMES, np.inf)


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


def test_records_are_joined_by_name():
    "Fields in any order; a part without a matrix cannot be joined in silence."
    t = SMALL
    a, b = (drawn(t, np.inf, k, np.random.SeedSequence(k)) for k in (2, 3))
    both = joined([a, b])
    assert len(both) == 5
    for f in fields(both):
        held = getattr(both, f.name)
        parts = [getattr(x, f.name) for x in (a, b)]
        if f.name == "squared_norms":
            for k in held:
                np.testing.assert_array_equal(held[k], [*parts[0][k], *parts[1][k]])
        else:
            np.testing.assert_array_equal(held, [*parts[0], *parts[1]])
    with pytest.raises(TypeError):
        type(a)(a.cosine, a.entropy)  # not by position
    with pytest.raises(KeyError):
        joined([a, replace(b, squared_norms={})])


@pytest.fixture(scope="module")
def many_draws():
    "Pairs of ensembles of eight networks."
    t = Transformer.uniform(WORDS, layers=3, heads=2, mask="causal", final_norm=True)
    draws = drawn(t, 24, 8 * 400, np.random.SeedSequence(0))
    pieces = [draws.some(slice(8 * k, 8 * k + 8)) for k in range(400)]
    return list(zip(pieces[::2], pieces[1::2]))


@pytest.mark.parametrize("name", ["cosine", "depth", "queries", "spread", "blocks"])
@pytest.mark.power("a range of a third of its width, in 200 pairs")
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
    return scan(SMALL, **GRID, width=np.inf, size=6, rng=3)


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
        diagnose(t, t.gradients(np.inf, k, stream, readout=np.eye(6) / 6))
        for k, stream in zip((4, 2), streams)
    )
    found = numbers(d)
    np.testing.assert_allclose(row[NAMES].astype(float), list(found.values()))
    margins = powers(found)
    assert row["score"] == max(margins.values())
    assert margins[row["worst"]] == row["score"]
    other = diagnose(t, t.gradients(np.inf, 6, 4, readout=np.eye(6) / 6))
    assert not np.allclose(row[NAMES].astype(float), list(numbers(other).values()))


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
            assert scan(SMALL, **GRID, size=6, rng=3).table.to_csv() == expected
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
    by = lambda name, *axes: grid.sort_values(list(axes)).groupby(list(axes[:-1]))[name]
    assert (
        by("entropy", "layers", "residual", "scores")
        .apply(lambda x: x.is_monotonic_decreasing)
        .all()
    )
    assert (
        by("blocks", "layers", "scores", "residual")
        .apply(lambda x: x.is_monotonic_increasing)
        .all()
    )
    flat = grid[
        grid["scores"] == 0.2
    ]  # nearly uniform attention: every sum makes tokens more alike
    assert (
        flat.sort_values("layers")
        .groupby("residual")["cosine"]
        .apply(lambda x: x.is_monotonic_increasing)
        .all()
    )
    assert (
        flat.sort_values("residual")
        .groupby("layers")["cosine"]
        .apply(lambda x: x.is_monotonic_increasing)
        .all()
    )


def test_stricter_thresholds_never_help(small):
    strict = scan(
        SMALL,
        **GRID,
        size=6,
        rng=3,
        thresholds=Thresholds(
            max_cosine=0.5,
            min_entropy=0.5,
            max_entropy=0.7,
            max_gradient_ratio=3.0,
            min_query_gradient=1 / 3,
            max_spread=0.1,
            min_block_share=0.9,
        ),
    )
    assert (strict.table["score"] > small.table["score"]).all()
    lax = scan(
        SMALL,
        **GRID,
        size=6,
        rng=3,
        thresholds=Thresholds(max_gradient_ratio=None, min_query_gradient=None),
    )
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


def test_exploding_networks_fail_in_peace():
    t = Transformer.uniform(np.eye(3), layers=96, heads=2, norm_placement=None)
    found = scan(t, residual=[1e3, 1e-3], scores=[1], rules=(), size=3, rng=0).table
    assert found["worst"][0] == "overflow"
    assert found["score"][0] == np.inf
    assert np.isnan(found["cosine"][0])
    assert found["worst"][1] != "overflow"
    assert np.isfinite(found["score"][1])


@pytest.mark.parametrize("error", (ValueError, TypeError, ZeroDivisionError))
def test_a_bug_is_no_overflow(error, monkeypatch):
    "Only numbers beyond floating point are: what else the engine raises comes through."

    def broken(*args, **options):
        raise error("a bug")

    monkeypatch.setattr(FeedForward, "backward", broken)
    with pytest.raises(error, match="a bug"):
        scan(SMALL, residual=[1], scores=[1], rules=(), size=2, rng=0)


def test_prints_in_a_few_lines(small):
    lines = repr(small).splitlines()
    assert lines[0] == "Scan: 18 cells and 10 networks by rules, a loss at every token"
    assert 3 < len(lines) <= 8
    assert max(map(len, lines)) <= 88
    many = pd.concat(
        [
            small.table.assign(layers=100 + L, score=-12.345, residual=0.012345)
            for L in range(30)
        ],
        ignore_index=True,
    )
    lines = repr(Scan(many)).splitlines()
    assert len(lines) <= 8
    assert max(map(len, lines)) <= 88


def test_map(small):
    axes = small.plot()
    assert [ax.get_title() for ax in axes] == ["3 blocks", "9 blocks"]
    mesh = axes[1].collections[0].get_array().reshape(3, 3)
    grid = small.table.query("rule == '' and layers == 9").pivot(
        index="residual", columns="scores", values="score"
    )
    np.testing.assert_allclose(mesh, grid)
    star = next(line for line in axes[1].lines if line.get_marker() == "*")
    best = small.best.set_index("layers").loc[9]
    (x, y), at = star.get_xydata()[0], np.log10([best["scores"], best["residual"]])
    assert y == pytest.approx(at[1])
    assert (
        0 < at[0] - x < np.diff(np.log10(sorted({*grid.columns})))[0] / 2
    )  # in its cell, beside the rules
    points = [c.get_offsets()[0] for c in axes[0].collections[1:]]
    rules = small.table.query("rule != '' and layers == 3")
    np.testing.assert_allclose(points, np.log10(rules[["scores", "residual"]]))
    fig, given = plt.subplots(1, 2)
    assert small.plot(given)[0] is given[0]
    with pytest.raises(ValueError, match="as many Axes as depths, 2"):
        small.plot(given[0])
    plt.close("all")


def test_all_depths_are_said():
    found = scan(
        SMALL, residual=[1], scores=[1], layers=[3, 6, 9], rules=(), size=2, rng=0
    )
    for L in (3, 6, 9):
        assert re.search(rf"^  {L} blocks: ", repr(found), flags=re.M)
    many = pd.concat([found.table.assign(layers=L) for L in range(1, 8)])
    assert "4 more depths, up to 7 blocks: .best" in repr(Scan(many))


def test_a_rule_that_the_network_follows_already_is_said():
    gpt2 = from_config("gpt2", 3)
    found = scan(gpt2, residual=[1], scores=[1], rules=["GPT-2"], size=2, rng=0)
    assert "the row GPT-2 applies them twice" in repr(found)
    assert "the row" not in repr(
        scan(SMALL, residual=[1], scores=[1], rules=["GPT-2"], size=2, rng=0)
    )
    for rule in ("GPT-2", "Depth-µP"):
        assert follows(with_rule(SIXTEEN, rule), rule)
        assert not follows(SIXTEEN, rule)
    for rule in ("T-Fixup", "DeepNorm", "DeepScaleLM"):  # twice is once
        assert not follows(with_rule(SIXTEEN, rule), rule)


def test_a_table_read_back_is_a_scan(small, tmp_path):
    small.table.to_csv(tmp_path / "scan.csv", index=False)
    again = Scan(pd.read_csv(tmp_path / "scan.csv"))
    assert repr(again) == repr(small)
    again.plot()
    plt.close("all")


# The stored table of the page


@pytest.mark.parametrize("kind", NETWORKS)
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
        *(
            (partial(with_rule, ZERO, rule), "`transformer` must have embeddings")
            for rule in PUBLISHED_RULES
        ),
        (partial(with_rule, NULL, "DeepScaleLM"), "`activation` must not be zero"),
        (partial(scan, NULL, size=2), "`activation` must not be zero"),
    ],
)
def test_dead_networks_are_rejected(call, fragment):
    rejected(call, fragment)


def test_a_row_out_of_range_is_no_output(small):
    rejected(partial(small.network, 99), "`cell` must be a row of the table, 0…27")


def test_the_cell_of_a_table_of_one_row(small):
    for L in (3, 9):
        best = small.best.query(f"layers == {L}")
        assert (
            repr(small.network(best))
            == repr(small.network(best.iloc[0]))
            == repr(small.network(int(best.index[0])))
        )
    rejected(partial(small.network, small.best), "`cell` must be one row of the table")
    rejected(
        partial(small.network, small.table["score"]),
        "`cell` must be one row of the table",
    )


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


def test_what_is_named_twice_is_run_once():
    found = scan(
        SMALL,
        residual=[1.0, 1.0],
        scores=[1, 1.0],
        layers=[3, 3],
        embeddings=[1.0, 1],
        rules=["GPT-2", "gpt2"],
        size=2,
        rng=0,
    )
    assert list(found.table["rule"]) == ["", "GPT-2"]
    assert repr(found).startswith("Scan: 1 cell and 1 network by rules")
    plt.close(found.plot().figure)


def test_tables_that_are_no_scan(small):
    table = small.table
    for given, fragment in [
        (None, "`table` must be a DataFrame"),
        (table[table["rule"] != ""], "`table` must have cells"),
        (table.drop(columns="score"), "`table` must have a column 'score'"),
    ]:
        rejected(partial(Scan, given), fragment)
    rejected(partial(Scan, table, 3), "`transformer` must be a Transformer")
    for ax in (3, [3, 4]):
        rejected(partial(small.plot, ax), "`ax` must be")
    rejected(
        Scan(pd.concat([table, table])).plot,
        "`table` must have each cell of the grid once",
    )


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
    assert (
        scan(t, residual=[1], scores=[1e300], rules=(), size=2, rng=0)
        .table["worst"]
        .item()
        == "overflow"
    )


def test_a_cell_that_cannot_be_made():
    found = scan(
        SMALL, residual=[1], scores=[1], embeddings=[1, 1e80], rules=(), size=2, rng=0
    )
    rejected(partial(found.network, 1), "`cell` must be a network")


@pytest.mark.parametrize(
    "options, fragment",
    [
        (
            dict(min_entropy=0.99, max_entropy=0.1),
            "`min_entropy` must be at most max_entropy = 0.1",
        ),
        (dict(min_entropy=0.96), "`min_entropy` must be at most max_entropy"),
        (dict(max_entropy=0.2), "`min_entropy` must be at most max_entropy"),
    ],
)
def test_thresholds_that_contradict_each_other(options, fragment):
    rejected(partial(Thresholds, **options), fragment)
    assert Thresholds(min_entropy=0.99, max_entropy=None).min_entropy == 0.99
    assert Thresholds(min_entropy=0.5, max_entropy=0.5).max_entropy == 0.5


@pytest.mark.parametrize("f", (scan, report))
def test_verbose_is_a_truth_value(f):
    rejected(partial(f, SMALL, verbose=3), "`verbose` must be True or False")
