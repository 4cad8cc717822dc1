"""Low-rank adapters trained by torch: written out here, with names as peft's, and by
peft itself. From the same start losses are equal, from random ones their law is.
"""

import json
from functools import partial

import numpy as np
import pytest
import tables
from conftest import least_p, nightly
from model_flags import in_double
from with_transformers import TORCH, torch, transformers

from infattn_nb import from_config, train, weights_of
from infattn_nb.huggingface import next_tokens

pytestmark = TORCH
TEXTS = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8]]
SMALL = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, vocab_size=11)
SMALL |= dict(num_attention_heads=4, num_key_value_heads=2)
CONFIGS = dict(
    gpt2=dict(n_embd=16, n_head=2, n_layer=2, vocab_size=11)
    | {f"{x}_pdrop": 0.0 for x in ("attn", "embd", "resid")},
    llama=SMALL,
    qwen3=SMALL | dict(head_dim=8),
)
SOME = dict(gpt2=["c_attn"], llama=["q_proj", "v_proj"], qwen3=["q_proj", "v_proj"])


def lora_of(torch, layer, rank, alpha, stabilised=False, both=False):
    "A layer of torch with a low-rank adapter; B starts at zero."

    class Lora(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.base_layer = layer
            out, columns = layer.weight.shape
            if type(layer).__name__ == "Conv1D":
                out, columns = columns, out
            self.lora_A = torch.nn.Linear(columns, rank, bias=False)
            self.lora_B = torch.nn.Linear(rank, out, bias=False)
            if not both:
                torch.nn.init.zeros_(self.lora_B.weight)
            self.factor = alpha / (rank**0.5 if stabilised else rank)

        def forward(self, x):
            return self.base_layer(x) + self.factor * self.lora_B(self.lora_A(x))

    return Lora()


def wrapped(model, on, **about):
    "A model with adapters on the layers whose names end so; on all if `on` is 'all'."
    for name, layer in list(model.named_modules()):
        if hasattr(layer, "weight") and layer.weight.ndim == 2 and "head" not in name:
            parent, _, last = name.rpartition(".")
            table = isinstance(layer, torch.nn.Embedding)
            if not table and (on == "all" or last in on):
                new = lora_of(torch, layer, **about)
                setattr(model.get_submodule(parent), last, new)
    return model


def model_of(kind, seed=0):
    torch.manual_seed(seed)
    c = transformers.AutoConfig.for_model(kind, **CONFIGS[kind])
    return transformers.AutoModelForCausalLM.from_config(c)


def loss_of(model):
    "The mean cross-entropy of the next token."
    rows = [model(torch.tensor([text])).logits[0, :-1] for text in TEXTS]
    words = torch.tensor([word for text in TEXTS for word in text[1:]])
    return torch.nn.functional.cross_entropy(torch.cat(rows), words)


def by_torch(model, rule, steps):
    "Losses before each step and in the end, when only adapters are trained."
    named = [(k, x) for k, x in model.named_parameters() if "lora_" in k]
    A, B = ([x for k, x in named if f"lora_{w}" in k] for w in "AB")
    optimizer = rule([dict(params=A), dict(params=B)])
    optimizer.param_groups[1]["lr"] *= 4  # B has a rate of its own
    losses = []
    for _ in range(steps):
        loss = loss_of(model)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return np.array([*losses, loss_of(model).item()])


def by_program(kind, adapters, steps, weights=None, **how):
    net = from_config(dict(model_type=kind) | CONFIGS[kind], TEXTS)
    p, logits = net.program(readout="lm", adapters=adapters)
    factors = {b.name: 4.0 for b in p.adapters if ".lora_B" in b.name}
    about = dict(loss="softmax", reduction="mean", parametrization="standard")
    init = None if weights is None else weights(net)
    about |= dict(matrices="adapters", rate_factors=factors, verbose=False)
    how = dict(width=16, steps=steps, init=init) | about | how
    return train(p, logits, next_tokens(net), **how)


RULES = (
    dict(
        sgd=(
            partial(torch.optim.SGD, lr=0.05, momentum=0.8),
            dict(optimizer="sgd", learning_rate=0.05, momentum=0.8),
        ),
        adamw=(
            partial(torch.optim.AdamW, lr=0.004, weight_decay=0.1),
            dict(optimizer="adamw", learning_rate=0.004, weight_decay=0.1),
        ),
    )
    if torch
    else dict(sgd=None, adamw=None)
)
CASES = [(k, on, rule) for k in CONFIGS for on in ("some", "all") for rule in RULES]
OFTEN = ("gpt2", "some", "sgd"), ("llama", "all", "adamw"), ("qwen3", "some", "adamw")


@pytest.mark.power("B's rate, or a factor √n in A's gradient")
@pytest.mark.parametrize(
    ("kind", "on", "rule"), nightly(CASES, *(c for c in CASES if c not in OFTEN))
)
def test_losses_are_those_of_torch(kind, on, rule, steps=20):
    on = SOME[kind] if on == "some" else "all"
    adapters = dict(rank=5, alpha=5, on=on)  # more than the width of some heads
    optimizer, how = RULES[rule]
    with in_double():
        model = wrapped(model_of(kind), on, rank=5, alpha=5).double().eval()
        given = partial(weights_of, module=model, readout="lm", adapters=adapters)
        ours = by_program(kind, adapters, steps, given, size=1, **how)
        theirs = by_torch(model, optimizer, steps)
    np.testing.assert_allclose(ours.loss[0], theirs, rtol=1e-8)
    assert theirs[0] - theirs[-1] > 0.01
    for name, x in model.named_parameters():
        if name.endswith("q_proj.lora_A.weight"):
            key = name.removesuffix(".weight")
            np.testing.assert_allclose(ours.weights(key)[0], x.detach(), atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("stabilised", [False, True])
@pytest.mark.parametrize("kind", CONFIGS)
def test_losses_are_those_of_peft(kind, stabilised, steps=20):
    peft = pytest.importorskip("peft")
    about = dict(r=3, lora_alpha=5, target_modules=SOME[kind], use_rslora=stabilised)
    optimizer, how = RULES["adamw"]
    with in_double():
        model = peft.get_peft_model(model_of(kind), peft.LoraConfig(**about))
        model = model.double().eval()
        adapters = dict(peft_type="LORA") | about
        given = partial(weights_of, module=model, readout="lm", adapters=adapters)
        ours = by_program(kind, adapters, steps, given, size=1, **how)
        theirs = by_torch(model, optimizer, steps)
    np.testing.assert_allclose(ours.loss[0], theirs, rtol=1e-8)


ALPHA = 40  # large, so that the adapters decide the losses


def fresh(many, steps, on, **about):
    "Losses of fresh models of torch, trained by gradient descent."
    rule = partial(torch.optim.SGD, lr=0.02)
    about = dict(rank=3, alpha=ALPHA) | about
    models = (wrapped(model_of("gpt2", k), on, **about) for k in range(many))
    return np.array([by_torch(m.double().eval(), rule, steps) for m in models])


@pytest.mark.power("α/√r in the place of α/r, and a start with both random")
@pytest.mark.slow
@pytest.mark.parametrize("n", [16, 48])
def test_random_networks_have_the_law_of_torch(n, monkeypatch, steps=6, many=200):
    monkeypatch.setitem(CONFIGS, "gpt2", CONFIGS["gpt2"] | dict(n_embd=n))
    adapters = dict(rank=3, alpha=ALPHA, on=["c_attn"])
    how = dict(optimizer="sgd", learning_rate=0.02, width=n, size=1000, rng=1)
    ours = by_program("gpt2", adapters, steps, **how).loss
    ours = np.stack([ours[:, 0], ours[:, -1], ours[:, -1] - ours[:, 0]], axis=1)

    def p_of(**about):
        x = fresh(many, steps, ["c_attn"], **about)
        x = np.stack([x[:, 0], x[:, -1], x[:, -1] - x[:, 0]], axis=1)
        return least_p(ours, x)

    assert p_of() > 1e-6
    assert p_of(stabilised=True) < 1e-6
    assert p_of(both=True) < 1e-6


def part_of(name, monkeypatch, **smaller):
    "Rows of the stored file, and those that are made now, of the same cases."
    for key, value in smaller.items():
        monkeypatch.setattr(tables, key, value)
    made = tables.ADAPTER_PARTS[name]()
    names = "rule", "optimizer", "zero", "width", "ratio"
    keys = [k for k in names if k in made[0]]
    stored = json.loads(tables.ADAPTED.read_text(encoding="utf-8"))[name]
    return [
        (row, next(x for x in stored if all(x[k] == row[k] for k in keys)))
        for row in made
    ]


@pytest.mark.slow
def test_stored_changes_are_made_by_this_code(monkeypatch):
    for made, stored in part_of("powers", monkeypatch, ADAPTER_WIDTHS=(64,)):
        for key in stored.keys() - {"optimizer", "zero", "width"}:
            np.testing.assert_allclose(made[key], stored[key], rtol=1e-4)


@pytest.mark.slow
def test_stored_losses_over_rates_are_made_by_this_code(monkeypatch):
    smaller = dict(ADAPTER_WIDTHS=(64,), RATIOS=(1.0, 4.0))
    for made, stored in part_of("grid", monkeypatch, **smaller):
        assert made["rates"] == stored["rates"]
        ours, theirs = (np.array(x["loss"], dtype=float) for x in (made, stored))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)


@pytest.mark.slow
def test_stored_losses_on_text_are_made_by_this_code(monkeypatch):
    "One network; torch trains its base in single precision."
    rules = dict(list(tables.RULES.items())[:1])
    smaller = dict(TEXT_WIDTHS=(64,), TEXT_NETWORKS=1, RULES=rules)
    ((made, stored),) = part_of("text", monkeypatch, **smaller)
    for step, loss in made["loss"].items():
        assert loss[0] == pytest.approx(stored["loss"][str(step)][0], rel=0.05)
