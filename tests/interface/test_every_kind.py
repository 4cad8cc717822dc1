"""Laws, losses, distances, functions, norms and their places: each kind has a row here,
and a new one without a row fails the first test. Nodes have theirs in
laws/test_every_node.py, optimizers in training/test_optimizers.py, gates in
transformer/test_experts.py, families in external/test_readings.py.
"""

import importlib
import pkgutil
import re
from functools import lru_cache

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, log_softmax, logsumexp
from scipy.stats import multivariate_normal, norm, rv_continuous

import infattn_nb
from infattn_nb import Attention, Block, FeedForward, Norm, ScaleMixture
from infattn_nb import Tokens, Transformer
from infattn_nb.attention.tokens import TokenLaw
from infattn_nb.convergence.regimes import DISTANCES
from infattn_nb.distributions import hierarchical
from infattn_nb.distributions.scale_mixture import LocationMixture
from infattn_nb.nonlinearities import NAMED, identity, relu
from infattn_nb.theory import variance_gamma
from infattn_nb.training.losses import LOSSES, Everywhere, Loss, Softmax

K = np.array([[1.0, 0.3, 0.1], [0.3, 1.5, -0.4], [0.1, -0.4, 0.8]])
LAYER = Attention(Tokens(3, relu, K), heads=2, var_q=2.0)
LAWS = {
    "HierarchicalGaussian": lambda: LAYER.law(40),
    "LimitLaw": LAYER.law,
    "LimitOfManyHeads": lambda: LAYER.infinite_heads(),
    "ConstantGaussian": lambda: hierarchical.ConstantGaussian.of(K),
    "AveragedGaussian": None,  # the base of LimitOfManyHeads
    "ConditionalGaussian": None,  # tests/distributions/test_hierarchical.py
}
ONE_OUTPUT = {
    "ScaleMixture": lambda: ScaleMixture([0.5, 1.0, 3.0], [0.2, 0.5, 0.3]),
    "LocationMixture": lambda: LocationMixture(
        [0.0, 2.0, -1.0], [0.5, 1.0, 3.0], [0.2, 0.5, 0.3]
    ),
    "VarianceGamma": lambda: variance_gamma(3),
}
TOKENS = {"Tokens", "CommonTokens", "ProgramTokens"}  # tests/attention/test_tokens.py
PRODUCTS = {"times"}  # of two arguments


@lru_cache
def kinds(base):
    "Names of a class and of all classes of the package made from it."
    for m in pkgutil.walk_packages(infattn_nb.__path__, "infattn_nb."):
        if not m.name.endswith("__main__"):
            importlib.import_module(m.name)
    ours = [c for c in base.__subclasses__() if c.__module__.startswith("infattn_nb")]
    return {c.__name__ for c in ours}.union(*map(kinds, ours))


def choices(call):
    "The words that an option may be: those in the error for another word."
    with pytest.raises(ValueError) as error:
        call()
    return set(re.findall(r"'(\w+)'", str(error.value).partition(", got")[0]))


def test_every_kind_has_a_row():
    assert choices(lambda: Norm("other")) == NORMED.keys()
    assert choices(lambda: Block(norm_placement="other")) | {None} == PLACED.keys()
    base = hierarchical.HierarchicalGaussian
    assert kinds(base) | {base.__name__} == LAWS.keys()
    assert kinds(rv_continuous) == ONE_OUTPUT.keys() | {"LawWithErrors"}
    assert kinds(TokenLaw) == TOKENS
    assert {c.__name__ for c in LOSSES.values()} | {"Everywhere"} == kinds(Loss)
    assert LOSSES.keys() == VALUES.keys()
    assert DISTANCES.keys() == BETWEEN.keys()


@pytest.mark.power("variances 10 % off; densities .1 nats off")
@pytest.mark.parametrize("name", [k for k, x in LAWS.items() if x])
def test_densities_are_means_over_covariances(name, size=2000):
    law = LAWS[name]()
    assert type(law).__name__ == name
    y = np.array([0.5, -0.2, 0.3])
    S = law.covariances(size, 0)
    each = [multivariate_normal(cov=c, allow_singular=True).logpdf(y) for c in S]
    found = logsumexp(each) - np.log(size)
    error = np.std(np.exp(each - found)) / np.sqrt(size)
    assert abs(law.logpdf(y, rng=1) - found) < 7 * error + 0.05
    variance = S[:, 0, 0]
    error = variance.std() / np.sqrt(size)
    assert abs(law.marginal(0).var() - variance.mean()) < 7 * error + 1e-6
    assert error < 0.02 * variance.mean()
    Y = law.rvs(size, rng=2)
    outer = np.einsum("ni,nj->nij", Y, Y)
    off = abs(outer.mean(0) - S.mean(0)) / np.hypot(outer.std(0), S.std(0))
    assert (off < 7 / np.sqrt(size)).all()


@pytest.mark.parametrize("name", ONE_OUTPUT)
def test_one_law_of_one_output(name):
    "The distribution function is the integral of the density; quantiles; moments."
    law = ONE_OUTPUT[name]()
    for y in (-1.5, 0.2, 2.0):
        below = quad(law.pdf, -40, y, limit=200, points=[-1, 0, 1, y])[0]
        assert law.cdf(y) == pytest.approx(below, rel=1e-6)
        assert law.sf(y) == pytest.approx(1 - below, rel=1e-6)
        assert law.ppf(law.cdf(y)) == pytest.approx(y)
    for k, moment in ((1, law.mean()), (2, law.var() + law.mean() ** 2)):
        exact = quad(lambda y: y**k * law.pdf(y), -60, 60, limit=400, points=[0])[0]
        assert moment == pytest.approx(exact, rel=1e-6, abs=1e-9)


