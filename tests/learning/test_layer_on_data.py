"""A layer on data: its likelihoods and their gradients."""

import numpy as np
import pytest
from conftest import ROUGH_POSTERIOR
from numpy.random import default_rng
from regressor_cases import data, layer_target
from scipy.stats import multivariate_normal

from infattn_nb.attention.spec import AttentionSpec
from infattn_nb.learning.layer_on_data import Likelihood, cholesky, inverse_of_triangle
from infattn_nb.learning.layer_on_data import training_layer
from infattn_nb.learning.sequences import padded, stacked

pytestmark = ROUGH_POSTERIOR


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("width, readout", [(np.inf, -1), (3, "mean")])
def test_rough_gradients_of_a_layer_are_nearly_its_gradients(heads, width, readout):
    X, Y = data(12, 4, 3, 2)
    layer = training_layer(stacked(X), AttentionSpec(heads), width, readout)
    view = layer.view(stacked(X), leading=True)
    z = default_rng(1).standard_normal((layer.dim(), 5))
    target = Likelihood(layer, view, Y, 0.2)
    _, slope = target(z)
    rough = target.rough_slope(z)
    assert rough.dtype == slope.dtype == np.float64
    assert 0 < np.abs(rough - slope).max() < 1e-5 * np.abs(slope).max()
    little = Likelihood(layer, view, Y, 1e-7)
    np.testing.assert_array_equal(little.rough_slope(z), little(z)[1])


@pytest.mark.parametrize(
    "width, readout", [(np.inf, -1), (np.inf, "mean"), (2, 0), (7, "mean"), (1e8, -1)]
)
def test_gradients_are_differences(width, readout):
    target = layer_target(width=width, readout=readout)
    rng = default_rng(1)
    z, dz = rng.standard_normal((2, target.layer.dim(), 5))
    _, slope = target(z)
    difference = (target(z + 1e-5 * dz)[0] - target(z - 1e-5 * dz)[0]) / 2e-5
    np.testing.assert_allclose((slope * dz).sum(0), difference, rtol=1e-5, atol=1e-6)
    _, dials = target.by_dials(z)
    for by, e in zip(dials, np.eye(3)):
        up, down = (target.turned(h * e)(z)[0] for h in (1e-5, -1e-5))
        np.testing.assert_allclose(by, (up - down) / 2e-5, rtol=1e-5, atol=1e-6)


def one_by_one(target, z):
    "Log densities of the data, sequence by sequence, head by head, in plain words."
    layer, view = target.layer, target.view
    (N,) = layer.split(z)
    found = []
    for m in range(z.shape[1]):
        S = 0.0
        for h in range(layer.heads):
            scores = layer.scale * np.einsum(
                "pra,ab,psb->prs", view.queries, N[:, :, h, m], view.keys
            )
            scores = scores + view.hidden
            A = np.exp(scores - scores.max(2, keepdims=True))
            A /= A.sum(2, keepdims=True)
            Z = np.einsum("pr,prs,pse->pe", view.readout, A, view.values)
            S = S + layer.head_sd**2 * Z @ Z.T
        law = multivariate_normal(cov=S + target.alpha * np.eye(len(S)))
        found.append(law.logpdf(target.Y.T).sum())
    return np.array(found)


@pytest.mark.parametrize("heads", [1, 2, 4])  # few features, many, more than data
@pytest.mark.parametrize("mask", [None, "causal", "others", "nothing in common"])
@pytest.mark.parametrize("readout", [-1, "mean"])
@pytest.mark.long
def test_likelihoods_in_one_sweep_are_those_one_by_one(heads, mask, readout):
    """Whether a token can be left out or not, where powers overflow and where not;
    padding added or not. The view that is read is shorter where it can be.
    """
    rng = default_rng(heads)
    X = rng.standard_normal((9, 5, 3))
    hidden = {"others": ~np.eye(5, dtype=bool), "nothing in common": np.eye(5) > 0}
    Y = rng.standard_normal((9, 2))
    for var_q in (1.0, 1e5):
        spec = AttentionSpec(heads, var_q=var_q, mask=hidden.get(mask, mask))
        for S in (stacked(X), padded([X[0, :3], *X[1:]])):
            layer = training_layer(S, spec, np.inf, readout)
            target = Likelihood(layer, layer.view(S, leading=True), Y, 0.3)
            z = rng.standard_normal((layer.dim(), 7))
            np.testing.assert_allclose(target(z)[0], one_by_one(target, z), rtol=1e-9)
            np.testing.assert_allclose(target(z)[0], target.by_dials(z)[0])
            common = (target.view.hidden == 0).all(1).any(1).all()
            assert target.seen.keys.shape[1] == S.tokens.shape[1] - common


@pytest.mark.parametrize("n", [1, 3, 8, 9, 30])
def test_factors_and_inverses_of_many_matrices(n):
    "As numpy's, to rounding, whether taken row by row or by halves."
    F = default_rng(n).standard_normal((6, n, 2 * n))
    C = F @ F.mT + 0.1 * np.eye(n)
    L = cholesky(C)
    np.testing.assert_allclose(L, np.linalg.cholesky(C), rtol=1e-9, atol=1e-12)
    R = inverse_of_triangle(L)
    np.testing.assert_allclose(R @ L, np.broadcast_to(np.eye(n), L.shape), atol=1e-10)
    assert not np.triu(R, 1).any()
