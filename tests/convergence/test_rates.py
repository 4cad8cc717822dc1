"The first correction to the limit and the constant of the n^(−2) law."

import numpy as np
import pytest
from conftest import nightly
from scipy.stats import norm

from infattn_nb import Attention, CommonTokens, ScaleMixture, Tokens, paired_kl
from infattn_nb.convergence import first_order, fluctuations, kde, kl_constant
from infattn_nb.convergence import noise_floor, scaled_difference, smoothed
from infattn_nb.convergence.rates import _stencil
from infattn_nb.nonlinearities import clip, identity, relu, tanh
from infattn_nb.numerics.quadrature import line


def by_hand(H, spread=4.0):
    return 12 * ((spread + 2 / H) / 8) ** 2


@pytest.mark.parametrize("H", [1, 2, 7, 64])
@pytest.mark.long
def test_one_token(H):
    """v = r² w mean(τ): relative variance (4 + 2/H)/n with A.1's shared length, (2 +
    2/H)/n without.
    """
    assert kl_constant(Attention(CommonTokens(1, identity), heads=H)) == pytest.approx(
        by_hand(H), rel=1e-3
    )
    assert kl_constant(
        Attention(Tokens(1, identity, [[3.0]]), heads=H, var_o=0.2)
    ) == pytest.approx(by_hand(H, 2.0), rel=1e-3)
    y = np.linspace(-4, 4, 9)
    np.testing.assert_allclose(
        first_order(Attention(CommonTokens(1, identity), heads=H), y),
        (4 + 2 / H) / 8 * (y**4 - 6 * y**2 + 3) * norm.pdf(y),
        atol=3e-4,
    )


def test_one_token_of_any_activation():
    "n Var(v)/E[v]² = Var φ²/E[φ²]² + 2/H: for ReLU 5 + 2/H."
    layer = Attention(Tokens(1, relu, [[1.0]]), heads=2)
    assert kl_constant(layer) == pytest.approx(by_hand(2, 5.0), rel=2e-3)


@pytest.mark.parametrize("activation, spread", [(identity, 2.0), (relu, 5.0)])
@pytest.mark.long
def test_equal_tokens_are_one_token(activation, spread):
    "Also where the kernel is singular, or nearly."
    for ρ in (1.0, 0.9999):
        assert kl_constant(
            Attention(Tokens(2, activation, [[1.0, ρ], [ρ, 1.0]]), heads=2)
        ) == pytest.approx(by_hand(2, spread), rel=2e-3)


def test_first_position_under_a_causal_mask():
    layer = Attention(CommonTokens(3, identity), heads=2, mask="causal")
    assert kl_constant(layer, 0) == pytest.approx(by_hand(2), rel=1e-3)


def test_drift():
    """One tanh token of A.1: K_n = mean of φ(r h)²; its mean is K + B/n, and v has that
    drift too.
    """
    layer = Attention(CommonTokens(1, tanh), heads=1)
    D, B = fluctuations(layer.tokens)
    K, y = layer.tokens.kernel()[0, 0], np.linspace(0, 2, 5)
    f = norm(scale=K**0.5).pdf(y)
    He2, He4 = (z := y / K**0.5) ** 2 - 1, z**4 - 6 * z**2 + 3
    expected = ((D**2).sum() / K**2 + 2) / 8 * He4 * f + B[0, 0] / K / 2 * He2 * f
    np.testing.assert_allclose(first_order(layer, y), expected, atol=2e-3)
    # without the drift it would not agree
    assert np.abs(expected - ((D**2).sum() / K**2 + 2) / 8 * He4 * f).max() > 0.1


LAYERS = {
    "ReLU": (Attention(CommonTokens(2, relu), heads=2), 0, 64),
    "correlated tanh": (
        Attention(Tokens(2, tanh, [[1.0, 0.6], [0.6, 2.0]]), heads=3, var_q=2.0),
        1,
        64,
    ),
    "causal with bias": (
        Attention(CommonTokens(3, identity), mask="causal", bias=np.eye(3)),
        1,
        10**6,
    ),
    "identity weights": (
        Attention(Tokens(2, identity, np.eye(2)), heads=2, weights=np.tanh),
        0,
        10**6,
    ),
    "unequal variances": (
        Attention(CommonTokens(2, identity), heads=2, var_q=0.5, var_k=3.0, var_v=2.0),
        0,
        10**6,
    ),
}


@pytest.mark.power(
    "two fifths of the largest correction at the worst point, a fifth at most"
)
@pytest.mark.parametrize(
    "name", nightly(LAYERS, "unequal variances", "correlated tanh", "identity weights")
)
@pytest.mark.long
def test_first_order_against_sampling(name, size=2**16):
    "n(f_n − f) by paired draws; 8 standard errors and 5/n for the next order."
    layer, i, n = LAYERS[name]
    y = np.linspace(0, 3, 7) * layer.law().marginal(i).std()
    f1 = first_order(layer, y, i)
    measured, se = scaled_difference(layer, n, y, i=i, draws=size, rng=0)
    scale = np.abs(f1).max()
    assert (np.abs(measured - f1) < 8 * se + (1e-3 + 5 / n) * scale).all()


def test_first_order_keeps_mass_and_is_even():
    layer = LAYERS["ReLU"][0]
    y, w = line(layer.law().marginal(0).std())
    f1 = first_order(layer, y)
    assert abs(w @ f1) < 1e-6
    assert w @ np.abs(f1) > 0.1
    np.testing.assert_allclose(first_order(layer, -y[:5]), f1[:5], rtol=1e-8)


