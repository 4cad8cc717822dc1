"Rows of any length: grids, integrals, draws; frozen rows; what is rejected."

from decimal import Decimal
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import nightly
from row_cases import YS, tails
from scipy.special import gamma

from infattn_nb import Attention, Tokens
from infattn_nb.attention.rows import ROUGH_MESH, Mesh, row_mixture, row_points
from infattn_nb.convergence import effective_alpha, entropy, mean_entropy
from infattn_nb.convergence import participation_moments, poisson_dirichlet_limit
from infattn_nb.convergence import row_overlap, width_term
from infattn_nb.distributions import mixture_of_heads
from infattn_nb.nonlinearities import identity, softmax

ROOT = Path(__file__).parents[2]
OTHER = Mesh(14, 0.08, 0.3, 74.0, 14.0)  # no step, node or cut in common with the law


def agree_with_other_steps_and_integrals(s, τ, mean, tail):
    "Another discretisation, out to 8 sd; moments by one-dimensional integrals."
    law, other = (
        row_mixture(np.ones(s), τ),
        mixture_of_heads([row_points(np.ones(s), τ, 0.0, OTHER)]),
    )
    for method in ("sf", "pdf"):
        value, error = getattr(law, method)(YS * law.std(), return_error=True)
        off = np.abs(value - getattr(other, method)(YS * law.std()))
        assert (off < tail * value).all(), method
        assert (off < error + 1e-14 * value).all(), method
    u, w = row_points(np.ones(s), τ)
    m = participation_moments(s, τ)
    np.testing.assert_allclose(w @ u, m[0], rtol=mean)
    np.testing.assert_allclose(w @ u**4, m[3], rtol=tail)


