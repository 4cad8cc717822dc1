"""Matrices that are revealed step by step: broken variants are rejected."""

import numpy as np
import pytest
from conftest import BEYOND_THEOREM, nightly
from revealed_cases import p_of_law, trained

from infattn_nb import Program, train
from infattn_nb.netsor import mlp
from infattn_nb.netsor.gradients import finite_tangents
from infattn_nb.netsor.passes import PassPlan, ProgramNetworks
from infattn_nb.netsor.revealed import Explicit, Revealed, Use, explicit_is_cheaper
from infattn_nb.nonlinearities import tanh

pytestmark = BEYOND_THEOREM


def fresh_matrix(self, E, turn, other, forward):
    return self.sd * self.rng.standard_normal((*E.shape[:2], other.rows.shape[2]))


def old_images(self, X, state):  # what was added is not seen by new products
    a, _ = self._coordinates(X, self.right, self.left)
    return state.start_factor * a @ self.right.images, a


BROKEN = {
    "a fresh matrix for the backward pass": dict(_images=fresh_matrix),
    "updates that forget the images": dict(times=old_images),
    "half the rate": dict(),
}


@pytest.mark.power("broken variants at p < 1e-12")
@pytest.mark.parametrize("name", nightly(["gated product", "two blocks"], "two blocks"))
@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.long
def test_broken_variants_are_rejected(fault, name, monkeypatch, size=1_000):
    for method, f in BROKEN[fault].items():
        monkeypatch.setattr(Revealed, method, f)
    try:
        ours = trained(
            name, 12, size, learning_rate=0.05 if fault == "half the rate" else 0.1
        )
    except ValueError as e:
        # nor does it train, which all networks of torch's did
        assert "keep the losses of most networks bounded" in str(e)
    else:
        assert p_of_law(name, 12, ours) < 1e-12


@pytest.mark.parametrize("inputs", [1, 5])
def test_directions_are_counted_before_they_are_drawn(inputs, n=40):
    "One network for each output would be (1 + k)k directions, not 2k."
    p = Program()
    f = p.readout() @ tanh(mlp(p, p.inputs(np.eye(inputs)), 3, activation=tanh))
    plan = PassPlan(p, [f], n, apart=True, dense=False)
    networks = ProgramNetworks(plan, 2, np.random.default_rng(0))
    finite_tangents(plan, networks, networks.starts())
    for W in p.matrices:
        M = networks.matrices[W]
        use = plan.use(W)
        assert use.forward == M.right.count == inputs
        assert use.backward == M.left.count <= inputs
    wide = PassPlan(p, [f], 10**4, apart=True)
    assert not any(wide.is_explicit(W, 1) for W in p.matrices)
    assert Use(9, 9).starts_explicit((9, 9), 1)
    assert not Use(1, 1).starts_explicit((64, 64), 100)
    assert Use(1, 1).starts_explicit((64, 64), 1)
    training = Use(64, 64, in_all=10**4)  # as measured by benchmarks/choices.py
    explicit = {n: training.starts_explicit((n, n), 1) for n in (400, 600, 1024, 2048)}
    assert explicit == {400: False, 600: True, 1024: True, 2048: False}
    assert not Use(64, 64, in_all=320).starts_explicit((1024, 1024), 1)
    assert not Use(8, 8, in_all=10**4).starts_explicit((1024, 1024), 1)
    for M in (Explicit(np.zeros((1, 600, 600))), Revealed(1, (600, 600), 1, None)):
        assert not M.should_be_explicit(128)
    assert not explicit_is_cheaper((1024, 1024), 394, 128)
    assert explicit_is_cheaper((1024, 1024), 396, 128)


@pytest.mark.parametrize("steps", [1, 3])
def test_directions_of_a_training_are_counted_before(steps, n=400, inputs=2):
    p = Program()
    f = p.readout() @ tanh(mlp(p, p.inputs(np.eye(inputs)), 3, activation=tanh))
    run = train(
        p, f, np.zeros(inputs), width=n, steps=steps, size=1, rng=0, learning_rate=0.01,
        dense=False, verbose=False,
    )  # fmt: skip
    plan = PassPlan(p, [f], n, steps=steps)
    (block,) = run._blocks
    for W in p.matrices[:-1]:
        M = block.networks[0].matrices[W]
        last = inputs * (W is not p.matrices[0])  # perhaps the outputs at the end
        assert 0 <= plan.directions(W) - M.right.count - M.left.count <= last
