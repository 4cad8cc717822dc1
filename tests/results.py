"""Small results of the public classes, to be plotted, spoiled and printed."""

import numpy as np

from infattn_nb import Attention, AttentionDescent, AttentionRegressor, CircuitDescent
from infattn_nb import Program, Tokens, Transformer, train
from infattn_nb.learning import make_recall
from infattn_nb.netsor import attention
from infattn_nb.nonlinearities import gelu, relu

X, Y, _ = make_recall(16, 0)
TRANSFORMER = Transformer.uniform(np.eye(4), 0.3, 3, heads=2, mask="causal")


def law():
    return Attention(Tokens(3, gelu, cov=np.eye(3)), heads=2).law(64)


def program():
    p = Program()
    attention(p, p.inputs(np.eye(2)))
    return p


def training():
    p = Program()
    W, R = p.matrix(), p.readout()
    f = [R @ relu(W @ v) for v in p.inputs(np.eye(2))]
    how = dict(width=8, steps=5, rng=0, verbose=False, y_watch=[1.0, -1.0], watch=f)
    return train(p, f, [1.0, -1.0], **how)


def chain(n=32, **options):
    return TRANSFORMER.draw_chain(n, 5, rng=0, **options)


def slopes(n=32):
    return TRANSFORMER.gradients(n, 5, rng=0)


def regressor():
    return AttentionRegressor(np.inf, n_particles=32, random_state=0).fit(X, Y)


def descent(**options):
    how = dict(n_networks=3, max_iter=30, random_state=0)
    return AttentionDescent(**how, **options).fit(X, Y)


def circuits(**options):
    how = dict(n_networks=3, max_iter=30, random_state=0)
    return CircuitDescent(**how, **options).fit(X, Y)
