"Gradients of programs by central differences, for tests of kinds of nodes."

import numpy as np
import pytest

from infattn_nb import train


def check_gradient(p, f, y, names, n=8, h=1e-5, held=()):
    """One step of training at the rate one is minus the derivative of the loss, in a
    random direction of each of the named matrices.
    """
    how = dict(width=n, parametrization="standard", size=1, rng=0, verbose=False)
    how |= dict(learning_rate=1.0)
    one = train(p, f, y, steps=1, **how)
    start = {W: one.weights(W, "start")[0] for W in [*names, *held]}
    rng = np.random.default_rng(1)
    for W in names:
        d = rng.standard_normal(start[W].shape)
        side = [
            train(p, f, y, steps=0, init=start | {W: start[W] + s * h * d}, **how)
            for s in (1, -1)
        ]
        slope = (side[0].loss[0, 0] - side[1].loss[0, 0]) / (2 * h)
        step = one.weights(W)[0] - start[W]
        assert -(step * d).sum() == pytest.approx(slope, rel=1e-5, abs=1e-9), W
