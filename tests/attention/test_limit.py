"""The last width: the limit against huge widths, closed forms and independent
integrals.

Standard errors come from 16 batches, so deviations follow a t distribution with 15
degrees of freedom: 10 of them are exceeded with probability 5e-8.
"""

import copy
import inspect
import pickle
import warnings
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import ks_2samp, norm

from infattn_nb import Attention, ScaleMixture, Tokens
from infattn_nb.attention import simulate_dense
from infattn_nb.attention.limit import disturbed, limit_marginal
from infattn_nb.nonlinearities import clip, identity, relu, softmax

LAYER = Attention(Tokens(4, identity), heads=2)
made = lru_cache(Attention)  # the limit law of a layer is computed once


@pytest.mark.power("covariances .003 off, distribution functions .021 apart")
def test_the_limit_is_the_last_width():
    "Paired draws of S at n = 1e8 differ by O(n^-1/2); the constant is below 30."
    S, S_inf = (LAYER.law(n).covariances(20_000, rng=0) for n in (1e8, np.inf))
    assert np.abs(S - S_inf).max() < 30 * 1e-4
    assert (
        ks_2samp(
            LAYER.law(1e8).rvs(50_000, rng=1)[:, 0],
            LAYER.law().rvs(50_000, rng=2)[:, 0],
        ).pvalue
        > 1e-9
    )


@pytest.mark.power("variances .9 % off, kurtosis 24 %")
@pytest.mark.parametrize("heads", [1, 2, 7])
@pytest.mark.parametrize(
    "tokens",
    [Tokens(4, identity), Tokens(3, relu), Tokens(2, identity, [[1, 0.5], [0.5, 2]])],
)
@pytest.mark.long
def test_variance_and_kurtosis(tokens, heads, size=100_000):
    "Var y = E u, excess kurtosis (3/H) Var u / E[u]², with u from Example 1."
    K = tokens.kernel()
    L = np.linalg.cholesky(K + 1e-15 * np.eye(len(K)))
    q = (
        np.random.default_rng(5).standard_normal((size, len(K)))
        @ L.T
        * np.sqrt(K[0, 0])
    )
    a = softmax(q)
    u = np.einsum("ni,ij,nj->n", a, K, a)
    law = made(tokens, heads).law().marginal(0)
    var, se = law.var(return_error=True)
    assert abs(var - u.mean()) < 10 * (se + u.std() / len(u) ** 0.5)
    κ, se = law.kurtosis(return_error=True)
    se_u = (
        3 / heads * np.std([3 * p.var() / p.mean() ** 2 for p in np.split(u, 16)]) / 4
    )
    assert abs(κ - 3 / heads * u.var() / u.mean() ** 2) < 10 * (se + se_u)


@pytest.mark.power("1e-9 for the exact law, 6 % for draws")
@pytest.mark.long
def test_two_tokens_by_quadrature():
    "s = 2, K = I, H = 1: u = 1 − 2σ(1−σ), σ = 1/(1+e^(−√2 z)), one integral over z."
    limit = Attention(Tokens(2, identity)).law()
    law, drawn = limit.marginal(0), limit.marginal(0, draws=2**16)

    def u(z):
        σ = 1 / (1 + np.exp(-(2**0.5) * z))
        return 1 - 2 * σ * (1 - σ)

    for y in (0.0, 1.0, 3.0, 8.0):
        for method in ("pdf", "sf"):
            f = getattr(norm, method)
            exact = quad(
                lambda z: norm.pdf(z) * f(y, scale=u(z) ** 0.5),
                -12,
                12,
                epsabs=0,
                epsrel=1e-12,
                limit=400,
            )[0]
            assert getattr(law, method)(y) == pytest.approx(exact, rel=1e-9, abs=0)
            value, se = getattr(drawn, method)(min(y, 3.0), return_error=True)
            assert abs(value - getattr(law, method)(min(y, 3.0))) < 10 * se + 1e-12


def test_one_token_is_exactly_gaussian():
    law = Attention(Tokens(1, relu), heads=3, var_v=4.0).law().marginal(0)
    assert law.kurtosis() < 1e-20
    np.testing.assert_allclose(
        law.sf([1, 5, 30]), norm.sf([1, 5, 30], scale=2**0.5), rtol=1e-12
    )


