"""Speed and memory, as ratios measured side by side in one run.

    python benchmarks/speed.py [part ...]

prints one table and writes it to nbs/data/benchmarks.json, from which the page on
benchmarks is made; if some parts are named, they are printed and not written. Each time
is the best of several repetitions, both sides of a ratio in turn, so that a busy
machine disturbs both alike; where the ratio itself is the question, it is the median of
the ratios of neighbours.
Processor seconds on one thread, except where threads are the question.
"""

import argparse
import os
import time
import tracemalloc
from dataclasses import replace
from functools import partial
from itertools import product
from unittest.mock import patch

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np
from stored import store

from infattn_nb import (
    Attention,
    HierarchicalGaussian,
    Program,
    ScaleMixture,
    Tokens,
    limit,
    simulate,
)
from infattn_nb.attention import sampling, simulate_dense
from infattn_nb.attention.gram_sums import explicit_sums, sums_by_signs
from infattn_nb.netsor import mlp
from infattn_nb.netsor.score_paths import Batch
from infattn_nb.nonlinearities import clip, identity, relu, tanh
from infattn_nb.numerics import parallel
from infattn_nb.numerics.hermite import cross_moment
from infattn_nb.paper import paper_layer
from infattn_nb.paper.figures import PLANS

S, H, BLOCK, REPETITIONS = 4, 2, 4096, 3
ROWS = []


