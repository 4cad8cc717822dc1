"""The experiments on deep attention: wide networks against their circuits, and whether induction heads form.

    python benchmarks/circuits.py widths induction strengths [--seeds 8]

writes nbs/data/circuits_<name>.csv, from which the page on circuits is made. Each row depends on its seed alone; a test recomputes some."""
import argparse
import itertools
import os
import sys
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"): os.environ.setdefault(name, "1")
ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT/"tests"))

import numpy as np
import pandas as pd
from literal_circuits import distances

from infattn_nb import AttentionDescent
from infattn_nb.learning.circuits import Depth

DATA = ROOT/"nbs/data"
CASES = { # -> network, steps, rate
    "two layers of two heads": (Depth(2, 2, 1., .5, True, False, True, 3), 15, .004),
    "the same, RMSNorm": (Depth(2, 2, 1., 1., True, True, True, 3), 20, .01),
    "the same, no skip": (Depth(2, 2, 1., 1., False, True, True, 3), 20, .02),
    "the same, readout not trained": (Depth(2, 2, 1., 1., True, True, False, 3), 20, .01),
    "three layers of one head, RMSNorm": (Depth(3, 1, 1., 1., True, True, True, 3), 20, .01)}
WIDTHS = {64: 16, 128: 16, 256: 12, 512: 8, 1024: 6, 2048: 3} # how many networks of each

def run_widths(case, n, seed):
    depth, steps, rate = CASES[case]
    far, moved = distances(depth, n, seed, steps, rate)
    return dict(case=case, n=n, seed=seed, far=far, moved=moved)

def induction(letters=5, seed=0):
    "All sequences: the letters in some order, then one of them again; the answer is the letter that followed it."
    orders = [(order, k) for order in itertools.permutations(range(letters)) for k in range(letters - 1)]
    s = letters + 1
    X, y = np.zeros((len(orders), s, letters + s)), np.zeros(len(orders), int)
    for p, (order, k) in enumerate(orders):
        X[p, range(s), [*order, order[k]]] = 1
        X[p, range(s), letters + np.arange(s)] = 1
        y[p] = order[k + 1]
    chosen = np.random.default_rng(seed).permutation(len(orders))
    return X[chosen], y[chosen]

def right(model, X, y): return (model.values(X).argmax(-1) == y).mean(1)

def run_induction(layers, heads, steps, networks=8, train=300, seed=0):
    X, y = induction()
    options = dict(layers=layers, heads=heads, norm="rms", loss="softmax", mask="causal", momentum=.9, tol=0., networks=networks, random_state=seed)
    model = AttentionDescent(steps=steps, **options).fit(X[:train], y[:train])
    test = X[train:], y[train:]
    rows = [dict(layers=layers, heads=heads, steps=steps, network=k) for k in range(networks)]
    columns = dict(loss=model.loss_[:, -1]/train, train=right(model, X[:train], y[:train]), test=right(model, *test))
    if layers == 2:
        size = model.circuit_size()["score"]
        direct, composed = [], []
        for h in range(heads):
            direct.append(size[1, h, (), ()])
            composed += [size[1, h, (), ((0, k),)] for k in range(heads)]
        columns |= dict(direct=np.mean(direct, 0), keys=np.mean(composed, 0))
        cut = model
        for h, k in itertools.product(range(heads), range(heads)): cut = cut.without("score", (1, h, (), ((0, k),)))
        columns |= dict(without_keys=right(cut, *test))
        cut = model
        for h in range(heads): cut = cut.without("score", (1, h, (), ()))
        columns |= dict(without_direct=right(cut, *test))
    for row, *values in zip(rows, *columns.values()): row |= dict(zip(columns, values))
    return rows

def named(path): return "+".join(f"{l}{h}" for l, h in path) or "tokens"

def run_strengths(steps, networks=8, train=300):
    "Two layers of one head after some steps of the same training: size of every circuit, accuracy on what was not shown."
    X, y = induction()
    options = dict(layers=2, heads=1, norm="rms", loss="softmax", mask="causal", momentum=.9, tol=0., networks=networks, random_state=0)
    model = AttentionDescent(steps=max(steps, 1), **options).fit(X[:train], y[:train])
    when = "end" if steps else "start"
    values = model.values(X[train:], when)
    test = (values.argmax(-1) == y[train:]).mean(1)
    loss = model.loss_[:, -1 if steps else 0]/train
    sizes = model.circuit_size(when)
    for k in range(networks):
        row = dict(steps=steps, network=k, test=test[k], loss=loss[k])
        row |= {f"score {l}{h}: {named(a)} asks {named(b)}": size[k] for (l, h, a, b), size in sizes["score"].items()}
        yield row | {f"value: {named(a)}": size[k] for a, size in sizes["value"].items()}

TABLES = {
    "strengths": lambda seeds: [row for steps in (0, 300, 600, 1000, 1400, 1800, 2400, 3000) for row in run_strengths(steps, seeds)],
    "widths": lambda seeds: [run_widths(case, n, seed) for case in CASES for n, most in WIDTHS.items() for seed in range(min(most, 2*seeds))],
    "induction": lambda seeds: [row for layers, heads in ((1, 2), (2, 1), (2, 2), (2, 4)) for steps in (300, 1000, 3000) for row in run_induction(layers, heads, steps, seeds)]}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", choices=[*TABLES])
    parser.add_argument("--seeds", type=int, default=8)
    options = parser.parse_args()
    for name in options.tables:
        pd.DataFrame(TABLES[name](options.seeds)).to_csv(DATA/f"circuits_{name}.csv", index=False, float_format="%.8g")
        print(name, flush=True)
