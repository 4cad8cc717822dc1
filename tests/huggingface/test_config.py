"""Entries of a config.json, and what of them is rejected."""

import json
from pathlib import Path

import numpy as np
import pytest
from wrong_calls import rejects, rows

from infattn_nb import Rotary, from_config
from infattn_nb.transformer import Experts
from infattn_nb.transformer.network import at_width

HUB = {
    path.stem: path
    for path in sorted((Path(__file__).parents[1] / "data" / "configs").glob("*.json"))
}


# width, blocks, heads, groups, head width, places of the norms, gate, units, share that
# turns, norm of the embeddings, last norm
SHAPES = {
    "gpt2": (768, 12, 12, None, None, "pre", False, 4, None, False, True),
    "bert-base-uncased": (768, 12, 12, None, None, "post", False, 4, None, True, False),
    "roberta-base": (768, 12, 12, None, None, "post", False, 4, None, True, False),
    "Llama-2-7b-hf": (4096, 32, 32, None, None, "pre", True, 2.6875, 1, False, True),
    "Llama-3.1-8B": (4096, 32, 32, 8, None, "pre", True, 3.5, 1, False, True),
    "Mistral-7B-v0.1": (4096, 32, 32, 8, None, "pre", True, 3.5, 1, False, True),
    "Qwen2.5-0.5B": (896, 24, 14, 2, None, "pre", True, 4864 / 896, 1, False, True),
    "Qwen3-0.6B": (1024, 28, 16, 8, 128, "pre", True, 3, 1, False, True),
    "pythia-160m": (768, 12, 12, None, None, "pre", False, 4, 0.25, False, True),
    "gemma-2b": (2048, 18, 8, 1, None, "pre", True, 8, 1, False, True),
    "gemma-2-2b": (2304, 26, 8, 4, 256, "sandwich", True, 4, 1, False, True),
    "gemma-3-4b-it": (2560, 34, 8, 4, 256, "sandwich", True, 4, 1, False, True),
}
SHAPES["vit-base-patch16-224"] = SHAPES["gpt2"]


@pytest.mark.parametrize("name", HUB)
def test_configs_of_the_hub(name):
    "Shapes, places, and the variances that the recipe promises."
    t = from_config(HUB[name], 6)
    b = t.blocks[0]
    a, f = b.attention, b.feedforward
    share = a.rotary.share if a.rotary else None
    assert (
        t.width,
        len(t.blocks),
        a.heads,
        a.groups,
        a.head_width,
        b.norm_placement,
        f.gated,
        f.units,
        share,
        t.first_norm is not None,
        t.last_norm is not None,
    ) == SHAPES[name]
    n, H, m = t.width, a.heads, a.width_of_heads(t.width)
    out = 2 * len(t.blocks) if name == "gpt2" else 1
    got = [
        a.var_q,
        a.var_k,
        a.var_v,
        a.var_o * out,
        f.var_1,
        f.var_2 * out,
        f.var_3 if f.gated else n * 4e-4,
    ]
    np.testing.assert_allclose(
        got, 4e-4 * np.array([n, n, n, H * m, n, f.units * n, n]), rtol=1e-12
    )
    s = 7 if name.startswith("vit") else 6
    scale = n if name.startswith("gemma") else 1
    assert len(t.cov) == s
    assert (
        abs(
            t.cov[-1, -1]
            - 4e-4
            * (
                scale
                + (name in ("gpt2", "bert-base-uncased", "roberta-base"))
                + ("bert" in name)
                + 768 * s * (s == 7) / 7
            )
        )
        < 1e-12
    )
    if n < 800:
        assert np.isfinite(t.chain(size=2, rng=0).gram).all()


