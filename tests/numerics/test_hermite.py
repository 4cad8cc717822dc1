"""Series of Hermite polynomials against integration in the plane."""

import numpy as np
import pytest

from infattn_nb import Program
from infattn_nb.netsor.score_paths import Paths
from infattn_nb.numerics.hermite import correlation, cross_moment, mehler, series


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
@pytest.mark.long
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


def test_a_series_of_one_high_degree():
    P = np.array([0.0, 0.0, 0.0, 2.0])[:, None]
    np.testing.assert_allclose(mehler(P, P, np.array([0.5, -0.3])), [0.5, -0.108])
