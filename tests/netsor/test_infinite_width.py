"""Limits of programs of any size, and of pairs of functions."""

import numpy as np
import pytest
from conftest import BEYOND_THEOREM

from infattn_nb import Program, limit, simulate
from infattn_nb.nonlinearities import erf, relu, tanh

pytestmark = BEYOND_THEOREM


@pytest.mark.power("second moments 2 % off, means 1 % off")
@pytest.mark.long
def test_rare_pairs_of_functions():
    "Two different functions, a shifted input, a product of three."
    p = Program()
    u, v = p.inputs([[1.0, 0.6], [0.6, 2.0]], mean=[0.5, 0.0])
    x, y, z = (
        erf(u),
        relu(v),
        p.nonlin(lambda a, b, c: a * np.tanh(b) * np.cos(c), u, v, v - u),
    )
    lim = limit(p)
    draws = simulate(p, [x, y, z, u], 1, size=10**6, rng=0)
    for i, a in enumerate((x, y, z, u)):
        for j, b in enumerate((x, y, z, u)):
            value, error = lim.second_moment(a, b, return_error=True)
            w = draws[:, i] * draws[:, j]
            assert abs(w.mean() - value) < 6 * w.std() / 1000, (i, j)
            assert error < 1e-3, (i, j)
        assert abs(draws[:, i].mean() - lim.mean(a)) < 6 * draws[:, i].std() / 1000


def test_vectors_written_later_are_not_zero():
    "A limit says what was not there when it was taken."
    p = Program()
    (h,) = p.inputs([[1.0]])
    g = p.matrix() @ h
    lim = limit(p)
    later = p.matrix() @ tanh(g)
    assert lim.second_moment(tanh(g), g) > 0  # functions of what was there are fine
    for question in (
        lambda: lim.second_moment(later, later),
        lambda: lim.cov([later]),
        lambda: lim.score_cov([p.score(p.matrix() @ tanh(h), later)]),
    ):
        with pytest.raises(ValueError, match="before the limit"):
            question()


@pytest.mark.long
def test_programs_of_any_size():
    """Deep residual attention is checked in linear time; long sums need no deep
    recursion; iterators are as good as lists.
    """
    p = Program()
    xs = [tanh(h) for h in p.inputs(np.eye(3))]
    Q, K = p.matrix(), p.matrix()
    for _ in range(20):
        xs = [
            x + 0.5 * p.attend(map(lambda z: p.score(Q @ x, K @ z), xs), iter(xs))
            for x in xs
        ]
    assert all(f.clause in ("depth", "bounded", "a") for f in p.check(strict=False))
    p = Program()
    (first,) = p.inputs([[1.0]])
    g = first
    for _ in range(1100):
        g = g + 0.001 * (last := p.inputs([[1.0]])[0])
    np.testing.assert_allclose(
        [limit(p).second_moment(g, h) for h in (first, last)], [1, 0.001]
    )
    assert (0 - g).coefs == (-1.0,)
    assert g - 0 is g
