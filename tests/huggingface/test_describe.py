"""Biases of a module are read into its description and written back."""

import pytest
from drawn_modules import Own, n, nn, read
from with_transformers import TORCH

from infattn_nb import Rotary, initialise

pytestmark = TORCH


def test_biases_of_attention_are_read_and_written():
    """As torch draws them, uniform; with positions that turn; scaled with the matrices;
    those that have a mean stay.
    """
    module = Own(rotary=10.0, bias=True, bias_size=0.3)
    t = read(module, rotary=Rotary(10.0))
    a = t.blocks[0].attention
    for k in "qkvo":
        assert 0.03 < a.variance(f"b{k}") < 0.25
    larger = t.altered(
        lambda a: dict(score_scale=4.0), None, lambda b: dict(branch_scale=2.0)
    )
    initialise(larger, module, 0)
    for k, factor in dict(q=2.0, k=2.0, v=1.0, o=2.0).items():
        drawn = getattr(module.h[0], k).bias.std()
        assert 0.4 < drawn / (factor * a.variance(f"b{k}") ** 0.5) < 1.8
    plain = Own(bias=True)
    for block in plain.h:
        for k in "qkvo":
            nn.Linear.reset_parameters(getattr(block, k))
    assert abs(read(plain).blocks[0].attention.var_bv - 1 / (3 * n)) < 0.008
    for block in plain.h:
        block.v.bias.data.fill_(0.2)
    kept = read(plain)
    assert kept.source.given == ("bv",)
    initialise(kept, plain, 1)
    assert (plain.h[0].v.bias == 0.2).all()
    p = read(plain, verify=False)
    with pytest.raises(ValueError, match="random or zero biases"):
        p.program()
