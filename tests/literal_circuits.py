"""Attention-only transformers of finite width with all their matrices, trained by hand-written backpropagation at NTK rates; and the circuits they start from."""
import numpy as np

from infattn_nb import softmax
from infattn_nb.learning.circuits import EPS, Circuits, Rows, at_rows, from_rows

class Wide:
    "One network of width n. Tokens X become X E with E Eᵀ/n = I; heads are n×n."
    def __init__(self, depth, n, D, rng):
        self.depth, self.n = depth, n
        self.E = np.linalg.qr(rng.standard_normal((n, depth.size)))[0].T*np.sqrt(n)
        self.var = dict(Q=depth.scale, K=depth.scale, V=depth.var_vo**.5, O=depth.var_vo**.5)
        self.heads = [[{x: rng.standard_normal((n, n))*np.sqrt(v/n) for x, v in self.var.items()} for _ in range(depth.heads)] for _ in range(depth.layers)]
        self.readout = rng.standard_normal((n, D))

    def images(self, l):
        "Of the tokens' coordinates along every path into layer l, as standard normals would have them."
        for path in self.depth.paths(l):
            M = self.E
            for k, h in path: M = M @ self.heads[k][h]["V"] @ self.heads[k][h]["O"]/np.sqrt(self.depth.heads)
            yield M/self.depth.weight**len(path)

    def circuits(self):
        "The circuits of this very network."
        scores = []
        for l, layer in enumerate(self.heads):
            M = np.concatenate([*self.images(l)])
            scores.append(np.stack([M @ w["Q"] @ w["K"].T @ M.T for w in layer])[None, None]/np.sqrt(self.n)/self.depth.scale)
        return Circuits(tuple(scores), (np.concatenate([*self.images(self.depth.layers)]) @ self.readout/np.sqrt(self.n))[None, None])

    def values(self, rows):
        depth, x, self.tape = self.depth, rows.tokens @ self.E, []
        for layer in self.heads:
            size = np.sqrt((x*x).mean(-1, keepdims=True) + EPS) if depth.norm else None
            u, y, seen = x if size is None else x/size, 0, []
            for w in layer:
                q, k, v = (u @ w[c] for c in "QKV")
                A = softmax(q @ k.mT/np.sqrt(self.n) + rows.see, axis=-1)
                seen.append((q, k, v, A, A @ v))
                y = y + A @ v @ w["O"]/np.sqrt(depth.heads)
            self.tape.append((u, size, seen))
            x = x*depth.residual + y
        read = at_rows(x, rows.rows)
        self.read = read if rows.weights is None else np.einsum("pr,prn->pn", rows.weights, read)
        return self.read @ self.readout/np.sqrt(self.n)

    def step(self, rows, χ, rate):
        "Gradient descent on every matrix, after `values`; χ are derivatives by the values."
        depth, n, flat = self.depth, self.n, lambda t: t.reshape(-1, self.n)
        dz = χ @ self.readout.T/np.sqrt(n)
        by_readout = flat(self.read).T @ χ.reshape(-1, χ.shape[-1])/np.sqrt(n)
        dx = from_rows(dz if rows.weights is None else rows.weights[..., None]*dz[:, None], rows.rows, rows.tokens.shape[1])
        for layer, (u, size, seen) in zip(self.heads[::-1], self.tape[::-1]):
            du = 0
            for w, (q, k, v, A, o) in zip(layer, seen):
                do = dx @ w["O"].T/np.sqrt(depth.heads)
                dA = do @ v.mT
                dP = A*(dA - (A*dA).sum(-1, keepdims=True))/np.sqrt(n)
                by = dict(Q=dP @ k, K=dP.mT @ q, V=A.mT @ do)
                slopes = {c: flat(u).T @ flat(x) for c, x in by.items()} | dict(O=flat(o).T @ flat(dx)/np.sqrt(depth.heads))
                du = du + sum(x @ w[c].T for c, x in by.items())
                for c, slope in slopes.items(): w[c] -= rate*self.var[c]/n*slope
            dx = dx*depth.residual + (du if size is None else (du - (du*u).mean(-1, keepdims=True)*u)/size)
        if depth.train_readout: self.readout -= rate*by_readout

class Plain:
    "Dynamics of plain descent."
    carry = np.ones((1, 1))
    def __init__(self, rate): self.rate = rate

def data(seed, P=4, s=4, d=3, every=False, causal=True):
    "Sequences and targets."
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((P, s, d)), 1.5*rng.standard_normal((P, s, 1) if every else (P, 1))
    see = np.where(np.tri(s) > 0, 0., -np.inf) if causal else np.zeros((s, s))
    rows = np.tile(np.arange(s), (P, 1)) if every else np.full((P, 1), s - 1)
    return Rows(X, np.tile(see, (P, 1, 1)), rows, None if every else np.ones((P, 1))), y

def distances(depth, n, seed, steps, rate, broken=None, circuits=None, **task):
    "Largest distance of values between a network of width n and its circuits over some steps; how far the values move. `broken` counts the matrices of circuits wrongly, `circuits` starts from others."
    rows, y = data(7, d=depth.size, **task)
    net = Wide(depth, n, 1, np.random.default_rng([seed, n]))
    state, limit = net.circuits(), broken or depth
    state = circuits(state) if circuits else state
    far, first = 0., None
    for _ in range(steps):
        answer, f = state.reply(limit, rows), net.values(rows)
        first = answer.values if first is None else first
        far = max(far, np.abs(answer.values[0] - f).max())
        net.step(rows, f - y, rate)
        state = state.moved(limit, rows, answer, answer.values - y, Plain(rate), None)
    return far, np.abs(answer.values - first).max()
