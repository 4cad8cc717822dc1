"What a second attack found: underflow, tiny numbers, pickles, long chains."

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from unittest.mock import patch

import numpy as np
import pytest
from numpy.random import default_rng

from infattn_nb import Attention, AttentionRegressor, HierarchicalGaussian, Nonlinearity
from infattn_nb import Program, Tokens, Transformer, limit, limit_error
from infattn_nb.netsor import Limit, score_paths
from infattn_nb.netsor.score_paths import Batch
from infattn_nb.nonlinearities import gelu, gelu_tanh, identity, leaky_relu, relu, silu
from infattn_nb.nonlinearities import softplus, tanh
from infattn_nb.numerics import linalg as factors
from infattn_nb.numerics.hermite import cross_moment
from infattn_nb.numerics.linalg import lower_times, psd_factor, times_lower
from infattn_nb.theory import compose

FOUR = Attention(Tokens(4, relu), heads=2)
rng = default_rng(0)
X = rng.standard_normal((6, 3, 2))
y = X[:, 0, 0]
SMALL = dict(n_particles=16, n_islands=2, n_moves=1, random_state=0)


@pytest.mark.parametrize("f", [gelu, gelu_tanh, silu, softplus, relu], ids=repr)
def test_functions_at_the_ends_of_the_numbers(f):
    "x Φ(x) is zero at -∞, not nan."
    with np.errstate(all="raise", under="ignore"):
        at = f(np.array([-np.inf, -1e200, np.inf, 1e200, np.nan]))
    np.testing.assert_array_equal(at, [0, 0, np.inf, 1e200, np.nan])
    assert abs(f(np.array([-8.0]))[0]) < 0.01
    assert f(np.array([5.0]))[0] > 4.9


@pytest.mark.long
def test_huge_scores_say_nothing():
    with np.errstate(all="raise", under="ignore"):
        assert Attention(
            Tokens(4, identity), var_q=1e300
        ).law().marginal().std() == pytest.approx(1)


@pytest.mark.parametrize("axes", [(), (1,), (3, 2)])
def test_blas_does_what_einsum_did(axes):
    "Products with a constant factor: from so many rows on by BLAS."
    L = psd_factor(np.eye(7) + 0.3).reshape(7, 7, *[1] * len(axes))
    A = rng.standard_normal((5, 7, *axes))
    B = rng.standard_normal((7, 4, *axes))
    for f in (
        partial(times_lower, A, L),
        partial(times_lower, A, L, True),
        partial(lower_times, L, B),
    ):
        with patch.object(factors, "BLAS_ROWS", np.inf):
            slowly = f()
        with patch.object(factors, "BLAS_ROWS", 7):
            np.testing.assert_allclose(f(), slowly, rtol=1e-13, atol=1e-14, strict=True)


def chain(steps, φ=tanh):
    p = Program()
    W, x = p.matrix(), p.inputs(np.eye(1))[0]
    seen = []
    for _ in range(steps):
        seen.append(x := W @ φ(x))
    return p, seen


@pytest.mark.parametrize("φ", [tanh, relu], ids=repr)
def test_closed_forms_in_one_call(φ):
    "All moments of a step at once: the same but for the last digits."
    p, seen = chain(12, φ)
    with patch.object(Batch, "_foresee", lambda *_: None):
        slowly = limit(p).cov(seen)
    rtol = max(1e-13, 10 * φ.closed_error)
    together = limit(p).cov(seen)
    np.testing.assert_allclose(together, slowly, rtol=rtol, atol=1e-15)


def mixed(φs, mean=0.0):
    "An attention layer whose outputs go through several functions."
    p = Program()
    h = p.inputs(np.eye(3) / 2 + 0.5, mean)
    x = [φs[0](u) for u in h]
    Q, K, V, O, W = (p.matrix(name) for name in "QKVOW")
    y = [
        O @ p.attend([p.score(Q @ u, K @ v) for v in x], [V @ v for v in x]) for u in x
    ]
    for u in [
        φs[1](y[0]) + φs[2](y[1]),
        φs[2](y[0] - y[1]),
        p.nonlin(np.cos, h[0]),
        φs[1](h[0]),
        *x[:2],
    ]:
        W @ u
    return p


