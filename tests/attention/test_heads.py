"""Sums over heads agree with the sums written out."""

import numpy as np
import pytest

from infattn_nb.attention.heads import by_head, by_key, squares_over_keys
from infattn_nb.attention.heads import squares_over_queries


@pytest.mark.parametrize("r", [1, 4, 9])
def test_squares_of_heads_by_half_a_product(r):
    "Sums of X F Fᵀ Xᵀ and Xᵀ F Fᵀ X, head by head; keys or queries first in memory."
    rng = np.random.default_rng(r)
    X = rng.standard_normal((2, 3, 7, 7))
    F = rng.standard_normal((2, 7, r))
    middle = (F @ F.mT)[:, None]
    for x in (X, by_head(by_key(X), 3)):
        np.testing.assert_allclose(
            squares_over_keys(x, F), (X @ middle @ X.mT).sum(1), rtol=1e-11, atol=1e-12
        )
        np.testing.assert_allclose(
            squares_over_queries(x, F),
            (X.mT @ middle @ X).sum(1),
            rtol=1e-11,
            atol=1e-12,
        )