@pytest.mark.power("covariances 1 % off, the variance .04 %")
def test_gaussian_limits():
    bias = np.array([[0.0, 1, 2, 3]] * 4)
    layer = replace(LAYER, bias=bias, mask="causal", var_o=2.0)
    A = softmax(np.where(np.tri(4, dtype=bool), bias, -np.inf))
    np.testing.assert_allclose(
        layer.linear_scaling().covariances(1)[0], 2 * A @ A.T, rtol=1e-12
    )
    law, error = replace(LAYER, var_v=3.0).infinite_heads(return_error=True)
    S = replace(LAYER, var_v=3.0, heads=1).law().covariances(300_000, rng=0)
    assert (
        np.abs(law.covariances(1)[0] - S.mean(0))
        < 10 * (error + S.std(0) / len(S) ** 0.5)
    ).all()
    assert abs(law.covariances(1)[0, 0, 0] - 3 * 0.3919714) < 10 * error[0, 0]


@pytest.mark.power("covariances 4 % off")
@pytest.mark.parametrize("s, size", [(3, 300_000), (16, 30_000)])
@pytest.mark.long
def test_infinite_heads_of_finite_head_width(s, size):
    "Fixed head width, H → ∞: the mean of one head's S, scores not Gaussian."
    layer = Attention(Tokens(s, identity), head_width=2)
    law, error = layer.infinite_heads(return_error=True)
    S = layer.law(np.inf).covariances(size, rng=0)
    assert (
        np.abs(law.covariances(1)[0] - S.mean(0))
        < 10 * (error + S.std(0) / len(S) ** 0.5)
    ).all()


