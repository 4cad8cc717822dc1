"Mixtures of experts: gates, and both passes against weights that are written out."

from dataclasses import replace
from functools import lru_cache
from unittest.mock import patch

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.stats import ks_2samp

from infattn_nb import Block, Experts, FeedForward, Transformer, embedding_cov
from infattn_nb.transformer import experts as module
from infattn_nb.transformer.experts import GATES, largest

G = embedding_cov([0, 1, 0, 2], 1.0, 0.3)
MLP = FeedForward(2, "relu", var_1=2.0, var_2=1.5, var_b1=0.2, var_b2=0.3)
GRADIENTS = "r", "br", "1", "b1", "2", "b2"
FAN_INS = np.array([24, 1, 24, 1, 48, 1])


def network(gate, skip):
    mixture = Experts(4, 2, MLP, gate, var_r=1.5, var_br=0.4)
    block = Block(None, mixture, norm_placement="pre", skip_scale=skip)
    return Transformer(G, [block] * 2, random_embeddings=True, final_norm=True)


def values(g):
    "What is compared of a draw of gradients: sizes in both blocks, and Gram entries."
    sizes = [g.squared_unit_norms[name] for name in GRADIENTS]
    grams = [g.gram[:, 0, 0, 0], g.gram[:, 0, 0, 1], g.gram[:, 0, 3, 3]]
    grams += [g.inner[:, 0, 0, 0], g.inner[:, 0, 0, 1], g.inner[:, 0, 1, 0]]
    forward = [g.chain.gram[:, 1, 0, 1], g.chain.gram[:, 1, 0, 2]]
    return np.column_stack([*sizes, *grams, *forward])


@lru_cache
def written_out(gate, skip, size, n=24):
    "The same numbers by torch, where all weights are drawn."
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(size)
    start = np.linalg.cholesky(G + 1e-14 * np.eye(4))

    def drawn(sd, *shape):
        return torch.tensor(sd * rng.standard_normal(shape), requires_grad=True)

    def weights(z, top):
        if gate == "chosen":
            return torch.softmax(top.values, -1)
        if gate == "softmax":
            return torch.softmax(z, -1).gather(1, top.indices)
        return torch.sigmoid(top.values) / torch.sigmoid(top.values).sum(-1)[:, None]

    def mixture(u):
        W, b = drawn((1.5 / n) ** 0.5, n, 4), drawn(0.4**0.5, 4)
        z = u @ W + b
        top = z.topk(2, -1)
        g = torch.zeros_like(z).scatter(1, top.indices, weights(z, top))
        used = [W, b]
        y = 0
        for e in range(4):
            W1, b1 = drawn((2 / n) ** 0.5, n, 2 * n), drawn(0.2**0.5, 2 * n)
            W2, b2 = drawn((1.5 / (2 * n)) ** 0.5, 2 * n, n), drawn(0.3**0.5, n)
            y = y + g[:, [e]] * (torch.relu(u @ W1 + b1) @ W2 + b2)
            used += [W1, b1, W2, b2]
        return y, used

    def norm(x):
        return torch.nn.functional.layer_norm(x, (n,), eps=1e-5)

    found = []
    for _ in range(size):
        embedded = torch.tensor(start @ rng.standard_normal((4, n)), requires_grad=True)
        x, blocks, streams = embedded, [], []
        for _ in range(2):
            y, used = mixture(norm(x))
            x = skip * x + y
            blocks.append(used)
            streams.append((x @ x.mT).detach().numpy() / n)
        head = torch.tensor(rng.standard_normal(n) / n**0.5)
        (norm(x).mean(0) @ head).backward()
        d = embedded.grad.numpy()
        squares = np.array([[float((W.grad**2).sum()) for W in b] for b in blocks])
        experts = squares[:, 2:].reshape(2, 4, 4).sum(1)
        sizes = np.concatenate([squares[:, :2], experts], axis=1) / FAN_INS
        gram, inner = d @ d.T, d @ embedded.detach().numpy().T
        grams = *gram[0, :2], gram[3, 3], *inner[0, :2], inner[1, 0]
        found.append([*sizes.T.ravel(), *grams, *streams[0][0, 1:3]])
    return np.array(found)


def p_values(gate, skip, size, rng=0):
    ours = values(network(gate, skip).gradients(24, 4 * size, rng, readout="mean"))
    torchs = written_out(gate, skip, size)
    return np.array([ks_2samp(*pair).pvalue for pair in zip(ours.T, torchs.T)])


@pytest.mark.parametrize("gate, skip", [("softmax", 0.2), ("chosen", 1), ("sigmoid", 1)])
def test_both_passes_are_torchs(gate, skip):
    "Twenty numbers of a network of two blocks, whose output is normalised."
    assert p_values(gate, skip, 400).min() > 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("skip", [1.0, 0.2])
@pytest.mark.parametrize("gate", GATES)
def test_both_passes_are_torchs_in_many_networks(gate, skip):
    assert p_values(gate, skip, 3000, 1).min() > 1e-8
