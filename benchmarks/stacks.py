"""Programs in stacks: what they cost beside closed forms in numpy and the engine
that went vector by vector (commit de3fd4a0), side by side in one run.

    git worktree add ../vectors de3fd4a0
    python benchmarks/stacks.py --before ../vectors [kernels memory ...]

prints a table and writes it to nbs/data/programs_stacks.json; if some cases are named,
they are printed and not written.
The other engine runs the same programs, written in loops, in a process of its own.
Values are compared: exact ones to rounding, random ones within six standard errors.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import tracemalloc
import warnings
from inspect import signature
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
from stored import store

HERE = Path(__file__).parent


def seconds(f, repeats=3):
    "Processor time, the best of some runs, and what came out."
    best = np.inf
    for _ in range(repeats):
        start = time.process_time()
        found = f()
        best = min(best, time.process_time() - start)
    return best, found


def covariance(k, d=20):
    A = np.random.default_rng(0).standard_normal((k, d))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    return A @ A.T


# -- programs, in loops: both engines run them


def network(p, phi, k):
    from infattn_nb import nonlinearities

    φ = getattr(nonlinearities, phi)
    W, V, R = p.matrix(), p.matrix(), p.readout()
    return [R @ φ(V @ φ(W @ x)) for x in p.inputs(covariance(k))]


def tangents(phi, k, width=np.inf):
    "With explicit matrices at finite width, so that both engines draw the same."
    from infattn_nb import Program, gradients

    p = Program()
    fs = network(p, phi, k)
    return gradients(p, fs, width, size=1, rng=0, dense=True).tangent.mean(0)


def in_stacks(phi, k):
    "The kernel of the same network, written in matrices."
    from infattn_nb import Program, gradients, nonlinearities

    φ = getattr(nonlinearities, phi)
    p = Program()
    X = p.inputs(covariance(k))
    F = p.readout() @ φ(p.matrix() @ φ(p.matrix() @ X))
    return gradients(p, F).tangent


def layer(s, paths):
    from infattn_nb import Program, limit
    from infattn_nb.netsor import attention
    from infattn_nb.nonlinearities import clip

    p = Program()
    X = [clip(1.0)(x) for x in p.inputs(covariance(s) + np.eye(s))]
    ys = list(attention(p, X))
    lim = limit(p, paths)
    return np.array([lim.second_moment(y, y, return_error=True) for y in ys[:2]])


def blocks(s, paths):
    from infattn_nb import Transformer, limit

    net = Transformer.uniform(
        np.eye(s) + 0.2, layers=2, heads=1, mask="causal", ff=2, activation="relu"
    )
    p, (f,) = net.program()
    value = limit(p, paths).second_moment(f, f, return_error=True)
    return np.array([value])


def rows_one_by_one(steps):
    from infattn_nb import Program, limit
    from infattn_nb.nonlinearities import tanh

    p = Program()
    W, x = p.matrix(), p.inputs(np.eye(1))[0]
    seen = []
    for _ in range(steps):
        seen.append(x := W @ tanh(x))
    return limit(p).cov(seen)


def training(n):
    return losses(np.eye(3) + 0.3, 3, [1.0, -1.0, 0.5], 0.1, width=n)


def batches(rows, size):
    y = np.sin(np.arange(rows))
    return losses(covariance(rows), 2, y, 0.05, width=256, batch_size=size)


def losses(cov, depth, y, rate, **options):
    "The losses of an MLP in twenty steps."
    from infattn_nb import Program, train
    from infattn_nb.netsor import mlp
    from infattn_nb.nonlinearities import tanh

    p = Program()
    R = p.readout()
    deep = mlp(p, p.inputs(cov), depth, **named(mlp, activation=tanh))
    fs = [R @ tanh(h) for h in deep]
    options |= named(train, learning_rate=rate)
    return train(p, fs, y, steps=20, rng=0, verbose=False, **options).loss


EARLIER = {"activation": "phi", "learning_rate": "rate"}  # names at de3fd4a0


def named(f, **arguments):
    "Arguments by the names that this version of a function has."
    known = signature(f).parameters
    return {k if k in known else EARLIER[k]: x for k, x in arguments.items()}


CASES = {  # name -> (function and arguments, is it random?)
    "tangent kernel, ReLU, 100 inputs": (tangents, ("relu", 100), False),
    "attention, 16 tokens, 1,000 paths": (layer, (16, 1000), True),
    "attention, 32 tokens, 1,000 paths": (layer, (32, 1000), True),
    "attention, 64 tokens, 1,000 paths": (layer, (64, 1000), True),
    "two blocks, 48 tokens, 64 paths": (blocks, (48, 64), True),
    "kernel at n = 1,024, 100 inputs": (tangents, ("relu", 100, 1024), None),
    "one row, tanh": (tangents, ("tanh", 1), False),
    "one row, ReLU": (tangents, ("relu", 1), False),
    "attention, 2 tokens, 1,000 paths": (layer, (2, 1000), True),
    "attention, 4 tokens, 4,000 paths": (layer, (4, 4000), True),
    "recurrent, 20 steps of one row": (rows_one_by_one, (20,), False),
    "training, n = 64": (training, (64,), None),
    "training, n = 512": (training, (512,), None),
    "batches of 2 of 16 inputs, n = 256": (batches, (16, 2), None),
    "batches of 8 of 32 inputs, n = 256": (batches, (32, 8), None),
}


def here(name):
    "Seconds and values of a case by the engine that is imported."
    warnings.simplefilter("ignore")
    f, args, _ = CASES[name]
    f(*(min(a, 16) if isinstance(a, int) else a for a in args))  # imports, tables
    once, value = seconds(lambda: f(*args), 1)
    if once < 2:
        again, _ = seconds(lambda: f(*args), min(100, int(4 / once)))
        once = min(once, again)
    return once, value


def elsewhere(name, root):
    "The same by another engine, in its own process."
    command = [sys.executable, __file__, "--one", name]
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    )
    once, value = json.loads(done.stdout.splitlines()[-1])
    return once, np.array(value)


def agree(a, b, random):
    "Do two answers agree? Random ones have their standard errors beside them."
    if random:
        return bool((abs(a[:, 0] - b[:, 0]) < 6 * np.hypot(a[:, 1], b[:, 1])).all())
    rtol = 1e-6 if random is None else 1e-9
    return bool(np.allclose(a, b, rtol=rtol, atol=rtol * abs(b).max()))


# -- the closed form in numpy


def closed(k):
    "The tangent kernel of two hidden layers of ReLU: arc-cosine kernels."
    K = covariance(k)
    Θ = K
    for _ in range(2):
        d = np.sqrt(np.diag(K))
        size = np.outer(d, d)
        ρ = np.clip(K / size, -1, 1)
        angle = np.pi - np.arccos(ρ)
        slope = angle / (2 * np.pi)
        K = size * (np.sqrt(1 - ρ * ρ) + angle * ρ) / (2 * np.pi)
        Θ = K + Θ * slope
    return Θ


def kernels(sizes=(100, 300, 1000)):
    found = []
    for k in sizes:
        base, Θ = seconds(lambda: closed(k))
        for phi in ("relu", "tanh"):
            once, ours = seconds(lambda: in_stacks(phi, k), 3)
            same = phi != "relu" or np.allclose(ours, Θ, rtol=1e-9)
            found.append(
                dict(
                    case=f"tangent kernel, {phi}, {k:,} inputs",
                    seconds=once,
                    beside=base,
                    ratio=once / base,
                    agree=bool(same),
                )
            )
    return found


def memory(s=256, paths=1000):
    tracemalloc.start()
    once, _ = seconds(lambda: layer(s, paths), 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return [
        dict(case=f"attention, {s} tokens, {paths:,} paths", seconds=once, peak=peak)
    ]


def growth():
    "Seconds against inputs, tokens, paths, layers and steps."
    found = []

    def look(what, at, f, *args):
        found.append(dict(case=what, at=at, seconds=seconds(lambda: f(*args), 2)[0]))

    for k in (50, 100, 200, 400, 800):
        look("inputs", k, tangents, "relu", k)
    for s in (8, 16, 32, 64, 128):
        look("tokens", s, layer, s, 256)
    for paths in (250, 500, 1000, 2000, 4000):
        look("paths", paths, layer, 16, paths)
    for depth in (2, 4, 8, 16, 32):
        look("layers", depth, deep, depth)
    for steps in (5, 10, 20, 40, 80):
        look("steps", steps, rows_one_by_one, steps)
    return found


def deep(depth):
    from infattn_nb import Program, limit
    from infattn_nb.netsor import mlp

    p = Program()
    G = mlp(p, p.inputs(covariance(100)), depth)
    return limit(p).cov(G)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", help="folder of the engine to compare with")
    parser.add_argument("--one", help="a case, by the engine that is imported")
    parser.add_argument("cases", nargs="*")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.one:
        once, value = here(asked.one)
        print(json.dumps([once, np.asarray(value).tolist()]))
        return
    parts = {"kernels": kernels, "memory": memory, "growth": growth}
    if not asked.cases and not asked.before:
        parser.error("name cases, or the folder to compare with: --before ../vectors")
    rows = []
    for name in asked.cases or [*parts, *CASES]:
        for row in parts[name]() if name in parts else [compared(name, asked.before)]:
            print(row, flush=True)
            rows.append(row)
    if not asked.cases:
        store("programs_stacks", rows=rows)


def compared(name, before):
    "A case by both engines."
    base, theirs = elsewhere(name, before)
    once, ours = elsewhere(name, HERE.parent)
    return dict(
        case=name,
        seconds=once,
        before=base,
        faster=base / once,
        agree=agree(ours, theirs, CASES[name][2]),
    )


if __name__ == "__main__":
    main()