EXTREMES = {
    "score sd 50": (Attention(Tokens(4, identity), var_q=2500.0), (1, 16, np.inf)),
    "tiny clip": (Attention(Tokens(4, clip(1e-3)), heads=2), (1, 16, np.inf)),
    "rank one": (Attention(Tokens(4, identity, np.ones((4, 4)))), (1, 16, 1e9, np.inf)),
    "rank one with signs": (
        Attention(Tokens(2, identity, [[1, -1], [-1, 1]])),
        (1, 16, np.inf),
    ),
    "zero tokens": (Attention(Tokens(3, relu, np.zeros((3, 3)))), (1, 4, np.inf)),
    "no variance": (Attention(Tokens(3, relu), var_o=0.0), (1, 4, np.inf)),
    "one token": (Attention(Tokens(1, relu), heads=3), (1, 2, np.inf)),
    "4096 heads": (Attention(Tokens(4, relu), heads=4096), (1, 16, np.inf)),
    "64 tokens": (Attention(Tokens(64, identity), mask="causal"), (1, 100, np.inf)),
    "huge scale": (
        Attention(Tokens(3, identity, 1e12 * np.eye(3)), var_q=1e-24),
        (4, np.inf),
    ),
    "tiny scale": (
        Attention(Tokens(3, relu, 1e-12 * np.eye(3)), var_q=1e24),
        (4, np.inf),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXTREMES)
def test_extremes_are_finite_and_silent(name):
    layer, widths = EXTREMES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in widths:
            law = layer.law(n)
            S, y, m = (
                law.covariances(50, rng=0),
                law.rvs(50, rng=0),
                law.marginal(0) if n == np.inf else law.marginal(0, draws=256),
            )
            assert np.isfinite(S).all()
            assert np.isfinite(y).all()
            assert (
                np.linalg.eigvalsh(S).min(-1) >= -1e-12 * np.trace(S, axis1=1, axis2=2)
            ).all()
            p = m.cdf(np.array([-np.inf, -1.0, 0, 1, np.inf]) * max(m.std(), 1e-300))
            assert (np.diff(p) >= 0).all()
            assert p[0] == 0
            assert p[-1] == 1


@pytest.mark.long
def test_extremes_are_right():
    "Rank one: all weights average the same token, so y is Gaussian."
    S = (
        Attention(Tokens(4, identity, np.ones((4, 4))), var_q=2500.0)
        .law()
        .covariances(100, rng=0)
    )
    np.testing.assert_allclose(S, 1, rtol=1e-12)
    "Scores of standard deviation 50 attend to one token: u is close to 1; C = 1e-3 "
    "tokens are ±C, so y has variance C²·E u."
    law = Attention(Tokens(4, identity), var_q=2500.0).law().marginal(0)
    assert 0.9 < law.var() < 1
    tiny = Attention(Tokens(4, clip(1e-3)), heads=2).law().covariances(10_000, rng=0)
    np.testing.assert_allclose(tiny[:, 0, 0].mean(), 1e-6 / 4, rtol=1e-2)
    "4096 heads are close to infinitely many."
    many, gauss = (
        Attention(Tokens(4, identity), heads=4096).law(),
        LAYER.infinite_heads(),
    )
    np.testing.assert_allclose(
        many.covariances(100, rng=0),
        np.broadcast_to(gauss.covariances(1)[0], (100, 4, 4)),
        atol=6 * 0.12 / 64,
    )


@pytest.mark.power("masses 2.3 % off")
@pytest.mark.long
def test_atoms():
    "One ReLU neuron is dead half of the time: an atom at zero of mass 1/2."
    law = Attention(Tokens(1, relu)).law(1).marginal(0)
    assert abs(law.atom - 0.5) < 6 * 0.5 / 2**8
    assert law.pdf(0.0) == np.inf
    assert law.cdf(0.0) == 0.5
    assert law.ppf(0.5) == 0
    assert law.ppf(0.4) == 0
    np.testing.assert_allclose(
        law.cdf(law.ppf([0.01, 0.2, 0.9])), [0.01, 0.2, 0.9], rtol=1e-9
    )
    assert (law.rvs(1000, rng=0) == 0).mean() == pytest.approx(0.5, abs=0.1)


@pytest.mark.filterwarnings("ignore:.*lie so far out")
def test_methods_of_a_mixture_agree():
    law = Attention(Tokens(4, identity)).law(8).marginal(0, draws=4096)
    y = np.linspace(-12, 12, 49) * law.std()
    np.testing.assert_allclose(law.cdf(y) + law.sf(y), 1, rtol=1e-14)
    np.testing.assert_allclose(np.exp(law.logpdf(y)), law.pdf(y), rtol=1e-12)
    h = 1e-4 * law.std()
    np.testing.assert_allclose(
        (law.cdf(y + h) - law.cdf(y - h)) / (2 * h), law.pdf(y), rtol=1e-5, atol=1e-9
    )
    p = np.r_[np.logspace(-200, -1, 20), 0.3, 0.5, 0.7, 0.99, 1 - 1e-12]
    np.testing.assert_allclose(law.cdf(law.ppf(p)), p, rtol=1e-8)
    np.testing.assert_allclose(law.sf(law.isf(p)), p, rtol=1e-8)
    assert quad(law.pdf, -np.inf, np.inf, limit=200)[0] == pytest.approx(1, abs=1e-7)
    assert quad(lambda y: y**4 * law.pdf(y), -np.inf, np.inf, limit=400)[
        0
    ] == pytest.approx(law.moment(4), rel=1e-5)
    t = np.array([0, 0.5, 2.0])
    np.testing.assert_allclose(
        law.cf(t),
        [
            quad(lambda y: np.cos(t_ * y) * law.pdf(y), -np.inf, np.inf, limit=400)[0]
            for t_ in t
        ],
        atol=1e-7,
    )
    assert np.isnan(law.pdf(np.nan))
    assert law.pdf(-np.inf) == 0
    assert law.support() == (-np.inf, np.inf)


@pytest.mark.power("correlations below .9")
def test_same_seed_couples_widths():
    v = [
        Attention(Tokens(4, identity), heads=2)
        .law(n)
        .marginal(0, draws=2**14)
        .variances
        for n in (4096, np.inf)
    ]
    assert np.corrcoef(*v)[0, 1] > 0.9


def test_laws_can_be_pickled_and_copied():
    layer = Attention(Tokens(3, relu), heads=2, mask="causal")
    for n in (8, np.inf):
        law = pickle.loads(pickle.dumps(layer.law(n)))
        np.testing.assert_array_equal(law.rvs(5, 0), layer.law(n).rvs(5, 0))
        for m in (
            law.marginal(1),
            law.marginal(1, draws=64),
            layer.infinite_heads().marginal(1),
            ScaleMixture([1.0, 2.0]),
        ):
            for twin in (pickle.loads(pickle.dumps(m)), copy.deepcopy(m)):
                np.testing.assert_array_equal(twin.rvs(3, 0), m.rvs(3, 0))
                assert twin.sf(1.0) == m.sf(1.0)


def test_no_samples():
    layer = Attention(Tokens(3, relu), heads=2)
    assert layer.law(4).rvs(0).shape == (0, 3)
    assert layer.law().covariances((0, 2)).shape == (0, 2, 3, 3)
    assert layer.scores(4, 0).shape == (0, 2, 3, 3)
    assert simulate_dense(layer, 4, 0).shape == (0, 3)
    assert layer.law(4).marginal(0, 16).rvs(0).shape == (0,)
    assert layer.tokens.gram(np.inf, 0).shape == (0, 3, 3)


@pytest.mark.filterwarnings("ignore:.*lie so far out")
def test_log_tails_do_not_underflow():
    law = Attention(Tokens(3, identity)).law().marginal(0)
    widest = law.v[-1] ** 0.5
    for y in (20.0, 60.0, 200.0):
        assert law.logsf(y) == pytest.approx(
            np.log(law.w[-1]) + norm.logsf(y, scale=widest), rel=0.1
        )
        assert law.logcdf(-y) == law.logsf(y)
    assert law.logsf(2.0) == pytest.approx(np.log(law.sf(2.0)), rel=1e-12)
    assert law.logsf(np.inf) == -np.inf
    assert law.logsf(-np.inf) == 0


def test_scipy_methods():
    law = Attention(Tokens(3, identity), heads=2).law().marginal(0)
    frozen = law(loc=1.0, scale=2.0)
    assert frozen.mean() == 1
    assert frozen.cdf(1.0) == pytest.approx(0.5)
    assert frozen.var() == pytest.approx(4 * law.var())
    np.testing.assert_array_equal(law.rvs(size=3, random_state=0), law.rvs(3, rng=0))
    assert law.interval(0.9)[1] == law.ppf(0.95)
    assert law.median() == pytest.approx(0, abs=1e-12)
    assert "return_error" in str(inspect.signature(law.pdf))
    assert law.pdf(0.0, return_error=True)[1] < 1e-9
    assert law.logsf(3.0, return_error=True)[1] < 1e-9
    assert "\n" not in repr(law) + repr(Attention(Tokens(3, identity)).law())
    assert "mask" in repr(Attention(Tokens(3, relu), mask="causal", var_q=2.0))
    assert "var_q=2.0" in repr(Attention(Tokens(3, relu), mask="causal", var_q=2.0))


def test_gram_is_as_cheap_as_the_law():
    assert Tokens(4, clip(100.0)).gram(1e9, 3, rng=0).shape == (3, 4, 4)


@pytest.mark.long
def test_many_tokens_at_infinitely_many_heads():
    law, error = Attention(Tokens(80, identity)).infinite_heads(
        draws=4, return_error=True
    )
    assert law.dim == 80
    assert np.isfinite(error).all()


def test_disturbed_kernels_lie_on_both_sides():
    layer = Attention(Tokens(2, np.cbrt, [[1.0, 0.4], [0.4, 2.0]]))
    K, error = layer.tokens.kernel(return_error=True)
    more, less = (x.tokens.kernel() - K for x in disturbed(layer))
    assert error.max() > 1e-13
    np.testing.assert_allclose(more + less, 0, atol=error.max() / 10)


@pytest.mark.parametrize("heads", [1, 2, 5])
def test_variances_are_bounded_by_the_largest_of_a_value(heads):
    "Weights are positive and sum to one; also where the grids do not reach."
    K = np.array([[1.0, 0.3, 0.2], [0.3, 2.0, 0.5], [0.2, 0.5, 1.5]])
    law = limit_marginal(Attention(Tokens(3, identity, K), heads=heads), 0)
    assert len(law.replicates) > 0
    for other in (law, *law.replicates):
        assert other.variances.max() <= 2 * (1 + 1e-9)
