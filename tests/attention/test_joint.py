"Densities of several outputs far out, and where they must not be believed."

import warnings
from dataclasses import fields, replace
from unittest.mock import patch

import joint
import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import log_softmax, softmax
from scipy.stats import multivariate_normal, norm
from scipy.stats import t as student

from infattn_nb import Attention, HierarchicalGaussian, Tokens
from infattn_nb.attention.joint import far_density, observed
from infattn_nb.attention.peaks import differences, sharp_of
from infattn_nb.nonlinearities import identity


def test_joint_densities_say_where_draws_cannot_reach():
    "An error of .5 stood beside a value that was 10 off."
    law = Attention(Tokens(4, identity, np.eye(4)), heads=2, var_q=4.0).law()
    points = [[6, 6, -6, -6.0], [1, 0, 0, 1]]
    with pytest.warns(UserWarning, match="1 of 2 points lie so far out") as said:
        value, error = law.logpdf(points, islands=0, return_error=True)
    assert len(said) == 1
    assert error[0] == np.inf
    assert 0 < error[1] < 0.01
    assert np.isfinite(value).all()
    with pytest.warns(UserWarning, match="far out"):
        law.logpdf(points[0], islands=0)  # also without return_error
    # few draws, but most of them count
    assert law.logpdf(points[1], draws=100, islands=0) < 0


def test_islands_that_disagree_are_not_believed():
    """The error is inf, and a warning says why; the value is the islands', for draws
    say less still (hundreds of nats off at twelve standard deviations).
    """
    law = Attention(Tokens(4, identity, np.eye(4)), heads=2, var_q=4.0).law()
    for spread in (0.09, 0.11, np.inf):

        class Disagreeing(type(law)):
            def _far(self, y, seeds):
                return -70.0, spread

        unsure = Disagreeing(**{f.name: getattr(law, f.name) for f in fields(law)})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value, error = unsure.logpdf([6, 6, -6, -6.0], return_error=True)
        assert value == -70
        assert error == (spread if spread < 0.1 else np.inf)
        assert len(caught) == (spread > 0.1)


def correlated(scale=1.0, heads=2):
    K = scale * np.array([[1.0, 0.3, 0.0], [0.3, 2.0, 0.5], [0.0, 0.5, 1.5]])
    return Attention(Tokens(3, identity, K), heads=heads, var_q=2 / scale**2)


@pytest.mark.parametrize("heads", [1, 2])
def test_the_target_of_particles(heads):
    "log N(y; 0, S + νI) of explicit attention weights, and its slope by differences."
    y = np.array([0.5, -1.0, 0.3])
    target = replace(observed(correlated(heads=heads), y), noise=0.1)

    def log_normal(z):
        N = z.reshape(target.left.shape[1], target.right.shape[1], heads)
        G = np.einsum("iq,qrh,jr->hij", target.left, N, target.right)
        A = softmax(G, axis=-1)
        S = (A @ target.K @ A.mT).mean(0) + 0.1 * np.eye(3)
        return multivariate_normal(cov=S).logpdf(y)

    z = np.random.default_rng(0).standard_normal((int(np.prod(target.kind())), 2))
    value, slope = target(z)
    np.testing.assert_allclose(value, [log_normal(x) for x in z.T], rtol=1e-10)
    exact = np.transpose([approx_fprime(x, log_normal) for x in z.T])
    np.testing.assert_allclose(slope, exact, atol=1e-5)


def test_far_densities_have_units():
    "128 times the tokens, and the same scores: 128 times the outputs."
    y = 3 * np.array([1.0, -1.0, 1.0])
    seeds = np.random.SeedSequence(0).spawn(2)
    one, more = (far_density(correlated(k**2), k * y, seeds)[0] for k in (1, 128))
    assert one - more == pytest.approx(3 * np.log(128), abs=1e-3)


@pytest.mark.slow
@pytest.mark.power("densities a nat apart")
def test_joint_densities_where_draws_do_not_reach():
    "Particles agree with each other, and with draws where these reach."
    law = Attention(Tokens(4, identity, np.eye(4)), heads=2, var_q=4.0).law()
    far = np.array(
        [
            law.logpdf([6, 6, -6, -6.0], rng=k, islands=17, return_error=True)
            for k in range(2)
        ]
    )
    assert (far[:, 1] < 0.1).all()
    assert np.ptp(far[:, 0]) < 15 * far[:, 1].max()
    with pytest.warns(UserWarning, match="far out"):
        assert law.logpdf([6, 6, -6, -6.0], rng=3, islands=0) < far[:, 0].min() - 3
    near = np.array([2, -1.5, 0, 1])
    plain, error = law.logpdf(near, rng=4, islands=0, return_error=True)
    value, spread = law._far(near, np.random.SeedSequence(5).spawn(17))
    assert abs(value - plain) < 9 * np.hypot(error, spread)
    assert spread < 0.1
    assert law.logpdf(near, rng=4) == plain  # nobody is asked where draws reach


