"""Paths of scores: loops, coefficients of pairs, bounded memory."""

import tracemalloc
from unittest.mock import patch

import numpy as np
import pytest
import speed
from conftest import BEYOND_THEOREM
from stack_cases import both

from infattn_nb import Program, limit
from infattn_nb.netsor import attention, score_paths
from infattn_nb.netsor.score_paths import Batch, Paths
from infattn_nb.nonlinearities import clip, relu, tanh
from infattn_nb.numerics.hermite import cross_moment

pytestmark = BEYOND_THEOREM


@pytest.mark.long
def test_a_loop_has_the_limit_of_a_stack():
    "Score by score the normals are the same, so every path is the same."
    (p, F), (q, fs) = both()
    a, b = (Paths(r, 50, rng=0, wanted=f).cov(f) for r, f in ((p, [F]), (q, fs)))
    np.testing.assert_allclose(a, b, rtol=1e-9)


def test_memory_of_paths_is_bounded(s=64, paths=400):
    "All scores of all paths take 13 MB for each array of them, and ten are needed."
    p = Program()
    Y = attention(p, clip(1.0)(p.inputs(np.eye(s))))
    tracemalloc.start()
    with (
        patch.object(score_paths, "MOST_NUMBERS", 2.0**20),
        patch.object(score_paths, "KEPT_NUMBERS", 0),
    ):
        limit(p, paths).second_moment(Y[0], Y[0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6


@pytest.mark.parametrize("φ", [tanh, relu, None], ids=repr)
def test_two_coefficients_of_each_vector(φ):
    """Moments with a linear vector: against the whole series of each pair, in far fewer
    evaluations.
    """
    p = Program()
    u, v = p.inputs([[1.0, 0.5], [0.5, 2.0]], mean=[0.3, -0.2])
    P = Paths(p, 1)
    f = (lambda x: np.abs(x)) if φ is None else φ
    h = p.nonlin(f, v) if φ is None else f(v)
    nodes = dict(nodes=2**14)
    one = np.ones(1)
    known = cross_moment(
        f, lambda x: x, (-0.2 * one, 0.3 * one), 2 * one, one, 0.5 * one, **nodes
    )
    np.testing.assert_allclose(P.moment(h, u).ravel(), known, rtol=1e-7)
    np.testing.assert_allclose(
        P.moment(h).ravel(),
        cross_moment(
            f, np.ones_like, (-0.2 * one, 0 * one), 2 * one, 0 * one, 0 * one, **nodes
        ),
        rtol=1e-7,
    )
    with (
        patch.object(Batch, "_by_series", side_effect=AssertionError),
        patch.object(Batch, "_line", autospec=True, side_effect=Batch._line) as line,
    ):
        P = Paths(p, 1)
        stack, linear = P.stacks.view(h), P.stacks.view(u)
        (batch,) = P.each()
        for _ in range(3):
            batch.moment(stack, linear), batch.moment(linear, stack), batch.mean(stack)
    assert line.call_count == 2  # one moment and one mean; u needs none


@pytest.mark.long
@pytest.mark.parametrize("name", ["_two", "_foresee"])
def test_the_other_sides_of_the_benchmark_have_the_same_limit(name, monkeypatch):
    "What benchmarks/speed.py replaces is there, and is replaced by its equal."

    def covariance():
        lim = speed.two_layers(s=2, between=tanh)
        return lim.cov(lim.program.nodes[-1])

    ours = covariance()
    called = []
    others = {"_two": speed.pair_by_pair, "_foresee": lambda *_: None}

    def other(*arguments):
        called.append(arguments)
        return others[name](*arguments)

    monkeypatch.setattr(speed.Batch, name, other)
    np.testing.assert_allclose(covariance(), ours, rtol=1e-12)
    assert called
