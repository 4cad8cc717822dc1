"""The experiments of the page "Any network, forward and backward": one table each, and
what they cost.

    python benchmarks/programs.py kernels motion coordinates induction speed

writes nbs/data/programs_<name>.csv (speed: nbs/data/benchmarks_programs.json). Each row
depends on its seed alone; a test recomputes some. `speed` measures numpy and torch with
explicit matrices beside us in one run (at width 8,192 they take 12 GB). `induction` and
`speed` need torch. No clock times in the tables but those of `speed`.
"""

import argparse
import os
import subprocess
import sys
import warnings
from functools import cache
from itertools import product
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
import pandas as pd
from circuits import induction
from explicit import drawn, in_numpy, in_torch
from scipy.stats import sem
from stored import DATA, store

from infattn_nb import AssumptionWarning, Program, Transformer, train
from infattn_nb.netsor import attention, mlp
from infattn_nb.netsor.nodes import factors_of
from infattn_nb.nonlinearities import relu, tanh

warnings.simplefilter("ignore", AssumptionWarning)
WIDTHS = [64, 256, 1024, 4096, 16384]
Y = np.array([1.0, -1.0, 0.5])

# -- (a) tangent kernels: random? moving?


def plain(p, x):
    return mlp(p, x, 3, activation=tanh, var_w=2.0)


def heads(p, x):
    return attention(p, [tanh(h) for h in mlp(p, x, 1)], heads=2, var_q=2.0, var_k=2.0)


KINDS = {"MLP": plain, "attention": heads}


def kernel_row(kind, n, seed=0, networks=16, steps=20, rate=0.2):
    """Spread of the tangent kernel at the start (sd over mean of its trace), and how
    far training moves it.
    """
    p = Program()
    R = p.readout()
    fs = [R @ tanh(h) for h in KINDS[kind](p, p.inputs(np.eye(3) + 0.3))]
    run = train(
        p,
        fs,
        Y,
        width=n,
        steps=steps,
        learning_rate=rate,
        size=networks,
        rng=seed,
        verbose=False,
    )
    start, end = run.tangent("start"), run.tangent("end")
    size = np.einsum("bii->b", start)
    moved = np.linalg.norm(end - start, axis=(1, 2)) / np.linalg.norm(
        start, axis=(1, 2)
    )
    return dict(
        network=kind,
        n=n,
        seed=seed,
        spread=size.std(ddof=1) / size.mean(),
        spread_error=size.std(ddof=1) / size.mean() / np.sqrt(2 * networks),
        moved=moved.mean(),
        moved_error=moved.std(ddof=1) / np.sqrt(networks),
        loss=run.loss[:, -1].mean() / run.loss[:, 0].mean(),
    )


# -- (b) what moves in a whole transformer

HIDDEN = "W2.1"  # what makes the hidden units of the second block
PARTS = {  # -> is this matrix trained?
    "all": None,
    "all but their own": lambda name: name != HIDDEN,
    "their own alone": lambda name: name == HIDDEN,
    "attention alone": lambda name: name[0] in "QKVO",
    "MLPs alone": lambda name: name[0] == "W",
}
MANY = {64: 64, 256: 64, 1024: 64, 4096: 32, 16384: 16}  # networks of each width


