"""Cases and helpers of several test files."""

import numpy as np

from infattn_nb import Program
from infattn_nb.nonlinearities import clip, tanh, times

COV = np.array([[1.0, 0.5, 0.2], [0.5, 1.0, -0.3], [0.2, -0.3, 1.0]])
MASK = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 1]], bool)


def in_stacks(p, X):
    Q, K, V, O = (p.matrix(var=v) for v in (2.0, 1.0, 1.0, 1.5))
    Z = tanh(X + O @ p.attend(p.scores(Q @ X, K @ X), V @ X, mask=MASK))
    return p.readout() @ p.normalize(times(Z, p.matrix() @ X))


def in_vectors(p, X):
    Q, K, V, O = (p.matrix(var=v) for v in (2.0, 1.0, 1.0, 1.5))
    zs = []
    for x, seen in zip(X, MASK):
        own = [z for z, may in zip(X, seen) if may]
        y = p.attend([p.score(Q @ x, K @ z) for z in own], [V @ z for z in own])
        zs.append(tanh(x + O @ y))
    W, R = p.matrix(), p.readout()
    W, R = R, W
    return [W @ p.normalize(times(z, R @ x)) for z, x in zip(zs, X)]


def both():
    for build in (in_stacks, in_vectors):
        p = Program()
        yield p, build(p, clip(1.0)(p.inputs(COV)))
