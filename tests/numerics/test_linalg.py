"""What everything else is computed with, each primitive against the plainest way to the
same numbers.
"""

from decimal import Decimal, localcontext

import numpy as np
import pytest
from conftest import columns, least_p
from numpy.random import default_rng
from scipy.stats import norm, qmc

from infattn_nb import Attention, Mixture, Program, Tokens
from infattn_nb.netsor.score_paths import Paths
from infattn_nb.nonlinearities import identity, softmax
from infattn_nb.numerics.hermite import correlation, cross_moment, series
from infattn_nb.numerics.linalg import (
    bartlett,
    bartlett_of,
    eigen_root,
    psd_factor,
    root,
    thin,
    wishart_triangle,
)
from infattn_nb.numerics.quadrature import gauss, gauss_logs, jacobi, jacobi_of_moments
from infattn_nb.numerics.rng import Mirror, Quasi, sobol_normals
from infattn_nb.numerics.softmax import shares, through_softmax


def in_the_plane(f, g, a, b, ρ):
    """E f(U)g(V) for U = √a x, V = √b (ρ x + √(1−ρ²) y), by Gauss–Legendre panels that
    meet where x or V is zero.
    """
    t, w = np.polynomial.legendre.leggauss(40)

    def panels(kink):  # (points, …), weights of N(0, 1)
        edges = np.sort(
            np.concatenate(
                [np.linspace(-9, 9, 13)[:, None] + 0 * kink, np.clip(kink, -9, 9)[None]]
            ),
            axis=0,
        )
        h = np.diff(edges, axis=0)[:, None] / 2
        x = (edges[:-1, None] + h * (t[:, None] + 1)).reshape(-1, *kink.shape)
        return x, (
            h
            * w[:, None]
            * np.exp(-(x.reshape(*h.shape[:1], len(t), -1) ** 2) / 2)
            / np.sqrt(2 * np.pi)
        ).reshape(x.shape)

    x, wx = panels(np.zeros(1))
    u, s = np.sqrt(a) * x[:, 0], np.sqrt((1 - ρ) * (1 + ρ))
    if not s:
        return (f(u) * g(np.sqrt(b) * ρ * x[:, 0])) @ wx[:, 0]
    y, wy = panels(-ρ * x[:, 0] / s)
    return f(u) * wx[:, 0] @ (g(np.sqrt(b) * (ρ * x[:, 0] + s * y)) * wy).sum(0)


@pytest.mark.parametrize("ρ", [-1.0, -0.8, 0.0, 0.3, 0.99, 1.0])
@pytest.mark.parametrize(
    "f, g, error",
    [
        (np.tanh, np.cos, 1e-11),
        (np.arctan, lambda x: np.sin(x + 1), 1e-11),
        (np.abs, np.tanh, 1e-5),
    ],
)
def test_series_of_a_pair(f, g, error, ρ, a=2.0, b=0.5):
    """E f(U)g(V) by integration in the plane: a pair by its rows of coefficients, all
    pairs by Horner's rule, two nodes of a program.
    """
    known = in_the_plane(f, g, a, b, ρ)
    c = ρ * np.sqrt(a * b)
    pair = cross_moment(f, g, np.zeros((2, 1)), *np.array([[a], [b], [c]]))
    assert pair[0] == pytest.approx(known, abs=error)
    found = series(lambda y, x: np.stack([f(y), g(y)]), np.array([a, b]))
    assert found.moments(0, 1, correlation(a, b, c))[0, 1] == pytest.approx(
        known, abs=error
    )
    p = Program()
    h, l = p.inputs([[a, c], [c, b]])
    assert Paths(p, 1).moment(p.nonlin(f, h), p.nonlin(g, l)).item() == pytest.approx(
        known, abs=error
    )


def test_gauss_rules(m=6):
    """All polynomials of degree below 2m as by the sum over the points: by
    eigenvectors, by orthonormal polynomials, from moments; fewer points than nodes.
    """
    x, w = np.random.default_rng(0).random((2, 2, 40))
    w /= w.sum(1, keepdims=True)
    powers = np.arange(2 * m)
    exact = (w[..., None] * x[..., None] ** powers).sum(1)
    J = jacobi(x, w, m)
    rules = gauss(J), (lambda nodes, logs: (nodes, np.exp(logs)))(*gauss_logs(*J))
    for nodes, weights in rules:
        np.testing.assert_allclose(
            (weights[..., None] * nodes[..., None] ** powers).sum(1), exact, rtol=1e-10
        )
    with localcontext(prec=60):
        J = jacobi_of_moments(
            [
                sum(
                    Decimal(b) * Decimal(a) ** k
                    for a, b in zip(x[0], w[0], strict=True)
                )
                / sum(map(Decimal, w[0]))
                for k in range(2 * m)
            ]
        )
    for a, b in zip(gauss(J), rules[0], strict=True):
        np.testing.assert_allclose(a[0], b[0], rtol=1e-9)
    nodes, weights = gauss(jacobi(x[:, :3], w[:, :3], m))
    there = weights[0] > 0
    np.testing.assert_allclose(nodes[0, there], np.sort(x[0, :3]), rtol=1e-12)
    np.testing.assert_allclose(
        weights[0, there], w[0, :3][x[0, :3].argsort()] / w[0, :3].sum(), rtol=1e-12
    )
    nodes, logs = gauss_logs(
        *jacobi(np.zeros(9), np.ones(9), m, noise=1e-9)
    )  # one point, spread by the noise
    assert (0 < abs(nodes)).all()
    assert abs(nodes).max() < 5e-9
    assert np.exp(logs).sum() == pytest.approx(1)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_and_its_derivative(axis):
    "Against the definition, and the Jacobian diag(A) − AAᵀ written out row by row."
    p, d = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    A = softmax(p, axis)
    np.testing.assert_allclose(
        A, np.exp(p) / np.exp(p).sum(axis, keepdims=True), rtol=1e-13
    )
    np.testing.assert_array_equal(shares(p, axis), A)
    rows, changes = (
        np.moveaxis(x, axis, -1).reshape(-1, p.shape[axis]) for x in (A, d)
    )
    found = np.moveaxis(through_softmax(A, d, axis), axis, -1).reshape(rows.shape)
    for a, change, out in zip(rows, changes, found):
        np.testing.assert_allclose(
            out, (np.diag(a) - np.outer(a, a)) @ change, atol=1e-15
        )