def motion_cases():
    "Four networks each."
    for part in PARTS:
        for n, many in MANY.items():
            for seed in range(many // 4):
                yield part, n, seed


def transformer(heads=2, scale=1.0):
    "Two blocks as GPT-2 has them, three texts of four tokens."
    net = Transformer.uniform(
        scale * (np.eye(12) + 0.1),
        layers=2,
        heads=heads,
        activation=tanh,
        mask="causal",
        texts="aaaabbbbcccc",
        var_q=2.0,
        var_k=2.0,
        ff=2,
    )
    return net.program()


def motion_rows(part, n, seed, networks=4, steps=10, rate=0.1):
    """Attention weights, queries and hidden units of the second block: how far ten
    steps move them, network by network.
    """
    p, fs = transformer()
    trained = (
        None if PARTS[part] is None else [W for W in p.matrices if PARTS[part](W.name)]
    )
    products = {
        W.name: [g for g in p.nodes if getattr(g, "W", None) is W] for W in p.matrices
    }
    weights = [h for h in p.nodes if type(h).__name__ == "Attend"][-1]
    run = train(
        p,
        fs,
        Y,
        width=n,
        steps=steps,
        learning_rate=rate,
        size=networks,
        matrices=trained,
        rng=seed,
        verbose=False,
    )
    (block,) = weights.scores
    asked = block[-1, np.flatnonzero(weights.mask[-1])]  # what the last token sees
    P = [run.values(asked, when)[..., 0] for when in ("start", "end")]
    A = [np.exp(x - x.max(1, keepdims=True)) for x in P]
    A = [x / x.sum(1, keepdims=True) for x in A]
    x = products[HIDDEN][-1][-1]
    W, hidden_input = factors_of(x)
    found = dict(
        weights=abs(A[1] - A[0]).max(1),
        queries=run.change(products["Q2.1"][-1][-1]),
        hidden=run.change(x),
        hidden_input=run.change(hidden_input),
        hidden_own=own_motion(run, W, hidden_input),
        first_loss=run.loss[:, 0],
        loss=run.loss[:, -1],
        first_output=run.outputs[:, 0, 0],
        output=run.outputs[:, -1, 0],
    )
    return [
        dict(trained=part, n=n, seed=seed, which=k)
        | {name: v[k] for name, v in found.items()}
        for k in range(networks)
    ]


def own_motion(run, W, h):
    """What the change of W alone does to W x, x as it is in the end: ‖(W_T −
    W_0)x‖/‖W_0x‖.
    """
    found = []
    x = run.values(h)
    for block in run._blocks:
        part = x[block.numbers, None]
        drawn, states = block.networks
        M = drawn.matrices[W].fork(np.random.default_rng(0))
        now, _ = M.times(part, states[W])
        then, _ = M.times(part, M.start)
        found.append(
            np.linalg.norm(now - then, axis=(1, 2)) / np.linalg.norm(then, axis=(1, 2))
        )
    return np.concatenate(found)


# -- (c) coordinate checks

READ = "muP", "Muon, readout/√n"  # f = n^(-1) Σ r h instead of n^(-1/2)


def scaling(name, p, n, rate):
    "Readout variance, factors of rates by matrix, method."
    if name == "standard":
        return dict(
            learning_rate=rate,
            rate_factors={W: n / 64 for W in (*p.matrices, *p.readouts)},
        )
    if name == "muP":
        return dict(learning_rate=rate * n)
    if name.startswith("Muon"):
        return dict(learning_rate=rate / 2, optimizer="muon")
    return dict(learning_rate=rate)


SCALINGS = "standard", "NTK", "muP", "Muon", "Muon, readout/√n"


def coordinate_row(name, n, seed=0, networks=16, steps=1, rate=0.2):
    """Of an MLP with three hidden layers: how far one step moves the last hidden layer
    (rms per coordinate) and the output, with standard errors.
    """
    p = Program()
    R = p.readout(var=1 / n if name in READ else 1.0)
    gs = mlp(p, p.inputs(np.eye(3) + 0.3), 3, activation=tanh, var_w=2.0)
    fs = [R @ tanh(g) for g in gs]
    how = scaling(name, p, n, rate)
    try:
        run = train(
            p,
            fs,
            Y,
            width=n,
            steps=steps,
            size=networks,
            rng=seed,
            verbose=False,
            **how,
        )
    except ValueError:
        return dict(scaling=name, n=n, seed=seed, hidden=np.inf, output=np.inf)
    changes = dict(
        hidden=run.values(gs[0]) - run.values(gs[0], "start"),
        output=run.outputs[:, -1] - run.outputs[:, 0],
    )
    row = dict(scaling=name, n=n, seed=seed)
    for key, change in changes.items():
        squares = (change**2).reshape(networks, -1).mean(1)
        row[key] = squares.mean() ** 0.5
        row[f"{key}_error"] = sem(squares) / (2 * row[key])
    return row


# -- (d) induction: do MLPs help?

LETTERS, SHOWN = 5, 300  # of 480 sequences: the task of benchmarks/circuits.py
EVERY, LAST = 150, 1500  # steps between two looks, and in all


def induction_program(kind, shown):
    """Two layers of one head with RMSNorm, as on the page about circuits; after each of
    them an MLP, or none.

    Tokens that have seen the same are written down once, and the second layer only for
    the token that is read.
    """
    p = Program()
    letters, places = p.inputs(np.eye(LETTERS)), p.inputs(np.eye(LETTERS + 1))
    block = lambda: (
        [p.matrix() for _ in "QKVO"]
        + ([p.matrix(rows=2), p.matrix()] if kind == "MLP" else [])
    )
    first, second, rows = block(), block(), [p.readout() for _ in range(LETTERS)]
    unit = cache(lambda h: p.normalize(h, "rms"))
    score = cache(lambda q, k: p.score(q, k))

    def layer(stream, Q, K, V, O, *mlp):
        "What the last of some tokens becomes."
        u = [unit(h) for h in stream]
        x = stream[-1] + O @ p.attend(
            [score(Q @ u[-1], K @ k) for k in u], [V @ k for k in u]
        )
        if mlp:
            W, M = mlp
            x = x + M @ relu(W @ p.normalize(x, "rms"))
        return x

    token = cache(lambda letter, place: letters[letter] + places[place])
    after_first = cache(
        lambda seen: layer([token(a, i) for i, a in enumerate(seen)], *first)
    )

    def outputs(text):
        return [
            R @ layer([after_first(text[: i + 1]) for i in range(len(text))], *second)
            for R in rows
        ]

    return p, [outputs(tuple(text)) for text in shown]


def explicit_induction(kind, X, n, b, seed=0, start=None, dtype="float32"):
    """The same networks in torch, b side by side: its weights in the program's order,
    and a function of them: texts -> outputs (b, texts, letters).

    A token of the second layer is what has been seen up to it; those are looked up.
    """
    import torch

    torch.set_num_threads(1)
    dtype = getattr(torch, dtype)
    g = torch.Generator().manual_seed(seed)
    shapes = 2 * (
        [(n, n)] * 4 + ([(2 * n, n), (n, 2 * n)] if kind == "MLP" else [])
    ) + [(LETTERS, n)]
    begun = [
        torch.randn(b, r, c, generator=g, dtype=torch.float64) / c**0.5
        for r, c in shapes
    ]
    E = torch.randn(b, 2 * LETTERS + 1, n, generator=g, dtype=torch.float64)
    if start is not None:
        *begun, E = (torch.as_tensor(x) for x in start)
    weights = [torch.nn.Parameter(x.to(dtype)) for x in begun]
    E = E.to(dtype)
    k = len(weights) // 2
    first, second, rows = weights[:k], weights[k:-1], weights[-1]
    texts = [tuple(t) for t in X[..., :LETTERS].argmax(-1)]
    seen = sorted({t[: i + 1] for t in texts for i in range(len(t))})
    at = {t: i for i, t in enumerate(seen)}
    s = LETTERS + 1
    token = lambda t: [a * s + i for i, a in enumerate(t)]
    read = torch.zeros(len(seen), LETTERS * s, dtype=torch.bool)
    for t, i in at.items():
        read[i, token(t)] = True
    last = torch.tensor([token(t)[-1] for t in seen])
    parts = torch.tensor([[at[t[: i + 1]] for i in range(s)] for t in texts])
    tokens = torch.stack(
        [E[:, a] + E[:, LETTERS + i] for a in range(LETTERS) for i in range(s)], 1
    )
    unit = lambda x: x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5)

    def after(x, mlp):
        if not mlp:
            return x
        W, M = mlp
        return x + torch.relu(unit(x) @ W.mT) @ M.mT

    u = unit(tokens)

    def outputs(chosen):
        inside, where = torch.unique(parts[chosen], return_inverse=True)
        Q, K, V, O, *mlp = first
        P = ((u @ Q.mT) @ (u @ K.mT).mT / n**0.5)[:, last[inside]]
        A = torch.softmax(P.masked_fill(~read[inside], -torch.inf), -1)
        x = after(tokens[:, last[inside]] + A @ (u @ V.mT @ O.mT), mlp)
        Q, K, V, O, *mlp = second
        w = unit(x)
        q, key, v = (
            w[:, where[:, -1]] @ Q.mT,
            (w @ K.mT)[:, where],
            (w @ V.mT)[:, where],
        )
        a = torch.softmax(torch.einsum("bpn,bpsn->bps", q, key) / n**0.5, -1)
        z = after(x[:, where[:, -1]] + torch.einsum("bps,bpsn->bpn", a, v) @ O.mT, mlp)
        return z @ rows.mT

    return weights, outputs