def si(x, unit):
    "Three digits and an SI prefix: .389792 s -> '390 ms'."
    for size, prefix in ((1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ")):
        if x >= 0.9995 * size:
            return f"{float(f'{x / size:.3g}'):g} {prefix}{unit}"
    return f"{float(f'{x / 1e-9:.3g}'):g} n{unit}"


def row(section, case, value, against, ratio):
    "Note and print a line: seconds per sample (or bytes), compared with what."
    ROWS.append(
        dict(
            section=section,
            case=case,
            value=float(value),
            against=against,
            ratio=float(ratio),
        )
    )
    amount = si(value, "B" if section == "memory" else "s")
    print(f"{section:24s}{case:58s}{amount:>10s}{ratio:14,.3g} × {against}", flush=True)


def seconds(call, clock=time.process_time):
    start = clock()
    call()
    return clock() - start


def rounds(*calls, repetitions=REPETITIONS, clock=time.process_time):
    "Times of the calls, taken in turn; one round to warm up."
    times = [[seconds(c, clock) for c in calls] for _ in range(repetitions + 1)]
    return np.array(times[1:])


def side_by_side(*calls, **options):
    "Best time of each call."
    return rounds(*calls, **options).min(0)


class Noted:
    "A Generator that notes what it is asked for."

    def __init__(self, rng):
        self.rng = rng
        self.requests = []

    def spawn(self, k):
        children = [Noted(rng) for rng in self.rng.spawn(k)]
        self.requests.append(children)
        return children

    def __getattr__(self, name):
        def request(*args, out=None, **options):
            if out is not None:
                options["size"] = out.shape
            self.requests.append((name, args, options))
            drawn = getattr(self.rng, name)(*args, **options)
            if out is not None:
                out[...] = drawn
            return drawn

        return request


def draw_again(noted, rng):
    "The same draws from the same streams, and nothing else."
    for request in noted.requests:
        if isinstance(request, list):
            for child, stream in zip(request, rng.spawn(len(request)), strict=True):
                draw_again(child, stream)
        else:
            name, args, options = request
            getattr(rng, name)(*args, **options)


def numbers_of(law):
    "A call that only draws the random numbers of one block of outputs."
    noted = Noted(np.random.default_rng(0))
    law.direct(BLOCK, noted)
    return lambda: draw_again(noted, np.random.default_rng(0))


KINDS = {"identity": identity, "clip(100)": clip(100.0), "relu": relu}


def against_explicit(width=1024, size=4):
    for name, φ in KINDS.items():
        layer = Attention(Tokens(S, φ), heads=H)
        law, y1 = layer.law(width), layer.law(width).marginal(0, draws=16)
        dense, full, one = side_by_side(
            lambda: simulate_dense(layer, width, size, 0),
            lambda: law.rvs(BLOCK, 0),
            lambda: y1.rvs(BLOCK, 0),
        )
        case = f"{name} tokens, s = {S}, H = {H}, n = {width}"
        for what, t in (("all outputs", full), ("one output", one)):
            row(
                "explicit simulation",
                f"{case}: {what}",
                t / BLOCK,
                "as fast as with all matrices",
                dense / size / (t / BLOCK),
            )


def numbers_alone():
    "All outputs, at the widths of the paper's figures."
    for name, φ in KINDS.items():
        for n in (16, 64, 256, 1024):
            law = Attention(Tokens(S, φ), heads=H).law(n)
            full, numbers = rounds(
                lambda: law.rvs(BLOCK, 0),
                numbers_of(law),
                repetitions=30 if φ == relu else 200,
            ).T
            row(
                "random numbers alone",
                f"{name} tokens, s = {S}, H = {H}, n = {n}",
                full.min() / BLOCK,
                "the time of its random numbers alone",
                np.median(full / numbers),
            )


def figures():
    "The largest case of each figure: one sample of what it needs."
    for name, plan in PLANS.items():
        cells = [c for c in plan.study.cells if c["n"] < np.inf]
        if not cells:
            continue
        options = dict(max(cells, key=lambda c: c["n"] ** 2 * c["heads"]))
        n = options.pop("n")
        layer = paper_layer(**options)
        if name == "fig2a":
            ours = lambda: layer.scores(n, BLOCK, 0)
        else:
            ours = lambda law=layer.law(n).marginal(0, draws=16): law.rvs(BLOCK, 0)
        dense, fast = side_by_side(
            lambda: simulate_dense(layer, n, 1, 0), ours, repetitions=2
        )
        row(
            "figures, largest case",
            f"{name}: n = {n}, H = {layer.heads}",
            fast / BLOCK,
            "as fast as with all matrices",
            dense / (fast / BLOCK),
        )


def programs(width=4096, size=16):
    p = Program()
    y = mlp(p, p.inputs(np.eye(4) + 0.5), layers=3)
    dense, fast = side_by_side(
        lambda: simulate(p, y, width, size=1, rng=0, dense=True),
        lambda: simulate(p, y, width, size=size, rng=0),
    )
    row(
        "programs",
        f"3-layer plain, 4 inputs, n = {width}",
        fast / size,
        "as fast as dense=True",
        dense / (fast / size),
    )


def growth():
    def layer(s=S, φ=identity, h=H):
        return Attention(Tokens(s, φ), heads=h)

    sizes = {
        "identity tokens, n =": [(n, layer().law(n)) for n in (16, 1024, 10**6, 10**9)],
        "relu tokens, n =": [(n, layer(φ=relu).law(n)) for n in (64, 256, 1024, 4096)],
        "identity tokens, n = 256, s =": [
            (s, layer(s).law(256)) for s in (2, 4, 8, 16, 32)
        ],
        "identity tokens, n = 256, H =": [
            (h, layer(h=h).law(256)) for h in (1, 4, 16, 64, 256)
        ],
    }
    size = BLOCK // 4
    for what, laws in sizes.items():
        calls = [lambda law=law: law.rvs(size, 0) for _, law in laws]
        t = side_by_side(*calls, repetitions=5) / size
        for (k, _), x in zip(laws, t):
            row("growth", f"{what} {k:,}", x, f"the time at {laws[0][0]}", x / t[0])


def memory():
    def peak(call):
        tracemalloc.start()
        call()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    layer, square = Attention(Tokens(S, relu), heads=H), lambda y: (y**2).sum(0)
    dense = peak(lambda: simulate_dense(layer, 4096, 1, 0))
    of = "the memory of the explicit simulation"
    row("memory", "explicit simulation, n = 4,096, one sample", dense, of, 1)
    for n in (4096, 10**6):
        with parallel(1):
            most = peak(lambda: layer.law(n).rvs(64, 0))
        row("memory", f"law.rvs, n = {n:,}, 64 samples", most, of, most / dense)
    law, first = Attention(Tokens(S, identity), heads=H).law(256), None
    for size in (10**4, 10**6):
        with parallel(1):
            most = peak(lambda: law.fold(square, size, 0))
        first = first or most
        row(
            "memory",
            f"law.fold over {size:,} samples",
            most,
            "the memory for 10,000 samples",
            most / first,
        )


def threads():
    layers = {
        "relu tokens, n = 256": Attention(Tokens(S, relu), heads=H),
        "identity tokens, H = 64": Attention(Tokens(S, identity), heads=64),
    }
    where = f"on {os.cpu_count()} processors"
    for name, layer in layers.items():
        law = layer.law(256)

        def draws(workers):
            with parallel(workers):
                law.rvs(8 * BLOCK, 0)

        t = side_by_side(
            *(partial(draws, k) for k in (1, 2, 4)), clock=time.perf_counter
        ) / (8 * BLOCK)
        for k, x in zip((1, 2, 4), t):
            row(
                "threads",
                f"{name}, {k} thread{'s' * (k > 1)} {where}",
                x,
                "as fast as one thread",
                t[0] / x,
            )


def limit_law():
    cases = {
        "4 independent tokens, H = 2": dict(tokens=Tokens(S, identity), heads=2),
        "4 ReLU tokens, H = 4096": dict(tokens=Tokens(S, relu), heads=4096),
    }
    of = "as fast as the construction"
    for name, options in cases.items():
        fresh = [Attention(**options, var_o=1 + k) for k in range(3)]  # laws are kept
        build = min(seconds(layer.law().marginal) for layer in fresh)
        y1 = fresh[0].law().marginal(0)
        y = np.linspace(-8, 8, 1000) * y1.std()
        row("the limit to ten digits", f"{name}: construction", build, of, 1)
        for method, x in (
            ("pdf", y),
            ("sf", y),
            ("ppf", np.linspace(0.001, 0.999, 1000)),
        ):
            t = min(seconds(lambda: getattr(y1, method)(x)) for _ in range(3)) / 1000
            row(
                "the limit to ten digits",
                f"{name}: {method} at a point",
                t,
                of,
                build / t,
            )


def merged_draws(size=10**4):
    "A law of 65,536 draws, merged, against the sum over every draw."
    y1 = Attention(Tokens(S, identity), heads=H).law(1024).marginal(0)
    v = y1.variances
    every = ScaleMixture(v, np.full(v.size, 1 / v.size))  # nodes are not merged
    y = np.linspace(-4.5, 4.5, size) * y1.std()
    against = "as fast as with every draw"
    for method, x in (("sf", y), ("pdf", y), ("ppf", every.sf(y))):
        ours, theirs = side_by_side(
            partial(getattr(y1, method), x),
            partial(getattr(every, method), x),
            repetitions=1,
        )
        case = f"n = 1024, {v.size:,} draws: {size:,} values of {method}"
        row("merged draws", case, ours, against, theirs / ours)
    merge = min(seconds(lambda: ScaleMixture(v)) for _ in range(3))
    case = "construction of the law from its draws"
    without = min(seconds(lambda: ScaleMixture(v, every.weights)) for _ in range(3))
    row("merged draws", case, merge, "the time without merging", merge / without)


def signs_first(size=BLOCK // 4):
    "ReLU coordinates by signs, against drawing every coordinate."
    ones, rng = np.ones(size), np.random.default_rng(0)
    cases = [
        (2, 64),
        (3, 64),
        (4, 64),
        (4, 256),
        (4, 1024),
        (6, 1024),
        (7, 1024),
        (9, 4096),
    ]
    for s, n in cases:
        signs, every = side_by_side(
            lambda: sums_by_signs(s, n, size, rng),
            lambda: explicit_sums(relu, s, n, ones, rng),
            repetitions=5,
        )
        row(
            "signs first",
            f"s = {s}, n = {n}",
            signs / size,
            "the time of every coordinate",
            signs / every,
        )


def long_inputs(s=1000, steps=120):
    "Long sequences and long chains, as they are computed and as they were."
    K = np.eye(s) * 0.7 + 0.3
    law = Attention(Tokens(s, identity, K)).law()
    p = Program()
    W, x = p.matrix(), p.inputs(np.eye(1))[0]
    for _ in range(steps):
        x = W @ tanh(x)
    cases = {
        f"a covariance of {s:,} tokens in the limit": (
            lambda: law.covariances(1, 0),
            sampling,
            "SHORT",
            np.inf,
        ),
        f"limit of {steps} tanh steps that share a matrix": (
            lambda: limit(p),
            Batch,
            "_foresee",
            lambda *_: None,
        ),
        "limit of two attention layers that share matrices": (
            two_layers,
            Batch,
            "_functions",
            pair_by_pair,
        ),
    }
    for name, (call, place, what, before) in cases.items():

        def old():
            with patch.object(place, what, before):
                call()

        new, slow = side_by_side(call, old, repetitions=1)
        row("long sequences and chains", name, new, "as fast as before", slow / new)


def many_heads(heads=10**5, draws=100, size=BLOCK):
    "Many heads, and two nonlinearities, as they are computed and as they were."
    call = partial(two_layers, s=3, between=tanh)

    def old():
        with patch.object(Batch, "_functions", pair_by_pair):
            call()

    new, slow = side_by_side(call, old, repetitions=1)
    row(
        "many heads",
        "limit of two attention layers of 3 tokens, ReLU and tanh",
        new,
        "as fast as with a series for each pair",
        slow / new,
    )
    law = Attention(Tokens(S, relu), heads=heads).law()
    by_draws = HierarchicalGaussian(law.sample, law.dim)
    with parallel(1):
        new, slow = side_by_side(
            lambda: law.cov(draws), lambda: by_draws.cov(draws), repetitions=1
        )
    row(
        "many heads",
        f"{heads:,} heads in the limit: cov(draws={draws})",
        new,
        "as fast as with draws of S",
        slow / new,
    )
    for s, h in ((1, 16), (2, 16), (2, 64)):
        layer = Attention(Tokens(s, relu), heads=h)
        through_S = layer.law()
        sample = partial(sampling.sample_outputs, layer, layer.tokens, np.inf)
        at_once = replace(through_S, direct=sample)
        with parallel(1):
            new, slow = side_by_side(
                lambda: through_S.rvs(size, 0),
                lambda: at_once.rvs(size, 0),
                repetitions=20,
            )
        case = f"outputs of {s} token{'s' * (s > 1)}, {h} heads, in the limit"
        row("many heads", case, new / size, "as fast as without S", slow / new)


def two_layers(s=4, between=lambda h: h):
    "Two attention layers that share their matrices, ReLU tokens."
    p = Program()
    x = [relu(h) for h in p.inputs(np.eye(s) / 2 + 0.5)]
    Q, K, V, O = (p.matrix(name) for name in "QKVO")
    for _ in range(2):
        keys, values = ([W @ h for h in x] for W in (K, V))
        y = [O @ p.attend([p.score(Q @ h, k) for k in keys], values) for h in x]
        x = [between(h) for h in y]
    return limit(p)


def pair_by_pair(batch, X, Y, centred):
    "As it was: a series for each pair of functions, its coefficients anew."
    u, v = X.args[0], Y.args[0]
    means = [np.zeros((1, h.k)) if (m := batch.mean(h)) is None else m for h in (u, v)]
    c = batch.centred(u, v)
    first = means[0], batch.variances(u)
    second = means[1], batch.variances(v)
    μ, a, ν, b, c = np.broadcast_arrays(
        *(x[..., :, None] for x in first),
        *(x[..., None, :] for x in second),
        np.zeros((1, u.k, v.k)) if c is None else c,
    )
    flat = [x.ravel() for x in (μ, ν, a, b, c)]
    parts = []
    for k in range(0, c.size, 512):
        m, n, *moments = (x[k : k + 512] for x in flat)
        parts.append(cross_moment(X.fn, Y.fn, (m, n), *moments))
    M = np.concatenate(parts).reshape(c.shape)
    if not centred:
        return M
    return M - batch.mean(X)[..., :, None] * batch.mean(Y)[..., None, :]


def both_orders():
    "Covariances and draws of all outputs of one layer: samples last, or first."
    shapes = [(1, np.inf), (2, 128), (12, 768), (12, np.inf)]
    whats = {"": sampling.sample_covariances, ": outputs": sampling.sample_outputs}
    cases = [*product((2, 4, 8, 16, 32, 64), shapes, [""])]
    cases += product((4, 16, 64), shapes[1:3], [": outputs"])
    for s, (heads, n), what in cases:
        layer = Attention(Tokens(s, identity, np.eye(s) / 2 + 0.5), heads, None)
        size = max(64, 2**19 // (heads * s * s))

        def draws(short):
            with patch.object(sampling, "SHORT", short):
                whats[what](layer, layer.tokens, n, size, np.random.default_rng(0))

        last, first = side_by_side(
            partial(draws, s), partial(draws, s - 1), repetitions=6
        )
        width = "∞" if n == np.inf else f"{n:g}"
        case = f"{s} tokens, {heads} head{'s' * (heads > 1)}, n = {width}{what}"
        row("orders", case, last / size, "the time with samples first", last / first)


PARTS = {
    f.__name__: f
    for f in (
        against_explicit,
        numbers_alone,
        signs_first,
        figures,
        programs,
        growth,
        memory,
        threads,
        limit_law,
        merged_draws,
        long_inputs,
        many_heads,
        both_orders,
    )
}


def main(names):
    for name in names or PARTS:
        PARTS[name]()
    if not names:
        store("benchmarks", rows=ROWS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = [*PARTS, []]  # Python 3.11 looks for no names among the choices, too
    parser.add_argument("parts", nargs="*", choices=every, metavar="part")
    main(parser.parse_args().parts)
