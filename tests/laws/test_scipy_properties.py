"""The properties that SciPy demands of its own distributions, of a zoo of our laws.

There are laws with atoms, frozen laws, laws of one head and two, of width 1, 16 and
infinity, and laws at extreme scales. NOT_PASSED lists the properties that do not hold,
and why. Tolerances are relative to the standard deviation of the law, since some laws
are of the order of 1e-10 or 1e10.
"""

import warnings
from functools import lru_cache

import numpy as np
import pytest
from scipy import stats

from infattn_nb import Attention, ScaleMixture, Tokens
from infattn_nb.nonlinearities import identity, relu


def head(width=np.inf, **options):
    tokens = Tokens(4, identity, cov=np.eye(4))
    law = Attention(tokens, var_q=4.0, **options).law(width)
    return law.marginal(draws=None if width == np.inf else 10**4)  # still merged


ZOO = {
    "two variances": lambda: ScaleMixture([0.5, 1.5]),
    "Gaussian": lambda: ScaleMixture.constant(2.0),
    "atom": lambda: ScaleMixture([0.0, 1.0, 2.0]),
    "point": lambda: ScaleMixture.constant(0.0),
    "thirty orders": lambda: ScaleMixture([1e-20, 1.0, 1e10]),
    "one head": head,
    "two heads": lambda: head(heads=2),
    "width 1": lambda: head(1),
    "width 16": lambda: head(16, heads=2),
    "relu, width 1": lambda: Attention(Tokens(2, relu)).law(1).marginal(draws=10**4),
    "tiny": lambda: head(var_v=1e-20),
    "huge": lambda: head(var_v=1e20),
}
QUICK = "two variances", "atom", "point"
made = lru_cache(None)(lambda name: ZOO[name]())


@pytest.fixture(
    params=[
        pytest.param(name, marks=() if name in QUICK else pytest.mark.long)
        for name in ZOO
    ]
)
def law(request):
    law = made(request.param)
    yield law
    law.random_state = None


def points(law):
    "Points in the bulk and in the tails, in both directions, none at zero."
    return np.array([-7.0, -2.0, -0.5, -1e-3, 1e-3, 0.3, 1.0, 4.0]) * (law.std() or 1)


ONE_POINT = "pdf", "logpdf", "cdf", "logcdf", "sf", "logsf"
QUANTILES = "ppf", "isf"
FIRST = dict.fromkeys(ONE_POINT, 0.7) | dict.fromkeys(QUANTILES, 0.3)
FIRST |= dict(moment=3, interval=0.9, cf=0.4)


def called(law, name, *args, **options):
    first = (FIRST[name],) if name in FIRST else ()
    return getattr(law, name)(*first, *args, **options)


def test_probability_is_one(law):
    assert law.moment(0) == law._munp(0) == 1
    assert law.expect(lambda y: 1.0) == pytest.approx(1, rel=1e-12)
    assert law.support() == (-np.inf, np.inf)
    assert law.cdf(law.support()[1]) == 1


def test_moments_are_means_of_powers(law):
    mean, var, skew, kurtosis = law.stats(moments="mvsk")
    sd = law.std()
    assert mean == law.mean() == law.moment(1) == skew == 0
    assert sd**2 == pytest.approx(law.var()) == pytest.approx(var)
    assert law.moment(2) == pytest.approx(var)
    assert law.kurtosis() == kurtosis
    assert law.moment(4) == pytest.approx((kurtosis + 3) * var**2)
    for k in range(1, 7):
        expected = law.expect(lambda y: (y / (sd or 1)) ** k)
        moment = law.moment(k) / (sd or 1) ** k
        assert expected == pytest.approx(moment, rel=1e-10, abs=1e-13)