F = np.array([[[0.3, -1.2, 0.5], [2.0, 0.1, -0.4]]])
VALUES = {  # targets, and the loss of F by hand
    "squared": (F[0] - 1, lambda f, y: 0.5 * 6 * 1.0),
    "logistic": (
        np.array([[1, 0, 1], [0, 0, 1.0]]),
        lambda f, y: -np.log(np.where(y, expit(f), expit(-f))).sum(),
    ),
    "softmax": (
        np.array([2, 0]),
        lambda f, y: -log_softmax(f, axis=1)[[0, 1], [2, 0]].sum(),
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_every_loss_by_hand(name, h=1e-6):
    "Its value, its gradient by differences, and that its curvature is a bound."
    y, value = VALUES[name]
    loss = LOSSES[name]()
    Y = loss.targets(y, 2, 3)
    assert loss.value(F, Y)[0] == pytest.approx(value(F[0], y))
    d = np.random.default_rng(0).standard_normal(F.shape)
    rise = (loss.value(F + h * d, Y) - loss.value(F - h * d, Y)) / (2 * h)
    assert (loss.gradient(F, Y) * d).sum() == pytest.approx(rise[0], rel=1e-7)
    for scale in (0.0, 1.0):
        bent = (loss.gradient(scale * F + h * d, Y) - loss.gradient(scale * F, Y)) / h
        ratio = (bent * d).sum() / (d * d).sum()
        assert ratio <= loss.curvature + 1e-4
    everywhere = Everywhere(Softmax())
    labels = np.eye(3)[[2, 0]]
    np.testing.assert_allclose(
        everywhere.value(F[:, None], labels[None]), Softmax().value(F, labels)
    )


σ = 1.3
BETWEEN = {  # N(0, σ²) and N(0, 1), in closed form
    "KL": (σ**2 - 1) / 2 - np.log(σ),
    "TV": 2
    * (norm.cdf(x := np.sqrt(np.log(σ) * 2 * σ**2 / (σ**2 - 1))) - norm.cdf(x / σ)),
    "Hellinger": np.sqrt(1 - np.sqrt(2 * σ / (1 + σ**2))),
    "W1": (σ - 1) * np.sqrt(2 / np.pi),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_every_distance_of_two_gaussians(name):
    found = DISTANCES[name](ScaleMixture([σ**2], [1.0]), norm())
    assert found == pytest.approx(BETWEEN[name], rel=1e-8)


@pytest.mark.parametrize("name", sorted({*NAMED} - PRODUCTS))
def test_dual_of_every_named_function(name):
    "By a two-dimensional rule of Gauss and Hermite; kinks cost it digits."
    φ = NAMED[name]
    x, w = np.polynomial.hermite_e.hermegauss(120)
    w = w / w.sum()
    a, b, ρ = 0.7, 1.9, 0.6
    u = np.sqrt(a) * x[:, None]
    v = np.sqrt(b) * (ρ * x[:, None] + np.sqrt(1 - ρ**2) * x)
    expected = np.einsum("i,j,ij,ij->", w, w, φ(u) + 0 * v, φ(v))
    c = ρ * np.sqrt(a * b)
    found = φ.dual([[a, c], [c, b]])[0, 1]
    assert found == pytest.approx(expected, rel=0.02 if name != "step" else 0.05)


def test_an_identity_has_the_covariance_as_its_dual():
    np.testing.assert_allclose(identity.dual(K), K)


MEAN = 0.4  # of the coordinates of every token


def by_rms(G):
    "Second moments after RMSNorm without ε."
    return G / np.sqrt(np.outer(np.diag(G), np.diag(G)))


NORMED = {"rms": by_rms, "layer": lambda G: by_rms(G - MEAN**2)}
PLACED = {  # second moments after a block; its branch has mean zero
    None: lambda G, branch, norm: G + branch(G),
    "pre": lambda G, branch, norm: G + branch(norm(G)),
    "post": lambda G, branch, norm: norm(G + branch(G)),
    "output": lambda G, branch, norm: G + by_rms(branch(G)),
    "sandwich": lambda G, branch, norm: G + by_rms(branch(norm(G))),
}
UNITS = {False: lambda G: 0.9 * G, True: lambda G: 0.9 * 0.7 * G * G}  # gated?


@pytest.mark.parametrize("place", PLACED)
@pytest.mark.parametrize("kind", NORMED)
def test_every_norm_at_every_place(kind, place):
    "A linear MLP of infinite width, and one whose units are products with gates."
    for gated, branch in UNITS.items():
        mlp = FeedForward(2, "identity", gated, var_1=0.6, var_2=1.5, var_3=0.7)
        block = Block(None, mlp, norm=Norm(kind, 0.0), norm_placement=place)
        found = Transformer(K, [block], mean=MEAN).chain(np.inf).gram[0, -1]
        exact = PLACED[place](K + MEAN**2, branch, NORMED[kind])
        np.testing.assert_allclose(found, exact, rtol=1e-12)
