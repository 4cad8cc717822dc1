"Attention of a block: wide heads, rotary scores, groups, masks, norms."

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from block_cases import COV, agree, net
from conftest import nightly
from scipy.stats import norm as normal

from infattn_nb import Block, FeedForward, Norm, Rotary, SelfAttention, Transformer
from infattn_nb.nonlinearities import silu
from infattn_nb.nonlinearities import softmax as exact_softmax
from infattn_nb.transformer import embedding_cov

TWICE = embedding_cov("abab", 1.0, 0.1)
MLP = FeedForward(2, silu, True, var_1=2.0, var_3=0.5)
ROTARY = Rotary(5.0, 0.75)
WIDE = dict(
    rotary=dict(rotary=ROTARY),
    frequencies=dict(rotary=Rotary(frequencies=(0.3, 2.0), share=0.25)),
    qk_norm=dict(qk_norm=Norm("rms", 0.3), score_scale=2.0),
    clip=dict(clip=0.4, qk_norm=Norm("rms", 0.3), score_scale=4.0, rotary=ROTARY),
    both=dict(qk_norm=Norm("layer", 0.0), rotary=ROTARY, softcap=2.0),
    groups=dict(groups=1),
)


@pytest.mark.power(
    "distribution functions .12 apart: scores and their products between tokens and "
    "heads"
)
@pytest.mark.parametrize("name", nightly(WIDE, *set(WIDE) - {"both"}))
@pytest.mark.long
def test_wide_heads(name):
    "m = ∞ has the law of m = 4096: Gaussian scores."
    a = SelfAttention(2, 4096, var_q=2.0, **WIDE[name])
    if (
        a.rotary and a.rotary.frequencies
    ):  # of heads of 4096 coordinates: each of them 256 times
        a = replace(
            a, rotary=Rotary(share=0.25, frequencies=a.rotary.frequencies * 256)
        )
    R = np.broadcast_to(np.linalg.cholesky(TWICE), (1500, 4, 4))
    finite = np.concatenate(
        [
            a.forward(R[:50], 1.0, np.random.default_rng(k), keep="scores").scores
            for k in range(10)
        ]
    )
    wide = (
        replace(a, head_width=np.inf, **WIDE[name])
        .forward(R, 1.0, np.random.default_rng(99), keep="scores")
        .scores
    )

    def seen(P):
        return [
            P,
            P[:, 0, 0, 1] * P[:, 0, 2, 3],
            P[:, 0, 0, 1] * P[:, 0, 1, 2],
            P[:, 0, 0, 3] * P[:, 0, 3, 0],
            P[:, 0, 1, 0] * P[:, 1, 1, 0],
            P[:, :, 0] - P[:, :, 2],
        ]

    assert agree(zip(seen(finite), seen(wide), strict=True)) > 1
    if a.rotary is ROTARY:  # and without them it is
        still = (
            replace(a, head_width=np.inf, **WIDE[name] | dict(rotary=None))
            .forward(R, 1.0, np.random.default_rng(99), keep="scores")
            .scores
        )
        assert agree(zip(seen(finite), seen(still), strict=True)) < 1


def clipped_square(variance, c):
    "Mean square of a normal number that is clipped at ±c."
    x = c / variance**0.5
    within = 1 - 2 * normal.sf(x) - 2 * x * normal.pdf(x)
    return variance * within + 2 * c**2 * normal.sf(x)


@pytest.mark.power("a second moment 5 % too large")
@pytest.mark.parametrize("eps", [None, 0.5])
def test_clipped_heads_of_infinite_width(eps, size=40_000):
    "Of one token: clipped normal numbers, behind a norm if there is one."
    q, k, v = 2.0, 0.5, 3.0
    own = dict(clip=0.8, score_scale=1.5, var_q=q, var_k=k, var_v=v, var_o=2.0)
    a = SelfAttention(2, np.inf, qk_norm=eps and Norm("rms", eps), **own)
    record = a.forward(
        np.ones((size, 1, 1)), 1.0, np.random.default_rng(0), keep="scores"
    )
    np.testing.assert_allclose(record.F, 2 * clipped_square(v, 0.8), rtol=1e-6)
    if eps:
        q, k = q / (q + eps), k / (k + eps)
    squares = (record.scores**2).mean((1, 2, 3))
    wanted = 1.5**2 * clipped_square(q, 0.8) * clipped_square(k, 0.8)
    assert abs(squares.mean() - wanted) < 6 * squares.std() / size**0.5


