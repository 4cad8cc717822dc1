"The limit law to many digits: independent routes and exact values."

import tracemalloc
import warnings
from dataclasses import replace
from functools import lru_cache
from itertools import permutations

import joint  # the benchmark
import numpy as np
import pytest
from conftest import nightly
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit, logsumexp
from scipy.stats import multivariate_normal, norm

from infattn_nb import Attention, HierarchicalGaussian, Tokens
from infattn_nb.nonlinearities import identity, relu, softmax, tanh
from infattn_nb.numerics.quadrature import normal_nodes

FOUR = Attention(Tokens(4, identity))
SD = np.array([0.0, 0.5, 1, 2, 4, 6, 8])
made = lru_cache(Attention)  # the limit law of a layer is computed once


def tensor(layer, step=0.5, R=8.5):
    """One-head nodes of row 1 by equally spaced points in *all* s normals (no dimension
    dropped, no refinement): (u, w).
    """
    K, s = layer.tokens.kernel(), layer.tokens.seq_len
    x = np.arange(-R, R + step, step)
    g = np.stack(np.meshgrid(*[x] * s), -1).reshape(-1, s)
    g = g[(g**2).sum(1) < R**2]
    w = np.exp(-(g**2).sum(1) / 2)
    λ, E = np.linalg.eigh(K)
    a = softmax(
        np.sqrt(layer.var_q * layer.var_k * K[0, 0])
        * g
        @ (E * np.sqrt(np.maximum(λ, 0))).T
    )
    return layer.var_o * layer.var_v * np.einsum("ni,ij,nj->n", a, K, a), w / w.sum()


def tilted(u, w, H, y):
    """Density and tail by Fourier inversion along the line Im = −θ through the saddle
    point (θ E[u e^{θ²u/2H}]/E[e^{θ²u/2H}] = y).
    """
    θ = y / (w @ u)
    for _ in range(60):
        e = w * np.exp(np.minimum(θ**2 * u / (2 * H), 600))
        θ = 0.5 * θ + 0.5 * y / ((e @ u) / e.sum())
    z = θ + 1j * np.arange(0.05, 20, 0.1) / np.sqrt(w @ u)
    e, ratio, change = (
        np.exp(x * u / (2 * H))
        for x in (z[0] ** 2, z[1] ** 2 - z[0] ** 2, 2 * (z[1] - z[0]) ** 2)
    )  # e^{z²u/2H} from one z to the next
    Λ = []
    for _ in z:
        Λ.append(e @ w)
        e, ratio = e * ratio, ratio * change
    f = np.exp(-1j * y * z.imag) * np.array(Λ) ** H
    return [
        np.exp(-θ * y) * (z.imag[1] - z.imag[0]) / np.pi * x.real.sum()
        for x in (f, f / z)
    ]


@pytest.mark.parametrize(
    "layer",
    [
        replace(FOUR, tokens=Tokens(3, identity)),
        replace(FOUR, tokens=Tokens(3, relu), var_q=4.0),
        replace(
            FOUR,
            tokens=Tokens(3, identity, [[1, 0.5, 0], [0.5, 2, -0.3], [0, -0.3, 1]]),
            var_o=3.0,
        ),
    ],
    ids=repr,
)
@pytest.mark.parametrize("heads", nightly([1, 2, 16, 4096], 16, 4096))
@pytest.mark.long
def test_against_fourier_and_tensor_quadrature(layer, heads):
    """Nodes from another rule in more dimensions, then Fourier on a tilted contour (H =
    1: the direct sum): 8 standard deviations to 1e-6.
    """
    u, w = tensor(layer)
    law = replace(layer, heads=heads).law().marginal(0)
    for y in SD[1:] * law.std():
        exact = (
            [w @ f(y, scale=np.sqrt(u)) for f in (norm.pdf, norm.sf)]
            if heads == 1
            else tilted(u, w, heads, y)
        )
        assert [law.pdf(y), law.sf(y)] == pytest.approx(exact, rel=1e-6, abs=0), (
            y / law.std()
        )


def test_known_values():
    law = replace(FOUR, heads=2).law().marginal(0)
    assert FOUR.law().marginal(0).var() == pytest.approx(0.3919714, abs=1e-7)
    assert [law.pdf(0.0), law.pdf(1.0)] == pytest.approx([0.646080, 0.173195], abs=1e-6)
    assert law.sf(6 * law.std()) == pytest.approx(5.39041e-8, rel=1e-5, abs=0)


