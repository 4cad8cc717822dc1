"Each primitive against the plainest way to the same numbers."

import numpy as np
import pytest
from conftest import columns, least_p

from infattn_nb.numerics.linalg import bartlett, bartlett_of, eigen_root, psd_factor
from infattn_nb.numerics.linalg import root, thin, wishart_triangle


@pytest.mark.power("Kolmogorov–Smirnov at 6,000 draws")
def test_bartlett():
    "TTᵀ is that of normals, whichever axes samples lie on."
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
    "LLᵀ = S; by eigenvectors there are as many columns as the rank."
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
