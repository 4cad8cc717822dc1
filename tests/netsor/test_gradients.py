"""Gradients of programs, around mixtures of rows too."""

import copy
import pickle
import tracemalloc
from importlib import import_module

import numpy as np
import pytest
from conftest import BEYOND_THEOREM
from stack_cases import COV

from infattn_nb import Program, gradients
from infattn_nb.netsor import mlp
from infattn_nb.nonlinearities import erf, gelu, relu, tanh

pytestmark = BEYOND_THEOREM
module = import_module("infattn_nb.netsor.gradients")


@pytest.mark.parametrize("φ", [erf, gelu, tanh], ids=repr)
@pytest.mark.slow
def test_slopes_around_a_mixture_of_rows(φ):
    "A constant matrix and sums of rows are the same network."
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


def _tied_residual(φ=gelu, rows=3):
    p = Program()
    X = p.inputs(COV[:rows, :rows])
    W, h = p.matrix(var=1.2), p.matrix() @ X + p.parameter(0.0, 0.3)
    for _ in range(3):
        h = h + p.matrix() @ φ(W @ h)
    return p, h, p.readout() @ erf(h)


def test_large_kernels_forget_their_parts_and_find_them_again(monkeypatch):
    "Matrices used several times, sums, trained vectors: the same numbers, bit by bit."
    found = []
    for kept in (2**18, 0):
        monkeypatch.setattr(module, "KEPT_NUMBERS", kept)
        p, h, f = _tied_residual()
        g = gradients(p, f, size=2, rng=5)
        first = next(x for x in p.nodes if type(x).__name__ == "MatMul")
        inner = g.inner(first[0], h[1])
        found.append([*g.by_matrix.values(), inner, g.outputs, g.inner(h[0], h[0])])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.any()


def test_outputs_of_the_limit_are_drawn_when_they_are_requested(size=4_000):
    "Their covariance is the kernel of the readout, which other seeds do not share."
    p, _, f = _tied_residual()
    g = gradients(p, f, size=size, rng=0)
    assert "outputs" not in vars(g)
    S = g.outputs.T @ g.outputs / size
    wanted = g.by_matrix[p.readouts[0].name][0]
    error = np.sqrt((np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / size)
    assert (abs(S - wanted) < 6 * error).all()
    assert not (abs(S - 2 * wanted) < 6 * error).all()
    np.testing.assert_array_equal(g.outputs, gradients(p, f, size=size, rng=0).outputs)
    assert (g.outputs != gradients(p, f, size=size, rng=1).outputs).all()


@pytest.mark.parametrize("φ", [relu, erf, gelu], ids=repr)
def test_a_kernel_takes_the_memory_of_ten(φ, N=600):
    "Four results, the moments of three layers, and what is being computed."
    p = Program()
    X = mlp(p, p.inputs(np.eye(N) * 0.9 + 0.1), 3, activation=φ)
    f = p.readout() @ φ(X)
    tracemalloc.start()
    try:
        g = gradients(p, f)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 10 * 8 * N * N
    assert len(g.by_matrix) == 4
