"""Variances, norms and activations are found from numbers alone."""

import numpy as np
import pytest

from infattn_nb.huggingface.measure import activation_of, settled, shift_of, shifted
from infattn_nb.huggingface.measure import variances_of
from infattn_nb.nonlinearities import gelu, relu, silu, slope


class Array(np.ndarray):
    "An array with the few methods of a tensor that are used."

    def detach(self):
        return self

    cpu = detach

    def numpy(self):
        return np.asarray(self)

    def new_tensor(self, x):
        return np.asarray(x).view(Array)


LIKE = np.zeros(1).view(Array)


class Block:
    "A block's matrices and biases."

    def __init__(self, biases=(), **matrices):
        self.matrices, self.biases = matrices, dict(biases)


def drawn(var, rng, n=400):
    return np.sqrt(var / n) * rng.standard_normal((n, n))


@pytest.mark.power("a mean square off by a factor of two, and one of 5 %")
def test_variances_within_five_of_their_standard_errors(seed=0):
    rng = np.random.default_rng(seed)
    for var in (0.02, 1.0, 30.0):
        found, error = variances_of(Block(q=drawn(var, rng)))["q"]
        assert abs(found - var) < 5.5 * error
        assert error == pytest.approx(var * np.sqrt(2) / 400, rel=0.1)
        for other in (var / 2, 1.05 * var):
            assert abs(found - other) > 5.5 * error


def test_a_bias_that_is_missing_has_no_variance():
    found = variances_of(Block(dict(b1=None, b2=np.full(3, 2.0))))
    np.testing.assert_array_equal(found["b1"], [0, 0])
    np.testing.assert_array_equal(found["b2"], [4, 0])


@pytest.mark.power("variances of blocks by a factor of two")
def test_blocks_have_one_number_unless_they_differ(seed=0):
    rng = np.random.default_rng(seed)
    alike = [variances_of(Block(q=drawn(1.0, rng))) for _ in range(4)]
    assert len({x["var_q"] for x in settled(alike)}) == 1
    deep = [variances_of(Block(q=drawn(2.0**-k, rng))) for k in range(4)]
    found = [x["var_q"] for x in settled(deep)]
    np.testing.assert_allclose(found, 2.0 ** -np.arange(4), rtol=0.05)


def test_activations_are_known_by_their_values():
    for phi in (relu, gelu, silu):
        assert activation_of(lambda x, phi=phi: phi(x).view(Array), LIKE) is phi
    with pytest.raises(ValueError, match="`module` must use one of"):
        activation_of(lambda x: (0.9 * relu(x)).view(Array), LIKE)


def test_a_shift_is_kept_with_its_derivative():
    phi = shifted(gelu, 0.3)
    x = np.linspace(-2, 2, 9)
    np.testing.assert_array_equal(phi(x), gelu(x + 0.3))
    np.testing.assert_array_equal(slope(phi)(x), slope(gelu)(x + 0.3))
    assert shift_of(phi) == 0.3
    assert shift_of(gelu) == 0
