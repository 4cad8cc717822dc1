"What may be changed in the layer: weights, masks, biases, narrow heads."

import numpy as np
import pytest
from scipy.stats import ks_2samp

from infattn_nb import Attention, CommonTokens, Tokens
from infattn_nb.attention import simulate_dense
from infattn_nb.convergence import cross_mask, distance_bias, equicorrelated, gaussian
from infattn_nb.convergence import positions, rademacher, simulate_weights, sparse
from infattn_nb.convergence import student, uniform
from infattn_nb.nonlinearities import identity, relu, tanh

KINDS = {
    "gaussian": gaussian,
    "uniform": uniform,
    "rademacher": rademacher,
    "sparse": sparse(0.2),
    "student": student(5),
}
LAYERS = {
    "A.1 tokens, 2 heads": (Attention(CommonTokens(2, relu), heads=2), 6),
    "low rank": (Attention(CommonTokens(2, identity), heads=3, head_width=2), 6),
    "mask and bias": (
        Attention(
            Tokens(3, tanh, equicorrelated(3, 0.4)),
            mask="causal",
            bias=distance_bias(3),
        ),
        5,
    ),
    "1/n scores, variances": (
        Attention(
            Tokens(2, identity, np.eye(2)),
            scaling="linear",
            var_q=4.0,
            var_k=2.0,
            var_v=0.5,
            var_o=3.0,
        ),
        4,
    ),
}


@pytest.mark.power("distribution functions .046 apart")
@pytest.mark.parametrize("name", LAYERS)
def test_gaussian_entries_give_the_recipe(name):
    """Outputs and scores of the explicit simulation against the collapsed law
    (two-sample Kolmogorov–Smirnov, p > 1e-9).
    """
    layer, n = LAYERS[name]
    y, p = simulate_weights(layer, gaussian, n, size=10_000, rng=0, scores=True)
    z, q = layer.law(n).rvs(10_000, rng=1), layer.scores(n, 10_000, rng=1)
    for a, b in (
        (y[:, 0], z[:, 0]),
        (y[:, -1], z[:, -1]),
        (y.sum(1), z.sum(1)),
        (p[:, 0, 1, 0], q[:, 0, 1, 0]),
        (p[:, -1].sum((1, 2)), q[:, -1].sum((1, 2))),
    ):
        assert ks_2samp(a, b).pvalue > 1e-9
    assert ks_2samp(y[:, 0], 1.5 * z[:, 0]).pvalue < 1e-6  # power of the check


@pytest.mark.power("means .016 off, variances 1.4 to 6 %")
@pytest.mark.parametrize("name", KINDS)
def test_entries_have_mean_zero_and_variance_one(name):
    x = KINDS[name](np.random.default_rng(0), (100, 50, 40)).ravel()
    assert abs(x.mean()) < 7 / x.size**0.5
    assert abs((x**2).mean() - 1) < 7 * (x**2).std() / x.size**0.5 + 1e-12
    assert x.dtype == float


@pytest.mark.power("15 %, 39 % for heavy tails")
@pytest.mark.parametrize("name", KINDS)
def test_second_moments_do_not_know_the_entries(name):
    """Given tokens N(0, I): E G_12² = 1 exactly at every width, for all entries of
    variance one; so is E of y² for uniform weights.
    """
    layer = Attention(Tokens(2, identity, np.eye(2)))
    G = (
        simulate_weights(layer, KINDS[name], 5, size=20_000, rng=0, scores=True)[1][
            :, 0
        ]
        ** 2
    )
    assert abs(G[:, 0, 1].mean() - 1) < 10 * G[:, 0, 1].std() / 20_000**0.5
    flat = (
        simulate_weights(
            Attention(Tokens(2, identity, np.eye(2)), var_q=0.0),
            KINDS[name],
            5,
            size=20_000,
            rng=0,
        )[:, 0]
        ** 2
    )
    assert abs(flat.mean() - 0.5) < 10 * flat.std() / 20_000**0.5


