"The score CLT: one score exactly, moments by simulation, the limit."

import pickle
import warnings

import numpy as np
import pytest
from conftest import nightly
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import gammaln, kve
from scipy.stats import ks_2samp, kstest, norm

from infattn_nb import AssumptionError, Program, limit, simulate
from infattn_nb.netsor import attention
from infattn_nb.netsor.nodes import Score
from infattn_nb.nonlinearities import relu, tanh
from infattn_nb.theory import ExchangeableScores, cumulants, quadratic_form, score_cov
from infattn_nb.theory import score_gram, variance_gamma


def program(phi, pairs, var=(1.0, 1.0)):
    "Scores (W₁ x)ᵀ(W₂ x')/√n for pairs (matrix, token), tokens φ(W⁰u)."
    p = Program()
    W0, W = p.matrix(), [p.matrix(var=v) for v in var]
    xs = [phi(W0 @ u) for u in p.inputs(0.3 * np.eye(3) + 0.7)]
    return p, [p.score(W[i] @ xs[a], W[j] @ xs[b]) for (i, a), (j, b) in pairs]


PROGRAMS = {
    "single": program(tanh, [((0, 0), (1, 1))], var=(2.0, 0.5)),
    "common key": program(tanh, [((0, i), (1, 2)) for i in range(3)]),
    "crosswise": program(tanh, [((0, 0), (1, 1)), ((1, 0), (0, 1))], var=(1.5, 1.0)),
    "ReLU": program(relu, [((0, 0), (1, 1)), ((0, 1), (1, 0))]),
}
DIRECTIONS = {
    "single": ([1.0], [-2.0]),
    "common key": ([1.0, 1, 1], [1.0, -2, 0]),
    "crosswise": ([1.0, 0], [1.0, 1]),
    "ReLU": ([1.0, 0], [1.0, -1]),
}
each = pytest.mark.parametrize(
    "name, c",
    nightly(
        [(name, c) for name, cs in DIRECTIONS.items() for c in cs],
        ("single", [-2.0]),
        ("common key", [1.0, 1, 1]),
        ("crosswise", [1.0, 0]),
        ("ReLU", [1.0, 0]),
    ),
)  # one direction of each daily


@pytest.fixture(autouse=True)
def relu_is_unbounded():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def random_gram(r, rng):
    "A covariance with zeros between query and key of each score."
    S = np.cov(rng.standard_normal((2 * r, 4 * r)))
    k = 2 * np.arange(r)
    S[k, k + 1] = S[k + 1, k] = 0
    return S + max(0, 0.1 - np.linalg.eigvalsh(S)[0]) * np.eye(2 * r)


def test_characteristic_functions_and_moments_of_one_score():
    "Of two degrees of freedom it is Laplace's law of variance one; t = 0, 1, 2."
    law = variance_gamma(2)
    np.testing.assert_allclose(law.cf([0, 1, 2]), [1, 2 / 3, 1 / 3])
    laplace = np.exp(-np.sqrt(2) * np.array([0.5, 3.0])) / np.sqrt(2)
    np.testing.assert_allclose(law.pdf([0.5, 3.0]), laplace, rtol=1e-10)
    np.testing.assert_allclose(law.sf([0.5, 3.0]), laplace / np.sqrt(2), rtol=1e-10)
    np.testing.assert_allclose([law.moment(k) for k in (2, 4, 6)], [1, 6, 90])
    assert law.kurtosis() == 3


@pytest.mark.parametrize("n", nightly([1, 2, 3, 4, 7, 16, 100], 3, 4, 7, 16))
@pytest.mark.long
def test_variance_gamma_against_closed_form_and_integration(n):
    law, y = (
        variance_gamma(n),
        np.array([1e-6 if n < 50 else 0.02, 0.01, 0.5, 2, 8, 40]),
    )
    ν, x, a = (n - 1) / 2, np.sqrt(n) * y, n / 2
    bessel = (
        a * np.log(a)
        - gammaln(a)
        + np.log(2 / np.pi) / 2
        + ν * np.log(x / n)
        + np.log(kve(ν, x))
        - x
    )
    np.testing.assert_allclose(law.logpdf(y), bessel, rtol=1e-11, atol=1e-11)
    for t in (0.5, 3.0, 10.0):
        np.testing.assert_allclose(
            law.sf(t), quad(law.pdf, t, np.inf, epsabs=0, limit=200)[0], rtol=1e-7
        )
        np.testing.assert_allclose(
            law.cf(t),
            2 * quad(law.pdf, 0, np.inf, weight="cos", wvar=t, limlst=100)[0]
            if n > 1
            else (1 + t * t) ** -0.5,
            atol=1e-6,
        )
    np.testing.assert_allclose(law.cdf(y) + law.sf(y), 1, rtol=1e-14)
    np.testing.assert_array_equal(law.cdf(-y), law.sf(y))
    assert law.cdf(0) == pytest.approx(0.5, abs=1e-12)
    assert (law.pdf(0) == np.inf) == (n == 1)


