"""Builders of networks: kernels of MLPs, plain functions, single vectors."""

import numpy as np
import pytest
from conftest import BEYOND_THEOREM
from netsor_cases import Σ
from scipy.special import ndtr
from scipy.stats import norm

from infattn_nb import Program, limit
from infattn_nb.netsor import conv1d, mlp, rnn
from infattn_nb.nonlinearities import absolute, cos, erf, gelu, leaky_relu, relu
from infattn_nb.nonlinearities import sigmoid, sin, tanh

pytestmark = BEYOND_THEOREM


def angle(a, b, c):
    return np.arccos(np.clip(c / np.sqrt(a * b), -1, 1))


def relu_dual(a, b, c):
    return (
        np.sqrt(a * b)
        * (np.sin(t := angle(a, b, c)) + (np.pi - t) * np.cos(t))
        / (2 * np.pi)
    )


RECURSIONS = {
    relu: relu_dual,
    leaky_relu(0.2): lambda a, b, c: 0.8**2 * relu_dual(a, b, c) + 0.2 * c,
    absolute: lambda a, b, c: (
        2
        / np.pi
        * np.sqrt(a * b)
        * (np.sin(t := angle(a, b, c)) + (np.pi / 2 - t) * np.cos(t))
    ),
    erf: lambda a, b, c: (
        2 / np.pi * np.arcsin(2 * c / np.sqrt((1 + 2 * a) * (1 + 2 * b)))
    ),
    sin: lambda a, b, c: np.exp(-(a + b) / 2) * np.sinh(c),
    cos: lambda a, b, c: np.exp(-(a + b) / 2) * np.cosh(c),
}


def plane(f):
    "E f(U)f(V) by the trapezoid rule in the plane."
    x = np.arange(-9, 9.01, 0.05)
    w = norm.pdf(x) * 0.05

    def dual(a, b, c):
        r = c / np.sqrt(a)
        return np.einsum(
            "i,j,i,ij->",
            w,
            w,
            f(np.sqrt(a) * x),
            f(r * x[:, None] + np.sqrt(max(b - r * r, 0.0)) * x),
        )

    return np.vectorize(dual)


SMOOTH = {
    gelu: (plane(lambda x: x * ndtr(x)), 1e-8),
    tanh: (plane(np.tanh), 1e-7),
    sigmoid: (plane(lambda x: 1 / (1 + np.exp(-x))), 1e-7),
}
ALL = [(φ, dual, 1e-8) for φ, dual in RECURSIONS.items()] + [
    (φ, *rest) for φ, rest in SMOOTH.items()
]


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("φ, dual, tol", ALL, ids=[repr(a[0]) for a in ALL])
@pytest.mark.long
def test_kernels_of_mlps(φ, dual, tol, depth, σw2=1.7, σb2=0.3):
    p = Program()
    g = mlp(p, p.inputs(Σ), depth, activation=φ, var_w=σw2, var_b=σb2)
    K = σw2 * Σ + σb2
    for _ in range(depth - 1):
        d = np.diag(K)
        K = σw2 * dual(np.tile(d[:, None], 3), np.tile(d, (3, 1)), K) + σb2
    np.testing.assert_allclose(limit(p).cov(g), K, rtol=0, atol=tol * K.max())


def test_builders_take_plain_functions_and_a_vector_alone():
    for φ in (np.tanh, tanh):
        p = Program()
        (u,) = p.inputs([[1.0]])
        (g,) = mlp(p, u, activation=φ)
        assert limit(p).second_moment(g, g) == pytest.approx(
            tanh.dual([[1.0]])[0, 0], rel=1e-6
        )
        assert len(rnn(p, u, φ)) == len(conv1d(p, [u, u], activation=φ)) - 1 == 1
