"""Torch's side of the report: GPT-2 small as Hugging Face initialises it, forward and
backward, in float32; nothing is downloaded.

python tests/torch_report.py [file]

draws 24 networks (seeds 0 to 23) on sixteen different tokens, reads the last one
with an independent Gaussian vector, and writes what a report measures, to four
digits, to `file` (default: tests/data/report.npz). Needs torch and transformers, not
infattn_nb; two minutes.
"""

import os
import sys
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np
import torch
from transformers import GPT2Config, GPT2Model

NETWORKS, S = 24, 16
torch.set_num_threads(1)


def network(seed):
    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=S, n_positions=S, bos_token_id=0, eos_token_id=0)
    config._attn_implementation = "eager"  # the one that returns its weights
    return GPT2Model(config).eval()


def walked(seed):
    "Cosine by block, share of the entropy, squared gradients by matrix."
    model = network(seed)
    n, L = model.config.n_embd, model.config.n_layer
    y = model(torch.arange(S)[None], output_hidden_states=True, output_attentions=True)
    (y.last_hidden_state[0, -1] @ torch.randn(n) / n**0.5).backward()
    X = torch.cat(y.hidden_states).detach().double()
    X = X / X.norm(dim=-1, keepdim=True)
    i, j = np.triu_indices(S, 1)
    cosine = (X @ X.mT)[:, i, j].mean(-1)
    A = torch.cat(y.attentions).detach().double()
    share = torch.special.entr(A).sum(-1)[..., 1:] / torch.arange(2, S + 1).log()
    squares = []
    for block in model.h:
        # variances of entries, before a residual sum and elsewhere
        first, last = (0.02**2, 0.02**2 / (2 * L))
        parts = [(g, first) for g in block.attn.c_attn.weight.grad.split(n, dim=1)]
        parts += [
            (block.attn.c_proj.weight.grad, last),
            (block.mlp.c_fc.weight.grad, first),
            (block.mlp.c_proj.weight.grad, last),
        ]
        squares.append([float(v * (g.double() ** 2).sum()) for g, v in parts])
    return cosine.numpy(), share.mean((1, 2)).numpy(), np.array(squares).T


if __name__ == "__main__":
    found = [walked(seed) for seed in range(NETWORKS)]
    stored = {
        name: np.array([[float(f"{x:.4g}") for x in part.ravel()] for part in parts])
        .reshape(NETWORKS, *parts[0].shape)
        .astype(np.float32)
        for name, parts in zip(("cosine", "entropy", "squares"), zip(*found))
    }
    np.savez_compressed(
        sys.argv[1]
        if len(sys.argv) > 1
        else Path(__file__).parent / "data" / "report.npz",
        **stored,
    )
    for name, x in stored.items():
        print(name, x.shape, x.mean(0).ravel()[[0, -1]])