@pytest.mark.parametrize(
    "law",
    [
        Attention(Tokens(2, identity, np.eye(2)), heads=2).law(),
        HierarchicalGaussian.constant(np.eye(2)),
    ],
    ids=["drawn", "constant"],
)
def test_joint_densities_at_the_ends_of_the_numbers(law):
    with np.errstate(all="raise", under="ignore"):
        value, error = law.logpdf(
            [[np.inf, 0], [0, -np.inf], [np.nan, np.inf], [1e160, 0], [0.5, 0.3]],
            return_error=True,
        )
    assert value[:4].tolist() == pytest.approx(
        [-np.inf, -np.inf, np.nan, -np.inf], nan_ok=True
    )
    assert np.isfinite(value[4])
    assert error[:4].tolist() == pytest.approx([0, 0, np.nan, 0], nan_ok=True)
    assert error[4] < 0.01
    assert law.logpdf([np.inf, 0]) == -np.inf
    assert np.isnan(law.logpdf([np.nan, 0]))


def test_extreme_points_answer_quickly():
    "Beyond 1,000 standard deviations no particle sets out."
    layer = Attention(Tokens(4, identity, np.eye(4)), heads=2)
    with (
        patch("infattn_nb.attention.joint.approach", side_effect=AssertionError),
        pytest.warns(UserWarning, match="far out"),
    ):
        assert (
            layer.law().logpdf([1e7, 1e7, -1e7, -1e7], return_error=True)[1] == np.inf
        )


@pytest.mark.long
def test_few_islands_that_agree_are_not_believed():
    """Sixteen Gaussian islands: four standard errors are exceeded twenty times as often
    as by a Gaussian, four stated ones as rarely.
    """
    beyond = lambda k: 2 * student(15).sf(k)
    assert beyond(4) > 15 * 2 * norm.sf(4)
    assert beyond(4 * joint.far_out.widening(16)) == pytest.approx(
        2 * norm.sf(4), rel=0.05
    )
    islands = iter(
        [(0.0, [1.0, 0.0])] + [(-50 + 0.02 * k, [1.0, 0.0]) for k in range(16)]
    )  # the first finds the path
    with patch(
        "infattn_nb.attention.joint.approach",
        side_effect=lambda *_, **__: next(islands),
    ):
        value, error = (
            joint.layer(2, 1)
            .law()
            ._far(joint.point(2, 1, 8), np.random.SeedSequence(0).spawn(17))
        )
    f = np.exp(0.02 * np.arange(16))
    assert value == pytest.approx(np.log(f.mean()) - 50)
    assert error == pytest.approx(1.3700940204675531 * f.std(ddof=1) / f.mean() / 4)


@pytest.mark.slow
@pytest.mark.parametrize("H, r", [(2, 6), (8, 6)])
def test_particles_have_the_exact_marginal(H, r, islands=17):
    """∫ exp(logpdf([t, y])) dy by two Gauß rules, on both sides of the edge at y = t,
    every density from particles of its own, against the exact density of one output.
    """
    law = joint.layer(2, H).law()
    t = joint.point(2, H, r)[0]
    rules = [
        (np.polynomial.legendre.leggauss(n), a, b)
        for n, a, b in ((12, -0.8, 1.0), (6, 1.0, 1.3))
    ]
    y, w = (
        np.concatenate(parts)
        for parts in zip(
            *[
                (t * ((a + b) / 2 + (b - a) / 2 * x), t * (b - a) / 2 * w)
                for (x, w), a, b in rules
            ],
            strict=True,
        )
    )
    found = np.array(
        [
            law._far(np.array([t, x]), np.random.SeedSequence([H, k]).spawn(islands))
            for k, x in enumerate(y)
        ]
    )
    share = w * np.exp(found[:, 0]) / law.marginal().pdf(t)
    error = np.sqrt((share**2 * found[:, 1] ** 2).sum())
    assert abs(share.sum() - 1) < 6 * error < 0.15
    assert abs(1.2 * share.sum() - 1) > 6 * error  # a density a fifth too large is seen


