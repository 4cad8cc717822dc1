"""The explicit backward pass is the derivative of the explicit forward pass."""

import numpy as np
import pytest
from gradient_cases import case
from passes_cases import BY_HAND, ensemble, readout
from reference import Explicit


@pytest.mark.parametrize("name", BY_HAND)
def test_explicit_backward_pass_is_a_derivative(name, h=1e-5):
    """The reference itself: its gradients against differences of the loss, by
    embeddings and by each matrix; both mistakes are seen.
    """
    rng = np.random.default_rng(0)
    c = case(name)
    net = Explicit(ensemble(c), c["n"], 3, rng)
    X, r = readout(c, 3, rng)
    loss = lambda X: (r * net.forward(X)[1]).sum((1, 2))
    _, dX, grads = net.gradients(X, r)
    Z = rng.standard_normal(X.shape)
    along = lambda dX: (dX[0] * Z).sum((1, 2))
    difference = (loss(X + h * Z) - loss(X - h * Z)) / (2 * h)
    np.testing.assert_allclose(along(dX), difference, rtol=1e-5, atol=1e-7)
    for k, (W, _) in net.layers[0].items():
        Z = rng.standard_normal(W.shape)
        there = []
        for sign in (1, -1):
            net.layers[0][k] = W + sign * h * Z, 1.0
            there.append(loss(X))
        net.layers[0][k] = W, 1.0
        np.testing.assert_allclose(
            (grads[0][k] * Z).sum((1, 2)),
            (there[0] - there[1]) / (2 * h),
            rtol=1e-5,
            atol=1e-7,
        )
    Z = rng.standard_normal(X.shape)
    difference = (loss(X + h * Z) - loss(X - h * Z)) / (2 * h)
    for net.broken in ("softmax", "fresh"):
        assert (
            abs(along(net.gradients(X, r)[1]) - difference) > 1e-4 * abs(difference)
        ).all()