@pytest.mark.power("scores whose biases are exchanged, or left out")
def test_biases_of_wide_heads(size=4000):
    "Scores (√v_q x + b_q)·(√v_k x′ + b_k) of one query, and of one key."
    a = SelfAttention(2, np.inf, var_q=2.0, var_bq=1.5, var_bk=0.5)
    R = np.broadcast_to(np.linalg.cholesky(TWICE), (size, 4, 4))
    P = a.forward(R, 1.0, np.random.default_rng(0), keep="scores").scores
    q, k = 2 * TWICE + 1.5, TWICE + 0.5
    for (i, j), (l, m) in [((0, 1), (0, 1)), ((0, 1), (2, 1)), ((0, 1), (0, 3))]:
        both = (P[:, :, i, j] * P[:, :, l, m]).ravel()
        error = both.std() / np.sqrt(both.size)
        assert abs(both.mean() - q[i, l] * k[j, m]) < 6 * error


def test_correlation_of_rotary_scores():
    """c(δ) is the mean cosine over all coordinates: the integral of many frequencies, 1
    at δ = 0, the share that stays for far tokens.
    """
    δ = np.array([0.0, 1.0, 5.0, 300.0])
    for base in (1.0, 10.0, 1e4):
        r = Rotary(base, 0.5)
        mean = np.cos(np.multiply.outer(δ, r.angles(2**20))).mean(-1)
        np.testing.assert_allclose(r.correlation(δ), 0.5 + 0.5 * mean, atol=1e-4)
    np.testing.assert_allclose(
        Rotary(share=0.25, frequencies=(0.1,)).correlation(δ),
        0.75 + 0.25 * np.cos(0.1 * δ),
        rtol=1e-12,
    )
    Q = np.random.default_rng(0).standard_normal((3, 5, 8))
    at = np.arange(5)
    np.testing.assert_allclose(
        ROTARY.turn(ROTARY.turn(Q, at), at, back=True), Q, atol=1e-14
    )
    K = ROTARY.turn(Q, at + 7)
    np.testing.assert_allclose(
        K @ K.mT, ROTARY.turn(Q, at) @ ROTARY.turn(Q, at).mT, atol=1e-12
    )  # only distances count


def test_a_group_per_head_is_no_group():
    "As many groups as heads: the same bytes as without, at every width."
    for kind in (dict(), dict(rotary=Rotary()), dict(qk_norm=Norm("rms"))):
        t = net(SelfAttention(4, 4, mask="causal", **kind), MLP)
        for n in (9, np.inf):
            a, b = (t.altered(lambda a: dict(groups=k)) for k in (None, 4))
            assert a.chain(n, 5, 0).gram.tobytes() == b.chain(n, 5, 0).gram.tobytes()
    a, b = (
        Transformer(COV, blocks=[Block(SelfAttention(4, groups=k))]).chain(np.inf, 5, 0)
        for k in (2, None)
    )
    assert a.gram.tobytes() == b.gram.tobytes()


@pytest.mark.power("distribution functions .07 apart")
@pytest.mark.parametrize("m", (3, 12))
def test_queries_and_keys_of_a_record(m):
    "QQᵀ, KKᵀ, QKᵀ jointly, though only inner products were drawn."
    N, R = 4000, np.linalg.cholesky(COV)
    a = SelfAttention(2, m, 1, var_q=2.0, var_k=0.5)
    r = a.forward(
        np.broadcast_to(R, (N, 4, 4)), 1.0, np.random.default_rng(0), keep="all"
    )
    rng = np.random.default_rng(1)
    Q, K = (
        np.sqrt(2) * R @ rng.standard_normal((N, 2, 4, m)),
        np.sqrt(0.5) * R @ rng.standard_normal((N, 1, 4, m)),
    )
    upper = np.triu_indices(4)

    def seen(Q, K):
        return [
            (Q @ Q.mT)[..., *upper],
            (K @ K.mT)[..., *upper],
            Q @ K.mT,
            (Q @ K.mT)[:, 0, 0, 0] * (Q @ Q.mT)[:, 0, 0, 0],
            (Q @ K.mT)[:, 0, 0, 0] ** 2 * (K @ K.mT)[:, 0, 1, 1],
            Q[:, 0] @ Q[:, 1].mT,
        ]

    assert agree(zip(seen(Q, K), seen(r.Q, r.K), strict=True)) > 1