@pytest.mark.power("frequencies 7e-4 and 5e-4, which are apart by more")
def test_heavy_tails_are_slow():
    "Beyond 5 sd at n = 32: t with 2.5 degrees of freedom far above random signs."
    layer = Attention(Tokens(2, identity, np.eye(2)))
    σ = layer.law().marginal(0).std()
    far = [
        (
            np.abs(simulate_weights(layer, e, 32, size=1500, rng=0, coords=16)) > 5 * σ
        ).mean()
        for e in (student(2.5), rademacher)
    ]
    assert far[0] > 7e-4
    assert far[1] < 5e-4


def test_shapes_and_seeds():
    layer = Attention(CommonTokens(3, relu), heads=2)
    y, p = simulate_weights(
        layer, uniform, 4, size=(2, 5), rng=0, coords=7, scores=True
    )
    assert y.shape == (2, 5, 3, 7)
    assert p.shape == (2, 5, 2, 3, 3)
    assert simulate_weights(layer, uniform, 4, rng=0).shape == (1, 3)
    assert simulate_weights(layer, uniform, 4, size=0).shape == (0, 3)
    np.testing.assert_array_equal(
        simulate_weights(layer, uniform, 4, size=(2, 5), rng=0, coords=7), y
    )
    np.testing.assert_array_equal(
        simulate_weights(layer, uniform, 4, size=5000, rng=1)[:4096],
        simulate_weights(layer, uniform, 4, size=4096, rng=1),
    )  # block by block


@pytest.mark.power("kurtosis 7 % off")
@pytest.mark.parametrize("H", [1, 3])
@pytest.mark.long
def test_first_token_under_a_causal_mask(H):
    "Limit N(0, K_11); at width n the kurtosis 3[(1 + 2/n)²(1 + 2/(nH)) − 1]."
    layer, n = Attention(CommonTokens(3, identity), heads=H, mask="causal"), 12
    σ, k = positions(layer)[0]
    assert σ == pytest.approx(1.0, rel=1e-12)
    assert abs(k) < 1e-12
    k, se = layer.law(n).marginal(0, draws=2**17).kurtosis(return_error=True)
    exact = 3 * ((1 + 2 / n) ** 2 * (1 + 2 / (n * H)) - 1)
    assert abs(k - exact) < 12 * se
    assert 12 * se < 0.5 * exact


@pytest.mark.long
def test_causal_mask_only_counts_what_is_seen():
    "Position i of a longer sequence has the law of the last position of i tokens."
    long, short = (
        Attention(CommonTokens(4, relu), mask="causal"),
        Attention(CommonTokens(2, relu)),
    )
    np.testing.assert_allclose(positions(long)[1], positions(short)[1], rtol=1e-9)


@pytest.mark.power("standard deviations 5 % off")
def test_positions_at_finite_width():
    layer = Attention(CommonTokens(2, identity), mask="causal")
    y = layer.law(8).rvs(100_000, rng=3)
    np.testing.assert_allclose(positions(layer, 8)[:, 0], y.std(0), rtol=0.05)


def test_bias():
    np.testing.assert_array_equal(
        distance_bias(3, 2.0), [[0, -2, -4], [-2, 0, -2], [-4, -2, 0]]
    )
    np.testing.assert_allclose(
        positions(Attention(CommonTokens(2, relu), bias=distance_bias(2, 0.0))),
        positions(Attention(CommonTokens(2, relu))),
        rtol=1e-12,
    )
    strong = positions(Attention(CommonTokens(2, relu), bias=distance_bias(2, 60.0)))
    np.testing.assert_allclose(strong, [[0.5**0.5, 0]] * 2, atol=1e-6)


@pytest.mark.parametrize("s, H", [(2, 1), (2, 5), (3, 2)])
def test_kurtosis_of_nearly_equal_tokens(s, H):
    "(3/H)·2(s − 1)/s⁴·ε⁴ up to O(ε); ε³ or ε⁵ would be off by 100."
    ε = 0.01
    k = (
        Attention(Tokens(s, identity, equicorrelated(s, 1 - ε)), heads=H)
        .law()
        .marginal(0)
        .kurtosis()
    )
    assert k == pytest.approx(6 * (s - 1) / (H * s**4) * ε**4, rel=6 * ε)


