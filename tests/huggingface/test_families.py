"""Today's transformers, read from their configs, against Hugging Face's own models at
random initialisation: tables of 500 to 1,000 seeds each, written by tools/tables.py.
Neither torch nor transformers is needed; tests/external/test_torch.py reads the models
themselves.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import large, least_p, nightly

from infattn_nb import Rotary, from_config
from infattn_nb.huggingface import families_table

FOLDER = Path(__file__).parents[1] / "data" / "families"
CONFIGS = json.loads((FOLDER / "configs.json").read_text(encoding="utf-8"))
TEXT = [3, 1, 1, 1, 5]


def ensemble(name, init):
    "The ensemble of a stored config; `gaussian`: every matrix N(0, .15²)."
    config = CONFIGS[name]
    t = from_config(
        config | (dict(initializer_range=0.15) if init == "gaussian" else {}),
        TEXT[:4] if name == "vit" else TEXT,
    )
    if name == "vit":  # Hugging Face lists the stream before the last norm
        t = replace(t, final_norm=False)
    if (
        name == "gpt2" and init == "gaussian"
    ):  # its own recipe divides what stands before a sum
        t = changed(
            t,
            lambda b: replace(
                b,
                attention=replace(b.attention, var_o=4 * b.attention.var_o),
                feedforward=replace(b.feedforward, var_2=4 * b.feedforward.var_2),
            ),
        )
    return t


def changed(t, change):
    "The same transformer with other blocks."
    return replace(t, blocks=[change(b) for b in t.blocks])


def attention(**k):
    return lambda b: replace(b, attention=replace(b.attention, **k))


def feedforward(**k):
    return lambda b: replace(b, feedforward=replace(b.feedforward, **k))


def theirs(name, init):
    z = large(f"families/{name}")
    return z[f"{init}_mean"], z[f"{init}_step"], z[init].astype(float)


def ours(t, mean, step, size, seed):
    "Our networks, rounded as the table is."
    y = t.chain(size=size, rng=seed)
    upper = np.triu_indices(y.gram.shape[-1])
    x = np.concatenate(
        [y.gram[..., *upper].reshape(size, -1), y.entropy[..., -1].reshape(size, -1)],
        axis=1,
    )
    return np.clip(np.rint((x - mean) / step), -127, 127)


def seen(x, mean, step, s, layers, heads):
    "Gram entries, cosines, entropies, and how those of two heads go together."
    values = mean + step * x
    count = s * (s + 1) // 2
    gram = np.zeros((len(x), layers + 1, s, s))
    gram[..., *np.triu_indices(s)] = values[:, : (layers + 1) * count].reshape(
        len(x), layers + 1, count
    )
    d = np.sqrt(np.einsum("blii->bli", gram))
    cosine = (gram / (d[..., None] * d[..., None, :]))[..., *np.triu_indices(s, 1)]
    entropy = values[:, (layers + 1) * count :].reshape(len(x), layers, heads)
    together = [
        entropy[:, :, 0] - entropy[:, :, 1],
        entropy[:, :, 0] - entropy[:, :, -1],
        entropy.mean(2),
        np.trace(gram[:, 1:], axis1=2, axis2=3),
    ]
    return np.concatenate(
        [z.reshape(len(x), -1) for z in (values, cosine, *together)], axis=1
    )


def least(name, init, t, size=2000, seed=0):
    "The least p-value times the number of comparisons."
    mean, step, x = theirs(name, init)
    y = ours(t, mean, step, size, seed)
    about = dict(s=len(t.cov), layers=len(t.blocks), heads=t.most_heads)
    a, b = (seen(z, mean, step, **about) for z in (x, y))
    # the rest is constant but for rounding to single precision
    moves = a.std(0) > 1e-5 * abs(a.mean(0))
    np.testing.assert_allclose(
        b[:, ~moves].mean(0), a[:, ~moves].mean(0), rtol=1e-5, atol=1e-9
    )
    return least_p(a[:, moves], b[:, moves])


@pytest.mark.power(
    "distribution functions .18 apart: Gram entries, cosines, entropies at every "
    "layer, and of pairs of heads"
)
@pytest.mark.parametrize("init", ("own", "gaussian"))
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.long
def test_as_hugging_face_initialises(name, init):
    "Five hundred of its models or more, each family, two initialisations."
    assert least(name, init, ensemble(name, init), 1000) > 1e-6


def mlp_without_gate(b):
    return replace(b, feedforward=replace(b.feedforward, gated=False))


BROKEN = dict(
    rotary_off=("llama", attention(rotary=None)),
    rotary_everywhere=("gpt_neox", attention(rotary=Rotary(10.0))),
    neox_without_rotary=("gpt_neox", attention(rotary=None)),
    ungrouped=("llama", attention(groups=None)),
    one_group=("qwen2", attention(groups=1)),
    ungrouped_mistral=("mistral", attention(groups=None)),
    gate_forgotten=("qwen3", mlp_without_gate),
    window_forgotten=("mistral", attention(mask="causal")),
    not_causal=("gpt2", attention(mask=None)),
    no_qk_norm=("qwen3", attention(qk_norm=None)),
    no_softcap=("gemma2", attention(softcap=None)),
    no_scale=("gemma2", attention(score_scale=1.0)),
    no_output_norm=("gemma2", lambda b: replace(b, norm_placement="pre")),
    no_qk_norm_in_gemma=("gemma3_text", attention(qk_norm=None)),
    norm_of_each_head=("olmo2", attention(joint_norm=False)),
    pre_norm_in_olmo=("olmo2", lambda b: replace(b, norm_placement="pre")),
    phi_sequential=("phi", lambda b: replace(b, parallel=False)),
    phi_turns_everything=("phi", attention(rotary=Rotary(10.0))),
    phi3_without_window=("phi3", attention(mask="causal")),
    mpt_without_alibi=("mpt", attention(bias=None)),
    mpt_with_one_slope=(
        "mpt",
        lambda b: replace(b, attention=replace(b.attention, bias=b.attention.bias[2])),
    ),
    sequential=("gpt_neox", lambda b: replace(b, parallel=False)),
    pre_norm=("bert", lambda b: replace(b, norm_placement="pre")),
    no_positions=("vit", None),
    gpt2_unscaled=("gpt2", attention(var_o=2.16 * 2)),
)
DAILY = (
    "rotary_off gate_forgotten window_forgotten no_qk_norm no_output_norm "
    "phi_sequential mpt_without_alibi pre_norm"
).split()


@pytest.mark.power("each broken part, by the same comparison")
@pytest.mark.parametrize("case", nightly(BROKEN, *set(BROKEN) - {*DAILY}))
@pytest.mark.long
def test_broken_parts_are_rejected(case):
    "One part wrong, and the models are not of this law."
    name, change = BROKEN[case]
    t = ensemble(name, "gaussian")
    t = (
        changed(t, change)
        if change
        else replace(t, cov=t.cov - 0.15**2 * (t.cov > 0.15**2 * 1.5))
    )
    assert (
        least(
            name,
            "gaussian",
            t,
            {"ungrouped": 12_000, "one_group": 8000}.get(case, 2000),
        )
        < 1e-6
    )


def test_positions_behind_padding_start_at_two():
    "A config of RoBERTa that names no padding has token 1 for it."
    small = dict(hidden_size=32, num_attention_heads=2, num_hidden_layers=1)
    small |= dict(model_type="roberta", intermediate_size=64, max_position_embeddings=8)
    assert len(from_config(small, 6).cov) == 6
    with pytest.raises(ValueError, match="6"):
        from_config(small, 7)


def test_words_of_the_table():
    rows = families_table()
    said = {
        "gpt2": ("learned", "plain", "causal"),
        "bert": ("learned", "plain", "bidirectional"),
        "llama": ("rotary", "gated", "causal"),
        "bloom": ("ALiBi", "plain", "causal"),
        "t5": ("buckets", "either", "both"),
        "marian": ("sines", "plain", "both"),
        "mpnet": ("learned", "plain", "bidirectional"),
        "esm": ("either", "plain", "bidirectional"),
    }
    for name, words in said.items():
        assert tuple(rows.loc[name, ["positions", "mlp", "attention"]]) == words, name
