"""The experiments of the page "Any network, forward and backward": one table each, and what they cost.

    python benchmarks/programs.py kernels motion coordinates speed [--widest 16384]

writes nbs/data/programs_<name>.csv (speed: nbs/data/benchmarks_programs.json). Each row depends on its seed alone. `speed` measures
explicit numpy, and torch where it is installed, beside us in one run. No clock times in the tables.
"""
import argparse
import json
import os
import subprocess
import sys
import warnings
from itertools import product
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"): os.environ.setdefault(name, "1")

import numpy as np
import pandas as pd
from infattn_nb.netsor import attention, mlp
from infattn_nb.nonlinearities import tanh

from infattn_nb import AssumptionWarning, Program, Transformer, train

warnings.simplefilter("ignore", AssumptionWarning)
DATA = Path(__file__).parent.parent/"nbs/data"
WIDTHS = [64, 256, 1024, 4096, 16384]
Y = np.array([1., -1., .5])

# -- (a) tangent kernels: random? moving?

def plain(p, x): return mlp(p, x, 3, phi=tanh, var_w=2.)

def heads(p, x): return attention(p, [tanh(h) for h in mlp(p, x, 1)], heads=2, var_q=2., var_k=2.)

KINDS = {"MLP": plain, "attention": heads}

def kernel_row(kind, n, seed=0, networks=16, steps=20, rate=.2):
    "Spread of the tangent kernel at the start (sd over mean of its trace), and how far training moves it."
    p = Program()
    R = p.readout()
    fs = [R @ tanh(h) for h in KINDS[kind](p, p.inputs(np.eye(3) + .3))]
    run = train(p, fs, Y, width=n, steps=steps, rate=rate, networks=networks, rng=seed, verbose=False)
    start, end = run.tangent("start"), run.tangent("end")
    size = np.einsum("bii->b", start)
    moved = np.linalg.norm(end - start, axis=(1, 2))/np.linalg.norm(start, axis=(1, 2))
    return dict(network=kind, n=n, seed=seed, spread=size.std(ddof=1)/size.mean(), spread_error=size.std(ddof=1)/size.mean()/np.sqrt(2*networks),
                moved=moved.mean(), moved_error=moved.std(ddof=1)/np.sqrt(networks), loss=run.loss[:, -1].mean()/run.loss[:, 0].mean())

# -- (b) what moves in a whole transformer

PARTS = {"all": None, "attention alone": "QKVO", "MLP alone": "W"}

def transformer(heads=2):
    "Two blocks as GPT-2 has them, three texts of four tokens."
    net = Transformer.uniform(np.eye(12) + .1, layers=2, heads=heads, activation=tanh, mask="causal", texts="aaaabbbbcccc", var_q=2., var_k=2., ff=2)
    return net.program()

def motion_row(part, n, seed=0, networks=16, steps=10, rate=.1):
    "Attention weights, queries and hidden units of the second block: how far ten steps move them."
    p, fs = transformer()
    trained = None if PARTS[part] is None else [W for W in p.matrices if W.name[0] in PARTS[part]]
    products = {W.name: [g for g in p.nodes if getattr(g, "W", None) is W] for W in p.matrices}
    weights = [h for h in p.nodes if type(h).__name__ == "Attend"][-1]
    run = train(p, fs, Y, width=n, steps=steps, rate=rate, networks=networks, matrices=trained, rng=seed, verbose=False)
    row = dict(trained=part, n=n, seed=seed)
    def put(name, x): row.update({name: x.mean(), f"{name}_error": x.std(ddof=1)/np.sqrt(networks)})
    asked = list(weights.scores)
    P = [run.values(asked, when)[..., 0] for when in ("start", "end")]
    A = [np.exp(x - x.max(1, keepdims=True)) for x in P]
    A = [x/x.sum(1, keepdims=True) for x in A]
    put("weights", abs(A[1] - A[0]).max(1))
    put("queries", run.change(products["Q2.1"][-1]))
    put("hidden", run.change(products["W2.1"][-1]))
    W, x = p.matrices[[W.name for W in p.matrices].index("W2.1")], products["W2.1"][-1]
    put("hidden_input", run.change(x.args[0]))
    put("hidden_own", own_motion(run, W, x))
    put("loss", run.loss[:, -1])
    put("output", run.outputs[:, -1, 0])
    return row

def own_motion(run, W, g):
    "What the change of W alone does to W x, x as it is in the end: ‖(W_T − W_0)x‖/‖W_0x‖."
    found = []
    x = run.values(g.args[0])
    for (networks, states), k in zip(run._blocks, np.cumsum([0] + [b.b for b, _ in run._blocks])):
        part = x[k:k + networks.b, None]
        M = networks.matrices[W].fork(np.random.default_rng(0))
        now, _ = M.times(part, states[W])
        then, _ = M.times(part, M.start)
        found.append(np.linalg.norm(now - then, axis=(1, 2))/np.linalg.norm(then, axis=(1, 2)))
    return np.concatenate(found)

# -- (c) coordinate checks

READ = "muP", "Muon, readout/√n" # f = n^(-1) Σ r h instead of n^(-1/2)

def scaling(name, p, n, rate):
    "Readout variance, factors of rates by matrix, method."
    if name == "standard": return dict(rate=rate, rates={W: n/64 for W in (*p.matrices, *p.readouts)})
    if name == "muP": return dict(rate=rate*n)
    if name.startswith("Muon"): return dict(rate=rate/2, method="muon")
    return dict(rate=rate)

