"A layer is what its arguments say; widths share their normals."

import numpy as np
import pytest
from scipy.stats import ks_2samp

from infattn_nb import Attention, CommonTokens, Tokens
from infattn_nb.nonlinearities import clip, identity, relu, softmax

FOUR = Attention(Tokens(4, identity))


def _hardest(G):
    return (G == G.max(-1, keepdims=True)) * 1.0


def test_weights_that_jump():
    """All weight on the largest score: one token of unit length, v = 1 exactly. Rules
    whose axes are alike put whole diagonals on the jump.
    """
    law = Attention(Tokens(3, identity), weights=_hardest).law().marginal(0)
    assert abs(law.var() - 1) < 1e-12
    assert abs(law.kurtosis()) < 1e-12


def test_equal_layers_are_equal_and_share_their_limit():
    make = lambda **changes: Attention(
        Tokens(3, clip(100.0), np.eye(3)),
        **dict(heads=2, mask="causal", bias=np.eye(3)) | changes,
    )
    a, b = make(), make(mask=np.tri(3, dtype=bool))
    assert a == b
    assert hash(a) == hash(b)
    assert a.law().marginal(0) is a.law().marginal(0)
    assert len({a, b}) == 1
    others = (
        make(heads=3),
        make(bias=2 * np.eye(3)),
        make(mask=None),
        make(weights=relu),
        Attention(Tokens(3, clip(100.0)), heads=2),
        "layer",
    )
    assert all(a != x for x in others)
    assert Tokens(3, relu) == Tokens(3, relu) != Tokens(3, relu, 2 * np.eye(3))


def test_outputs_count_from_the_end():
    for law in (FOUR.law(), FOUR.law(8)):
        assert law.marginal(-1).pdf(1.0) == law.marginal(3).pdf(1.0)


@pytest.mark.parametrize("rank", [2, 3, 5])
def test_gram_matrices_of_singles(rank):
    "X Xᵀ in single precision has eigenvalues of −1e-7: a Gram matrix all the same."
    X = np.random.default_rng(0).standard_normal((12, rank)).astype(np.float32)
    tokens = Tokens(12, identity, X @ X.T)
    assert np.linalg.eigvalsh(tokens.cov)[0] > -1e-13
    np.testing.assert_allclose(tokens.cov, X @ X.T, atol=1e-5)
    Attention(tokens).law().rvs(3, rng=0)
    with pytest.raises(ValueError, match="positive semidefinite"):
        Tokens(12, identity, (X @ X.T).astype(float) - 1e-3 * np.eye(12))


@pytest.mark.slow
def test_a_new_layer_has_a_new_law():
    temperature = [1.0]

    def weights(G):
        return softmax(G / temperature[0])

    def variance():
        layer = Attention(Tokens(3, identity, np.eye(3)), weights=weights)
        return layer.law().marginal(0).var()

    first = variance()
    temperature[0] = 100.0
    assert first > variance() + 0.1
    np.testing.assert_allclose(variance(), 1 / 3, rtol=1e-3)


@pytest.mark.parametrize("s", [4, 16])
def test_widths_share_their_normals(s):
    "Of one seed, draws of wide layers lie near those of the limit."
    layer = Attention(CommonTokens(s, identity), heads=3, var_q=4.0)
    limit = layer.law().covariances(8, rng=0)
    wide = layer.law(10**8).covariances(8, rng=0)
    np.testing.assert_allclose(wide, limit, atol=0.01)
    other = layer.law().covariances(8, rng=1)
    assert abs(other - limit).max() > 0.1


@pytest.mark.power("distribution functions .023 apart")
def test_coordinates_of_a_clipped_layer_may_use_the_identity(size=40_000):
    layer = Attention(CommonTokens(4, clip(100.0)), heads=2)
    assert 0 < layer.law(16).tv_error < 1e-100
    assert layer.law(16, exact=True).tv_error == 0
    fast, exact = (layer.law(16, exact=e).rvs(size, rng=int(e)) for e in (False, True))
    assert ks_2samp((fast**2).sum(1), (exact**2).sum(1)).pvalue > 1e-9
