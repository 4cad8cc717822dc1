"""Networks with all their matrices, read from `Block`s: what chains of Gram matrices are compared with."""
import numpy as np

def normalise(norm, X):
    Y = X - X.mean(-1, keepdims=True) if norm.kind == "layer" else X
    return Y/np.sqrt((Y**2).mean(-1, keepdims=True) + norm.eps)

def softmax(G):
    A = np.exp(G - G.max(-1, keepdims=True))
    return A/A.sum(-1, keepdims=True)

def turned(Q, positions, rotary):
    "Rotary positions, one complex number for each pair of coordinates."
    m = Q.shape[-1]
    d = int(m*rotary.share)
    θ = rotary.frequencies or rotary.base**(-np.arange(0, d, 2)/d)
    z = (Q[..., :d//2] + 1j*Q[..., d//2:d])*np.exp(1j*positions[:, None]*np.array(θ))
    return np.concatenate([z.real, z.imag, Q[..., d:]], -1)

def attention(a, Y, W, texts):
    "Outputs and scores of the literal branch."
    s, n = Y.shape[-2:]
    m, groups = int(a.head_width or n//a.heads), a.groups or a.heads
    positions = np.array([list(texts[:i]).count(t) for i, t in enumerate(texts)])
    causal = np.tri(s, dtype=bool) if isinstance(a.mask, str) else np.ones((s, s), bool) if a.mask is None else a.mask
    allowed = causal & np.equal.outer(texts, texts)
    keys = [(Y @ W(a.var_k, n, m), Y @ W(a.var_v, n, m)) for _ in range(groups)]
    outputs, scores = [], []
    for h in range(a.heads):
        Q, (K, V) = Y @ W(a.var_q, n, m), keys[h*groups//a.heads]
        if a.qk_norm: Q, K = normalise(a.qk_norm, Q), normalise(a.qk_norm, K)
        if a.rotary: Q, K = turned(Q, positions, a.rotary), turned(K, positions, a.rotary)
        G = a.score_scale*Q @ K.mT/np.sqrt(m)
        if a.softcap: G = a.softcap*np.tanh(G/a.softcap)
        if a.bias is not None: G = G + (a.bias if a.bias.ndim == 2 else a.bias[h])
        scores.append(G)
        outputs.append(softmax(np.where(allowed, G, -np.inf)) @ V)
    return np.concatenate(outputs, -1) @ W(a.var_o, a.heads*m, n), np.stack(scores, 1)

def feedforward(t, Y, W, rng):
    n = Y.shape[-1]
    f = round(t.units*n)
    bias = lambda var, k: np.sqrt(var)*rng.standard_normal((len(Y), 1, k))
    unit = t.activation(Y @ W(t.var_1, n, f) + bias(t.var_b1, f))
    if t.gated: unit = unit*(Y @ W(t.var_3, n, f))
    return unit @ W(t.var_2, f, n) + bias(t.var_b2, n)

def embeddings(t, n, size, rng):
    "As many texts as networks: coordinates drawn, or exactly of the given mean and covariance."
    Z = rng.standard_normal((size, len(t.cov), n))
    if not t.random_embeddings:
        Z -= Z.mean(-1, keepdims=True)
        Z = np.linalg.solve(np.linalg.cholesky(Z @ Z.mT/n), Z)
    λ, U = np.linalg.eigh(t.cov)
    return t.mean[:, None] + (U*np.sqrt(np.maximum(λ, 0))) @ Z

def literal(t, n, size, rng):
    "The network with all its matrices: streams (size, L + 1, s, n) and scores (size, L, H, s, s), or None."
    W = lambda var, *shape: rng.standard_normal((size, *shape))*np.sqrt(var/shape[0])
    texts = np.zeros(len(t.cov), int) if t.texts is None else t.texts
    X = embeddings(t, n, size, rng)
    X = normalise(t.first_norm, X) if t.first_norm else X
    streams, scores = [X], []
    for b in t.blocks:
        norm = lambda X: normalise(b.normaliser, X)
        enter = norm if b.norm in ("pre", "sandwich") else lambda X: X
        leave = norm if b.norm in ("output", "sandwich") else lambda X: X
        close = norm if b.norm == "post" else lambda X: X
        def outputs(X):
            if b.attention:
                y, G = attention(b.attention, enter(X), W, texts)
                scores.append(G)
                X = yield y
            if b.feedforward: yield feedforward(b.feedforward, enter(X), W, rng)
        branches = outputs(X)
        add = lambda X, y: close(b.skip_scale*X + b.branch_scale*leave(y))
        if b.parallel: X = add(X, next(branches) + branches.send(X))
        else:
            y = next(branches)
            while True:
                X = add(X, y)
                try: y = branches.send(X)
                except StopIteration: break
        streams.append(X)
    if t.last_norm: streams[-1] = normalise(t.last_norm, X)
    return np.stack(streams, 1), np.stack(scores, 1) if scores else None
