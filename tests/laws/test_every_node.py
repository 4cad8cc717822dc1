"""Every kind of node in a small program of its own: the gradient by finite differences,
the limit beside wide networks, and whether the printed theorem covers it.
"""

import numpy as np
import pytest
from conftest import BEYOND_THEOREM
from finite_differences import check_gradient

from infattn_nb import Program, limit, simulate
from infattn_nb.netsor import nodes
from infattn_nb.nonlinearities import tanh

pytestmark = BEYOND_THEOREM
Σ = np.array([[1.0, 0.5, 0.2], [0.5, 1.5, -0.3], [0.2, -0.3, 1.0]])


def hidden(p):
    return p.matrix("W", 1.5) @ tanh(p.matrix("V") @ p.inputs(Σ, 0.3))


def attended(p, h, weights=None):
    Q, K = (p.matrix(name, 1.2) @ h for name in "QK")
    more = () if weights is None else (weights,)
    return p.attend(p.scores(Q, K), h, *more)


def with_scores(p):
    "Rows that also read a score each."
    h = hidden(p)
    q, k = (p.matrix(name) @ h[0] for name in "QK")
    score = p.score(q, k)
    return p.nonlin(lambda x, y, s: np.tanh(x + s) * y, h[1], h[2], scores=[score])


def picked_scores(p):
    "Scores of one block, attended to by name."
    h = hidden(p)
    P = p.scores(p.matrix("Q") @ h, p.matrix("K") @ h)
    return p.attend([P[0, 1], P[0, 2]], [h[1], h[2]])


NODES = {  # class -> a program's vectors, made by a node of this class
    "Input": lambda p: p.matrix("W") @ p.inputs(Σ, 0.5),
    "Constants": lambda p: tanh(
        hidden(p) + p.constants(np.arange(24.0).reshape(3, 8) / 9)
    ),
    "Parameter": lambda p: hidden(p) + p.parameter(0.5, 0.3, name="b"),
    "MatMul": hidden,
    "Output": hidden,  # every program ends in one
    "Nonlin": lambda p: tanh(hidden(p)),
    "Linear": lambda p: 2 * (h := hidden(p)) - 0.5 * tanh(h),
    "Mix": lambda p: p.mix(np.tri(3) + 0.1, hidden(p)),
    "Attend": lambda p: attended(p, hidden(p)),
    "Normalize": lambda p: p.normalize(hidden(p), "layer", 0.1),
    "Rotate": lambda p: p.rotate(hidden(p), np.outer([0, 1, 2], [1.0, 0.3])),
    "Rows": lambda p: hidden(p)[[2, 0, 2]],
    "Concat": lambda p: p.concatenate(h := hidden(p), h[[1]]),
    "Score": with_scores,
    "Entries": picked_scores,
}
OUTPUTS = {"Logits"}  # test_optimizers.py differentiates them
SAID = {  # by `check`, of what is no instruction of Netsor
    "Normalize": "averages over coordinates",
    "Rotate": "Rotate is no instruction",
    "Constants": "Constants is no instruction",
    "Logits": "Logits is no instruction",
}


def kinds(cls):
    "Those of the package; other tests define kinds of their own."
    ours = {cls.__name__} if cls.__module__.startswith("infattn_nb") else set()
    return ours.union(*map(kinds, cls.__subclasses__()))


def test_every_kind_has_a_row():
    "A new node is tested here, or these tests fail."
    forms = {"Vector", "GVar", "Initial", "Sum", "FiniteOnly"}
    found = kinds(nodes.Vector) | kinds(nodes.Score)
    assert found - forms == NODES.keys() | OUTPUTS


def program(kind):
    p = Program()
    h = NODES[kind](p)
    return p, h, p.readout("R") @ h


@pytest.mark.parametrize("kind", NODES)
def test_its_gradient_is_the_derivative(kind):
    "Central differences of the loss in a random direction of every matrix."
    p, _, f = program(kind)
    names = [W for W in ("V", "W", "Q", "K", "R", "b") if f" {W} " in f"{p!r} "]
    check_gradient(p, f, np.linspace(-1.0, 1.0, len(f)), names)


@pytest.mark.power("second moments 25 % off")
@pytest.mark.parametrize("kind", sorted({*NODES} - {"Rotate", "Constants"}))
def test_its_limit_is_that_of_wide_networks(kind, n=200, size=60):
    p, h, _ = program(kind)
    size *= 4 if p.random_scores else 1
    X = simulate(p, list(h), n, size=size, rng=0, coords=n)
    S = np.einsum("bin,bjn->bij", X, X) / n
    lim = limit(p)
    second = lambda of: np.array([[of(u, v) for v in h] for u in h])
    exact, error = second(lim.second_moment), S.std(0) / np.sqrt(size)
    scale = np.sqrt(np.outer(*[np.diagonal(exact)] * 2))
    assert (abs(S.mean(0) - exact) < 6 * error + 0.03 * scale).all()
    assert (6 * error < 0.25 * scale).all()


@pytest.mark.parametrize("kind", [*NODES, *OUTPUTS])
def test_the_theorem_as_printed_covers_it(kind):
    p = Program()
    if kind in OUTPUTS:
        p.logits(hidden(p), p.parameter(size=3))
    else:
        NODES[kind](p)
    said = [
        str(x) for x in p.check(strict=False) if x.clause in ("average", "instruction")
    ]
    assert len(said) == (kind in SAID)
    assert all(SAID[kind] in x for x in said)
