"""Parts that small queries and keys hide are seen with larger ones."""

import pytest
from drawn_modules import Own, read
from with_transformers import TORCH, torch

from infattn_nb import Rotary

pytestmark = TORCH


HIDDEN = {
    "rotary": (dict(rotary=10.0), dict(rotary=Rotary(10.0))),
    "cap of 50": (dict(cap=50.0), dict(softcap=50.0)),
    "cap of 5": (dict(cap=5.0), dict(softcap=5.0)),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_parts_that_small_scores_hide_are_seen(name):
    "At a standard deviation of .02 neither changes an output by its rounding."
    own, right = HIDDEN[name]
    module = Own(σ=0.02, **own)
    before = {k: x.clone() for k, x in module.state_dict().items()}
    t = read(module, **right)
    with pytest.raises(ValueError, match="must run like its description"):
        read(module)
    with pytest.raises(ValueError, match="must run like its description"):
        read(Own(σ=0.02), **right)
    after = module.state_dict()
    assert all(torch.equal(x, after[k]) for k, x in before.items())
    assert t.blocks[0].attention.var_q < 0.1


@pytest.mark.parametrize("zero", ("q", "o", "down"))
def test_behind_zeros_is_seen_too(zero):
    "A matrix that starts at zero, in a module that has positions nobody describes."
    module = Own(rotary=10.0)
    with torch.no_grad():
        for block in module.h:
            getattr(block, zero).weight.zero_()
    read(module, rotary=Rotary(10.0))
    with pytest.raises(ValueError, match="must run like its description"):
        read(module)
