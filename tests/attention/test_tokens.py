"""Tokens and their Gram matrices: independent or common vectors, and stated errors."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from error_cases import steep_moment

from infattn_nb import Attention, Tokens
from infattn_nb.nonlinearities import identity, relu


@pytest.mark.power("a kurtosis .1 off")
@pytest.mark.long
def test_independent_tokens_are_not_those_of_a_common_vector(n=64, seed=0):
    "One name meant two laws: kurtosis .46 and .24."
    from infattn_nb import CommonTokens
    from infattn_nb.nonlinearities import gelu

    def kurtosis(tokens):
        law = Attention(tokens).law(n).marginal(draws=2**16, rng=seed)
        return law.kurtosis(return_error=True)

    (common, e1), (apart, e2), (given, e3) = map(
        kurtosis, (CommonTokens(6, gelu), Tokens(6, gelu), Tokens(6, gelu, np.eye(6)))
    )
    assert abs(apart - given) < 6 * np.hypot(e2, e3) < 0.1
    assert common - apart > 6 * np.hypot(e1, e2)
    assert (
        repr(Tokens(6, gelu)) == repr(Tokens(6, gelu, np.eye(6))) == "Tokens(6, gelu)"
    )
    assert repr(CommonTokens(6, gelu)) == "CommonTokens(6, gelu)"
    assert repr(Attention(CommonTokens(6, gelu))) == "Attention(CommonTokens(6, gelu))"
    assert Tokens(6, gelu) == Tokens(6, gelu, np.eye(6)) != CommonTokens(6, gelu)
    np.testing.assert_array_equal(
        CommonTokens(6, gelu).kernel(), Tokens(6, gelu).kernel()
    )


@pytest.mark.parametrize("excess", [1e-16, 1e-15, 1e-14, 1e-13, 9e-13])
@pytest.mark.parametrize("φ", [identity, relu], ids=str)
def test_tokens_that_are_equal_but_for_rounding(φ, excess):
    "Correlations of 1 + 1e-13 passed, and failed in `law` under another name."
    K = np.array([[1, 1 + excess], [1 + excess, 1]])
    tokens = Tokens(2, φ, K)
    assert np.linalg.eigvalsh(tokens.hidden_cov)[0] > -2e-14
    law = Attention(tokens).law()
    assert law.marginal().var() == pytest.approx(tokens.kernel()[0, 0], rel=1e-12)
    law.rvs(3, rng=0)


@pytest.mark.parametrize(
    "options",
    [
        dict(cov=1e-310),
        dict(cov=5e-324),
        dict(cov=1e-149, var_v=1e-149),
        dict(cov=1e-200, var_o=1e-200),
    ],
    ids=str,
)
def test_tokens_that_floats_cannot_hold(options):
    "Their outputs had a standard deviation of 0."
    cov = options.pop("cov")
    with pytest.raises(
        ValueError, match="`var_v·var_o·cov` must be 0 or at least 1e-290"
    ):
        Attention(Tokens(2, identity, cov * np.eye(2)), **options).law()
    assert (
        Attention(Tokens(2, identity, 1e-149 * np.eye(2)), var_v=1e-140)
        .law()
        .marginal()
        .std()
        > 0
    )
    assert Attention(Tokens(2, identity, 0 * np.eye(2))).law().marginal().std() == 0


PAIR = np.array([[1.0, 0.999], [0.999, 1.0]])


def sine(frequency, x):
    return np.sin(frequency * x)


def steep(x):
    return np.tanh(30 * x)


def test_a_kernel_knows_its_error():
    K, error = Tokens(2, steep, PAIR).kernel(return_error=True)
    assert abs(K[0, 1] - steep_moment()) <= error[0, 1]
    assert error[0, 1] > 0
    assert Tokens(2, relu, PAIR).kernel(return_error=True)[1].max() == 0


def test_a_law_adds_the_error_of_its_tokens():
    "The variance of uniform attention is the mean of K: so is its error."
    layer = Attention(Tokens(2, steep, PAIR), var_q=0.0)
    K, unsure = layer.tokens.kernel(return_error=True)
    value, error = layer.law().marginal(0).var(return_error=True)
    truth = (K[0, 0] + steep_moment()) / 2
    assert abs(value - truth) <= error
    assert unsure.mean() / 2 < error < 4 * unsure.mean()


@pytest.mark.long
def test_covariances_and_densities_add_it_too():
    cov = np.array([[1.0, 0.99], [0.99, 1.0]])
    known = Attention(Tokens(2, relu, cov), heads=2).law()
    assert not known.nearby
    law = Attention(Tokens(2, steep, cov), heads=2).law()
    unsure = law.cov(draws=256, return_error=True)[1][0, 1]
    alone = replace(law, nearby=()).cov(draws=256, return_error=True)[1][0, 1]
    assert (
        unsure
        > alone + 0.4 * law.nearby[0].cov(draws=256)[0, 1] - 0.4 * law.cov(256)[0, 1]
    )
    y = [0.5, 0.5]
    unsure = law.logpdf(y, 256, return_error=True)[1]
    alone = replace(law, nearby=()).logpdf(y, 256, return_error=True)[1]
    assert unsure > alone + 1e-4


@pytest.mark.filterwarnings("ignore:1 of 1 points")
@pytest.mark.long
def test_a_density_of_tokens_that_may_be_equal_is_not_known():
    law = Attention(Tokens(2, steep, PAIR), heads=2).law()
    assert law.logpdf([0.5, 0.5], 256, return_error=True)[1] == np.inf


def test_what_no_polynomial_resolves_raises():
    "sin(25x) at a correlation of .999 was .36229 ± 1e-16; it is .38382."
    tokens = Tokens(2, partial(sine, 25.0), PAIR)
    with pytest.raises(ValueError, match="resolve, got an error of"):
        Attention(tokens, var_q=0.0).law()
    with pytest.raises(ValueError, match="pass its `closed_form`"):
        tokens.activation.dual(PAIR)
    value, error = tokens.activation.dual(PAIR, return_error=True)
    truth = np.exp(-625) * np.sinh(625 * 0.999)
    assert abs(value[0, 1] - truth) < error[0, 1]
