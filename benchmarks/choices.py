"""Explicit matrices or unknown directions: does the package choose the faster way?

    python benchmarks/choices.py

measures tangent kernels and training of MLPs with `dense` = None, True and False in
turn, writes nbs/data/benchmarks_choices.json and prints chosen over best for each case.
Processor seconds on one thread, the least of several rounds.
"""

import argparse
import os
import time
from functools import partial
from itertools import product

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np
from stored import store

from infattn_nb import Program, gradients, train
from infattn_nb.netsor import mlp
from infattn_nb.nonlinearities import tanh

WAYS = {"chosen": None, "explicit": True, "directions": False}


def network(inputs):
    p = Program()
    X = p.inputs(np.eye(inputs) * 0.9 + 0.1)
    R = p.readout()
    return p, R @ tanh(mlp(p, X, 3, activation=tanh, var_w=1.5))


def of_gradients(width, inputs, size, dense):
    p, f = network(inputs)
    gradients(p, f, width, size=size, rng=0, dense=dense)


def of_training(width, inputs, steps, size, dense):
    p, f = network(inputs)
    options = dict(steps=steps, learning_rate=0.1 / inputs, size=size, rng=0)
    y = np.cos(np.arange(inputs))
    train(p, f, y, width=width, dense=dense, verbose=False, **options)


def cases():
    "Yield (name, task); both ways together take at most a minute."
    for n, k in product((16, 64, 256, 1024, 4096), (1, 4, 16, 64, 256)):
        if n * n * k < 4096**2 * 65 and k <= 4 * n:
            size = max(1, 256 // n)
            yield f"gradients n={n} k={k}", partial(of_gradients, n, k, size)
    for n, k, steps in product((16, 64, 256, 1024, 4096), (1, 8, 64), (2, 10, 50)):
        if n * n * k * steps <= 1024**2 * 640:
            size = max(1, 256 // n)
            yield (
                f"training n={n} k={k} steps={steps}",
                partial(of_training, n, k, steps, size),
            )


def seconds(task):
    begun = time.process_time()
    task()
    return time.process_time() - begun


def times(task, rounds):
    "The least time of each way, in turn."
    for dense in WAYS.values():
        task(dense=dense) if rounds > 1 else None
    each = [
        [seconds(partial(task, dense=dense)) for dense in WAYS.values()]
        for _ in range(rounds)
    ]
    return np.min(each, axis=0)


def main():
    rows = []
    for name, task in cases():
        first = seconds(partial(task, dense=True))
        t = times(task, 5 if first < 0.2 else 3 if first < 1 else 1)
        row = dict(zip(WAYS, t.tolist()), case=name, ratio=float(t[0] / t[1:].min()))
        rows.append(row)
        print(
            f"{name:36s}"
            + "".join(f"{way} {row[way] * 1e3:9.1f} ms  " for way in WAYS)
            + f"chosen/best {row['ratio']:.2f}",
            flush=True,
        )
    store("benchmarks_choices", rows=rows)
    ratios = [row["ratio"] for row in rows]
    print(f"{len(rows)} cases, largest ratio {max(ratios):.2f}")


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    main()
