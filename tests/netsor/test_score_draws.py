"""Batches of scores are drawn again for each question."""

from unittest.mock import patch

import numpy as np
from conftest import BEYOND_THEOREM

from infattn_nb import Program, limit
from infattn_nb.netsor import attention, score_paths
from infattn_nb.netsor.score_paths import Paths
from infattn_nb.nonlinearities import clip

pytestmark = BEYOND_THEOREM


def test_batches_are_drawn_again_for_each_question():
    "What memory does not hold is the same the second time, and as when it is kept."
    p = Program()
    Y = attention(p, clip(1.0)(p.inputs(np.eye(4) + 0.5)), var_q=4.0)

    def answers():
        lim = limit(p, 200, rng=3)
        return [lim.second_moment(Y, Y) for _ in range(2)] + [len(lim.drawn.kept)]

    together, _, kept = answers()
    assert kept == 1  # few paths, few tokens: all batches at once
    with patch.object(score_paths, "CLOSE_NUMBERS", 0):
        first, second, kept = answers()
        assert kept == 16
        with patch.object(score_paths, "KEPT_NUMBERS", 0):
            again, once_more, kept = answers()
        assert kept == 1
    for other in (second, again, once_more, together):
        np.testing.assert_array_equal(first, other)
    with patch.object(score_paths, "MOST_NUMBERS", 1000.0):
        assert len(Paths(p, 200).ends) > 16


def test_batches_that_need_points_stay_apart():
    "Sixteen scrambles give an error; one for all paths would give none."
    p = Program()
    X = p.inputs(np.eye(3) + 0.5)
    Y = attention(p, X)
    both = p.nonlin(np.multiply, np.tanh(1.0) * Y, X)
    lim = limit(p, 200)
    assert len(lim.drawn.groups) == len(lim.drawn.ends) == 16
    _, error = lim.mean(both, return_error=True)
    assert (error > 0).all()
