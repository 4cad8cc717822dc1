"""Texts and configs that are read, and those that are rejected."""

from types import SimpleNamespace

import numpy as np
import pytest
from config_cases import LLAMA

from wrong_calls import rejects

from infattn_nb import from_config
from infattn_nb.huggingface import widened

SMALL = dict(model_type="gpt2", n_embd=64, n_layer=3, n_head=4)


@pytest.mark.parametrize("tokens", (None, {}, 2.5, True, object()))
def test_what_is_no_text(tokens):
    with pytest.raises(
        TypeError, match="must be a number of tokens, a text, or a list of labels, got"
    ):
        from_config(SMALL, tokens)


PHI = LLAMA | dict(model_type="phi", qk_layernorm=True)
DEEPSEEK = LLAMA | dict(model_type="deepseek_v3", q_lora_rank=8, kv_lora_rank=8)
YARN = dict(rope_type="yarn", factor=4.0, mscale=1.0, mscale_all_dim=0.5)


def test_latent_attention_has_no_deterministic_limit():
    t = from_config(DEEPSEEK, 4)
    assert np.isfinite(t.gradients(64, 2, 0).squared_weight_norms["dkv"]).all()
    rejects(t.kernel, "be SelfAttention for a deterministic limit, got latent")


@pytest.mark.parametrize(
    "config, text",
    [
        (dict(model_type="lama"), "did you mean 'llama'"),
        ("gpt-2", "did you mean 'gpt2'"),
        (LLAMA | dict(hidden_act="silo"), "did you mean 'silu'"),
        (
            LLAMA | dict(model_type="unheard", num_experts=8),
            "its router or its experts are of another kind",
        ),
        (dict(model_type="mamba2"), "not attention"),
        (dict(model_type="albert"), "one block is used many times"),
        (dict(model_type="unheard", is_encoder_decoder=True), "encoder–decoder"),
        (DEEPSEEK | dict(kv_lora_rank=65), "must be at most the width 64, got 65"),
        (DEEPSEEK | dict(rope_parameters=YARN), "not change the size of rotated coord"),
        (LLAMA | dict(num_attention_heads=13), "must divide the width 64, got 13"),
        (PHI, "qk_layernorm"),
    ],
)
def test_configs_are_rejected_with_their_reason(config, text):
    rejects(lambda: from_config(config, 4), text)


def test_a_config_object_is_a_config():
    config = SimpleNamespace(to_dict=lambda: SMALL)
    assert repr(from_config(config, 4)) == repr(from_config(SMALL, 4))


T5 = dict(model_type="t5", d_model=16, d_kv=4, num_heads=2, d_ff=24, num_layers=1)
BART = dict(
    model_type="bart",
    d_model=16,
    encoder_layers=1,
    decoder_layers=1,
    encoder_attention_heads=2,
    decoder_attention_heads=4,
    encoder_ffn_dim=24,
    decoder_ffn_dim=40,
    pad_token_id=20,
)
MINICPM = dict(
    model_type="minicpm3",
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=24,
    kv_lora_rank=6,
    q_lora_rank=8,
    qk_rope_head_dim=2,
    qk_nope_head_dim=4,
    v_head_dim=8,
)


@pytest.mark.parametrize("entries, texts", [(T5, (3, 2)), (BART, (3, 2)), (MINICPM, 3)])
def test_a_wider_model_of_two_texts_or_with_latents(entries, texts):
    "Heads, units and ranks grow; all products of fan-ins and variances stay."
    pair = from_config(entries, texts), widened(entries, texts, 32)
    for a, b in zip(*(net.blocks for net in pair), strict=True):
        assert b.attention.heads == 2 * a.attention.heads
        for x, y in zip(a.branches, b.branches, strict=True):
            for k in x.matrices:
                assert y.variance(k) == pytest.approx(x.variance(k))
                assert y.fan_in(k, 32) == pytest.approx(2 * x.fan_in(k, 16))
    np.testing.assert_allclose(pair[1].cov, pair[0].cov)
    assert len(pair[1].program()[1]) == 1


SINES = BART | dict(model_type="pegasus")


def test_models_that_cannot_be_wider_say_why():
    for entries, how, wanted in (
        (T5, dict(fixed="std"), "`fixed` must be 'variance' for t5"),
        (T5, dict(heads="wider"), "`heads` must be 'more' for t5"),
        (SINES, {}, "`fixed` must be 'std' for a model whose tokens are given"),
        (BART | dict(scale_embedding=True), {}, "`fixed` must be 'std'"),
    ):
        rejects(lambda: widened(entries, (3, 2), 32, **how), wanted)
    assert widened(SINES, (3, 2), 32, fixed="std").width == 32


@pytest.mark.parametrize("kind", ["gpt2", "llama-like", "bert-base", "pythia-like"])
def test_a_wider_model(kind):
    "Heads keep their width, or their number; variances or standard deviations stay."
    own = from_config(kind, [[1, 2, 3]])
    n = 2 * int(own.width)
    a = own.blocks[0].attention
    for heads, fixed in (("more", "variance"), ("wider", "variance"), ("more", "std")):
        net = widened(kind, [[1, 2, 3]], n, heads=heads, fixed=fixed)
        b = net.blocks[0].attention
        assert net.width == n
        assert b.heads == a.heads * (2 if heads == "more" else 1)
        assert net.blocks[0].feedforward.units == own.blocks[0].feedforward.units
        factor = 2.0 if fixed == "std" else 1.0
        assert b.var_q == pytest.approx(factor * a.var_q)
        np.testing.assert_allclose(net.cov, own.cov, rtol=1e-12)
    same = widened(kind, [[1, 2, 3]], int(own.width))
    assert repr(same.blocks) == repr(own.blocks)
    with pytest.raises(ValueError, match="`width` must be a multiple of"):
        widened(kind, [[1, 2, 3]], n + 1)