SCALINGS = "standard", "NTK", "muP", "Muon", "Muon, readout/√n"

def coordinate_row(name, n, seed=0, networks=4, steps=1, rate=.2):
    "Of an MLP with three hidden layers: how far one step moves the last hidden layer (rms per coordinate) and the output."
    p = Program()
    R = p.readout(var=1/n if name in READ else 1.)
    gs = mlp(p, p.inputs(np.eye(3) + .3), 3, phi=tanh, var_w=2.)
    fs = [R @ tanh(g) for g in gs]
    how = scaling(name, p, n, rate)
    try: run = train(p, fs, Y, width=n, steps=steps, networks=networks, rng=seed, verbose=False, **how)
    except ValueError: return dict(scaling=name, n=n, seed=seed, hidden=np.inf, output=np.inf)
    moved = run.values(gs[0]) - run.values(gs[0], "start")
    change = run.outputs[:, -1] - run.outputs[:, 0]
    return dict(scaling=name, n=n, seed=seed, hidden=np.sqrt((moved**2).mean()), output=np.sqrt((change**2).mean()))

# -- speed

PASSES = 4

def ours(n, dense=None):
    p, fs = transformer()
    return train(p, fs, Y, width=n, steps=PASSES - 1, rate=.05, networks=1, rng=0, dense=dense, verbose=False)

def with_torch(n, seed=0):
    "The same four passes with explicit matrices in torch, float64; drawing them included."
    import torch
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(seed)
    draw = lambda r, c, var=1.: torch.nn.Parameter((var/c)**.5*torch.randn(r, c, generator=g, dtype=torch.float64))
    blocks = [dict(Q=draw(n, n, 2.), K=draw(n, n, 2.), V=draw(n, n), O=draw(n, n), A=draw(2*n, n), B=draw(n, 2*n)) for _ in range(2)]
    r = draw(1, n)
    X = torch.randn(3, 4, n, generator=g, dtype=torch.float64)
    y, mask = torch.tensor(Y), torch.full((4, 4), -np.inf, dtype=torch.float64).triu(1)
    everything = [W for b in blocks for W in b.values()] + [r]
    descent = torch.optim.SGD([dict(params=[W], lr=.05/W.shape[1]) for W in everything], lr=.05)
    norm = lambda x: torch.nn.functional.layer_norm(x, (n,))
    for t in range(PASSES):
        x = X
        for b in blocks:
            q, k, v = ((norm(x) @ b[c].T).view(3, 4, 2, n//2).transpose(1, 2) for c in "QKV")
            a = torch.softmax(q @ k.mT/(n/2)**.5 + mask, -1)
            x = x + (a @ v).transpose(1, 2).reshape(3, 4, n) @ b["O"].T
            x = x + torch.tanh(norm(x) @ b["A"].T) @ b["B"].T
        loss = .5*((x[:, -1] @ r[0] - y)**2).sum()
        if t < PASSES - 1:
            descent.zero_grad()
            loss.backward()
            descent.step()
    return loss.item()

def with_numpy(n): return ours(n, dense=True)

def measured(what, n):
    "Processor seconds and GiB of one run in a process of its own."
    code = (f"import sys, time, resource; sys.path.insert(0, {str(Path(__file__).parent)!r}); import programs; programs.ours(16);\n"
            f"{'import torch' if what == 'with_torch' else 'pass'}\n"
            f"t = time.process_time(); programs.{what}({n}); print(time.process_time() - t, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/2**20)")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    seconds, memory = map(float, out.split())
    return dict(seconds=seconds, GiB=memory)

def speed(repeat=2, widest=2048):
    "Side by side: ratios, and growth with the width. Matrices and their gradients take 17 GB at width 8,192: `widest` says how far explicit ones go."
    table = {}
    for n in (512, 2048, 8192):
        sides = {}
        for _ in range(repeat):
            for what in ("ours", "with_numpy", "with_torch"):
                if what != "ours" and n > widest: continue
                found = measured(what, n)
                sides[what] = min(found["seconds"], sides.get(what, np.inf))
        table[str(n)] = {f"{what} over ours": sides[what]/sides["ours"] for what in sides if what != "ours"}
    grown = {n: measured("ours", n) for n in (12_500, 25_000, 50_000, 100_000)}
    per_unit = [x["seconds"]/n for n, x in grown.items()]
    table["growth"] = dict(widths=list(grown), seconds_per_unit_over_first=[x/per_unit[0] for x in per_unit])
    table["width 100,000"] = grown[100_000]
    return table

TABLES = {
    "kernels": (kernel_row, lambda widest: product(KINDS, [n for n in WIDTHS if n <= min(widest, 4096)])),
    "motion": (motion_row, lambda widest: product(PARTS, [n for n in WIDTHS if n <= widest])),
    "coordinates": (coordinate_row, lambda widest: product(SCALINGS, [64, 512, 4096, 32768, 100_000]))}

def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=[*TABLES, "speed"])
    parser.add_argument("--widest", type=int, default=16384)
    given = parser.parse_args()
    for name in given.names:
        if name == "speed":
            found = speed(widest=8192 if given.widest > 16384 else 2048)
            (DATA/"benchmarks_programs.json").write_text(json.dumps(found, indent=1) + "\n")
            continue
        row, cases = TABLES[name]
        table = pd.DataFrame([row(*case) for case in cases(given.widest)])
        table.to_csv(DATA/f"programs_{name}.csv", index=False, float_format="%.6g")
        print(table.round(4).to_string())

if __name__ == "__main__": main()
