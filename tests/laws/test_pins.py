"Numbers from elsewhere where small errors were seen by no other test."

import numpy as np
import pytest
from conftest import BEYOND_THEOREM
from scipy.special import logsumexp

from infattn_nb import Attention, Program, Tokens, from_config, gradients, limit
from infattn_nb.netsor import attention
from infattn_nb.nonlinearities import identity, tanh

pytestmark = BEYOND_THEOREM


def gauss(f, var):
    "E f(z) of one normal number, by Gauss and Hermite."
    z, w = np.polynomial.hermite_e.hermegauss(200)
    return f(var**0.5 * z) @ w / w.sum()


def test_a_product_of_slopes():
    "tanh(sin(w x)) has the derivative tanh′(sin g) cos g; w is √2 times a weight."
    p = Program()
    (x,) = p.inputs([[1.0]])
    f = p.readout() @ tanh(p.nonlin(np.sin, p.matrix(var=2.0) @ x))
    exact = gauss(lambda z: np.tanh(np.sin(z)) ** 2, 2)
    exact += 2 * gauss(lambda z: (np.cos(z) / np.cosh(np.sin(z)) ** 2) ** 2, 2)
    assert gradients(p, f).tangent.item() == pytest.approx(exact, rel=1e-5)


def test_moments_of_more_paths_than_one_piece_holds():
    "cos(y + u)² = (1 + cos 2(y + u))/2, and E cos 2u = e⁻² cos 2μ."
    p = Program()
    X = p.inputs(np.eye(2), mean=[0.3, 0.0])
    y = attention(p, [tanh(x) for x in X])[0]
    found = limit(p, 9000, rng=0)
    c = p.nonlin(lambda a, b: np.cos(a + b), y, X[0])
    both = found.second_moment(c, c)
    alone = found.mean(p.nonlin(lambda a: np.cos(2 * a), y))
    exact = (1 + np.exp(-2) * np.cos(0.6) * alone) / 2
    assert np.ravel(both)[0] == pytest.approx(np.ravel(exact)[0], abs=0.01)


@pytest.mark.power("densities 20 % off")
@pytest.mark.parametrize("mask", [None, "causal"])
def test_densities_where_one_token_is_the_sum_of_two(mask, size=20_000):
    K = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 2.0]])
    law = Attention(Tokens(3, identity, K), heads=2, mask=mask).law()
    y = np.array([0.5, 0.2, 0.7])
    S = law.covariances(size, 0)
    form = (
        y * np.linalg.solve(S, np.broadcast_to(y[:, None], (size, 3, 1)))[..., 0]
    ).sum(1)
    each = -(form + np.linalg.slogdet(2 * np.pi * S)[1]) / 2
    exact = logsumexp(each) - np.log(size)
    error = np.std(np.exp(np.subtract(each, exact))) / np.sqrt(size)
    assert abs(law.logpdf(y, rng=1) - exact) < 7 * error + 0.02
    assert error < 0.02


YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)


@pytest.mark.parametrize(
    "more, size",
    [
        ({}, 0.1 * np.log(4) + 1),
        (
            dict(mscale=0.5, mscale_all_dim=1.0),
            (0.05 * np.log(4) + 1) / (0.1 * np.log(4) + 1),
        ),
    ],
)
def test_yarn_enlarges_scores(more, size):
    "Queries and keys are multiplied by 1 + .1 log(factor), as YaRN's paper has it."
    small = dict(hidden_size=64, num_attention_heads=4, num_hidden_layers=1)
    plain = dict(model_type="llama", intermediate_size=64) | small
    turned = plain | dict(rope_scaling=YARN | more)
    scale = [from_config(c, 3).blocks[0].attention.score_scale for c in (plain, turned)]
    assert scale[1] / scale[0] == pytest.approx(size**2)


def test_covariances_of_a_block_of_scores():
    "Of q_i·k_j and q_k·k_l over independent matrices: the product of two covariances."
    C = np.array([[1.0, 0.4], [0.4, 2.0]])
    p = Program()
    X = p.inputs(C)
    P = p.scores(p.matrix() @ X, p.matrix() @ X)
    found = limit(p)
    np.testing.assert_allclose(found.score_cov(P), np.kron(C, C), rtol=1e-12)


def test_far_densities_lose_the_digits_of_their_exponents():
    "exp(x) has a relative rounding error of |x| units of the last digit of x."
    law = Attention(Tokens(2, identity), heads=2).law().marginal()
    y = law.std() * np.array([20.0, 35.0])
    value, error = law.pdf(y, return_error=True)
    assert (error > 2.2e-16 * abs(np.log(value)) * value).all()
