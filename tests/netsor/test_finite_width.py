"""Programs at a finite width: memory, and functions that are rejected."""

import tracemalloc

import numpy as np
import pytest
from conftest import BEYOND_THEOREM
from netsor_cases import PROGRAMS, program

from infattn_nb import Program, simulate
from infattn_nb.nonlinearities import softmax, tanh

pytestmark = BEYOND_THEOREM


def test_memory_is_linear_in_the_width():
    "No n×n array: one would be 80 GB here."
    p, y = program(PROGRAMS["MLP"][1])
    peaks = []
    for n in (10**4, 10**5):
        tracemalloc.start()
        simulate(p, y, n, size=2, rng=0)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 12 * peaks[0]
    assert peaks[1] < 200 * 8 * 10**5


def test_a_function_that_turns_bad_is_named():
    p = Program()
    (h,) = p.inputs([[1.0]])
    x = p.nonlin(lambda h: np.where(np.abs(h) > 3, np.nan, h), h)
    with pytest.raises(ValueError, match="`x1`.*NaN"):
        simulate(p, x, 1000, size=10, rng=0, coords=1000)


def test_functions_that_mix_coordinates_are_rejected():
    p = Program()
    (g,) = p.inputs([[1.0]])
    s = p.score(p.matrix() @ tanh(g), p.matrix() @ tanh(g))
    with pytest.raises(ValueError, match="each coordinate in the same way"):
        p.nonlin(lambda h: h / np.sqrt((h**2).mean(-1, keepdims=True)), g)
    for weights, message in (
        (lambda q: softmax(q, axis=0), "last axis"),
        (np.log, "finite"),
        (lambda q: q * 1j, "real numbers"),
        (lambda q: q["a"], "function of the scores"),
    ):
        with (
            np.errstate(invalid="ignore"),
            pytest.raises((TypeError, ValueError), match=message),
        ):
            p.attend([s, s], [g, g], weights=weights)
    with pytest.raises(ValueError, match="must not be zero"):
        g / 0
    y = p.attend([s, s], [g, g], weights=lambda q: np.where(np.abs(q) > 1.5, np.nan, q))
    with pytest.raises(ValueError, match="`weights` of `y1` must be finite"):
        simulate(p, y, 50, size=10**5, rng=0)
