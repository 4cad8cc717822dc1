"""Divergences against closed forms and against each other."""
import numpy as np
import pytest
from scipy.stats import gaussian_kde, laplace, norm, t

from infattn_nb.attention import Attention, Tokens
from infattn_nb.divergence import kde, kde_kl, kl_divergence
from infattn_nb.functions import identity
from infattn_nb.hierarchical import GaussianMixture

LAYER = Attention(Tokens(4, identity), heads=2)

@pytest.mark.parametrize("μ, σ", [(0, 1), (0, 1.001), (1, 1), (-3, .01), (2, 40), (1e-4, 1)])
def test_two_gaussians(μ, σ):
    for p, q, exact in ((norm(μ, σ), norm(), -np.log(σ) + (σ**2 + μ**2 - 1)/2), (norm(), norm(μ, σ), np.log(σ) + (1 + μ**2)/(2*σ**2) - .5)):
        D, error = kl_divergence(p, q, return_error=True)
        assert D == pytest.approx(exact, rel=1e-6, abs=1e-13) and error < 1e-6*D + 1e-13

def test_other_laws():
    for b in (.5, 1., 2.):
        assert kl_divergence(laplace(), laplace(scale=b)) == pytest.approx(np.log(b) + 1/b - 1, rel=1e-6, abs=1e-12)
    entropy = laplace().entropy()
    assert kl_divergence(laplace(), norm()) == pytest.approx(np.log(2*np.pi)/2 + 1 - entropy, rel=1e-6)
    assert kl_divergence(t(4), t(4)) == 0

def test_scale_invariance():
    p, q = (LAYER.law(n).marginal(0, draws=1024).variances for n in (8, 32))
    D = [kl_divergence(GaussianMixture(c*p), GaussianMixture(c*q)) for c in (1e-12, 1., 1e12)]
    np.testing.assert_allclose(D, D[1], rtol=1e-6)

def test_binned_kde_is_the_kde():
    for x in (norm.rvs(size=3000, random_state=0), LAYER.law(4).marginal(0).rvs(20_000, rng=0), laplace.rvs(5, 1e-3, size=500, random_state=1)):
        grid = np.linspace(*np.quantile(x, [.001, .999]), 200)
        np.testing.assert_allclose(kde(x, grid), gaussian_kde(x)(grid), rtol=2e-3)

def test_kde_protocol_as_written():
    "The estimate with scipy's unbinned kernels, line by line as in the paper."
    x, y = LAYER.law(16).marginal(0).rvs(4000, rng=0), LAYER.law().marginal(0).rvs(4000, rng=1)
    grid = np.linspace(min(x.min(), y.min()), max(x.max(), y.max()), 500)
    p, q = gaussian_kde(x)(grid) + 1e-12, gaussian_kde(y)(grid) + 1e-12
    p, q = p/p.sum(), q/q.sum()
    assert kde_kl(x, y) == pytest.approx((p*np.log(p/q)).sum(), rel=1e-2)

def test_kde_and_densities_agree_where_both_are_valid():
    "Two clearly different laws: the estimate's noise (standard deviation over 8 repetitions) and its smoothing bias (Scott's h adds h² to both variances) are small."
    p, q = norm(scale=1.), norm(scale=1.5)
    D = [kde_kl(p.rvs(50_000, random_state=2*k), q.rvs(50_000, random_state=2*k + 1)) for k in range(8)]
    h2 = 50_000**-.4
    biased = kl_divergence(norm(scale=np.sqrt(1 + h2)), norm(scale=1.5*np.sqrt(1 + h2)))
    assert np.mean(D) == pytest.approx(biased, abs=10*np.std(D, ddof=1)/8**.5 + 2e-4)

def test_rate():
    "n² D stays between constants: known values 2.2e-2, 2.14e-3, 1.575e-4, 1.04e-5 at n = 16, 64, 256, 1024 (paired draws, ±10 %)."
    limit = LAYER.law().marginal(0, draws=2**16)
    for n, D in ((16, 2.2e-2), (64, 2.14e-3), (256, 1.575e-4), (1024, 1.04e-5)):
        assert kl_divergence(LAYER.law(n).marginal(0, draws=2**16), limit) == pytest.approx(D, rel=.1)
