"""Torch's side of the training of programs: `python tests/torch_programs.py` writes tests/data/programs.npz, which tests/test_program_training.py reads.

Each program is run node by node on explicit matrices, differentiated by torch's autograd and trained by torch's SGD (or along the polar factor of the momentum) in double precision, from the starts of program_cases.written. Stored are the outputs before every step and after the last."""
from pathlib import Path

import numpy as np
import torch
from infattn_nb.nonlinearities import relu, tanh, times
from numpy.random import SeedSequence
from program_cases import HOW, PROGRAMS, STEPS, Y, written

from infattn_nb.numerics.losses import batch_at

FILE = Path(__file__).parent/"data/programs.npz"
FUNCTIONS = {tanh: torch.tanh, relu: torch.relu, times: torch.mul}

def outputs(p, fs, weights, inputs):
    "One number per output, by torch's functions alone."
    value = dict(inputs)
    for h in p.past(*fs):
        x = [value[a] for a in h.args]
        match type(h).__name__:
            case "Input": pass
            case "MatMul" | "Output": value[h] = weights[h.W] @ x[0]
            case "Nonlin": value[h] = FUNCTIONS[h.fn](*x)
            case "Linear": value[h] = sum(c*a for c, a in zip(h.coefs, x))
            case "Score": value[h] = x[0] @ x[1]/len(x[0])**.5
            case "Attend": value[h] = torch.softmax(torch.stack([value[s] for s in h.scores]), 0) @ torch.stack(x)
            case "Normalize":
                normed = torch.nn.functional.layer_norm if h.kind == "layer" else torch.nn.functional.rms_norm
                value[h] = normed(x[0], x[0].shape, eps=h.eps)
    return torch.cat([value[f] for f in fs])

def run(name, how):
    p, fs, start = written(name)
    weights = {W: torch.nn.Parameter(torch.tensor(x)) for W, x in start.items() if x.ndim == 2}
    inputs = {h: torch.tensor(x) for h, x in start.items() if x.ndim == 1}
    y = torch.tensor(Y)
    η, λ, μ = how["rate"], how.get("weight_decay", 0.), how.get("momentum", 0.)
    gain = {W: W.var/x.shape[1] for W, x in weights.items()} # the rate acts on normal weights
    groups = [dict(params=[x], lr=η*gain[W], weight_decay=λ/gain[W]) for W, x in weights.items()]
    descent = torch.optim.SGD(groups, lr=η, momentum=μ)
    B = {W: torch.zeros_like(x) for W, x in weights.items()}
    seed, *_ = SeedSequence(0).spawn(1)
    path = []
    for t in range(STEPS + 1):
        f = outputs(p, fs, weights, inputs)
        path.append(f.detach().numpy().copy())
        if t == STEPS: break
        rows = batch_at(len(y), how.get("batch_size") or len(y), t, seed) if "batch_size" in how else np.arange(len(y))
        descent.zero_grad()
        (len(y)/len(rows)*.5*((f - y)[rows]**2).sum()).backward()
        if how.get("method") != "muon":
            descent.step()
            continue
        with torch.no_grad():
            for W, x in weights.items():
                B[W] = μ*B[W] + x.grad
                P, s, Q = torch.linalg.svd(B[W], full_matrices=False)
                r, c = x.shape
                x -= η*λ*x + η*(W.var*r/c)**.5*(P*(s > 1e-5*s.max())) @ Q
    return np.array(path)

def main(): np.savez_compressed(FILE, **{f"{name}, {how}": run(name, HOW[how]) for name in PROGRAMS for how in HOW})

if __name__ == "__main__": main()
