"""Known errors travel with their numbers, and what is kept cannot be changed."""

import threading
import warnings
from functools import partial

import numpy as np
import pytest
from error_cases import steep_moment
from scipy.special import log_ndtr, logsumexp
from scipy.stats import norm

from infattn_nb import Attention, AttentionDescent, AttentionRegressor, CircuitDescent
from infattn_nb import Nonlinearity, Program, Tokens, Transformer, limit
from infattn_nb.convergence import mean_entropy, participation_moments, row_overlap
from infattn_nb.nonlinearities import clip, identity, leaky_relu, relu, slope_moments
from infattn_nb.nonlinearities import tanh
from infattn_nb.numerics import psd_factor, wishart_factor
from infattn_nb.numerics.workers import threads_start
from infattn_nb.paper import sweep

PAIR = np.array([[1.0, 0.999], [0.999, 1.0]])
unknown = pytest.mark.filterwarnings(
    "ignore::infattn_nb.netsor.nodes.AssumptionWarning"
)


# tails


def tail_of_two_tokens(var, y):
    "log P(Y > y) of one head on two unit tokens: an integral over one difference."
    z = np.linspace(-60, 60, 400_001)
    a = 1 / (1 + np.exp(-np.sqrt(2) * var * z))
    u = a * a + (1 - a) ** 2
    return logsumexp(log_ndtr(-y / np.sqrt(u)) + norm.logpdf(z)) + np.log(z[1] - z[0])


@pytest.mark.parametrize("var", [0.1, 1.0, 4.0])
@pytest.mark.long
def test_the_stated_error_covers_far_tails(var):
    "At 30 sd and a score sd of .1 the value was 25,000 times too small, ± 1e-8 of it."
    layer = Attention(Tokens(2, identity, cov=np.eye(2)), var_q=var, var_k=var)
    law = layer.law().marginal(0)
    y = np.array([6, 10, 15, 20, 30, 40]) * law.std()
    value, error = law.sf(y, return_error=True)
    truth = np.exp([tail_of_two_tokens(var, x) for x in y])
    assert (abs(value - truth) <= 3 * error + 1e-10 * truth).all()


@pytest.mark.parametrize("var, far", [(0.1, 10), (1.0, 40), (4.0, 15)])
@pytest.mark.long
def test_the_stated_error_is_not_larger_than_it_must_be(var, far):
    layer = Attention(Tokens(2, identity, cov=np.eye(2)), var_q=var, var_k=var)
    law = layer.law().marginal(0)
    value, error = law.sf(far * law.std(), return_error=True)
    assert error < 1e-6 * value


# infinitely many heads


@pytest.mark.slow
def test_infinitely_many_heads_are_the_average_of_one():
    "The variance was that of a thousand heads: 3.8 % off, its error zero."
    layer = Attention(Tokens(150, identity, cov=np.eye(150)), heads=np.inf, var_q=4.0)
    law = layer.law().marginal(0)
    many = Attention(layer.tokens, heads=10**9, var_q=4.0).law().marginal(0)
    value, error = law.var(return_error=True)
    assert abs(value - many.var()) <= 3 * error + 1e-8 * value
    assert error < 1e-6 * value


# quadratures


@unknown
def test_a_program_adds_the_errors_of_its_functions():
    "Two functions, each tanh(30x): .96240 ± 0 for .96083."
    p = Program()
    u, v = p.inputs(PAIR)
    x = p.nonlin(lambda h: np.tanh(30 * h), u)
    y = p.nonlin(lambda h: np.tanh(30 * h), v)
    value, error = limit(p, 16).second_moment(x, y, return_error=True)
    assert abs(value - steep_moment()) <= error < 0.1


@unknown
def test_a_program_raises_where_too_little_is_known():
    p = Program()
    u, v = p.inputs(PAIR)
    x = p.nonlin(lambda h: np.sin(50 * h), u)
    y = p.nonlin(lambda h: np.sin(50 * h), v)
    W = p.matrix()
    g, h = W @ x, W @ y
    with pytest.raises(ValueError, match="second moments that 400 Hermite"):
        limit(p, 16).second_moment(g, h)


def squared_relu(x):
    return np.maximum(x, 0) ** 2


@pytest.mark.parametrize("ρ", [0.5, -0.3, 0.0])
def test_series_of_a_function_with_a_kink_in_its_derivative(ρ):
    "They were 1.4e-6 off: no grid point fell on the kink."
    C = np.array([[1.0, ρ], [ρ, 1.0]])
    β, _ = slope_moments(Nonlinearity(squared_relu), C)
    np.testing.assert_allclose(β, 4 * relu.dual(C), rtol=0, atol=1e-11)