SINGULAR = {
    "opposite tokens": Tokens(2, identity, [[1, -1], [-1, 1]]),
    "rank one": Tokens(3, identity, np.outer([1, -0.5, 2], [1, -0.5, 2])),
    "simplex": Tokens(4, identity, np.eye(4) - np.ones((4, 4)) / 4),
    "one zero token": Tokens(3, identity, np.diag([1.0, 0, 2])),
}


@pytest.mark.power("tails 2 % off in the middle, 18 % at 4 standard deviations")
@pytest.mark.parametrize("name", SINGULAR)
@pytest.mark.parametrize("heads", nightly([1, 2, 16], 2, 16))
@pytest.mark.long
def test_singular_kernels(name, heads, size=2**15):
    "Refining changes nothing beyond the stated error, below 1e-6."
    layer = made(SINGULAR[name], heads)
    law = layer.law().marginal(0)
    drawn = layer.law().marginal(0, draws=size)
    for y in (0.01, 0.5, 2.0, 4.0):
        value, se = drawn.sf(y * law.std(), return_error=True)
        assert abs(value - law.sf(y * law.std())) < 10 * se
    value, error = law.sf(SD * law.std(), return_error=True)
    assert (error[2:] < 2e-6 * value[2:]).all()
    assert quad(lambda t: 2 * law.pdf(np.exp(t)) * np.exp(t), -50, 5, limit=800)[
        0
    ] == pytest.approx(1, abs=1e-6)


def test_infinite_density_at_zero():
    """K = [[1, −1], [−1, 1]], one head: u = tanh²(g) reaches 0 in the interior of a
    line, E u^{−1/2} = ∞. Two heads are enough to tame it.
    """
    law = Attention(SINGULAR["opposite tokens"]).law().marginal(0)
    assert law.pdf(0.0) == np.inf
    assert np.isfinite(law.pdf(1e-3))
    assert law.cdf(0.0) == pytest.approx(0.5, abs=1e-12)
    assert np.isfinite(
        Attention(SINGULAR["opposite tokens"], heads=2).law().marginal(0).pdf(0.0)
    )
    assert np.isfinite(Attention(SINGULAR["simplex"]).law().marginal(0).pdf(0.0))
    f = lambda y: (
        quad(
            lambda g: norm.pdf(g) * norm.pdf(y, scale=np.tanh(g)),
            0,
            9,
            points=(1e-6, 1e-4, 1e-2, 0.1),
            limit=900,
        )[0]
        * 2
    )
    for y in (0.01, 0.3, 2.0):
        assert law.pdf(y) == pytest.approx(f(y), rel=1e-6)


def test_zero_tokens():
    law = Attention(Tokens(2, identity, np.zeros((2, 2)))).law().marginal(0)
    assert (law.cdf([-1.0, 0, 1]) == [0, 0.5, 1]).all()
    assert law.pdf(0.0) == np.inf
    assert law.pdf(1.0) == 0
    assert law.var() == 0


HARD = {
    "score sd 10": replace(FOUR, var_q=100.0),
    "score sd 50": replace(FOUR, var_q=2500.0),
    "eight tokens": Attention(Tokens(8, relu), heads=3),
    "64 tokens": Attention(Tokens(64, identity), var_q=4.0),
    "causal, second row": replace(FOUR, mask="causal"),
    "bias": replace(FOUR, bias=np.arange(16.0).reshape(4, 4) / 4),
    "identity weights": replace(FOUR, weights=identity),
    "relu weights": Attention(Tokens(3, relu), weights=relu),
    "tanh tokens": Attention(Tokens(4, tanh), heads=2),
    "five tanh tokens": Attention(Tokens(5, tanh), heads=2),
    "linear scores with bias": replace(FOUR, scaling="linear", bias=np.eye(4)),
    "identity weights, masked": replace(FOUR, weights=identity, mask="causal"),
}


@pytest.mark.power("2 % in the middle, 31 % at 4 standard deviations")
@pytest.mark.parametrize(
    "name",
    nightly(
        HARD,
        "tanh tokens",
        "score sd 10",
        "64 tokens",
        "eight tokens",
        "five tanh tokens",
        "identity weights",
    ),
)
@pytest.mark.long
def test_hard_cases_within_stated_error(name, size=2**15):
    layer, i = HARD[name], 1
    law, drawn = layer.law().marginal(i), layer.law().marginal(i, draws=size)
    for y in np.array([0.2, 1, 2, 4]) * law.std():
        for method in ("pdf", "sf"):
            (value, error), (mc, se) = (
                getattr(l, method)(y, return_error=True) for l in (law, drawn)
            )
            assert abs(value - mc) < 10 * se + 4 * error + 1e-9 * value, (
                y / law.std(),
                method,
            )


