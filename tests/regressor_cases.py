"""Cases and helpers of several test files."""

import numpy as np
from numpy.random import default_rng
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from infattn_nb.attention.spec import AttentionSpec
from infattn_nb.learning.layer_on_data import Likelihood, training_layer
from infattn_nb.learning.sequences import stacked


def data(P, s, d, D=None, seed=0, scale=1.0):
    rng = default_rng(seed)
    return scale * rng.standard_normal((P, s, d)), rng.standard_normal(
        P if D is None else (P, D)
    )


# a t-law of 15 degrees of freedom: beyond 10 errors once in 2e7
MANY = dict(n_islands=16, n_particles=128, n_moves=2)


def weights(x, N, mask=None):
    "Attention of one sequence, row by row: the explicit formula."
    G = x @ N @ x.T
    if mask is not None:
        G = np.where(mask, G, -np.inf)
    A = np.exp(G - G.max(1, keepdims=True))
    return A / A.sum(1, keepdims=True)


def brute(X, y, forms, prior, alpha, c, mask=None):
    """Log evidence and posterior mean weights of the first sequence's rows, by
    quadrature over `forms`: heads' matrices N (nodes, H, d, d).
    """
    Y = y.reshape(len(y), -1)
    ℓ, first = [], []
    for N in forms:
        A = np.array([[weights(x, n, mask) for x in X] for n in N])
        Z = np.einsum("i,hpij,pjd->hpd", c, A, X)
        S = np.einsum("hpd,hqd->pq", Z, Z) / len(N) + alpha * np.eye(len(X))
        ℓ.append(multivariate_normal.logpdf(Y.T, cov=S).sum())
        first.append(A[:, 0].mean(0))
    ℓ = np.array(ℓ) + np.log(prior)
    return logsumexp(ℓ), np.einsum("n,nij->ij", np.exp(ℓ - logsumexp(ℓ)), first)


def normal_grid(dim, step):
    t = np.arange(-7, 7 + step / 2, step)
    g = np.stack(np.meshgrid(*[t] * dim, indexing="ij")).reshape(dim, -1).T
    return g, np.exp(-(g * g).sum(1) / 2) * (step / np.sqrt(2 * np.pi)) ** dim


def scalar_case(H, readout, P=4, D=None, mask=None, seed=0):
    X, y = data(P, 3, 1, D, seed)
    g, w = normal_grid(H, 0.05 if H == 1 else 0.2)
    c = np.full(3, 1 / 3) if readout == "mean" else np.eye(3)[readout]
    allowed = None if mask is None else np.tri(3, dtype=bool)
    return (
        X,
        y,
        dict(heads=H, readout=readout, mask=mask),
        brute(X, y, g[:, :, None, None], w, 0.2, c, allowed),
        c,
    )


def layer_target(heads=2, width=np.inf, readout=-1, seed=0):
    X, Y = data(5, 4, 3, 2, seed)
    layer = training_layer(
        stacked(X), AttentionSpec(heads, mask="causal"), width, readout
    )
    return Likelihood(layer, layer.view(stacked(X), leading=True), Y, 0.2)


def ragged(P=6, d=2, seed=0):
    rng = default_rng(seed)
    return [
        rng.standard_normal((k, d)) for k in rng.integers(1, 5, P)
    ], rng.standard_normal(P)


def bump(z):
    return -0.5 * ((z - 1) ** 2).sum(0) / 0.5**2, (1 - z) / 0.5**2