def test_a_function_with_a_kink_at_zero_is_as_exact_as_its_closed_form():
    C = np.array([[2.0, 0.7], [0.7, 1.0]])
    own = Nonlinearity(lambda x: np.maximum(x, 0.0) + 0.1 * np.minimum(x, 0.0))
    np.testing.assert_allclose(own.dual(C), leaky_relu(0.1).dual(C), rtol=1e-13)


# what is shared


def wrong(a, b, c):
    return 0.76 + 0 * c


def test_nonlinearities_are_equal_by_all_that_they_know():
    "With the same function and a wrong closed form `tanh` itself answered .758."
    other = Nonlinearity(np.tanh, "tanh", 1, 1 / 3, 1.0, closed_form=wrong)
    assert other != tanh
    layers = [Attention(Tokens(2, phi, np.eye(2)), var_q=0.0) for phi in (other, tanh)]
    variances = [layer.law().marginal(0).var() for layer in layers]
    np.testing.assert_allclose(
        variances, [0.76, tanh.dual(np.eye(2))[0, 0] / 2], rtol=1e-9
    )
    assert clip(2.0) == clip(2.0)
    assert hash(clip(2.0)) == hash(clip(2.0))


def data():
    rng = np.random.default_rng(0)
    return rng.standard_normal((8, 4, 2)), rng.standard_normal(8)


MODELS = [
    partial(AttentionRegressor, n_particles=16, n_islands=2),
    partial(AttentionRegressor, heads=np.inf),
    partial(AttentionDescent, max_iter=5, n_networks=2),
    partial(CircuitDescent, max_iter=5, n_networks=2),
    partial(AttentionDescent, max_iter=5, n_networks=2, heads=np.inf),
]


@pytest.mark.filterwarnings("ignore:the posterior is rough:RuntimeWarning")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.long
def test_a_mask_that_changes_later_changes_no_prediction(model):
    X, y = data()
    mask = np.tri(4, dtype=bool)
    fitted = model(mask=mask, readout=1, random_state=0).fit(X, y)
    before = fitted.predict(X)
    mask[:] = True
    np.testing.assert_array_equal(fitted.predict(X), before)
    other = model(mask=mask, readout=1, random_state=0).fit(X, y).predict(X)
    assert not np.allclose(other, before)


# what is no covariance, no Wishart law


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_singular_matrices_have_one(rank):
    rng = np.random.default_rng(rank)
    G = rng.standard_normal((500, 6, rank))
    S = np.moveaxis(G @ G.mT, 0, -1)
    L = psd_factor(S)
    np.testing.assert_allclose(np.einsum("ikn,jkn->ijn", L, L), S, atol=1e-5 * S.max())


def test_broken_degrees_of_freedom():
    "Below q − 1 a Wishart law needs whole ones: mean diagonal 1, 1, .8, .8."
    rng = np.random.default_rng(0)
    for df in (2.0, 3.5):
        F = wishart_factor(np.eye(4)[..., None], df, rng, (40_000,))
        diagonal = np.einsum("ikn,ikn->in", F, F).mean(1)
        np.testing.assert_allclose(diagonal, 1, atol=6 * np.sqrt(2 / df / 40_000))


# scores


def fitted_once(**options):
    X, y = data()
    return AttentionDescent(max_iter=5, n_networks=2, random_state=0, **options).fit(
        X, y
    ), X


def test_scores_take_what_has_the_shape_of_the_predictions():
    model, X = fitted_once()
    _, y = data()
    assert model.score(X, y[:, None]) == model.score(X, y)
    for other in (np.stack([y, y], 1), y[:4], None):
        with pytest.raises(ValueError, match="`y` must"):
            model.score(X, other)


def test_scores_of_classes():
    X, y = data()
    model = AttentionDescent(max_iter=5, n_networks=2, random_state=0, loss="logistic")
    model.fit(X, y > 0)
    share = (model.predict(X) == (y > 0)).mean()
    assert model.score(X, y > 0) == model.score(X, (y > 0)[:, None]) == share
    with pytest.raises(ValueError, match="`y` must have the predictions' shape"):
        model.score(X, [True])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.score(X, y > 0, np.ones(3))


