"""Blocks of samples: their types, shapes, names and memory."""

import tracemalloc
from typing import NamedTuple

import numpy as np
import pytest

from infattn_nb.numerics import draw, parallel
from infattn_nb.numerics.rng import BLOCK
from infattn_nb.numerics.workers import by_pieces


class Pair(NamedTuple):
    "What a sampler may return: fields with names, and one that is not there."

    square: np.ndarray
    inner: tuple
    absent: None = None


def _pairs(size, rng):
    x = rng.standard_normal((size, 2))
    return Pair(x * x, (x, x.sum(1)))


def peak_of(draw_all):
    "Bytes that are held at a time, at most, and the result."
    tracemalloc.start()
    result = draw_all()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most, result


def test_samples_are_not_held_twice(size=2**16):
    "A quarter more than the result is held, not as much again."

    def rows(number, rng):
        return rng.standard_normal((number, 64))

    def pairs(number, rng):
        return rows(number, rng), rng.integers(3, size=number)

    with parallel(1):
        most, y = peak_of(lambda: draw(rows, size, 0))
        assert y.shape == (size, 64)
        assert most < 1.25 * y.nbytes
        most, both = peak_of(lambda: draw(pairs, size, 0))
        assert most < 1.25 * sum(x.nbytes for x in both)
        rng = np.random.default_rng(0)
        most, y = peak_of(lambda: by_pieces(lambda b: rows(b, rng), size, 2**12))
        assert y.shape == (size, 64)
        assert most < 1.25 * y.nbytes
    blocks = np.random.SeedSequence(0).spawn(size // BLOCK)
    expected = [rows(BLOCK, np.random.default_rng(seed)) for seed in blocks]
    np.testing.assert_array_equal(draw(rows, size, 0), np.concatenate(expected))


def test_blocks_of_other_types_and_shapes():
    "A wider type is taken; another shape is one sentence."
    calls = []

    def uneven(number, rng):
        calls.append(number)
        return np.zeros(number, int if len(calls) < 2 else float)

    with parallel(1):
        assert draw(uneven, 2 * BLOCK, 0).dtype == float
        assert draw(lambda b, rng: np.zeros((b, 3)), 0).shape == (0, 3)
        with pytest.raises(ValueError, match="must return one shape for every sample"):
            draw(lambda b, rng: np.zeros((b, b)), BLOCK + 1)


def test_draw_keeps_the_names_of_a_samplers_tuples():
    "Joined over blocks and shaped field by field, also in tuples of tuples."
    drawn = draw(_pairs, (3, 2000), 0)
    assert isinstance(drawn, Pair)
    assert drawn.absent is None
    assert drawn.square.shape == (3, 2000, 2)
    assert drawn.inner[1].shape == (3, 2000)
    np.testing.assert_array_equal(drawn.square, drawn.inner[0] ** 2)
    with pytest.raises(ValueError, match="6 samples"):
        draw(lambda size, rng: Pair(np.zeros(6), (np.zeros(5),)), 6)
    with pytest.raises(ValueError):
        draw(lambda size, rng: None, 6)
