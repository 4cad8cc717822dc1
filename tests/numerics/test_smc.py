"""Particles against a posterior that is known: a Gaussian likelihood of latents."""

import numpy as np
import pytest
from numpy.random import SeedSequence, default_rng
from regressor_cases import bump
from scipy.stats import norm

from infattn_nb.numerics import smc
from infattn_nb.numerics.smc import Moves, borrowed_metric, climb, cloud_at
from infattn_nb.numerics.smc import hamiltonian_move, islands, next_temperature, pool
from infattn_nb.numerics.smc import systematic

DIM = 3
PRECISION = np.array([4.0, 1.0, 0.25])  # of the likelihood of each latent
CENTRE = np.array([1.0, -1.0, 2.0])
EVIDENCE = float(  # log of the mean likelihood under the prior
    -0.5 * (np.log1p(PRECISION) + PRECISION / (1 + PRECISION) * CENTRE**2).sum()
)
MEAN = PRECISION * CENTRE / (1 + PRECISION)


def target(u):
    off = u - CENTRE[:, None]
    return -0.5 * (PRECISION @ off**2), -PRECISION[:, None] * off


def runs(seed, target=target):
    return smc.islands(target, DIM, number=16, particles=256, rng=seed)


def off_by(found, right):
    "Standard errors of a mean of independent runs."
    return np.abs(found.mean(0) - right) / (found.std(0, ddof=1) / np.sqrt(len(found)))


@pytest.mark.power("means of .3, variances and the evidence of a factor of two")
def test_a_gaussian_posterior(seed=0):
    "False alarms below 1e-6: t with 15 degrees of freedom, seven numbers."
    found = runs(seed)
    means = np.array([x.latents.mean(1) for x in found])
    squares = np.array([(x.latents**2).mean(1) for x in found])
    evidence = np.array([[np.exp(x.log_evidence - EVIDENCE)] for x in found])
    right = 1 / (1 + PRECISION) + MEAN**2
    assert off_by(means, MEAN).max() < 10
    assert off_by(squares, right).max() < 10
    assert off_by(evidence, 1.0).max() < 10
    assert off_by(evidence, 2.0).max() > 10
    assert off_by(means, MEAN + 0.3).min() > 10


def test_a_wrong_gradient_is_rejected_by_the_moves():
    "The moves stay valid, but accept less."
    u = np.random.default_rng(0).standard_normal((DIM, 4000))
    metric = smc.borrowed_metric(u, ((DIM, 1),))

    def accepted(f):
        rng = np.random.default_rng(1)
        return smc.hamiltonian_move(smc.cloud_at(u, f), f, 1.0, 0.3, 5, metric, rng)[1]

    assert accepted(target) > 0.9
    assert accepted(lambda u: (target(u)[0], -5 * target(u)[1])) < 0.8


def test_leapfrog_goes_back(steps=5):
    "With the momenta turned round it returns to where it started."
    u, p = np.random.default_rng(2).standard_normal((2, DIM, 8))
    metric = smc.borrowed_metric(u, ((DIM, 1),))
    step = np.full(8, 0.2)
    there, q = smc.leapfrog(
        smc.cloud_at(u, target), p, target, 0.7, step, steps, metric
    )
    back, r = smc.leapfrog(there, -q, target, 0.7, step, steps, metric)
    assert np.abs(there.latents - u).max() > 0.1
    np.testing.assert_allclose(back.latents, u, atol=1e-12)
    np.testing.assert_allclose(-r, p, atol=1e-12)


@pytest.mark.parametrize("rough", [False, True])
def test_leapfrog_solves_the_equations_of_motion(rough):
    """Under a Gaussian likelihood each coordinate is a harmonic oscillator of frequency
    √(1 + βλ), for any metric C: Cᵀ(C times a force) of a diagonal C is a time unit.
    """
    u, p = np.random.default_rng(2).standard_normal((2, DIM, 8))
    C = np.array([2.0, 0.5, 1.0])
    metric = smc.Metric([slice(0, 8)], [slice(0, DIM)], [DIM], [[np.diag(C)]])
    β, steps, time = 0.7, 400, 0.8
    asked = target
    if rough:  # inside the path its own slope is used

        def asked(u):
            return target(u)

        asked.rough_slope = lambda u: target(u)[1]
    end, q = smc.leapfrog(
        smc.cloud_at(u, target), p, asked, β, np.full(8, time / steps), steps, metric
    )
    λ, c = (x[:, None] for x in (PRECISION, CENTRE))
    ω = np.sqrt(1 + β * λ)
    rest = β * λ * c / ω**2
    turn = C[:, None] * ω * time
    expected = rest + (u - rest) * np.cos(turn) + p / ω * np.sin(turn)
    np.testing.assert_allclose(end.latents, expected, atol=1e-4)
    momenta = p * np.cos(turn) - ω * (u - rest) * np.sin(turn)
    np.testing.assert_allclose(q, momenta, atol=2e-4)


