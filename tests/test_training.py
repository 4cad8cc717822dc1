"""Gradient descent on the layer: against literal weights and torch, step for step and in law; the limits of width and heads; Langevin dynamics against Bayes; one sentence for bad input."""
import pickle
import signal
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from numpy.random import SeedSequence, default_rng
from scipy.stats import ks_2samp, linregress, norm

from conftest import nightly
from infattn_nb import AttentionDescent, AttentionRegressor, embed_features, recall
from infattn_nb.learning.descent_run import batch_at
from infattn_nb.learning.descent_state import dynamics, factor_step, product_noise
from infattn_nb.learning.layer_on_data import training_layer
from infattn_nb.learning.sequences import padded, stacked

DATA = Path(__file__).parent/"data"

def data(P=6, s=4, d=3, D=None, seed=0):
    rng = default_rng(seed)
    return rng.standard_normal((P, s, d)), rng.standard_normal(P if D is None else (P, D))

# --- the oracle: weights, and backpropagation by hand

def draw_weights(rng, N, H, d, m, D):
    return [rng.standard_normal(shape) for shape in [(N, H, d, m)]*3 + [(N, H, m, D)]]

def softmax(G): return (E := np.exp(G - G.max(-1, keepdims=True)))/E.sum(-1, keepdims=True)

def literal(X, weights, c, mask=None, var_qk=1., var_vo=1.):
    "Values (N, P, D) of the layer with these weights, and all that is met on the way."
    WQ, WK, WV, WO = weights
    H, m = WQ.shape[1], WQ.shape[3]
    Q, K, V = (np.einsum("psd,nhdm->nhpsm", X, W) for W in (WQ, WK, WV))
    G = np.sqrt(var_qk)*Q @ K.mT/np.sqrt(m)
    A = softmax(G if mask is None else np.where(mask, G, -np.inf))
    Y = np.sqrt(var_vo/(H*m))*np.einsum("nhpim,nhmd->npid", A @ V, WO)
    return np.einsum("i,npid->npd", c, Y), (Q, K, V, A, G)

def literal_gradients(X, weights, c, χ, mask=None, var_qk=1., var_vo=1.):
    "Backpropagation through every matrix, term by term."
    WQ, WK, WV, WO = weights
    H, m = WQ.shape[1], WQ.shape[3]
    _, (Q, K, V, A, _) = literal(X, weights, c, mask, var_qk, var_vo)
    dY = np.sqrt(var_vo/(H*m))*np.einsum("i,npd->npid", c, χ)
    dWO = np.einsum("nhpim,npid->nhmd", A @ V, dY)
    dO = np.einsum("npid,nhmd->nhpim", dY, WO)
    dA = dO @ V.mT
    dG = A*(dA - (A*dA).sum(-1, keepdims=True))*np.sqrt(var_qk/m)
    return [np.einsum("psd,nhpsm->nhdm", X, g) for g in (dG @ K, dG.mT @ Q, A.mT @ dO)] + [dWO]

LOSSES = {"squared": (lambda f, y: .5*((f - y)**2).sum((1, 2)), lambda f, y: f - y),
          "logistic": (lambda f, y: np.log1p(np.exp(-(2*y - 1)*f)).sum((1, 2)), lambda f, y: 1/(1 + np.exp(-f)) - y),
          "softmax": (lambda f, y: -(y*np.log(softmax(f))).sum((1, 2)), lambda f, y: softmax(f) - y)}

def literal_descent(X, Y, weights, c, steps, rate, loss="squared", momentum=0., weight_decay=0., batches=None, **options):
    "Plain gradient descent on every entry: values after the last step, losses before each and after it."
    value, gradient = LOSSES[loss]
    weights, velocity = [w.copy() for w in weights], [np.zeros_like(w) for w in weights]
    losses = []
    for t in range(steps):
        k = np.arange(len(X)) if batches is None else batches(t)
        f, _ = literal(X[k], weights, c, **options)
        losses.append(len(X)/len(k)*value(f, Y[k]))
        slopes = literal_gradients(X[k], weights, c, len(X)/len(k)*gradient(f, Y[k]), **options)
        for w, v, g in zip(weights, velocity, slopes):
            v *= momentum
            v -= rate*(g + weight_decay*w)
            w += v
    f, _ = literal(X, weights, c, **options)
    return f, np.array([*losses, value(f, Y)]).T, weights