def fine_sf(layer, y, N=10**6):
    """Tail of a one-head layer summed directly over five times as many nodes in a wider
    ball, in coordinates of its own (eigenvectors instead of Cholesky).
    """
    K = layer.tokens.kernel()
    λ, E = np.linalg.eigh(K - K.mean(0) - K.mean(1)[:, None] + K.mean())
    L = (E * np.sqrt(np.maximum(λ, 0) * layer.var_q * K[0, 0]))[:, λ > 1e-12 * λ.max()]
    u = lambda g: np.maximum(
        np.einsum("in,ij,jn->n", a := softmax(L @ g, axis=0), K, a), 1e-300
    )
    return np.mean(
        [
            [w @ norm.sf(t, scale=np.sqrt(v)) / w.sum() for t in y]
            for v, w in normal_nodes(u, np.ptp(L, axis=0), N=N, R=10.5)
        ],
        axis=0,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "tokens, var_q",
    [
        pytest.param(Tokens(4, identity), 4.0, marks=pytest.mark.slow),
        pytest.param(Tokens(4, relu), 1.0, marks=pytest.mark.slow),
        (SINGULAR["simplex"], 4.0),
    ],
    ids=["independent", "relu", "simplex"],
)
def test_stated_error_covers_a_much_finer_rule(tokens, var_q):
    layer = Attention(tokens, var_q=var_q)
    law = layer.law().marginal(0)
    y = SD * law.std()
    value, error = law.sf(y, return_error=True)
    assert (np.abs(value - fine_sf(layer, y)) <= 3 * error + 1e-9 * value).all()


@pytest.mark.parametrize("heads", nightly([1, 2, 4096], 1, 2, 4096))
def test_accuracy_goal(heads):
    """Four tokens, any rank, scores up to standard deviation 2: 1e-6 out to 8 standard
    deviations, true for one head, stated for more.
    """
    rng = np.random.default_rng(heads)
    G = rng.normal(size=(4, rng.integers(1, 6)))
    K = G @ G.T
    layer = Attention(
        Tokens(4, identity, K), heads=heads, var_q=4 / (K[0, 0] * K.diagonal().max())
    )
    law = layer.law().marginal(0)
    y = SD[1:] * law.std()
    value, error = law.sf(y, return_error=True)
    assert (
        (np.abs(value - fine_sf(layer, y)) if heads == 1 else error) < 1e-6 * value
    ).all()
    assert (error < 1e-5 * value).all()


@pytest.mark.parametrize("heads", [1, 8])
@pytest.mark.parametrize("score_sd", nightly([0.3, 3, 10], 3, 10))
@pytest.mark.parametrize(
    "cov",
    [
        np.array([[2, 0.5, -0.3], [0.5, 1, 0.2], [-0.3, 0.2, 1]]),
        pytest.param(0.7 * np.eye(16) + 0.3, marks=pytest.mark.long),
    ],
    ids=["three tokens", "16 tokens"],
)
def test_eight_digits_up_to_six_standard_deviations(cov, score_sd, heads):
    "Two other tests compare stated errors with true ones."
    layer = Attention(Tokens(len(cov), identity, cov), heads, var_q=score_sd**2)
    law = layer.law().marginal(-1)
    value, error = law.sf(np.arange(7) * law.std(), return_error=True)
    assert (error < 1e-8 * value).all()


