"Five programs that are trained, here and by torch (tests/torch_programs.py)."

import numpy as np

from infattn_nb import Program
from infattn_nb.netsor import attention, mlp, rnn
from infattn_nb.nonlinearities import relu, tanh, times

STEPS = 20
HOW = {  # name -> how it is trained
    "plain": dict(learning_rate=0.05),
    "momentum and decay": dict(learning_rate=0.02, momentum=0.9, weight_decay=0.05),
    "batches": dict(learning_rate=0.05, momentum=0.5, batch_size=2),
    "muon": dict(learning_rate=0.02, momentum=0.9, weight_decay=0.1, optimizer="muon"),
}
Σ = np.eye(3) + 0.4


def network(p):
    R = p.readout()
    return [R @ tanh(h) for h in mlp(p, p.inputs(Σ), 3, activation=tanh, var_w=1.5)]


def recurrent(p):
    R = p.readout(var=2.0)
    return [R @ h for h in rnn(p, p.inputs(Σ), var_w=1.5, var_b=0.2)]


def low_rank(p):
    R = p.readout()
    return [
        R @ y
        for y in attention(
            p,
            [tanh(h) for h in p.inputs(Σ)],
            heads=2,
            low_rank=True,
            var_q=4.0,
            mask="causal",
        )
    ]


def blocks(p):
    "Two blocks with LayerNorm and MLP, and a matrix shared by both."
    R, M = p.readout(), p.matrix("M", 1.2)
    x = list(p.inputs(Σ))
    for _ in range(2):
        u = [p.normalize(h) for h in x]
        x = [
            h + y + 0.5 * (M @ a)
            for h, y, a in zip(x, attention(p, u, heads=2, low_rank=True, var_q=2.0), u)
        ]
        W, V = p.matrix(rows=2), p.matrix()
        x = [h + V @ relu(W @ p.normalize(h, "rms")) for h in x]
    return [R @ h for h in x]


def gated(p):
    R = p.readout()
    W, U, V = p.matrix(rows=2), p.matrix(rows=2), p.matrix()
    return [R @ tanh(V @ times(tanh(W @ h), U @ h)) for h in p.inputs(Σ)]


PROGRAMS = {
    "MLP": network,
    "tied recurrent": recurrent,
    "low-rank attention": low_rank,
    "two blocks": blocks,
    "gated product": gated,
}
WIDTH = 16
Y = np.array([1.0, -0.5, 0.3])


def written(name):
    "A program, its outputs, explicit starts of its matrices and initial vectors."
    p = Program()
    fs = PROGRAMS[name](p)
    rng = np.random.default_rng(len(name))
    start = {}
    for h in p.nodes:
        W = getattr(h, "W", None)
        if W is not None and W not in start:
            c = int(h.args[0].length * WIDTH)
            r = 1 if W in p.readouts else int(W.rows * WIDTH)
            start[W] = np.sqrt(W.var / c) * rng.standard_normal((r, c))
        if type(h).__name__ == "Input":
            start |= {x: rng.standard_normal(WIDTH) for x in h}
    return p, fs, start


# Random networks of these widths, as many as stated, are stored
# (tests/torch_programs.py): at n = 12 more directions are met than there are
# coordinates.
LAW = [(name, n, 20_000) for n in (12, 32, 96) for name in PROGRAMS]
EVERY = 50


def watched_program(name):
    "A program, its outputs, the first four of the scores that its tokens read."
    p = Program()
    fs = PROGRAMS[name](p)
    read = [
        h.scores[0][i, j]
        for h in p.past(*fs)
        if type(h).__name__ == "Attend"
        for i in range(h.k)
        for j in range(h.args[0].k)
        if h.mask is None or h.mask[i, j]
    ]
    return p, fs, read[:4]


def quantiles(x):
    "Every fiftieth order statistic of (N, k), in single precision: (N/50, k)."
    return np.sort(x.round(9), axis=0)[EVERY // 2 - 1 :: EVERY].astype(np.float32)
