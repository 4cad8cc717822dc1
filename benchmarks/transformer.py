"""Chains of Gram matrices against torch: one network of GPT-2 small's shape, and one of
eight of Llama's blocks at n = 1024, weights and forward pass.

    python benchmarks/transformer.py

prints one table and writes it to nbs/data/benchmarks_transformer.json.
Processor time, best of several repetitions, all
sides of a ratio in turn, one thread, float64 (torch in float32, too, for long texts).
Needs torch and transformers; nothing is downloaded.
"""

from itertools import chain, product

from beside_torch import main, seconds  # before numpy: it sets one thread

import numpy as np
import torch
import transformers

from infattn_nb import Transformer, from_config
from infattn_nb.nonlinearities import gelu_tanh
from infattn_nb.transformer import embedding_cov

N, HEADS, LAYERS, REPETITIONS = 768, 12, 12, 5


def gpt2(s, dtype):
    "A module of GPT-2 small's shape; its matrices, each with its standard deviation."
    module = (
        transformers.GPT2Model(
            transformers.GPT2Config(
                vocab_size=s, bos_token_id=0, eos_token_id=0, n_positions=s
            )
        )
        .to(dtype)
        .eval()
    )
    matrices = [
        (p, 0.02 / (2 * LAYERS) ** 0.5 if "c_proj" in name else 0.02)
        for name, p in module.named_parameters()
        if p.ndim == 2
    ]
    return module, matrices


def real(s, dtype=torch.float64):
    """A call that draws all weights of GPT-2 small's blocks as its recipe says, and
    reads s tokens.
    """
    module, matrices = gpt2(s, dtype)
    x = torch.arange(s)[None]

    def call():
        with torch.no_grad():
            for p, sd in matrices:
                p.normal_(0, sd)
            module(x)

    return call


def ensemble(s, **own):
    v = N * 0.02**2
    return Transformer.uniform(
        embedding_cov(range(s), 0.02**2, 0.02**2),
        0.0,
        LAYERS,
        heads=HEADS,
        activation=gelu_tanh,
        mask="causal",
        final_norm=True,
        var_q=v,
        var_k=v,
        var_v=v,
        var_o=v / (2 * LAYERS),
        var_1=v,
        var_2=4 * v / (2 * LAYERS),
        **own,
    )


LLAMA = dict(
    model_type="llama",
    hidden_size=1024,
    num_hidden_layers=8,
    num_attention_heads=8,
    num_key_value_heads=2,
    intermediate_size=2816,
    rms_norm_eps=1e-5,
    initializer_range=0.02,
)


def real_llama(s, dtype=torch.float64):
    "A call that draws all weights of eight of Llama's blocks, and reads s tokens."
    module = (
        transformers.LlamaModel(
            transformers.LlamaConfig(
                vocab_size=s, **{k: v for k, v in LLAMA.items() if k != "model_type"}
            )
        )
        .to(dtype)
        .eval()
    )
    x = torch.arange(s)[None]

    def call():
        with torch.no_grad():
            for p in module.parameters():
                if p.ndim == 2:
                    p.normal_(0, LLAMA["initializer_range"])
            module(x)

    return call


def llama_rows():
    for s in (64, 256):
        t, torch_call = from_config(LLAMA, s), real_llama(s)
        ours, theirs = np.array(
            [
                [
                    seconds(lambda: t.chain(size=256 // s, rng=0)) / (256 // s),
                    seconds(torch_call),
                ]
                for _ in range(REPETITIONS + 1)
            ]
        )[1:].min(0)
        yield dict(
            section="transformer",
            case=f"Llama, 8 blocks, s = {s}: exact at n = 1024",
            value=ours,
            against="as fast as torch, weights and forward",
            ratio=theirs / ours,
        )


def rows():
    for s in (16, 64):
        t, narrow, torch_call = ensemble(s), ensemble(s, head_width=64), real(s)
        sizes = {
            "limit": (np.inf, 4096 // s),
            "limit, heads of 64": (64, 2048 // s),
            "exact at n = 768": (N, 512 // s),
        }
        calls = {
            name: lambda n=n, size=size: (
                narrow.chain(np.inf, size, 0) if n == 64 else t.chain(n, size, 0)
            )
            for name, (n, size) in sizes.items()
        }
        times = np.array(
            [
                [
                    seconds(torch_call),
                    *(
                        seconds(c) / size
                        for c, (_, size) in zip(calls.values(), sizes.values())
                    ),
                ]
                for _ in range(REPETITIONS + 1)
            ]
        )[1:].min(0)
        for name, value in zip(calls, times[1:]):
            yield dict(
                section="transformer",
                case=f"GPT-2 small, s = {s}: {name}",
                value=value,
                against="as fast as torch, weights and forward",
                ratio=times[0] / value,
            )


def torch_gradients(s, dtype):
    """A call that draws one network of GPT-2 small's shape: weights, forward, backward,
    squared norms of all gradients.
    """
    module, matrices = gpt2(s, dtype)
    x, r = torch.arange(s)[None], torch.randn(N, dtype=dtype) / N**0.5

    def call():
        with torch.no_grad():
            for p, sd in matrices:
                p.normal_(0, sd)
        module.zero_grad()
        (module(x).last_hidden_state[0, -1] @ r).backward()
        return [float((p.grad**2).sum()) for p, _ in matrices]

    return call


def gradient_rows(s=16):
    torch_call, t = torch_gradients(s, torch.float64), ensemble(s)
    calls = {"limit": (np.inf, 64), "exact at n = 768": (N, 8)}
    run = lambda n, size: seconds(lambda: t.gradients(n, size, 0)) / size
    times = np.array(
        [
            [seconds(torch_call), *(run(*c) for c in calls.values())]
            for _ in range(REPETITIONS + 1)
        ]
    )[1:].min(0)
    for name, value in zip(calls, times[1:]):
        yield dict(
            section="transformer",
            case=f"gradients, GPT-2 small, s = {s}: {name}",
            value=value,
            against="as fast as torch, weights and both passes",
            ratio=times[0] / value,
        )


def long_rows():
    """Long texts, one network at a time: torch in both precisions, ours in float64; in
    the limit up to 256 tokens.
    """
    for s in (128, 256, 512):
        t = ensemble(s)
        calls = {"exact at n = 768": lambda: t.gradients(N, 1, 0)}
        if s <= 256:
            calls["limit"] = lambda: t.gradients(np.inf, 1, 0)
        torches = {
            "float64": torch_gradients(s, torch.float64),
            "float32": torch_gradients(s, torch.float32),
        }
        every = calls | torches
        found = [{k: seconds(call) for k, call in every.items()} for _ in range(4)]
        best = {k: min(times[k] for times in found[1:]) for k in every}
        for name, precision in product(calls, torches):
            yield dict(
                section="transformer",
                case=f"gradients, GPT-2 small, s = {s}: {name}",
                value=best[name],
                against=f"as fast as torch in {precision}, weights and both passes",
                ratio=best[precision] / best[name],
            )


if __name__ == "__main__":
    every = chain(rows(), llama_rows(), gradient_rows(), long_rows())
    main(__doc__, "benchmarks_transformer", every)
