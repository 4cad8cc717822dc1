"""Speed and memory, as ratios measured side by side in one run.

    python benchmarks/speed.py [file]

prints one table and writes it to `file` (default: nbs/data/benchmarks.json, from which the page on benchmarks is made).
Each time is the best of several repetitions, both sides of a ratio in turn, so that a busy machine disturbs both alike.
All on one thread, except where threads are the question.
"""
import json
import os
import sys
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"): os.environ[name] = "1"

import numpy as np
import scipy

from infattn_nb.attention import Attention, Tokens, _limit_marginal
from infattn_nb.experiments import PLANS, paper_layer
from infattn_nb.finite import simulate
from infattn_nb.functions import clip, identity, relu
from infattn_nb.netsor import Program, mlp

S, H, BLOCK, REPETITIONS = 4, 2, 4096, 3
ONE = ThreadPoolExecutor(1)
ROWS = []

def row(section, case, seconds, against, ratio):
    "Note and print a line: what, seconds per sample (or bytes), compared with what, how many times."
    ROWS.append(dict(section=section, case=case, value=float(seconds), against=against, ratio=float(ratio)))
    value = f"{seconds*1e6:12,.2f} µs" if section != "memory" else f"{seconds/1e6:12,.1f} MB"
    print(f"{section:24s}{case:58s}{value}{ratio:14,.2f} × {against}", flush=True)

def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start

def side_by_side(*calls, repetitions=REPETITIONS):
    "Best time of each call, taken in turn; one round to warm up."
    return np.min([[seconds(c) for c in calls] for _ in range(repetitions + 1)][1:], axis=0)

