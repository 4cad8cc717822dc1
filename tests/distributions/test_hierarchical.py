"""A Gaussian with a random covariance: its samples, its averages, its errors."""

from dataclasses import replace

import numpy as np
import pytest

from infattn_nb import Attention, HierarchicalGaussian, Tokens, parallel
from infattn_nb.nonlinearities import relu


def test_an_averaged_covariance_states_its_error():
    S = np.random.default_rng(0).uniform(0.9, 1.1, (8, 1, 1)) * np.eye(2)
    law = HierarchicalGaussian.averaged(S)
    error = S[:, 0, 0].std(ddof=1) / np.sqrt(8)
    np.testing.assert_allclose(law.cov(return_error=True)[1][0, 0], error)
    np.testing.assert_allclose(law.marginal(0).var(return_error=True)[1], error)
    assert law.logpdf([1.0, 2.0], return_error=True)[1] > 0
    assert (
        HierarchicalGaussian.constant(S[0]).logpdf([1.0, 2.0], return_error=True)[1]
        == 0
    )


THREE = np.array([[1.0, -0.9, -0.9], [-0.9, 1.0, -0.9], [-0.9, -0.9, 1.0]])


@pytest.mark.parametrize("ask", ["rvs", "covariances"])
def test_draws_that_are_no_covariances_raise(ask):
    "No correlation is beyond one, and yet: variances of 16 for 1."
    law = HierarchicalGaussian(lambda n, g: np.broadcast_to(THREE, (n, 3, 3)), 3)
    with pytest.raises(ValueError, match="positive semidefinite"):
        getattr(law, ask)(10, rng=0)


@pytest.mark.power("densities 1 % off in the middle, 9 % at 4")
def test_user_defined_law():
    law = HierarchicalGaussian(
        lambda size, rng: rng.chisquare(3, (size, 1, 1)) / 3, dim=1
    )
    y = law.rvs((3, 4), rng=0)
    assert y.shape == (3, 4, 1)
    assert law.covariances(7, rng=0).shape == (7, 1, 1)
    assert law.rvs(0).shape == (0, 1)
    assert law.rvs(()).shape == (1,)
    from scipy.stats import t

    law = HierarchicalGaussian(
        lambda size, rng: (5 / rng.chisquare(5, size))[:, None, None], dim=1
    ).marginal(0)
    for y in (0.5, 2.0, 4.0):
        value, se = law.pdf(y, return_error=True)
        assert abs(value - t(5).pdf(y)) < 10 * se


@pytest.mark.power("covariances 1 % off")
def test_covariance_of_many_heads():
    """E S is that of one head: from its scrambled points, within the stated error of
    draws.
    """
    many = Attention(Tokens(3, relu), heads=512, var_q=4.0)
    S, error = many.law().cov(draws=64, rng=1, return_error=True)
    by_draws = HierarchicalGaussian(many.law().sample, 3)
    drawn, noise = by_draws.cov(draws=64, rng=2, return_error=True)
    assert (np.abs(S - drawn) < 9 * np.hypot(error, noise)).all()
    assert (error < noise).all()
    assert noise.max() < 0.01 * S.max()
    other, more = many.law().cov(draws=64, rng=3, return_error=True)
    assert (np.abs(S - other) < 9 * np.hypot(error, more)).all()
    assert (S != other).any()
    with parallel(1):
        assert (many.law().cov(64, 1) == S).all()  # whoever computes
    for law in replace(many, heads=255).law(), many.law(64):
        assert (law.cov(64, 1) == HierarchicalGaussian(law.sample, 3).cov(64, 1)).all()
