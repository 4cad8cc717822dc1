"""Blocks that compose: against explicit simulation with all their matrices, the limit
of wide heads, and identities between parts.
"""

from dataclasses import fields, replace

import numpy as np
import pytest
from block_cases import COV, agree, net
from conftest import nightly
from reference import explicit

from infattn_nb import Attention, Block, FeedForward, Norm, Rotary, SelfAttention
from infattn_nb import Tokens, Transformer
from infattn_nb.initialisation import Thresholds
from infattn_nb.nonlinearities import clip, identity, relu, silu, tanh
from infattn_nb.nonlinearities import softmax as exact_softmax
from infattn_nb.transformer import embedding_cov, text_labels


def compared(gram, scores, c):
    """What is compared: Gram entries, products of them across blocks, scores, products
    of scores of two heads.
    """
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


# Wide heads


# Identities


@pytest.mark.power("six standard errors of 400 networks, some 5 % of a mean")
def test_parallel_with_one_branch():
    """If one branch is zero, a parallel block is a sequential one; so is a block
    without that branch.
    """
    mlp = replace(MLP, activation=relu)
    silent, mute = replace(mlp, var_2=0.0), SelfAttention(2, var_v=0.0)
    for norm in ("pre", "post", None):
        for attention, feedforward, alone in (
            (SelfAttention(2), silent, (SelfAttention(2), None)),
            (mute, mlp, (None, mlp)),
        ):
            both = [
                Transformer(
                    COV,
                    blocks=[Block(attention, feedforward, norm, parallel=p)]
                    * (1 if norm == "post" else 2),
                    mean=0.3,
                )
                for p in (True, False)
            ]
            only = Transformer(
                COV,
                blocks=both[0].blocks[:1]
                and [Block(*alone, norm)] * len(both[0].blocks),
                mean=0.3,
            )
            mean = [t.chain(np.inf, 400, 0).gram[:, -1] for t in (*both, only)]
            if norm == "post":
                mean = [mean[0], mean[2]]  # a sequential block would normalise twice
            for x in mean[1:]:
                error = np.hypot(x.std(0), mean[0].std(0)) / 20
                assert (abs(x.mean(0) - mean[0].mean(0)) < 6 * error + 1e-9).all()
    t, s = (
        Transformer(
            COV, blocks=[Block(SelfAttention(2), silent, parallel=p)] * 2, mean=0.3
        )
        for p in (True, False)
    )
    np.testing.assert_allclose(
        t.chain(np.inf, 5, 0).gram, s.chain(np.inf, 5, 0).gram, rtol=1e-12
    )


def test_flat_arguments_are_blocks():
    "The short way and the long way: the same bytes, and equal layers share a block."
    flat = Transformer.uniform(
        COV,
        0.3,
        3,
        heads=2,
        var_q=[1.0, 2.0, 3.0],
        kind="rms",
        mask="causal",
        final_norm=True,
    )
    long = Transformer(
        COV,
        blocks=[
            Block(
                SelfAttention(2, mask="causal", var_q=v),
                FeedForward(),
                norm=Norm("rms"),
            )
            for v in (1.0, 2.0, 3.0)
        ],
        mean=0.3,
        final_norm=Norm("rms"),
    )
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
    """What is kept for the backward pass says how the block came about, and keeping it
    changes no network.
    """
    t = replace(
        CASES[name][0],
        blocks=[
            replace(b, feedforward=replace(b.feedforward, units=2))
            if b.feedforward
            else b
            for b in CASES[name][0].blocks
        ],
    )
    heads = t.most_heads
    if n < np.inf and heads and n % heads:
        n = 8 if heads != 3 else 9

    def records(keep):
        rng = np.random.default_rng(1)
        return list(t.forward(t.start(n, 0, 6, rng), rng, keep))

    a, b, pictured = map(records, (None, "all", "scores"))
    for x, y, z in zip(a, b, pictured, strict=True):
        np.testing.assert_array_equal(x.out.gram(), y.out.gram())
        np.testing.assert_array_equal(x.out.gram(), z.out.gram())
    for block, record, picture in zip(t.blocks, b, pictured):
        for step in record.steps:
            np.testing.assert_allclose(
                sum(r.F for r in step.branches), step.sum.F, rtol=1e-12
            )
            if n == np.inf:
                assert step.sum.y is None
            else:
                q, y = step.x.B.shape[-1], step.sum.y
                α, β = block.skip_scale, block.branch_scale
                z = block.norm.apply(y)[0] if step.sum.D is not None else y
                cross = (
                    z.mean[..., None] * step.x.mean[:, None]
                    + z.B[..., :q] @ step.x.B.mT
                )
                total = (
                    α * α * step.x.gram()
                    + α * β * (cross + cross.mT)
                    + β * β * z.gram()
                )
                np.testing.assert_allclose(
                    step.sum.total.gram(), total, rtol=1e-8, atol=1e-10
                )
            for r in step.branches:
                if not hasattr(r, "A"):
                    continue
                A, G = r.A, step.R @ step.R.mT
                np.testing.assert_allclose(A.sum(-1), 1, rtol=1e-12)
                s, c, m = (
                    block.attention,
                    block.attention.softcap,
                    block.attention.width_of_heads(n),
                )
                scores = picture.attention.scores
                allowed = s.allowed(A.shape[-1], t.texts)
                who = True if allowed is None else allowed
                weights = exact_softmax(np.where(who, scores, -np.inf))
                np.testing.assert_allclose(A, weights, rtol=1e-10, atol=1e-300)
                assert r.scores is None  # they are for pictures
                assert (r.P is None) == (m < np.inf and c is None)
                if r.P is not None:
                    capped = r.P if c is None else c * np.tanh(r.P / c)
                    biased = capped if s.bias is None else capped + s.bias
                    np.testing.assert_allclose(scores, biased, rtol=1e-12)
                if m == np.inf:
                    assert r.Q is None
                    assert r.V is None
                    K = s.var_v * G
                    K = K if s.clip is None else clip(s.clip).dual(K)
                    F = s.var_o / s.heads * (A @ K[:, None] @ A.mT).sum(1)
                else:
                    shared = s.heads // (s.groups or s.heads)
                    V, K = (np.repeat(x, shared, axis=1) for x in (r.V, r.K))
                    V = V if s.clip is None else np.clip(V, -s.clip, s.clip)
                    F = (
                        s.var_o
                        / (s.heads * m)
                        * np.einsum("bhik,bhjk->bij", A @ V, A @ V)
                    )
                    if s.explicit:
                        assert r.Q.shape[-1] == m
                    else:
                        P = s.score_scale * r.Q @ K.mT / np.sqrt(m)
                        capped = P if c is None else c * np.tanh(P / c)
                        biased = capped if s.bias is None else capped + s.bias
                        np.testing.assert_allclose(
                            scores, biased, rtol=1e-9, atol=1e-10
                        )
                np.testing.assert_allclose(r.F, F, rtol=1e-9, atol=1e-12)


