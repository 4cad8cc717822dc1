"""A network and its program have one tangent kernel."""

from dataclasses import replace

import numpy as np
import pytest

from finite_differences import check_gradient

from infattn_nb import Block, FeedForward, SelfAttention, Transformer, train
from infattn_nb.transformer import Norm, Projection, Rotary
from infattn_nb.transformer.explicit import run_block


@pytest.mark.power("a kernel without its readout, a quarter too small")
@pytest.mark.parametrize("to", [None, Projection(0.5, 2.0)])
def test_one_tangent_kernel_for_networks_and_programs(to, n=16, size=2000, seed=0):
    "With one word they meant 3.3 and 5.6; a matrix before the blocks counts, too."
    from infattn_nb import gradients

    net = Transformer.uniform(np.eye(3), layers=1, heads=2, final_norm=True)
    net = replace(net, width=n, random_embeddings=True, projection=to)
    program, outputs = net.program()
    means = {}
    for count in (True, False):
        pair = (
            net.gradients(n, size, seed, count_readout=count).tangent.ravel(),
            gradients(
                program, outputs, n, size=size, rng=seed, count_readout=count
            ).tangent.ravel(),
        )
        error = np.hypot(*(x.std() for x in pair)) / np.sqrt(size)
        assert abs(pair[0].mean() - pair[1].mean()) < 6 * error
        means[count] = pair[0].mean()
    assert means[True] - means[False] == pytest.approx(1.0, abs=1e-4)  # ‖norm(x)‖²/n
    assert 1 > 6 * error


def two_texts():
    "A source of three tokens, and a target of two that looks at two of them."
    source = np.arange(5) < 3
    table = dict(buckets=np.arange(9).reshape(3, 3) % 4, var_distance=2.0)
    norm = dict(norm=Norm("rms"), norm_placement="pre")
    units = FeedForward(2, "relu")
    turned = SelfAttention(2, rotary=Rotary(), var_q=2.0)
    encoder = Block(SelfAttention(2, var_q=2.0, **table), units, rows=source, **norm)
    blocks = [
        encoder,
        replace(encoder, closing_norm=True),
        Block(SelfAttention(1, mask="causal", softcap=2.0), None, rows=~source, **norm),
        Block(
            turned, units, rows=~source, looks_at=source & (np.arange(5) != 1), **norm
        ),
    ]
    labels = [0] * 3 + [1] * 2
    return Transformer(np.eye(5) + 0.4, blocks, texts=labels, width=8, final_norm=True)


def test_blocks_that_act_on_some_rows_are_those_of_explicit_matrices():
    "Two texts, a table of distances, the norm of an encoder, rotary cross-attention."
    net = two_texts()
    program, outputs = net.program(readout="mean")
    tables = [x.name for x in program.parameters]
    assert len(tables) == 2  # blocks share the numbers of each head
    run = train(program, outputs, [1.0], width=8, steps=0, size=1, rng=0, verbose=False)
    weights = {str(W): run.weights(W)[0] for W in program.matrices}
    x = run.values(program.nodes[0])[0]
    for l, block in enumerate(net.blocks, 1):
        names = dict(q="Q", k="K", v="V", o="O")
        a = block.attention
        each = {
            k: [weights[f"{W}{l}.{h + 1}"] for h in range(a.heads)]
            for k, W in names.items()
        }
        W = {k: np.concatenate(each[k], int(k == "o")).T for k in each}
        if block.mlp is not None:
            W |= {k: weights[f"W{l}.{k}"].T for k in "12"}
        W["distance"] = np.stack([run.weights(name)[0, :, 0] for name in tables])
        x = run_block(block, x, W, net.texts)[-1].out
    read = run.weights("R1")[0, 0]
    wanted = net.last_norm.of_rows(x[3:]).mean(0) @ read
    assert run.outputs[0, 0, 0] == pytest.approx(wanted, rel=1e-10)
    every = [*weights, *tables, "R1"]
    some = ["Q1.1", "V2.2", "K4.1", tables[0]]
    check_gradient(program, outputs, [1.0], some, held=every)