@pytest.mark.power("six standard errors of 300 networks with 64 heads, 2 % of a mean")
def test_kernel_of_a_modern_block():
    "The mean of networks with many heads, positions and caps."
    t = net(
        SelfAttention(
            64, np.inf, 4, rotary=Rotary(10.0), softcap=3.0, mask="causal", var_q=4.0
        ),
        MLP,
        cov=TWICE,
        mean=0.0,
    )
    K, e = t.kernel(2**12, 1, return_error=True)
    y = t.chain(np.inf, 300, 0).gram
    spread = y.std(0) / np.sqrt(300)
    assert (
        abs(y.mean(0) - K.gram)
        < 6 * np.hypot(spread, e.gram) + 0.01 * abs(K.gram) + 1e-12
    ).all()


@pytest.mark.parametrize("strength", (1.0, 1e6))
def test_masked_scores_weigh_nothing(strength):
    "The softmax that spares them is the softmax, to the last bit."
    mask = np.tri(6, dtype=bool)[::-1].copy()
    R = np.random.default_rng(0).standard_normal((5, 6, 6))
    for m in (4, np.inf):
        branch = SelfAttention(3, m, mask=mask, var_q=strength)
        kept, pictured = (
            branch.forward(R, np.inf, np.random.default_rng(1), keep=keep)
            for keep in ("all", "scores")
        )
        A = exact_softmax(np.where(mask, pictured.scores, -np.inf))
        np.testing.assert_array_equal(kept.A, A)
        assert not kept.A[..., ~mask].any()
        entropy = -(A * np.log(np.where(A > 0, A, 1))).sum(-1)
        np.testing.assert_allclose(kept.entropy, entropy, atol=1e-9 * strength**0.5)


def test_memory_of_many_heads():
    "Heads are drawn some at a time: ten times as many need little more."
    R = np.linalg.cholesky(np.eye(128) / 2 + 0.5)[None]

    def peak(heads):
        branch = SelfAttention(heads, 16)
        tracemalloc.start()
        branch.forward(R, 16 * heads, np.random.default_rng(0))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(400) < 2 * peak(40)


def test_slope_of_capped_scores(h=1e-6):
    "Central differences through cap and softmax."
    a = SelfAttention(1, softcap=1.5)
    P, dA, step = np.random.default_rng(0).standard_normal((3, 2, 4))
    weights = lambda P: exact_softmax(1.5 * np.tanh(P / 1.5))
    found = a.before_softmax(weights(P), P, dA)
    change = (weights(P + h * step) - weights(P - h * step)) / (2 * h)
    np.testing.assert_allclose((found * step).sum(), (dA * change).sum(), rtol=1e-7)


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("rotary", [None, Rotary(base=3.0)])
def test_gradients_are_orthogonal_to_normed_queries_and_keys(kind, rotary, monkeypatch):
    """At infinite head width, too: scores do not depend on the length of a query or
    of a key, so that the gradient has no component along either.
    """
    found = []
    own = SelfAttention._bilinear_forms

    def seen(*args):
        found.append(own(*args))
        return found[-1]

    monkeypatch.setattr(SelfAttention, "_bilinear_forms", seen)
    for norm in (Norm(kind, 0.0), None):
        a = SelfAttention(
            2, var_q=0.7, var_k=2.0, qk_norm=norm, rotary=rotary, score_scale=2.0
        )
        K = np.array([[1, 0.5, 0.2], [0.5, 2, 0.3], [0.2, 0.3, 1]])
        Transformer(K, blocks=[Block(a, None)]).gradients(np.inf, 5, 0)
        of_queries, of_keys = (np.diagonal(T, axis1=1, axis2=2) for T in found[-1][:2])
        sizes = [abs(T).max() for T in found[-1][:2]]
        assert min(sizes) > 1e-3
        zero = norm is not None
        assert (abs(of_queries).max() < 1e-12 * sizes[0]) == zero
        assert (abs(of_keys).max() < 1e-12 * sizes[1]) == zero


@pytest.mark.power("a variance of the sinks off by a fifth")
@pytest.mark.parametrize("width", [np.inf, 10**6])
def test_a_sink_takes_its_share_of_the_weights(width, heads=5 * 10**5):
    "One token has the weight 1/(1 + exp(sink)): its mean square, by quadrature."
    layer = SelfAttention(heads, var_q=0.0, var_sink=2.0)
    F = layer.forward(np.ones((1, 1, 1)), width, np.random.default_rng(0)).F
    z, w = np.polynomial.hermite_e.hermegauss(80)
    square = 1 / (1 + np.exp(np.sqrt(2) * z)) ** 2
    w = w / w.sum()
    # E v⁴ of a value's mean square v², two coordinates
    squares = 2 if width < np.inf else 1
    error = np.sqrt(squares * (w @ square**2) / heads)
    assert abs(F.item() - w @ square) < 6 * error < 0.01