def test_entries_of_configs():
    "Windows, angles of long contexts, two kinds of layers, several texts."
    gemma = json.loads(HUB["gemma-3-4b-it"].read_text())
    gemma["text_config"] |= dict(sliding_window=3)
    blocks = from_config(gemma, 6).blocks
    near = np.tri(6, dtype=bool) & ~np.tri(6, k=-3, dtype=bool)
    for k, b in enumerate(blocks):
        a = b.attention
        if (k + 1) % 6:
            assert (a.mask == near).all()
            assert a.rotary == Rotary(1e4)
        else:
            assert a.mask == "causal"
            assert abs(a.rotary.angles(256)[3] - 1e6 ** (-6 / 256) / 8) < 1e-12
    llama = json.loads(HUB["Llama-3.1-8B"].read_text())
    θ, plain = (
        from_config(llama, 3).blocks[0].attention.rotary.angles(128),
        Rotary(5e5).angles(128),
    )
    wave = 2 * np.pi / plain
    assert (θ[wave < 2048] == plain[wave < 2048]).all()
    assert np.allclose(θ[wave > 8192], plain[wave > 8192] / 8)
    assert (np.diff(θ) < 0).all()
    for change, text in (
        (dict(rope_scaling=dict(rope_type="proportional", factor=4.0)), "rope_scaling"),
        (dict(hidden_act="mish"), "hidden_act"),
        (dict(num_attention_heads=2.5), "num_attention_heads"),
    ):
        with pytest.raises(ValueError, match=text) as e:
            from_config(llama | change, 3)
        assert len(str(e.value).splitlines()) == 1
    t = from_config(llama, [list("abc"), list("ba")])
    np.testing.assert_array_equal(t.texts, [0, 0, 0, 1, 1])
    assert t.cov[0, 4] == t.cov[0, 0] == 4e-4
    assert t.cov[0, 3] == 0
    v = from_config(HUB["vit-base-patch16-224"], [["sky", "sky"], ["sky"]])
    np.testing.assert_allclose(
        v.cov[[0, 0, 1, 1, 1], [0, 3, 1, 2, 4]] / 4e-4, [2, 2, 769, 768, 769]
    )


def small(kind, **entries):
    return from_config(
        dict(
            model_type=kind,
            hidden_size=64,
            num_attention_heads=4,
            num_key_value_heads=4,
            num_hidden_layers=3,
            intermediate_size=128,
        )
        | entries,
        4,
    )


LONG = dict(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
)
ODD = rows("""
small("gpt2", hidden_size=None, n_embd=np.nan) ~ n_embd
small("gpt2", hidden_size=None, n_embd=10**400) ~ n_embd
small("gpt2", num_hidden_layers=None, n_layer=10**7) ~ n_layer
small("gpt2", n_inner=-5) ~ n_inner
small("gpt2", scale_attn_weights="no") ~ scale_attn_weights
small("gpt2", n_hed=4) ~ n_hed
small("llama", rope_scaling="linear") ~ rope_scaling
small("llama", rope_scaling=dict(type="llama3")) ~ rope_scaling']['factor
small("llama", rope_scaling=dict(rope_type="linear", factor=0)) ~ factor
small("llama", rope_scaling=LONG | dict(low_freq_factor=4.0)) ~ high_freq_factor
small("gemma3_text", rope_parameters=dict(sliding_attention=3)) ~ sliding_attention
small("mpt", attn_config=dict(softmax_scale="x")) ~ attn_config']['softmax_scale
small("qwen2", use_sliding_window=True, max_window_layers="1") ~ max_window_layers
small("qwen2", layer_types=["full_attention"]) ~ layer_types
small("qwen2", layer_types=["linear_attention"] * 3) ~ layer_types
small("gemma2", attn_logit_softcapping=0) ~ attn_logit_softcapping
small("smollm3", no_rope_layers=[1]) ~ no_rope_layers
small("opt", do_layer_norm_before=False) ~ do_layer_norm_before
small("falcon", alibi=True) ~ alibi
""")


@pytest.mark.parametrize("code, name", ODD)
def test_an_odd_entry_is_named_as_the_file_names_it(code, name):
    rejects(lambda: eval(code, globals()), f"{name}']` must")


def test_whole_numbers_of_any_type_and_listed_layers():
    assert repr(
        small(
            "qwen2",
            hidden_size=np.int64(64),
            num_key_value_heads=2.0,
            sliding_window=np.float32(3),
        )
    ) == repr(small("qwen2", num_key_value_heads=2))
    kinds = ["full_attention", "sliding_attention", "full_attention"]
    assert [
        b.attention.mask is not None and not isinstance(b.attention.mask, str)
        for b in small("qwen2", layer_types=kinds, sliding_window=2).blocks
    ] == [False, True, False]


