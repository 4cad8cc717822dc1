"""Blocks that compose: against explicit simulation with all their matrices, the limit
of wide heads, and identities between parts.
"""

from dataclasses import replace

import numpy as np
import pytest
from block_cases import COV, agree, net
from conftest import nightly
from reference import explicit

from infattn_nb import Block, FeedForward, Norm, Rotary, SelfAttention
from infattn_nb import Transformer
from infattn_nb.nonlinearities import clip, relu, silu, tanh
from infattn_nb.nonlinearities import softmax as exact_softmax
from infattn_nb.transformer import embedding_cov, text_labels


def compared(gram, scores, c):
    "Gram entries and scores, and products across blocks and heads."
    upper = np.triu_indices(gram.shape[-1])
    seen = [gram[..., *upper], gram[:, -1, 0] * gram[:, 1, 0]]
    return (
        seen
        if scores is None
        else seen + [scores, scores[:, 0, 0, -1] * scores[:, 0, -1, -1]]
    )


TWICE = embedding_cov("abab", 1.0, 0.1)
BIAS = np.random.default_rng(8).standard_normal((4, 4, 4))
MASK = np.array([[1, 0, 0, 1], [1, 1, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1]], dtype=bool)
MLP = FeedForward(2, silu, True, var_1=2.0, var_3=0.5)
CASES = dict(
    rotary=(
        net(SelfAttention(2, 4, rotary=Rotary(100.0), var_q=4.0), MLP, cov=TWICE),
        12,
    ),
    partial=(
        net(
            SelfAttention(2, 6, rotary=Rotary(100.0, 2 / 3), mask="causal", var_q=4.0),
            None,
            cov=TWICE,
            norm_placement="post",
        ),
        8,
    ),
    groups=(
        net(SelfAttention(4, None, 2, var_q=4.0), MLP, mean=0.5, norm=Norm("rms", 0.1)),
        12,
    ),
    one_group=(
        net(SelfAttention(4, 6, 1, var_q=4.0, var_v=2.0), None, norm_placement=None),
        7,
    ),
    qk_norm=(
        net(
            SelfAttention(
                2, 4, 1, qk_norm=Norm("rms", 0.1), rotary=Rotary(10.0), score_scale=2.0
            ),
            MLP,
        ),
        9,
    ),
    qk_layer=(
        net(
            SelfAttention(2, 5, qk_norm=Norm("layer", 0.0), score_scale=1.5),
            None,
            norm_placement="output",
        ),
        9,
    ),
    softcap=(
        net(
            SelfAttention(3, None, softcap=1.5, var_q=9.0, mask=MASK),
            MLP,
            norm_placement="sandwich",
            norm=Norm("rms", 0.01),
        ),
        9,
    ),
    clip=(
        net(
            SelfAttention(4, 4, 2, clip=0.5, var_q=3.0, rotary=Rotary(10.0)),
            None,
            norm_placement="output",
        ),
        9,
    ),
    bias=(
        net(
            SelfAttention(4, None, bias=BIAS),
            FeedForward(1.5, relu),
            norm_placement="output",
        ),
        8,
    ),
    parallel=(
        net(
            SelfAttention(2, rotary=Rotary(), mask="causal"),
            FeedForward(2, tanh, var_b1=0.5, var_b2=0.3),
            parallel=True,
        ),
        8,
    ),
    parallel_post=(
        net(
            SelfAttention(2), MLP, parallel=True, norm_placement="post", skip_scale=0.5
        ),
        8,
    ),
    scaled=(
        net(
            SelfAttention(2),
            MLP,
            norm_placement="post",
            skip_scale=2.0,
            branch_scale=0.7,
        ),
        8,
    ),
    sandwich=(
        net(
            SelfAttention(2),
            MLP,
            norm_placement="sandwich",
            branch_scale=0.3,
            norm=Norm("layer", 0.01),
        ),
        6,
    ),
    mlp_alone=(net(None, MLP, norm_placement="output", norm=Norm("rms")), 5),
    texts=(
        net(
            SelfAttention(2, 4, rotary=Rotary(10.0), mask="causal", var_q=4.0),
            MLP,
            cov=TWICE,
            texts=[0, 0, 1, 1],
            first_norm=Norm("rms"),
            final_norm=True,
        ),
        10,
    ),
)


@pytest.mark.power(
    "distribution functions .1 apart: Gram entries, scores and their products, of "
    "every block"
)
@pytest.mark.parametrize(
    "name", nightly(CASES, "one_group", "qk_layer", "parallel_post", "scaled")
)
@pytest.mark.long
def test_explicit_simulation(name):
    "Every part, against all matrices: 2,000 networks each."
    t, n = CASES[name]
    X, scores = explicit(t, n, 2000, np.random.default_rng(0))
    gram, unit = X @ X.mT / n, X[..., 0]
    for c in (0, 1):
        y = t.chain(n, 2000, 1 + c, coords=c, scores=scores is not None)
        pairs = list(
            zip(compared(gram, scores, t), compared(y.gram, y.scores, t), strict=True)
        )
        if c:
            pairs.append((unit, y.units[..., 0]))
        assert agree(pairs) > 1


# Identities


def test_parallel_with_one_branch():
    "If one branch is zero, a parallel block is a sequential one."
    silent = replace(MLP, activation=relu, var_2=0.0)
    t, s = (
        Transformer(COV, [Block(SelfAttention(2), silent, parallel=p)] * 2, mean=0.3)
        for p in (True, False)
    )
    a, b = (x.chain(np.inf, 5, 0).gram for x in (t, s))
    np.testing.assert_allclose(a, b, rtol=1e-12)


