"""Attention-only transformers of finite width with all their matrices, trained by
hand-written backpropagation at NTK rates; and the circuits they start from.
"""

from collections import defaultdict
from dataclasses import replace

import numpy as np

from infattn_nb.attention.spec import AttentionSpec
from infattn_nb.learning.circuits import NORM_EPS, Depth, ReadRows, at_rows
from infattn_nb.learning.circuits import circuit_scores, from_rows
from infattn_nb.learning.descent_step import Counts, circuits_from, dynamics
from infattn_nb.learning.descent_step import random_circuits
from infattn_nb.nonlinearities import softmax


TWO = Depth(2, AttentionSpec(2), True, True, True, 3)
ONE = replace(TWO, spec=AttentionSpec())
OTHER = replace(TWO, spec=AttentionSpec(var_q=1.44, var_v=0.8))
BARE = replace(TWO, spec=AttentionSpec(2, var_v=0.5), norm=False)
FIXED = replace(ONE, residual=False, train_readout=False)
OF_TORCH = {  # -> network, its norm, causal?, every position read?
    "no norm": (BARE, None, True, False),
    "RMSNorm": (TWO, "rms", True, False),
    "RMSNorm, no mask": (OTHER, "rms", False, False),
    "RMSNorm, readout fixed, no skip": (FIXED, "rms", True, False),
    "RMSNorm, every position": (TWO, "rms", True, True),
    "three layers": (replace(ONE, layers=3), "rms", True, False),
    "one layer": (replace(TWO, layers=1), "rms", True, False),
    "LayerNorm": (TWO, "layer", True, False),
    "LayerNorm, one head": (ONE, "layer", False, False),
}


class Wide:
    "One network of width n. Tokens X become X E with E Eᵀ/n = I; heads are n×n."

    def __init__(self, depth, n, D, rng):
        self.depth, self.n = depth, n
        self.E = np.linalg.qr(rng.standard_normal((n, depth.size)))[0].T * np.sqrt(n)
        self.var = dict(
            Q=depth.scale,
            K=depth.scale,
            V=depth.spec.output_variance**0.5,
            O=depth.spec.output_variance**0.5,
        )
        self.heads = [
            [
                {
                    x: rng.standard_normal((n, n)) * np.sqrt(v / n)
                    for x, v in self.var.items()
                }
                for _ in range(depth.heads)
            ]
            for _ in range(depth.layers)
        ]
        self.readout = rng.standard_normal((n, D))

    def images(self, l):
        "Of the tokens along every path into layer l, as standard normals have them."
        for path in self.depth.paths(l):
            M = self.E
            for k, h in path:
                M = (
                    M
                    @ self.heads[k][h]["V"]
                    @ self.heads[k][h]["O"]
                    / np.sqrt(self.depth.heads)
                )
            yield M / self.depth.weight ** len(path)

    def circuits(self):
        "The circuits of this very network."
        scores = []
        for l, layer in enumerate(self.heads):
            M = np.concatenate([*self.images(l)])
            scores.append(
                np.stack([M @ w["Q"] @ w["K"].T @ M.T for w in layer])[None]
                / np.sqrt(self.n)
                / self.depth.scale
            )
        images = np.concatenate([*self.images(self.depth.layers)])
        values = (images @ self.readout / np.sqrt(self.n))[None]
        return circuits_from([*scores, values], 1)

    def values(self, rows):
        depth, x, self.tape = self.depth, rows.tokens @ self.E, []
        for layer in self.heads:
            size = (
                np.sqrt((x * x).mean(-1, keepdims=True) + NORM_EPS)
                if depth.norm
                else None
            )
            u, y, seen = x if size is None else x / size, 0, []
            for w in layer:
                q, k, v = (u @ w[c] for c in "QKV")
                A = softmax(q @ k.mT / np.sqrt(self.n) + rows.see, axis=-1)
                seen.append((q, k, v, A, A @ v))
                y = y + A @ v @ w["O"] / np.sqrt(depth.heads)
            self.tape.append((u, size, seen))
            x = x * depth.residual + y
        read = at_rows(x, rows.rows)
        self.read = (
            read
            if rows.weights is None
            else np.einsum("pr,prn->pn", rows.weights, read)
        )
        return self.read @ self.readout / np.sqrt(self.n)

    def step(self, rows, χ, rate, decay=0.0, momentum=0.0):
        "Descent on every matrix, after `values`; χ are slopes by the values."
        velocity = self.velocities = getattr(self, "velocities", defaultdict(float))

        def move(W, key, slope):
            velocity[key] = momentum * velocity[key] - rate * (slope + decay * W)
            W += velocity[key]

        depth, n, flat = self.depth, self.n, lambda t: t.reshape(-1, self.n)
        dz = χ @ self.readout.T / np.sqrt(n)
        by_readout = flat(self.read).T @ χ.reshape(-1, χ.shape[-1]) / np.sqrt(n)
        dx = from_rows(
            dz if rows.weights is None else rows.weights[..., None] * dz[:, None],
            rows.rows,
            rows.tokens.shape[1],
        )
        for l, (u, size, seen) in [*enumerate(self.tape)][::-1]:
            du = 0
            for h, (w, (q, k, v, A, o)) in enumerate(zip(self.heads[l], seen)):
                do = dx @ w["O"].T / np.sqrt(depth.heads)
                dA = do @ v.mT
                dP = A * (dA - (A * dA).sum(-1, keepdims=True)) / np.sqrt(n)
                by = dict(Q=dP @ k, K=dP.mT @ q, V=A.mT @ do)
                slopes = {c: flat(u).T @ flat(x) for c, x in by.items()} | dict(
                    O=flat(o).T @ flat(dx) / np.sqrt(depth.heads)
                )
                du = du + sum(x @ w[c].T for c, x in by.items())
                for c, slope in slopes.items():
                    move(w[c], (l, h, c), self.var[c] / n * slope)
            dx = dx * depth.residual + (
                du
                if size is None
                else (du - (du * u).mean(-1, keepdims=True) * u) / size
            )
        if depth.train_readout:
            move(self.readout, "readout", by_readout)