@pytest.mark.parametrize(
    "s, τ", nightly([(2, 0.01), (2, 5.0), (3, 3.0)], (2, 5.0), (3, 3.0))
)
@pytest.mark.long
def test_moments_and_a_second_discretisation(s, τ):
    agree_with_other_steps_and_integrals(s, τ, 1e-10, 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("τ", [0.1, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0])
@pytest.mark.parametrize("e", [1, 4, 6, 10, 12, 20])
def test_long_rows(e, τ):
    "8 digits to 8 standard deviations up to 4,096 tokens, 6 up to a million."
    agree_with_other_steps_and_integrals(
        2**e, τ, *((1e-10, 1e-8) if e <= 12 else (1e-8, 1e-6))
    )


@pytest.mark.parametrize(
    "α, sf",
    nightly(
        [(0.25, 3.60611824e-8), (0.5, 1.41981780e-6), (0.75, 6.45328442e-5)],
        (0.25, 3.60611824e-8),
        (0.5, 1.41981780e-6),
    ),
)
@pytest.mark.long
def test_frozen(α, sf):
    law = poisson_dirichlet_limit(α)
    np.testing.assert_allclose(
        [law.var(), law.kurtosis() * (1 - α) ** 2], [1 - α, α * (1 - α)], rtol=1e-12
    )
    np.testing.assert_allclose(law.sf(6 * law.std()), sf, rtol=1e-8)
    v = law.sample(20_000, np.random.default_rng(0))
    assert abs(v.mean() - 1 + α) < 6 * v.std() / np.sqrt(len(v)) + 1e-6
    two = poisson_dirichlet_limit(α, 2)
    np.testing.assert_allclose(
        [two.var(), two.kurtosis()], [law.var(), law.kurtosis() / 2], rtol=1e-11
    )


def test_frozen_moments_with_more_digits():
    mpmath = pytest.importorskip("mpmath")
    from infattn_nb.convergence.long_sequences import _pd_moments

    m = [float(x) for x in _pd_moments(Decimal("0.5"), 12)]
    with mpmath.workdps(60):
        α, K = mpmath.mpf("0.5"), 12
        f = lambda θ: (
            -mpmath.log(
                1
                - α
                * sum(
                    mpmath.rf(1 - α, 2 * j - 1) * θ**j / mpmath.factorial(j)
                    for j in range(1, K)
                )
            )
            / α
        )
        c = mpmath.taylor(f, 0, K - 1)
        np.testing.assert_allclose(
            m[1:],
            [
                float(mpmath.factorial(k) / mpmath.factorial(2 * k - 1) * c[k])
                for k in range(1, K)
            ],
            rtol=1e-12,
        )


@pytest.mark.long
def test_entropy():
    for s, τ in ((2, 1.0), (4, 2.0)):
        h, w = entropy(s, τ, ROUGH_MESH)
        np.testing.assert_allclose(w @ h, mean_entropy(s, τ), rtol=1e-9)
        assert (h >= 0).all()
        assert (h <= np.log(s) * (1 + 1e-12)).all()
    a = softmax(2 * np.random.default_rng(0).standard_normal((50_000, 4)))
    H = -(a * np.log(a)).sum(1)
    assert abs(H.mean() - w @ h) < 6 * H.std() / np.sqrt(len(H))
    np.testing.assert_allclose(H.var(), w @ h**2 - (w @ h) ** 2, rtol=0.1)


def test_phases():
    "The stored laws tend to their limits; exponents and the frozen mean as derived."
    t = pd.read_csv(ROOT / "nbs/data/length.csv")
    t = t.assign(
        weight=t.weight / t.groupby(["beta", "log2_s"]).weight.transform("sum")
    )
    cv2 = t.groupby(["beta", "log2_s"])[["u", "weight"]].apply(
        lambda r: r.weight @ (r.u / (r.weight @ r.u) - 1) ** 2
    )
    assert cv2[0.3, 8] > cv2[0.3, 20] > cv2[0.3, 40]
    mean = t.groupby(["beta", "log2_s"])[["u", "weight"]].apply(
        lambda r: r.weight @ r.u
    )
    for (β, e), m in mean.items():
        np.testing.assert_allclose(
            m,
            participation_moments(2.0**e, β * np.sqrt(2 * e * np.log(2)), 1)[0],
            rtol=1e-5,
        )
    assert abs(mean[2.0, 40] - 0.5) < abs(mean[2.0, 20] - 0.5) < abs(mean[2.0, 8] - 0.5)
    for e in (8, 20, 40):
        assert abs(
            mean[2.0, e] - 1 + effective_alpha(2.0**e, 2 * np.sqrt(2 * e * np.log(2)))
        ) < abs(mean[2.0, e] - 0.5)


@pytest.mark.slow
def test_stored_laws_are_what_the_command_writes():
    length = import_module("length")
    t = pd.read_csv(ROOT / "nbs/data/length.csv").query("beta == 0.7 and log2_s == 8")
    u, w = length.law(0.7, 8)
    mean, stored, fresh = (
        w @ u,
        tails((t.u.to_numpy(), t.weight.to_numpy())),
        tails((u, w)),
    )
    np.testing.assert_allclose([t.weight @ t.u, *stored], [mean, *fresh], rtol=1e-9)


def one_large_score(log_s, τ, p):
    "log of s E aᵖ if the other tokens sum to their mean."
    z = np.arange(-10, 80, 0.02)
    terms = -p * np.logaddexp(0, log_s + τ**2 / 2 - τ * z) - z * z / 2
    return log_s + np.logaddexp.reduce(terms) + np.log(0.02 / np.sqrt(2 * np.pi))


@pytest.mark.power(
    "scores beyond 22 standard deviations left out: a kurtosis of 8.6 instead of 475"
)
@pytest.mark.parametrize("e, β", [(200, 0.36), (600, 0.36), (600, 0.45), (1000, 0.7)])
def test_moments_decided_by_the_rarest_scores(e, β):
    log_s, τ = e * np.log(2), β * np.sqrt(2 * e * np.log(2))
    first, fourth = one_large_score(log_s, τ, 2), one_large_score(log_s, τ, 4)
    second = np.logaddexp(2 * first, fourth)  # one token twice, or two tokens
    found = participation_moments(2.0**e, τ, 2, logarithm=True)
    np.testing.assert_allclose(
        found, [first, second], rtol=0, atol=1e-6 if β < 0.5 else 0.02
    )


def test_high_moments():
    u, w = row_points(np.ones(2), 1.0)
    np.testing.assert_allclose(
        participation_moments(2, 1.0, 40), [w @ u**k for k in range(1, 41)], rtol=1e-9
    )
    np.testing.assert_allclose(participation_moments(1, 5.0, 40), 1, rtol=1e-9)
    np.testing.assert_allclose(
        participation_moments(7, 1.0, 3, logarithm=True),
        np.log(participation_moments(7, 1.0, 3)),
        rtol=1e-14,
    )


def test_entropy_of_very_many_tokens():
    "In the averaging phase log s − τ²/2."
    np.testing.assert_allclose(
        mean_entropy(2.0**100, 3.0), 100 * np.log(2) - 4.5, rtol=1e-9
    )


@pytest.mark.power("six standard errors, half a per cent; a forgotten correlation")
@pytest.mark.parametrize(
    "s, τ, ρ", [(2, 1.0, 0.5), (6, 3.0, -0.2), (16, 7.0, 0.2), (64, 1.0, 0.7)]
)
def test_overlap_of_two_rows(s, τ, ρ):
    g, h = τ * np.random.default_rng(s).standard_normal((2, 50_000, s))
    a, b = softmax(g), softmax(ρ * g + np.sqrt(1 - ρ**2) * h)
    drawn = (a * b).sum(1)
    error = drawn.std() / np.sqrt(len(drawn))
    assert abs(drawn.mean() - row_overlap(s, τ, ρ)) < 6 * error
    if abs(ρ) > 0.5:
        assert abs(drawn.mean() - 1 / s) > 6 * error


@pytest.mark.long
def test_overlap_at_its_ends():
    for s, τ in ((2, 0.05), (8, 2.0), (1000, 5.0), (2.0**40, 6.0)):
        np.testing.assert_allclose(
            row_overlap(s, τ, 1.0), participation_moments(s, τ, 1)[0], rtol=1e-9
        )
        np.testing.assert_allclose(row_overlap(s, τ, 0.0), 1 / s, rtol=1e-9)
    assert abs(row_overlap(1, 3.0, 0.4) - 1) < 1e-9
    one, two = (
        row_overlap(2.0**e, 2 * np.sqrt(2 * e * np.log(2)), 0.7) for e in (60, 120)
    )
    # s^{−(1−ρ)/(1+ρ)} in the frozen phase
    assert abs(np.log2(one / two) / 60 - 0.3 / 1.7) < 0.04


@pytest.mark.power(
    "an exponent .04 off: −3 instead of −2.19 for ρ < 0 just beyond β = 1"
)
@pytest.mark.parametrize(
    "β, ρ, exponent",
    nightly(
        [
            (0.9, -0.5, -1.81),
            (1.1, -0.5, -2.19),
            (1.5, -0.5, -2.75),
            (2.5, -0.5, -3.0),
            (1.1, -0.9, 1 + 0.242 - 4.4),
            (2.0, 0.7, -0.3 / 1.7),
        ],
        (1.5, -0.5, -2.75),
        (2.5, -0.5, -3.0),
    ),
)
@pytest.mark.long
def test_exponents_of_the_overlap(β, ρ, exponent):
    one, two = (
        row_overlap(2.0**e, β * np.sqrt(2 * e * np.log(2)), ρ) for e in (60, 120)
    )
    assert abs(np.log2(two / one) / 60 - exponent) < 0.04


@pytest.mark.slow
def test_an_overlap_below_all_floats():
    "Was 0."
    τ = 1.1 * np.sqrt(2 * np.log(2) * np.array([300, 400]))
    assert 1e-198 < row_overlap(2.0**300, τ[0], -0.5) < 1e-195
    with pytest.raises(ValueError, match="overlap of at least 1e-280"):
        row_overlap(2.0**400, τ[1], -0.5)


@pytest.mark.power("τ²/n instead of the exact term, by more than ten standard errors")
@pytest.mark.parametrize("s, τ, n", [(2, 1.0, 16), (4, 2.0, 64), (16, 2.0, 128)])
def test_first_term_in_the_width(s, τ, n):
    "E v at few tokens, by exact sampling at finite width."
    v = (
        Attention(Tokens(s, identity, np.eye(s)), var_q=τ, var_k=τ)
        .law(n)
        .marginal(0, draws=2**15)
        .variances
    )
    error, mean = v.std() / np.sqrt(len(v)), participation_moments(s, τ, 1)[0]
    assert abs(v.mean() - mean - width_term(s, τ) / n) < 6 * error + 3 / n**2
    assert abs(v.mean() - mean - τ**2 / n) > 10 * error


def second_differences(s, τ, step, nodes):
    """The term in 1/n without its derivation: h(K, ϑ) = E AᵀKA on a grid of normals,
    bent by every entry of K_n and by ϑ; covariances of a Wishart matrix and of ϑ =
    K₁₁χ²/n.
    """
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    z = np.stack(np.meshgrid(*[x] * s, indexing="ij"), -1).reshape(-1, s)
    weight = np.prod(np.meshgrid(*[w / w.sum()] * s, indexing="ij"), axis=0).ravel()
    entries = [(i, j) for i in range(s) for j in range(i, s)]

    def h(change):
        K = np.eye(s)
        for (i, j), d in zip(entries, change):
            K[i, j] = K[j, i] = (i == j) + d
        g = τ * np.sqrt(1 + change[-1]) * z @ np.linalg.cholesky(K).T
        a = np.exp(g) / np.exp(g).sum(1, keepdims=True)
        return weight @ np.einsum("bi,ij,bj->b", a, K, a)

    C = np.diag([2.0 if i == j else 1.0 for i, j in entries] + [4.0])
    C[0, -1] = C[-1, 0] = 2.0
    e = step * np.eye(len(C))
    return sum(
        C[a, b]
        / 2
        * (h(e[a] + e[b]) - h(e[a] - e[b]) - h(e[b] - e[a]) + h(-e[a] - e[b]))
        / (4 * step**2)
        for a, b in zip(*np.nonzero(C))
    )


@pytest.mark.power(
    "1e-5 of the term: each of its parts, and the covariance of ϑ with K₁₁ counted "
    "once instead of twice"
)
@pytest.mark.parametrize(
    "s, τ, nodes", [(2, 0.1, 40), (2, 0.8, 60), (2, 2.0, 100), (3, 1.6, 40)]
)
@pytest.mark.long
def test_width_term_by_second_differences(s, τ, nodes):
    from infattn_nb.convergence.long_sequences import _slope

    once, twice = (second_differences(s, τ, step, nodes) for step in (0.02, 0.04))
    reference, found = (4 * once - twice) / 3, width_term(s, τ)
    np.testing.assert_allclose(found, reference, rtol=1e-5)
    assert abs(found - 2 / s * τ**2 * _slope(s, τ**2) - reference) > 0.1 * abs(
        reference
    )  # what stood here before


@pytest.mark.power("half the term, by more than nine standard errors")
def test_width_term_by_explicit_draws():
    """s = 2, τ = .8, n = 64: tokens by Bartlett, a query of its own; minus the same
    normals at infinite width, and minus what is linear in the fluctuations.
    """
    τ, n, size = 0.8, 64, 10**6
    rng = np.random.default_rng(0)
    a, b = (np.sqrt(rng.chisquare(n - k, size) / n) for k in (0, 1))
    t, z1, z2 = rng.standard_normal((3, size)) / np.sqrt([[n], [1], [1]])
    χ = rng.chisquare(n, size) / n
    weight = lambda difference: 1 / (1 + np.exp(-difference))  # of the first token
    p = weight(τ * a * np.sqrt(χ) * ((a - t) * z1 - b * z2))
    v = (p * a + (1 - p) * t) ** 2 + ((1 - p) * b) ** 2
    p = weight(τ * (z1 - z2))
    u = p**2 + (1 - p) ** 2
    known = np.stack([np.ones(size), a * a - 1, b * b - (n - 1) / n, χ - 1], 1)
    fit, *_ = np.linalg.lstsq(known, v - u, rcond=None)
    left = v - u - known[:, 1:] @ fit[1:]
    error = n * left.std() / np.sqrt(size)
    assert (
        abs(n * left.mean() - width_term(2, τ)) < 6 * error < 0.6 * width_term(2, τ) / 2
    )


@pytest.mark.parametrize("s", [2, 3, 10])
def test_width_term_of_small_scores(s):
    "By hand: κ/τ² → (s − 1)/s + 4(s − 1)/s³."
    np.testing.assert_allclose(
        width_term(s, 0.01) / 1e-4, (s - 1) / s + 4 * (s - 1) / s**3, rtol=1e-3
    )


def test_slope_of_the_mean():
    "dE u/dτ² = E[u − 4Σa³ + 3u²], which the term in the width uses."
    from infattn_nb.convergence.long_sequences import _slope

    mean = lambda x: participation_moments(9, np.sqrt(x), 1)[0]
    np.testing.assert_allclose(
        _slope(9, 4.0), (mean(4.001) - mean(3.999)) / 0.002, rtol=1e-6
    )


@pytest.mark.power("a scale without its logarithm, heads that are not independent")
def test_stable_phase():
    """Characteristic function of y for three heads, from Poisson points; the scale from
    the exact Laplace transform.
    """
    from infattn_nb.convergence.long_sequences import _log_rate

    β, H, t = 0.7, 3, np.array([0.3, 1.0, 3.0])
    points = np.random.default_rng(0).standard_exponential((8000, H, 300)).cumsum(-1)
    rest = 300 ** (1 - 2 * β) / (2 * β - 1)  # mean of the later terms
    v = ((points ** (-2 * β)).sum(-1) + rest).mean(-1)
    drawn = np.exp(-(t[:, None] ** 2) * v / 2)
    limit = np.exp(-H * gamma(1 - 0.5 / β) * (t**2 / 2 / H) ** (0.5 / β))
    assert (abs(drawn.mean(1) - limit) < 6 * drawn.std(1) / np.sqrt(8000) + 2e-3).all()

    def exponent(e, logarithm):
        log_s = e * np.log(2)
        scale = -2 * (1 - β) ** 2 * log_s - logarithm * β * np.log(4 * np.pi * log_s)
        τ = β * np.sqrt(2 * log_s)
        return np.exp(
            log_s + _log_rate(np.array([-2 * log_s - τ**2 - scale]), 2 * τ)[0]
        )

    away = [abs(exponent(e, True) / gamma(1 - 0.5 / β) - 1) for e in (40, 400, 4000)]
    assert away[0] > 2 * away[1] > 4 * away[2]
    assert away[2] < 0.02
    assert exponent(4000, False) < 0.02  # without it u over its scale tends to zero


def two_tokens(τ):
    "κ of two tokens by sums over the one difference of their scores."
    d, step = np.linspace(-60, 60, 120001, retstep=True)
    w = np.exp(-d * d / 4 / τ**2) / np.sqrt(4 * np.pi * τ**2) * step
    t = np.tanh(d / 2)
    h = 1 / np.cosh(d / 2) ** 2
    rest = w @ h / 2  # 1 − E u
    rest_2 = w @ (1 - ((1 + t * t) / 2) ** 2)  # 1 − E u²
    rest_3 = 0.75 * w @ h  # 1 − E Σ a³
    slope = w @ (h * (1 - 3 * t * t)) / 4
    bend = w @ (h * (-2 + 15 * t**2 - 15 * t**4)) / 4
    tilt = rest + 6 * (rest_3 - rest_2)
    return τ**2 * (tilt + 2 * slope) + 4 * τ**4 * bend


@pytest.mark.parametrize(
    "τ, digits", [(0.1, 1e-9), (1.0, 1e-9), (3.0, 1e-9), (10.0, 1e-9), (20.0, 1e-9)]
)
def test_width_term_of_two_tokens(τ, digits):
    "By differences it was 1.8 % off at τ = 72, and 3e-7 at 1."
    assert width_term(2, τ) == pytest.approx(two_tokens(τ), rel=digits)


def test_width_term_names_what_was_passed():
    with pytest.raises(ValueError, match=r"`score_sd` must be in \(0, 100\], got 101"):
        width_term(2, 101.0)


@pytest.mark.parametrize(
    "τ, κ",
    [(20.0, -0.0276936311528), (50.0, -0.0112504456892), (100.0, -0.00563772159)],
)
def test_width_term_of_two_tokens_far_out(τ, κ):
    "Where everything cancels; κ by quadrature with forty digits."
    np.testing.assert_allclose(width_term(2, τ), κ, rtol=1e-9)


@pytest.mark.slow
def test_width_term_of_three_tokens_far_out():
    "Nodes beyond τ = 100 are used, and the curve goes on: it is flat but for 1/τ²."
    at = np.array([20.0, 50.0, 100.0])
    near, middle, far = (width_term(3, τ) for τ in at)
    a, b, c = 1 / at
    predicted = middle + (near - middle) * (c - b) / (a - b)
    np.testing.assert_allclose(far, predicted, rtol=5e-3)


def test_width_term_of_two_tokens_is_one_function():
    "Both ways to it agree where they meet."
    below, above = width_term(2, 1.0), width_term(2, 1.0 + 1e-9)
    np.testing.assert_allclose(below, above, rtol=2e-8)
