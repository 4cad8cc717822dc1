"""Factors in front of branches and scores are folded into weights."""

import re

import numpy as np
import pytest
from config_cases import LLAMA
from drawn_modules import LAWS, Own, described, read
from with_transformers import TORCH, torch, transformers

from infattn_nb import Rotary, from_config, from_torch, initialise, report
from infattn_nb.huggingface import init_table
from infattn_nb.initialisation.rules import scaled

pytestmark = TORCH


def test_factors_are_written_back():
    for name in ("rezero", "layer_scale"):
        module = Own(**LAWS[name])
        t = described(name, module)
        wider = t.altered(None, None, lambda b: dict(branch_scale=2 * b.branch_scale))
        initialise(wider, module, 0)
        held = module.h[0].alpha if name == "rezero" else module.h[0].gamma_2
        value = next(iter(LAWS[name].values()))
        assert torch.allclose(held, torch.tensor(value))
        assert abs(module.h[0].o.weight.std() / 0.4 - 1) < 0.1
    with pytest.raises(ValueError, match="one number for 'branch_scale'"):
        uneven = Own(gamma=0.3)
        uneven.h[0].gamma_1.data[3] = 1.0
        described("layer_scale", uneven)


def test_scores_of_clipped_queries_have_no_other_factor():
    t = from_config(LLAMA | dict(model_type="olmo", clip_qkv=1.0), 4)
    with pytest.raises(ValueError, match="stay as in the module if queries and keys"):
        init_table(t.altered(lambda a: dict(score_scale=2.0)))


@pytest.mark.slow
def test_a_factor_that_is_missing_is_found_in_every_block():
    "GPT-2 without the depth scaling that its promise has."
    config = transformers.GPT2Config(
        vocab_size=64, n_positions=16, n_embd=64, n_layer=6, n_head=4
    )

    def module(scaled):
        torch.manual_seed(0)
        made = transformers.GPT2Model(config).eval()
        for l, block in enumerate(made.h):
            if scaled:
                block.mlp.c_proj.weight.detach().div_((l + 1) ** 0.5)
        return made

    promise = from_torch(module(True), texts=4)
    t = from_torch(module(False), texts=4, promised=promise)
    first = report(t, size=4, rng=0).verdicts[0]
    assert first.name == "initialisation"
    said = re.search(
        r"mlp.c_proj of blocks 1–5 × ([\d.]+) … ([\d.]+) \(blocks counted from 0",
        first.text,
    )
    np.testing.assert_allclose(
        [float(x) for x in said.groups()], np.sqrt([2, 6]), rtol=0.03
    )
    kept = from_torch(module(True), texts=4, promised=promise)
    assert report(kept, size=4, rng=0).verdicts[0].name != "initialisation"


def test_factors_are_folded_before_grad_is_reported():
    "θ stays; weight norms are those of matrices that hold the factors."
    t = from_config(LLAMA, 5)
    u = scaled(t, 0.3, 4.0)
    g = u.gradients(64, 20, 0)
    plain = u.draw_gradients(64, 20, 0)  # its factors in front of the matrices
    for k in g.squared_norms:
        np.testing.assert_allclose(
            g.squared_norms[k], plain.squared_norms[k], rtol=1e-8
        )
    for k, square in dict(q=4.0, k=4.0, v=1.0, o=0.09).items():
        np.testing.assert_allclose(
            g.squared_weight_norms[k] * square, plain.squared_weight_norms[k], rtol=1e-8
        )
    std = init_table(u).set_index("parameter")["std"][
        "model.layers.*.self_attn.o_proj.weight"
    ]
    np.testing.assert_allclose(
        g.squared_weight_norms["o"], g.squared_norms["o"] / std**2, rtol=1e-8
    )
    np.testing.assert_allclose(
        report(u, size=4, rng=0).table["attention out, .grad"],
        report(u, size=4, rng=0).table["attention out, .grad × sd"] / std,
        rtol=1e-8,
    )


# Verification with larger scores

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
