"""Torch's side of the training of programs, read by tests/training/test_programs.py.
Each program is run node by node on explicit matrices, differentiated by torch's
autograd and trained by torch's SGD (or along the polar factor of the momentum) in
double precision.

python tests/torch_programs.py path    tests/data/programs.npz: from the starts of
program_cases.written, the outputs before every step and after the last (seconds)
python tests/torch_programs.py law     tests/data/programs_law.npz: 20,000 random
networks at three widths (some twenty minutes): every fiftieth order statistic of
what program_cases.LAW names
"""

import sys
from pathlib import Path

import numpy as np
import torch
from numpy.random import SeedSequence
from program_cases import HOW, LAW, PROGRAMS, STEPS, Y, quantiles, watched_program
from program_cases import written

from infattn_nb.nonlinearities import relu, tanh, times
from infattn_nb.training.losses import batch_at

DATA = Path(__file__).parent / "data"
FUNCTIONS = {tanh: torch.tanh, relu: torch.relu, times: torch.mul}


def values(p, fs, weights, inputs):
    "All stacks (..., k, m) and blocks of scores (..., a, b), by torch."
    value = {}
    for h in p.past(*fs):
        if type(h).__name__ == "Input":
            value[h] = torch.stack([inputs[x] for x in h], -2)
        elif hasattr(h, "W"):
            value[h] = seen(h.args[0], value) @ weights[h.W].mT
        else:
            value[h] = value_of(h, value)
    return value


def seen(h, value):
    "The value of a stack, or of rows of some."
    match type(h).__name__:
        case "Rows":
            return seen(h.args[0], value)[..., torch.tensor(h.index.copy()), :]
        case "Concat":
            return torch.cat([seen(x, value) for x in h.args], -2)
        case "Entries":
            rows, columns = (torch.tensor(i.copy()) for i in (h.rows, h.columns))
            return value[h.args[0]][..., rows, :][..., columns]
    return value[h]


def value_of(h, value):
    "Of what is no product."
    x = [seen(a, value) for a in h.args]
    match type(h).__name__:
        case "Nonlin":
            return FUNCTIONS[h.fn](*x)
        case "Linear":
            return sum(c * a for c, a in zip(h.coefs, x))
        case "Score":
            return x[0] @ x[1].mT / x[0].shape[-1] ** 0.5
        case "Attend":
            P = torch.cat([seen(s, value) for s in h.scores], -1)
            if h.mask is not None:
                P = P.masked_fill(~torch.tensor(h.mask), -torch.inf)
            return torch.softmax(P, -1) @ x[0]
        case "Normalize":
            normed = (
                torch.nn.functional.layer_norm
                if h.kind == "layer"
                else torch.nn.functional.rms_norm
            )
            return normed(x[0], x[0].shape[-1:], eps=h.eps)


def below(f):
    "The vector that an output reads."
    if type(f).__name__ == "Rows":
        return f.args[0].args[0][f.index]
    return f.args[0]


def outputs(p, fs, weights, inputs):
    "One number per output."
    value = values(p, fs, weights, inputs)
    return torch.cat([seen(f, value)[..., 0] for f in fs], -1)


def run(name, how):
    p, fs, start = written(name)
    weights = {
        W: torch.nn.Parameter(torch.tensor(x)) for W, x in start.items() if x.ndim == 2
    }
    inputs = {h: torch.tensor(x) for h, x in start.items() if x.ndim == 1}
    y = torch.tensor(Y)
    η, λ, μ = (
        how["learning_rate"],
        how.get("weight_decay", 0.0),
        how.get("momentum", 0.0),
    )
    # the rate acts on normal weights
    gain = {W: W.var / x.shape[1] for W, x in weights.items()}
    groups = [
        dict(params=[x], lr=η * gain[W], weight_decay=λ / gain[W])
        for W, x in weights.items()
    ]
    descent = torch.optim.SGD(groups, lr=η, momentum=μ)
    B = {W: torch.zeros_like(x) for W, x in weights.items()}
    seed, *_ = SeedSequence(0).spawn(1)
    path = []
    for t in range(STEPS + 1):
        f = outputs(p, fs, weights, inputs)
        path.append(f.detach().numpy().copy())
        if t == STEPS:
            break
        rows = (
            batch_at(len(y), how.get("batch_size") or len(y), t, seed)
            if "batch_size" in how
            else np.arange(len(y))
        )
        descent.zero_grad()
        (len(y) / len(rows) * 0.5 * ((f - y)[rows] ** 2).sum()).backward()
        if how.get("optimizer") != "muon":
            descent.step()
            continue
        with torch.no_grad():
            for W, x in weights.items():
                B[W] = μ * B[W] + x.grad
                P, s, Q = torch.linalg.svd(B[W], full_matrices=False)
                r, c = x.shape
                x -= (
                    η * λ * x
                    + η * (W.var * r / c) ** 0.5 * (P * (s > 1e-5 * s.max())) @ Q
                )
    return np.array(path)