def induction_rows(kind, n, rate, seed=0, networks=8, last=LAST):
    """Loss on the sequences that are shown and right answers on the others, network by
    network, on the way.
    """
    import torch

    X, y = induction(LETTERS)
    weights, outputs = explicit_induction(kind, X, n, networks, seed)
    y = torch.tensor(y)
    descent = torch.optim.SGD(
        [dict(params=[W], lr=rate / W.shape[2]) for W in weights], momentum=0.9
    )
    shown, new = torch.arange(SHOWN), torch.arange(SHOWN, len(y))
    rows = []
    for step in range(last + 1):
        f = outputs(shown)
        losses = torch.nn.functional.cross_entropy(
            f.mT, y[shown].expand(networks, -1), reduction="none"
        ).sum(1)
        if step % EVERY == 0:
            with torch.no_grad():
                right = (outputs(new).argmax(-1) == y[new]).double().mean(1)
            rows += [
                dict(
                    network=kind,
                    n=n,
                    rate=rate,
                    seed=seed,
                    steps=step,
                    which=k,
                    loss=losses[k].item() / SHOWN,
                    right=right[k].item(),
                )
                for k in range(networks)
            ]
        descent.zero_grad()
        losses.sum().backward()
        descent.step()
    return rows


# -- speed

PASSES = 4


