"""Noise of merged and of narrow heads is that of the weights."""

import numpy as np
import pytest
from conftest import nightly
from descent_cases import least_p
from numpy.random import SeedSequence, default_rng

from infattn_nb.learning.descent_step import dynamics, factor_step, product_noise


@pytest.mark.power("fourth moments a tenth off")
@pytest.mark.long
def test_merged_noise_is_that_of_wide_weights():
    """Products of a step's noise with weights, velocities and the partner's noise:
    moments at m = 400 and at infinite width.
    """
    rng, N, m = default_rng(0), 20_000, 400
    S = np.array([[0.9, 0.2], [0.2, 0.4]])
    L = np.linalg.cholesky(S)
    J = np.zeros((N, 2, 2))
    for k in range(0, N, 2_000):
        U, V = (
            np.einsum("kl,nlm->nkm", L, rng.standard_normal((2_000, 2, m)))
            for _ in range(2)
        )
        x, z = rng.standard_normal((2, 2_000, 1, m)) * 0.7
        J[k : k + 2_000] = ((U + x) @ (V + z).mT - U @ V.mT) / np.sqrt(m)
    ours = product_noise((N, 1, 2, 2, 1, 1), S, 0.7, rng)[:, 0, :, :, 0, 0]
    for a, b in ((J, ours),):
        theirs, mine = (
            np.einsum("nij,nkl->nijkl", x, x).reshape(N, -1) for x in (a, b)
        )
        error = np.sqrt((theirs.var(0) + mine.var(0)) / N)
        assert (np.abs(theirs.mean(0) - mine.mean(0)) < 5.5 * error).all()


@pytest.mark.power("distribution functions .05 apart")
@pytest.mark.parametrize("m", nightly([1, 2, 5, 40], 1, 2, 5))
@pytest.mark.long
def test_narrow_noise_is_that_of_all_columns(m):
    """Gram matrices after three noisy steps with momentum: narrow factors against all m
    columns.
    """
    how, N = dynamics(0.3, 0.5, 0.4, 0.8), 8_000
    rng = default_rng(m)
    M = np.full((N, 1, 1, 1), 0.8)

    def end(F):
        for _ in range(3):
            F = factor_step(F, M, 1, m, how, rng)
        return np.einsum("nhkqr,nhlpr->nhkqlp", F, F).reshape(N, -1), F.shape[4]

    from infattn_nb.learning.descent_step import bartlett_start

    ours, columns = end(bartlett_start(SeedSequence(0).spawn(N), 1, 1, 1, 2, m).scores)
    full = np.zeros((N, 1, 2, 2, m))
    full[:, :, 0] = rng.standard_normal((N, 1, 2, m))
    W, V = full[:, :, 0], full[:, :, 1]  # all columns
    for _ in range(3):
        slope = 0.8 * np.stack([W[:, :, 1], W[:, :, 0]], axis=2) / np.sqrt(m)
        V = 0.5 * V - 0.3 * (slope + 0.4 * W) + how.noise * rng.standard_normal(W.shape)
        W = W + V
    both = np.stack([W, V], axis=2)
    theirs = np.einsum("nhkqr,nhlpr->nhkqlp", both, both).reshape(N, -1)
    assert columns == min(m, 4)
    pairs = [(ours[:, k], theirs[:, k]) for k in range(16)]
    assert least_p(pairs) > 1e-6
