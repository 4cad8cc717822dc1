"""Networks with all their matrices, read from `Block`s, there and back: no automatic differentiation, no theory, nothing of the package but what it says of itself."""
import numpy as np

def slope(phi, x, h=1e-5): return (phi(x + h) - phi(x - h))/(2*h)

def softmax(G):
    A = np.exp(G - G.max(-1, keepdims=True))
    return A/A.sum(-1, keepdims=True)

def normalise(norm, X):
    "The rows of X normalised, and the way back."
    centred = lambda z: z - z.mean(-1, keepdims=True) if norm.kind == "layer" else z
    c = centred(X)
    D = 1/np.sqrt((c*c).mean(-1, keepdims=True) + norm.eps)
    U = D*c
    return U, lambda d: centred(D*(d - (d*U).mean(-1, keepdims=True)*U))

def turned(Q, positions, rotary):
    "Rotary positions, one complex number for each pair of coordinates; and the way back."
    d = int(Q.shape[-1]*rotary.share)
    θ = np.array(rotary.frequencies or rotary.base**(-np.arange(0, d, 2)/d))
    def turn(Q, sign):
        z = (Q[..., :d//2] + 1j*Q[..., d//2:d])*np.exp(sign*1j*positions[:, None]*θ)
        return np.concatenate([z.real, z.imag, Q[..., d:]], -1)
    return turn(Q, 1), lambda g: turn(g, -1)

def same(x): return x, lambda d: d

def embeddings(t, n, size, rng):
    "As many texts as networks: coordinates drawn, or exactly of the given mean and covariance."
    Z = rng.standard_normal((size, len(t.cov), n))
    if not t.random_embeddings:
        Z -= Z.mean(-1, keepdims=True)
        Z = np.linalg.solve(np.linalg.cholesky(Z @ Z.mT/n), Z)
    λ, U = np.linalg.eigh(t.cov)
    return t.mean[:, None] + (U*np.sqrt(np.maximum(λ, 0))) @ Z

class Literal:
    "b networks of width n; `broken` is a mistake on the way back: softmax without its mean, or other matrices than on the way there."
    def __init__(self, t, n, b, rng, broken=None):
        self.t, self.n, self.b, self.rng, self.broken = t, n, b, rng, broken
        self.texts = np.zeros(len(t.cov), int) if t.texts is None else t.texts
        self.layers = [self.matrices(block) for block in t.blocks]

    def matrix(self, var, rows, columns): return (var/rows)**.5*self.rng.standard_normal((self.b, rows, columns)), var/rows
    def transposed(self, W): return (W.std()*self.rng.standard_normal(W.shape) if self.broken == "fresh" else W).mT

    def matrices(self, block):
        "{name: (W, θ's factor)}."
        n, a, f, shapes = self.n, block.attention, block.feedforward, {}
        if a:
            m = int(a.head_width or n//a.heads)
            keys = (a.groups or a.heads)*m
            shapes |= dict(q=(n, a.heads*m), k=(n, keys), v=(n, keys), o=(a.heads*m, n))
        if f:
            k = round(f.units*n)
            shapes |= {"1": (n, k), "2": (k, n)} | ({"3": (n, k)} if f.gated else {})
            shapes |= {name: (1, columns) for name, columns in (("b1", k), ("b2", n)) if getattr(f, f"var_{name}")}
        return {name: self.matrix(getattr(a if name in "qkvo" else f, f"var_{name}"), *shape) for name, shape in shapes.items()}

    def attention(self, a, u, W):
        "Outputs, the way back, and scores."
        (b, s, _), H, G = u.shape, a.heads, a.groups or a.heads
        m = W["o"][0].shape[1]//H
        positions = np.array([list(self.texts[:i]).count(t) for i, t in enumerate(self.texts)])
        split = lambda z, h: z.reshape(b, s, h, m).swapaxes(1, 2)
        merged = lambda z: z.swapaxes(1, 2).reshape(b, s, -1)
        spread, grouped = lambda z: np.repeat(z, H//G, 1), lambda z: z.reshape(b, G, H//G, s, m).sum(2)
        def normed(Q):
            if not a.qk_norm: return same(Q)
            if not a.joint_norm: return normalise(a.qk_norm, Q)
            rows, through = normalise(a.qk_norm, merged(Q))
            return split(rows, Q.shape[1]), lambda d: split(through(merged(d)), d.shape[1])
        def dressed(Q):
            Q, through = normed(Q)
            Q, back = turned(Q, positions, a.rotary) if a.rotary else same(Q)
            return Q, lambda d: through(back(d))
        (Q, back_Q), (K, back_K) = dressed(split(u @ W["q"][0], H)), dressed(split(u @ W["k"][0], G))
        K, V, c = spread(K), spread(split(u @ W["v"][0], G)), a.score_scale/m**.5
        raw = c*Q @ K.mT
        P = (a.softcap*np.tanh(raw/a.softcap) if a.softcap else raw) + (a.bias if a.bias is not None else 0)
        causal = np.tri(s, dtype=bool) if isinstance(a.mask, str) else np.ones((s, s), bool) if a.mask is None else a.mask
        A = softmax(np.where(causal & np.equal.outer(self.texts, self.texts), P, -np.inf))
        O = merged(A @ V)
        def back(dy):
            dO = split(dy @ self.transposed(W["o"][0]), H)
            dA = dO @ V.mT
            dP = A*(dA - (0 if self.broken == "softmax" else (A*dA).sum(-1, keepdims=True)))
            if a.softcap: dP = dP*(1 - np.tanh(raw/a.softcap)**2)
            d = dict(q=merged(back_Q(c*dP @ K)), k=merged(back_K(grouped(c*dP.mT @ Q))), v=merged(grouped(A.mT @ dO)))
            return sum(x @ self.transposed(W[k][0]) for k, x in d.items()), {k: u.mT @ x for k, x in d.items()} | dict(o=O.mT @ dy)
        return O @ W["o"][0], back, P

    def mlp(self, f, u, W):
        "Outputs, the way back, and no scores."
        phi, one = f.activation, np.ones((self.b, u.shape[1], 1))
        h = u @ W["1"][0] + (W["b1"][0] if "b1" in W else 0)
        gate = u @ W["3"][0] if "3" in W else 1.
        unit = phi(h)*gate
        def back(dy):
            d = dy @ self.transposed(W["2"][0])
            into = {"1": d*gate*slope(phi, h)} | ({"3": d*phi(h)} if "3" in W else {})
            grads = {k: u.mT @ x for k, x in into.items()} | {"2": unit.mT @ dy}
            grads |= {k: one.mT @ x for k, x in (("b1", into["1"]), ("b2", dy)) if k in W}
            return sum(x @ self.transposed(W[k][0]) for k, x in into.items()), grads
        return unit @ W["2"][0] + (W["b2"][0] if "b2" in W else 0), back, None

    def residual(self, block, branches, x, W):
        "One sum: what follows, the way back, scores."
        placed = lambda z, where: normalise(block.normaliser, z) if block.norm in where else same(z)
        u, before = placed(x, ("pre", "sandwich"))
        ran = [(self.attention if branch is block.attention else self.mlp)(branch, u, W) for branch in branches]
        y, after = placed(sum(y for y, _, _ in ran), ("output", "sandwich"))
        out, last = placed(block.skip_scale*x + block.branch_scale*y, ("post",))
        def back(d):
            d = last(d)
            dy, found, du = after(block.branch_scale*d), {}, 0.
            for _, through, _ in ran:
                more, grads = through(dy)
                du, found = du + more, found | grads
            return block.skip_scale*d + before(du), found
        return out, back, [P for _, _, P in ran if P is not None]

    def forward(self, x):
        "Streams, what is read, the ways back by block, scores."
        streams, ways, scores = [x], [], []
        for block, W in zip(self.t.blocks, self.layers):
            way = []
            for branches in block.sums:
                x, back, P = self.residual(block, branches, x, W)
                way.append(back)
                scores += P
            streams.append(x)
            ways.append(way)
        out, back = normalise(self.t.last_norm, x) if self.t.last_norm else same(x)
        return streams, out, ways, back, scores

    def gradients(self, x, r):
        "Of Σ⟨r, out⟩: streams, their gradients, and those of all matrices by block."
        streams, _, ways, back, _ = self.forward(x)
        d, dX, grads = back(r), [], []
        dX.append(d)
        for way in reversed(ways):
            found = {}
            for back in reversed(way):
                d, more = back(d)
                found |= more
            dX.append(d)
            grads.append(found)
        return streams, dX[::-1], grads[::-1]

def literal(t, n, size, rng):
    "The way there: streams (size, L + 1, s, n), the last one normalised, and scores (size, L, H, s, s), or None."
    X = embeddings(t, n, size, rng)
    streams, out, _, _, scores = Literal(t, n, size, rng).forward(normalise(t.first_norm, X)[0] if t.first_norm else X)
    return np.stack([*streams[:-1], out], 1), np.stack(scores, 1) if scores else None