@pytest.mark.slow
def test_islands_are_unbiased():
    "exp(estimate − exact) has mean 1; of a density 5 % too large it has not."
    y = joint.point(2, 2, 6)
    target = joint.far_out.observed(joint.layer(2, 2), y)
    found = []
    for k in range(12):
        first, *others = np.random.SeedSequence(k).spawn(33)
        _, path = joint.far_out.approach(target, first)
        found += [joint.far_out.approach(target, seed, path)[0] for seed in others]
    ratio = np.exp(np.array(found) - joint.by_sums(y, 2))
    error = ratio.std() / len(ratio) ** 0.5
    assert abs(ratio.mean() - 1) < 6 * error < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("r", [4, 6])
def test_stated_errors_under_many_seeds(r, seeds=200):
    "Where draws reach: one head, two tokens, 200 seeds."
    found, _ = joint.estimates(2, 1, r, range(seeds), 10)
    off = (found[:, 0] - joint.by_sums(joint.point(2, 1, r), 1)) / found[:, 1]
    assert len(off) == seeds
    assert np.abs(off).max() < 5.5
    assert 0.8 < off.std() < 1.25


def test_two_tokens_and_sharp_scores_have_a_density():
    """det S = det K (a₁ − a₂)² is positive almost surely; floating-point covariances
    were singular, and the law was said to have no density. Values by panels over both
    scores.
    """
    K = np.array([[1.0, 0.3], [0.3, 2.0]])
    points = [[0.5, -0.7], [0.5, 0.500001], [0.5, 0.500000001], [8.0, 8.5]]
    known = {
        1.0: [-3.7441166199, 1.1129506020, 1.5411797388, -23.6619359227],
        25.0: [-3.3356291711, 7.1268506840, 11.5100782057, -22.5708466488],
    }
    for variance, exact in known.items():
        law = Attention(Tokens(2, identity, K), var_q=variance).law()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            value, error = law.logpdf(points, return_error=True)
        assert (np.abs(value - exact) < 5 * error + 1e-9).all()
        assert error[1:].max() < 1e-7
        assert law.logpdf([1.0, 1.0]) == np.inf


@pytest.mark.parametrize("heads", [1, 2])
def test_sharp_scores_by_logarithms_of_weights(heads):
    "The same terms as from covariances, where these are regular."
    layer = Attention(Tokens(4, identity, np.eye(4)), var_q=25.0, heads=heads)
    sharp = sharp_of(layer)
    log_A = sharp.draws(2000, np.random.default_rng(0))
    y = np.linspace(-1, 1, 4)
    found = sharp.log_terms(y[None], log_A)[0]
    A = np.exp(log_A)
    S = np.einsum("nhij,nhkj->nik", A, A) / heads
    regular = np.linalg.cond(S) < 1e4
    assert 100 < regular.sum() < len(S)
    plain = [multivariate_normal(cov=S_n).logpdf(y) for S_n in S[regular]]
    np.testing.assert_allclose(found[regular], plain, rtol=1e-8, atol=1e-8)
    assert np.isfinite(found).mean() > 0.99


def test_differences_of_rows_keep_their_digits():
    scores = np.array([[[0.0, 90.0, 1.0], [3.0, 95.0, 2.0], [0.0, 0.0, 0.0]]])
    log_A = log_softmax(scores, axis=-1)
    apart = differences(log_A)[0]
    first = np.exp(-90.0)
    np.testing.assert_allclose(apart[0, 0], np.exp(-92.0) - first, rtol=1e-12)
    rest = np.exp(-92.0) - first + np.exp(-93.0) - np.exp(-89.0)
    np.testing.assert_allclose(apart[0, 1], -rest, rtol=1e-12)
    np.testing.assert_allclose(apart.sum(1), 0, atol=1e-16)


def test_cannot_be_computed_is_not_has_no_density():
    rank_one = Attention(Tokens(2, identity, [[1, -1], [-1, 1]])).law()
    with pytest.raises(ValueError, match="`law` must have a density"):
        rank_one.logpdf([0.0, 1.0])
    nearly = HierarchicalGaussian(
        lambda n, g: np.broadcast_to([[1, 1], [1, 1 + 1e-13]], (n, 2, 2)), 2
    )
    with pytest.raises(ValueError, match="density that can be computed"):
        nearly.logpdf([0.0, 1.0])
