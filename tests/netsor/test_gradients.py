"""Gradients of programs, around mixtures of rows too."""

import copy
import pickle

import numpy as np
import pytest
from conftest import BEYOND_THEOREM
from stack_cases import COV

from infattn_nb import Program, gradients
from infattn_nb.nonlinearities import erf, gelu, relu, tanh

pytestmark = BEYOND_THEOREM


@pytest.mark.parametrize("φ", [erf, gelu, tanh], ids=repr)
@pytest.mark.slow
def test_slopes_around_a_mixture_of_rows(φ):
    """Tangent kernels where rows are mixed, or picked, between two functions: a
    constant matrix and sums of rows are the same network.
    """
    C = np.array([[0.0, 0.0, 1.0], [0.7, -0.4, 0.0], [1.0, 1.0, 1.0]])

    def kernel(mix):
        p = Program()
        X = φ(p.matrix(var=2.0) @ p.inputs(COV))
        return gradients(p, p.readout() @ φ(mix(p, X)))

    def by_sums(p, X):
        rows = [sum(c * x for c, x in zip(r, X) if c) for r in C]
        return p.concatenate(*rows)

    a, b = kernel(lambda p, X: X.mix(C)), kernel(by_sums)
    np.testing.assert_allclose(
        a.tangent[0], b.tangent[0], rtol=0, atol=9 * np.max(a.error + b.error) + 1e-9
    )
    p = Program()
    X = φ(p.matrix(var=2.0) @ p.inputs(COV))
    F = p.readout() @ φ(X.mix(C))
    wide = gradients(p, F, width=512, size=64, rng=0).tangent
    error = wide.std(0) / 8 + 0.01 * abs(a.tangent[0])
    assert (abs(wide.mean(0) - a.tangent[0]) < 6 * error).all()
    assert not (abs(wide.mean(0) - 2 * a.tangent[0]) < 6 * error).all()


def test_gradients_take_outputs_of_the_new_forms():
    "A vector that numpy has multiplied is one like others."
    p = Program()
    x, y = p.inputs(np.eye(2))
    A, row = p.matrix(), p.readout()
    f = row @ p.nonlin("relu", np.float64(2) * (A @ x) - A @ y)
    assert gradients(p, [f], 8, rng=0).tangent.shape == (1, 1, 1)


@pytest.mark.parametrize("width", [8, np.inf])
def test_gradients_are_pickled_with_their_inner_products(width):
    p = Program()
    W, R = p.matrix(), p.readout()
    h = [W @ v for v in p.inputs(np.eye(2))]
    g = gradients(p, [R @ relu(x) for x in h], width, rng=0)
    again, x = pickle.loads(pickle.dumps((g, h[0])))
    np.testing.assert_array_equal(again.inner(x), g.inner(h[0]))
    np.testing.assert_array_equal(copy.deepcopy(g).tangent, g.tangent)
