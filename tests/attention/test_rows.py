"Rows of attention weights of one large text: grids, draws and known values."

import numpy as np
import pytest
from conftest import nightly
from row_cases import YS, tails
from scipy.special import ndtr

from infattn_nb import Attention, Tokens
from infattn_nb.attention.rows import ROUGH_MESH, Row, independent, joins, row_law
from infattn_nb.attention.rows import row_mixture, row_points
from infattn_nb.convergence import participation_moments
from infattn_nb.distributions import mixture_of_heads
from infattn_nb.nonlinearities import identity, relu, softmax, tanh
from infattn_nb.numerics.quadrature import normal_nodes

KNOWN = [
    (1.0, 16, 1, 0.13245221722, 5.14078261e-6),
    (1.0, 16, 2, 0.13245221722, 6.43566277e-7),
    (3.0, 16, 1, 0.476906452906, 1.020582294e-6),
    (3.0, 16, 2, 0.476906452906, 2.3922716e-7),
    (3.0, 64, 1, 0.32631145333, 8.76210598e-6),
    (3.0, 64, 2, 0.32631145333, 1.53726058e-6),
]


@pytest.mark.slow
@pytest.mark.parametrize("τ, s, H, mean, sf", KNOWN)
def test_known_values(τ, s, H, mean, sf):
    law = row_mixture(np.ones(s), τ, heads=H)
    np.testing.assert_allclose(law.var(), mean, rtol=1e-11)
    value, error = law.sf(6 * law.std(), return_error=True)
    np.testing.assert_allclose(value, sf, rtol=1e-8)
    assert error < 1e-8 * value


def grid(s, τ):
    "Of few dimensions: one head's u on shifted grids of the score differences."
    P = np.eye(s) - 1 / s
    basis = np.linalg.svd(P)[0][:, : s - 1]
    u = lambda g: (softmax(τ * basis @ g, axis=0) ** 2).sum(0)
    return normal_nodes(u, τ * np.ptp(basis, axis=0))


@pytest.mark.power(
    "digits lost by a coarse step, an unnormalised weight, a forgotten factor 2 of "
    "equal blocks"
)
@pytest.mark.parametrize("s", nightly([2, 3, 4], 4))
@pytest.mark.parametrize("τ", nightly([0.1, 0.5, 1.0], 0.1, 0.5))
@pytest.mark.long
def test_few_tokens_agree_with_grids(s, τ):
    reference = mixture_of_heads(grid(s, τ))
    value, error = reference.sf(YS * reference.std(), return_error=True)
    doubled = tails(row_points(np.ones(s), τ), sd=reference.std())
    assert (np.abs(doubled - value) < error + 1e-9 * value).all()


def drawn(s, τ, size, rng, batch=4096):
    "Draws of u, in batches."
    for _ in range(0, size, batch):
        g = np.exp(τ * rng.standard_normal((batch, s)))
        yield np.einsum("bs,bs->b", g, g) / g.sum(1) ** 2


@pytest.mark.power("a law that is off by two hundredths in the tail")
@pytest.mark.parametrize(
    "s, τ, size",
    [
        (4, 1.0, 5 * 10**4),
        pytest.param(16, 1.0, 5 * 10**4, marks=pytest.mark.slow),
        pytest.param(16, 2.0, 10**7, marks=pytest.mark.slow),
        pytest.param(1024, 2.0, 10**6, marks=pytest.mark.slow),
    ],
)
@pytest.mark.long
def test_draws(s, τ, size):
    law, sums, squares, n = row_mixture(np.ones(s), τ), 0.0, 0.0, 0
    y = YS[1:4] * law.std()
    for u in drawn(s, τ, size, np.random.default_rng(s)):
        x = np.column_stack([u, ndtr(-y / np.sqrt(u)[:, None])])
        sums, squares, n = sums + x.sum(0), squares + (x * x).sum(0), n + len(u)
    mean = sums / n
    error = np.sqrt((squares / n - mean**2) / n)
    assert (np.abs(mean - [law.var(), *law.sf(y)]) < 6 * error).all()


def test_common_part_and_scale():
    law, part = (
        row_mixture(np.full(2, 0.5), 0.7, c=0.5, scale=3.0),
        row_mixture(np.full(2, 0.5), 0.7),
    )
    np.testing.assert_allclose(law.var(), 3 * (0.5 + part.var()), rtol=1e-12)
    np.testing.assert_allclose(
        law.kurtosis() * law.var() ** 2,
        9 * part.kurtosis() * part.var() ** 2,
        rtol=1e-9,
    )


@pytest.mark.long
def test_shifts_and_orders_change_nothing():
    rng = np.random.default_rng(0)
    bias = rng.normal(size=3)
    one, other = (
        tails(row_points(np.ones(3), 1.0, b, ROUGH_MESH), sd=0.5)
        for b in (bias, rng.permutation(bias) + 1e3)
    )
    np.testing.assert_allclose(other, one, rtol=1e-9)


def test_equal_halves_are_found():
    row = lambda n, bias=0.0: Row.of(np.ones(n), np.ones(n), bias * np.arange(n))
    assert [joins(row(n)) for n in (1, 2, 1024, 1023)] == [0, 1, 10, 18]
    assert joins(row(1024, -0.5)) == 10
    assert row_law(np.diag(1 + np.arange(100.0)), 1.0) is None  # 99 joins


def test_structure():
    k, c = independent(np.diag([1.0, 2.0, 3.0]) + 0.5)
    np.testing.assert_allclose(k, [1, 2, 3])
    assert c == 0.5
    assert independent(np.eye(3) * 1.2 - 0.2)[1] == -0.2
    for K in (
        [[1, 0.5, 0], [0.5, 1, 0.2], [0, 0.2, 2]],
        [[1, -1], [-1, 1]],
        [[1.0]],
        np.ones((3, 3)),
        np.eye(3) * 1.5 - 0.5,
    ):
        assert independent(np.array(K)) is None


