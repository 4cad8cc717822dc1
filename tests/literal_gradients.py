"""Random transformers as they are, there and back, by hand in NumPy: no automatic differentiation, no theory."""
import numpy as np
from scipy.special import erf, expit

from gradient_cases import S, case, embeddings, readout_cov, statistics

PHI = {"relu": lambda x: np.maximum(x, 0), "tanh": np.tanh, "gelu": lambda x: x*(1 + erf(x/2**.5))/2, "silu": lambda x: x*expit(x),
       "gelu_tanh": lambda x: .5*x*(1 + np.tanh((2/np.pi)**.5*(x + .044715*x**3)))}

def slope(phi, x, h=1e-5): return (phi(x + h) - phi(x - h))/(2*h)

def norm(x, kind, eps):
    "U, and the way back."
    c = x - x.mean(-1, keepdims=True) if kind == "layer" else x
    D = 1/np.sqrt((c*c).mean(-1, keepdims=True) + eps)
    u = D*c
    def back(du):
        d = D*(du - (du*u).mean(-1, keepdims=True)*u)
        return d - d.mean(-1, keepdims=True) if kind == "layer" else d
    return u, back

class Literal:
    "b networks of a case; `broken` is a mistake on the way back: softmax without its mean, or other matrices than on the way there."
    def __init__(self, name, b, rng, broken=None):
        self.c, self.b, self.rng, self.broken = case(name), b, rng, broken
        self.layers = [self.block() for _ in range(self.c["layers"])]
        λ, U = np.linalg.eigh(readout_cov(self.c["readout"]))
        self.r = (U*np.sqrt(np.maximum(λ, 0))) @ rng.standard_normal((b, S, self.c["n"]))/self.c["n"]**.5

    def matrix(self, rows, columns, var): return (var/rows)**.5*self.rng.standard_normal((self.b, rows, columns)), var/rows
    def transposed(self, W): return (W.std()*self.rng.standard_normal(W.shape) if self.broken == "fresh" else W).mT

    def block(self):
        "Matrices: {name: (W, θ's factor)}."
        n, a, f = self.c["n"], dict(groups=None, head_width=None) | self.c["attention"], self.c["ff"]
        m, var = a["head_width"] or n//a["heads"], lambda name: (a | (f or {})).get("var_" + name, 1.)
        all_heads, all_groups = a["heads"]*m, (a["groups"] or a["heads"])*m
        shapes = dict(q=(n, all_heads), k=(n, all_groups), v=(n, all_groups), o=(all_heads, n))
        if f:
            k = round(f["units"]*n)
            shapes |= {"1": (n, k), "2": (k, n)} | ({"3": (n, k)} if f.get("gated") else {})
            shapes |= {name: (1, columns) for name, columns in (("b1", k), ("b2", n)) if f.get("var_" + name)}
        return {name: self.matrix(*shape, var(name)) for name, shape in shapes.items()}

    def attention(self, u, W):
        a, (b, s, _) = self.c["attention"], u.shape
        H, G, cap = a["heads"], a.get("groups") or a["heads"], a.get("softcap")
        m = W["o"][0].shape[1]//H
        split = lambda z, h: z.reshape(b, s, h, m).swapaxes(1, 2)
        merged = lambda z: z.swapaxes(1, 2).reshape(b, s, -1)
        grouped = lambda z: z.reshape(b, G, H//G, s, m).sum(2)
        Q, K, V = (np.repeat(split(u @ W[x][0], h), H//h, 1) for x, h in (("q", H), ("k", G), ("v", G)))
        raw = Q @ K.mT/m**.5
        P = (cap*np.tanh(raw/cap) if cap else raw) + (a["bias"] if a.get("bias") is not None else 0)
        if a.get("mask") == "causal": P = np.where(np.tri(s), P, -np.inf)
        A = np.exp(P - P.max(-1, keepdims=True))
        A /= A.sum(-1, keepdims=True)
        O = merged(A @ V)
        def back(dy):
            dO = split(dy @ self.transposed(W["o"][0]), H)
            dA = dO @ V.mT
            dP = A*(dA - (0 if self.broken == "softmax" else (A*dA).sum(-1, keepdims=True)))
            if cap: dP = dP*(1 - np.tanh(raw/cap)**2)
            d = dict(q=merged(dP @ K/m**.5), k=merged(grouped(dP.mT @ Q/m**.5)), v=merged(grouped(A.mT @ dO)))
            return sum(x @ self.transposed(W[k][0]) for k, x in d.items()), {k: u.mT @ x for k, x in d.items()} | dict(o=O.mT @ dy)
        return O @ W["o"][0], back

    def mlp(self, u, W):
        phi, one = PHI[self.c["ff"]["activation"]], np.ones((self.b, S, 1))
        h = u @ W["1"][0] + (W["b1"][0] if "b1" in W else 0)
        gate = u @ W["3"][0] if "3" in W else 1.
        unit = phi(h)*gate
        def back(dy):
            d = dy @ self.transposed(W["2"][0])
            into = {"1": d*gate*slope(phi, h)} | ({"3": d*phi(h)} if "3" in W else {})
            grads = {k: u.mT @ x for k, x in into.items()} | {"2": unit.mT @ dy}
            grads |= {k: one.mT @ x for k, x in (("b1", into["1"]), ("b2", dy)) if k in W}
            return sum(x @ self.transposed(W[k][0]) for k, x in into.items()), grads
        return unit @ W["2"][0] + (W["b2"][0] if "b2" in W else 0), back

    def residual(self, x, branch, W):
        c = self.c
        same = lambda z: (z, lambda d: d)
        normed = lambda z, where: norm(z, c["kind"], c["eps"]) if c["norm"] in where else same(z)
        u, before = normed(x, ("pre", "sandwich"))
        y, through = branch(u, W)
        y, after = normed(y, ("output", "sandwich"))
        out, last = normed(c["skip"]*x + c["branch"]*y, ("post",))
        def back(d):
            d = last(d)
            du, grads = through(after(c["branch"]*d))
            return c["skip"]*d + before(du), grads
        return out, back

    def forward(self, x):
        "Streams, what is read, and the ways back by block."
        streams, ways = [x], []
        for W in self.layers:
            way = []
            for branch in [self.attention] + [self.mlp]*bool(self.c["ff"]):
                x, back = self.residual(x, branch, W)
                way.append(back)
            streams.append(x)
            ways.append(way)
        out, back = norm(x, self.c["kind"], self.c["eps"]) if self.c["final"] else (x, lambda d: d)
        return streams, out, ways, back

    def loss(self, x): return (self.r*self.forward(x)[1]).sum((1, 2))

    def gradients(self, x):
        "Streams, their gradients, and those of all matrices by block."
        streams, _, ways, back = self.forward(x)
        d, dX, grads = back(self.r), [], []
        dX.append(d)
        for way in reversed(ways):
            found = {}
            for back in reversed(way):
                d, more = back(d)
                found |= more
            dX.append(d)
            grads.append(found)
        return streams, dX[::-1], grads[::-1]

def sample(name, size, rng, broken=None):
    "Statistics of literal networks."
    net = Literal(name, size, rng, broken)
    streams, dX, grads = net.gradients(np.broadcast_to(embeddings(net.c["n"]), (size, S, net.c["n"])))
    X, dX = (np.stack(x, 1) for x in (streams, dX))
    norms = {k: np.stack([W[k][1]*(g[k]**2).sum((1, 2)) for W, g in zip(net.layers, grads)], 1) for k in net.layers[0]}
    K = X[:, 1] @ X[:, 1].mT
    return statistics(dX @ dX.mT, dX @ X.mT, norms, K[:, 0, -1]/np.sqrt(K[:, 0, 0]*K[:, -1, -1]))