@pytest.mark.power("12 % of the constant; two wrong versions are further off")
@pytest.mark.long
def test_nearly_right_versions_fail():
    "Without the heads' own fluctuations, or with one coin for all heads."
    layer = Attention(CommonTokens(2, identity), heads=2)
    law = layer.law().marginal(0)
    y, w = line(law.std())
    f, c = law.pdf(y), kl_constant(layer)
    D, se = paired_kl(layer, 10**6, draws=2**16, rng=0)
    assert abs(1e12 * D - c) < 10e12 * se
    assert 10e12 * se < 0.2 * c
    terms = _stencil(layer, 0, 0.01)
    without_heads = sum(a * p.pdf(y) for a, p in terms[:-4])
    common = sum(
        2e4 * (Attention(layer.tokens, 2, **{k: v}).law().marginal(0).pdf(y) - f) / 2
        for k in ("var_o", "var_q")
        for v in (1.01, 0.99)
    )
    for wrong in (without_heads, without_heads + common):
        assert (
            abs(0.5 * w @ np.divide(wrong**2, f, out=0 * f, where=f > 1e-200) - c)
            > 20e12 * se / 2
        )


@pytest.mark.slow
def test_paper_layer():  # daily on the page of the rates
    "4 tokens clipped at 100, 2 heads: 11.066 ± 0.006 (an independent measurement)."
    c = kl_constant(Attention(CommonTokens(4, clip(100.0)), heads=2))
    assert c == pytest.approx(11.066, abs=0.03)


@pytest.mark.power(".15, for covariances up to 1.25")
def test_fluctuations_cover_the_gram_matrix():
    tokens = Tokens(2, relu, [[1.0, 0.3], [0.3, 1.0]])
    D, B = fluctuations(tokens)
    Δ = 10 * (tokens.gram(100, 40_000, rng=0) - tokens.kernel()).reshape(-1, 4)
    assert not B.any()
    np.testing.assert_allclose(
        np.cov(Δ.T),
        np.einsum("ki,kj->ij", D.reshape(-1, 4), D.reshape(-1, 4)),
        atol=0.15,
    )


@pytest.mark.slow
def test_gaussian_of_many_heads_keeps_a_constant():
    "H → ∞: the heads' fluctuations go, those of K_n stay."
    c = [
        kl_constant(Attention(CommonTokens(2, identity), heads=H))
        for H in (1, 4, 64, 1024)
    ]
    assert c[0] > c[1] > c[2] > c[3] > 4
    assert c[2] - c[3] < 0.1


@pytest.mark.power("2.4 % in the middle, .002 in the tails")
def test_smoothed():
    "Against the mean of many kernel density estimates."
    law, N, y = (
        Attention(CommonTokens(2, identity)).law().marginal(0),
        500,
        np.linspace(-3, 3, 13),
    )
    estimates = np.array([kde(law.rvs(N, rng=k), y) for k in range(400)])
    se = estimates.std(0, ddof=1) / 20
    # 2e-3: the bandwidth is itself estimated
    assert (np.abs(estimates.mean(0) - smoothed(law, N).pdf(y)) < 7 * se + 2e-3).all()
    assert np.abs(law.pdf(0.0) - smoothed(law, N).pdf(0.0)) > 0.02


@pytest.mark.parametrize(
    "v, w",
    [
        ([0.0], None),
        ([0.0, 0.0], None),
        ([0.0, 1.0], None),
        ([0.0, 1.0, 3.0], [0.5, 0.25, 0.25]),
        ([2.0, 2.0, 5.0], None),
    ],
)
def test_smoothed_widens_every_variance_also_zero(v, w):
    law = ScaleMixture(v, w)
    wide, h2 = smoothed(law, 100), law.var() * 100**-0.4
    assert wide.var() == pytest.approx(law.var() + h2)
    assert wide.w.sum() + wide.atom == pytest.approx(1)
    np.testing.assert_allclose(np.unique(wide.variances), np.unique(v) + h2)


@pytest.mark.parametrize("y", [1.0, [0.0, 1.0, 2.0], [[0.0, 1.0], [2.0, 3.0]], []])
def test_scaled_difference_keeps_the_shape(y):
    layer = Attention(CommonTokens(2, identity), heads=2)
    difference, error = scaled_difference(layer, 8, y, draws=64, rng=0)
    assert np.shape(difference) == np.shape(error) == np.shape(y)
    np.testing.assert_array_equal(
        np.ravel(difference),
        scaled_difference(layer, 8, np.ravel(y), draws=64, rng=0)[0],
    )


@pytest.mark.parametrize("step", nightly([1e-4, 0.03], 1e-4))
def test_every_admitted_step_will_do(step):
    layer = Attention(CommonTokens(2, identity), heads=2)
    assert kl_constant(layer, step=step) == pytest.approx(kl_constant(layer), rel=2e-3)


def test_noise_floor():
    for N in (1000, 50_000):
        h = N**-0.2
        ℓ = 2 * np.sqrt(2 * np.log(N * h / np.sqrt(2 * np.pi)))
        assert noise_floor(norm(), N) == pytest.approx(
            ℓ / (2 * np.sqrt(np.pi) * N * h), rel=1e-3
        )
    assert noise_floor(norm(scale=100.0), 1000) == pytest.approx(
        noise_floor(norm(), 1000), rel=1e-9
    )
    assert noise_floor(ScaleMixture([1.0], [1.0]), 1000) == pytest.approx(
        noise_floor(norm(), 1000), rel=1e-9
    )
