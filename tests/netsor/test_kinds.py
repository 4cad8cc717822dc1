"A kind of nodes that is defined here, outside the package, works everywhere."

import numpy as np
import pytest
from conftest import BEYOND_THEOREM
from finite_differences import check_gradient

from infattn_nb import Program, gradients, limit, simulate
from infattn_nb.netsor.kinds import Diagonal, Nonlin, Sum, turned
from infattn_nb.netsor.nodes import Vector, node
from infattn_nb.nonlinearities import relu, tanh

pytestmark = BEYOND_THEOREM
Σ = np.array([[1.0, 0.5, 0.2], [0.5, 1.5, -0.3], [0.2, -0.3, 1.0]])


@node
class Center(Sum):
    "A vector minus its mean over coordinates."

    letter = "c"
    reads_all = True
    centred = True

    def said(self, args, scores):
        return f"= {args[0]} - mean"

    def value(self, vectors, scores):
        (h,) = vectors
        return h - h.mean(-1, keepdims=True)

    def back(self, pull):
        pull.give(0, pull.dy - pull.dy.mean(-1, keepdims=True))

    def parts(self, given):
        (h,) = self.args
        mean = given.mean(h)
        return [(1.0, h)], None if mean is None else -mean

    def remark(self):
        return "average", "averages over coordinates are in Netsor⁺, not in Netsor"


@node
class Scale(Sum):
    "Rows times numbers of their own."

    factors: np.ndarray  # (k,)
    letter = "s"
    by_row = ("factors",)

    def said(self, args, scores):
        return f"= {args[0]}, scaled"

    def value(self, vectors, scores):
        return self.factors[:, None] * vectors[0]

    def back(self, pull):
        pull.give(0, self.factors[pull.pairs.row][:, None] * pull.dy)

    def parts(self, given):
        return [(Diagonal(self.factors[None]), self.args[0])], None

    def remark(self):
        return None


@node
class Larger(Nonlin):
    "The larger of two vectors, in each coordinate."

    letter = "M"

    def said(self, args, scores):
        return f"= max({', '.join(args)})"


def centred(p):
    "relu(g) has a mean, which differs from row to row."
    return p.add(Center, relu(p.matrix("V") @ p.inputs(Σ, 0.3)))


def by_layernorm(p):
    "The same vectors, by the package's own norm: centred, then divided by √1."
    h = relu(p.matrix("V") @ p.inputs(Σ, 0.3))
    drawn = limit(p)
    scale = np.sqrt(np.diagonal(drawn.cov(h)))
    rows = [s * r for s, r in zip(scale, p.normalize(h, "layer", 0.0))]
    return p.concatenate(*rows)


def test_it_is_printed_and_named():
    p = Program()
    c = centred(p)
    assert repr(c) == "c1 (3) = x1 - mean" and repr(p).endswith(repr(c))
    assert p.name(c[1]) == "c1[1]" and Center(p, (c,), c.length, 3).color == "white"
    assert repr(p.add(Larger, c[0], c[1], fn=np.maximum)) == "M1 = max(c1[0], c1[1])"
    p.draw()


def test_check_remarks_on_it():
    "Without the remark, the theorem would seem to apply as printed."
    p = Program()
    c = centred(p)
    (said,) = p.check(strict=False)
    assert said.clause == "average" and str(said).startswith("`c1`: averages")
    p.add(Scale, c, factors=np.ones(3))
    assert len(p.check(strict=False)) == 1  # its class says that it is covered


@pytest.mark.power("the mean is not subtracted in the limit")
def test_its_limit_is_a_norm_times_its_deviation():
    "LayerNorm of the same vector differs by a factor that the limit knows."
    p, q = Program(), Program()
    c, r = centred(p), by_layernorm(q)
    f, g = (tanh(o.matrix() @ x) for o, x in ((p, c), (q, r)))
    np.testing.assert_allclose(limit(p).cov(c), limit(q).cov(r), rtol=1e-10)
    np.testing.assert_allclose(limit(p).cov(f), limit(q).cov(g), rtol=1e-8)
    assert np.abs(limit(p).mean(c)).max() == 0
    x = limit(p).rvs(c, 4000, 1)
    assert (abs(x.mean(0)) < 6 * x.std(0) / 4000**0.5).all()


