"""Sequences: recall, tables and images."""

import numpy as np
from conftest import ROUGH_POSTERIOR
from numpy.random import default_rng

from infattn_nb.learning import embed_features, make_recall, patches
from infattn_nb.learning.sequences import ragged

pytestmark = ROUGH_POSTERIOR


def test_tables_and_images():
    rng = default_rng(0)
    table, images = rng.standard_normal((7, 3)), rng.standard_normal((7, 4, 6))
    tokens = embed_features(table, query_scale=2.0)
    assert tokens.shape == (7, 4, 4)
    assert (tokens[:, 3] == [0, 0, 0, 2.0]).all()
    np.testing.assert_array_equal(
        tokens[:, :3, :3], np.einsum("pf,fg->pfg", table, np.eye(3))
    )
    cut = patches(images, (2, 3), position_scale=0.0)
    # the last of two by two patches
    np.testing.assert_array_equal(cut[:, 3], images[:, 2:, 3:].reshape(7, 6))
    np.testing.assert_array_equal(
        patches(images.reshape(7, 24), (2, 3), shape=(4, 6))[..., :6], cut
    )
    assert patches(images[..., None], 2, query_scale=1.0).shape == (7, 7, 4 + 6 + 1)


def test_recall_is_recall():
    X, y, answer = make_recall(50, 0, noise=0.0)
    np.testing.assert_allclose(X[np.arange(50), answer, -1], y)
    np.testing.assert_allclose(X[np.arange(50), answer, :-1], X[:, -1, :-1])
    np.testing.assert_array_equal(make_recall(50, 0, noise=0.0)[0], X)


def test_lists_of_matrices_are_ragged():
    texts = [np.ones((2, 3)), np.ones((4, 3))]
    assert ragged(texts)
    assert not ragged([np.ones(3)] * 2) and not ragged([]) and not ragged(texts[0])