def check_law(law):
    "Everything that makes a law a law."
    sd = law.std()
    y = np.linspace(-9, 9, 37) * sd
    pdf, cdf, sf = law.pdf(y), law.cdf(y), law.sf(y)
    for values in (pdf[y != 0], cdf, sf, law.logpdf(y)[y != 0]):
        assert np.isfinite(values).all()
    assert (pdf >= 0).all()
    assert (np.diff(cdf) >= 0).all()
    assert (np.diff(sf) <= 0).all()
    np.testing.assert_allclose(cdf + sf, 1, rtol=1e-13)
    np.testing.assert_allclose(law.pdf(-y), pdf, rtol=1e-12)
    p = np.array([1e-30, 1e-9, 0.01, 0.3, 0.5, 0.9, 1 - 1e-9])
    np.testing.assert_allclose(law.cdf(law.ppf(p)), p, rtol=1e-8)
    np.testing.assert_allclose(law.sf(law.isf(p)), p, rtol=1e-8)
    h = 1e-4 * sd
    inner = np.array([0.3, 1, 2.5]) * sd
    np.testing.assert_allclose(
        (law.cdf(inner + h) - law.cdf(inner - h)) / (2 * h), law.pdf(inner), rtol=1e-5
    )
    assert law.kurtosis() >= 0
    assert law.moment(4) == pytest.approx(
        (3 + law.kurtosis()) * law.var() ** 2, rel=1e-9
    )
    assert law.mean() == 0
    assert law.entropy() <= np.log(sd) + np.log(2 * np.pi * np.e) / 2 + 1e-6
    t = np.linspace(0, 5, 7) / sd
    assert (np.abs(law.cf(t)) <= 1 + 1e-12).all()
    assert law.cf(0.0) == pytest.approx(1, abs=1e-12)
    assert np.isnan(law.pdf(np.nan))
    assert law.pdf(np.inf) == 0
    assert law.cdf(np.inf) == 1


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    s=st.integers(1, 8),
    rank=st.integers(1, 8),
    scale=st.sampled_from([1e-12, 1e-3, 1.0, 1e12]),
    heads=st.sampled_from([1, 2, 3, 100, 4096]),
    score_sd=st.sampled_from([0.1, 1.0, 2.0, 30.0]),
    var=st.sampled_from([1e-6, 1.0, 1e6]),
    seed=st.integers(0, 10**6),
)
def test_laws_stay_laws(s, rank, scale, heads, score_sd, var, seed):
    G = np.random.default_rng(seed).normal(size=(s, rank))
    K = scale * G @ G.T
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".* lie so far out in the tails")
        var_q = (score_sd / K[0, 0]) ** 2
        layer = Attention(Tokens(s, identity, K), heads=heads, var_q=var_q, var_v=var)
        check_law(layer.law().marginal(0))


@pytest.mark.long
def test_scale_and_head_limits():
    base = replace(FOUR, heads=3).law().marginal(0)
    for c in (1e-12, 1e12):
        law = (
            Attention(Tokens(4, identity, c * np.eye(4)), heads=3, var_q=c**-2)
            .law()
            .marginal(0)
        )
        np.testing.assert_allclose(
            law.pdf(SD * np.sqrt(c)) * np.sqrt(c), base.pdf(SD), rtol=1e-9
        )
    alone, many = (replace(FOUR, heads=H).law().marginal(0) for H in (1, 4096))
    gauss = norm(scale=np.sqrt(alone.var()))
    np.testing.assert_allclose(many.pdf([0.0, 1, 2]), gauss.pdf([0.0, 1, 2]), rtol=1e-3)
    for H, law in ((3, base), (4096, many)):
        assert law.kurtosis() * H == pytest.approx(alone.kurtosis(), rel=1e-8)


def test_constant_covariance_is_gaussian():
    for layer in (
        FOUR.linear_scaling(),
        FOUR.infinite_heads(),
        Attention(Tokens(1, relu), heads=5).law(),
        Attention(Tokens(3, identity, np.ones((3, 3)))).law(),
    ):
        law = layer.marginal(0)
        np.testing.assert_allclose(law.sf(SD * law.std()), norm.sf(SD), rtol=1e-9)
        check_law(law)


def test_sizes_as_in_scipy():
    law = FOUR.law(8)
    assert np.ndim(law.marginal(0).rvs()) == 0
    assert law.marginal(0).rvs(1).shape == (1,)
    assert law.rvs().shape == (4,)
    assert law.rvs(1).shape == (1, 4)
    assert (
        law.marginal(0, 16, rng=3).variances.tolist()
        == law.marginal(0, 16, 3).variances.tolist()
    )


def test_frozen_laws_state_errors():
    law = FOUR.law(8).marginal(0, 1000)
    assert law(2.0, 3.0).sf(5.0, return_error=True) == law.sf(1.0, return_error=True)
    assert law(loc=1.0).mean() == 1
    assert law(scale=2.0).std() == 2 * law.std()
    assert law(1.0).rvs(3, rng=0).tolist() == (1 + law.rvs(3, rng=0)).tolist()


