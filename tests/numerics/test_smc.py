"""Particles against a posterior that is known: a Gaussian likelihood of latents."""

import numpy as np
import pytest

from infattn_nb.numerics import smc

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