# Several texts


@pytest.mark.power("distribution functions .07 apart")
@pytest.mark.parametrize("n", (12, np.inf))
def test_texts_do_not_see_each_other(n):
    """A text beside others has the law that it has alone; a mask made by hand says the
    same.
    """
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
    plain = [replace(b, attention=replace(b.attention, rotary=None)) for b in blocks]
    by_hand = [
        replace(
            b,
            attention=replace(
                b.attention, mask=np.tri(5, dtype=bool) & np.equal.outer(labels, labels)
            ),
        )
        for b in plain
    ]
    a = Transformer(C, blocks=plain, texts=list("xxxyy")).chain(
        9 if n < np.inf else n, 3, 0
    )
    b = Transformer(C, blocks=by_hand).chain(9 if n < np.inf else n, 3, 0)
    assert a.gram.tobytes() == b.gram.tobytes()


# Frozen, and easily changed

FROZEN = [
    (Tokens(3, relu), dict(seq_len=4)),
    (Tokens(3, identity, np.eye(3)), dict(cov=2 * np.eye(3))),
    (
        Attention(Tokens(3, relu), 2, mask=np.tri(3, dtype=bool), bias=np.ones((3, 3))),
        dict(heads=3),
    ),
    (
        SelfAttention(4, groups=2, mask="causal", rotary=Rotary(frequencies=(0.1,))),
        dict(groups=None),
    ),
    (SelfAttention(2, mask=MASK, bias=BIAS[0]), dict(var_q=4.0)),
    (FeedForward(2, np.arctan), dict(gated=True)),
    (Block(SelfAttention(2), None), dict(norm_placement="post")),
    (Norm("rms"), dict(eps=0.1)),
    (Rotary(10.0, 0.5), dict(share=1.0)),
    (Thresholds(max_cosine=None), dict(max_cosine=0.5)),
    (
        Transformer.uniform(
            COV,
            0.3,
            3,
            heads=2,
            mask="causal",
            texts=[0, 0, 1, 1],
            final_norm=True,
            width=24,
        ),
        dict(mean=0.0, first_norm=Norm()),
    ),
]


@pytest.mark.parametrize("x, change", FROZEN, ids=[type(x).__name__ for x, _ in FROZEN])
def test_replace(x, change):
    "`dataclasses.replace` takes every field as it is, and another one."
    for f in fields(x):
        replace(x, **{f.name: getattr(x, f.name)})
    y = replace(x, **change)
    for name, value in change.items():
        np.testing.assert_array_equal(
            getattr(y, name),
            np.broadcast_to(value, np.shape(getattr(y, name)))
            if np.ndim(value) == 0 and isinstance(value, float)
            else value,
        )
    kept = [f.name for f in fields(x) if f.name not in change]
    assert kept
    assert all(repr(getattr(x, name)) == repr(getattr(y, name)) for name in kept)


def test_a_transformer_is_as_deep_as_its_blocks():
    deep = Transformer.uniform(COV, layers=3, heads=2)
    assert replace(deep, blocks=deep.blocks * 8).chain(8, 2, 0).gram.shape == (
        2,
        25,
        4,
        4,
    )