def test_every_position_with_two_outputs_is_scored():
    X, _ = data()
    Y = np.random.default_rng(1).standard_normal((8, 4, 2))
    model = CircuitDescent(
        1, max_iter=5, n_networks=2, readout="every", random_state=0
    ).fit(X, Y)
    left = ((Y - model.predict(X)) ** 2).sum(0)
    total = ((Y - Y.mean(0)) ** 2).sum(0)
    np.testing.assert_allclose(model.score(X, Y), (1 - left / total).mean())


@pytest.mark.filterwarnings("ignore:the posterior is rough:RuntimeWarning")
def test_constant_targets_keep_the_scale_of_the_prior():
    "Their standard deviation is 1e-17, by rounding: so was that of the predictions."
    X, _ = data()
    options = dict(n_particles=16, n_islands=2, random_state=0)
    model = AttentionRegressor(normalize_y=True, **options).fit(X, np.full(8, 0.1))
    assert model.predict(X, return_std=True)[1].min() > 1e-4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the posterior is rough:RuntimeWarning")
def test_targets_beyond_the_prior():
    X, y = data()
    model = AttentionRegressor(n_particles=16, n_islands=2, random_state=0)
    with pytest.raises(ValueError, match="`y` must have the size expected under"):
        model.fit(X, 1e9 * y)


# memory


def test_scores_of_any_size_have_an_answer_or_a_sentence():
    "OverflowErrors and 84 GiB before."
    for sd in (1e-300, 9e-5):
        small = sd**2 * (1 - 1 / 16)
        assert mean_entropy(16, sd) == np.log(16) - small / 2
        np.testing.assert_allclose(
            row_overlap(16, sd, 0.5), (1 + small / 2) / 16, rtol=1e-15
        )
        np.testing.assert_allclose(participation_moments(16, sd, 1) * 16, 1 + small)
    for ask in (participation_moments, lambda *x: row_overlap(*x, 0.5)):
        with pytest.raises(ValueError, match=r"`score_sd` must be in"):
            ask(2, 1e300)


def test_both_ways_of_small_scores_agree():
    below, above = 0.999e-4, 1.001e-4
    for ask in (
        mean_entropy,
        lambda s, sd: row_overlap(s, sd, 0.5),
        lambda s, sd: participation_moments(s, sd, 1)[0],
    ):
        np.testing.assert_allclose(ask(7, below), ask(7, above), rtol=1e-10)


# warnings


@pytest.mark.parametrize("ask", ["fit", "logpdf", "limit"])
@pytest.mark.long
def test_warnings_name_the_line_of_the_caller(ask):
    X, y = data()

    def weak():
        return AttentionRegressor(
            n_particles=8, n_islands=2, n_moves=1, alpha=1e-4, random_state=0
        ).fit(X, 10 * y)

    def program():
        p = Program()
        (h,) = p.inputs([[1.0]])
        p.matrix() @ p.nonlin(lambda x: np.tanh(x), h)
        return limit(p)

    law = Attention(Tokens(4, identity), heads=3, head_width=2).law()
    asked = dict(fit=weak, logpdf=partial(law.logpdf, [9.0] * 4), limit=program)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        asked[ask]()
    assert found
    assert {w.filename for w in found} == {__file__}


# one thread alone


def some_numbers():
    layer = Attention(Tokens(3, identity), heads=2)
    yield layer.law(64).rvs(10_000, 0).sum()
    yield layer.law().cov(10_000)[0, 1]
    X = np.random.default_rng(0).standard_normal((6, 3, 2))
    model = AttentionRegressor(n_particles=128, n_islands=2, random_state=0)
    yield model.fit(X, X[:, 0, 0]).predict(X).sum()
    yield sweep("fig2b", trials=1, samples=256)["y"].sum()
    yield (
        Transformer.uniform(np.eye(3), layers=2, heads=2).chain(8, 64, rng=0).gram.sum()
    )


@pytest.mark.filterwarnings("ignore:the posterior is rough:RuntimeWarning")
@pytest.mark.long
def test_where_threads_cannot_start_the_numbers_are_the_same(monkeypatch):
    "As in a browser (Pyodide), for which a thread that raises stands here."

    def start(thread):
        rejected_threads.append(thread)
        raise RuntimeError("can't start new thread")

    threaded, rejected_threads = list(some_numbers()), []
    monkeypatch.setattr(threading.Thread, "start", start)
    threads_start.cache_clear()
    try:
        assert list(some_numbers()) == threaded
        assert rejected_threads
    finally:
        threads_start.cache_clear()
