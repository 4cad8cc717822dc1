"""Low-rank adapters: a network with them is the network with other matrices; only they
are trained, and only their vectors are drawn in full.
"""

import json

import numpy as np
import pytest
from wrong_calls import rejects

from infattn_nb import Program, Transformer, from_config, limit, train
from infattn_nb.huggingface import next_tokens
from infattn_nb.nonlinearities import tanh
from infattn_nb.training.programs import needs
from infattn_nb.transformer import Adapters

GPT2 = dict(model_type="gpt2", n_embd=16, n_head=2, n_layer=2, vocab_size=9)
LLAMA = dict(model_type="llama", hidden_size=16, intermediate_size=24, vocab_size=9)
LLAMA |= dict(num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2)
TEXT = [3, 1, 4, 1, 5]
HOW = dict(loss="softmax", parametrization="standard", learning_rate=0.1, rng=3)


def written(config=GPT2, **about):
    net = from_config(config, [TEXT])
    return net, *net.program(readout="lm", adapters=dict(rank=3, alpha=5) | about)


def start(program, f, net, **how):
    "Networks at the start, and their outputs."
    y = next_tokens(net)
    return train(program, f, y, width=16, size=2, verbose=False, **HOW | how)


@pytest.mark.power("α/√r in the place of α/r, or a factor √n")
@pytest.mark.parametrize("stabilised", [False, True])
@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=lambda c: c["model_type"])
def test_it_is_the_network_with_other_matrices(config, stabilised):
    "W + (α/r) BA in the place of W, for every matrix."
    about = dict(starts_at_zero=None, rank_stabilised=stabilised)
    net, p, f = written(config, on="all", **about)
    own = start(p, f, net, steps=0)
    factor = 5 / (3**0.5 if stabilised else 3)
    q, g = net.program(readout="lm")
    merged = {b.name: own.weights(b.name) for b in q.parameters}
    for W in q.matrices:
        name, _, head = W.name.partition("[")
        layer, _, part = name.rpartition(".")
        fused = part in ("q", "k", "v")
        layer = layer if fused else name
        of_head = f"[{head}" if head else ""
        reads = layer.endswith(("o_proj", "attn.c_proj"))
        A = own.weights(f"{layer}.lora_A" + of_head * reads)
        of_part = f".{part}" * fused + of_head * (not reads)
        B = own.weights(f"{layer}.lora_B" + of_part)
        merged[W.name] = own.weights(W.name) + factor * B.mT @ A
    again = start(q, g, net, steps=0, init=merged)
    np.testing.assert_allclose(again.outputs, own.outputs, rtol=1e-12, atol=1e-12)
    plain = start(q, g, net, steps=0, init={k: own.weights(k) for k in merged})
    assert np.abs(plain.outputs - own.outputs).max() > 1e-3


def test_they_start_as_the_network_and_are_the_only_ones_that_move():
    net, p, f = written()
    assert {x.name.rpartition(".lora_")[2][0] for x in p.adapters} == {"A", "B"}
    assert len(p.adapters) == 2 * (2 + 2 * 2)  # q and v, of two heads, in two blocks
    r = start(p, f, net, steps=4, matrices="adapters", optimizer="adam")
    assert (r.loss[:, -1] < r.loss[:, 0]).all()
    for W in (*p.matrices, *p.parameters):
        moved = np.abs(r.weights(W) - r.weights(W, "start")).max()
        assert (moved > 0) == (W in p.adapters), W.name
    without, g = net.program(readout="lm")
    given = {W.name: r.weights(W, "start") for W in (*p.matrices, *p.parameters)}
    given = {k: x for k, x in given.items() if "lora" not in k}
    plain = start(without, g, net, steps=0, init=given)
    np.testing.assert_allclose(plain.outputs[:, 0], r.outputs[:, 0], rtol=1e-12)


