"""Tangent kernels of many inputs beside numpy, and the growth of memory.

    python benchmarks/growth.py

writes nbs/data/benchmarks_growth.json, from which the page on benchmarks draws both.
Processor seconds on one thread, both sides in turn; memory by tracemalloc. Everything
takes three minutes and 4 GB.
"""

import argparse
import os
import time
import tracemalloc
import warnings
from functools import partial

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np
from stored import store

from infattn_nb import AssumptionWarning, Program, Transformer, gradients, limit, train
from infattn_nb.netsor import attention, mlp
from infattn_nb.nonlinearities import erf, gelu, relu, tanh

warnings.simplefilter("ignore", AssumptionWarning)


def covariance(N):
    X = np.random.default_rng(0).standard_normal((N, N + 20))
    return X @ X.T / X.shape[1]


def network(S, φ):
    p = Program()
    R = p.readout()
    return p, R @ φ(mlp(p, p.inputs(S), 3, activation=φ, var_w=1.7))


# closed forms of E φφ′ and of E of the derivatives, as one writes them in numpy


def of_relu(K, d):
    s = np.sqrt(np.outer(d, d))
    c = np.clip(K / s, -1, 1)
    np.fill_diagonal(c, 1.0)
    θ = np.arccos(c)
    return s * (np.sin(θ) + (np.pi - θ) * c) / (2 * np.pi), (np.pi - θ) / (2 * np.pi)


def of_erf(K, d):
    D = np.outer(1 + 2 * d, 1 + 2 * d)
    return 2 / np.pi * np.arcsin(2 * K / np.sqrt(D)), 4 / np.pi / np.sqrt(D - 4 * K * K)


def of_gelu(K, d):
    D, dd = np.outer(1 + d, 1 + d), np.outer(d, d)
    R = np.sqrt(D - K * K)
    S = 0.25 + np.arcsin(K / np.sqrt(D)) / (2 * np.pi)
    value = K * S + (dd * (1 - K * K / D) + K * K / D) / (2 * np.pi * R)
    return value, S + K / (2 * np.pi * R) * (1 + (2 - dd + (K / R) ** 2) / D)


def by_hand(S, dual, layers=3, var=1.7):
    "The tangent kernel by its recursion, layer by layer."
    K = S * var
    Θ = K.copy()
    for l in range(layers):
        v = var if l < layers - 1 else 1.0
        K, slope = dual(K, np.diag(K))
        Θ *= slope * v
        K = K * v
        Θ += K
    return Θ


def seconds(task):
    begun = time.process_time()
    task()
    return time.process_time() - begun


def peak(task):
    tracemalloc.start()
    task()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def kernels():
    for N in (1000, 2000, 4000):
        S = covariance(N)
        for φ, dual in ((relu, of_relu), (erf, of_erf), (gelu, of_gelu)):
            if N > 2000 and φ is not relu:
                continue
            p, f = network(S, φ)
            ours, theirs = partial(gradients, p, f), partial(by_hand, S, dual)
            rounds = 1 if N > 2000 else 3
            t = np.min([[seconds(ours), seconds(theirs)] for _ in range(rounds)], 0)
            m = np.array([peak(ours), peak(theirs)]) / (8 * N * N)
            gap = abs(ours().tangent[0] - theirs()).max() / abs(theirs()).max()
            row = dict(zip(("seconds", "numpy"), t), ratio=t[0] / t[1], gap=gap)
            row |= dict(zip(("kernels", "kernels of numpy"), m), case=f"{φ}, {N:,}")
            print(row, flush=True)
            yield {k: x if isinstance(x, str) else float(x) for k, x in row.items()}


def texts(tokens=32, layers=2, heads=4):
    cov = np.eye(tokens) + 0.1
    return Transformer.uniform(cov, layers=layers, heads=heads, activation=tanh)


def scores(tokens=3, draws=2000):
    p = Program()
    X = p.inputs(np.eye(tokens) + 0.3)
    Y = attention(p, list(X), heads=2)
    return limit(p, draws).cov(Y)


def trained(steps=4, n=1024):
    p, f = network(np.eye(4) + 0.1, tanh)
    y = [1.0, -1.0, 0.5, 0.2]
    options = dict(learning_rate=0.01, size=1, rng=0, verbose=False, dense=False)
    train(p, f, y, width=n, steps=steps, **options)


GROWTH = {  # what grows -> (a task for one size, sizes)
    "inputs of a kernel": (lambda k: gradients(*network(covariance(k), relu)), 250),
    "tokens of a chain": (lambda k: texts(tokens=k).chain(1024, rng=0), 32),
    "layers of a chain": (lambda k: texts(layers=k).chain(1024, rng=0), 2),
    "heads of a chain": (lambda k: texts(heads=k).chain(1024, rng=0), 4),
    "paths of a limit": (lambda k: scores(draws=k), 1000),
    "steps of training": (lambda k: trained(k), 4),
}


def growth():
    for what, (task, first) in GROWTH.items():
        for k in first * 2 ** np.arange(4):
            row = dict(what=what, size=int(k), bytes=peak(lambda: task(int(k))))
            print(row, flush=True)
            yield row


def main():
    store("benchmarks_growth", kernels=list(kernels()), growth=list(growth()))


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    main()
