"""MLPs of a block: their activations, and groups of equal units."""

from dataclasses import replace

import numpy as np
import pytest
from passes_cases import drawn, smallest

from infattn_nb import Block, FeedForward, Rotary, SelfAttention, Transformer
from infattn_nb.nonlinearities import gelu, gelu_tanh, silu

LEVEL = 1e-6


@pytest.mark.power("distribution functions .1 apart")
def test_groups_of_plain_heads(seed=0):
    """Plain heads of a group, drawn by their inner products, against the same drawn
    coordinate by coordinate.
    """
    plain = SelfAttention(4, 6, 1, var_q=9.0)
    explicit = replace(
        plain, rotary=Rotary(frequencies=(0.0, 0.0, 0.0))
    )  # turns nothing, but draws all coordinates
    a, b = (
        drawn(
            Transformer(np.eye(3), blocks=[Block(x, None)]),
            12,
            4000,
            seed + k,
            np.eye(3),
        )
        for k, x in enumerate((plain, explicit))
    )
    assert smallest(a, b) > LEVEL


def test_activations_by_their_names():
    for name, phi in dict(
        gelu=gelu,
        gelu_new=gelu_tanh,
        gelu_pytorch_tanh=gelu_tanh,
        silu=silu,
        swish=silu,
    ).items():
        assert FeedForward(activation=name).activation is phi