@pytest.mark.power("distribution functions .046 apart")
@pytest.mark.long
def test_variance_gamma_methods():
    law = variance_gamma(5)
    np.testing.assert_allclose(law.stats(moments="mvsk"), [0, 1, 0, 6 / 5], rtol=1e-14)
    np.testing.assert_allclose(
        [law.moment(k) for k in (2, 4, 6)],
        [1, 3 * (1 + 2 / 5), 15 * (1 + 2 / 5) * (1 + 4 / 5)],
        rtol=1e-12,
    )
    np.testing.assert_allclose(law.expect(lambda y: y**4), law.moment(4), rtol=1e-6)
    q = np.array([1e-300, 1e-12, 0.01, 0.4, 0.5, 0.6, 0.99])
    np.testing.assert_allclose(law.sf(law.isf(q)), q, rtol=1e-9)
    np.testing.assert_allclose(law.cdf(law.ppf(q)), q, rtol=1e-9)
    assert law.ppf(0) == -np.inf
    assert law.isf(0) == np.inf
    assert np.isnan(law.pdf(np.nan))
    assert law.pdf(np.inf) == 0
    assert kstest(law.rvs(5000, rng=0), law.cdf).pvalue > 1e-9
    np.testing.assert_array_equal(
        law.rvs((2, 3), rng=1), law.rvs(6, random_state=1).reshape(2, 3)
    )
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(law)).pdf(q), law.pdf(q))
    for bad in (0, -1, np.inf):
        with pytest.raises(ValueError, match="whole number"):
            variance_gamma(bad)
    with pytest.raises(ValueError, match="whole number"):
        variance_gamma(2.5)
    assert variance_gamma(1e9).n == 10**9


def test_speed_of_the_one_score_clt():
    "f_n = φ(1 + He₄/(4n)) + O(n⁻²); nearly right constants are seen apart."
    y = np.linspace(-5, 5, 101)
    he4 = y**4 - 6 * y**2 + 3
    for n in (10**3, 10**5, 10**7):
        first = n * (variance_gamma(n).pdf(y) - norm.pdf(y))
        np.testing.assert_allclose(
            first, he4 * norm.pdf(y) / 4, atol=3 / n + 2e-16 * n * 100
        )
    assert np.abs(first - he4 * norm.pdf(y) * 6 / 25).max() > 0.01