@pytest.mark.power("log densities .05 apart")
def test_moments_and_density_of_the_vector():
    layer = Attention(Tokens(2, identity, [[1, 0.5], [0.5, 2]]), heads=2)
    law = layer.law(8)
    S, error = law.cov(return_error=True)
    y = law.rvs(100_000, rng=1)
    se = (y[:, :, None] * y[:, None]).std(0) / np.sqrt(len(y))
    assert (np.abs(np.cov(y.T) - S) < 6 * (se + error)).all()
    assert (law.mean() == [0, 0]).all()
    point = np.array([0.5, -0.3])
    logf, error = law.logpdf(point, return_error=True)
    h = 0.2  # a bin is not a point: its density differs by about h²/6
    share = (np.abs(y - point) < h / 2).all(1)
    assert (
        abs(share.mean() / h**2 / np.exp(logf) - 1)
        < 0.05 + 6 * share.std() / share.mean() / np.sqrt(len(y)) + 6 * error
    )
    pairs = law.logpdf(np.stack([point, -point]), draws=4096)
    assert pairs.shape == (2,)
    assert (
        pairs[0] == pytest.approx(pairs[1], rel=1e-12) == law.logpdf(-point, draws=4096)
    )
    one = Attention(Tokens(1, relu)).law()
    assert one.logpdf([0.7]) == one.marginal(0).logpdf(0.7)
    gauss = HierarchicalGaussian.constant([[2.0, 1], [1, 3]])
    assert gauss.logpdf(point, return_error=True) == (
        pytest.approx(
            multivariate_normal(cov=[[2, 1], [1, 3]]).logpdf(point), rel=1e-13
        ),
        0,
    )


def by_grid(y, K, τ, heads, nodes=161, width=8.0):
    "log f of two outputs by the trapezoidal rule, for one head or two."
    g, dg = np.linspace(-width, width, nodes, retstep=True)
    z = np.stack(np.meshgrid(g, g)).reshape(2, -1)
    a = 1 / (
        1
        + np.exp(
            -τ * np.sqrt(K[0, 0] + K[1, 1] - 2 * K[0, 1]) * np.linalg.cholesky(K) @ z
        )
    )
    A = np.stack([a, 1 - a], axis=1)
    S = np.einsum("ijn,jk,lkn->iln", A, K, A)
    log_prior = -(z * z).sum(0) / 2 + 2 * np.log(dg / np.sqrt(2 * np.pi))

    def log_normal(S):
        (u, w), (_, v) = S
        with np.errstate(all="ignore"):  # where both rows look at one token
            det = u * v - w * w
            log_f = (
                -(y[0] ** 2 * v - 2 * y[0] * y[1] * w + y[1] ** 2 * u) / det / 2
                - np.log(det) / 2
                - np.log(2 * np.pi)
            )
        return np.where(np.isnan(log_f), -np.inf, log_f)

    if heads == 1:
        return logsumexp(log_prior + log_normal(S))
    return logsumexp(
        [
            log_prior[k] + logsumexp(log_prior + log_normal((S + S[..., k, None]) / 2))
            for k in range(len(log_prior))
        ]
    )


@pytest.mark.power("densities a third of a nat apart")
@pytest.mark.parametrize("r", nightly([4, 8, 12], 4, 12))
@pytest.mark.parametrize("heads", nightly([1, 2], 2))
@pytest.mark.long
def test_joint_densities_far_out_against_quadrature(heads, r):
    K = np.array([[1, 0.3], [0.3, 1]])
    law = Attention(Tokens(2, identity, K), heads, var_q=4.0).law()
    y = r * law.marginal().std() * np.array([1, -0.95])
    value, error = law.logpdf(y, rng=r, return_error=True)
    exact = by_grid(y, K, 2.0, heads, 801 if heads == 1 else 81)
    assert error < 0.06
    assert abs(value - exact) < 9 * error


