"""The experiments on deep attention: wide networks against their circuits, and whether
induction heads form.

    python benchmarks/circuits.py [part ...] [--seeds 8]

with parts widths, induction, strengths, explicit, meeting and speed, writes
nbs/data/circuits_<part>.csv (speed: nbs/data/benchmarks_circuits.json), from which the
page on circuits is made. Each row depends on its seed alone; a test recomputes some.
`explicit` and torch's side of `speed` need PyTorch.
"""

import argparse
import itertools
import os
import sys
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import numpy as np
import pandas as pd
from reference_circuits import (
    composition,
    distances,
    last_scores,
    letters_shown,
    rms,
    side_by_side,
)
from stored import DATA, store

from infattn_nb import CircuitDescent
from infattn_nb.attention.spec import AttentionSpec
from infattn_nb.learning.circuits import Depth

CASES = {  # -> network, steps, rate, causal mask?
    "two layers of two heads": (
        Depth(2, AttentionSpec(2, var_v=0.5), True, False, True, 3),
        15,
        0.004,
        True,
    ),
    "the same, RMSNorm": (
        Depth(2, AttentionSpec(2), True, True, True, 3),
        20,
        0.01,
        True,
    ),
    "the same, no skip": (
        Depth(2, AttentionSpec(2), False, True, True, 3),
        20,
        0.02,
        True,
    ),
    "the same, readout not trained": (
        Depth(2, AttentionSpec(2), True, True, False, 3),
        20,
        0.01,
        True,
    ),
    "three layers of one head, RMSNorm": (
        Depth(3, AttentionSpec(), True, True, True, 3),
        20,
        0.01,
        True,
    ),
    "one layer of two heads, RMSNorm, no mask": (
        Depth(1, AttentionSpec(2), True, True, True, 3),
        20,
        0.02,
        False,
    ),
}
WIDTHS = {
    64: 16,
    128: 16,
    256: 12,
    512: 8,
    1024: 6,
    2048: 3,
}  # how many networks of each


def run_widths(case, n, seed):
    depth, steps, rate, causal = CASES[case]
    moved, far = distances(depth, n, seed, steps, rate, causal=causal)
    return dict(case=case, n=n, seed=seed, far=far, moved=moved)


def induction(letters=5, seed=0):
    """All sequences: the letters in some order, then one of them again; the answer is
    the letter that followed it.
    """
    orders = [
        (order, k)
        for order in itertools.permutations(range(letters))
        for k in range(letters - 1)
    ]
    s = letters + 1
    X, y = np.zeros((len(orders), s, letters + s)), np.zeros(len(orders), int)
    for p, (order, k) in enumerate(orders):
        X[p, range(s), [*order, order[k]]] = 1
        X[p, range(s), letters + np.arange(s)] = 1
        y[p] = order[k + 1]
    chosen = np.random.default_rng(seed).permutation(len(orders))
    return X[chosen], y[chosen]


def right(model, X, y):
    return (model.values(X).argmax(-1) == y).mean(1)


def learner(steps, **own):
    "What all experiments with induction train, but for options of their own."
    usual = dict(
        layers=2,
        norm="rms",
        loss="softmax",
        mask="causal",
        momentum=0.9,
        tol=0.0,
        n_networks=8,
        random_state=0,
    )
    return CircuitDescent(max_iter=steps, **usual | own)


def run_induction(layers, heads, steps, networks=8, train=300, seed=0):
    X, y = induction()
    own = dict(layers=layers, heads=heads, n_networks=networks, random_state=seed)
    model = learner(steps, **own).fit(X[:train], y[:train])
    test = X[train:], y[train:]
    rows = [
        dict(layers=layers, heads=heads, steps=steps, network=k)
        for k in range(networks)
    ]
    columns = dict(
        loss=model.loss_[:, -1] / train,
        train=right(model, X[:train], y[:train]),
        test=right(model, *test),
    )
    if layers == 2:
        size = model.circuit_size()["score"]
        direct, composed = [], []
        for h in range(heads):
            direct.append(size[1, h, (), ()])
            composed += [size[1, h, (), ((0, k),)] for k in range(heads)]
        columns |= dict(direct=np.mean(direct, 0), keys=np.mean(composed, 0))
        cut = model
        for h, k in itertools.product(range(heads), range(heads)):
            cut = cut.without("score", (1, h, (), ((0, k),)))
        columns |= dict(without_keys=right(cut, *test))
        cut = model
        for h in range(heads):
            cut = cut.without("score", (1, h, (), ()))
        columns |= dict(without_direct=right(cut, *test))
    for row, *values in zip(rows, *columns.values()):
        row |= dict(zip(columns, values))
    return rows


def named(path):
    return "+".join(f"{l}{h}" for l, h in path) or "tokens"