@settings(max_examples=50, deadline=None)
@given(r=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_gram_formulas(r, seed):
    "M(Γ) by a loop, cumulants by eigenvalues, and both through cᵀMc."
    rng = np.random.default_rng(seed)
    Γ, c = random_gram(r, rng), rng.standard_normal(r)
    M = [
        [
            Γ[2 * k, 2 * l] * Γ[2 * k + 1, 2 * l + 1]
            + Γ[2 * k, 2 * l + 1] * Γ[2 * k + 1, 2 * l]
            for l in range(r)
        ]
        for k in range(r)
    ]
    np.testing.assert_allclose(score_cov(Γ), M, rtol=1e-13, atol=1e-15)
    λ = np.linalg.eigvals(quadratic_form(c) @ Γ).real
    np.testing.assert_allclose(
        cumulants(Γ, c), [2 * (λ**2).sum(), 48 * (λ**4).sum()], rtol=1e-8
    )
    np.testing.assert_allclose(cumulants(Γ, c)[0], c @ score_cov(Γ) @ c, rtol=1e-10)
    assert abs(λ.sum()) < 1e-10 * abs(λ).max()
    z = rng.standard_normal(2 * r)
    np.testing.assert_allclose(
        z @ quadratic_form(c) @ z, (c * z[::2] * z[1::2]).sum(), rtol=1e-10, atol=1e-12
    )


@pytest.mark.power(
    "second moments 10 % off, moments of squares 40 %, variance of the score 12 %"
)
@settings(max_examples=8, deadline=None)
@given(r=st.integers(1, 3), seed=st.integers(0, 10**6))
@pytest.mark.long
def test_given_gram_against_simulation(r, seed):
    rng = np.random.default_rng(seed)
    X = ExchangeableScores(random_gram(r, rng), rng.standard_normal(r))
    s = X.simulate(7, 40_000, seed)
    for name in ("second_moment", "cross_moment", "squares_moment"):
        value, error = getattr(X, name)(7, return_error=True)
        assert error == 0
        assert abs(value - s[name][0]) < 10 * s[name][1]
        assert value == getattr(X, name)(np.inf)  # a fixed Gram knows no width
    assert s["third_moment"][0] < X.third_moment_bound(7) + 10 * s["third_moment"][1]
    p = X.rvs(7, 20_000, seed)
    assert abs(np.mean(p**2) - X.second_moment(7)) < 10 * np.std(p**2) / np.sqrt(len(p))


@pytest.mark.power("second moments 11 % off, third 24 %, moments of squares 47 %")
@each
@pytest.mark.parametrize("n", nightly([16, 48], 48))
@pytest.mark.long
def test_programs_against_simulation(name, c, n, size=40_000):
    X = ExchangeableScores(PROGRAMS[name][0], c)
    s = X.simulate(n, size, rng=1)
    for moment in ("second_moment", "cross_moment", "squares_moment"):
        value, error = getattr(X, moment)(n, return_error=True)
        assert abs(value - s[moment][0]) < 10 * np.hypot(error, s[moment][1]), moment
    bound, error = X.third_moment_bound(n, return_error=True)
    assert s["third_moment"][0] < bound + 10 * np.hypot(error, s["third_moment"][1])


@pytest.mark.power(
    "distribution functions .046 apart at n = 4, .033 from the limit; p < 1e-9 for a "
    "Gaussian"
)
@each
@pytest.mark.long
def test_normed_sums_are_the_scores(name, c):
    "Against explicit matrices, at a width where nothing is Gaussian."
    p, scores = PROGRAMS[name]
    X = ExchangeableScores(p, c)
    explicit = simulate(p, [], 4, size=10_000, rng=3, scores=scores, dense=True)[1] @ c
    # parallel ReLU tokens cancel: an atom at 0, but for rounding
    assert ks_2samp(explicit.round(9), X.rvs(4, 10_000, rng=4).round(9)).pvalue > 1e-9
    assert (
        kstest(
            X.rvs(4, 10_000, rng=4), norm(scale=X.rvs(4, 10_000, rng=4).std()).cdf
        ).pvalue
        < 1e-9
    )
    limit_sd = np.sqrt(c @ limit(p).score_cov(scores) @ np.array(c))
    assert kstest(X.rvs(np.inf, 10_000, rng=5), norm(scale=limit_sd).cdf).pvalue > 1e-9
    assert (
        kstest(
            simulate(p, [], 1024, size=1000, rng=6, scores=scores)[1] @ c,
            norm(scale=limit_sd).cdf,
        ).pvalue
        > 1e-7
    )  # n = 1024 is close enough for 1000 draws


@pytest.mark.power("moments at n = 512 17 % off; speeds 1 or 1/n² instead of 1/n")
@each
@pytest.mark.long
def test_limits_and_their_speed(name, c):
    X = ExchangeableScores(PROGRAMS[name][0], c)
    σ2 = c @ score_cov(score_gram(*PROGRAMS[name], np.inf)[0]) @ np.array(c)
    np.testing.assert_allclose(
        [X.second_moment(np.inf), X.squares_moment(np.inf)], [σ2, σ2**2], rtol=1e-10
    )
    assert X.kurtosis(np.inf) == 0
    assert X.cross_moment(np.inf) == 0
    for f in (X.second_moment, X.squares_moment):
        value, error = f(512, return_error=True)
        assert abs(value - f(np.inf)) < 0.1 * f(np.inf) + 10 * error
    (k, e), (K, E) = (X.kurtosis(n, return_error=True) for n in (64, 512))
    # 1/n: neither 1 nor 1/n², which would be 8 times off
    assert abs(k / K / 8 - 1) < 0.3 + 10 * np.hypot(e / k, E / K)


@pytest.mark.power("distribution functions .046 apart")
def test_kurtosis_of_one_score():
    for n in (1, 4, 100):
        assert ExchangeableScores(np.diag([2.0, 3.0]), [5.0]).kurtosis(
            n
        ) == pytest.approx(6 / n, rel=1e-12)
    X = ExchangeableScores(np.diag([2.0, 3.0]), [5.0])
    assert (
        kstest(X.rvs(3, 5000, rng=0) / np.sqrt(150), variance_gamma(3).cdf).pvalue
        > 1e-9
    )


@pytest.mark.power("mean entries 1.3 % off at n = 2048")
def test_score_gram():
    p, scores = PROGRAMS["crosswise"]
    Γ = score_gram(p, scores, 8, size=(2, 3), rng=0)
    assert Γ.shape == (2, 3, 4, 4)
    np.testing.assert_array_equal(
        Γ, score_gram(p, scores, 8, size=6, rng=0).reshape(2, 3, 4, 4)
    )
    np.testing.assert_allclose(
        score_gram(p, scores, np.inf, size=2)[1],
        limit(p).cov([g for s in scores for g in s.args]),
    )
    assert not Γ[..., [0, 2], [1, 3]].any()
    assert not Γ[..., 0, 2].any()
    assert Γ[..., 0, 3].all()  # W meets V only crosswise
    assert np.linalg.eigvalsh(Γ).min() > -1e-12
    far = score_gram(p, scores, 2048, size=400, rng=1)
    error = 10 * far.std(0) / 20 + 2 / 2048
    assert (np.abs(far.mean(0) - score_gram(p, scores, np.inf)[0]) <= error).all()


@pytest.mark.power("distribution functions .065 apart")
def test_attention_layers():
    "Two heads, two tokens: heads are independent, Example 1 within."
    p = Program()
    W = p.matrix()
    xs = [tanh(W @ u) for u in p.inputs([[1, 0.5], [0.5, 1]])]
    attention(p, xs, heads=2, var_q=2.0)
    scores = [h for h in p.nodes if isinstance(h, Score)]
    M = score_cov(score_gram(p, scores, np.inf)[0])
    K = tanh.dual([[1, 0.5], [0.5, 1]])
    np.testing.assert_allclose(
        M, np.kron(np.eye(2), 2 * np.kron(K, K)), rtol=1e-6, atol=1e-12
    )
    c = np.random.default_rng(0).standard_normal(8)
    X = ExchangeableScores(p, c, draws=256)
    np.testing.assert_allclose(X.second_moment(np.inf), c @ M @ c, rtol=1e-12)
    assert (
        ks_2samp(
            simulate(p, [], 6, size=5000, rng=0, scores=scores)[1] @ c,
            X.rvs(6, 5000, rng=1),
        ).pvalue
        > 1e-9
    )


@pytest.mark.power("second moments 12 % off, moments of squares 15 %")
def test_samplers_of_ones_own(size=10**6):
    "A scaled identity with random scale: E k₂ = E v², as by hand."

    def sampler(n, size, g):
        return np.eye(2) * (1 + g.uniform(-1, 1, size) / n)[:, None, None]

    X = ExchangeableScores(sampler, [1.0])
    value, error = X.second_moment(2, return_error=True)
    assert abs(value - (1 + 1 / 12)) < 10 * error < 0.2
    s = X.simulate(2, size, rng=0)
    assert (
        abs(s["squares_moment"][0] - X.squares_moment(2)) < 10 * s["squares_moment"][1]
    )


def key_on_query(φ):
    "Within Assumption 1, outside the hypothesis of Lemma 10."
    p = Program()
    (u,) = p.inputs([[1.0]])
    x = tanh(u)
    q = p.matrix(var=2.0) @ x
    return p, x, q, p.score(q, p.matrix(var=0.5) @ φ(q))


@pytest.mark.power(
    "variance of the score 8 % off, distribution functions .033 apart; Lemmas 12 and "
    "14 as if the terms were independent are rejected at n = 2"
)
@pytest.mark.parametrize(
    "φ, f", [(tanh, np.tanh), (relu, lambda z: np.maximum(z, 0))], ids=["tanh", "ReLU"]
)
@pytest.mark.long
def test_scores_one_after_the_other(φ, f, size=100_000):
    "Given its query exactly normal; in the limit Definition 1's."
    p, x, q, score = key_on_query(φ)
    rng = np.random.default_rng(0)
    for n in (2, 5):
        z = np.tanh(rng.standard_normal((size, n, 1)))
        W, V = (np.sqrt(v / n) * rng.standard_normal((size, n, n)) for v in (2.0, 0.5))
        query = W @ z
        key = V @ f(query)
        explicit = (query * key).sum((1, 2)) / np.sqrt(n)
        variance = 0.5 * (f(query) ** 2).mean((1, 2)) * (query**2).mean((1, 2))
        alive = variance > 0  # ReLU kills a query of two coordinates
        assert (
            kstest((explicit / np.sqrt(variance))[alive], norm.cdf).pvalue
            > 1e-9
            > kstest(explicit / explicit.std(), norm.cdf).pvalue
        )
        drawn = simulate(p, [], n, size=20_000, rng=1, scores=[score])[1][:, 0]
        assert ks_2samp(explicit[:20_000].round(9), drawn.round(9)).pvalue > 1e-9
        # k₂ given all inputs
        apart = 0.5 * (f(query) ** 2).mean((1, 2)) * 2 * (z**2).mean((1, 2))
        X = (query * key)[:, :2, 0]
        right, *wrong = (
            d.mean() / d.std() * np.sqrt(size)
            for d in (
                explicit**2 - variance,
                explicit**2 - apart,
                (X**2).prod(1) - apart**2,
            )
        )
        assert abs(right) < 6
        assert min(wrong) > 6 or n > 2
    exact = limit(p).score_cov([score]).item()
    γ = 2 * tanh.dual([[1.0]]).item()  # variance of the query; then of its image
    assert exact == pytest.approx(γ * 0.5 * φ.dual([[γ]]).item(), rel=1e-9)
    wide = simulate(p, [], 1024, size=4000, rng=2, scores=[score])[1][:, 0]
    assert kstest(wide, norm(scale=exact**0.5).cdf).pvalue > 1e-9
    with pytest.raises(ValueError, match="Lemma 10 fails"):
        ExchangeableScores(p, [1.0])


def test_a_sum_that_is_always_zero():
    assert (
        ExchangeableScores(np.eye(2), [0.0]).kurtosis(4)
        == ExchangeableScores(np.zeros((2, 2)), [1.0]).kurtosis(np.inf)
        == 0
    )


def test_determinism():
    X = ExchangeableScores(PROGRAMS["single"][0], [1.0])
    np.testing.assert_array_equal(X.rvs(5, 5000, rng=0), X.rvs(5, 5000, rng=0))
    assert X.simulate(5, 100, rng=0) == X.simulate(5, 100, rng=0)
    assert (
        X.second_moment(5)
        == ExchangeableScores(PROGRAMS["single"][0], [1.0]).second_moment(5)
        != ExchangeableScores(PROGRAMS["single"][0], [1.0], rng=1).second_moment(5)
    )


def test_what_the_limit_law_of_scores_does_not_cover():
    p = Program()
    with pytest.raises(ValueError, match="must have a score"):
        ExchangeableScores(p, [1.0])
    with pytest.raises(ValueError, match="different matrices"):
        ExchangeableScores(np.ones((2, 2)), [1.0])
    u, v = p.inputs(np.eye(2))
    W, V, U = p.matrix(), p.matrix(), p.matrix()
    good, mean = p.score(V @ u, U @ v), p.score(V @ u, U @ v, scaling="linear")
    low = p.score(p.matrix(rows=0.5) @ u, p.matrix(rows=0.5) @ v)
    deep = p.score(p.matrix() @ p.attend([good, good], [u, v]), p.matrix() @ u)
    assert ExchangeableScores(p, [1.0], scores=[good]).second_moment(
        np.inf
    ) == pytest.approx(1)
    for score, n, said in [
        (mean, 4, "scaling 'sqrt'"),
        (deep, 4, "first layer"),
        (low, 4, "square matrices"),
        (good, 4.5, "whole number"),
    ]:
        with pytest.raises(ValueError, match=said):
            score_gram(p, [score], n)
    p.score(W @ u, W @ v)
    with pytest.raises(AssumptionError, match="different matrices"):
        ExchangeableScores(p, [1.0], scores=[good])
