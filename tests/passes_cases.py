"""Cases and helpers of several test files."""

import numpy as np
from conftest import large, least_p
from gradient_cases import embeddings, readout_cov, statistics

from infattn_nb import Block, FeedForward, Norm, Rotary, SelfAttention, Transformer
from infattn_nb import nonlinearities


def ensemble(c):
    "The networks of a case."
    X, a, f = embeddings(c["n"]), dict(c["attention"]), c["ff"] and dict(c["ff"])
    if a.get("rotary"):
        a["rotary"] = Rotary(**a["rotary"])
    if a.get("qk_norm"):
        a["qk_norm"] = Norm(a["qk_norm"])
    if f:
        f["activation"] = getattr(nonlinearities, f["activation"])
    block = Block(
        SelfAttention(**a),
        f and FeedForward(**f),
        c["norm_placement"],
        norm=Norm(c["kind"], c["eps"]),
        parallel=c["parallel"],
        skip_scale=c["skip"],
        branch_scale=c["branch"],
    )
    return Transformer(
        np.cov(X, bias=True),
        blocks=[block] * c["layers"],
        mean=X.mean(1),
        final_norm=c["final"],
    )


def readout(c, b, rng):
    "Random readouts of a case, and its embeddings, for b networks."
    λ, U = np.linalg.eigh(readout_cov(c["readout"]))
    r = (
        (U * np.sqrt(np.maximum(λ, 0)))
        @ rng.standard_normal((b, len(λ), c["n"]))
        / c["n"] ** 0.5
    )
    X = embeddings(c["n"])
    return np.broadcast_to(X, (b, *X.shape)), r


BY_HAND = (
    "pre",
    "rms, causal, relu",
    "post, strong",
    "no norm, biases",
    "output",
    "sandwich",
    "groups, bias, own width",
    "parallel, rotary",
    "groups, qk norm, rotary",
    "layer norm of queries",
    "norm of all queries",
)


def drawn(t, n, size, seed, readout):
    return of(t.gradients(n, size, seed, readout=readout))


def of(g):
    return statistics(g.gram, g.inner, g.squared_norms, g.chain.cosine[:, 1, 0, -1])


def unpacked(x):
    return np.cumsum(x, dtype=np.int32).view(np.float32)


def stored(name):
    return {
        k.removeprefix(name + ": "): unpacked(large("gradients")[k])
        for k in large("gradients").files
        if k.startswith(name + ": ")
    }


def smallest(a, b):
    "The smallest p of all statistics that vary, times their number."
    keys = [k for k in a if min(a[k].std(), b[k].std()) > 1e-5]
    assert keys
    assert all(abs(a[k].mean() - b[k].mean()) < 1e-3 for k in set(a) - set(keys))
    return least_p(*(np.stack([x[k] for k in keys], axis=1) for x in (a, b)))
