"""Gauss rules integrate the polynomials that they must."""

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, localcontext
from time import sleep

import numpy as np
import pytest
from scipy.optimize import minimize

from infattn_nb.numerics import quadrature
from infattn_nb.numerics.quadrature import _lowest, gauss, gauss_logs, jacobi
from infattn_nb.numerics.quadrature import jacobi_of_moments


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
    # one point, spread by the noise
    nodes, logs = gauss_logs(*jacobi(np.zeros(9), np.ones(9), m, noise=1e-9))
    assert (0 < abs(nodes)).all()
    assert abs(nodes).max() < 5e-9
    assert np.exp(logs).sum() == pytest.approx(1)


def test_one_search_at_a_time(monkeypatch):
    """scipy's search silences a warning for all threads, then restores it: of two at
    once, one would warn.
    """
    running = []
    at_once = []

    def noted(*args, **options):
        running.append(args)
        at_once.append(len(running))
        sleep(0.01)
        found = minimize(*args, **options)
        running.pop()
        return found

    monkeypatch.setattr(quadrature, "minimize", noted)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: _lowest(lambda g: (g**2).sum(0), 3), range(12)))
    assert at_once == [1] * 12
