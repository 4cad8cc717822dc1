"""Steps of products and of narrow factors are those of the weights."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import nightly
from descent_cases import least_p
from numpy.random import SeedSequence, default_rng

from infattn_nb.learning.descent_step import Counts, Dynamics, circuits_from
from infattn_nb.learning.descent_step import dynamics, factor_step, one_layer_start
from infattn_nb.learning.descent_step import random_circuits, rules_of


def kinds_of(weights, velocities):
    "Sums of products in which 0, 1, … weights are replaced by velocities."
    both = weights, velocities
    found = np.zeros(len(weights) + 1)
    for a in product((0, 1), repeat=len(weights)):
        found[sum(a)] += np.prod([both[i][l] for l, i in enumerate(a)])
    return found


def rules(k, S, how):
    "Carry, gradient and noise of a product of k matrices."
    return (x[..., 0] for x in rules_of((k,), k + 1, S.tobytes(), how.key()))


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_a_step_of_a_product_is_that_of_its_factors(k):
    "Carry by numbers, gradient by differences, noise by pairs."
    rng, S = default_rng(k), np.array([[0.9, 0.2], [0.2, 0.4]])
    how = dynamics(0.3, 0.5, 0.4, 0.8)
    C = how.carry
    carry, along, noise = rules(k, S, how)
    before = rng.standard_normal((2, k))
    after = C @ before
    np.testing.assert_allclose(carry @ kinds_of(*before), kinds_of(*after), rtol=1e-12)

    s, h = C @ S[:, 0], 1e-6
    others = np.repeat(s[:, None], k - 1, axis=1)  # overlaps with the old weights
    moved = [np.column_stack([[e, e], others]) for e in (h, -h)]  # one of k factors
    change = (kinds_of(*moved[0]) - kinds_of(*moved[1])) / 2 / h
    np.testing.assert_allclose(along, k * change, rtol=1e-8)

    Q = C @ S @ C.T
    cov = np.zeros((k + 1, k + 1))
    for a in product((0, 1), repeat=k):
        for b in product((0, 1), repeat=k):
            with_noise = np.prod([Q[x, y] + how.noise**2 for x, y in zip(a, b)])
            cov[sum(a), sum(b)] += with_noise - np.prod([Q[x, y] for x, y in zip(a, b)])
    np.testing.assert_allclose(noise @ noise.T, cov, atol=1e-12)


def test_a_truncated_product_is_the_whole_one_without_decay_and_noise():
    how, S = dynamics(0.1, 0.7), np.diag([1.0, 0.0])
    few, all_ = (rules_of((2, 5), J, S.tobytes(), how.key()) for J in (2, 6))
    np.testing.assert_array_equal(few[0], all_[0][:2, :2])
    assert not all_[0][2:, :2].any() and not all_[1][2:].any()


@pytest.mark.power("variances 3 % off, in five steps")
def test_noise_of_products_has_the_variance_of_independent_matrices():
    """After five steps without a gradient: the power k of the covariance of one weight,
    also with the start.
    """
    how, N = dynamics(0.3, 0.5, 0.4, 0.8), 100_000
    rng = default_rng(0)
    start = random_circuits([(1, 1, 1), (1, 1)], [0], 4)
    x = [rng.standard_normal((N, *a.shape[2:])) for a in start.arrays]
    state = circuits_from(x, 4)
    layer = SimpleNamespace(counts=(Counts.of(2), Counts.of(3)))
    weight, C = np.array([1.0, 0.0]), how.carry
    S, lag = np.diag([1.0, 0.0]), weight
    for _ in range(5):
        none = [np.zeros_like(a) for a in state.products()]
        state = state.step(layer, none, how, rng)
        S, lag = C @ S @ C.T + how.noise**2, C @ lag
    np.testing.assert_allclose(state.overlap, S)
    for k, a, b in zip((2, 3), x, state.products()):
        a, b = a.ravel(), b.ravel()
        for pairs, expected in ((b * b, S[0, 0] ** k), (a * b, lag[0] ** k)):
            assert abs(pairs.mean() - expected) < 5.5 * pairs.std() / np.sqrt(N)


@pytest.mark.power("fourth moments a tenth off")
@pytest.mark.long
def test_noise_of_products_is_that_of_wide_weights():
    "Moments of a step's noise at m = 400 and in the limit."
    rng, N, m = default_rng(0), 20_000, 400
    S = np.array([[0.9, 0.2], [0.2, 0.4]])
    L = np.linalg.cholesky(S)
    J = np.zeros((N, 3))
    for k in range(0, N, 2_000):
        U, V = (
            np.einsum("kl,nlm->nkm", L, rng.standard_normal((2_000, 2, m)))
            for _ in range(2)
        )
        x, z = rng.standard_normal((2, 2_000, 1, m)) * 0.7
        both = ((U + x) @ (V + z).mT - U @ V.mT) / np.sqrt(m)
        J[k : k + 2_000, 0] = both[:, 0, 0]
        J[k : k + 2_000, 1] = both[:, 0, 1] + both[:, 1, 0]
        J[k : k + 2_000, 2] = both[:, 1, 1]
    *_, root = rules(2, S, Dynamics(np.eye(2), 1.0, 0.7))
    ours = rng.standard_normal((N, 3)) @ root.T
    theirs, mine = (np.einsum("ni,nj->nij", x, x).reshape(N, -1) for x in (J, ours))
    error = np.sqrt((theirs.var(0) + mine.var(0)) / N)
    assert (np.abs(theirs.mean(0) - mine.mean(0)) < 5.5 * error).all()


@pytest.mark.power("distribution functions .05 apart")
@pytest.mark.parametrize("m", nightly([1, 2, 5, 40], 1, 2, 5))
@pytest.mark.long
def test_narrow_noise_is_that_of_all_columns(m):
    "Narrow factors against all m columns, after three steps."
    how, N = dynamics(0.3, 0.5, 0.4, 0.8), 8_000
    rng = default_rng(m)
    M = np.full((N, 1, 1, 1), 0.8)

    def end(F):
        for _ in range(3):
            F = factor_step(F, M, 1, m, how, rng)
        return np.einsum("nhkqr,nhlpr->nhkqlp", F, F).reshape(N, -1), F.shape[4]

    ours, columns = end(one_layer_start(SeedSequence(0).spawn(N), 1, 1, 1, 2, m).scores)
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
