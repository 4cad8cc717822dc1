"""A network and its program have one tangent kernel."""

from dataclasses import replace

import numpy as np
import pytest

from infattn_nb import Transformer
from infattn_nb.transformer import Projection


@pytest.mark.power("a kernel without its readout, a quarter too small")
@pytest.mark.parametrize("to", [None, Projection(0.5, 2.0)])
def test_one_tangent_kernel_for_networks_and_programs(to, n=16, size=2000, seed=0):
    "With one word they meant 3.3 and 5.6; a matrix before the blocks counts, too."
    from infattn_nb import gradients

    net = Transformer.uniform(np.eye(3), layers=1, heads=2, final_norm=True)
    net = replace(net, width=n, random_embeddings=True, projection=to)
    program, outputs = net.program()
    means = {}
    for count in (True, False):
        pair = (
            net.gradients(n, size, seed, count_readout=count).tangent.ravel(),
            gradients(
                program, outputs, n, size=size, rng=seed, count_readout=count
            ).tangent.ravel(),
        )
        error = np.hypot(*(x.std() for x in pair)) / np.sqrt(size)
        assert abs(pair[0].mean() - pair[1].mean()) < 6 * error
        means[count] = pair[0].mean()
    assert means[True] - means[False] == pytest.approx(1.0, abs=1e-4)  # ‖norm(x)‖²/n
    assert 1 > 6 * error
