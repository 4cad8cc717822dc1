"Norms in programs against the chain; scores from one array of normals."

import time
import warnings
from fractions import Fraction

import numpy as np
import pytest
from conftest import BEYOND_THEOREM
from scipy.stats import ks_2samp

from infattn_nb import AssumptionWarning, Program, Transformer, limit, simulate
from infattn_nb.netsor import attention, gram
from infattn_nb.nonlinearities import relu, tanh

pytestmark = BEYOND_THEOREM


def written(t):
    "A transformer as a program: its tokens after every block."
    p = Program()
    xs = p.inputs(t.cov, t.mean)
    block = t.blocks[0]
    a, f, norm = block.attention, block.feedforward, block.norm
    normed = lambda x: p.normalize(x, norm.kind, norm.eps)
    enter, leave = (
        normed if block.norm_placement == where else lambda x: x
        for where in ("pre", "post")
    )
    streams = [xs]
    for l in range(len(t.blocks)):
        low = a.head_width is None
        ys = attention(
            p,
            [enter(x) for x in xs],
            a.heads,
            low_rank=low,
            var_q=a.var_q,
            var_k=a.var_k,
            var_v=a.var_v,
            var_o=a.var_o,
            mask=a.allowed(len(xs)),
        )
        xs = [leave(x + y) for x, y in zip(xs, ys)]
        if f:
            U, V = p.matrix(var=f.var_1, rows=Fraction(f.units)), p.matrix(var=f.var_2)
            xs = [leave(x + V @ f.activation(U @ enter(x))) for x in xs]
        streams.append(xs)
    return p, streams


def agree(x, y, level=1e-7):
    pairs = [
        (a, b)
        for a, b in zip(
            x.reshape(len(x), -1).T.round(9),
            y.reshape(len(y), -1).T.round(9),
            strict=True,
        )
        if np.ptp(np.concatenate([a, b])) > 1e-6
    ]
    p = [ks_2samp(a, b, method="asymp").pvalue for a, b in pairs]
    assert pairs, min(p)
    assert min(p) > level / len(p), min(p)


COV = np.array([[1.0, 0.5, -0.2], [0.5, 2.0, 0.3], [-0.2, 0.3, 0.7]])
CASES = [
    Transformer.uniform(
        COV[:2, :2], 0.3, 2, heads=2, random_embeddings=True, ff=2, var_q=2.0
    ),
    Transformer.uniform(
        COV,
        [0.2, 0.0, -0.4],
        2,
        heads=2,
        norm_placement="post",
        activation=relu,
        mask="causal",
        random_embeddings=True,
        ff=1,
        var_o=2.0,
    ),
    Transformer.uniform(
        COV[1:, 1:],
        0.5,
        2,
        heads=1,
        kind="rms",
        eps=0.2,
        activation=tanh,
        random_embeddings=True,
        ff=1,
    ),
]


@pytest.mark.power("distribution functions .08 apart")
@pytest.mark.parametrize("t", CASES, ids=["pre", "post", "rms"])
@pytest.mark.long
def test_finite_width(t):
    "The program, simulated at width 8, and the chain."
    p, streams = written(t)
    K = gram(p, [h for xs in streams for h in xs], 8, size=4000, rng=0)
    y, s = t.chain(8, 4000, 1), len(t.cov)
    for l in range(len(t.blocks) + 1):
        agree(K[:, l * s : l * s + s, l * s : l * s + s], y.gram[:, l])


@pytest.mark.power("distribution functions .08 apart")
@pytest.mark.parametrize("t", CASES, ids=["pre", "post", "rms"])
@pytest.mark.long
def test_limit(t):
    "Two blocks with MLPs, path by path, and the chain at infinite width."
    p, streams = written(t)
    y, P = t.chain(np.inf, 4000, 0), limit(p, draws=4000, rng=1).drawn
    for l in range(1, len(t.blocks) + 1):
        m = P.mean(streams[l])
        agree(P.cov(streams[l]) + m[:, :, None] * m[:, None], y.gram[:, l])
        agree(m, y.mean[:, l]) if np.ptp(m) > 1e-6 else np.testing.assert_allclose(
            m, y.mean[:, l], atol=1e-6
        )


def test_warns_of_averages():
    p = Program()
    (h,) = p.inputs([[1.0]])
    assert repr(2 * h - h + h) == "z3 = z2 + u1" and "z2 = z1 - u1" in repr(p)
    assert "r1 = LayerNorm(u1)" in repr(p.normalize(h))
    assert "RMSNorm" in repr(p.normalize(h, "rms"))
    finding, _ = p.check(strict=False)
    assert isinstance(finding, AssumptionWarning)
    assert finding.clause == "average"