@pytest.mark.filterwarnings("ignore:.*lie so far out")
def test_means_of_functions(law):
    "Bounds, an atom on a bound, functions with a jump, and conditional means."
    sd = law.std() or 1.0
    for low, high in ((-0.5, 2.0), (-np.inf, 0.3), (1.0, np.inf), (7.0, 8.0)):
        p = law.expect(lambda y: 1.0, lb=low * sd, ub=high * sd)
        if low > 0:
            right = law.sf(low * sd) - law.sf(high * sd)
        else:
            right = law.cdf(high * sd) - law.cdf(low * sd)
        assert p == pytest.approx(right, rel=1e-10)
        jump = law.expect(lambda y: 1.0 * (low * sd <= y <= high * sd))
        assert jump == pytest.approx(right, abs=3e-9)
        if p:
            given = law.expect(
                lambda y: y / sd, lb=low * sd, ub=high * sd, conditional=True
            )
            total = law.expect(lambda y: y / sd, lb=low * sd, ub=high * sd)
            assert low < given < high or law.var() == 0 == given
            assert given == pytest.approx(total / p, rel=1e-10)
    half = (1 - law.atom) / 2
    assert law.expect(lambda y: 1.0, lb=0) == pytest.approx(half + law.atom, rel=1e-12)
    assert law.expect(lambda y: 1.0, ub=-1e-300) == pytest.approx(half, rel=1e-12)
    cf = law.expect(lambda y: np.exp(1j * y / sd), complex_func=True)
    assert cf == pytest.approx(law.cf(1 / sd), rel=1e-12)
    assert law.expect(lambda y: y**2, loc=3.0, scale=2 / sd) == pytest.approx(
        9 + 4 * law.var() / sd**2, rel=1e-10
    )
    assert law(3.0, 2 / sd).expect(lambda y: y) == pytest.approx(3)
    assert law.expect(lambda y: 1.0, lb=sd, ub=-sd) == pytest.approx(
        -law.expect(lambda y: 1.0, lb=-sd, ub=sd)
    )


def test_a_mean_has_an_error():
    law = ScaleMixture(np.random.default_rng(0).chisquare(3, 4096) / 3)
    found = law.expect(lambda y: y**4, return_error=True)
    np.testing.assert_allclose(found, law.moment(4, return_error=True), rtol=1e-10)


