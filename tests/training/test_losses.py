"""Losses against their derivatives, each other and the bounds that are stated."""

import numpy as np
import pytest

from infattn_nb.training.losses import LOSSES, Everywhere, Logistic, Softmax, batch_at
from infattn_nb.training.losses import loss_of, on_own_rows, tried

rng = np.random.default_rng(0)
F = 3 * rng.standard_normal((5, 4, 3))
TARGETS = {
    "squared": rng.standard_normal((4, 3)),
    "logistic": rng.integers(0, 2, (4, 3)).astype(float),
    "softmax": np.eye(3)[[0, 2, 1, 1]],
}


class Turned:
    "A loss whose gradient has the wrong sign."

    def __init__(self, loss):
        self.loss = loss

    def value(self, f, y):
        return self.loss.value(f, y)

    def gradient(self, f, y):
        return -self.loss.gradient(f, y)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_derivatives(name, h=1e-6):
    loss, y = loss_of(name), TARGETS[name]
    gradient = loss.gradient(F, y)
    for at in np.ndindex(F.shape[1:]):
        step = np.zeros(F.shape[1:])
        step[at] = h
        rise = loss.value(F + step, y) - loss.value(F - step, y)
        np.testing.assert_allclose(rise / (2 * h), gradient[:, *at], atol=1e-8)
    assert tried(loss, y) is loss
    with pytest.raises(ValueError, match="must be the derivative"):
        tried(Turned(loss), y)


@pytest.mark.parametrize("name", LOSSES)
def test_the_curvature_is_a_bound(name, h=1e-4):
    "Second derivatives in random directions; near zero they come close to it."
    loss, y = loss_of(name), TARGETS[name]
    f = 0.01 * np.random.default_rng(1).standard_normal((2000, *y.shape))
    v = np.random.default_rng(2).standard_normal(f.shape)
    v[:, 1:] = 0  # one row of outputs
    slopes = [(loss.gradient(f + s * h * v, y) * v).sum((1, 2)) for s in (1, -1)]
    second = (slopes[0] - slopes[1]) / (2 * h) / (v * v).sum((1, 2))
    assert second.max() <= loss.curvature * (1 + 1e-6)
    assert second.max() > loss.curvature / 2


def test_two_classes_by_softmax_and_by_logistic():
    f, y = F[..., :1], np.array([[0.0], [1.0], [1.0], [0.0]])
    both = np.concatenate([np.zeros_like(f), f], axis=2)
    one_hot = np.concatenate([1 - y, y], axis=1)
    np.testing.assert_allclose(
        Logistic().value(f, y), Softmax().value(both, one_hot), rtol=1e-12
    )
    np.testing.assert_allclose(
        Logistic().probabilities(f), Softmax().probabilities(both), rtol=1e-12
    )


def test_softmax_of_huge_scores_is_finite():
    f = np.array([[[1e3, 0.0, -1e3]]])
    assert Softmax().value(f, np.eye(3)[[0]]) == 0
    assert Softmax().value(f, np.eye(3)[[2]]) == 2e3


def test_every_position_is_a_row():
    f, y = F.reshape(5, 2, 2, 3), TARGETS["squared"].reshape(2, 2, 3)
    loss = loss_of("squared")
    np.testing.assert_array_equal(
        Everywhere(loss).value(f, y), loss.value(F, TARGETS["squared"])
    )
    np.testing.assert_array_equal(
        Everywhere(loss).gradient(f, y).reshape(F.shape),
        loss.gradient(F, TARGETS["squared"]),
    )


def test_batches_of_an_epoch_are_all_sequences_once():
    seed = np.random.SeedSequence(3)
    epochs = [
        np.concatenate([batch_at(10, 4, 3 * epoch + k, seed) for k in range(3)])
        for epoch in range(2)
    ]
    for epoch in epochs:
        assert sorted(epoch) == list(range(10))
    assert list(epochs[0]) != list(epochs[1])


def test_a_loss_on_own_rows_is_that_of_these_rows():
    y, loss = TARGETS["logistic"], loss_of("logistic")
    rows = np.array([[0, 1], [2, 3], [0, 3], [1, 2], [3, 1]])
    values, slope = on_own_rows(loss, F, y, rows)
    whole = loss.gradient(F, y)
    for n, k in enumerate(rows):
        assert values[n] == loss.value(F[n : n + 1, k], y[k]).item()
        np.testing.assert_array_equal(slope[n, k], whole[n, k])
        assert not np.delete(slope[n], k, axis=0).any()
