"""Networks with all their matrices: the package's explicit forward pass
(blocks/explicit.py), and a backward pass written by hand; no automatic
differentiation, no theory.
"""

import numpy as np

from infattn_nb.transformer.explicit import by_heads, merged, normalised, run_block
from infattn_nb.transformer.explicit import softmax_of, turned


def softmax(G):
    return softmax_of(G, True)


def slope(phi, x, h=1e-5):
    return (phi(x + h) - phi(x - h)) / (2 * h)


def normed_back(norm, X, d):
    "From gradients of normalised rows to those of the rows X."
    centred = lambda z: z - z.mean(-1, keepdims=True) if norm.kind == "layer" else z
    c = centred(X)
    D = 1 / np.sqrt((c * c).mean(-1, keepdims=True) + norm.eps)
    return centred(D * (d - (d * D * c).mean(-1, keepdims=True) * D * c))


def embeddings(t, n, size, rng):
    "As many as networks: drawn, or exactly of the mean and covariance."
    Z = rng.standard_normal((size, len(t.cov), n))
    if not t.random_embeddings:
        Z -= Z.mean(-1, keepdims=True)
        Z = np.linalg.solve(np.linalg.cholesky(Z @ Z.mT / n), Z)
    λ, U = np.linalg.eigh(t.cov)
    return t.mean[:, None] + (U * np.sqrt(np.maximum(λ, 0))) @ Z