@pytest.mark.filterwarnings("ignore:.*lie so far out")
def test_probabilities_agree(law):
    y = points(law)
    rounding = 1e-13  # of sums of a thousand terms
    np.testing.assert_allclose(law.cdf(y), 1 - law.sf(y), rtol=0, atol=rounding)
    np.testing.assert_allclose(law.cdf(y), law.sf(-y), rtol=1e-13)
    np.testing.assert_allclose(np.exp(law.logcdf(y)), law.cdf(y), rtol=1e-12)
    np.testing.assert_allclose(np.exp(law.logsf(y)), law.sf(y), rtol=1e-12)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(np.log(law.pdf(y)), law.logpdf(y), rtol=1e-12)
    h = 1e-5 * np.abs(y)
    steps = np.array([-2, -1, 1, 2])[:, None]
    slope = np.array([1, -8, 8, -1]) @ law.sf(np.abs(y) + steps * h) / (12 * h)
    np.testing.assert_allclose(-slope, law.pdf(y), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*lie so far out")
def test_quantiles_invert_probabilities(law):
    q = np.array([1e-3, 0.1, 0.25, 0.5, 0.6, 0.9, 0.999])
    np.testing.assert_allclose(law.isf(q), law.ppf(1 - q), rtol=1e-7, atol=1e-300)
    np.testing.assert_allclose(law.isf(q), -law.ppf(q), rtol=1e-12)
    outside = np.abs(q - 0.5) > law.atom / 2
    for level in q[outside]:
        np.testing.assert_allclose(law.cdf(law.ppf(level)), level, rtol=1e-9)
        np.testing.assert_allclose(law.sf(law.isf(level)), level, rtol=1e-9)
    assert (law.ppf(q[~outside & (q != 0.5)]) == 0).all()
    assert law.median() == law.ppf(0.5) == pytest.approx(0, abs=1e-9 * law.std())
    low, high = law.interval(0.8)
    assert (low, high) == (law.ppf(0.1), law.isf(0.1)) or high == pytest.approx(
        law.isf(0.1)
    )


def test_ends_of_the_support(law):
    ends = np.array([-np.inf, np.inf])
    np.testing.assert_array_equal(law.cdf(ends), [0, 1])
    np.testing.assert_array_equal(law.sf(ends), [1, 0])
    np.testing.assert_array_equal(law.logcdf(ends), [-np.inf, 0])
    np.testing.assert_array_equal(law.logsf(ends), [0, -np.inf])
    np.testing.assert_array_equal(law.pdf(ends), [0, 0])
    np.testing.assert_array_equal(law.ppf([0, 1]), ends)
    np.testing.assert_array_equal(law.isf([1, 0]), ends)
    assert np.isnan(law.ppf([-1, 2])).all()
    assert np.isnan(law.isf([-1, 2])).all()


@pytest.mark.filterwarnings("ignore:.*lie so far out")
@pytest.mark.filterwarnings("ignore:.*lie so near zero")
def test_entropy(law):
    if law.atom:
        assert law.entropy() == -np.inf
        return
    unit = law(0.0, 1 / law.std())
    v, dv = np.linspace(-70, 12, 821, retstep=True)  # y = exp(v), and the law is even
    log_f = unit.logpdf(np.exp(v))
    by_density = -2 * dv * (np.exp(log_f + v) * log_f).sum()
    assert unit.entropy() == pytest.approx(by_density, rel=1e-6, abs=1e-6)
    scales = np.array([[1.0, 2.0], [3.0, 4.0]]) * 1e-3
    expected = law.entropy() + np.log(scales)
    np.testing.assert_allclose(law.entropy(scale=scales), expected, atol=1e-13)
    assert np.isnan(law.entropy(scale=[1, -3])).tolist() == [False, True]
    assert law.vecentropy() == law.entropy()


@pytest.mark.filterwarnings("ignore:.*lie so far out")
def test_shifts_and_scales(law):
    y, sd = points(law), law.std() or 1.0
    loc, scale = 0.25 * sd, 2.0
    for name in "cdf", "sf":
        np.testing.assert_allclose(
            getattr(law, name)(loc + scale * y, loc, scale),
            getattr(law, name)(y),
            rtol=1e-8,
        )
    np.testing.assert_allclose(
        law.pdf(loc + scale * y, loc, scale), law.pdf(y) / scale, rtol=1e-6
    )
    locs = np.array([10.0, 20.0]) * sd
    mean, var = law.stats(loc=locs, scale=[2.0, 3.0])
    np.testing.assert_allclose(mean, locs)
    np.testing.assert_allclose(var, law.var() * np.array([4.0, 9.0]))
    lists = law.cdf([0.1, 0.2], loc=[0, 0.1], scale=[1, 1.01])
    each = [law.cdf(*x) for x in zip([0.1, 0.2], [0, 0.1], [1, 1.01], strict=True)]
    np.testing.assert_allclose(lists, each, rtol=1e-13)
    for scale in (0.0, -1.0, np.nan):
        with np.errstate(divide="ignore"):
            assert np.isnan(called(law, "pdf", 0.0, scale))
        assert np.isnan(law.cf(1.0, scale=scale))
    shift, t = 0.5 * sd, 0.7 / sd
    turned = np.exp(1j * t * shift) * law.cf(2 * t)
    assert law(shift, 2.0).cf(t) == pytest.approx(turned, rel=1e-13)
    assert law(0.0, 2.0).kurtosis() == law.kurtosis()


@pytest.mark.parametrize("name", ONE_POINT + QUANTILES)
@pytest.mark.parametrize("kind", [np.int64, np.float16, np.float32, np.float64])
def test_results_are_doubles(name, kind):
    law = made("two variances")
    x = np.array([0.25, 0.5, 0.75]) if name in QUANTILES else np.array([-1, 0.4, 1.0])
    assert getattr(law, name)(x.astype(kind)).dtype == np.float64


@pytest.mark.parametrize("name", ONE_POINT + QUANTILES)
def test_complex_arguments_are_rejected(name):
    "SciPy differentiates with complex steps; NOT_PASSED says why we do not."
    with pytest.raises(TypeError, match="real numbers"):
        getattr(made("two variances"), name)(0.3 + 1e-10j)


def test_draws_are_independent_and_of_scipys_shapes():
    law = made("two variances")
    parameters = (
        (None, 0.0, 1.0),
        (None, np.zeros(5), 1.0),
        (None, np.zeros((2, 1)), np.ones(3)),
        (5, np.zeros(5), 1.0),
        ((2, 3), np.zeros(3), 1.0),
        ((4, 2, 3), np.zeros((2, 1)), np.ones(3)),
        ((), 0.0, 1.0),
        (3, np.zeros((2, 1)), 1.0),
        ((2, 1), np.zeros(3), 1.0),
        (3, np.zeros(2), 1.0),
        (3, 0.0, -1.0),
        (3, 0.0, np.nan),
        (3, 0.0, np.zeros(3)),
    )
    for size, loc, scale in parameters:
        try:
            shape = np.shape(
                stats.norm.rvs(loc, scale, size, random_state=np.random.RandomState(0))
            )
        except ValueError:
            with pytest.raises(ValueError, match="size|scale"):
                law.rvs(size, rng=0, loc=loc, scale=scale)
            continue
        y = law.rvs(size, rng=0, loc=loc, scale=scale)
        assert np.shape(y) == shape
        assert np.unique(y).size == np.size(y) or not np.any(scale)
        assert np.shape(law(loc, scale).rvs(size, 0)) == shape
    assert np.isscalar(law.rvs())
    loc, scale = np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.0, 2.0])
    plain = law.rvs(3, rng=5)
    np.testing.assert_array_equal(
        law.rvs(rng=5, loc=loc, scale=scale), loc + scale * plain
    )