def test_log_density_and_whitener_by_hand():
    cloud = smc.Cloud(np.array([[1.0, 2.0]]), np.array([3.0, 4.0]), None)
    found = smc.log_density(cloud, np.array([[2.0, 0.0]]), 0.5)
    np.testing.assert_allclose(found, [1.5 - 0.5 - 2, 2 - 2.0])
    x = np.random.default_rng(0).standard_normal((3, 7))
    F = (x @ x.T + 50 * np.eye(3)) / 57
    W = smc.whitener(x @ x.T, 7)
    np.testing.assert_allclose(W.T @ W, np.linalg.inv(F))
    diagonal = smc.whitener((x * x).sum(1), 7)
    np.testing.assert_allclose(diagonal**-2.0, np.diag(F))


def test_a_step_of_temperature_keeps_the_fraction():
    ℓ = 50 * np.random.default_rng(3).standard_normal(500)
    β = smc.next_temperature(0.0, ℓ, 0.9)
    assert smc.effective_fraction(β * ℓ) == pytest.approx(0.9, abs=1e-6)
    assert smc.next_temperature(0.0, 1e-3 * ℓ, 0.9) == 1.0


def test_systematic_draws_are_the_weights_up_to_one(size=100):
    w = np.random.default_rng(4).random(17)
    for seed in range(20):
        k = smc.systematic(w, size, np.random.default_rng(seed))
        counts = np.bincount(k, minlength=len(w))
        assert np.abs(counts - size * w / w.sum()).max() < 1


def test_evidences_are_pooled_as_numbers_not_as_logarithms():
    log, error, w = smc.pool(np.log([1.0, 3.0]) - 2000)
    assert log == pytest.approx(np.log(2) - 2000)
    np.testing.assert_allclose(w, [0.25, 0.75])
    assert error == pytest.approx(np.std([0.5, 1.5], ddof=1) / np.sqrt(2))


@pytest.mark.power("mean .03 off")
def test_moves_leave_the_posterior_as_it_is():
    "With a poor metric and a step at which a third is rejected."
    rng = default_rng(0)
    # the posterior: mean 1/(1 + 1/4), variance 1/(1 + 4)
    cloud = cloud_at(0.8 + rng.standard_normal((3, 20_000)) * 0.2**0.5, bump)
    metric = borrowed_metric(
        rng.standard_normal((3, 20_000)) * [[1.0], [2.0], [0.5]], ((3, 1),)
    )
    cloud, accepted = hamiltonian_move(cloud, bump, 1.0, 0.3, 3, metric, rng)
    assert 0.3 < accepted < 0.95
    np.testing.assert_allclose(cloud.loglik, bump(cloud.latents)[0])
    np.testing.assert_allclose(cloud.slope, bump(cloud.latents)[1])
    z = cloud.latents
    assert (np.abs(z.mean(1) - 0.8) < 7 * (0.2 / 20_000) ** 0.5).all()
    assert (np.abs(z.var(1) / 0.2 - 1) < 7 * (2 / 20_000) ** 0.5).all()


def test_a_group_does_not_make_its_own_metric():
    u = default_rng(0).standard_normal((3, 80))
    other = u.copy()
    other[:, 20:40] *= 9.0  # the second of four groups
    a, b = (borrowed_metric(x, ((3, 1),)).whiteners for x in (u, other))
    same = [np.allclose(x[0], y[0], rtol=1e-9) for x, y in zip(a, b)]
    assert same == [False, True, False, False]


def test_large_blocks_get_a_diagonal_metric():
    u = default_rng(0).standard_normal((600, 40))
    metric = borrowed_metric(u, ((300, 2),))
    p = default_rng(1).standard_normal((600, 40))
    assert metric.whiteners[0][0].shape == (300,)
    np.testing.assert_array_equal(metric.back(p), metric.white(p))


@pytest.mark.power("evidence 10 % off in 5 dimensions")
def test_evidence_of_a_bump():
    value, error, w = pool(
        [c.log_evidence for c in islands(bump, 5, 16, 128, Moves(1), rng=0)]
    )
    exact = 5 * (norm.logpdf(1, scale=1.25**0.5) - norm.logpdf(0, scale=0.5))
    assert abs(value - exact) < 10 * error < 1
    assert w.sum() == pytest.approx(1)


def test_the_ladder_rises():
    assert next_temperature(0.9, np.zeros(5), 0.9) == 1.0
    assert 0 < next_temperature(0.0, -1e200 * np.arange(50.0), 0.9) < 1e-190
    assert next_temperature(0.5, -1e200 * np.arange(50.0), 0.9) == pytest.approx(0.505)
    island = climb(bump, 2, 64, Moves(2, 3, ((2, 1),)), 0.5, False, SeedSequence(0))
    assert island.ladder[0] == 0
    assert island.ladder[-1] == 1
    assert (np.diff(island.ladder) > 0).all()
    assert 1 <= island.ancestors <= 64


def test_systematic_resampling():
    w = default_rng(0).random(40)
    n = np.bincount(systematic(w, 1000, default_rng(1)), minlength=40)
    assert n.sum() == 1000
    assert (np.abs(n - 1000 * w / w.sum()) <= 1 + 1e-9).all()


def test_the_effective_fraction_by_hand():
    "(Σw)²/(M Σw²), whatever the weights are multiplied by."
    assert smc.effective_fraction(np.full(5, -700.0)) == pytest.approx(1)
    assert smc.effective_fraction(np.log([1.0, 2.0, 3.0]) + 900) == pytest.approx(
        36 / 42
    )