def random_numbers(width, tokens, size=BLOCK):
    "A call that only draws what the sampler draws per block: tokens, scores and Wishart factors of H heads, outputs."
    rng, q = np.random.default_rng(0), S
    bartlett = [("χ²", q), ("normal", q*(q - 1)//2)]
    heads = H*(2*bartlett + [("normal", q*q)])
    own = [("χ²", 1)] + (bartlett if tokens == "identity" else [("normal", S*width)])
    normals = sum(k for kind, k in own + heads if kind == "normal") + S
    chi2 = sum(k for kind, k in own + heads if kind == "χ²")
    buffer = np.empty(2**15)
    def call():
        for _ in range(chi2): rng.chisquare(width - 1, size)
        for k in range(0, normals*size, buffer.size): rng.standard_normal(out=buffer[:min(buffer.size, normals*size - k)])
    return call

def against_literal(width=1024, size=4):
    for name, φ, kind in (("identity", identity, "identity"), ("clip(100)", clip(100.), "identity"), ("relu", relu, "relu")):
        layer = Attention(Tokens(S, φ), heads=H)
        law, y1 = layer.law(width), layer.law(width).marginal(0, draws=16)
        dense, full, one = side_by_side(lambda: layer.simulate_dense(width, size, 0), lambda: law.rvs(BLOCK, 0), lambda: y1.rvs(BLOCK, 0))
        case = f"{name} tokens, s = {S}, H = {H}, n = {width}"
        row("literal simulation", f"{case}: all outputs", full/BLOCK, "faster than with all matrices", dense/size/(full/BLOCK))
        row("literal simulation", f"{case}: one output", one/BLOCK, "faster than with all matrices", dense/size/(one/BLOCK))
        full, numbers = side_by_side(lambda: law.rvs(BLOCK, 0), random_numbers(width, kind), repetitions=10)
        row("random numbers alone", f"{case}: all outputs", full/BLOCK, "the time of its random numbers alone", full/numbers)

def figures():
    "The largest case of each figure: one sample of what it needs."
    for name, plan in PLANS.items():
        cells = [c for c in plan.cells if c["n"] < np.inf]
        if not cells: continue
        n, options = (cell := max(cells, key=lambda c: c["n"]**2*c["heads"]))["n"], {k: v for k, v in cell.items() if k != "n"}
        layer = paper_layer(**options)
        ours = (lambda: layer.scores(n, BLOCK, 0)) if name == "fig2a" else (lambda law=layer.law(n).marginal(0, draws=16): law.rvs(BLOCK, 0))
        dense, fast = side_by_side(lambda: layer.simulate_dense(n, 1, 0), ours, repetitions=2)
        row("figures, largest case", f"{name}: n = {n}, H = {layer.heads}", fast/BLOCK, "faster than with all matrices", dense/(fast/BLOCK))

def programs(width=4096, size=16):
    p = Program()
    y = mlp(p, p.inputs(np.eye(4) + .5), depth=3)
    dense, fast = side_by_side(lambda: simulate(p, y, width, 1, 0, dense=True), lambda: simulate(p, y, width, size, 0))
    row("programs", f"3-layer perceptron, 4 inputs, n = {width}", fast/size, "faster than dense=True", dense/(fast/size))

def growth():
    sizes = {"identity tokens, n =": [(n, Attention(Tokens(S, identity), heads=H).law(n)) for n in (16, 1024, 10**6, 10**9)],
             "relu tokens, n =": [(n, Attention(Tokens(S, relu), heads=H).law(n)) for n in (64, 256, 1024, 4096)],
             "identity tokens, n = 256, s =": [(s, Attention(Tokens(s, identity), heads=H).law(256)) for s in (2, 4, 8, 16, 32)],
             "identity tokens, n = 256, H =": [(h, Attention(Tokens(S, identity), heads=h).law(256)) for h in (1, 4, 16, 64, 256)]}
    for what, laws in sizes.items():
        t = side_by_side(*(lambda law=law: law.rvs(BLOCK//4, 0) for _, law in laws), repetitions=5)/(BLOCK//4)
        for (k, _), x in zip(laws, t): row("growth", f"{what} {k:,}", x, f"the time at {laws[0][0]}", x/t[0])

def memory():
    def peak(call):
        tracemalloc.start()
        call()
        bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return bytes
    layer, square = Attention(Tokens(S, relu), heads=H), lambda y: (y**2).sum(0)
    dense, *fast = peak(lambda: layer.simulate_dense(4096, 1, 0)), *(peak(lambda: layer.law(n).rvs(64, 0, executor=ONE)) for n in (4096, 10**6))
    row("memory", "literal simulation, n = 4,096, one sample", dense, "of the literal simulation", 1)
    for n, bytes in zip((4096, 10**6), fast): row("memory", f"law.rvs, n = {n:,}, 64 samples", bytes, "of the literal simulation", bytes/dense)
    law = Attention(Tokens(S, identity), heads=H).law(256)
    fold = [peak(lambda: law.fold(square, size, 0, executor=ONE)) for size in (10**4, 10**6)]
    for size, bytes in zip((10**4, 10**6), fold): row("memory", f"law.fold over {size:,} samples", bytes, "of 10,000 samples", bytes/fold[0])

def threads():
    for name, law in (("relu tokens, n = 256", Attention(Tokens(S, relu), heads=H).law(256)), ("identity tokens, H = 64", Attention(Tokens(S, identity), heads=64).law(256))):
        pools = [ThreadPoolExecutor(k) for k in (1, 2, 4)]
        t = side_by_side(*(lambda pool=pool: law.rvs(8*BLOCK, 0, executor=pool) for pool in pools))/(8*BLOCK)
        for k, x in zip((1, 2, 4), t): row("threads", f"{name}, {k} thread{'s'*(k > 1)} on {os.cpu_count()} processors", x, "faster than one thread", t[0]/x)

def limit_law():
    for name, layer in (("4 independent tokens, H = 2", Attention(Tokens(S, identity), heads=2)), ("4 ReLU tokens, H = 4096", Attention(Tokens(S, relu), heads=4096))):
        build = min(seconds(lambda: _limit_marginal.__wrapped__(layer, 0)) for _ in range(3))
        y1 = layer.law().marginal(0)
        y = np.linspace(-8, 8, 1000)*y1.std()
        row("the limit to ten digits", f"{name}: construction", build, "in the time of the construction", 1)
        for verb, x in (("pdf", y), ("sf", y), ("ppf", np.linspace(.001, .999, 1000))):
            t = min(seconds(lambda: getattr(y1, verb)(x)) for _ in range(3))/1000
            row("the limit to ten digits", f"{name}: {verb} at a point", t, "in the time of the construction", build/t)

def main(file=Path(__file__).parent.parent/"nbs/data/benchmarks.json"):
    for part in (against_literal, figures, programs, growth, memory, threads, limit_law): part()
    versions = dict(python=".".join(map(str, sys.version_info[:2])), numpy=np.__version__, scipy=scipy.__version__, processors=os.cpu_count())
    Path(file).write_text(json.dumps(dict(versions=versions, rows=ROWS), indent=1) + "\n")

if __name__ == "__main__": main(*sys.argv[1:])
