"""A Gaussian with a random covariance: its samples, its averages, its errors."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import chi2, multivariate_normal, norm

from infattn_nb import Attention, HierarchicalGaussian, Tokens
from infattn_nb.distributions.hierarchical import _log_densities_given
from infattn_nb.distributions.scale_mixture import LocationMixture
from infattn_nb.nonlinearities import identity, relu
from infattn_nb.numerics import parallel


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
    "E S is that of one head, within the stated error of draws."
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


FLAT = np.array([[2.0, 0.5, 0.3], [0.5, 1.0, -0.4], [0.3, -0.4, 1.5]])
PAIR = np.array([[[1.0, 0.6], [0.6, 2.0]], [[3.0, -1.2], [-1.2, 0.8]]])
SHARE = np.array([0.3, 0.7])


def one_of_two(size, rng):
    "S is one of two matrices: each result is a sum over two Gaussians."
    return PAIR[rng.choice(2, size, p=SHARE)]


TWO = HierarchicalGaussian(one_of_two, 2)


def brute(a):
    "Weights, conditional means and variances of output 1 given that output 0 is a."
    w = SHARE * norm.pdf(a, scale=np.sqrt(PAIR[:, 0, 0]))
    mean = PAIR[:, 1, 0] / PAIR[:, 0, 0] * a
    var = PAIR[:, 1, 1] - PAIR[:, 1, 0] ** 2 / PAIR[:, 0, 0]
    return w / w.sum(), mean, var


def test_a_gaussian_given_some_outputs():
    "The formula of Gaussian processes, to all digits and without error."
    law = HierarchicalGaussian.constant(FLAT)
    for known in ({1: 0.3}, {0: 1.0, 2: -2.0}, {-1: 0.7}):
        found = law.given(known)
        k = [i % 3 for i in known]
        left = [i for i in range(3) if i not in k]
        gain = FLAT[np.ix_(left, k)] @ np.linalg.inv(FLAT[np.ix_(k, k)])
        mean = gain @ [*known.values()]
        cov = FLAT[np.ix_(left, left)] - gain @ FLAT[np.ix_(k, left)]
        right = multivariate_normal(mean, cov)
        y = mean + 0.3
        pairs = (
            (found.mean(return_error=True), mean),
            (found.cov(return_error=True), cov),
            (found.var(return_error=True), np.diag(cov)),
            (found.std(return_error=True), np.diag(cov) ** 0.5),
            (found.logpdf(y, return_error=True), right.logpdf(y)),
            (found.pdf(y, return_error=True), right.pdf(y)),
            (found.entropy(return_error=True), right.entropy()),
            (
                found.marginal(0).sf(1.0, return_error=True),
                norm.sf(1, mean[0], cov[0, 0] ** 0.5),
            ),
        )
        for (value, error), expected in pairs:
            np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-14)
            assert not np.any(error)
        value, error = found.cdf(y, return_error=True)
        assert abs(value - right.cdf(y)) < 10 * error + 1e-4
        assert error < 1e-5
        assert found.outputs == tuple(left)
    twice = law.given({0: 1.0}).given({1: -2.0})
    once = law.given({0: 1.0, 2: -2.0})
    np.testing.assert_allclose(twice.mean(), once.mean(), rtol=1e-13)
    np.testing.assert_allclose(twice.cov(), once.cov(), rtol=1e-13)
    assert twice.known == once.known == {0: 1.0, 2: -2.0}
    assert twice.outputs == (1,)


@pytest.mark.power("a mean 0.01 standard deviations off, weights without likelihood")
@pytest.mark.parametrize("a", [0.0, 3.0, -4.0])
def test_conditional_laws_weigh_the_draws(a):
    "Against two Gaussians; draws of equal weight are rejected."
    law = TWO.given({0: a}, rng=1)
    w, mean, var = brute(a)
    exact = LocationMixture(mean, var, w)
    y = np.array([-2.0, 0.1, 1.0, 3.0])
    one = law.marginal(0)

    def far(law, one):
        "Distances from the truth, in stated errors."
        log_f, log_f_error = law.logpdf(y[:, None], return_error=True)
        p, p_error = law.cdf(y[:, None], return_error=True)
        q, q_error = one.cdf(y, return_error=True)
        m, m_error = law.mean(return_error=True)
        v, v_error = law.var(return_error=True)
        k, k_error = one.kurtosis(return_error=True)
        return np.concatenate(
            [
                (log_f - exact.logpdf(y)) / (log_f_error + 1e-9),
                (p - exact.cdf(y)) / (p_error + 1e-9),
                (q - exact.cdf(y)) / (q_error + 1e-9),
                (m - exact.mean()) / (m_error + 1e-9),
                (v - exact.var()) / (v_error + 1e-9),
                [(k - exact.kurtosis()) / (k_error + 1e-9)],
            ]
        )

    assert np.abs(far(law, one)).max() < 10
    assert law.mean(return_error=True)[1] < 0.03
    equal = replace(law, weights=np.full(law.weights.size, 1 / law.weights.size))
    assert np.abs(far(equal, equal.marginal(0))).max() > 20
    expected = 1 / (law.weights**2).sum()
    assert law.effective_draws == pytest.approx(expected)
    drawn = np.sort(law.rvs(20_000, rng=3)[:, 0])[::200]
    gap = np.abs(np.arange(0, 20_000, 200) / 20_000 - one.cdf(drawn)).max()
    assert gap < 0.025
    assert law.covariances(50, rng=0).shape == (50, 1, 1)
    assert set(law.covariances(50, rng=0).round(9).ravel()) <= set(var.round(9))


@pytest.mark.slow
@pytest.mark.power("errors wrong by a factor of two")
def test_errors_of_conditional_laws_are_honest():
    w, mean, var = brute(1.5)
    exact = LocationMixture(mean, var, w)
    z = []
    for seed in range(40):
        law = TWO.given({0: 1.5}, draws=4096, rng=seed)
        m, m_error = law.mean(return_error=True)
        f, f_error = law.logpdf([1.0], return_error=True)
        p, p_error = law.marginal(0).sf(2.0, return_error=True)
        z.append(
            [
                (m[0] - exact.mean()) / m_error[0],
                (f - exact.logpdf(1.0)) / f_error,
                (p - exact.sf(2.0)) / p_error,
            ]
        )
    size = np.sqrt(np.mean(np.square(z), axis=0))
    assert (0.5 < size).all()
    assert (size < 2).all()


@pytest.mark.long
@pytest.mark.power("densities 5 % off")
def test_a_density_is_a_marginal_times_a_conditional_one():
    "At each point, and integrated over the other output."
    layer = Attention(Tokens(3, identity, cov=np.eye(3)), heads=2, var_q=4.0)
    law = layer.law()
    a, y = 0.8, np.array([0.5, -1.0])
    joint, e1 = law.logpdf([a, *y], return_error=True)
    given, e2 = law.given({0: a}).logpdf(y, return_error=True)
    alone = law.marginal(0).logpdf(a)
    assert abs(joint - alone - given) < 8 * np.hypot(e1, e2)
    assert np.hypot(e1, e2) < 0.05
    one, step = law.marginal(0), 0.25
    total = sum(
        step * one.pdf(x) * law.given({0: x}, draws=1024).marginal(1).pdf(1.0)
        for x in np.arange(-4, 4.01, step)
    )
    assert total == pytest.approx(law.marginal(2).pdf(1.0), rel=0.03)


def test_weak_conditional_laws_warn():
    with pytest.warns(UserWarning, match="effective draws of 16,384"):
        law = Attention(Tokens(3, identity), heads=2).law().given({0: 40.0})
    assert law.effective_draws < 100
    assert np.isinf(law.mean(return_error=True)[1]).all()
    assert np.isinf(law.cov(return_error=True)[1]).all()
    assert f"{law.effective_draws:,.0f} effective draws of 16,384" in repr(law)
    with pytest.warns(UserWarning, match="far out"):
        assert law.logpdf([0.0, 0.0], return_error=True)[1] == np.inf
    with pytest.raises(ValueError, match="mean zero"):
        law.conditional(np.eye(2))


def test_the_error_of_the_covariance_reaches_conditional_laws():
    S = FLAT * np.random.default_rng(0).uniform(0.9, 1.1, (8, 3, 1))
    S = (S + S.mT) / 2
    found = HierarchicalGaussian.averaged(S).given({0: 1.0})
    each = np.array(
        [HierarchicalGaussian.constant(C).given({0: 1.0}).mean() for C in S]
    )
    error = each.std(0, ddof=1) / np.sqrt(8)
    stated = found.mean(return_error=True)[1]
    assert (0.5 * error < stated).all()
    assert (stated < 4 * error).all()
    assert found.marginal(0).mean(return_error=True)[1] == pytest.approx(stated[0])


@pytest.mark.power("probabilities 1 % off; laws of independent outputs")
def test_joint_distribution_functions():
    "Against scipy's for each of two matrices; equal outputs, infinite bounds, atoms."
    y = np.array([[0.5, 0.2], [-2.0, -2.0], [0.0, 0.0], [3.0, -1.0]])
    each = [multivariate_normal(cov=S).cdf(y) for S in PAIR]
    right = SHARE @ np.array(each)
    value, error = TWO.cdf(y, return_error=True)
    assert (np.abs(value - right) < 10 * error).all()
    assert (error < 0.01 * right).all()
    apart = norm.cdf(y[:, :, None] / np.sqrt(np.diagonal(PAIR, axis1=1, axis2=2)).T)
    assert (np.abs(value - apart.prod(1) @ SHARE) > 20 * error).any()
    edges = [[np.inf, 0.3], [-np.inf, 0.0], [np.inf, np.inf], [np.nan, 0.0]]
    p, error = TWO.cdf(edges, return_error=True)
    one = TWO.marginal(1).cdf(0.3, return_error=True)
    assert abs(p[0] - one[0]) < 10 * np.hypot(error[0], one[1])
    np.testing.assert_array_equal(p[1:], [0, 1, np.nan])
    same = HierarchicalGaussian(
        lambda n, g: g.chisquare(3, (n, 1, 1)) * np.ones((3, 3)), 3
    )
    y = np.array([0.7, 0.4, 0.9])
    p, error = same.cdf(y, return_error=True)
    least = same.marginal(0).cdf(0.4, return_error=True)
    assert abs(p - least[0]) < 10 * (error + least[1])
    point = HierarchicalGaussian.constant(np.zeros((2, 2)))
    np.testing.assert_array_equal(
        point.cdf([[0.0, 1.0], [1.0, 1.0], [-1.0, 1.0]]), [0.5, 1, 0]
    )
    flat = HierarchicalGaussian.constant(FLAT)
    at = [0.5, 0.2, -0.3]
    p, error = flat.cdf(at, return_error=True)
    assert error < 1e-5
    assert abs(p - multivariate_normal(cov=FLAT).cdf(at)) < 1e-4
    for workers in 1, 3:
        with parallel(workers):
            assert (TWO.cdf(y[:2]), TWO.given({0: 1.0}).mean()) == (
                TWO.cdf(y[:2]),
                TWO.given({0: 1.0}).mean(),
            )


@pytest.mark.long
@pytest.mark.power("entropies 0.1 off")
def test_entropies():
    """y = G z/√3 has the variance |z|²/3 in both directions: a density of the radius.
    With few draws both bounds are far apart, and the error says so.
    """

    def wishart(size, rng):
        G = rng.standard_normal((size, 2, 3))
        return G @ G.mT / 3

    r = np.linspace(1e-3, 14, 1500)
    v = chi2(3).ppf((np.arange(4000) + 0.5) / 4000) / 3
    f = np.mean(np.exp(-(r[:, None] ** 2) / 2 / v) / (2 * np.pi * v), axis=1)
    exact = -(f * np.log(f) * 2 * np.pi * r).sum() * (r[1] - r[0])
    law = HierarchicalGaussian(wishart, 2)
    value, error = law.entropy(return_error=True)
    assert abs(value - exact) < 7 * error
    assert error < 0.03
    value, error = law.entropy(draws=64, return_error=True)
    assert abs(value - exact) < 7 * error < 2.5
    flat = HierarchicalGaussian.constant(FLAT)
    right = multivariate_normal(cov=FLAT).entropy()
    assert flat.entropy(return_error=True) == (pytest.approx(right, rel=1e-13), 0)
    drawn = HierarchicalGaussian(lambda n, g: np.broadcast_to(FLAT, (n, 3, 3)), 3)
    value, error = drawn.entropy(return_error=True)
    assert abs(value - right) < 7 * error < 0.2
    for S in np.ones((2, 2)), np.zeros((2, 2)):
        assert HierarchicalGaussian.constant(S).entropy() == -np.inf
        same = HierarchicalGaussian(lambda n, g: np.broadcast_to(S, (n, 2, 2)), 2)
        assert same.entropy(return_error=True) == (-np.inf, 0)
    w, mean, var = brute(1.5)
    given, error = TWO.given({0: 1.5}).entropy(return_error=True)
    assert abs(given - LocationMixture(mean, var, w).entropy()) < 7 * error
    one = HierarchicalGaussian.constant([[2.0]])
    assert one.entropy() == pytest.approx(norm(scale=2**0.5).entropy())


def test_densities_are_exponentials_of_logarithms():
    y = [[0.3, 0.2], [np.inf, 0.0]]
    value, error = TWO.pdf(y, return_error=True)
    log_f, log_error = TWO.logpdf(y, return_error=True)
    np.testing.assert_allclose(value, np.exp(log_f))
    np.testing.assert_allclose(error, np.exp(log_f) * log_error)
    assert value[1] == error[1] == 0
    S, error = TWO.cov(return_error=True)
    np.testing.assert_array_equal(
        TWO.var(return_error=True), [np.diag(S), np.diag(error)]
    )
    sd, error = TWO.std(return_error=True)
    np.testing.assert_allclose(sd**2, np.diag(S))
    np.testing.assert_allclose(2 * sd * error, TWO.var(return_error=True)[1])


def test_draws_have_a_random_state_too():
    old = np.random.RandomState
    first = TWO.rvs(5, random_state=old(3))
    np.testing.assert_array_equal(first, TWO.rvs(5, random_state=old(3)))
    np.testing.assert_array_equal(TWO.rvs(5, random_state=3), TWO.rvs(5, rng=3))
    state = old(3)
    TWO.rvs(5, random_state=state)
    assert (TWO.rvs(5, random_state=state) != first).all()
    with pytest.raises(ValueError, match="`random_state` must be omitted"):
        TWO.rvs(5, rng=0, random_state=1)


WRONG = {
    "nothing": ({}, ValueError, "1…1 different outputs"),
    "all outputs": ({0: 1.0, 1: 1.0}, ValueError, "leave at least one output free"),
    "one output twice": ({0: 1.0, -2: 1.0}, ValueError, "different outputs"),
    "no such output": ({5: 1.0}, ValueError, "outputs 0…1"),
    "no number": ({0: np.nan}, ValueError, r"known\[0\]"),
    "a list": ([1.0], TypeError, "Mapping"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_conditions_raise(case):
    known, kind, words = WRONG[case]
    with pytest.raises(kind, match=words):
        TWO.given(known)


def test_outputs_that_others_determine():
    equal = HierarchicalGaussian.constant(np.ones((3, 3)))
    with pytest.raises(ValueError, match="others determine"):
        equal.given({0: 1.0, 1: 1.0})
    law = equal.given({0: 1.0})
    np.testing.assert_array_equal(law.mean(), [1, 1])
    np.testing.assert_array_equal(law.marginal(0).cdf([0.9, 1.0, 1.1]), [0, 0.5, 1])
    assert law.entropy() == -np.inf
    with pytest.raises(ValueError, match="have a density"):
        law.logpdf([1.0, 1.0])


@pytest.mark.long
def test_a_mixture_with_means_is_a_law_of_scipy():
    m, v = np.array([[0.0, 2.0, -1.0], [1.0, 0.25, 3.0]])
    w = np.array([0.5, 0.3, 0.2])
    law = LocationMixture(m, v, w)
    mean, var, skew, kurtosis = law.stats(moments="mvsk")
    for k, right in enumerate((0, var, skew * var**1.5, (kurtosis + 3) * var**2), 1):
        assert law.expect(lambda y: (y - mean) ** k) == pytest.approx(right, abs=1e-8)
        assert law.moment(k) == pytest.approx(law.expect(lambda y: y**k))
    assert law.kurtosis() == kurtosis
    y = np.linspace(-8, 8, 33)
    slope = (law.cdf(y + 1e-5) - law.cdf(y - 1e-5)) / 2e-5
    np.testing.assert_allclose(slope, law.pdf(y), atol=1e-9)
    np.testing.assert_allclose(law.cdf(law.ppf([1e-9, 0.4])), [1e-9, 0.4], rtol=1e-9)
    np.testing.assert_allclose(law.sf(law.isf([1e-9, 0.4])), [1e-9, 0.4], rtol=1e-9)
    assert law.interval(0.8) == pytest.approx((law.ppf(0.1), law.ppf(0.9)))
    assert law.entropy() == pytest.approx(
        law.expect(lambda y: -law.logpdf(y)), rel=1e-6
    )
    assert law(1.0, 2.0).mean() == pytest.approx(1 + 2 * mean)
    assert law.rvs(rng=0, loc=np.zeros(4)).shape == (4,)
    law.random_state = 3
    first = law.rvs(3)
    law.random_state = 3
    np.testing.assert_array_equal(law.rvs(3), first)
    again = pickle.loads(pickle.dumps(law))
    assert again.cdf(0.3) == law.cdf(0.3)
    assert "3 Gaussians" in repr(law)


def test_conditional_laws_can_be_pickled_and_drawn():
    law = TWO.given({0: 1.0}, draws=512)
    again = pickle.loads(pickle.dumps(law))
    assert repr(again) == repr(law)
    np.testing.assert_array_equal(again.rvs(3, 0), law.rvs(3, 0))
    ax = Figure().subplots()  # not the current axes, which another test may have left
    x, f = law.plot(ax).lines[-2].get_data()
    np.testing.assert_allclose(f, law.marginal(0).pdf(x))
    assert x.mean() == pytest.approx(law.mean()[0])
    assert law.fold(lambda y: y.sum(0), 10, rng=0) == law.rvs(10, rng=0).sum(0)


def test_singular_draws_count_as_zero():
    "They have a density only on a line; leaving them out would raise all others."
    S = np.tile(np.eye(2), (200, 1, 1))
    S[7] = 1.0
    log_f = _log_densities_given(np.array([[0.3, -0.2]]), S)
    exact = multivariate_normal(np.zeros(2)).pdf([0.3, -0.2]) * 199 / 200
    np.testing.assert_allclose(np.exp(log_f).mean(), exact, rtol=1e-12)
