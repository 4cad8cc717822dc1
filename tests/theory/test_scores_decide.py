"Mixtures of experts: shares and the law of one output, by integrals."

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import multivariate_normal, norm

from infattn_nb import FeedForward
from infattn_nb.theory import common_experts, concentrated, output_of_experts
from infattn_nb.transformer import Experts


def same_first(c, m, points=40):
    "m ∫ φ₂ Φ₂^{m−1}: both tokens have their largest logit at one expert."
    x, w = np.polynomial.legendre.leggauss(points)
    x, w = 6 * x, 6 * w
    pairs = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1)
    law = multivariate_normal([0, 0], [[1, c], [c, 1]])
    below = law.cdf(pairs.reshape(-1, 2)).reshape(points, points)
    return m * w @ (law.pdf(pairs) * below ** (m - 1)) @ w


@pytest.mark.power("a share wrong by four standard errors, .02")
@pytest.mark.parametrize("c, m", [(0.5, 2), (0.5, 3), (0.7, 8), (-0.4, 4)])
def test_share_of_common_experts(c, m):
    share, error = common_experts(c, m, return_error=True)
    assert abs(share - same_first(c, m)) < 6 * error + 1e-4
    assert error < 0.005


def test_closed_forms():
    "Two experts, orthogonal and equal tokens, all experts; and by draws next to them."
    assert common_experts(0.3, 2) == 1 - np.arccos(0.3) / np.pi
    assert common_experts(0.0, 64, 8) == 1 / 8
    assert common_experts(1.0, 64, 8) == common_experts(-1.0, 5, 5) == 1
    share, error = common_experts(1e-9, 64, 8, return_error=True)
    assert abs(share - 1 / 8) < 6 * error
    assert common_experts(0.3, 2, return_error=True)[1] == 0


@pytest.mark.parametrize("rng", [0, 1])
def test_all_tokens_at_one_expert(rng):
    "Two tokens: the share of common experts. Independent tokens: m^(1 − s)."
    both = concentrated(0.7, 2, 8, rng=rng)
    assert abs(both - same_first(0.7, 8)) < 6 * 0.5 / 2**7
    p = 3.0**-3
    assert abs(concentrated(0.0, 4, 3, rng=rng) - p) < 6 * np.sqrt(p / 2**14)


@pytest.mark.parametrize("var_r", [0.3, 1.0, 4.0])
def test_kurtosis_of_an_output(var_r):
    "Two of two experts: Q = σ² + (1 − σ)², σ a sigmoid of a normal variable."
    sd = np.sqrt(2 * var_r)

    def moment(k):
        def at(z):
            g = expit(sd * z)
            return (g * g + (1 - g) ** 2) ** k * norm.pdf(z)

        return quad(at, -9, 9)[0]

    law = output_of_experts(Experts(2, 2, var_r=var_r), variance=3.0)
    excess, error = law.kurtosis(return_error=True)
    exact = 3 * (moment(2) / moment(1) ** 2 - 1)
    assert abs(excess - exact) < 6 * error
    assert abs(law.var() / (3 * moment(1)) - 1) < 0.02


def test_one_chosen_expert_is_a_gaussian():
    assert abs(output_of_experts(Experts(8, 1)).kurtosis()) < 1e-12


def test_bad_input():
    with pytest.raises(ValueError, match="`chosen` must be at most the 4 experts"):
        common_experts(0.5, 4, 5)
    with pytest.raises(ValueError, match="`cosine` must be"):
        common_experts(1.5, 4)
    with pytest.raises(ValueError, match="have no shared expert"):
        output_of_experts(Experts(4, 1, shared=FeedForward()))
