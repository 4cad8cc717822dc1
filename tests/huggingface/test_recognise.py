"""Masks of libraries against attention written out."""

import numpy as np

from infattn_nb import SelfAttention
from infattn_nb.huggingface.recognise import alibi, both_allow, masked_by, of_torch
from infattn_nb.huggingface.recognise import windowed


def attends(mask, s):
    return SelfAttention(mask=mask).allowed(s)


def test_windows_by_loops(s=6):
    for window in range(1, s + 2):
        by_hand = [[0 <= i - j < window for j in range(s)] for i in range(s)]
        np.testing.assert_array_equal(attends(windowed(s, window), s), by_hand)
    assert windowed(s, None) == windowed(s, s) == "causal"


def test_slopes_of_alibi():
    "Powers of two for a power of two; other numbers of heads take from twice as many."
    bias = alibi(8, np.arange(4))
    np.testing.assert_array_equal(-bias[:, 3, 2], 2.0 ** -np.arange(1, 9))
    np.testing.assert_array_equal(bias[:, 3, 0], 3 * bias[:, 3, 2])
    six = -alibi(6, np.arange(4))[:, 3, 2]
    np.testing.assert_array_equal(six[:4], 2.0 ** -np.array([2, 4, 6, 8]))
    np.testing.assert_array_equal(six[4:], 2.0 ** -np.array([1, 3]))


def test_masks_of_torch_mean_the_opposite_or_are_added():
    "Weights by softmax over what is allowed, with each of the two kinds of masks."
    forbidden = ~np.tri(4, dtype=bool)
    added = np.where(forbidden, -np.inf, 0.0)
    added[3, 1] = -0.7
    scores = np.random.default_rng(0).standard_normal((4, 4))
    allowed, bias = of_torch(forbidden, 4)
    np.testing.assert_array_equal(allowed, ~forbidden)
    assert bias is None
    allowed, bias = of_torch(added, 4)
    weights = np.where(allowed, np.exp(scores + bias), 0)
    np.testing.assert_allclose(weights, np.exp(scores + added), rtol=1e-12)
    assert of_torch(np.zeros((4, 4)), 4) == of_torch(None, 4) == (None, None)


def test_both_masks_hold():
    a, b = np.random.default_rng(1).random((2, 3, 3)) < 0.5
    np.testing.assert_array_equal(both_allow(a, b), a & b)
    assert both_allow(a, None) is both_allow(None, a) is a
    own = SelfAttention(mask="causal", bias=np.eye(3))
    more = masked_by(np.eye(3, dtype=bool)[::-1], 2 * np.eye(3), own)
    np.testing.assert_array_equal(more["mask"], np.tri(3) * np.eye(3)[::-1] > 0)
    np.testing.assert_array_equal(more["bias"], 3 * np.eye(3))