@pytest.mark.slow
@pytest.mark.parametrize(
    "K, most",
    [
        (1 + np.outer(*[np.cos(np.arange(256))] * 2), 2**28),
        pytest.param(np.eye(1024), 2**30, marks=pytest.mark.slow),
    ],
    ids=["grid", "doubling"],
)
def test_memory_is_bounded_for_many_tokens(K, most):
    "All scores of one grid would take 400 MB."
    tracemalloc.start()
    law = Attention(Tokens(len(K), identity, K)).law().marginal(0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < most
    assert 0 < law.std() < np.sqrt(K.max())


EQUAL = Attention(Tokens(2, identity, np.eye(2)), var_q=4.0)


def two_by_quadrature(t, h, K=np.eye(2), var=8.0, nodes=4000):
    """f(t, t + h) of one head and two tokens, by the trapezoidal rule in log |p − q|
    and the logit of the second row.
    """
    x = np.linspace(-12, 12, 1201) * np.sqrt(var)  # logit of the second row
    q = 1 / (1 + np.exp(-x))
    u = np.linspace(np.log(1e-12), 0, nodes)  # log |d|
    total = 0.0
    for sign in (-1, 1):
        d = sign * np.exp(u)[:, None]
        p = q + d
        inside = (p > 0) & (p < 1)
        p = np.where(inside, p, 0.5)
        logit = np.log(p / (1 - p))
        weight = (
            np.exp(-(logit**2 + x**2) / 2 / var)
            / (2 * np.pi * var)
            / (p * (1 - p))
            * np.abs(d)
        )
        z1 = t - (1 - p) * h / d  # A z = y
        z2 = t + p * h / d
        f = np.exp(-(z1**2 + z2**2) / 2) / (2 * np.pi * np.abs(d))
        total += np.trapezoid(
            np.trapezoid(np.where(inside, weight * f, 0.0), u, axis=0), x
        )
    return total


@pytest.mark.slow
def test_one_head_peaks_where_outputs_are_equal():
    """E 1/|det A| is infinite: beside y₁ = y₂ the density grows by the same amount for
    each factor 100, and logpdf follows it.
    """
    f = np.array([two_by_quadrature(1.0, h) for h in (1e-2, 1e-4, 1e-6)])
    growth = np.diff(f)
    assert (growth > 0.2).all()
    assert abs(growth[1] / growth[0] - 1) < 0.1
    for h in (1e-2, 1e-3):
        value, error = EQUAL.law().logpdf([1.0, 1 + h], rng=3, return_error=True)
        assert abs(value - np.log(two_by_quadrature(1.0, h))) < 9 * error
        assert error < 0.1
    # draws do not resolve it; a quadrature does, and the reference has four digits
    value, error = EQUAL.law().logpdf([1.0, 1 + 1e-9], return_error=True)
    assert abs(value - np.log(two_by_quadrature(1.0, 1e-9))) < 1e-4 and error < 1e-10
    value, error = EQUAL.law().logpdf(
        [[1.0, 1.0], [0.0, 0.0], [1.0, 2.0]], return_error=True
    )
    assert np.isposinf(value[:2]).all()
    assert (error[:2] == 0).all()
    assert np.isfinite(value[2])


def test_two_heads_have_no_infinite_density():
    assert np.isfinite(replace(EQUAL, heads=2).law().logpdf([1.0, 1.0]))


@pytest.mark.power("a joint density .1 off")
def test_equal_outputs_of_a_causal_head(seed=0):
    "E 1/A₂₂ = 1 + exp 4 by hand."
    value, error = (
        replace(EQUAL, mask="causal")
        .law()
        .logpdf([1.0, 1.0], rng=seed, return_error=True)
    )
    assert abs(value - (np.log1p(np.exp(4)) - 1 - np.log(2 * np.pi))) < 9 * error + 0.02


@pytest.mark.filterwarnings("ignore:.*lie so far out")
@pytest.mark.parametrize(
    "H, t",
    nightly([(1, 0.0), (2, 0.0), (2, 2.0), (8, 3.0)], (1, 0.0), (2, 0.0), (2, 2.0)),
)
@pytest.mark.long
def test_joint_density_has_the_exact_marginal(H, t):
    "∫ exp(logpdf([t, y])) dy by quadrature against the exact density of one output."
    law = replace(EQUAL, heads=H).law()
    cut = np.sort(
        np.concatenate([t + s * np.geomspace(1e-7, 12, 300) for s in (-1, 1)])
    )
    f = np.exp(
        law.logpdf(np.stack([np.full(600, t), cut], -1), draws=2**14, rng=1, islands=0)
    )
    exact = law.marginal().pdf(t)
    off = np.trapezoid(f, cut) / exact - 1
    spread = two_sided(law, t)
    assert abs(off) < 9 * spread + 3e-3
    # a density ten per cent too large is seen
    assert abs(np.trapezoid(f, 1.1 * cut) / exact - 1) > 9 * spread + 3e-3


def two_sided(law, t):
    "Relative standard error of the integral over 2**14 draws: that of E N(t; 0, S₁₁)."
    v = law.covariances(2**14, 1)[:, 0, 0]
    f = norm.pdf(t, scale=np.sqrt(v))
    return f.std() / f.mean() / 2**7


def test_limits_of_joint_densities():
    "Vanishing scores: all outputs are the same, and there is no density."
    with pytest.raises(ValueError, match="must have a density"):
        replace(EQUAL, var_q=0.0).law().logpdf([1.0, 2.0])
    # each token sees itself: independent outputs
    diagonal = replace(EQUAL, mask=np.eye(2, dtype=bool))
    assert diagonal.law().logpdf([1.0, 2.0]) == pytest.approx(
        norm.logpdf([1.0, 2.0]).sum(), abs=1e-12
    )
    # identical tokens
    twins = replace(EQUAL, tokens=Tokens(2, identity, np.ones((2, 2))))
    with pytest.raises(ValueError, match="must have a density"):
        twins.law().logpdf([1.0, 1.0])


@pytest.mark.parametrize(
    "mask, infinite",
    [
        ([[1, 1, 1], [1, 1, 0], [0, 1, 1]], True),  # no rows alike: said about 0
        ([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]], True),
        ([[1, 1, 0], [0, 1, 1], [1, 0, 1]], False),
        ([[1, 0, 0], [1, 1, 0], [1, 1, 1]], False),
    ],
    ids=["pair", "cycle of four", "cycle of three", "causal"],
)
def test_infinite_where_matchings_have_both_signs(mask, infinite):
    """Density at equal outputs: infinite where determinants of random attention
    matrices have both signs; where not, an average over them.
    """
    mask = np.array(mask, dtype=bool)
    law = Attention(
        Tokens(len(mask), identity, np.eye(len(mask))), var_q=0.25, mask=mask
    ).law()
    value, error = law.logpdf(np.ones(len(mask)), return_error=True)
    G = np.random.default_rng(0).standard_normal((50_000, *mask.shape))
    A, wide = (softmax(np.where(mask, τ * G, -np.inf)) for τ in (0.5, 4.0))
    signs = np.sign(np.linalg.det(wide))
    assert (np.ptp(signs) == 2) == infinite == np.isposinf(value)
    if infinite:
        assert error == 0
    else:
        drawn = (
            np.exp(-len(mask) / 2)
            / (2 * np.pi) ** (len(mask) / 2)
            / np.abs(np.linalg.det(A))
        )  # 1'(AA')⁻¹1 = s
        assert abs(np.exp(value) - drawn.mean()) < 6 * (
            drawn.std() / np.sqrt(len(A)) + error * np.exp(value)
        )


