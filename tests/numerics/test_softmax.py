"""Softmax and its derivative against differences."""

import numpy as np
import pytest

from infattn_nb.nonlinearities import softmax
from infattn_nb.numerics.softmax import shares, through_softmax


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