def test_the_oracle_by_differences():
    X, Y = data(D=2)
    rng = default_rng(1)
    weights, c, mask = draw_weights(rng, 2, 2, 3, 5, 2), np.array([.1, .2, 0., .7]), np.tri(4, dtype=bool)
    options = dict(mask=mask, var_qk=.6, var_vo=1.7)
    for loss, (value, gradient) in LOSSES.items():
        y = np.abs(Y) > .5 if loss == "logistic" else np.eye(2)[[0, 1]*3] if loss == "softmax" else Y
        f, _ = literal(X, weights, c, **options)
        slopes = literal_gradients(X, weights, c, gradient(f, y), **options)
        for k, w in enumerate(weights):
            dw = rng.standard_normal(w.shape)
            up, down = (value(literal(X, [*weights[:k], w + h*dw, *weights[k+1:]], c, **options)[0], y) for h in (1e-5, -1e-5))
            np.testing.assert_allclose((up - down)/2e-5, (slopes[k]*dw).sum((1, 2, 3)), rtol=1e-6, atol=1e-7)

HOW = {"plain": {}, "momentum": dict(momentum=.8), "decay": dict(weight_decay=.3), "batches": dict(batch=4),
       "all": dict(momentum=.6, weight_decay=.1, batch=4)}

def problem(loss, D=None):
    X, y = data(P=10, D=D)
    labels = (y > 0).astype(int) if loss == "logistic" else np.arange(10) % 3
    if loss == "squared": return X, y, y.reshape(10, -1)
    return X, labels, labels[:, None].astype(float) if loss == "logistic" else np.eye(3)[labels]

@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("m", (3, 7, 24))
def test_step_for_step(m, loss, how):
    "From the same weights, 100 steps: equal to 1e-9. Wide heads keep 2d = 6 columns of 7 or 24."
    X, y, Y = problem(loss)
    weights = draw_weights(default_rng(m), 3, 2, 3, m, Y.shape[1])
    model = AttentionDescent(2, .7, 1.3, width=m, readout="mean", mask="causal", loss=loss, start=weights, steps=100, rate=.01, tol=0., random_state=5, **HOW[how]).fit(X, y)
    seed = SeedSequence(5).spawn(4)[1]
    options = dict(HOW[how])
    if batch := options.pop("batch", None): options["batches"] = lambda t: batch_at(10, batch, t, seed)
    f, losses, end = literal_descent(X, Y, weights, np.full(4, .25), 100, .01, loss, mask=np.tri(4, dtype=bool), var_qk=.7, var_vo=1.3, **options)
    ours = model.values(X)
    moved = np.abs(f - literal(X, weights, np.full(4, .25), np.tri(4, dtype=bool), .7, 1.3)[0]).max()
    assert moved > .1
    np.testing.assert_allclose(ours[..., None] if ours.ndim == 2 else ours, f, atol=1e-9)
    np.testing.assert_allclose(model.loss_[:, -1], losses[:, -1], atol=1e-8)
    between = np.arange(101) % 50 > 0 # the others are of all sequences, also with batches
    np.testing.assert_allclose(model.loss_[:, between], losses[:, between], atol=1e-8)
    fresh = default_rng(9).standard_normal((5, 4, 3)) # sequences that were not in the training
    f, (*_, G) = literal(fresh, end, np.full(4, .25), np.tri(4, dtype=bool), .7, 1.3)
    ours = model.values(fresh)
    np.testing.assert_allclose(ours[..., None] if ours.ndim == 2 else ours, f, atol=1e-9)
    np.testing.assert_allclose(model.scores(fresh), G, atol=1e-8)