def test_rejected():
    p = Program()
    (h,) = p.inputs([[1.0]])
    for call, kind, text in (
        (lambda: p.normalize(h, "batch"), ValueError, "`kind` must"),
        (lambda: p.normalize(h, eps=-1), ValueError, "`eps` must"),
        (lambda: p.normalize(3), TypeError, "`h` must"),
    ):
        with pytest.raises(kind, match=text):
            call()
    zero = p.normalize(0.0 * h, eps=0.0)
    for call in (lambda: simulate(p, zero, 4), lambda: limit(p)):
        with pytest.raises(ValueError, match="`eps` of `r1` must be positive"):
            call()


def test_moments_of_a_normalised_vector():
    "Exact: mean zero, variance v/(v + ε), through a nonlinearity too."
    p = Program()
    u, v = p.inputs([[2.0, 0.5], [0.5, 1.0]], [1.0, -1.0])
    a, b, c = (
        p.normalize(u, eps=0.5),
        p.normalize(v, "rms", 0.0),
        p.normalize(relu(u) + v, eps=0.0),
    )
    L = limit(p)
    np.testing.assert_allclose(
        L.cov([a, b]),
        [[0.8, 0.5 / np.sqrt(2.5 * 2)], [0.5 / np.sqrt(5), 0.5]],
        rtol=1e-12,
    )
    np.testing.assert_allclose(
        [L.mean(a), L.mean(b), L.second_moment(b, b)],
        [0, -1 / np.sqrt(2), 1],
        atol=1e-12,
    )
    np.testing.assert_allclose([L.mean(c), L.second_moment(c, c)], [0, 1], atol=1e-9)
    x = simulate(p, [a, b, c], 4000, size=50, rng=0, coords=4000)
    np.testing.assert_allclose((x[:, 0] * x[:, 1]).mean(), 0.5 / np.sqrt(5), atol=0.03)
    np.testing.assert_allclose((x[:, 2] ** 2).mean(-1), 1, rtol=1e-12)


# Scores


@pytest.mark.power("six standard errors of 20,000 paths")
def test_shared_matrices_crosswise():
    "Ten scores of three matrices: (B-iv), cross terms, rank deficient."
    p = Program()
    xs = p.inputs(COV)
    A, B, C = (p.matrix(k) for k in "ABC")
    x, y, z = xs
    scores = [
        p.score(A @ x, B @ y),
        p.score(B @ x, A @ y),
        p.score(A @ x, B @ x),
        p.score(B @ z, C @ z),
        p.score(C @ x, B @ (x + y)),
        p.score(A @ z, B @ (x - 2 * y)),
        p.score(C @ z, B @ z),
        p.score(B @ (x - 2 * y), A @ z),
        p.score(A @ x, C @ x),
        p.score(C @ x, A @ x),
    ]
    L = limit(p, draws=20_000, rng=3)
    S, M = L.score_cov(scores), np.cov(L.paths(20_000, 5).scores.T)
    assert abs(S[0, 1] - 0.25 * 0 - COV[0, 1] * COV[1, 0]) < 1e-12
    assert abs(S[8, 9] - COV[0, 0] ** 2) < 1e-12
    error = np.sqrt((S**2 + np.outer(np.diag(S), np.diag(S))) / 20_000)
    assert (abs(M - S) < 6 * error + 1e-12).all()
    P = L.paths(50, 7).scores
    np.testing.assert_allclose(P[:, 5], P[:, 7])  # the same number, roles exchanged
    np.testing.assert_allclose(P[:, 8], P[:, 9])


def test_many_tokens():
    "1,296 scores in a second; a factor of all of them would take minutes."
    p = Program()
    xs = p.inputs(np.eye(18))
    ys = attention(p, [tanh(x) for x in xs], heads=4)
    start = time.process_time()
    P = limit(p, draws=16, rng=0).drawn
    assert P.scores.shape == (16, 4 * 18 * 18)
    assert time.process_time() - start < 10
    k = tanh.dual(np.eye(1))[0, 0]
    assert abs(P.scores.std() / k - 1) < 0.1


def test_given_scores_are_taken():
    "Prescribed scores are returned, and those they determine follow."
    p = Program()
    x, y = p.inputs(COV[:2, :2])
    A, B = p.matrix(), p.matrix()
    s = [p.score(A @ x, B @ y), p.score(A @ y, B @ x), p.score(A @ (2 * x), B @ y)]
    given = np.random.default_rng(0).standard_normal((20, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        P = limit(p).given(given)
    np.testing.assert_allclose(P.scores[:, :2], given[:, :2])
    np.testing.assert_allclose(P.scores[:, 2], 2 * given[:, 0])
