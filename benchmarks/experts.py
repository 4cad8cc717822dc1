"""Mixtures of experts against torch: one network of four of Mixtral's blocks, n = 512,
with eight experts of which two are chosen; weights, forward and backward pass.

    python benchmarks/experts.py

prints one table and writes it to nbs/data/benchmarks_experts.json.
Processor time, best of several repetitions, all sides of a ratio in turn, one thread,
float64. Needs torch and transformers; nothing is downloaded.
"""

import tracemalloc
from itertools import chain

from beside_torch import main, seconds  # before numpy: it sets one thread

import numpy as np
import torch
import transformers

from infattn_nb import Block, FeedForward, Transformer, from_config
from infattn_nb.transformer import Experts, embedding_cov

N, REPETITIONS = 512, 4
SHAPE = dict(
    hidden_size=N,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=2,
    intermediate_size=1792,
    num_local_experts=8,
    num_experts_per_tok=2,
    initializer_range=0.02,
    sliding_window=None,
)


def in_torch(s, backward):
    "A call that draws all weights and reads s tokens, possibly with gradients."
    config = transformers.MixtralConfig(vocab_size=s, **SHAPE)
    config._experts_implementation = "eager"  # the only one in double precision
    config._attn_implementation = "eager"
    module = transformers.MixtralModel(config).double().eval()
    x = torch.arange(s)[None]
    r = torch.randn(N, dtype=torch.float64) / N**0.5

    def call():
        with torch.no_grad():
            for p in module.parameters():
                if p.ndim > 1:
                    p.normal_(0, SHAPE["initializer_range"])
        if not backward:
            with torch.no_grad():
                return module(x)
        module.zero_grad()
        (module(x).last_hidden_state[0, -1] @ r).backward()
        return [float((p.grad**2).sum()) for p in module.parameters()]

    return call


def rows():
    for s in (16, 64):
        net = from_config(SHAPE | dict(model_type="mixtral"), s)
        for passes, run in (("forward", net.chain), ("both passes", net.gradients)):
            theirs = in_torch(s, passes != "forward")
            found = []
            for _ in range(REPETITIONS + 1):
                each = [seconds(theirs)]
                for n in (np.inf, N):
                    size = max(1, (256 if n == np.inf else 32) // s)
                    each.append(seconds(lambda: run(n, size, 0)) / size)
                found.append(each)
            torchs, *ours = np.min(found[1:], axis=0)
            for name, value in zip(("limit", f"exact at n = {N}"), ours, strict=True):
                yield dict(
                    section="experts",
                    case=f"Mixtral, 4 blocks, s = {s}, {passes}: {name}",
                    value=value,
                    against=f"as fast as torch, weights and {passes}",
                    ratio=torchs / value,
                )


def memory_rows(n=2048, s=512):
    "The largest memory of one block with 128 experts, beside that of its weights."
    mixture = Experts(128, 8, FeedForward(3 / 8, "silu", True))
    net = Transformer(embedding_cov(range(s), 1.0, 0.3), [Block(None, mixture)])
    weights = 8 * 128 * 3 * n * n * 3 / 8  # bytes
    for passes, run in (("forward", net.chain), ("both passes", net.gradients)):
        tracemalloc.start()
        run(n, 1, 0)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        yield dict(
            section="memory of experts",
            case=f"128 experts, 8 chosen, n = {n}, s = {s}: {passes}",
            value=peak,
            against="less than the weights alone",
            ratio=weights / peak,
        )


if __name__ == "__main__":
    main(__doc__, "benchmarks_experts", chain(rows(), memory_rows()))
