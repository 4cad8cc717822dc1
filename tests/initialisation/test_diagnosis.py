"""Measurements of networks against loops, hand calculations and explicit networks."""

from dataclasses import fields, replace
from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scan_cases import SMALL, WORDS, numbers

from infattn_nb import Block, FeedForward, Norm, SelfAttention, Transformer
from infattn_nb import report as draw_report
from infattn_nb.initialisation.diagnosis import attended, depth_ratio, diagnose, drawn
from infattn_nb.initialisation.diagnosis import joined, kernel_share, living_norms
from infattn_nb.initialisation.diagnosis import score_ratio, spread, typical_norm

pytestmark = pytest.mark.xdist_group("report")  # its fixtures are made once


@pytest.mark.long
def test_living_norms_are_drawn():
    t = Transformer.uniform(np.eye(3), layers=3, heads=2, var_q=0.0)
    r = draw_report(t, 32, 4, 0)
    assert np.isnan(living_norms(r.measured.finite)["k"]).all()
    assert np.isnan(r.table["queries, keys/values"]).all()
    plt.close(r.plot())


def test_cosines_and_entropies_by_loops():
    texts = np.array([0, 0, 0, 1, 1, 1])
    t = Transformer.uniform(
        WORDS + 0.2, layers=2, heads=3, mask="causal", texts=texts, var_q=9.0
    )
    g = t.gradients(np.inf, 5, 0, count_readout=False)
    seen = diagnose(t, g, np.inf, relative=True)
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
    # of both texts together
    np.testing.assert_allclose(seen.tangent, g.tangent.sum((-2, -1)))


def test_shapes_are_flattened_to_networks():
    g = SMALL.gradients(np.inf, (2, 3), 0)
    seen = diagnose(SMALL, g, np.inf, relative=True)
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
    seen = diagnose(t, t.gradients(np.inf, 4, 0), 48)
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
    ours = diagnose(t, g, n, relative=True).embedding
    error = lambda x: x.std() / np.sqrt(len(x))
    far = lambda x: (
        abs((slopes**2).mean() - x.mean())
        / np.sqrt(error(slopes**2) ** 2 + error(x) ** 2)
    )
    assert far(ours) < 5
    # and tr dX dXᵀ is not what is meant
    assert far(g.gram[:, 0].trace(axis1=-2, axis2=-1)) > 5


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
    seen = diagnose(t, t.gradients(n, size, seed + 1), n)
    for theirs, ours in (
        (entropy.mean((1, 2)), seen.entropy[:, 0]),
        (cosine, seen.cosine[:, 1]),
    ):
        error = np.sqrt((theirs.var() + ours.var()) / size)
        assert abs(theirs.mean() - ours.mean()) < 5 * error < 0.1 * abs(theirs.mean())
    # every row over the longest row's log
    unshared = np.log(4) * entropy / np.log([2, 3, 4])
    assert abs(unshared.mean() - seen.entropy.mean()) > 0.05


def test_spread_is_that_of_logarithms_and_knows_no_unit():
    θ = diagnose(SMALL, SMALL.gradients(64, 300, 0), 64).squared_norms["q"]
    np.testing.assert_allclose(spread(θ), np.log(θ).std(0, ddof=1))
    np.testing.assert_allclose(spread(7 * θ), spread(θ))
    narrow = 1 + 0.01 * np.random.default_rng(0).uniform(-1, 1, 500)
    np.testing.assert_allclose(
        spread(narrow), narrow.std(ddof=1) / narrow.mean(), rtol=1e-3
    )


def test_ratios_by_hand():
    # geometric means of norms: 2, √2, √3
    θ = np.array([[4.0, 1.0, 9.0], [4.0, 4.0, 1.0]])
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
    # not the ratio of deviations
    assert (abs(share.value - 0.6) > 5 * share.error).all()


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
        elif f.name in ("experts", "source"):
            assert held is None  # without mixtures, and with one text
        else:
            np.testing.assert_array_equal(held, [*parts[0], *parts[1]])
    with pytest.raises(TypeError):
        type(a)(a.cosine, a.entropy)  # not by position
    with pytest.raises(KeyError):
        joined([a, replace(b, squared_norms={})])