@pytest.mark.power("second moments 25 % off")
def test_its_limit_is_that_of_wide_networks(n=300, size=80):
    "After attention, so given random scores, and inside a function of several."
    p = Program()
    c = centred(p)
    P = p.scores(*(p.matrix(name, 0.5) @ tanh(c) for name in "QK"))
    y = p.add(Center, p.attend(P, relu(c)))
    z = p.nonlin(lambda a, b: a * np.sin(b), y, p.add(Scale, c, factors=[1.0, 2, 0]))
    law = limit(p, 2000, 0)
    for h in (c, y, z):
        drawn = law.second_moment(h, h)
        x = simulate(p, h, n, size=size, rng=1, coords=n)
        found = x @ x.mT / n
        error = 6 * found.std(0) / size**0.5 + 0.03 * np.abs(drawn).max()
        assert (abs(found.mean(0) - drawn) < error).all()


@pytest.mark.parametrize("width", [8, np.inf])
def test_rows_written_one_by_one_are_joined(width):
    p, q = Program(), Program()
    a = p.add(Scale, centred(p), factors=np.array([1.0, 2.0, 3.0]))
    h = centred(q)
    b = [
        q.add(Scale, q.add(Center, h[i]), factors=np.array([i + 1.0]))
        for i in (0, 1, 2)
    ]
    if width == np.inf:
        np.testing.assert_allclose(limit(p).cov(a), limit(q).cov(b), rtol=1e-12)
        assert len(limit(q).drawn.stacks.nodes) == len(limit(p).drawn.stacks.nodes) + 1
        return
    x, y = (simulate(o, h, width, rng=3, coords=8) for o, h in ((p, a), (q, b)))
    np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)


def test_its_tangent_kernel_is_that_of_wide_networks(n=1024, size=60):
    p = Program()
    f = p.readout() @ relu(p.matrix() @ centred(p))
    exact = gradients(p, f).tangent[0]
    drawn = gradients(p, f, width=n, size=size, rng=0).tangent
    error = 6 * drawn.std(0) / size**0.5 + 6 * exact.max() / n
    assert (abs(drawn.mean(0) - exact) < error).all()


@pytest.mark.parametrize("kind", ["Center", "Scale", "Larger"])
def test_training_follows_its_gradient(kind):
    "Central differences of the loss in a random direction of each matrix."
    p = Program()
    x = relu(p.matrix("V") @ p.inputs(Σ, 0.3))
    made = {
        "Center": lambda: p.add(Center, x),
        "Scale": lambda: p.add(Scale, x, factors=np.array([1.0, -2.0, 0.5])),
        "Larger": lambda: p.add(Larger, x, p.matrix("U") @ x, fn=np.logaddexp),
    }[kind]()
    f = p.readout("R") @ tanh(p.matrix("W") @ made)
    names = ("V", "W", "R", "U")[: 3 + (kind == "Larger")]
    check_gradient(p, f, np.array([1.0, 0.0, -1.0]), names)


@pytest.mark.parametrize("rule", ["said", "value", "back", "parts", "remark", "letter"])
def test_a_missing_rule_is_an_error_of_the_class(rule):
    own = {
        k: v for k, v in vars(Center).items() if not k.startswith("__") and k != rule
    }
    with pytest.raises(TypeError, match=f"`Half` must state every rule.*no {rule}"):
        type("Half", (Sum,), own)
    with pytest.raises(TypeError, match="derive it from Sum, Nonlin or FiniteOnly"):
        type("Formless", (Vector,), own)


def test_only_kinds_of_nodes_are_added():
    p = Program()
    c = centred(p)
    with pytest.raises(TypeError, match="`kind` must be a class of nodes"):
        p.add("Center", c)
    with pytest.raises(ValueError, match="`factors` must have a value for each of 3"):
        p.add(Scale, c, factors=[1.0, 2.0])
    with pytest.raises(ValueError, match="same number of rows"):
        p.add(Larger, c, c[:2], fn=np.maximum)


def test_a_row_without_entries_has_a_gradient():
    "A shift by one position leaves a row of zeros, whose cotangents are zero."
    p = Program()
    shifted = p.mix(np.eye(3, k=1) + np.eye(3, k=2), centred(p))
    f = p.readout() @ shifted
    drawn = gradients(p, f, width=8, size=2, rng=0).tangent
    assert (drawn[:, 2] == 0).all() and (
        np.diagonal(drawn, axis1=1, axis2=2)[:, :2] > 0
    ).all()


def test_rotations_are_products_of_complex_numbers():
    x, y, angles = np.random.default_rng(0).standard_normal((3, 4, 2))
    found = turned(angles, np.concatenate([x, y, np.ones((4, 1))], axis=1))
    z = (x + 1j * y) * np.exp(1j * angles)
    exact = np.concatenate([z.real, z.imag, np.ones((4, 1))], axis=1)
    np.testing.assert_allclose(found, exact)