def test_flat_arguments_are_blocks():
    "The short way and the long way: the same bytes, and equal layers share a block."
    own = dict(kind="rms", mask="causal", final_norm=True)
    flat = Transformer.uniform(COV, 0.3, 3, heads=2, var_q=[1.0, 2.0, 3.0], **own)
    layers = [SelfAttention(2, mask="causal", var_q=v) for v in (1.0, 2.0, 3.0)]
    blocks = [Block(a, FeedForward(), norm=Norm("rms")) for a in layers]
    long = Transformer(COV, blocks=blocks, mean=0.3, final_norm=Norm("rms"))
    for n in (8, np.inf):
        assert flat.chain(n, 5, 0).gram.tobytes() == long.chain(n, 5, 0).gram.tobytes()
    assert [b.attention.var_q for b in flat.blocks] == [1, 2, 3]
    assert len(set(map(id, Transformer.uniform(COV, layers=3).blocks))) == 1
    again = replace(long, final_norm=False)
    assert again.last_norm is None
    assert again.blocks is long.blocks
    with pytest.raises(TypeError, match="heads"):
        replace(long, heads=4)
    mixed = Transformer(
        COV,
        blocks=[Block(SelfAttention(2)), Block(SelfAttention(4), None), Block(None)],
    )
    y = mixed.chain(8, 3, 0)
    assert np.isnan(y.entropy[:, 0, 2:]).all()
    assert np.isnan(y.entropy[:, 2]).all()
    assert np.isfinite(y.entropy[:, 1]).all()
    assert len(repr(y).splitlines()) <= 8
    assert np.isfinite(mixed.kernel(64).entropy[:2]).all()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("n", (9, np.inf))
def test_records(name, n):
    "What is kept for the backward pass adds up, and keeping it changes no network."
    t = CASES[name][0].altered(None, lambda f: dict(units=2))
    heads = t.most_heads
    if n < np.inf and heads and n % heads:
        n = 8

    def records(keep):
        rng = np.random.default_rng(1)
        return list(t.forward(t.start(n, 0, 6, rng), rng, keep))

    for block, x, y, z in zip(t.blocks, *map(records, (None, "all", "scores"))):
        np.testing.assert_array_equal(x.out.gram(), y.out.gram())
        np.testing.assert_array_equal(x.out.gram(), z.out.gram())
        for step in y.steps:
            parts = sum(r.F for r in step.branches)
            np.testing.assert_allclose(parts, step.sum.F, rtol=1e-12)
            for r in step.branches:
                if not hasattr(r, "A"):
                    continue
                s, m = block.attention, block.attention.width_of_heads(n)
                allowed = s.allowed(r.A.shape[-1], t.texts)
                who = True if allowed is None else allowed
                weights = exact_softmax(np.where(who, z.attention.scores, -np.inf))
                np.testing.assert_allclose(r.A, weights, rtol=1e-10, atol=1e-300)
                if m == np.inf:
                    K = s.var_v * step.R @ step.R.mT
                    K = K if s.clip is None else clip(s.clip).dual(K)
                    F = (r.A @ K[:, None] @ r.A.mT).sum(1)
                else:
                    V = np.repeat(r.V, s.heads // (s.groups or s.heads), axis=1)
                    V = V if s.clip is None else np.clip(V, -s.clip, s.clip)
                    F = np.einsum("bhik,bhjk->bij", r.A @ V, r.A @ V) / m
                F = s.var_o / s.heads * F
                np.testing.assert_allclose(r.F, F, rtol=1e-9, atol=1e-12)


# Several texts


@pytest.mark.power("distribution functions .07 apart")
@pytest.mark.parametrize("n", (12, np.inf))
def test_texts_do_not_see_each_other(n):
    "A text beside others is as alone; so with a mask by hand."
    texts = [list("abc"), list("ba")]
    C, labels = embedding_cov(texts, 1.0, 0.3), text_labels(texts)
    blocks = [
        Block(
            SelfAttention(2, 4, rotary=Rotary(10.0), mask="causal", var_q=4.0),
            replace(MLP, activation=relu),
        )
    ] * 2
    both = Transformer(C, blocks=blocks, texts=labels, random_embeddings=True)
    y = both.chain(n, 4000, 0)
    for k, text in enumerate(texts):
        alone = Transformer(
            embedding_cov(text, 1.0, 0.3), blocks=blocks, random_embeddings=True
        ).chain(n, 4000, 1)
        upper = np.triu_indices(len(text))
        assert (
            agree(
                [
                    (y.between(k, k).gram[..., *upper], alone.gram[..., *upper]),
                    (y.entropy[..., labels == k], alone.entropy),
                ]
            )
            > 1
        )
    assert y.between(0, 1).cosine.shape == (4000, 3, 3, 2)
    assert y.between(-1, 0).gram.shape == (4000, 3, 2, 3)
    np.testing.assert_array_equal(y.kernel_of_texts()[..., 0, 1], y.gram[..., 2, 4])
    np.testing.assert_allclose(
        y.kernel_of_texts("mean")[..., 0, 1], y.between(0, 1).gram.mean((-1, -2))
    )
    mask = np.tri(5, dtype=bool) & np.equal.outer(labels, labels)
    own = dict(rotary=None)
    plain = Transformer(C, blocks, texts=list("xxxyy")).altered(lambda a: own)
    by_hand = Transformer(C, blocks).altered(lambda a: own | dict(mask=mask))
    a, b = (t.chain(9 if n < np.inf else n, 3, 0) for t in (plain, by_hand))
    assert a.gram.tobytes() == b.gram.tobytes()


def test_a_block_keeps_rows_of_its_own():
    rows = np.array([True, False])
    block = Block(rows=rows)
    rows[:] = False
    assert block.rows.tolist() == [True, False]