def test_a_frozen_law_has_a_state_of_its_own():
    law = made("two variances")
    frozen = law(0.0, 2.0)
    law.random_state = frozen.random_state = 3
    np.testing.assert_array_equal(2 * law.rvs(4), frozen.rvs(4))
    assert frozen.random_state is not law.random_state
    assert law(0.0, 2.0).random_state is not law.random_state
    law.random_state = None


@pytest.mark.power("laws 0.03 apart in the distribution function")
def test_draws_have_the_law(law):
    "Dvoretzky's, Kiefer's and Wolfowitz's bound on both sides of an atom, at 1e-7."
    n = 20_000
    y = np.sort(law.rvs(n, rng=1))
    at = y[:: n // 200]
    bound = np.sqrt(np.log(2 / 1e-7) / (2 * n))
    jump = np.where(at == 0, law.atom / 2, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        F = law.cdf(at)
    assert np.abs(np.searchsorted(y, at, "right") / n - F - jump).max() < bound
    assert np.abs(np.searchsorted(y, at, "left") / n - F + jump).max() < bound


def test_scipy_fits_and_tests_them(law):
    "`stats.fit`, `fit`, `nnlf`, `goodness_of_fit`, `make_distribution`."
    sd = law.std() or 1.0
    y = law.rvs(40, rng=0)
    if not law.var():
        return  # SciPy divides by the standard deviation
    loc, scale = law.fit_loc_scale(y)
    assert law.nnlf((loc, scale), np.array([1.0, 2.0]) * sd) > -np.inf
    assert law.fit(y, floc=0)[0] == 0
    assert law.fit(y, fscale=1, method="MM")[1] == 1
    assert [p.name for p in law._param_info()] == ["loc", "scale"]
    found = stats.goodness_of_fit(
        law,
        y,
        known_params=dict(loc=0, scale=1),
        statistic="ks",
        n_mc_samples=20,
        rng=0,
    )
    assert 0 < found.pvalue <= 1
    X = stats.make_distribution(law)()
    assert X.cdf(0.3 * sd) == pytest.approx(law.cdf(0.3 * sd))
    assert X.icdf(0.3) == pytest.approx(law.ppf(0.3), abs=1e-12 * sd)
    assert X.variance() == pytest.approx(law.var())
    assert X.moment(4) == pytest.approx(law.moment(4))
    assert X.sample(5, rng=0).shape == (5,)


def test_a_fit_finds_location_and_scale():
    law = made("two variances")
    y = law(3.0, 2.0).rvs(400, rng=0)
    found = stats.fit(law, y, dict(loc=(0, 10), scale=(0.1, 10)), optimizer=quickly)
    own = law.fit(y)
    np.testing.assert_allclose(found.params, own, rtol=1e-3)
    np.testing.assert_allclose(own, [3, 2], atol=7 * 2 / np.sqrt(400))


def quickly(objective, bounds, **options):
    "The optimizer of `stats.fit`, started from the middle, with fewer steps."
    from scipy.optimize import minimize

    return minimize(objective, [1.0, 1.0], bounds=bounds, method="Nelder-Mead")


@pytest.mark.slow
def test_scipys_integral_of_quantiles():
    "`generic_moment` is scipy's fallback for laws without moments of their own."
    law = made("two variances")
    assert law.generic_moment(2) == pytest.approx(law.var(), rel=1e-6)


def test_a_frozen_law_shows_itself():
    assert repr(made("two variances")(1.0, scale=2.0)) == (
        "ScaleMixture(2 variances, standard deviation 1)(loc=1.0, scale=2.0)"
    )
