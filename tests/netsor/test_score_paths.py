"""Paths of scores: loops, coefficients of pairs, bounded memory."""

import tracemalloc
from unittest.mock import patch

import numpy as np
import pytest
import speed
from conftest import BEYOND_THEOREM, nightly
from numpy.random import default_rng
from scipy.stats import norm
from stack_cases import both

from infattn_nb import Program, limit, simulate
from infattn_nb.netsor import attention, score_paths
from infattn_nb.netsor.score_paths import Batch, Paths
from infattn_nb.nonlinearities import clip, relu, sin, tanh
from infattn_nb.numerics.hermite import cross_moment

pytestmark = BEYOND_THEOREM


@pytest.mark.long
def test_a_loop_has_the_limit_of_a_stack():
    "Score by score the normals are the same, so every path is the same."
    (p, F), (q, fs) = both()
    a, b = (Paths(r, 50, rng=0, wanted=f).cov(f) for r, f in ((p, [F]), (q, fs)))
    np.testing.assert_allclose(a, b, rtol=1e-9)


def test_memory_of_paths_is_bounded(s=64, paths=400):
    "All scores of all paths take 13 MB for each array of them, and ten are needed."
    p = Program()
    Y = attention(p, clip(1.0)(p.inputs(np.eye(s))))
    tracemalloc.start()
    with (
        patch.object(score_paths, "MOST_NUMBERS", 2.0**20),
        patch.object(score_paths, "KEPT_NUMBERS", 0),
    ):
        limit(p, paths).second_moment(Y[0], Y[0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6


@pytest.mark.parametrize("φ", [tanh, relu, None], ids=repr)
def test_two_coefficients_of_each_vector(φ):
    "As the whole series of each pair, in fewer evaluations."
    p = Program()
    u, v = p.inputs([[1.0, 0.5], [0.5, 2.0]], mean=[0.3, -0.2])
    P = Paths(p, 1)
    f = (lambda x: np.abs(x)) if φ is None else φ
    h = p.nonlin(f, v) if φ is None else f(v)
    nodes = dict(nodes=2**14)
    one = np.ones(1)
    known = cross_moment(
        f, lambda x: x, (-0.2 * one, 0.3 * one), 2 * one, one, 0.5 * one, **nodes
    )
    np.testing.assert_allclose(P.moment(h, u).ravel(), known, rtol=1e-7)
    np.testing.assert_allclose(
        P.moment(h).ravel(),
        cross_moment(
            f, np.ones_like, (-0.2 * one, 0 * one), 2 * one, 0 * one, 0 * one, **nodes
        ),
        rtol=1e-7,
    )
    with (
        patch.object(Batch, "_by_series", side_effect=AssertionError),
        patch.object(Batch, "_line", autospec=True, side_effect=Batch._line) as line,
    ):
        P = Paths(p, 1)
        stack, linear = P.stacks.view(h), P.stacks.view(u)
        (batch,) = P.each()
        for _ in range(3):
            batch.moment(stack, linear), batch.moment(linear, stack), batch.mean(stack)
    assert line.call_count == 2  # one moment and one mean; u needs none


@pytest.mark.long
@pytest.mark.parametrize("name", nightly(["_functions", "_foresee"], "_functions"))
def test_the_other_sides_of_the_benchmark_have_the_same_limit(name, monkeypatch):
    "What benchmarks/speed.py replaces is there, and is replaced by its equal."

    def covariance():
        lim = speed.two_layers(s=2, between=tanh)
        return lim.cov(lim.program.nodes[-1])

    ours = covariance()
    called = []
    others = {"_functions": speed.pair_by_pair, "_foresee": lambda *_: None}

    def other(*arguments, **options):
        called.append(arguments)
        return others[name](*arguments, **options)

    monkeypatch.setattr(speed.Batch, name, other)
    np.testing.assert_allclose(covariance(), ours, rtol=1e-12)
    assert called


# -- random programs: conditional moments given the scores against explicit networks


def random_program(seed):
    "Shared matrices, repeated and zero rows, masks, functions, norms."
    rng = default_rng(seed)
    p = Program()
    A = rng.standard_normal((3, 2))
    A[0] *= rng.integers(2)  # a row of zeros, which is a constant if it has a mean
    A = np.concatenate([A, A[rng.integers(3, size=1)]])  # a repeated row
    X = p.inputs(A @ A.T, mean=rng.integers(2) * rng.standard_normal(4))
    W = [p.matrix(var=v) for v in (1.0, 2.0)]
    stacks = [X, p.linear((0.3, X), (-1.1, X)), p.matmul(W[0], X)]
    reach = dict(tanh=tanh, clip=clip(1.5), sin=sin)

    def some():
        return stacks[rng.integers(len(stacks))]

    def product():
        return p.matmul(W[rng.integers(2)], some())

    def function():
        return p.nonlin(reach[rng.choice([*reach])], some())

    def two_arguments():
        return p.nonlin(lambda u, v: np.tanh(u) * np.cos(v), some(), some())

    def total():
        a, b = rng.standard_normal(2).round(1)
        return p.linear((float(a), some()), (float(b), some()))

    def mixture():
        return p.mix(rng.standard_normal((4, 4)).round(1), some())

    def norm():
        return p.normalize(some(), rng.choice(["layer", "rms"]), 0.3)

    def scores():
        Q, K = (p.matmul(p.matrix(), some()) for _ in range(2))
        return p.scores(Q, K)

    def attention():
        mask = "causal" if rng.integers(2) else None
        return p.attend(scores(), product(), mask=mask)

    def of_scores():
        return p.nonlin(
            lambda u, s: np.tanh(u + s),
            some(),
            scores=scores()[:, [int(rng.integers(4))]],
        )

    makers = [product, function, two_arguments, total, mixture, norm, attention]
    makers.append(of_scores)
    for make in rng.choice(len(makers), 6):
        stacks.append(makers[make]())
    return p, stacks


WIDE = 1024


@pytest.mark.slow
@pytest.mark.power("a moment off by a tenth of its root mean squares in any program")
@pytest.mark.parametrize("seed", range(60))
def test_random_programs_against_explicit_networks(seed):
    """Means and second moments given the scores, of all stacks: explicit networks of
    width 1,024 average over coordinates, with errors of order 1/√n that are measured
    from networks with other seeds and the same scores' laws.
    """
    p, stacks = random_program(seed)
    asked = p.random_scores
    networks = 16
    vectors, scores = simulate(
        p, stacks, WIDE, size=networks, rng=seed, coords=WIDE, scores=asked, dense=True
    )
    ours = limit(p, draws=16).given(scores)
    means, covs = ours.mean(stacks), ours.cov(stacks)
    moments = covs + means[:, :, None] * means[:, None, :]
    measured = np.einsum("nka,nla->nkl", vectors, vectors) / WIDE
    size = np.sqrt(np.einsum("nkk->nk", moments)) + 1e-9
    off = (measured - moments) / (size[:, :, None] * size[:, None, :] + 1e-12)
    error = off.std(0, ddof=1) / np.sqrt(networks)
    assert (abs(off.mean(0)) < 8 * error + 8 / WIDE).all()
    off = (vectors.mean(2) - means) / size
    error = off.std(0, ddof=1) / np.sqrt(networks)
    assert (abs(off.mean(0)) < 8 * error + 8 / WIDE).all()


def constant_row(a, b, m):
    "A second moment of a function of two constants, and its exact value."
    p = Program()
    one = p.inputs([[0.0]], mean=m)
    z = a * one + b * one
    h = p.nonlin(lambda u, v: np.tanh(u) * np.sin(v), z, 2 * one)
    g = p.matrix() @ h
    return limit(p).second_moment(g, g), (np.tanh((a + b) * m) * np.sin(2 * m)) ** 2


def test_constant_rows_have_their_values():
    "Variance zero, mean not: 129 of 200 such programs were refused."
    rng = default_rng(0)
    for a, b, m in rng.standard_normal((12, 3)).round(2):
        found, exact = constant_row(float(a), float(b), float(m))
        assert abs(found - exact) < 1e-9 + 1e-9 * exact


@pytest.mark.parametrize("mean", [0.0, 1e3, 1e6, 1e9])
def test_large_means_leave_covariances_alone(mean):
    "Through sums, mixtures, attention, functions and norms: to 1e-9 at any mean."
    p = Program()
    x, y = p.inputs([[1.0, 0.5], [0.5, 2.0]], mean=[mean, 0.0])
    z = 0.3 * x + y
    both = p.concatenate(x, z).mix([[1.0, 2.0]])
    n = p.normalize(x, "layer", 0.0)
    f = p.nonlin(lambda v: np.tanh(v - mean), x)
    a = p.attend([p.score(*(p.matrix() @ y for _ in range(2)), "linear")] * 2, [x, z])
    C = limit(p).cov([x, z, both, n, f, a])
    A = np.array([[1, 0], [0.3, 1], [1.6, 2], [1, 0], [0, 0], [0.65, 0.5]])
    exact = A @ [[1.0, 0.5], [0.5, 2.0]] @ A.T
    z, w = np.polynomial.hermite_e.hermegauss(80)
    w = w / w.sum()
    exact[4] = exact[:, 4] = w @ (np.tanh(z) * z) * (A @ [1.0, 0.5])
    exact[4, 4] = w @ np.tanh(z) ** 2
    np.testing.assert_allclose(C, exact, atol=1e-9 if mean < 1e9 else 1e-6)


@pytest.mark.parametrize("ρ", [1, -1])
def test_functions_with_a_kink_of_equal_and_of_opposite_inputs(ρ):
    "E |x − a| |ρx − a| by integrals of x² over [−a, a]."
    p, a = Program(), 0.3
    X = p.inputs(np.array([[1.0, ρ], [ρ, 1.0]]))
    h = p.matrix() @ p.nonlin(lambda x: np.abs(x - a), X)
    inside = 2 * norm.cdf(a) - 1
    squares = inside - 2 * a * norm.pdf(a)
    opposite = 1 - a**2 + 2 * (a**2 * inside - squares)
    exact = 1 + a**2 if ρ > 0 else opposite
    assert limit(p).cov(h)[0, 1] == pytest.approx(exact, rel=1e-6)
