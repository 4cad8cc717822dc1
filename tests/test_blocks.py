"""Blocks that compose: against literal simulation with all their matrices, the limit of wide heads, and identities between parts."""
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ks_2samp

from conftest import nightly
from infattn_nb import relu, silu, tanh
from infattn_nb import Block, FeedForward, Norm, Rotary, SelfAttention
from infattn_nb.transformers.transformer import Transformer, embedding_cov, run

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

def literal(t, n, size, rng):
    "The network with all its matrices: Gram matrices (size, L + 1, s, s) and scores (size, L, H, s, s)."
    W = lambda var, *shape: rng.standard_normal((size, *shape))*np.sqrt(var/shape[0])
    texts = np.zeros(len(t.cov), int) if t.texts is None else t.texts
    λ, U = np.linalg.eigh(t.cov)
    X = t.mean[:, None] + (U*np.sqrt(np.maximum(λ, 0))) @ rng.standard_normal((size, len(t.cov), n))
    X = normalise(t.first_norm, X) if t.first_norm else X
    streams, scores = [X], []
    for b in t.stack:
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
    X = np.stack(streams, 1)
    return X @ X.mT/n, np.stack(scores, 1) if scores else None, X[..., 0]

def agree(pairs, level=1e-6):
    "Both sides of each pair (N, …), (M, …) have one law, entry by entry; returns the least p over the level."
    flat = lambda x: x.reshape(len(x), -1).T.round(9)
    pairs = [xy for x, y in pairs for xy in zip(flat(x), flat(y), strict=True) if np.ptp(np.concatenate(xy)) > 1e-6]
    p = np.array([ks_2samp(x, y, method="asymp").pvalue for x, y in pairs])
    return p.min()*len(p)/level

def compared(gram, scores, c):
    "What is compared: Gram entries, products of them across blocks, scores, products of scores of two heads."
    upper = np.triu_indices(gram.shape[-1])
    seen = [gram[..., *upper], gram[:, -1, 0]*gram[:, 1, 0]]
    return seen if scores is None else seen + [scores, scores[:, 0, 0, -1]*scores[:, 0, -1, -1]]

COV = (lambda A: A @ A.T/6)(np.random.default_rng(7).standard_normal((4, 6)))
TWICE = embedding_cov("abab", 1., .1)
BIAS = np.random.default_rng(8).standard_normal((4, 4, 4))
MASK = np.array([[1, 0, 0, 1], [1, 1, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1]], dtype=bool)
MLP = FeedForward(2, silu, True, var_1=2., var_3=.5)
def net(*parts, cov=COV, mean=.2, layers=2, **options):
    own = {k: options.pop(k) for k in ("norm", "normaliser", "parallel", "skip_scale", "branch_scale") if k in options}
    return Transformer(cov, mean, blocks=[Block(*parts, **own)]*layers, random_embeddings=True, **options)

CASES = dict(
    rotary=(net(SelfAttention(2, 4, rotary=Rotary(100.), var_q=4.), MLP, cov=TWICE), 12),
    partial=(net(SelfAttention(2, 6, rotary=Rotary(100., 2/3), mask="causal", var_q=4.), None, cov=TWICE, norm="post"), 8),
    groups=(net(SelfAttention(4, None, 2, var_q=4.), MLP, mean=.5, normaliser=Norm("rms", .1)), 12),
    one_group=(net(SelfAttention(4, 6, 1, var_q=4., var_v=2.), None, norm=None), 7),
    qk_norm=(net(SelfAttention(2, 4, 1, qk_norm=Norm("rms", .1), rotary=Rotary(10.), score_scale=2.), MLP), 9),
    qk_layer=(net(SelfAttention(2, 5, qk_norm=Norm("layer", 0.), score_scale=1.5), None, norm="output"), 9),
    softcap=(net(SelfAttention(3, None, softcap=1.5, var_q=9., mask=MASK), MLP, norm="sandwich", normaliser=Norm("rms", .01)), 9),
    bias=(net(SelfAttention(4, None, bias=BIAS), FeedForward(1.5, relu), norm="output"), 8),
    parallel=(net(SelfAttention(2, rotary=Rotary(), mask="causal"), FeedForward(2, tanh, var_b1=.5, var_b2=.3), parallel=True), 8),
    parallel_post=(net(SelfAttention(2), MLP, parallel=True, norm="post", skip_scale=.5), 8),
    scaled=(net(SelfAttention(2), MLP, norm="post", skip_scale=2., branch_scale=.7), 8),
    sandwich=(net(SelfAttention(2), MLP, norm="sandwich", branch_scale=.3, normaliser=Norm("layer", .01)), 6),
    mlp_alone=(net(None, MLP, norm="output", normaliser=Norm("rms")), 5),
    texts=(net(SelfAttention(2, 4, rotary=Rotary(10.), mask="causal", var_q=4.), MLP, cov=TWICE, texts=[0, 0, 1, 1], first_norm=Norm("rms"), final_norm=True), 10))

@pytest.mark.power("distribution functions .07 apart: Gram entries, scores and their products, of every block")
@pytest.mark.parametrize("name", CASES)
def test_literal_simulation(name):
    "Every part, against all matrices: 4,000 networks each."
    t, n = CASES[name]
    gram, scores, unit = literal(t, n, 4000, np.random.default_rng(0))
    for c in (0, 1):
        y = t.chain(n, 4000, 1 + c, coords=c, scores=scores is not None)
        pairs = list(zip(compared(gram, scores, t), compared(y.gram, y.scores, t), strict=True))
        if c: pairs.append((unit, y.units[..., 0]))
        assert agree(pairs) > 1
