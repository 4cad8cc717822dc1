"""MLPs of a block: their activations, and groups of equal units."""

import numpy as np
import pytest

from infattn_nb import FeedForward
from infattn_nb.nonlinearities import gelu, gelu_tanh, silu, tanh
from infattn_nb.transformer.mlp import UNITS, Field
from infattn_nb.transformer.parts import Cotangent


def test_activations_by_their_names():
    for name, phi in dict(
        gelu=gelu,
        gelu_new=gelu_tanh,
        gelu_pytorch_tanh=gelu_tanh,
        silu=silu,
        swish=silu,
    ).items():
        assert FeedForward(activation=name).activation is phi


@pytest.mark.power("a term of the gradient of units or of gates doubled or left out")
@pytest.mark.parametrize("gates", [None, gelu])
def test_gradients_of_infinitely_many_units_are_averages(gates, draws=3 * 10**5):
    "E φ'(a)ψ(c)g·a and E φ(a)ψ'(c)g·c with g = Mφ(a)ψ(c), over drawn units."
    ff = FeedForward(activation=tanh, gated=True, gate_activation=gates, var_3=2.0)
    R = np.array([[[1.0, 0.0, 0.0], [0.5, 0.8, 0.0], [-0.3, 0.6, 1.2]]])
    G = R @ R.mT
    E = np.eye(3)[None]
    dY = Cotangent(E, E, R, G, np.inf, np.arange(3))
    record = ff.forward(R, np.inf, np.random.default_rng(0), keep="all")
    none = np.zeros((1, 3, UNITS))
    still = Field(none, none, none, ff.moments(record, dY), np.zeros_like(G), 0 * G)
    M = np.array([[[0.7, -1.1, 0.4], [0.2, 0.9, -0.5], [1.3, 0.1, -0.8]]])
    _, pulls = ff.backward(record, still, M, dY)
    rng = np.random.default_rng(1)
    a = np.sqrt(ff.var_1) * R[0] @ rng.standard_normal((3, draws))
    c = np.sqrt(ff.var_3) * R[0] @ rng.standard_normal((3, draws))
    ψ, dψ = (c, 1.0) if gates is None else (gelu.fn(c), gelu.derivative(c))
    g = ff.var_2 * M[0] @ (np.tanh(a) * ψ)
    into = (1 - np.tanh(a) ** 2) * ψ * g, np.tanh(a) * dψ * g
    for pull, x, d in zip(pulls, (a, c), into):
        each = np.einsum("iu,ju->iju", d, x)
        mean, error = each.mean(-1), each.std(-1) / np.sqrt(draws)
        assert (abs(pull.inner[0] - mean) < 6 * error).all()
        assert (error < 0.04 * abs(mean).max()).all()


@pytest.mark.power("the term of drawn gradients doubled or left out")
@pytest.mark.parametrize("gates", [None, gelu])
def test_the_pull_of_drawn_gradients_is_a_derivative(gates, ε=1e-6):
    "T_ij is the derivative of Σ ξ·unit if x_i grows by ε x_j, for units and for gates."
    ff = FeedForward(activation=tanh, gated=True, gate_activation=gates, var_2=3.0)
    rng = np.random.default_rng(0)
    a, c, ξ = rng.standard_normal((3, 1, 3, UNITS))
    E = np.eye(3)[None]
    dY = Cotangent(E, E, E, E, np.inf, np.arange(3))
    moments = ff.moments(ff.forward(E, np.inf, rng, keep="all"), dY)
    alone = Field(ξ, a, c, moments, 0 * E, 0 * E)
    pulls = ff._through_field(alone, 0 * E, dY)
    for k, pull in enumerate(pulls):
        for i, j in np.ndindex(3, 3):
            moved = []
            for sign in (1, -1):
                x = [a.copy(), c.copy()]
                x[k][0, i] += sign * ε * x[k][0, j]
                moved.append((ξ * ff.unit(*x)).sum())
            slope = np.sqrt(3.0) * (moved[0] - moved[1]) / (2 * ε)
            assert abs(pull.inner[0, i, j] - slope) < 1e-6
