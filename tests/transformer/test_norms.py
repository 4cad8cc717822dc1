"""Norms of heads and of all queries, and how weights change them."""

from dataclasses import replace

import numpy as np
import pytest
from gradient_cases import case, readout_cov
from passes_cases import drawn, ensemble, smallest, stored

from infattn_nb import SelfAttention, Transformer

LEVEL = 1e-6


@pytest.mark.power("distribution functions .1 apart, of any of 30 statistics")
def test_a_norm_of_all_queries_is_none_of_each_head(seed=0):
    """Against torch's side: heads normalised one by one, in the forward pass, or in the
    backward pass alone.
    """
    name = "norm of all queries"
    c, theirs = case(name), stored(name)
    t = ensemble(c)
    alone = [
        replace(b, attention=replace(b.attention, joint_norm=False)) for b in t.blocks
    ]
    sample_of = lambda t: drawn(t, c["n"], 3000, seed, readout_cov(c["readout"]))
    assert smallest(theirs, sample_of(replace(t, blocks=alone))) < LEVEL
    right = SelfAttention._undressed
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            SelfAttention,
            "_undressed",
            lambda a, *dQ: right(replace(a, joint_norm=False), *dQ),
        )
        assert smallest(theirs, sample_of(t)) < LEVEL


def test_weight_norms():
    t = Transformer.uniform(
        np.eye(3), layers=2, heads=2, ff=2, var_q=4.0, var_o=0.0, var_2=0.5
    )
    g = t.gradients(16, 10, 0)
    fan, var = (
        dict(q=16, k=16, v=16, o=16) | {"1": 16, "2": 32},
        dict(q=4.0, k=1.0, v=1.0, o=0.0) | {"1": 1.0, "2": 0.5},
    )
    for name in g.squared_norms:
        np.testing.assert_allclose(
            g.squared_norms[name],
            var[name] / fan[name] * g.squared_weight_norms[name],
            rtol=1e-12,
        )
    assert (
        g.squared_norms["o"].max() == 0 < g.squared_weight_norms["o"].min()
    )  # a matrix of zeros gets a gradient
    assert np.isinf(t.gradients(np.inf, 2, 0).squared_weight_norms["1"]).all()
