"""Gradients of the report are torch's .grad: norms by block, queries over values, and
the share of the blocks, in models with queries and keys × 4 and embeddings × 12.
"""

import re

import numpy as np
import pytest
from conftest import nightly
from model_families import config, model
from with_transformers import TORCH, torch, transformers

from infattn_nb import from_config
from infattn_nb.initialisation.diagnosis import drawn
from infattn_nb.initialisation.rules import scaled

pytestmark = TORCH
WIDTH, HEADS, LAYERS = 32, 4, 2
TEXT = [3, 1, 4, 1, 5]  # one token twice
SIZE = 200
SHAPE = dict(
    vocab_size=16,
    hidden_size=WIDTH,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    intermediate_size=48,
    max_position_embeddings=16,
    initializer_range=0.1,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
GPT2 = dict(
    vocab_size=16,
    n_embd=WIDTH,
    n_layer=LAYERS,
    n_head=HEADS,
    n_positions=16,
    initializer_range=0.1,
    bos_token_id=1,
    eos_token_id=2,
)
FAMILIES = {
    "gpt2": GPT2,
    "bert": SHAPE,
    "llama": SHAPE | dict(num_key_value_heads=2),
    "qwen2": SHAPE | dict(num_key_value_heads=4),
    "gemma": SHAPE | dict(num_key_value_heads=1, head_dim=8),
    "gpt_neox": SHAPE,
    "olmo2": SHAPE | dict(num_key_value_heads=4),
}


def queries_and_keys(module):
    "Views of all tensors of queries and keys, and of values, (names, tensors)."
    for name, p in module.named_parameters():
        if p.ndim == 1 or "layer" not in name and not name.startswith("h."):
            continue
        if "c_attn" in name:
            q, k, v = p.split(WIDTH, dim=1)
            g = p.grad is not None and p.grad.split(WIDTH, dim=1)
        elif "query_key_value" in name:
            q, k, v = p.view(HEADS, 3, -1, WIDTH).unbind(1)
            g = p.grad is not None and p.grad.view(HEADS, 3, -1, WIDTH).unbind(1)
        elif part := re.search(r"(q_proj|k_proj|v_proj|query|key|value)", name):
            yield part[1][0], name, p, p.grad
            continue
        else:
            continue
        for letter, x, dx in zip("qkv", (q, k, v), g or (None,) * 3):
            yield letter, name, x, dx


def changed(module):
    "Queries and keys × 4 (their norm's gains in OLMo 2), embeddings × 12."
    with torch.no_grad():
        for name, p in module.named_parameters():
            if "emb" in name.lower() and p.ndim == 2 or "wte" in name or "wpe" in name:
                p.mul_(12)
            if re.search(r"(q|k)_norm", name):
                p.mul_(4)
        if not any("q_norm" in name for name, _ in module.named_parameters()):
            for letter, _, x, _ in queries_and_keys(module):
                if letter in "qk":
                    x.mul_(4)
    return module


def numbers_of_torch(kind):
    "By network: squared norms of .grad by block, of embeddings; queries over values."
    config = transformers.AutoConfig.for_model(kind, **FAMILIES[kind])
    rows = []
    for seed in range(SIZE):
        torch.manual_seed(seed)
        module = changed(transformers.AutoModel.from_config(config).double().eval())
        x = module(input_ids=torch.tensor([TEXT])).last_hidden_state[0]
        (x * torch.randn(x.shape).double()).sum().div(
            (len(TEXT) * WIDTH) ** 0.5
        ).backward()
        blocks = np.zeros(LAYERS)
        embeddings = 0.0
        for name, p in module.named_parameters():
            if p.grad is None or p.ndim == 1:
                continue
            square = p.grad.square().sum().item()
            block = re.search(r"(?:^|\.)(?:h|layers?)\.(\d+)\.", name)
            if block:
                blocks[int(block[1])] += square
            else:
                embeddings += square
        sums = dict.fromkeys("qkv", 0.0)
        for letter, name, _, dx in queries_and_keys(module):
            if re.search(r"\b0\b", name):
                sums[letter] += dx.square().sum().item()
        ratio = (sums["q"] + sums["k"]) / 2 / sums["v"]
        rows.append([*blocks, embeddings, ratio, blocks.sum() / embeddings])
    return np.log(rows)


def numbers_here(kind, relative=False):
    t = from_config(FAMILIES[kind] | dict(model_type=kind), [TEXT])
    t = scaled(t, 1.0, 16.0, 12.0)
    d = drawn(t, WIDTH, 2 * SIZE, np.random.SeedSequence(0), relative=relative)
    matrices = [x for name, x in d.squared_norms.items() if not name.startswith("b")]
    blocks = np.nansum(matrices, axis=0)
    d0 = {k: d.squared_norms[k][:, 0] for k in "qkv"}
    ratio = (d0["q"] + d0["k"]) / 2 / d0["v"]
    rows = [*blocks.T, d.embedding, ratio, blocks.sum(1) / d.embedding]
    return np.log(np.stack(rows, 1))


def distance(a, b):
    "Of two means, in standard errors."
    error = np.sqrt(a.var(0, ddof=1) / len(a) + b.var(0, ddof=1) / len(b))
    return abs(a.mean(0) - b.mean(0)) / error


@pytest.mark.power(
    "seven standard errors of the mean logarithm of a squared norm, a tenth to a third "
    "of it; the norms weighed by the variances are rejected"
)
@pytest.mark.parametrize("kind", nightly(FAMILIES, *list(FAMILIES)[1:]))
@pytest.mark.long
def test_gradients_are_those_of_torch(kind):
    theirs = numbers_of_torch(kind)
    ours = numbers_here(kind)
    assert distance(theirs, ours).max() < 7
    weighed = numbers_here(kind, relative=True)
    ratios = slice(LAYERS + 1, None)  # which have no common factor
    assert distance(theirs[:, ratios], weighed[:, ratios]).max() > 7


MIXTURES = {
    "gpt_oss": dict(
        num_key_value_heads=2,
        head_dim=8,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=3,
        swiglu_limit=1.0,
        initializer_range=0.25,
    ),
    "olmoe": dict(num_experts=4, num_experts_per_tok=2, initializer_range=0.25),
}
FEW = dict(num_key_value_heads=2, num_hidden_layers=2, initializer_range=0.25)
NIGHTLY = dict(
    qwen2_moe=FEW
    | dict(
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=24,
    ),
    glm4_moe=FEW
    | dict(
        head_dim=8,
        n_routed_experts=6,
        num_experts_per_tok=2,
        n_group=3,
        topk_group=2,
        moe_intermediate_size=32,
        first_k_dense_replace=0,
    ),
    ernie4_5_moe=FEW
    | dict(
        moe_num_experts=4, moe_k=2, moe_intermediate_size=24, moe_layer_start_index=0
    ),
    dbrx=dict(
        d_model=WIDTH,
        n_heads=4,
        n_layers=2,
        attn_config=dict(kv_n_heads=2, rope_theta=1e4),
        ffn_config=dict(
            moe_num_experts=4,
            moe_top_k=2,
            ffn_hidden_size=48,
            moe_normalize_expert_weights=2.0,
        ),
        initializer_range=0.25,
    ),
    llama4_text=FEW | dict(head_dim=8, num_local_experts=4, attention_chunk_size=3),
)
MIXTURES |= NIGHTLY
WEIGHED = "q", "v", "sink", "r", "br", "1", "2", "3", "s1", "s2", "s3", "sr"


def parts_of_torch(kind, t, size=120):
    "Squared norms of .grad of parts of both blocks, {part: (size, blocks)}."
    config = transformers.AutoConfig.for_model(kind, **SHAPE | MIXTURES[kind])
    config._attn_implementation = "eager"
    layout = t.source.family.layouts[0]
    found = {}
    for seed in range(size):
        torch.manual_seed(seed)
        module = transformers.AutoModel.from_config(config).eval()
        if kind == "dbrx":  # whose clamping by None is an error of this torch
            for block in module.blocks:
                block.norm_attn_norm.attn.clip_qkv = np.inf
        x = module(input_ids=torch.tensor([TEXT])).last_hidden_state[0]
        loss = (x * torch.randn(x.shape)).sum()
        (loss / (len(TEXT) * WIDTH) ** 0.5).backward()
        for name, p in module.named_parameters():
            hits = ((x, x.pattern.search(name)) for x in layout if "*" in x.name)
            tensor, hit = next((x for x in hits if x[1]), (None, None))
            if tensor is None or not {*tensor.roles} & {*WEIGHED} or p.grad is None:
                continue
            grad = p.grad.double().numpy()
            parts = {tensor.roles[0]: grad}
            if tensor.roles[0] not in ("sink", "br"):
                parts = tensor.matrices(grad, WIDTH // HEADS, 2, t.most_experts)
            for part, grad in parts.items():
                if part in WEIGHED:
                    found.setdefault((part, int(hit[1])), []).append((grad**2).sum())
    return {key: np.log(x) for key, x in found.items()}


@pytest.mark.power(
    "a factor of two of a norm: seven standard errors of its mean logarithm"
)
@pytest.mark.parametrize("kind", nightly(MIXTURES, "olmoe", *NIGHTLY))
@pytest.mark.long
def test_gradients_of_mixtures_are_those_of_torch(kind):
    "Routers, their biases, sinks, gates and experts, in both blocks."
    t = from_config(SHAPE | MIXTURES[kind] | dict(model_type=kind), [TEXT])
    theirs = parts_of_torch(kind, t)
    s = len(TEXT)
    g = t.gradients(WIDTH, 400, 0, readout=np.eye(s) / s)
    assert len(theirs) >= 12
    for (part, l), x in theirs.items():
        y = np.log(g.squared_weight_norms[part][:, l])
        assert distance(x[:, None], y[:, None]).max() < 7, (part, l)
        error = np.sqrt(x.var() / len(x) + y.var() / len(y))
        assert error < 0.19  # a factor of two of a norm is seen


OF_LATENTS = dict(  # tensor -> our matrices
    q_a_proj=("dq",),
    q_b_proj=("q",),
    kv_a_proj_with_mqa=("dkv", "kr"),
    kv_b_proj=("k", "v"),
    o_proj=("o",),
)


@pytest.mark.power("the gradients of two tensors exchanged")
@pytest.mark.parametrize("kind", nightly(["minicpm3", "deepseek_v3"], "deepseek_v3"))
def test_grads_of_whole_models_with_latents(kind, size=100):
    "Squared .grad of each tensor of attention, in each block, and of the embeddings."
    rows = []
    for seed in range(size):
        module = model(kind, seed).double()
        x = module(torch.tensor([TEXT])).last_hidden_state[0]
        (x * torch.randn(x.shape).double()).sum().div(x.numel() ** 0.5).backward()
        squares = {
            name: p.grad.square().sum().item()
            for name, p in module.named_parameters()
            if p.grad is not None
        }
        names = [name for name in squares if any(k + "." in name for k in OF_LATENTS)]
        rows.append([*map(squares.get, names), squares["embed_tokens.weight"]])
    t = from_config(config(kind), [TEXT])
    d = drawn(t, t.width, 2 * size, np.random.SeedSequence(0))

    def ours(name):
        block, tensor = int(name.split(".")[1]), name.split(".")[3]
        return sum(d.squared_norms[k][:, block] for k in OF_LATENTS[tensor])

    found = np.stack([*map(ours, names), d.embedding], 1)
    assert len(names) == 5 * len(t.blocks)
    assert distance(np.log(rows), np.log(found)).max() < 7
    assert distance(np.log(rows), np.log(np.roll(found, 1, 1))).max() > 20