def test_what_is_no_json(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 100_000)
    inside = dict(model_type="gpt2")
    inside["x"] = inside
    for config, text in (
        (tmp_path / "deep.json", "be JSON"),
        (inside, "be an object that JSON can represent"),
        ({"model_type": "gpt2", (1, 2): 3}, "be an object that JSON can represent"),
    ):
        with pytest.raises(ValueError, match=text):
            from_config(config, 4)


def config(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_bytes(text.encode())
    return path


GPT2 = '"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 64'


def test_a_byte_order_mark_is_allowed(tmp_path):
    path = config(tmp_path, "\N{ZERO WIDTH NO-BREAK SPACE}" + f"{{{GPT2}}}")
    assert len(from_config(str(path), 4).blocks) == 2


MIXTURE = dict(
    model_type="qwen3_moe",
    hidden_size=32,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_hidden_layers=6,
    intermediate_size=64,
    moe_intermediate_size=16,
    num_experts=6,
    num_experts_per_tok=2,
)


@pytest.mark.parametrize(
    "more, kinds",
    [
        (dict(), "eeeeee"),
        (dict(mlp_only_layers=[0, 1]), "mmeeee"),
        (dict(decoder_sparse_step=2), "mememe"),
        (dict(decoder_sparse_step=3, mlp_only_layers=[2]), "mmmmme"),
        (dict(num_experts=0), "mmmmmm"),
    ],
)
def test_which_blocks_are_mixtures(more, kinds):
    net = from_config(MIXTURE | more, 4)
    found = ["e" if isinstance(b.feedforward, Experts) else "m" for b in net.blocks]
    assert "".join(found) == kinds
    units = {"e": 0.5, "m": 2.0}
    assert [b.mlp.units for b in net.blocks] == [units[k] for k in kinds]
    net.gradients(32, 2, 0)


@pytest.mark.parametrize("norm, gate", [(True, "chosen"), (False, "softmax")])
def test_the_gate_of_a_config(norm, gate):
    net = from_config(MIXTURE | dict(norm_topk_prob=norm), 4)
    assert net.blocks[0].feedforward.gate == gate
    assert net.blocks[0].feedforward.var_r == pytest.approx(32 * 0.02**2)


GLM = dict(model_type="glm4_moe", n_routed_experts=6, n_group=3, topk_group=1)
ERNIE = dict(model_type="ernie4_5_moe", num_experts=6, num_experts_per_tok=2)
LLAMA_4 = dict(model_type="llama4_text", num_experts=4, num_experts_per_tok=1)


@pytest.mark.parametrize(
    "more, text",
    [
        (dict(num_experts_per_tok=7), "must be at most the 6 experts, got 7"),
        (dict(mlp_only_layers=[6]), "hold numbers of the 6 layers, from 0, got 6"),
        (dict(model_type="olmoe", num_experts=0), "as every block has a router, got 0"),
        (dict(num_experts=[4, 8]), "be a whole number in"),
        (dict(model_type="arctic"), "be a mixture of experts of a supported kind"),
        (dict(model_type="dbrx", ffn_config=dict(moe_top_k=9)), "the 4 experts, got 9"),
        (GLM | dict(n_group=4), "must divide the 6 experts, got 4"),
        (GLM | dict(n_group=6, topk_group=2), "leave 2 experts in each group, got 6"),
        (GLM | dict(topk_group=4), "must be at most the 3 groups, got 4"),
        (GLM | dict(num_experts_per_tok=3), "the 2 experts of the chosen groups"),
        (ERNIE | dict(moe_norm_min=0.5), "the least sum of weights, got 0.5"),
        (LLAMA_4 | dict(floor_scale=4), "must exceed the 4 tokens of a text, got 4"),
        (LLAMA_4 | dict(layer_types=["sliding_attention"] * 6), "or 'chunked_att"),
    ],
)
def test_mixtures_that_are_not_accepted(more, text):
    with pytest.raises(ValueError, match=text) as e:
        from_config(MIXTURE | more, 4)
    assert len(str(e.value).splitlines()) == 1


def test_standard_deviations_stay_at_another_width():
    "Also those of a router: its fan-in is the width."
    net = from_config(MIXTURE, 4)
    wide = at_width(net, 64, "std").blocks[0].feedforward
    own = net.blocks[0].feedforward
    assert wide.var_r == pytest.approx(2 * own.var_r)
    assert wide.mlp.var_1 == pytest.approx(2 * own.mlp.var_1)