def test_equal_tokens_are_gaussian_given_their_length():
    layer = Attention(Tokens(3, identity, np.ones((3, 3))), heads=2)
    np.testing.assert_allclose(layer.law().covariances(50, rng=0), 1.0, atol=1e-12)
    S = layer.law(7).covariances(50, rng=0)  # finite width: still all outputs alike
    np.testing.assert_allclose(S, S[:, :1, :1] * np.ones((1, 3, 3)), rtol=1e-9)


@pytest.mark.power("distribution functions .033 apart; a covariance of .09 .05 off")
def test_cross_attention():
    np.testing.assert_array_equal(cross_mask(1, 2), [[False, True, True]] * 3)
    block = np.array([[1.0, 0.3], [0.3, 1.0]])
    y = np.linspace(0, 3, 7)
    laws = [
        Attention(
            Tokens(4, identity, np.block([[block, B], [B.T, block]])),
            mask=cross_mask(2, 2),
        ).law()
        for B in (0 * block, block, np.array([[0.5, 0], [0.2, 0.1]]))
    ]
    f = [law.marginal(0).pdf(y) for law in laws]
    np.testing.assert_allclose(f[1:], [f[0]] * 2, rtol=1e-9)
    # two queries: K_12 does not enter their joint law either
    S = laws[2].covariances(20_000, rng=0)[:, :2, :2]
    T = laws[0].covariances(20_000, rng=1)[:, :2, :2]
    assert ks_2samp(S[:, 0, 1], T[:, 0, 1]).pvalue > 1e-9
    scores = Attention(
        Tokens(4, identity, np.block([[block, block], [block, block]])),
        mask=cross_mask(2, 2),
    ).scores(np.inf, 50_000, rng=0)[:, 0]
    # (K_11)_12 (K_22)_12
    assert abs((scores[:, 0, 2] * scores[:, 1, 3]).mean() - 0.09) < 0.05


@pytest.mark.power("kurtosis 6 % off")
@pytest.mark.parametrize("m, H", [(1, 4), (3, 10), (16, 2)])
def test_narrow_heads_keep_their_wishart_factors(m, H):
    """Flat weights (σ_Q = 0): v = ū·mean of χ²_m/m, kurtosis exactly 6/(mH), whatever
    the width of the tokens.
    """
    p = (
        Attention(CommonTokens(2, identity), heads=H, head_width=m, var_q=0.0)
        .law()
        .marginal(0, draws=2**17)
    )
    k, se = p.kurtosis(return_error=True)
    assert abs(k - 6 / (m * H)) < 12 * se
    assert 12 * se < 0.6 * 6 / (m * H)
    assert p.var() == pytest.approx(0.5, rel=0.05)


@pytest.mark.slow
@pytest.mark.power("powers of m above −1.2 or below −2.7")
def test_wide_heads_recover_the_limit():
    "KL to the limit of the same H falls with m like m^(−2)."
    from infattn_nb import kl_divergence

    D = [
        kl_divergence(
            Attention(CommonTokens(2, identity), heads=2, head_width=m)
            .law()
            .marginal(0, draws=2**17),
            Attention(CommonTokens(2, identity), heads=2).law().marginal(0),
        )
        for m in (4, 16)
    ]
    assert 5 < D[0] / D[1] < 40


def test_a_width_may_be_a_float():
    "One parser of widths: 4, 4. and np.float32(4) are the same width everywhere."
    layer = Attention(CommonTokens(2, identity))
    for n in (4.0, np.float32(4), np.int64(4)):
        np.testing.assert_array_equal(
            simulate_weights(layer, rademacher, n, size=3, rng=0),
            simulate_weights(layer, rademacher, 4, size=3, rng=0),
        )
        np.testing.assert_array_equal(
            simulate_dense(layer, n, 3, rng=0), simulate_dense(layer, 4, 3, rng=0)
        )


def test_gaussian_entries_are_the_reference():
    "With Gaussian entries it is `simulate_dense`, to the last digits."
    layer = Attention(CommonTokens(3, relu), heads=1, mask="causal")
    y, G = simulate_weights(layer, gaussian, 5, size=100, rng=0, coords=5, scores=True)
    z, F = simulate_dense(layer, 5, 100, rng=0, scores=True)
    np.testing.assert_allclose(y[..., 0], z, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(G, F, rtol=1e-9, atol=1e-12)
