"""Cost per sample of the matrix-free sampler, as ratios measured side by side in one run (one thread).

    python benchmarks/speed.py [width] [repetitions]

Each figure is the best of several repetitions of both sides in turn, so that a busy machine disturbs both alike.
"""
import os
import sys
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"): os.environ[name] = "1"

import numpy as np

from infattn_nb.attention import Attention, Tokens, _limit_marginal
from infattn_nb.functions import clip, identity, relu

S, H, BLOCK = 4, 2, 4096

def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start

def side_by_side(repetitions, *calls):
    "Best time of each call, taken in turn."
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

def main(width=1024, repetitions=5):
    dense_size = 4
    print(f"s = {S}, H = {H}, one thread; per sample of all s outputs unless said otherwise\n")
    print(f"{'':46s}{'µs':>12s}{'ratio':>12s}")
    row = lambda name, t, ratio: print(f"{name:46s}{t*1e6:12.2f}{ratio:>12s}")
    for name, φ, kind in (("identity", identity, "identity"), ("clip(100)", clip(100.), "identity"), ("relu", relu, "relu")):
        layer = Attention(Tokens(S, φ), heads=H)
        law, y1 = layer.law(width), layer.law(width).marginal(0, draws=16)
        dense, full, one, numbers = side_by_side(repetitions, lambda: layer.simulate_dense(width, dense_size, 0), lambda: law.rvs(BLOCK, 0),
                                                 lambda: y1.rvs(BLOCK, 0), random_numbers(width, kind))
        dense, full, one, numbers = dense/dense_size, full/BLOCK, one/BLOCK, numbers/BLOCK
        row(f"{name}: literal simulation, n = {width}", dense, "1×")
        row(f"{name}: law.rvs", full, f"{dense/full:,.0f}×")
        row(f"{name}: one output alone", one, f"{dense/one:,.0f}×")
        row(f"{name}: its random numbers alone", numbers, f"{full/numbers:.2f} of it")
    for name, φ, widths in (("identity", identity, (16, 1024, 10**6, 10**9)), ("relu", relu, (64, 256, 1024, 4096))):
        laws = [Attention(Tokens(S, φ), heads=H).law(n) for n in widths]
        t = side_by_side(repetitions, *(lambda law=law: law.rvs(BLOCK, 0) for law in laws))/BLOCK
        for n, x in zip(widths, t): row(f"{name}: law.rvs at n = {n:,}", x, f"{x/t[0]:.2f}×")
    for H_ in (1, 16, 256):
        y1 = Attention(Tokens(S, identity), heads=H_).law(256).marginal(0, draws=16)
        row(f"identity: one output, H = {H_}, n = 256", side_by_side(repetitions, lambda: y1.rvs(BLOCK, 0))[0]/BLOCK, "")
    print("\nthe limit law: construction, then 1000 points (ms)")
    for name, layer in (("4 independent tokens, H = 2", Attention(Tokens(S, identity), heads=2)), ("4 ReLU tokens, H = 4096", Attention(Tokens(S, relu), heads=4096))):
        build = min(seconds(lambda: _limit_marginal.__wrapped__(layer, 0)) for _ in range(3))
        y1 = layer.law().marginal(0)
        y = np.linspace(-8, 8, 1000)*y1.std()
        times = [min(seconds(lambda: getattr(y1, verb)(x)) for _ in range(3)) for verb, x in (("pdf", y), ("sf", y), ("ppf", np.linspace(.001, .999, 1000)))]
        print(f"{name:46s}{build*1e3:8.0f}   pdf {times[0]*1e3:.1f}, sf {times[1]*1e3:.1f}, ppf {times[2]*1e3:.1f}")

if __name__ == "__main__": main(*map(int, sys.argv[1:]))