def test_even_cycles_by_all_permutations():
    "Perfect matchings of both signs, one by one."
    from infattn_nb.attention.peaks import both_signs

    rng = np.random.default_rng(0)
    found = []
    for s in (1, 2, 3, 4, 5):
        signs = {
            p: round(np.linalg.det(np.eye(s)[list(p)])) for p in permutations(range(s))
        }
        for _ in range(150):
            see = (rng.random((s, s)) < rng.choice([0.25, 0.4, 0.6])) | (
                rng.random() < 0.7
            ) * np.eye(s, dtype=bool)
            known = {sign for p, sign in signs.items() if see[range(s), p].all()}
            assert both_signs(see) == (len(known) == 2)
            found.append(len(known))
    assert min(np.bincount(found)) > 50


# --- against the references of benchmarks/joint.py


@pytest.mark.slow
@pytest.mark.power("joint densities half a nat off")
@pytest.mark.parametrize(
    "s, H, r",
    [(2, 8, 8), (4, 1, 4), (4, 1, 8), (4, 1, 12), (4, 2, 8), (8, 1, 8), (8, 1, 12)],
)
def test_corners_against_references(s, H, r):
    """Far out the error stated by default is at most .05 (at twelve standard
    deviations: finite), and covers the difference.
    """
    y = joint.point(s, H, r)
    exact, own, *_ = (
        (joint.by_fourier(y, H, points=40), 0.0)
        if s == 2
        else joint.by_values(y, H, 2**13, np.random.default_rng(1))
    )
    value, error = joint.layer(s, H).law().logpdf(y, rng=5, return_error=True)
    assert error < (0.1 if r == 12 else 0.05)
    assert abs(value - exact) < 7 * error + 7 * own


