"""The evidence and its gradient, by quadrature and in pieces."""

import numpy as np
import pytest
from conftest import ROUGH_POSTERIOR
from numpy.random import SeedSequence
from regressor_cases import MANY, brute, layer_target, normal_grid, ragged, scalar_case

from infattn_nb import AttentionRegressor
from infattn_nb.attention.spec import AttentionSpec
from infattn_nb.learning import fitting as posteriors
from infattn_nb.learning.fitting import Turn, gained, kernel_evidence, mean_covariance
from infattn_nb.learning.layer_on_data import Likelihood, features, training_layer
from infattn_nb.learning.sequences import padded, stacked
from infattn_nb.numerics.stand_ins import sobol_normals
from infattn_nb.numerics.smc import cloud_at

pytestmark = ROUGH_POSTERIOR


@pytest.mark.parametrize("sign", [1, -1])
def test_an_evidence_that_changes_in_one_direction_is_not_flat(sign):
    slopes = np.array([1.0, 0.1, 0.0])  # the second gains 0.07 nats for a factor of two
    turn = Turn.to(
        np.zeros(3), [(0, 1), (-1, 1), (-1, 0)], lambda e: max(sign * e @ slopes, 0)
    )
    assert turn.flat == ["var_vo", "alpha"] and turn.ended == ["var_qk", "alpha"]


def test_gradient_of_the_evidence_of_infinitely_many_heads():
    target = layer_target(heads=1)
    z = sobol_normals(target.layer.dim(), 64, SeedSequence(0))
    _, slope = kernel_evidence(target, z)
    ends = [
        [kernel_evidence(target.turned(h * e), z)[0] for h in (1e-5, -1e-5)]
        for e in np.eye(3)
    ]
    up, down = np.transpose(ends)
    np.testing.assert_allclose(slope, (up - down) / 2e-5, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "width, readout", [(np.inf, -1), (np.inf, "mean"), (3, -1), (4, "mean")]
)
def test_sequences_in_pieces_are_the_same_features(width, readout, monkeypatch):
    """The mean covariance and its slope, a few sequences and draws at a time, ragged,
    at any width; the derivative of the weights is that of finite differences.
    """
    X, y = ragged(P=23, d=3, seed=2)
    layer = training_layer(padded(X), AttentionSpec(), width, readout)
    target = Likelihood(layer, layer.view(padded(X), leading=True), y[:, None], 0.2)
    z = sobol_normals(layer.dim(), 64, SeedSequence(0))

    def found():
        return mean_covariance(target, z), *mean_covariance(target, z, slope=True)

    whole = found()
    monkeypatch.setattr(posteriors, "PIECE_NUMBERS", 64 * 5)
    monkeypatch.setattr(posteriors, "PRODUCT_NUMBERS", 23 * 3 * 10)
    begun, reading = [], posteriors.read
    monkeypatch.setattr(
        posteriors,
        "read",
        lambda layer, view, z: begun.append(z[0].shape[3]) or reading(layer, view, z),
    )
    for a, b in zip(whole, found()):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    assert len(begun) > 20
    assert max(begun) < 64  # pieces of sequences, and of draws
    S, _, T = whole
    up, down = (mean_covariance(target.turned([h, 0, 0]), z) for h in (1e-5, -1e-5))
    np.testing.assert_allclose(T + T.T, (up - down) / 2e-5, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        S,
        np.mean(
            [f @ f.T for f in features(layer, target.view, layer.split(z))], axis=0
        ),
        rtol=1e-9,
    )


@pytest.mark.power("evidence .3 nats off after a turn of the dials")
@pytest.mark.long
def test_reweighted_evidence_is_that_of_quadrature():
    "When all dials turn, by particles and by quadrature."
    X, y, options, (exact, _), _ = scalar_case(1, -1)
    m = AttentionRegressor(alpha=0.2, random_state=0, **options, **MANY).fit(X, y)
    logs = np.log([1.3, 0.9, 1.2])
    likelihood = Likelihood(
        m.layer_, m.layer_.view(stacked(X), leading=True), y[:, None], 0.2
    )
    gain, _, w = gained(likelihood, cloud_at(m.latents_, likelihood), logs)
    parts = [p.mean() for p in np.split(np.exp(w), 16)]
    g, weight = normal_grid(1, 0.05)
    # tokens longer by 1.3^(1/4): the values too, so all is reported in their units
    scale = 4 * np.log(1.3**0.5 / 0.9) / 2  # of four numbers
    better = (
        brute(
            (1.3**0.25) * X,
            y * (1.3**0.5 / 0.9) ** 0.5,
            g[:, :, None, None],
            weight,
            0.2 * 1.2 * 1.3**0.5 / 0.9,
            [0, 0, 1.0],
        )[0]
        + scale
    )
    assert (
        abs(gain - (better - exact))
        < 10 * np.std(parts, ddof=1) / 4 / np.mean(parts) + 1e-3
        < 0.3
    )
