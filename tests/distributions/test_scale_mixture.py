"""Scale mixtures of Gaussians as distributions: methods, atoms, quantiles, limits."""

from copy import copy

import numpy as np
import pytest
from scipy.stats import binom, norm

from infattn_nb import ScaleMixture
from infattn_nb.distributions import Mixture, mixture_of_heads
from infattn_nb.distributions.scale_mixture import _merged, _merged_roughly
from infattn_nb.distributions.scale_mixture import unwatched_tails, value_and_error


def mixture(**fields):
    given = dict(
        means=np.array([[0.0, 1.0, 2.0], [1.0, -1.0, 0.5]]),
        variances=np.array([[1.0, 2.0, 0.5], [0.3, 1.0, 0.5]]),
        weights=np.array([0.25, 0.75]),
    )
    return Mixture(**given | fields)


WRONG = {
    "negative variances": (dict(variances=-np.ones((2, 3))), "variances"),
    "weights that sum to three": (dict(weights=np.array([1.0, 2.0])), "weights"),
    "a negative weight": (dict(weights=np.array([-1.0, 2.0])), "weights"),
    "variances that broadcast": (dict(variances=np.ones(3)), "variances"),
    "a weight too many": (dict(weights=np.ones(3) / 3), "weights"),
    "no number": (dict(means=np.full((2, 3), np.nan)), "means"),
    "no Gaussian": (dict(means=np.zeros((0, 3))), "means"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mixture_checks_shape_sign_and_sum(case):
    fields, name = WRONG[case]
    with pytest.raises(ValueError, match=f"`{name}` must"):
        mixture(**fields)


def test_a_mixture_cannot_be_changed():
    weights = np.array([0.5, 0.5])
    law = mixture(weights=weights)
    weights[0] = 9.0
    assert law.cdf(0.0).max() <= 1
    with pytest.raises(ValueError, match="read-only"):
        law.weights[0] = 1.0


def test_a_mixture_has_the_methods_of_a_distribution():
    """Each by its definition, from scipy's Gaussians; quantiles are inverses, also
    where a probability underflows its complement.
    """
    law = mixture()
    sd = np.sqrt(law.variances)
    w = law.weights[:, None]
    y = np.array([-1.0, 0.3, 4.0])
    each = norm(law.means, sd)
    for name in ("pdf", "cdf", "sf"):
        expected = (w * getattr(each, name)(y)).sum(0)
        np.testing.assert_allclose(getattr(law, name)(y), expected, rtol=1e-13)
        np.testing.assert_allclose(
            getattr(law, f"log{name}")(y), np.log(expected), rtol=1e-12
        )
    for name, x in (("logsf", 60.0), ("logcdf", -60.0)):
        exact = np.logaddexp(*(np.log(w) + getattr(each, name)(x)))
        np.testing.assert_allclose(getattr(law, name)(x), exact, rtol=1e-13)
    for q in (1e-12, 0.2, 0.5, 0.99):
        np.testing.assert_allclose(law.cdf(law.ppf(q)), q, rtol=1e-9)
        np.testing.assert_allclose(law.sf(law.isf(q)), q, rtol=1e-9)
    tiny = 1e-100
    np.testing.assert_allclose(law.sf(law.isf(tiny)), tiny, rtol=1e-6)
    np.testing.assert_array_equal(law.median(), law.ppf(0.5))
    np.testing.assert_array_equal(law.ppf([0.0, 1.0, 0.0]), [-np.inf, np.inf, -np.inf])
    np.testing.assert_array_equal(law.isf([0.0, 1.0, 0.0]), [np.inf, -np.inf, np.inf])
    assert law.rvs((4, 2), rng=0).shape == (4, 2, 3)
    np.testing.assert_array_equal(law.rvs(5, rng=1), law.rvs(5, random_state=1))


@pytest.mark.filterwarnings("error")
def test_gaussians_without_variance_are_atoms():
    law = Mixture(np.array([[0.0], [1.0]]), np.zeros((2, 1)), np.array([0.25, 0.75]))
    steps = {-1.0: 0, 0.0: 0.125, 0.5: 0.25, 1.0: 0.625, 2.0: 1}
    for y, p in steps.items():
        np.testing.assert_allclose(law.cdf(y), p)
        np.testing.assert_allclose(law.sf(y), 1 - p)
        assert law.logpdf(y) == (np.inf if y in (0, 1) else -np.inf)
    quantiles = {0.0: 0, 0.1: 0, 0.2: 0, 0.4: 1, 0.9: 1, 1.0: 1}
    for q, y in quantiles.items():
        np.testing.assert_allclose(law.ppf(q), y, atol=1e-12)
        np.testing.assert_allclose(law.isf(1 - q), y, atol=1e-12)


@pytest.mark.parametrize(
    "law",
    (ScaleMixture([1.0, 2.0]), ScaleMixture([1.0, 2.0])(0.0, 2.0), mixture()),
    ids=("law", "frozen", "mixture"),
)
def test_one_seed_under_one_name(law):
    with pytest.raises(ValueError, match="`random_state` must be omitted if `rng`"):
        law.rvs(3, rng=0, random_state=1)


def test_quantiles_of_a_mixture():
    "The cdf takes them back; equal parts; the ends."
    rng = np.random.default_rng(0)
    law = Mixture(
        rng.standard_normal((50, 4, 2)),
        rng.random((50, 4, 2)),
        rng.dirichlet(np.ones(50)),
    )
    q = rng.random((4, 2))
    np.testing.assert_allclose(law.cdf(law.ppf(q)), q, rtol=1e-12)
    for M in (1, 3):
        np.testing.assert_allclose(
            Mixture(np.ones((M, 5)), np.full((M, 5), 4.0), np.full(M, 1 / M)).ppf(
                [0.0, 0.1, 0.5, 0.975, 1.0]
            ),
            norm(1, 2).ppf([0.0, 0.1, 0.5, 0.975, 1.0]),
            rtol=1e-12,
        )


def test_a_variance_next_to_zero():
    "The rest of the law must not suffer; what floats cannot hold is rejected."
    for tiny in (0.0, 1e-307):
        law = ScaleMixture([tiny, 1.0])
        assert law.pdf(1.0) == pytest.approx(norm.pdf(1.0) / 2)
        assert law.sf(1.0) == pytest.approx(norm.sf(1.0) / 2)
        assert law.atom == (0.5 if tiny == 0 else 0)
    with pytest.raises(ValueError, match="above 2.3e-308"):
        ScaleMixture([1e-310, 1.0])


@pytest.mark.slow
@pytest.mark.power("errors wrong by a factor of 1.7")
def test_standard_errors_are_honest():
    """Over 60 independent seeds the deviation from the truth, in standard errors (t
    with 15 degrees of freedom), has the right size.
    """
    z = []
    for seed in range(60):
        law = ScaleMixture(np.random.default_rng(seed).chisquare(4, 4096) / 4)
        for method, args, exact in (
            ("var", (), 1.0),
            ("sf", (3.0,), None),
            ("kurtosis", (), 1.5),
        ):
            value, se = getattr(law, method)(*args, return_error=True)
            if exact is not None:
                z.append((value - exact) / se)
    assert 0.6 < np.std(z) < 1.7
    assert np.abs(z).max() < 14


@pytest.mark.parametrize("v", [1e-290, 1e-300, 1e-305, 3e-308])
def test_tiny_variances(v):
    "Below 1e-300 they were zero: an atom, and an infinite density."
    law = ScaleMixture.constant(v)
    assert law.std() == pytest.approx(v**0.5)
    assert law.pdf(0.0) == pytest.approx((2 * np.pi * v) ** -0.5)
    assert law.sf(v**0.5) == pytest.approx(0.15865525393145707)
    assert law.atom == 0


SD = np.array([0.0, 0.5, 1, 2, 4, 6, 8])


@pytest.mark.parametrize(
    "atoms, p",
    [((0.25, 1.0), 0.1), ((1.0, 1000.0), 0.001), ((0.5, 1.5), 0.5), ((1e-3, 1.0), 0.9)],
)
@pytest.mark.parametrize("heads", [1, 2, 7, 256, 4096])
@pytest.mark.long
def test_against_binomial_mixtures(atoms, p, heads):
    "Heads worth one of two values: v is binomial and the law a finite sum."
    k = np.arange(heads + 1)
    w = binom(heads, p).pmf(k)
    exact = ScaleMixture(
        ((heads - k) * atoms[0] + k * atoms[1])[w > 1e-300] / heads,
        w[w > 1e-300] / w.sum(),
    )
    law = mixture_of_heads([(np.array(atoms), np.array([1 - p, p]))] * 2, heads)
    y = SD * exact.std()
    np.testing.assert_allclose(law.pdf(y), exact.pdf(y), rtol=1e-9)
    np.testing.assert_allclose(law.sf(y), exact.sf(y), rtol=1e-9)
    np.testing.assert_allclose(law.isf(exact.sf(y)), y, atol=1e-6 * exact.std())


HEAVY = {
    "bounded": lambda g, n: g.beta(0.3, 0.3, n) + 0.2,
    "chi-squared": lambda g, n: g.chisquare(3, n),
    "narrow": lambda g, n: 1 + 0.01 * g.standard_normal(n),
    "products": lambda g, n: np.prod(g.chisquare(1, (3, n)), 0),
    "two scales": lambda g, n: g.chisquare(4, n) * g.choice([1e-12, 1.0], n),
}


@pytest.mark.parametrize("name", HEAVY)
def test_merged_draws_are_the_same_law(name):
    """Against the sum over all draws. What the merging changes is below the change with
    one node less, which every stated error contains, also far beyond 8 deviations; two
    nodes less would be seen.
    """
    v = HEAVY[name](np.random.default_rng(0), 2**15)
    every = ScaleMixture(v, np.full(v.size, 1 / v.size))
    merged = ScaleMixture(v)
    assert merged.v.size < 1500 < every.v.size
    assert np.array_equal(merged.v[-256:], every.v[-256:])
    rougher, rough = _merged_roughly(merged), copy(merged)
    rough.v, rough.w = _merged(every.v, every.w, 2)
    y = np.r_[np.logspace(-6, -1, 6), 0.5, 1, 2, 4, 6, 8] * every.std()
    beyond = np.array([10, 15, 20, 30, 40]) * every.std()
    with unwatched_tails():
        for ask in ("logpdf", "logsf"):
            for at, bound in (y, 1e-11), (beyond, 1e-5):
                right = getattr(every, ask)(at)
                off = lambda law: np.abs(getattr(law, ask)(at) - right)
                allowed = off(rougher) + 1e-13 + 1e-15 * np.abs(right)
                assert (off(merged) <= np.minimum(allowed, bound)).all()
                assert off(rough).max() > off(merged).max() or name == "narrow"
        for k in range(1, 7):
            ratio = merged.moment(2 * k) / every.moment(2 * k)
            assert ratio == pytest.approx(1, rel=1e-13)
        change = np.abs(rougher.logsf(beyond) - merged.logsf(beyond))
        alone = copy(merged)
        alone.merged = False  # the spread over parts of the draws alone
        stated, spread = (
            value_and_error(lambda law: law._logsf(beyond), law)[1]
            for law in (merged, alone)
        )
        np.testing.assert_allclose(stated, spread + change, rtol=1e-14)
    np.testing.assert_array_equal(merged.rvs(9, rng=1), ScaleMixture(v).rvs(9, rng=1))
    q = np.array([0.01, 0.3, 0.9])
    np.testing.assert_allclose(merged.ppf(q), every.ppf(q), rtol=1e-10)


def test_few_draws_and_nodes_stay():
    v = np.random.default_rng(0).chisquare(3, 10**4)
    for law in ScaleMixture(v[:5000]), ScaleMixture(v, np.full(v.size, 1 / v.size)):
        assert np.array_equal(law.v, np.sort(law.variances))
        assert _merged_roughly(law) is None
    again = ScaleMixture(np.repeat(v[:50], 400))
    assert again.v.size == 50
    with_atom = ScaleMixture(np.r_[np.zeros(10**4), v])
    assert with_atom.atom == pytest.approx(0.5)
    assert with_atom.w.sum() == pytest.approx(0.5, rel=1e-13)
    assert with_atom.v.size < 1500


def test_an_error_of_two_numbers_of_a_quadrature():
    "Tuples have no difference: `interval` at infinite width raised a TypeError."
    law = mixture_of_heads([([0.5, 1.5], [0.5, 0.5])] * 2, heads=16)
    (low, high), error = law.interval(0.9, return_error=True)
    assert low == pytest.approx(-high)
    assert error.shape == (2,)


def test_an_atom_counts_in_every_moment():
    "v is 0, 1 or 4: moments, kurtosis and characteristic function are finite sums."
    p = np.array([0.5, 0.3, 0.2])
    law = ScaleMixture([0.0, 1.0, 4.0], p)
    v, v2 = 0.3 + 0.8, 0.3 + 3.2
    assert law.var() == pytest.approx(v)
    assert law.moment(4) == pytest.approx(3 * v2)
    assert law.kurtosis() == pytest.approx(3 * v2 / v**2 - 3)
    assert law.stats(moments="k") == pytest.approx(3 * v2 / v**2 - 3)
    assert law.sf(1.0) == pytest.approx(0.3 * norm.sf(1) + 0.2 * norm.sf(0.5))
    t = np.array([0.0, 0.7, 3.0])
    expected = 0.5 + 0.3 * np.exp(-(t**2) / 2) + 0.2 * np.exp(-2 * t**2)
    np.testing.assert_allclose(law.cf(t), expected, rtol=1e-14)
    turned = law.cf(t, loc=2.0, scale=0.5)
    scaled = 0.5 + 0.3 * np.exp(-(t**2) / 8) + 0.2 * np.exp(-(t**2) / 2)
    np.testing.assert_allclose(turned, np.exp(2j * t) * scaled, rtol=1e-14)


def test_an_error_of_a_quadrature_is_three_standard_errors_and_the_last_change():
    "And, beyond both, the largest change to a law nearby; by hand, for a variance."
    law = lambda v: ScaleMixture([v], [1.0])
    parts = [law(v) for v in (0.9, 1.0, 1.1, 1.2)]
    whole = dict(replicates=parts, coarse=[law(1.5)], nearby=[law(2.0), law(1.9)])
    spread = np.std([0.9, 1.0, 1.1, 1.2], ddof=1) / 2
    for fields, extra in ((whole, 0.5 + 1.0), (whole | dict(nearby=[]), 0.5)):
        _, error = ScaleMixture([1.0], [1.0], **fields).var(return_error=True)
        assert error == pytest.approx(3 * spread + extra)
    slow = ScaleMixture([1.5], [1.0], coarse=[law(2.3)])  # changes .8, .5: ratio 5/8
    _, error = ScaleMixture([1.0], [1.0], replicates=parts, coarse=[slow]).var(
        return_error=True
    )
    assert error == pytest.approx(3 * spread + 0.5 * 3 * (5 / 8) / (3 / 8))


def test_both_log_tails_of_a_law_around_zero():
    law = ScaleMixture(np.array([0.5, 2.0]), np.array([0.3, 0.7]))
    y = np.array([-30.0, -2.0, 0.5, 3.0])
    each = norm(0, np.sqrt(law.variances)[:, None])
    for name in ("logcdf", "logsf"):
        exact = np.logaddexp(*(np.log(law.weights)[:, None] + getattr(each, name)(y)))
        np.testing.assert_allclose(getattr(law, name)(y), exact, 1e-10, 1e-14)
    assert law.expect(lambda y: y**4) == pytest.approx(3 * (0.3 * 0.25 + 0.7 * 4))