@pytest.mark.long
def test_the_stored_table_of_joint_densities():
    "A row again; every row within four stated errors."
    table = joint.pd.read_csv(joint.DATA / "joint.csv")
    assert len(table) == len(joint.CASES) == 36
    row = table[(table.s == 2) & (table.heads == 1) & (table.r == 4)].iloc[0]
    assert row["value"] == pytest.approx(
        joint.estimates(2, 1, 4, range(1), 0)[0][0, 0], rel=1e-5
    )
    assert row["exact"] == pytest.approx(
        joint.by_sums(joint.point(2, 1, 4), 1), rel=1e-5
    )
    assert (table.worst < 4).all()
    assert (table.error[table.r <= 8] <= 0.05).all()


@pytest.mark.parametrize("var_q", [4.0, 9.0, 100.0])
@pytest.mark.parametrize("c", [-0.99, -0.9, -0.6])
@pytest.mark.long
def test_opposite_tokens_have_many_digits(c, var_q):
    "Doubling lost digits where c + u is small (1.4 % at c = −.99)."
    K = np.array([[1, c], [c, 1]])
    layer = Attention(Tokens(2, identity, K), var_q=var_q)
    law = layer.law().marginal()
    sd = np.sqrt(2 * (1 - c) * var_q)
    d = np.linspace(-9, 9, 400_001) * sd  # the difference of the two scores
    w = norm.pdf(d / sd)
    w /= w.sum()
    a = expit(d)
    v = c + (1 - c) * (a * a + (1 - a) ** 2)
    at = np.array([0.0, 0.5, 2.0])
    exact = (norm.pdf(at[:, None] / np.sqrt(v)) / np.sqrt(v)) @ w
    found, error = law.pdf(at, return_error=True)
    np.testing.assert_allclose(found, exact, rtol=1e-9)
    assert (error < 1e-9 * found).all()


@pytest.mark.parametrize("s, c", [(6, -0.19), (8, -0.13)])
@pytest.mark.slow
def test_small_variances_of_many_tokens_state_more(s, c):
    "The second discretisation is rougher there; the disturbance moves u alone."
    from infattn_nb.attention.rows import COMMON_ERROR, row_mixture

    k = np.full(s, 1 - c)
    law = row_mixture(k, 2 * np.sqrt(k), c)
    _, error = law.pdf(0.0, return_error=True)
    plain = row_mixture(k, 2 * np.sqrt(k), 0.0)
    _, small = plain.pdf(0.0, return_error=True)
    assert error / law.pdf(0.0) > 10 * small / plain.pdf(0.0)
    _, least = law.var(return_error=True)
    u = law.var() - c
    assert least >= COMMON_ERROR * u / 2


@pytest.mark.parametrize("method", ["logsf", "sf", "logpdf", "logcdf"])
def test_marginals_warn_where_the_tail_is_not_known(method):
    "At forty standard deviations the logarithm was 55 off, without a word."
    law = Attention(Tokens(3, identity), var_q=0.01).law().marginal()
    far = 40 * law.std()
    ask = getattr(law, method)
    with pytest.warns(UserWarning, match="1 of 1 points lie so far out"):
        ask(-far if method == "logcdf" else far)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ask(6 * law.std())
        ask(far, return_error=True)


def test_quantiles_warn_where_the_tail_is_not_known():
    law = Attention(Tokens(3, identity), var_q=0.01).law().marginal()
    with pytest.warns(UserWarning, match="far out"):
        law.isf(1e-300)
    with pytest.warns(UserWarning, match="far out"):
        law(1.0, 2.0).logsf(100.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        law.isf(1e-9)


@pytest.mark.power("errors stated from batches, half of the truth at 40 deviations")
def test_averages_over_draws_state_no_error_that_few_draws_carry():
    "Heads of unequal variances are drawn: at forty deviations .11 off, .046 stated."
    layer = Attention(Tokens(4, identity), heads=2, var_o=[1.0, 2.0], var_q=4.0)
    law = layer.law().marginal()
    value, error = law.logsf([3 * law.std(), 40 * law.std()], return_error=True)
    assert error[0] < 0.1
    assert error[1] == np.inf
    _, error = law.sf(40 * law.std(), return_error=True)
    assert error == np.inf


def test_the_marginal_of_a_layer_is_that_of_its_last_output():
    causal = Attention(Tokens(4, identity), mask="causal", var_q=4.0).law()
    assert causal.marginal().kurtosis() == causal.marginal(3).kurtosis() > 0.1
