"""Entries of a config.json, and what of them is rejected."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

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
    "vit-base-patch16-224": (
        768,
        12,
        12,
        None,
        None,
        "pre",
        False,
        4,
        None,
        False,
        True,
    ),
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


@pytest.mark.parametrize("name", HUB)
def test_configs_of_the_hub(name):
    """Thirteen configs of ten families: shapes, places, and the variances that their
    recipe promises.
    """
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
    """Sliding windows, angles of long contexts, layers of two kinds, several texts,
    entries that are rejected.
    """
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


ODD = [
    *(
        ("gpt2", dict(hidden_size=None, n_embd=n), "n_embd")
        for n in (np.nan, np.inf, 1e400, 10**400, "64", 0, True, [64])
    ),
    *(
        ("gpt2", dict(num_hidden_layers=None, n_layer=n), "n_layer")
        for n in (np.inf, 10**7, 1.5)
    ),
    ("gpt2", dict(num_attention_heads=None, n_head=5), "n_head"),
    *(("gpt2", dict(n_inner=n), "n_inner") for n in ("256", [3], -5, 1.5)),
    *(
        ("gpt2", dict(initializer_range=x), "initializer_range")
        for x in (-0.02, np.nan, np.inf, 1e300, "a")
    ),
    ("gpt2", dict(scale_attn_weights="no"), "scale_attn_weights"),
    ("gpt2", dict(layer_norm_epsilon=-1.0), "layer_norm_epsilon"),
    *(
        ("llama", dict(num_key_value_heads=x), "num_key_value_heads")
        for x in ("2", 0, 3)
    ),
    *(("llama", dict(head_dim=x), "head_dim") for x in ("16", -2, 0)),
    *(("llama", dict(rope_theta=x), "rope_theta") for x in ("1e4", 0.5, np.inf)),
    ("llama", dict(rope_scaling="linear"), "rope_scaling"),
    ("llama", dict(rope_parameters="x"), "rope_parameters"),
    (
        "gemma3_text",
        dict(rope_parameters=dict(sliding_attention=3)),
        "rope_parameters'\\]\\['sliding_attention",
    ),
    *(
        ("llama", dict(rope_scaling=x), f"rope_scaling'\\]\\['{name}")
        for x, name in (
            (dict(type="llama3"), "factor"),
            (
                LONG | dict(original_max_position_embeddings=None),
                "original_max_position_embeddings",
            ),
            (LONG | dict(low_freq_factor=4.0), "high_freq_factor"),
            (dict(type="linear", factor="4"), "factor"),
            (dict(rope_type="linear"), "factor"),
            (dict(rope_type="linear", factor=0), "factor"),
            (dict(type=3), "type"),
        )
    ),
    ("gpt_neox", dict(rotary_pct=2), "rotary_pct"),
    ("mpt", dict(attn_config="x"), "attn_config"),
    (
        "mpt",
        dict(attn_config=dict(softmax_scale="x")),
        "attn_config'\\]\\['softmax_scale",
    ),
    ("mpt", dict(attn_config=dict(clip_qkv=8)), "attn_config'\\]\\['clip_qkv"),
    *(("mistral", dict(sliding_window=x), "sliding_window") for x in ("2", 2.5, 0)),
    *(
        ("gemma3_text", dict(sliding_window_pattern=x), "sliding_window_pattern")
        for x in (0, "6")
    ),
    (
        "qwen2",
        dict(use_sliding_window=True, max_window_layers="1"),
        "max_window_layers",
    ),
    *(
        ("gemma2", dict(query_pre_attn_scalar=x), "query_pre_attn_scalar")
        for x in (0, "x", -4)
    ),
    ("gemma2", dict(attn_logit_softcapping=0), "attn_logit_softcapping"),
    (
        "gemma3",
        dict(text_config=dict(model_type="gemma3_text", hidden_size="a")),
        "text_config'\\]\\['hidden_size",
    ),
    *(
        ("qwen2", dict(layer_types=x), "layer_types")
        for x in (
            ["full_attention"],
            "full_attention",
            "abc",
            3,
            *(
                [kind] * 3
                for kind in (
                    "linear_attention",
                    "chunked_attention",
                    "sliding",
                    1,
                    None,
                )
            ),
        )
    ),
    (
        "qwen2",
        dict(layer_types=["sliding_attention"] * 3, sliding_window=None),
        "sliding_window",
    ),
    *(
        (kind, dict([entry]), entry[0])
        for kind, entry in (
            ("llama", ("residual_multiplier2", 0.2)),
            ("qwen2", ("attention_temperature", 3)),
            ("gpt2", ("n_hed", 4)),
            ("gemma3_text", ("use_bidirectional_attention", True)),
            ("phi", ("parallel_scale", True)),
        )
    ),
    ("electra", dict(embedding_size=32), "embedding_size"),
    ("smollm3", dict(no_rope_layers=[1]), "no_rope_layers"),
    ("opt", dict(do_layer_norm_before=False), "do_layer_norm_before"),
    ("falcon", dict(alibi=True), "alibi"),
]


@pytest.mark.parametrize(
    "kind, entries, name",
    ODD,
    ids=[f"{k}: {kind} {name}" for k, (kind, _, name) in enumerate(ODD)],
)
def test_an_odd_entry_is_named_as_the_file_names_it(kind, entries, name):
    with pytest.raises(ValueError, match=rf"^`config\[.*{name}'\]` must") as e:
        small(kind, **entries)
    assert len(str(e.value).splitlines()) == 1
    assert len(str(e.value)) < 200


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


TOO_LONG = "x" * 5_000_000


GPT2 = '"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 64'


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes that have names")
def test_a_pipe_is_no_config(tmp_path):
    "It was waited for, for ever."
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="`config` must be a file"):
        from_config(str(tmp_path / "pipe"), 4)


def test_configs_that_are_too_long_or_say_a_thing_twice(tmp_path):
    path = config(tmp_path, f'{{{GPT2}, "name": "{TOO_LONG}"}}')
    with pytest.raises(ValueError, match="`config` must be at most"):
        from_config(str(path), 4)
    path = config(tmp_path, f'{{{GPT2}, "n_layer": 3}}')
    with pytest.raises(ValueError, match="each entry once, got 'n_layer' twice"):
        from_config(str(path), 4)
    path = config(tmp_path, f'{{{GPT2}, "_name_or_path": "\\ud800"}}')
    with pytest.raises(ValueError, match="`config` must contain text in UTF-8"):
        from_config(str(path), 4)


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


@pytest.mark.parametrize(
    "more, text",
    [
        (dict(num_experts_per_tok=7), "must be at most the 6 experts, got 7"),
        (dict(mlp_only_layers=[6]), "hold numbers of the 6 layers, from 0, got 6"),
        (dict(num_experts=-1), "be a whole number in"),
        (dict(moe_intermediate_size=0), "be a whole number in"),
        (dict(norm_topk_prob="yes"), "be true or false"),
        (dict(model_type="olmoe", clip_qkv=8.0), "clipped queries, keys and values"),
        (dict(model_type="dbrx"), "be a mixture of experts of a supported kind"),
    ],
)
def test_mixtures_that_are_not_accepted(more, text):
    with pytest.raises(ValueError, match=text) as e:
        from_config(MIXTURE | more, 4)
    assert len(str(e.value).splitlines()) == 1


def test_a_model_with_mixtures_is_not_trained():
    with pytest.raises(ValueError, match="be an MLP if a model is trained"):
        from_config(MIXTURE, 4).program()


def test_standard_deviations_stay_at_another_width():
    "Also those of a router: its fan-in is the width."
    net = from_config(MIXTURE, 4)
    wide = at_width(net, 64, "std").blocks[0].feedforward
    own = net.blocks[0].feedforward
    assert wide.var_r == pytest.approx(2 * own.var_r)
    assert wide.mlp.var_1 == pytest.approx(2 * own.mlp.var_1)