def ours(n, dense=None):
    p, fs = transformer()
    return train(
        p,
        fs,
        Y,
        width=n,
        steps=PASSES - 1,
        learning_rate=0.05,
        size=1,
        rng=0,
        dense=dense,
        verbose=False,
    )


def with_numpy(n):
    return in_numpy(*drawn(n), PASSES, 0.05)


def with_torch(n):
    return in_torch(*drawn(n), PASSES, 0.05)


def explicit(n):
    return ours(n, dense=True)


SIDES = (
    "ours",
    "with_numpy",
    "with_torch",
    "explicit",
)  # the last: our own code with its matrices
WIDEST = dict(explicit=2048)  # it keeps starts and gradients: 30 GB at width 8,192


def measured(what, n):
    "Processor seconds and GiB of one run in a process of its own, drawing included."
    code = (
        "import resource, sys, time\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import programs\n"
        f"programs.{what}(16)\n"
        "t = time.process_time()\n"
        f"programs.{what}({n})\n"
        "memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20\n"
        "print(time.process_time() - t, memory)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    seconds, memory = map(float, out.split())
    return dict(seconds=seconds, GiB=memory)


REPEAT = {512: 2, 2048: 1, 8192: 1}  # width: runs


def speed():
    "Side by side: the least of some runs, as ratios; and growth with the width."
    table = {}
    for n, times in REPEAT.items():
        runs = {
            what: [measured(what, n) for _ in range(times)]
            for what in SIDES
            if n <= WIDEST.get(what, n)
        }
        least = {what: min(x["seconds"] for x in found) for what, found in runs.items()}
        table[str(n)] = {
            f"{what} over ours": least[what] / least["ours"]
            for what in least
            if what != "ours"
        }
        table[str(n)] |= {
            f"{what}, GiB": max(x["GiB"] for x in found) for what, found in runs.items()
        }
        print(n, table[str(n)], flush=True)
    grown = {n: measured("ours", n) for n in (12_500, 25_000, 50_000, 100_000)}
    per_unit = [x["seconds"] / n for n, x in grown.items()]
    table["growth"] = dict(
        widths=list(grown),
        steps=PASSES - 1,
        seconds_per_unit_over_first=[x / per_unit[0] for x in per_unit],
    )
    table["width 100,000"] = grown[100_000]
    return table


def one(f):
    return lambda *case: [f(*case)]


TABLES = {  # -> rows of a case, cases
    "kernels": (one(kernel_row), product(KINDS, [n for n in WIDTHS if n <= 4096])),
    "motion": (motion_rows, motion_cases()),
    "coordinates": (
        one(coordinate_row),
        product(SCALINGS, [64, 512, 4096, 32768, 100_000]),
    ),
    "induction": (induction_rows, [(kind, 64, 4e-4) for kind in ("attention", "MLP")]),
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", choices=[*TABLES, "speed"])
    given = parser.parse_args()
    for name in given.names:
        if name == "speed":
            store("benchmarks_programs", **speed())
            continue
        rows, cases = TABLES[name]
        table = pd.DataFrame([row for case in cases for row in rows(*case)])
        table.to_csv(DATA / f"programs_{name}.csv", index=False, float_format="%.6g")
        print(table.round(4).to_string())


if __name__ == "__main__":
    main()
