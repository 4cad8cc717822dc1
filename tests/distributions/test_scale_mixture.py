"""Scale mixtures of Gaussians as distributions: methods, atoms, quantiles, limits."""

import numpy as np
import pytest
from scipy.stats import binom, norm

from infattn_nb import Mixture, ScaleMixture, mixture_of_heads


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
    far = law.logsf(60.0)
    np.testing.assert_allclose(
        far, np.logaddexp(*(np.log(w) + each.logsf(60.0))), rtol=1e-13
    )
    np.testing.assert_allclose(law.logcdf(-60.0), law.logcdf(-60.0))
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
    """The cdf takes them back; one Gaussian, or several with one mean and variance; the
    ends.
    """
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