def run_strengths(steps, networks=8, train=300):
    """Two layers of one head after some steps of the same training: size of every
    circuit, accuracy on what was not shown.
    """
    X, y = induction()
    model = learner(max(steps, 1), n_networks=networks).fit(X[:train], y[:train])
    when = "end" if steps else "start"
    values = model.values(X[train:], when)
    test = (values.argmax(-1) == y[train:]).mean(1)
    loss = model.loss_[:, -1 if steps else 0] / train
    sizes = model.circuit_size(when)
    for k in range(networks):
        row = dict(steps=steps, network=k, test=test[k], loss=loss[k])
        row |= {
            f"score {l}{h}: {named(a)} asks {named(b)}": size[k]
            for (l, h, a, b), size in sizes["score"].items()
        }
        yield row | {
            f"value: {named(a)}": size[k] for a, size in sizes["value"].items()
        }


# --- explicit networks of growing width on the same task, by torch

MOMENTS = 0, 300, 600, 1000, 1400, 1800, 2400, 3000
EXPLICIT = {64: 8, 256: 8, 1024: 3}  # width: how many networks


def stable_rate(train=300):
    "What the networks of infinite width find."
    X, y = induction()
    return learner(1).fit(X[:train], y[:train]).learning_rate_


def run_explicit(n, seed, rate, train=300, letters=5, moments=MOMENTS):
    """A network of width n with two layers of one head, all its matrices trained by
    torch; right answers on the way.

    The first layer works on the 30 tokens that there are, the second for the row that
    is read, which changes nothing.
    """
    import torch

    torch.set_num_threads(1)
    made = torch.Generator().manual_seed(1000 * n + seed)
    normal = lambda *shape: torch.randn(shape, generator=made)
    X, y = (torch.tensor(x) for x in induction(letters))
    s = letters + 1
    token = X[..., :letters].argmax(-1) * s + torch.arange(
        s
    )  # which of the letters·places
    distinct = torch.cat(
        [torch.eye(letters).repeat_interleave(s, 0), torch.eye(s).repeat(letters, 1)], 1
    )
    there = torch.nn.functional.one_hot(token, letters * s).float()
    E = torch.linalg.qr(normal(n, letters + s))[0].T * n**0.5
    Q0, K0, V0, O0, Q1, K1, V1, O1 = weights = [
        torch.nn.Parameter(normal(n, n)) for _ in range(8)
    ]
    r = torch.nn.Parameter(normal(n, letters))
    descent = torch.optim.SGD([*weights, r], lr=rate, momentum=0.9)
    normed = lambda x: x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5)
    future = torch.triu(torch.full((s, s), -torch.inf), 1)

    def values(k):
        tokens, at = distinct @ E, token[k]
        u = normed(tokens)
        S = (u @ Q0) @ (u @ K0).T / n**1.5
        A = torch.softmax(S[at[:, :, None], at[:, None]] + future, -1)
        x = there[k] @ tokens + A @ there[k] @ (u @ V0 @ O0 / n)
        u, last = normed(x), x[:, -1]
        a = torch.softmax(
            torch.einsum("pn,psn->ps", u[:, -1] @ Q1 @ K1.T, u) / n**1.5, -1
        )
        return (last + torch.einsum("ps,psn->pn", a, u) @ V1 @ O1 / n) @ r / n**0.5

    rows, shown, new = [], slice(train), slice(train, None)
    for step in range(max(moments) + 1):
        f = values(shown)
        loss = torch.nn.functional.cross_entropy(f, y[shown], reduction="sum")
        if step in moments:
            with torch.no_grad():
                test = (values(new).argmax(-1) == y[new]).float().mean().item()
            rows.append(
                dict(
                    n=n,
                    seed=seed,
                    steps=step,
                    loss=loss.item() / train,
                    train=(f.argmax(-1) == y[shown]).float().mean().item(),
                    test=test,
                )
            )
        descent.zero_grad()
        loss.backward()
        descent.step()
    return rows


# --- the same start and the same batches

MEETINGS = {64: 16, 128: 16, 256: 12, 512: 8, 1024: 8}  # width: how many networks


def run_meeting(n, seed, train=300, moments=(0, 50, 100, 150, 200, 250, 300)):
    """Two layers of one head and their circuits learn induction side by side: 300 steps
    of size .05 on batches of 30.

    On new sequences root mean square distances of values (also of circuits at one rate)
    and of scores, how far the limit's scores have moved; and the size of K-composition
    in all three.
    """
    X, y = induction()
    shown, new = letters_shown(X[:train]), letters_shown(X[train:])
    depth = Depth(2, AttentionSpec(), True, True, True, X.shape[2])
    rows, begun = [], None
    for t, net, *both in side_by_side(
        depth, n, seed, shown, np.eye(5)[y[:train]], moments, rate=0.05, batch=30
    ):
        f = net.values(new)
        values, one_rate = (
            rms(state.reply(depth, new).values[0] - f) for state in both
        )
        theirs, ours = last_scores(net, both[0], depth, new)
        begun = ours if begun is None else begun
        sizes = [
            rms(composition(state, depth.size)) for state in (net.circuits(), *both)
        ]
        rows.append(
            dict(
                n=n,
                seed=seed,
                steps=t,
                values=values,
                one_rate=one_rate,
                scores=rms(ours - theirs),
                moved=rms(ours - begun),
            )
            | dict(zip(("keys", "keys_limit", "keys_one_rate"), sizes))
        )
    return rows