@pytest.mark.power("a row of a layer that takes the wrong scores, biases or tokens")
@pytest.mark.parametrize(
    "layer, i",
    [
        (Attention(Tokens(6, relu), heads=2, mask="causal"), 3),
        (
            Attention(
                Tokens(3, tanh),
                bias=-np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0))),
            ),
            1,
        ),
        (
            Attention(
                Tokens(4, identity, np.diag(np.repeat([1.0, 2.0], 2)) + 0.5),
                var_q=0.5,
                mask=np.eye(4, dtype=bool) | (np.arange(4) % 2 == 0),
            ),
            3,
        ),
        pytest.param(
            Attention(Tokens(12, relu), heads=2, mask="causal"),
            9,
            marks=pytest.mark.slow,
        ),
        pytest.param(
            Attention(
                Tokens(6, tanh),
                bias=-np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0))),
            ),
            2,
            marks=pytest.mark.slow,
        ),
        pytest.param(
            Attention(
                Tokens(8, identity, np.diag(np.repeat([1.0, 2.0], 4)) + 0.5),
                var_q=0.5,
                mask=np.eye(8, dtype=bool) | (np.arange(8) % 2 == 0),
            ),
            3,
            marks=pytest.mark.slow,
        ),
        pytest.param(
            Attention(
                Tokens(6, identity, 1.2 * np.eye(6) - 0.1),
                heads=3,
                bias=-0.7 * np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0))),
            ),
            1,
            marks=pytest.mark.slow,
        ),  # c < 0
        pytest.param(
            Attention(
                Tokens(6, identity, np.eye(6) + 0.5),
                heads=2,
                mask=~np.eye(6, dtype=bool),
            ),
            2,
            marks=pytest.mark.slow,
        ),
    ],  # blind to itself
    ids=[
        "causal",
        "bias",
        "mask",
        "ten tokens",
        "six biases",
        "five of eight",
        "negative",
        "blind",
    ],
)
@pytest.mark.slow
def test_rows_of_a_layer(layer, i):
    law, drawn = layer.law().marginal(i), layer.law().marginal(i, draws=2**17)
    value, error = drawn.sf(YS[1:4] * law.std(), return_error=True)
    assert (np.abs(law.sf(YS[1:4] * law.std()) - value) < 6 * error).all()
    assert abs(law.var() - drawn.var()) < 6 * drawn.var(return_error=True)[1]
    value, error = law.sf(YS * law.std(), return_error=True)
    assert (error < 1e-7 * value).all()


@pytest.mark.long
def test_the_old_way_agrees():
    "Weights equal to softmax, but not recognised: the grid of the scores themselves."
    one, other = (
        Attention(Tokens(3, identity), var_q=0.25, weights=w)
        for w in (softmax, lambda g: softmax(g))
    )
    y = YS * one.law().marginal().std()
    np.testing.assert_allclose(
        other.law().marginal().sf(y), one.law().marginal().sf(y), rtol=1e-7
    )


@pytest.mark.slow
def test_degenerate_rows():
    np.testing.assert_allclose(row_mixture([1.0], 1.0).var(), 1)
    np.testing.assert_allclose(row_mixture(np.ones(4), 0.0).var(), 0.25)
    np.testing.assert_allclose(
        row_mixture(np.ones(3), 1.0, bias=[0, 0, -1e6]).var(),
        participation_moments(2, 1.0, 1)[0],
        rtol=1e-10,
    )
    np.testing.assert_allclose(
        row_mixture(np.ones(3), 1.0, bias=[0, 1e6, 0]).var(), 1, rtol=1e-12
    )
    np.testing.assert_allclose(
        row_mixture(np.ones(4), 1e-4).var(), (1 + 3 / 4 * 1e-8) / 4, rtol=1e-11
    )


@pytest.mark.power("1.7e-10 in the variance, 3e-9 six deviations out")
@pytest.mark.parametrize(
    "s, τ", nightly([(2, 2e-6), (2, 9e-5), (16, 2e-5)], (2, 9e-5), (16, 2e-5))
)
@pytest.mark.long
def test_nearly_constant_scores(s, τ):
    """u = (1 + τ²(1 − 1/s))/s but for τ⁴. Held back at 1/s, which all weights reach
    together, it would be up to 1e-9 too large.
    """
    law, exact = row_mixture(np.ones(s), τ), (1 + (1 - 1 / s) * τ**2) / s
    for method, y, expected in (
        ("var", (), exact),
        ("sf", (6 * exact**0.5,), ndtr(-6.0)),
    ):
        value, error = getattr(law, method)(*y, return_error=True)
        assert abs(value - expected) < 1e-12 * value < error < 1e-8 * value


@pytest.mark.long
def test_scores_that_differ_a_thousandfold_are_left_to_grids():
    """A join would miss the peak of the narrow ones (or find none); two wide scores and
    three constant ones by a plain grid, the constant but for 1e-8.
    """
    K = np.diag([1.0, 1.0, 1e-8, 1e-8, 1e-8])
    assert row_law(K, 1.0) is None
    assert row_law(K, 1e-13) is not None  # all of them constant
    value, error = (
        Attention(Tokens(5, identity, K)).law().marginal(0).var(return_error=True)
    )
    z = np.arange(-9, 9.01, 0.1)
    e, w = np.exp(z), np.exp(-z * z / 2)
    u = (e[:, None] ** 2 + e**2) / (e[:, None] + e + 3) ** 2
    assert abs(value - w @ u @ w / w.sum() ** 2) < error + 1e-7 * value
    assert error < 1e-4 * value