@pytest.mark.power("a variance of 1/n or 1/r, or entries of another matrix")
def test_the_start_is_uniform(n=600):
    "Variances within six standard errors, and no entry beyond the bound."
    net = Transformer.uniform(np.eye(2), layers=1, heads=1, width=n)
    for zero, which, size, rows in (("B", "A", n, n), ("A", "B", 5, n)):
        p, f = net.program(adapters=dict(rank=5, on="v", starts_at_zero=zero))
        r = train(p, f, [1.0], width=n, steps=0, size=4, rng=1, verbose=False)
        x = r.weights(f"V1.lora_{which}" + "[0]" * (which == "B"))
        other = r.weights(f"V1.lora_{zero}" + "[0]" * (zero == "B"))
        assert not other.any() and x.shape == (4, 5, rows)
        times = 3 * size * x**2  # of mean one, standard deviation √(4/5)
        assert abs(times.mean() - 1) < 6 * (0.8 / x.size) ** 0.5
        assert times.max() <= 3 and times.max() > 2.9
    heads = Transformer.uniform(np.eye(2), layers=1, heads=2, width=n)
    p, f = heads.program(adapters=dict(rank=5, on="o"))
    r = train(p, f, [1.0], width=n, steps=0, size=4, rng=1, verbose=False)
    x = r.weights("O1.lora_A[1]")  # the columns of one head, of n in all
    assert x.shape == (4, 5, n // 2)
    assert abs(3 * n * (x**2).mean() - 1) < 6 * (0.8 / x.size) ** 0.5
    p, f = net.program(adapters=dict(rank=5, on="v", init="normal"))
    r = train(p, f, [1.0], width=n, steps=0, size=4, rng=1, verbose=False)
    x = r.weights("V1.lora_A")
    assert abs(25 * (x**2).mean() - 1) < 6 * (2 / x.size) ** 0.5
    assert np.abs(x).max() > 3 / 5


def test_frozen_matrices_are_not_drawn_for_adam():
    "The size of a matrix would be seen in the estimate, and in what is drawn."
    net = Transformer.uniform(np.eye(2), layers=1, heads=1, width=4096)
    p, f = net.program(adapters=dict(rank=4, on=("q", "v")))
    how = dict(width=4096, steps=2, size=1, rng=1, verbose=False, optimizer="adam")
    r = train(p, f, [1.0], matrices="adapters", **how)
    assert np.isfinite(r.loss).all() and r.loss[0, -1] != r.loss[0, 0]
    plan = r._learner.plan
    large = [W for W, shape in plan.shapes.items() if min(shape) > 1]
    assert len(large) == 6 and not any(plan.is_explicit(W, 1) for W in large)
    assert needs(plan, 2, 1, 2).bytes < 8 * 4096**2 / 4
    whole = train(p, f, [1.0], matrices=["adapters", "W1.1"], **how | dict(width=64))
    drawn = {W.name for W in large if whole._learner.plan.is_explicit(W, 1)}
    assert "W1.1" in drawn


def test_frozen_matrices_may_be_unknown_or_explicit():
    "Adam acts on the vectors; from given matrices both ways give the same losses."
    net, p, f = written()
    how = dict(optimizer="adam", matrices="adapters", learning_rate=0.05, steps=3)
    own = start(p, f, net, steps=0)
    init = {W.name: own.weights(W.name) for W in p.matrices}
    init |= {b.name: own.weights(b.name) for b in p.parameters}
    a, b = (start(p, f, net, init=init, dense=d, **how) for d in (False, True))
    np.testing.assert_allclose(a.loss, b.loss, rtol=1e-10)
    assert np.abs(a.loss[:, -1] / a.loss[:, 0] - 1).min() > 1e-3
    more = how | dict(matrices=None, dense=False)
    rejects(
        lambda: start(p, f, net, **more), "must be True or None for Adam, got False"
    )


def test_uniform_vectors_have_no_limit_outside_scores():
    p = Program()
    h = p.matrix() @ tanh(p.parameter(0.0, 1 / 3, uniform=True))
    rejects(lambda: limit(p).cov(h), "have uniform vectors in scores only")


PEFT = dict(peft_type="LORA", r=4, lora_alpha=6, target_modules=["c_attn"])


def test_a_config_of_peft_is_read(tmp_path):
    file = tmp_path / "adapter_config.json"
    empty = dict(lora_dropout=0.0, bias="none", rank_pattern={}, modules_to_save=None)
    file.write_text(json.dumps(PEFT | empty | dict(use_rslora=True)))
    net = from_config(GPT2, [TEXT])
    for given in (file, str(tmp_path), PEFT | dict(use_rslora=True)):
        p, _ = net.program(adapters=given)
        names = [x.name for x in p.adapters]
        assert names[0] == "transformer.h.0.attn.c_attn.lora_A"
        assert names[1] == "transformer.h.0.attn.c_attn.lora_B.q[0]"
        assert p.adapters[0].k == 4 and len(names) == 2 * 7
    every, _ = net.program(adapters=PEFT | dict(target_modules="all-linear"))
    assert len(every.adapters) == 2 * (7 + 3 + 2 + 2)
    some, _ = net.program(adapters=PEFT | dict(target_modules=r".*\.1\.mlp\.c_fc"))
    assert [x.name for x in some.adapters] == [
        f"transformer.h.1.mlp.c_fc.lora_{w}" for w in "AB"
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (dict(rank=9, on="q"), "`rank` must be at most 8 for 'transformer.h.0.attn.c_"),
        (dict(on="w_q"), "`on` must name matrices of the blocks, got 'w_q'"),
        (dict(starts_at_zero="C"), "`starts_at_zero` must be"),
        (dict(ranks=3), "ranks"),
        (PEFT | dict(use_dora=True), "`adapters` must have no use_dora, got True"),
        (PEFT | dict(rank_pattern={"q": 2}), "have no rank_pattern"),
        (PEFT | dict(target_modules=None), "`target_modules` must be given"),
        (PEFT | dict(peft_type="IA3"), "be of peft_type 'LORA', got IA3"),
        (PEFT | dict(init_lora_weights="pissa"), "`init_lora_weights` must be"),
        (3, "`adapters` must be"),
    ],
)
def test_what_is_wrong_is_said(given, said):
    net = from_config(GPT2 | dict(n_embd=8), [TEXT])
    rejects(lambda: net.program(adapters=given), said)


def test_only_a_program_with_adapters_has_some():
    net = from_config(GPT2, [TEXT])
    p, f = net.program(readout="lm")
    rejects(lambda: start(p, f, net, matrices="adapters"), "'adapters' for a program")
    rejects(lambda: limit(written()[1]), "`program` must have no adapters at infinite")
    endless = Transformer.uniform(np.eye(2), layers=1, heads=1)
    rejects(lambda: endless.program(adapters=dict(rank=2)), "`width` must be finite")
    assert Adapters(4, 8.0).factor == 2