@pytest.mark.filterwarnings("ignore::infattn_nb.AssumptionWarning")
@pytest.mark.parametrize(
    "φs, mean",
    [
        pytest.param((relu, tanh, gelu), 0.0, marks=pytest.mark.slow),
        ((tanh, relu, softplus), [0.3, -0.2, 0.0]),
    ],
)
def test_series_of_each_function_are_kept(φs, mean):
    """Products of different functions, path by path, as from the whole series of each
    pair: independent ones, correlated ones, ρ = 1.
    """
    seen, now = [], Batch._functions

    def both(self, X, Y, centred):
        found = now(self, X, Y, centred)
        if X.fn != Y.fn:
            (u,), (v,) = X.args, Y.args
            μ, ν = (self.mean(x) for x in (u, v))
            μ = np.zeros((1, 1)) if μ is None else μ
            ν = np.zeros((1, 1)) if ν is None else ν
            c = self.centred(u, v)
            c = np.zeros((1, 1, 1)) if c is None else c
            pairs = np.broadcast_arrays(
                μ[..., :, None],
                ν[..., None, :],
                self.variances(u)[..., :, None],
                self.variances(v)[..., None, :],
                c,
            )
            μ, ν, a, b, c = (x.ravel() for x in pairs)
            nodes = 2**14 if μ.size <= 16 else 2**12
            old = cross_moment(X.fn, Y.fn, (μ, ν), a, b, c, nodes)
            means = self.mean(X)[..., :, None] * self.mean(Y)[..., None, :]
            new = np.zeros(means.shape) if found is None else found
            new = (new + means if centred else new).ravel()
            seen.append((new, old, np.abs(c).max()))
        return found

    with (
        patch.object(Batch, "_functions", both),
        patch.object(score_paths, "CLOSE_NUMBERS", 0),  # four paths in each batch
    ):
        limit(mixed(φs, mean), draws=64)
    assert len(seen) > 5
    assert min(c for *_, c in seen) == 0 < max(c for *_, c in seen)
    for new, old, _ in seen:
        np.testing.assert_allclose(new, old, rtol=0, atol=1e-12)


def one_product():
    p = Program()
    W, x = p.matrix(), p.inputs(np.eye(1))[0]
    return p, [W @ tanh(x)]


def same_bytes(_):
    "What is computed once and kept, from many threads at once."
    layer = Attention(Tokens(4, relu), heads=3, var_o=1.2345)
    p, y = one_product()
    return b"".join(
        np.asarray(x).tobytes()
        for x in (
            layer.law().marginal().pdf(np.linspace(-3, 3, 9)),
            layer.law().rvs(5000, 7),
            layer.law(16).covariances(100, 3),
            limit(p).cov(y),
        )
    )


@pytest.mark.slow
def test_eight_threads_agree():
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(same_bytes, range(8)))
    assert found == {same_bytes(0)}


def frozen_things():
    "One of each class that is a value."
    p, y = one_product()
    yield from (
        FOUR,
        FOUR.tokens,
        FOUR.law(),
        FOUR.law(8),
        FOUR.law().marginal(),
        FOUR.law().marginal()(1.0, 2.0),
        HierarchicalGaussian.constant(np.eye(2)),
    )
    yield from (
        leaky_relu(0.1),
        compose(tanh, relu),
        Transformer.uniform(np.eye(3), layers=1, heads=1),
        limit_error(FOUR, 256, draws=2**12),
        p,
        limit(p),
    )


@pytest.mark.parametrize("thing", [*frozen_things()], ids=lambda x: type(x).__name__)
def test_copies_are_the_same(thing):
    for again in (
        pickle.loads(pickle.dumps(thing)),
        copy.deepcopy(thing),
        copy.copy(thing),
    ):
        assert type(again) is type(thing)
        assert type(thing).__repr__ is object.__repr__ or repr(again) == repr(thing)
        if isinstance(thing, (Attention, Tokens, Nonlinearity)):
            assert again == thing
            assert hash(again) == hash(thing)
        if hasattr(thing, "rvs") and not isinstance(thing, Limit):
            assert np.array_equal(again.rvs(3, rng=0), thing.rvs(3, rng=0))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.long
def test_a_layer_without_a_constant_is_odd():
    "Turn all tokens round: every value turns; a stored row shows it."
    learning = import_module("learning")
    m = AttentionRegressor(2, **SMALL).fit(X, y)
    np.testing.assert_allclose(m.predict(-X), -m.predict(X), atol=1e-12)
    one = np.concatenate([X, np.ones((6, 3, 1))], axis=2)
    m = AttentionRegressor(2, **SMALL).fit(one, y)
    other = one * [-1, -1, 1]
    assert np.abs(m.predict(other) + m.predict(one)).max() > 0.01
    fresh = learning.run_odd(0, 64, "inf", True)
    stored = learning.pd.read_csv(
        learning.DATA / "learning_odd.csv", dtype=dict(model=str)
    ).query("seed == 0 and P == 64 and model == 'inf' and constant")
    assert len(stored) == 1
    assert stored.r2.item() == pytest.approx(fresh["r2"], abs=1e-4)