@pytest.mark.power("Kolmogorov–Smirnov at 6,000 draws")
def test_bartlett():
    """TTᵀ is that of a matrix of normals, whichever axes samples lie on, and as a
    function of normals.
    """
    for q, df in ((3, 5), (3, 2), (2, 40.0)):
        rng = np.random.default_rng(0)
        N = np.random.default_rng(1).standard_normal((6000, q, int(df)))
        shape = q, min(q, int(df))
        last = (
            wishart_triangle(q, df, rng, (6000,)),
            bartlett_of(rng.standard_normal((*shape, 6000)), df),
        )
        for T in (
            bartlett(q, df, (6000,), rng),
            *(np.sqrt(df) * np.moveaxis(T, -1, 0) for T in last),
        ):
            assert T.shape == (6000, *shape)
            assert not np.triu(T, 1).any()
            assert least_p(*columns([(T @ T.mT, N @ N.mT)])) > 1e-7


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_roots_of_covariances(rank, s=5):
    """LLᵀ = S, of full rank and of less; by eigenvectors the columns are as many as the
    rank, and orthogonal.
    """
    X = np.random.default_rng(0).standard_normal((20, s, rank))
    S = X @ X.mT
    for L in np.moveaxis(psd_factor(np.moveaxis(S, 0, -1)), -1, 0), root(S), thin(X):
        np.testing.assert_allclose(L @ L.mT, S, atol=1e-12)
    for x, one in zip(X, S):
        whole, L = eigen_root(one), eigen_root(one, 1e-12)
        assert whole.shape == (s, s)
        assert L.shape == (s, rank)
        for factor in (whole, L):
            np.testing.assert_allclose(factor @ factor.T, one, atol=1e-12)
        np.testing.assert_allclose(L.T @ L, np.diag((L * L).sum(0)), atol=1e-12)


@pytest.mark.parametrize("dim", [1, 3, 64])
def test_sobol_normals(dim):
    """Those of scipy, which shrinks the numbers by 1e-10; a stand-in for a generator
    hands out the same ones, row by row.
    """
    z = sobol_normals(dim, 256, 5)
    np.testing.assert_allclose(
        z,
        qmc.MultivariateNormalQMC(np.zeros(dim), rng=default_rng(5)).random(256).T,
        atol=1e-7,
    )
    np.testing.assert_array_equal(Quasi(dim, 256, 5).standard_normal((dim, 256)), z)
    samples_first = Quasi(dim, 256, 5, axis=0)
    np.testing.assert_array_equal(samples_first.standard_normal((256, dim)), z.T)


@pytest.mark.power("means of a variance a quarter apart")
@pytest.mark.parametrize("s", [4, 16])
def test_a_mirror_serves_short_and_long_texts(s):
    "With sign +1 it has the law of a generator: means of covariances agree."
    law = Attention(Tokens(s, identity), 2).law(40)
    v = law.sample(4000, Mirror(default_rng(0), 1))[:, 0, 0]
    w = law.sample(4000, default_rng(1))[:, 0, 0]
    assert abs(v.mean() - w.mean()) < 6 * np.hypot(v.std(), w.std()) / 4000**0.5
    assert abs(1.25 * v.mean() - w.mean()) > 6 * np.hypot(v.std(), w.std()) / 4000**0.5


def test_quantiles_of_a_mixture():
    """The cdf takes them back; one Gaussian, or several with one mean and variance; the
    ends.
    """
    rng = np.random.default_rng(0)
    law = Mixture(
        rng.standard_normal((50, 4, 2)),
        rng.random((50, 4, 2)),
        rng.dirichlet(np.ones(50)),
    )
    q = rng.random((4, 2))
    np.testing.assert_allclose(law.cdf(law.ppf(q)), q, rtol=1e-12)
    for M in (1, 3):
        np.testing.assert_allclose(
            Mixture(np.ones((M, 5)), np.full((M, 5), 4.0), np.full(M, 1 / M)).ppf(
                [0.0, 0.1, 0.5, 0.975, 1.0]
            ),
            norm(1, 2).ppf([0.0, 0.1, 0.5, 0.975, 1.0]),
            rtol=1e-12,
        )
