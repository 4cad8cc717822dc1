"""Numbers of a specification: what they mean for a layer, and when they agree."""

import numpy as np
import pytest

from infattn_nb import Attention, Tokens
from infattn_nb.attention.spec import AttentionSpec
from infattn_nb.nonlinearities import relu


def covariance(**options):
    law = Attention(Tokens(2, relu), **options).law(12)
    return law.covariances(300, rng=0)


def test_linear_scaling_is_smaller_queries():
    "QKᵀ/m is QKᵀ/√m with σ_Q²/m."
    m = 4
    linear = AttentionSpec(3, m, scaling="linear", var_q=2.0)
    root = AttentionSpec(3, m, var_q=2.0 / m)
    assert linear.score_variance(m) == pytest.approx(root.score_variance(m))
    np.testing.assert_allclose(
        covariance(heads=3, head_width=m, scaling="linear", var_q=2.0),
        covariance(heads=3, head_width=m, var_q=2.0 / m),
        rtol=1e-10,
    )


def test_heads_of_equal_variances_are_plain_heads():
    plain = AttentionSpec(3, var_o=2.0)
    listed = AttentionSpec(3, var_o=[2.0, 2.0, 2.0])
    assert plain.output_variance == listed.output_variance == 2.0
    assert plain.head_variance == listed.head_variance == pytest.approx(2 / 3)
    np.testing.assert_allclose(
        covariance(heads=3, var_o=2.0),
        covariance(heads=3, var_o=[2.0, 2.0, 2.0]),
        rtol=1e-10,
    )


def test_weighed_heads_keep_the_total():
    "Squares of weighed parts, times the mean variance, are each head's own."
    var_o = np.array([0.0, 1.0, 5.0])
    spec = AttentionSpec(3, var_o=var_o)
    x = np.ones((2, 6))  # two columns of each head
    own = spec.weighed(x, -1) ** 2 * spec.mean_var_o
    np.testing.assert_allclose(own, np.tile(np.repeat(var_o, 2), (2, 1)), rtol=1e-12)
    np.testing.assert_array_equal(
        spec.weighed(np.ones((1, 3)), -1)[:, 1:],
        spec.weighed(np.ones((1, 2)), -1, slice(1, 3)),
    )


@pytest.mark.parametrize(
    "head_width, at, width",
    [
        (None, 12, 4),
        (None, np.inf, np.inf),
        ("full", 12, 12),
        (5, 12, 5),
        (5, np.inf, 5),
    ],
)
def test_width_of_heads(head_width, at, width):
    spec = AttentionSpec(3, head_width)
    assert spec.width_of_heads(at) == width
    assert spec.narrow == (head_width == 5)


def test_a_width_that_heads_cannot_share():
    with pytest.raises(ValueError, match="`width` must be a multiple of heads = 3"):
        AttentionSpec(3).check_width(10)
    assert AttentionSpec(3, 5).check_width(10) == 10


def test_texts_and_masks_are_both_obeyed():
    texts = np.array([0, 0, 1, 1])
    together = AttentionSpec().allowed(4, texts)
    np.testing.assert_array_equal(together, np.kron(np.eye(2), np.ones((2, 2))) > 0)
    causal = AttentionSpec(mask="causal").allowed(4, texts)
    np.testing.assert_array_equal(causal, together & np.tri(4, dtype=bool))
    assert AttentionSpec().allowed(4) is None