def random_networks(p, fs, n, b, g, dtype):
    "Weights (b, r, c) and initial vectors (b, m)."
    normal = lambda *shape: torch.randn(*shape, generator=g, dtype=dtype)
    weights, inputs = {}, {}
    for h in p.past(*fs):
        W = getattr(h, "W", None)
        if W is not None and W not in weights:
            r, c = 1 if W in p.readouts else int(W.rows * n), int(h.args[0].length * n)
            weights[W] = ((W.var / c) ** 0.5 * normal(b, r, c)).requires_grad_()
        if type(h).__name__ == "Input":
            root = torch.linalg.cholesky(torch.tensor(h.cov, dtype=dtype))
            x = (
                torch.einsum(
                    "ij,bjn->bin", root, normal(b, len(root), int(h.length * n))
                )
                + torch.tensor(h.mean.copy(), dtype=dtype)[:, None]
            )
            inputs |= {row: x[:, i] for i, row in enumerate(h)}
    return weights, inputs


def tangent(p, fs, weights, inputs):
    "⟨∂f/∂w, ∂f′/∂w⟩ of the normal weights w, (b, k, k)."
    f = outputs(p, fs, weights, inputs)
    k = range(len(fs))
    slopes = [
        torch.autograd.grad(
            f[:, i].sum(),
            list(weights.values()),
            retain_graph=True,
            materialize_grads=True,
        )
        for i in k
    ]
    gains = [W.var / x.shape[2] for W, x in weights.items()]
    pair = lambda i, j: sum(
        c * (x * y).sum((1, 2))
        for c, x, y in zip(gains, slopes[i], slopes[j], strict=True)
    )
    return torch.stack(
        [torch.stack([pair(i, j) for j in k], -1) for i in k], 1
    ).detach()


def law(name, n, b, g, steps=3, rate=0.1, dtype=torch.float64):
    "What program_cases.LAW names, of b networks."
    p, fs, scores = watched_program(name)
    weights, inputs = random_networks(p, fs, n, b, g, dtype)
    first = tangent(p, fs, weights, inputs)
    f, losses, watched, norms = [], [], [], []
    for t in range(steps + 1):
        value = values(p, fs, weights, inputs)
        f.append(torch.cat([seen(x, value)[..., 0] for x in fs], -1))
        losses.append(0.5 * ((f[-1] - torch.tensor(Y, dtype=dtype)) ** 2).sum(-1))
        watched.append(
            torch.cat([seen(s, value)[..., 0] for s in scores], -1)
            if scores
            else torch.zeros(b, 0)
        )
        norms.append(seen(below(fs[-1]), value)[..., 0, :])
        if t == steps:
            break
        slopes = torch.autograd.grad(losses[-1].sum(), list(weights.values()))
        with torch.no_grad():
            for (W, x), dx in zip(weights.items(), slopes, strict=True):
                x -= rate * W.var / x.shape[2] * dx
    last = tangent(p, fs, weights, inputs)
    f, losses, watched = (torch.stack(x, 1).detach() for x in (f, losses, watched))
    change = torch.linalg.norm(norms[-1] - norms[0], dim=1) / torch.linalg.norm(
        norms[0], dim=1
    )
    found = (
        f,
        losses.sort(1)[0],
        watched,
        f[:, -1] * f[:, 0],
        first,
        last,
        change.detach(),
    )
    return np.concatenate([x.reshape(b, -1).numpy() for x in found], axis=1)


def pieces(name, n, size):
    """A case, some networks at a time, each piece from its own seed; wide ones in
    single precision, which no distribution here could show.
    """
    b, dtype = (1000, torch.float64) if n < 96 else (80, torch.float32)
    return np.concatenate(
        [
            law(
                name,
                n,
                min(b, size - k),
                torch.Generator().manual_seed(10**6 * n + k),
                dtype=dtype,
            )
            for k in range(0, size, b)
        ]
    )


def laws():
    torch.set_num_threads(1)
    for name, n, size in LAW:
        yield f"{name}, {n}", quantiles(pieces(name, n, size))
        print(name, n, flush=True)


def main(names):
    if "path" in names:
        np.savez_compressed(
            DATA / "programs.npz",
            **{
                f"{name}, {how}": run(name, HOW[how])
                for name in PROGRAMS
                for how in HOW
            },
        )
    if "law" in names:
        np.savez_compressed(DATA / "programs_law.npz", **dict(laws()))


if __name__ == "__main__":
    main(sys.argv[1:])
