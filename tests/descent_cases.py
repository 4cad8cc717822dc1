"""Cases and helpers of several test files."""

import numpy as np
from numpy.random import default_rng
from scipy.stats import ks_2samp


def data(P=6, s=4, d=3, D=None, seed=0):
    rng = default_rng(seed)
    return rng.standard_normal((P, s, d)), rng.standard_normal(
        P if D is None else (P, D)
    )


def least_p(pairs):
    return min(ks_2samp(a, b).pvalue for a, b in pairs)


def softmax(G):
    return (E := np.exp(G - G.max(-1, keepdims=True))) / E.sum(-1, keepdims=True)


LABELS = np.array(["a", "b"] * 3)
SMALL = dict(n_networks=3, max_iter=50, random_state=0)
