"""The stream of a network and its embeddings: labels, given rows, collapsed tokens."""

from dataclasses import replace

import numpy as np
import pytest

from infattn_nb import Transformer, from_config
from infattn_nb.initialisation.report_command import report_of
from infattn_nb.numerics import checks
from infattn_nb.transformer import embedding_cov
from infattn_nb.transformer.stream import several


@pytest.mark.parametrize("norm", ("pre", "post", None))
@pytest.mark.parametrize("n", (np.inf, 24))
def test_collapsed_tokens_stay_together(norm, n):
    "Equal tokens stay equal, though their Gram matrix is singular."
    t = Transformer.uniform(
        np.ones((5, 5)), 0.1, 6, heads=2, norm_placement=norm, var_1=0.5
    )
    np.testing.assert_allclose(t.chain(n, 20, 0).cosine, 1, atol=1e-9)
    t = replace(t, cov=embedding_cov([0, 1, 0, 1, 2]), mean=np.zeros(5))
    y = t.chain(n, 50, 0)
    gram = y.gram / np.trace(y.gram, axis1=-2, axis2=-1)[..., None, None]
    np.testing.assert_allclose(gram[..., 0, :], gram[..., 2, :], atol=1e-9)
    np.testing.assert_allclose(gram[..., 1, 1], gram[..., 1, 3], atol=1e-9)
    assert y.cosine[:, 1:, 0, 1].max() < 0.9999


def test_given_embeddings():
    "Units start where the embeddings do, and the Gram matrix is theirs."
    X = np.random.default_rng(0).standard_normal((3, 8))
    t = Transformer.uniform(np.cov(X, bias=True), X.mean(1), 2, heads=2, embeddings=X)
    for n in (8, np.inf):
        y = t.chain(n, 5, 0, coords=3)
        np.testing.assert_allclose(
            y.gram[:, 0], np.broadcast_to(X @ X.T / 8, (5, 3, 3)), rtol=1e-12
        )
        np.testing.assert_array_equal(
            y.units[:, 0], np.broadcast_to(X[:, :3], (5, 3, 3))
        )


def test_embedding_cov():
    np.testing.assert_array_equal(
        embedding_cov("abca", 2.0, 0.5),
        2 * (np.array(list("abca"))[:, None] == list("abca")) + 0.5 * np.eye(4),
    )


@pytest.mark.parametrize(
    "labels, kinds",
    [
        ([1, "1"], [0, 1]),
        ([1, "1", None, None], [0, 1, 2, 2]),
        ([[1, "a"], ["1", "a"]], [0, 1, 2, 1]),
        ([[1], ["1"]], [0, 1]),
        ([2**63, 2**63 + 1, -1], [0, 1, 2]),
        ([1, 1.0, np.int64(1)], [0, 0, 0]),
        (np.array([3, 3, 1]), [0, 0, 1]),
    ],
)
def test_labels_of_different_kinds_are_different(labels, kinds):
    np.testing.assert_array_equal(embedding_cov(labels), np.equal.outer(kinds, kinds))


SMALL = dict(model_type="gpt2", n_embd=64, n_layer=3, n_head=4)


@pytest.mark.long
def test_a_text_means_the_same_everywhere():
    "Words, or letters where there is no space."
    sat = from_config(SMALL, "the cat the")
    assert len(sat.cov) == 3 == len(embedding_cov("the cat the"))
    assert sat.cov[0, 2] == 4e-4
    assert len(embedding_cov("banana")) == 6
    found = report_of("gpt2", text="the cat the", size=4)
    assert found.labels == ("the", "cat", "the")
    assert found.measured.finite.cosine[:, 0].mean() > 0.1  # of the two equal words
    assert "6 tokens" in repr(from_config("gpt2", "banana"))


class Tensor(np.ndarray):
    "As much of torch as is needed."

    def detach(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return np.asarray(self)


def test_arrays_of_tokens_are_texts():
    tokens = np.array([[3, 1, 3], [1, 1, 2]])
    expected = [[3, 1, 3], [1, 1, 2]]
    for given in (tokens, tokens.view(Tensor), expected):
        np.testing.assert_array_equal(several(given), expected)
        np.testing.assert_array_equal(
            from_config(SMALL, given).texts, [0, 0, 0, 1, 1, 1]
        )


def test_a_large_covariance_needs_no_eigenvalues(monkeypatch):
    "A multiple of the identity, a text with repetitions."
    monkeypatch.setattr(
        np.linalg, "eigvalsh", lambda C: pytest.fail("eigenvalues were computed")
    )
    (
        checks.cov(3 * np.eye(300)),
        checks.cov(embedding_cov([3, 1, 4, 1, 5] * 20, 1.0, 0.1)),
        checks.cov(np.ones((4, 4))),
    )
    monkeypatch.undo()
    for bad in (np.array([[1.0, 2], [2, 1]]), -np.eye(3), np.diag([1.0, -1e-9])):
        with pytest.raises(ValueError, match="positive semidefinite"):
            checks.cov(bad)