class Explicit:
    """b networks of width n; `broken` is a mistake in the backward pass: softmax
    without its mean, or other matrices than in the forward pass.
    """

    def __init__(self, t, n, b, rng, broken=None):
        self.t, self.n, self.b, self.rng, self.broken = t, n, b, rng, broken
        self.texts = np.zeros(len(t.cov), int) if t.texts is None else t.texts
        self.layers = [self.matrices(block) for block in t.blocks]

    def matrix(self, var, rows, columns):
        return (var / rows) ** 0.5 * self.rng.standard_normal(
            (self.b, rows, columns)
        ), var / rows

    def transposed(self, W):
        return (
            W.std() * self.rng.standard_normal(W.shape) if self.broken == "fresh" else W
        ).mT

    def matrices(self, block):
        "{name: (W, θ's factor)}."
        n, a, f, shapes = self.n, block.attention, block.feedforward, {}
        if a:
            m = int(a.head_width or n // a.heads)
            keys = (a.groups or a.heads) * m
            shapes |= dict(
                q=(n, a.heads * m), k=(n, keys), v=(n, keys), o=(a.heads * m, n)
            )
            shapes |= {
                f"b{k}": (1, shapes[k][1]) for k in "qkvo" if getattr(a, f"var_b{k}")
            }
        if f:
            k = round(f.units * n)
            shapes |= {"1": (n, k), "2": (k, n)} | ({"3": (n, k)} if f.gated else {})
            shapes |= {
                name: (1, columns)
                for name, columns in (("b1", k), ("b2", n))
                if getattr(f, f"var_{name}")
            }
        return {
            name: self.matrix(
                getattr(a if name[-1] in "qkvo" else f, f"var_{name}"), *shape
            )
            for name, shape in shapes.items()
        }

    def attention_back(self, a, u, W, ran, dy):
        "Gradients of u and of the matrices."
        H, G = a.heads, a.groups or a.heads
        positions = np.array(
            [list(self.texts[:i]).count(t) for i, t in enumerate(self.texts)]
        )
        spread = lambda z: np.repeat(z, H // G, 1)
        grouped = lambda z: z.reshape(len(z), G, H // G, *z.shape[2:]).sum(2)

        def normed(Q):
            if not a.qk_norm:
                return Q
            return (
                by_heads(normalised(a.qk_norm, merged(Q)), Q.shape[1])
                if a.joint_norm
                else normalised(a.qk_norm, Q)
            )

        def undressed(Q, d):
            d = turned(d, positions, a.rotary, -1) if a.rotary else d
            if not a.qk_norm:
                return d
            return (
                by_heads(normed_back(a.qk_norm, merged(Q), merged(d)), Q.shape[1])
                if a.joint_norm
                else normed_back(a.qk_norm, Q, d)
            )

        dressed = lambda Q: (
            turned(normed(Q), positions, a.rotary) if a.rotary else normed(Q)
        )
        c = a.score_scale / ran.Q.shape[-1] ** 0.5
        dO = by_heads(dy @ self.transposed(W["o"]), H)
        dA = dO @ spread(ran.V).mT
        dP = ran.A * (
            dA
            - (0 if self.broken == "softmax" else (ran.A * dA).sum(-1, keepdims=True))
        )
        if a.softcap:
            dP = dP * (1 - np.tanh(ran.raw / a.softcap) ** 2)
        dQ = undressed(ran.Q, c * dP @ spread(dressed(ran.K)))
        dK = undressed(ran.K, grouped(c * dP.mT @ dressed(ran.Q)))
        d = dict(q=merged(dQ), k=merged(dK), v=merged(grouped(ran.A.mT @ dO)))
        return sum(x @ self.transposed(W[k]) for k, x in d.items()), {
            k: u.mT @ x for k, x in d.items()
        } | dict(o=ran.mixed.mT @ dy) | {
            f"b{k}": x.sum(-2, keepdims=True)
            for k, x in (d | dict(o=dy)).items()
            if f"b{k}" in W
        }

    def mlp_back(self, f, u, W, ran, dy):
        "The same of an MLP."
        one = np.ones((self.b, u.shape[1], 1))
        d = dy @ self.transposed(W["2"])
        into = {"1": d * ran.gate * slope(f.activation, ran.h)} | (
            {"3": d * f.activation(ran.h)} if "3" in W else {}
        )
        grads = {k: u.mT @ x for k, x in into.items()} | {"2": ran.unit.mT @ dy}
        grads |= {k: one.mT @ x for k, x in (("b1", into["1"]), ("b2", dy)) if k in W}
        return sum(x @ self.transposed(W[k]) for k, x in into.items()), grads

    def sum_back(self, block, branches, ran, W, d):
        "Through one residual sum: gradients of the stream, and of all matrices."
        norm, placed = (
            block.norm,
            lambda where, X, d: (
                normed_back(norm, X, d) if block.norm_placement in where else d
            ),
        )
        d = placed(("post",), ran.total, d)
        dy, found, du = (
            placed(("output", "sandwich"), ran.y, block.branch_scale * d),
            {},
            0.0,
        )
        for branch, x in zip(branches, ran.branches):
            back = self.attention_back if branch is block.attention else self.mlp_back
            more, grads = back(branch, ran.u, W, x, dy)
            du, found = du + more, found | grads
        return block.skip_scale * d + placed(("pre", "sandwich"), ran.x, du), found

    def forward(self, x):
        "Streams, what is read, what each block did, scores."
        streams, sums = [x], []
        for block, W in zip(self.t.blocks, self.layers):
            sums.append(
                run_block(block, x, {k: w for k, (w, _) in W.items()}, self.texts)
            )
            x = sums[-1][-1].out
            streams.append(x)
        out = normalised(self.t.last_norm, x) if self.t.last_norm else x
        scores = [
            branch.P
            for ran in sums
            for one in ran
            for branch in one.branches
            if hasattr(branch, "P")
        ]
        return streams, out, sums, scores

    def gradients(self, x, r):
        "Of Σ⟨r, out⟩: streams, their gradients, and those of all matrices by block."
        streams, _, sums, _ = self.forward(x)
        d, dX, grads = (
            normed_back(self.t.last_norm, streams[-1], r) if self.t.last_norm else r,
            [],
            [],
        )
        dX.append(d)
        for block, ran, weights in zip(
            reversed(self.t.blocks), reversed(sums), reversed(self.layers)
        ):
            found, W = {}, {k: w for k, (w, _) in weights.items()}
            for branches, one in zip(reversed(block.sums), reversed(ran)):
                d, more = self.sum_back(block, branches, one, W, d)
                found |= more
            dX.append(d)
            grads.append(found)
        return streams, dX[::-1], grads[::-1]


def explicit(t, n, size, rng):
    """The forward pass: streams (size, L + 1, s, n), the last one normalised, and
    scores (size, L, H, s, s), or None.
    """
    X = embeddings(t, n, size, rng)
    streams, out, _, scores = Explicit(t, n, size, rng).forward(
        normalised(t.first_norm, X) if t.first_norm else X
    )
    return np.stack([*streams[:-1], out], 1), np.stack(scores, 1) if scores else None
