"""Torch's side of the comparison of circuits: `python tests/torch_circuits.py` writes
tests/data/circuits.npz, which tests/learning/test_circuits.py reads.

Attention-only transformers of finite width with the weights of
reference_circuits.Wide, trained by torch's autograd and SGD in double precision;
stored are the values before every step.
"""

from pathlib import Path

import numpy as np
import torch
from reference_circuits import OF_TORCH, Wide, data
from torch.nn.functional import layer_norm, rms_norm

from infattn_nb.learning.circuits import NORM_EPS

FILE = Path(__file__).parent / "data/circuits.npz"
SMALL, STEPS, RATE = 24, 20, 0.01
LAYER_NORMS = {64: 16, 256: 16, 1024: 8}  # width: how many networks


def run(name, n, seed):
    "Values (STEPS + 1, …) of one network before each step and after the last."
    depth, norm, causal, every = OF_TORCH[name]
    rows, y = data(7, d=depth.size, every=every, causal=causal)
    net = Wide(depth, n, 1, np.random.default_rng([seed, n]))
    var = net.var
    trained = lambda W: torch.nn.Parameter(torch.tensor(W))
    unit = lambda head: {k: trained(W / (var[k] / n) ** 0.5) for k, W in head.items()}
    heads = [[unit(head) for head in layer] for layer in net.heads]
    r = torch.nn.Parameter(torch.tensor(net.readout))
    X, see, y = map(torch.tensor, (rows.tokens @ net.E, rows.see, y))
    normed = {
        None: lambda x: x,
        "rms": lambda x: rms_norm(x, (n,), eps=NORM_EPS),
        "layer": lambda x: layer_norm(x, (n,), eps=NORM_EPS),
    }[norm]
    descent = torch.optim.SGD(
        [p for layer in heads for head in layer for p in head.values()]
        + [r] * depth.train_readout,
        lr=RATE,
    )
    path = []
    for t in range(STEPS + 1):
        x = X
        for layer in heads:
            u = normed(x)
            out = 0
            for w in layer:
                q, k, v = (u @ w[c] * (var[c] / n) ** 0.5 for c in "QKV")
                A = torch.softmax(q @ k.transpose(1, 2) / n**0.5 + see, -1)
                out = out + A @ v @ w["O"] * (var["O"] / n / depth.heads) ** 0.5
            x = depth.residual * x + out
        f = (x if every else x[:, -1]) @ r / n**0.5
        path.append(f.detach().numpy())
        if t < STEPS:
            descent.zero_grad()
            (0.5 * ((f - y) ** 2).sum()).backward()
            descent.step()
    return np.array(path)


def main():
    stored = {name: run(name, SMALL, 0) for name in OF_TORCH}
    for name in OF_TORCH:
        if "LayerNorm" in name:
            stored |= {
                f"{name} {n} {seed}": run(name, n, seed)
                for n, most in LAYER_NORMS.items()
                for seed in range(most)
            }
    np.savez_compressed(FILE, **stored)


if __name__ == "__main__":
    main()
