"""Every choice that the config classes of transformers offer, alone and in pairs: the
program has exactly torch's parameters and its loss, or one sentence refuses the config.
"""

import re

import numpy as np
import pytest
from conftest import nightly
from model_families import FAMILIES, RENAMED
from model_flags import TEXTS, choices, flags, in_double, outcome, pairs
from with_transformers import TORCH, torch, transformers

from infattn_nb import from_config, from_torch, weights_of
from infattn_nb.huggingface.families import Family

pytestmark = TORCH
SENTENCE = re.compile(r"`[^`]+` must .+, got .+; .+", re.DOTALL)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)
DAILY = [  # each was read as another model once
    ("stablelm", dict(use_parallel_residual=True, use_qkv_bias=True)),
    ("gpt_neox", dict(attention_bias=False)),
    ("starcoder2", dict(use_bias=False)),
    ("opt", dict(enable_bias=False, layer_norm_elementwise_affine=False)),
    ("falcon", dict(bias=True)),
    ("falcon", dict(multi_query=False)),
    ("gpt_bigcode", dict(multi_query=False)),
    ("helium", dict(attention_bias=True)),
    ("vit", dict(qkv_bias=False)),
    ("llama", dict(rope_parameters=dict(YARN, rope_theta=1e4))),
]


def check(kind, changes):
    "Each is exact, or refused in one sentence; the counts of both."
    count = dict.fromkeys(("exact", "refused", "not made"), 0)
    with in_double():
        for change in changes:
            word, said = outcome(kind, change)
            assert word in count, (kind, change, said)
            if word == "refused":
                assert SENTENCE.fullmatch(said), said
                assert "correct it in the config" not in said
            count[word] += 1
    return count


@pytest.mark.parametrize(("kind", "change"), DAILY)
def test_flags_that_were_read_as_other_models(kind, change):
    assert check(kind, [change])["exact"] == 1


@pytest.mark.long
@pytest.mark.parametrize("kind", nightly(FAMILIES, *RENAMED))
def test_every_flag(kind):
    assert check(kind, [{}])["exact"] == 1
    single = flags(kind)
    assert single or kind in ("nomic_bert", "clip_text_model", "clip_vision_model")
    check(kind, single)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAMILIES)
def test_every_pair_of_flags(kind):
    check(kind, pairs(kind))


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAMILIES)
def test_every_choice(kind):
    other = [x for x in choices(kind) if x not in flags(kind)]
    assert check(kind, other)["exact"] > 0 or not other


def test_most_flags_are_read():
    "The generator sees them: of a family with many, and of all families together."
    names = {name for x in flags("falcon") for name in x}
    assert {"alibi", "bias", "multi_query", "parallel_attn"} <= names
    assert sum(len(flags(kind)) for kind in FAMILIES) > 90


def test_modules_with_scaled_rotations_are_read_as_their_configs():
    shape = dict(num_attention_heads=2, num_hidden_layers=1, hidden_size=32)
    shape |= dict(vocab_size=24, intermediate_size=24, initializer_range=0.3)
    c = transformers.LlamaConfig(**shape, rope_parameters=dict(YARN, rope_theta=1e4))
    t = from_torch(transformers.LlamaModel(c).eval(), texts=6)
    u = from_config(c, 6)
    a, b = (x.blocks[0].attention for x in (t, u))
    assert b.score_scale > 1.2
    np.testing.assert_allclose(a.score_scale, b.score_scale, rtol=1e-9)
    np.testing.assert_allclose(a.rotary.angles(16), b.rotary.angles(16), rtol=1e-5)
    long = dict(rope_type="dynamic", factor=2.0, rope_theta=1e4)
    near = dict(model_type="llama", max_position_embeddings=8, rope_parameters=long)
    from_config(near | shape, 8)
    with pytest.raises(ValueError, match="beyond 8 tokens, are not supported"):
        from_config(near | shape, 9)


def test_a_layout_with_another_loss_is_refused():
    kinds = dict(num_attention_heads=4, num_hidden_layers=1, initializer_range=0.2)
    c = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=24, vocab_size=24, **kinds
    )
    m = transformers.LlamaForCausalLM(c).eval()
    net = from_config(c, TEXTS)
    weights_of(net, m, readout="lm")
    m.model.layers[0].mlp.act_fn = torch.nn.ReLU()
    with pytest.raises(ValueError, match="must have the logits of the program"):
        weights_of(net, m, readout="lm")
    assert np.isfinite(weights_of(net, m, readout="lm", verify=False)["lm_head"]).all()


def test_a_value_that_can_never_be_checked_is_an_error_of_the_file():
    with pytest.raises(ValueError, match="can never be checked"):
        Family.of_section({}, prefix="", wanted=dict(use_parallel_residual=False))