def start(depth, D, seeds):
    "Random circuits."
    return random_circuits(depth.shapes(D), seeds, 1)


def data(seed, P=4, s=4, d=3, every=False, causal=True):
    "Sequences and targets."
    rng = np.random.default_rng(seed)
    X, y = (
        rng.standard_normal((P, s, d)),
        1.5 * rng.standard_normal((P, s, 1) if every else (P, 1)),
    )
    see = np.where(np.tri(s) > 0, 0.0, -np.inf) if causal else np.zeros((s, s))
    rows = np.tile(np.arange(s), (P, 1)) if every else np.full((P, 1), s - 1)
    return ReadRows(
        X, np.tile(see, (P, 1, 1)), rows, None if every else np.ones((P, 1))
    ), y


def next_circuits(state, limit, rows, y, rate, gradient=np.subtract):
    "Values, and the circuits after a step; `gradient(f, y)` is the loss's."
    answer = state.reply(limit, rows)
    slopes = state.slopes(limit, rows, answer, gradient(answer.values, y))
    return answer.values, state.step(limit, slopes, dynamics(rate), None)


def same(state):
    return state


def distances(depth, n, seed, steps, rate, mistakes=(), **task):
    """How far values move, and the largest distance of values between a network of
    width n and its circuits over some steps; then that of circuits with mistakes, of
    (limit, what is done to the start) each.
    """
    rows, y = data(7, d=depth.size, **task)
    net = Wide(depth, n, 1, np.random.default_rng([seed, n]))
    limits, changes = zip((depth, same), *mistakes)
    states = [change(net.circuits()) for change in changes]
    path, far = [], []
    for _ in range(steps):
        f = net.values(rows)
        values, states = zip(
            *(
                next_circuits(state, limit, rows, y, rate)
                for state, limit in zip(states, limits)
            )
        )
        path.append(values[0])
        far.append([np.abs(x[0] - f).max() for x in values])
        net.step(rows, f - y, rate)
    return np.abs(path[-1] - path[0]).max(), *np.max(far, axis=0)


class WrongRates:
    "A network whose circuits move at other rates."

    def __init__(self, depth, counts):
        self.depth, self._counts = depth, counts

    def __getattr__(self, name):
        return getattr(self.depth, name)

    @property
    def counts(self):
        return tuple(map(Counts.of, self._counts(self.depth)))


def one_rate(depth):
    "Not multiplied by the number of trained matrices."
    *scores, values = (k.array for k in depth.counts)
    return [*(np.full_like(k, 2) for k in scores), np.ones_like(values)]


# --- induction: the letter that followed


def letters_shown(X):
    "Sequences as a causal network reads them that answers at the last token."
    P, s, _ = X.shape
    see = np.where(np.tri(s) > 0, 0.0, -np.inf)
    return ReadRows(X, np.tile(see, (P, 1, 1)), np.full((P, 1), s - 1), np.ones((P, 1)))


def probabilities_off(f, y):
    return softmax(f, axis=-1) - y  # gradient of the cross-entropy


def composition(state, size):  # (H, d, H d)
    "K-composition: what tokens ask of the first layer's copies."
    return state.scores[1][0, 0, :, :size, size:]


def rms(x):
    return np.sqrt((x * x).mean())


def last_scores(net, state, limit, rows):
    "Scores of the second layer, of the network and of circuits."
    net.values(rows)
    theirs = np.stack(
        [q[:, -1:] @ k.mT / np.sqrt(net.n) for q, k, *_ in net.tape[1][2]]
    )
    seen = state.reply(limit, rows).layers[1].seen
    return theirs, circuit_scores(limit, rows, state.products(), 1, seen)[0][0]


def side_by_side(depth, n, seed, shown, y, moments, rate, batch):
    """A network of width n, its own circuits, and these at one rate for all, trained on
    the same batches: at some moments (step, network, circuits, circuits at one
    rate).
    """
    net = Wide(depth, n, y.shape[1], np.random.default_rng([seed, n]))
    right = wrong = net.circuits()
    order = np.random.default_rng(seed)
    for t in range(max(moments) + 1):
        if t in moments:
            yield t, net, right, wrong
        b = order.choice(len(y), batch, replace=False)
        _, right = next_circuits(
            right, depth, shown.take(b), y[b], rate, probabilities_off
        )
        _, wrong = next_circuits(
            wrong,
            WrongRates(depth, one_rate),
            shown.take(b),
            y[b],
            rate,
            probabilities_off,
        )
        net.step(
            shown.take(b), probabilities_off(net.values(shown.take(b)), y[b]), rate
        )