# --- speed

SIZE = dict(P=100, s=32, d=16, layers=2, heads=4, networks=16, steps=200)


def speed_data():
    rng = np.random.default_rng(0)
    return rng.standard_normal((SIZE["P"], SIZE["s"], SIZE["d"])), rng.standard_normal(
        SIZE["P"]
    )


def ours():
    "Processor seconds of all networks and steps."
    X, y = speed_data()
    model = CircuitDescent(
        SIZE["layers"],
        SIZE["heads"],
        norm="rms",
        mask="causal",
        learning_rate=1e-6,
        max_iter=SIZE["steps"],
        tol=0.0,
        n_networks=SIZE["networks"],
        random_state=0,
    )
    begun = time.process_time()
    model.fit(X, y)
    return time.process_time() - begun


def torch_seconds(n, steps=3):
    """Processor seconds of one step of one explicit network of width n whose heads are
    n×n, as one writes it in torch: autograd, SGD, single precision.
    """
    import torch

    torch.set_num_threads(1)
    X, y = (torch.tensor(x, dtype=torch.float32) for x in speed_data())
    H, s = SIZE["heads"], SIZE["s"]
    E = torch.linalg.qr(torch.randn(n, SIZE["d"]))[0].T * n**0.5
    shapes = [(n, H * n)] * 3 + [(H * n, n)]
    layers = [
        [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
        for _ in range(SIZE["layers"])
    ]
    r = torch.nn.Parameter(torch.randn(n))
    descent = torch.optim.SGD([*itertools.chain(*layers), r], lr=1e-6)
    split = lambda x: x.unflatten(-1, (H, n)).transpose(1, 2)

    def step():
        x = X @ E
        for Q, K, V, O in layers:
            u = x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5)
            q, k, v = (split(u @ W) / n**0.5 for W in (Q, K, V))
            o = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True
            )
            x = x + o.transpose(1, 2).flatten(2) @ O / (H * n) ** 0.5
        loss = 0.5 * ((x[:, -1] @ r / n**0.5 - y) ** 2).sum()
        descent.zero_grad()
        loss.backward()
        descent.step()

    step()
    begun = time.process_time()
    for _ in range(steps):
        step()
    return (time.process_time() - begun) / steps


def speed():
    """Processor seconds of one step of one network, ours in double precision and
    torch's in single.
    """
    total = ours()
    rows = [
        dict(
            section="circuits",
            case="n = ∞",
            value=total,
            each=total / SIZE["steps"] / SIZE["networks"],
        )
    ]
    rows += [
        dict(section="circuits, torch", case=f"n = {n}", each=torch_seconds(n))
        for n in (64, 1024)
    ]
    store("benchmarks_circuits", size=SIZE, rows=rows)


TABLES = {
    "meeting": lambda seeds: [
        row
        for n, most in MEETINGS.items()
        for seed in range(min(most, 2 * seeds))
        for row in run_meeting(n, seed)
    ],
    "explicit": lambda seeds: [
        row
        for n, most in EXPLICIT.items()
        for seed in range(min(most, seeds))
        for row in run_explicit(n, seed, stable_rate())
    ],
    "strengths": lambda seeds: [
        row
        for steps in (0, 300, 600, 1000, 1400, 1800, 2400, 3000)
        for row in run_strengths(steps, seeds)
    ],
    "widths": lambda seeds: [
        run_widths(case, n, seed)
        for case in CASES
        for n, most in WIDTHS.items()
        for seed in range(min(most, 2 * seeds))
    ],
    "induction": lambda seeds: [
        row
        for layers, heads in ((1, 2), (2, 1), (2, 2), (2, 4))
        for steps in (300, 1000, 3000)
        for row in run_induction(layers, heads, steps, seeds)
    ],
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="+", choices=[*TABLES, "speed"])
    parser.add_argument("--seeds", type=int, default=8)
    options = parser.parse_args()
    for name in options.tables:
        if name == "speed":
            speed()
        else:
            pd.DataFrame(TABLES[name](options.seeds)).to_csv(
                DATA / f"circuits_{name}.csv", index=False, float_format="%.8g"
            )
        print(name, flush=True)
