"""Gradient descent on the layer: against explicit weights and torch, step for step and
in law; the limits of width and heads; Langevin dynamics against Bayes; one sentence
for bad input.
"""

from importlib import import_module

import numpy as np
import pytest
from conftest import nightly
from descent_cases import SMALL, data, least_p, softmax
from numpy.random import SeedSequence, default_rng
from scikit_learn import OneToken, check
from scipy.stats import linregress
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from infattn_nb import AttentionDescent, CircuitDescent
from infattn_nb.learning import embed_features
from infattn_nb.training.losses import batch_at

# --- the reference: weights, and backpropagation by hand


def draw_weights(rng, N, H, d, m, D):
    return [rng.standard_normal(shape) for shape in [(N, H, d, m)] * 3 + [(N, H, m, D)]]


def explicit(X, weights, c, mask=None, var_qk=1.0, var_vo=1.0):
    "Values (N, P, D) of the layer with these weights, and all that is met on the way."
    WQ, WK, WV, WO = weights
    H, m = WQ.shape[1], WQ.shape[3]
    Q, K, V = (np.einsum("psd,nhdm->nhpsm", X, W) for W in (WQ, WK, WV))
    G = np.sqrt(var_qk) * Q @ K.mT / np.sqrt(m)
    A = softmax(G if mask is None else np.where(mask, G, -np.inf))
    Y = np.sqrt(var_vo / (H * m)) * np.einsum("nhpim,nhmd->npid", A @ V, WO)
    return np.einsum("i,npid->npd", c, Y), (Q, K, V, A, G)


def explicit_gradients(X, weights, c, χ, mask=None, var_qk=1.0, var_vo=1.0):
    "Backpropagation through every matrix, term by term."
    WQ, WK, WV, WO = weights
    H, m = WQ.shape[1], WQ.shape[3]
    _, (Q, K, V, A, _) = explicit(X, weights, c, mask, var_qk, var_vo)
    dY = np.sqrt(var_vo / (H * m)) * np.einsum("i,npd->npid", c, χ)
    dWO = np.einsum("nhpim,npid->nhmd", A @ V, dY)
    dO = np.einsum("npid,nhmd->nhpim", dY, WO)
    dA = dO @ V.mT
    dG = A * (dA - (A * dA).sum(-1, keepdims=True)) * np.sqrt(var_qk / m)
    return [
        np.einsum("psd,nhpsm->nhdm", X, g) for g in (dG @ K, dG.mT @ Q, A.mT @ dO)
    ] + [dWO]


LOSSES = {
    "squared": (lambda f, y: 0.5 * ((f - y) ** 2).sum((1, 2)), lambda f, y: f - y),
    "logistic": (
        lambda f, y: np.log1p(np.exp(-(2 * y - 1) * f)).sum((1, 2)),
        lambda f, y: 1 / (1 + np.exp(-f)) - y,
    ),
    "softmax": (
        lambda f, y: -(y * np.log(softmax(f))).sum((1, 2)),
        lambda f, y: softmax(f) - y,
    ),
}


def explicit_descent(
    X,
    Y,
    weights,
    c,
    steps,
    rate,
    loss="squared",
    momentum=0.0,
    weight_decay=0.0,
    batches=None,
    **options,
):
    "Descent on every entry: values in the end, losses on the way."
    value, gradient = LOSSES[loss]
    weights, velocity = [w.copy() for w in weights], [np.zeros_like(w) for w in weights]
    losses = []
    for t in range(steps):
        k = np.arange(len(X)) if batches is None else batches(t)
        f, _ = explicit(X[k], weights, c, **options)
        losses.append(len(X) / len(k) * value(f, Y[k]))
        slopes = explicit_gradients(
            X[k], weights, c, len(X) / len(k) * gradient(f, Y[k]), **options
        )
        for w, v, g in zip(weights, velocity, slopes):
            v *= momentum
            v -= rate * (g + weight_decay * w)
            w += v
    f, _ = explicit(X, weights, c, **options)
    return f, np.array([*losses, value(f, Y)]).T, weights


HOW = {
    "plain": {},
    "momentum": dict(momentum=0.8),
    "decay": dict(weight_decay=0.3),
    "batches": dict(batch_size=4),
    "all": dict(momentum=0.6, weight_decay=0.1, batch_size=4),
}


def problem(loss, D=None):
    X, y = data(P=10, D=D)
    labels = (y > 0).astype(int) if loss == "logistic" else np.arange(10) % 3
    if loss == "squared":
        return X, y, y.reshape(10, -1)
    return (
        X,
        labels,
        labels[:, None].astype(float) if loss == "logistic" else np.eye(3)[labels],
    )


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("m", nightly([3, 7, 24], 24))
@pytest.mark.long
def test_step_for_step(m, loss, how):
    "100 steps, equal to 1e-9. Wide heads keep 2d = 6 columns of 7 or 24."
    X, y, Y = problem(loss)
    weights = draw_weights(default_rng(m), 3, 2, 3, m, Y.shape[1])
    model = AttentionDescent(
        2,
        0.7,
        1.3,
        head_width=m,
        readout="mean",
        mask="causal",
        loss=loss,
        init=weights,
        max_iter=100,
        learning_rate=0.01,
        tol=0.0,
        random_state=5,
        **HOW[how],
    ).fit(X, y)
    seed = SeedSequence(5).spawn(4)[1]
    options = dict(HOW[how])
    if batch := options.pop("batch_size", None):
        options["batches"] = lambda t: batch_at(10, batch, t, seed)
    f, losses, end = explicit_descent(
        X,
        Y,
        weights,
        np.full(4, 0.25),
        100,
        0.01,
        loss,
        mask=np.tri(4, dtype=bool),
        var_qk=0.7,
        var_vo=1.3,
        **options,
    )
    ours = model.values(X)
    moved = np.abs(
        f - explicit(X, weights, np.full(4, 0.25), np.tri(4, dtype=bool), 0.7, 1.3)[0]
    ).max()
    assert moved > 0.1
    np.testing.assert_allclose(
        ours[..., None] if ours.ndim == 2 else ours, f, atol=1e-9
    )
    np.testing.assert_allclose(model.loss_[:, -1], losses[:, -1], atol=1e-8)
    # the others are of all sequences, also with batches
    between = np.arange(101) % 50 > 0
    np.testing.assert_allclose(model.loss_[:, between], losses[:, between], atol=1e-8)
    # sequences that were not in the training
    fresh = default_rng(9).standard_normal((5, 4, 3))
    f, (*_, G) = explicit(fresh, end, np.full(4, 0.25), np.tri(4, dtype=bool), 0.7, 1.3)
    ours = model.values(fresh)
    np.testing.assert_allclose(
        ours[..., None] if ours.ndim == 2 else ours, f, atol=1e-9
    )
    np.testing.assert_allclose(model.scores(fresh), G, atol=1e-8)


# --- in law: nothing of size m is drawn


@pytest.mark.power("distribution functions .08 apart")
@pytest.mark.parametrize("m", nightly([1, 3, 7, 24], 1, 7, 24))
@pytest.mark.long
def test_in_law(m):
    "1,500 networks of either kind: values, scores, losses of 30 steps."
    X, y = data(P=4, d=2)
    how = dict(
        var_qk=0.7,
        var_vo=1.3,
        head_width=m,
        learning_rate=0.02,
        max_iter=30,
        tol=0.0,
        n_networks=1_500,
    )
    model = AttentionDescent(2, **how, random_state=1).fit(X, y)
    weights = draw_weights(default_rng(2), 1_500, 2, 2, m, 1)
    c = np.eye(4)[3]
    f, losses, end = explicit_descent(
        X, y[:, None], weights, c, 30, 0.02, var_qk=0.7, var_vo=1.3
    )
    f0, (*_, G0) = explicit(X, weights, c, None, 0.7, 1.3)
    G = explicit(X, end, c, None, 0.7, 1.3)[1][-1]
    pairs = [(model.loss_[:, t], losses[:, t]) for t in (0, 5, 30)]
    pairs += [(model.values(X)[:, p], f[:, p, 0]) for p in range(4)] + [
        (model.values(X, "start")[:, 0], f0[:, 0, 0])
    ]
    pairs += [
        (model.scores(X, when)[:, 0, 0, j], g[:, 0, 0, 3, j])
        for when, g in (("start", G0), ("end", G))
        for j in range(4)
    ]
    assert least_p(pairs) > 1e-6
    wrong = AttentionDescent(2, **how | dict(learning_rate=0.01), random_state=1).fit(
        X, y
    )  # half the rate
    assert least_p([(wrong.loss_[:, t], losses[:, t]) for t in (5, 30)]) < 1e-6
    if m == 1:  # another width is another law
        wide = AttentionDescent(2, **how | dict(head_width=np.inf), random_state=1).fit(
            X, y
        )
        assert (
            least_p([(wide.scores(X)[:, 0, 0, j], G[:, 0, 0, 3, j]) for j in range(4)])
            < 1e-6
        )


# --- m → ∞


def meeting(rng, B, ζ, m):
    "Normal weights of width m with given products B (N, H, d, d) and ζ (N, H, d, D)."

    def pair(J):
        right = rng.standard_normal((*J.shape[:2], J.shape[3], m))
        free = rng.standard_normal((*J.shape[:2], J.shape[2], m))
        inverse = np.linalg.inv(right @ right.mT)
        return free - free @ right.mT @ inverse @ right + np.sqrt(
            m
        ) * J @ inverse @ right, right

    Q, K = pair(B)
    V, O = pair(ζ)
    return Q, K, V, O.mT


WIDTHS = 16 * 10 ** np.arange(5)


def distances(widths, **options):
    """Largest difference of scores and of values from the infinite width, by width:
    medians of 64 networks. And of half the rate at infinite width.
    """
    X, y = data(P=5, s=4, d=2)
    rng = default_rng(3)
    B, ζ = rng.standard_normal((64, 1, 2, 2)), rng.standard_normal((64, 1, 2, 1))
    how = (
        dict(var_qk=0.5, learning_rate=0.02, max_iter=40, tol=0.0, random_state=0)
        | options
    )
    wide = AttentionDescent(init=(B, ζ), **how).fit(X, y)

    def apart(model):
        scores, values = (
            model.scores(X) - wide.scores(X),
            model.values(X) - wide.values(X),
        )
        return [
            np.median(np.abs(scores).max((1, 2, 3))),
            np.median(np.abs(values).max(1)),
        ]

    rows = []
    for m in widths:
        model = AttentionDescent(init=meeting(rng, B, ζ, m), head_width=m, **how).fit(
            X, y
        )
        np.testing.assert_allclose(
            model.scores(X, "start"), wide.scores(X, "start"), atol=1e-8
        )
        rows.append(apart(model))
    half = AttentionDescent(
        init=(B, ζ), **how | dict(learning_rate=how["learning_rate"] / 2)
    ).fit(X, y)
    return np.array(rows), apart(half)


OPTIONS = {
    "plain": {},
    "momentum": dict(momentum=0.5, learning_rate=0.01),
    "decay": dict(weight_decay=0.2, momentum=0.3, learning_rate=0.01),
    "lazy": dict(linearized=True, learning_rate=0.001, max_iter=200),
    "batches": dict(batch_size=3, learning_rate=0.01),
}


@pytest.mark.power("a factor 2 in the rate of the limit")
@pytest.mark.parametrize("name", nightly(OPTIONS, "momentum", "decay"))
@pytest.mark.parametrize("decades", nightly([3, 4], 4))
@pytest.mark.long
def test_the_distance_to_infinite_width_falls_like_a_root(decades, name):
    "The merged flow without the factor 2 stays away."
    widths = WIDTHS[: decades + 1]
    off, half = distances(widths, **OPTIONS[name])
    for k in (0, 1):
        slope = linregress(np.log(widths), np.log(off[:, k])).slope
        assert -0.62 < slope < -0.38, off
        assert half[k] > 10 * off[-1, k]


# --- H → ∞


@pytest.mark.slow
def test_an_answer_does_not_depend_on_its_batch():
    "The start was redrawn row by row: −1.586 or −1.921."
    X, y = data()
    fresh = data(P=9, seed=3)[0]
    for options in (dict(), dict(loss="logistic", momentum=0.5)):
        model = AttentionDescent(
            np.inf, n_networks=3, max_iter=20, random_state=0, **options
        ).fit(X, y > 0 if options else y)
        for when in ("start", "end"):
            together = model.values(fresh, when)
            for k in ([4], [8, 0], slice(3, 7)):
                np.testing.assert_allclose(
                    model.values(fresh[k], when), together[:, k], rtol=1e-9, atol=1e-12
                )
        np.testing.assert_allclose(
            model.values(fresh[::-1])[:, ::-1], together, rtol=1e-9, atol=1e-12
        )
        more = AttentionDescent(
            np.inf,
            n_networks=5,
            max_iter=20,
            random_state=0,
            learning_rate=model.learning_rate_,
            **options,
        ).fit(X, y > 0 if options else y)
        np.testing.assert_allclose(
            more.values(fresh)[:3], together, rtol=1e-9, atol=1e-12
        )  # network 2 is the same among three and among five


# --- noise gives Bayes


def brute_posterior(X, y, alpha):
    "d = 1, one head: posterior of B on a grid; moments of f, weights."
    B = np.linspace(-8, 8, 3201)
    # (grid, P, s)
    A = softmax(B[:, None, None] * X[None, :, -1:, 0] * X[None, :, :, 0])
    Z = (A * X[None, :, :, 0]).sum(2)
    precision = 1 + (Z**2).sum(1) / alpha
    mean = (Z @ y) / alpha / precision
    ℓ = -0.5 * B**2 - 0.5 * np.log(precision) + 0.5 * precision * mean**2
    w = np.exp(ℓ - ℓ.max())
    w = w / w.sum()
    f = mean[:, None] * Z
    first = w @ f
    return (
        first,
        w @ (f**2 + Z**2 / precision[:, None]) - first**2,
        np.einsum("b,bps->ps", w, A),
        (B, w),
    )


NOISY = dict(weight_decay=1.0, temperature=1.0, learning_rate=0.01, max_iter=300)


def two_rates(statistics, X, y, networks, **options):
    """Means of statistics (networks, k) under Langevin dynamics at a rate that has gone
    to zero, and their standard errors: networks are independent, each gives its last
    step alone.

    A step of size η leaves a bias proportional to η. Twice the mean at half the
    rate, less the mean at the rate, is without it.
    """
    how = NOISY | dict(n_networks=networks, random_state=3) | options
    full, half = (
        statistics(
            AttentionDescent(
                **how
                | dict(
                    learning_rate=how["learning_rate"] / k,
                    max_iter=k * how["max_iter"],
                    random_state=how["random_state"] + k,
                )
            ).fit(X, y)
        )
        for k in (1, 2)
    )
    return 2 * half.mean(0) - full.mean(0), np.sqrt(
        (4 * half.var(0) + full.var(0)) / networks
    )


def unit_data(d):
    """Six sequences of three bounded tokens, of mean square length one: no direction is
    so steep that a step's second order counts, no minimum so deep that networks stay
    there.
    """
    rng = default_rng(2)
    X = rng.uniform(-1, 1, (6, 3, d))
    return X / np.sqrt((X**2).sum(2).mean()), rng.standard_normal(6)


def about(f, mean, var):
    "Values, squares about the posterior's means, and those of all together."
    square = (f - mean) ** 2
    return np.concatenate([f, square, (square / var).mean(1, keepdims=True)], axis=1)


@pytest.mark.slow
@pytest.mark.power("a temperature 1.3 times too high")
@pytest.mark.parametrize("momentum", nightly([0.0, 0.8], 0.8))
def test_langevin_against_quadrature(momentum, networks=9_000):
    "Moments, weights and quantiles of the score of many networks."
    X, y = unit_data(1)
    mean, var, weights, (B, w) = brute_posterior(X, y, 1.0)
    ends = B[np.searchsorted(np.cumsum(w), (0.05, 0.25, 0.5, 0.75, 0.95))]

    def statistics(model):
        G = model.scores(X)[:, 0]
        form = G[:, 0, 0] / (X[0, -1, 0] * X[0, 0, 0])
        return np.concatenate(
            [
                about(model.values(X), mean, var),
                softmax(G).reshape(networks, -1),
                form[:, None] < ends,
            ],
            axis=1,
        )

    truth = np.concatenate(
        [mean, var, [1.0], weights.ravel(), [w[B < b].sum() for b in ends]]
    )

    def off(**options):
        found, error = two_rates(
            statistics,
            X,
            y,
            networks,
            momentum=momentum,
            learning_rate=NOISY["learning_rate"] * (1 - momentum),
            **options,
        )
        return (np.abs(found - truth) / error).max()

    assert off() < 6
    assert momentum or off(temperature=1.3) > 6


def test_the_predictive_of_noisy_descent():
    X, y = unit_data(1)
    model = AttentionDescent(n_networks=50, random_state=0, **NOISY).fit(X, y)
    np.testing.assert_allclose(model.predictive(X).var(), model.values(X).var(0) + 1)


# --- torch


OF_TORCH = {
    "plain": dict(learning_rate=0.02),
    "momentum": dict(learning_rate=0.01, momentum=0.8),
    "decay": dict(learning_rate=0.02, momentum=0.5, weight_decay=0.1),
}


@pytest.mark.parametrize("case", OF_TORCH)
def test_torch_module_step_for_step(case):
    "Losses, outputs and weights; other modules are rejected."
    torch = pytest.importorskip("torch")
    import torch_training as theirs

    losses, values, weights = theirs.run(case)
    X, y = theirs.problem()
    how = dict(max_iter=100, tol=0.0) | OF_TORCH[case]
    model = AttentionDescent.from_torch(theirs.module(), **how).fit(X, y)
    np.testing.assert_allclose(model.loss_[0], losses, rtol=1e-9)
    np.testing.assert_allclose(model.values(X)[0], values, atol=1e-9)
    np.testing.assert_allclose(model.attention(X), weights, atol=1e-9)
    assert losses[-1] < 0.8 * losses[0]
    for wrong, words in (
        (torch.nn.MultiheadAttention(8, 2), "no biases"),
        (torch.nn.MultiheadAttention(8, 2, bias=False, dropout=0.1), "no dropout"),
        (torch.nn.Linear(2, 2), "MultiheadAttention"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            AttentionDescent.from_torch(wrong)


# --- networks that diverge, batches of one's own


@pytest.mark.filterwarnings("ignore:1 of 4 networks diverged", "ignore:overflow")
@pytest.mark.parametrize(
    "how",
    (
        {},
        dict(momentum=0.8),
        dict(temperature=0.01, weight_decay=0.1),
        dict(batch_size=4),
        dict(batch_size=4, batches="own"),
        dict(linearized=True),
        dict(merged=True),
        dict(merged=True, batch_size=4, batches="own"),
    ),
    ids=str,
)
@pytest.mark.long
def test_one_network_that_diverges_leaves_the_others_alone(how, m=5):
    """The last of four begins with much larger weights: the others are those of
    a run of three, the last is marked, and no mean contains it.
    """
    X, y = data(P=10)
    weights = draw_weights(default_rng(0), 4, 2, 3, m, 1)
    how = dict(how)
    merged = how.pop("merged", False)
    for w in weights[2:] if merged else weights:
        w[-1] *= 1e95 if merged else 30
    common = dict(head_width=np.inf if merged else m)
    common |= dict(learning_rate=0.02, max_iter=70, random_state=0, readout="mean")
    four, three = (
        AttentionDescent(2, init=[w[:n] for w in weights], **common, **how).fit(X, y)
        for n in (4, 3)
    )
    assert four.diverged_.tolist() == [False] * 3 + [True]
    assert four.loss_.shape == (4, 71)
    assert not three.diverged_.any()
    assert np.isnan(four.loss_[-1, -1])
    assert np.isfinite(four.loss_[:3]).all()
    near = dict(rtol=1e-9, atol=1e-9)
    noisy = "temperature" in how  # noise is drawn for all networks of a block
    for name, rows in dict(values=X, scores=X, tangent=X[:2]).items():
        ours, alone = (getattr(model, name)(rows) for model in (four, three))
        assert np.isnan(ours[-1]).all()
        assert noisy or np.allclose(ours[:3], alone, **near)
        start = getattr(four, name)(rows, when="start")
        assert merged or np.isfinite(start).all()
    mean = four.values(X)[:3].mean(0)
    for found in (four.predict(X), four.predictive(X, noise=0.1).mean()):
        np.testing.assert_allclose(found, mean, **near)
    assert np.isfinite(four.attention(X)).all()
    assert noisy or np.allclose(four.attention(X), three.attention(X), **near)


@pytest.mark.filterwarnings("ignore:.*networks diverged")
@pytest.mark.long
def test_what_diverges_is_marked_in_every_kind_of_network():
    "Deep networks, infinitely many heads, classes; and a rate that most cannot bear."
    X, y = data()
    deep = dict(layers=2, learning_rate=0.02, max_iter=60, random_state=0)
    many, few = (CircuitDescent(n_networks=n, **deep).fit(X, y) for n in (60, 20))
    assert 0 < many.diverged_.mean() < 0.5
    np.testing.assert_array_equal(many.diverged_[:20], few.diverged_)
    np.testing.assert_allclose(many.values(X)[:20], few.values(X), rtol=1e-6, atol=1e-9)
    size = many.circuit_size()["value"][()]
    np.testing.assert_array_equal(np.isnan(size), many.diverged_)
    assert np.isfinite(many.predict(X)).all()
    assert np.isfinite(many.score(X, y))
    model = AttentionDescent(n_networks=5, loss="logistic", random_state=0, max_iter=20)
    model.fit(X, (y > 0).astype(int))
    model.diverged_[[1, 3]] = True
    of_others = 1 / (1 + np.exp(-model.values(X)[[0, 2, 4]]))
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], of_others.mean(0))
    with pytest.raises(ValueError, match="most networks bounded, got 5, at which"):
        AttentionDescent(np.inf, learning_rate=5.0, max_iter=60).fit(X, y)


def test_a_rate_that_is_found_keeps_all_networks():
    X, y = data()
    model = AttentionDescent(
        head_width=1, var_qk=2.0, n_networks=500, max_iter=120, random_state=0
    ).fit(X, y)
    assert not model.diverged_.any()
    assert np.isfinite(model.loss_).all()
    with pytest.warns(UserWarning, match="of 500 networks diverged at rate 0.1"):
        model = clone(model).set_params(learning_rate=0.1).fit(X, y)
    assert 0 < model.diverged_.mean() < 0.5


def test_networks_do_not_depend_on_how_many_there_are():
    X, y = data()
    few, many = (
        AttentionDescent(
            n_networks=n, learning_rate=0.01, max_iter=20, head_width=5, random_state=0
        ).fit(X, y)
        for n in (2, 7)
    )
    np.testing.assert_allclose(few.values(X), many.values(X)[:2], rtol=1e-12)


@pytest.mark.parametrize("width", (3, np.inf))
def test_ragged_sequences(width):
    "Padding changes nothing; negative positions count from each end."
    X, y = data(P=8, s=5, d=3)
    lengths = [5, 3, 4, 2, 5, 4, 3, 2]
    some = [x[:k] for x, k in zip(X, lengths)]
    for readout in (-1, "mean", 1):
        model = AttentionDescent(
            2,
            head_width=width,
            readout=readout,
            learning_rate=0.02,
            max_iter=30,
            n_networks=2,
            random_state=0,
        ).fit(some, y)
        for p in (1, 3):
            np.testing.assert_allclose(
                model.values(some)[:, p], model.values(some[p][None])[:, 0], rtol=1e-9
            )
        np.testing.assert_allclose(
            model.tangent(some)[0], model.tangent(some)[0].T, atol=1e-9
        )
        assert model.attention(some).shape[:2] == (8, 5)


@pytest.mark.parametrize("width", (4, np.inf))
def test_tangent_kernel_is_what_a_step_does(width):
    X, y = data(D=2)
    fresh = data(P=3, seed=7)[0]
    model = AttentionDescent(
        2,
        head_width=width,
        learning_rate=1e-6,
        max_iter=1,
        n_networks=3,
        random_state=0,
    ).fit(X, y)
    Θ = model.tangent(fresh, X, when="start")
    f0 = model.values(X, "start")
    move = -np.einsum("nqdpe,npe->nqd", Θ, f0 - y)
    np.testing.assert_allclose(
        (model.values(fresh) - model.values(fresh, "start")) / 1e-6,
        move,
        rtol=2e-3,
        atol=2e-3,
    )


def test_classes():
    "Labels of any kind; probabilities; more classes."
    rng = default_rng(0)
    X = rng.standard_normal((60, 3, 4))
    X[:, :, 0] = rng.choice([-1, 1], 60)[:, None]
    labels = np.where(X[:, 0, 0] > 0, "yes", "no")
    model = AttentionDescent(2, loss="logistic", max_iter=300, random_state=0).fit(
        X[:40], labels[:40]
    )
    assert model.score(X[40:], labels[40:]) > 0.8
    assert set(model.predict(X)) <= {"yes", "no"}
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(1), 1)
    assert (model.classes_ == ["no", "yes"]).all()
    assert model.values(X).shape == (16, 60)
    three = np.digitize(X[:, 0, 1], [-0.5, 0.5])
    model = AttentionDescent(
        2, loss="softmax", max_iter=500, n_networks=4, random_state=0
    ).fit(X, three)
    assert model.predict_proba(X).shape == (60, 3)
    assert model.score(X, three) > 0.7


@pytest.mark.filterwarnings("error")
def test_targets_of_any_size():
    """A loss is tried at the size of its targets: half squares of 1e9 lose all digits
    of a small change. Tokens beyond all sizes are rejected without a warning.
    """
    X, y = data()

    class Half:
        def value(self, f, y):
            return 0.5 * ((f - y) ** 2).sum((1, 2))

        def gradient(self, f, y):
            return f - y

    for size in (1e-9, 1e9, np.array([0.0, 1e9] * 3)):
        ours, own = (
            AttentionDescent(loss=loss, max_iter=20, random_state=0).fit(X, size * y)
            for loss in ("squared", Half())
        )
        np.testing.assert_array_equal(ours.loss_, own.loss_)
    AttentionDescent(max_iter=20, random_state=0).fit(X, 1e98 * y)
    with pytest.raises(ValueError, match="squares below 1e100"):
        AttentionDescent().fit(1e200 * X, y)


def test_a_stable_rate_is_found_and_said(capsys):
    X, y = data()
    model = AttentionDescent(3, max_iter=400, random_state=0, verbose=True).fit(
        5 * X, y
    )
    said = capsys.readouterr().out
    assert f"rate {model.learning_rate_:.3g}" in said
    assert "16 networks of 36 numbers" in said
    assert (model.loss_[:, -1] < model.loss_[:, 0]).all()
    assert np.isfinite(model.loss_).all()


def made(**options):
    "The class that has these parameters."
    return (CircuitDescent if "layers" in options else AttentionDescent)(**options)


@pytest.mark.filterwarnings("error")
def test_tokens_of_any_size_train_or_are_rejected():
    """Products of products of numbers below 1e-75 are zero: such tokens were not
    trained, without a word. Where no rate is small enough it is not None that helps.
    """
    X, y = data()

    def loss(size, **options):
        model = made(max_iter=20, n_networks=2, random_state=0, **options)
        return model.fit(size * X, y).loss_

    deep = dict(heads=2, layers=2, residual=False)
    for how in (dict(heads=2), deep, dict(heads=np.inf)):
        np.testing.assert_allclose(loss(1e-49, **how), loss(1e-20, **how), rtol=1e-9)
    assert (loss(0.0, heads=2) == loss(0.0, heads=2)[:, :1]).all()  # zeros are tokens
    with pytest.raises(
        ValueError, match="`X` must be zero or contain a number of at least 1e-50"
    ):
        loss(1e-52)
    with pytest.raises(
        ValueError,
        match="`learning_rate` must keep.*scale X to tokens of length about 1",
    ):
        loss(1e-20, heads=2, head_width=8)


def test_it_stops_when_the_loss_does():
    X, y = data(P=3)
    model = AttentionDescent(4, max_iter=100_000, n_networks=3, random_state=0).fit(
        X, y
    )
    assert model.n_iter_ < 50_000
    assert model.loss_.shape == (3, model.n_iter_ + 1)
    assert model.loss_[:, -1].max() < 0.01


# --- scikit-learn


@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_clients():
    rng = default_rng(0)
    table = rng.standard_normal((24, 3))
    y, labels = table[:, 0], table[:, 0] > 0
    regressor, classifier = (
        AttentionDescent(**SMALL),
        AttentionDescent(loss="logistic", **SMALL),
    )
    assert is_regressor(regressor)
    assert is_classifier(classifier)
    assert clone(classifier).get_params() == classifier.get_params()
    pipe = make_pipeline(
        StandardScaler(), FunctionTransformer(embed_features), classifier
    )
    assert cross_val_score(pipe, table, labels, cv=3, scoring="neg_log_loss").shape == (
        3,
    )
    search = GridSearchCV(
        regressor, {"heads": [1, 2], "head_width": [4, np.inf]}, cv=2
    ).fit(embed_features(table), y)
    assert search.predict(embed_features(table)).shape == (24,)


# --- stored tables


@pytest.mark.slow
def test_stored_rows():
    "One data set each, computed again; chaotic runs where rounding is alike."
    training = import_module("training")
    fresh = training.run_recall(0, "decay 0.01")
    row = training.stored_row("recall", seed=0, model="decay 0.01")
    assert fresh["single"] == pytest.approx(row["single"], rel=0.1)
    assert fresh["weight"] == pytest.approx(row["weight"], abs=0.05)
    fresh = training.run_recall(1, "descent, H = ∞")
    row = training.stored_row("recall", seed=1, model="descent, H = ∞")
    for column in ("rmse", "single", "weight"):
        assert fresh[column] == pytest.approx(row[column], rel=1e-4)


class Table(OneToken, AttentionDescent):
    pass


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_scikit_learn_checks():
    check(
        Table(loss="softmax", n_networks=2, max_iter=200, random_state=0),
        40,
        "check_classifier_data_not_an_array",
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_checks_of_the_defaults():
    check_estimator(AttentionDescent())
    check_estimator(CircuitDescent())


@pytest.mark.parametrize("width", (3, np.inf))
def test_what_does_not_move(width):
    "One token has no scores; without their variance weights are uniform."

    def fitted(X, y, *more):
        how = dict(head_width=width, n_networks=2, max_iter=50, random_state=0)
        return AttentionDescent(*more, **how).fit(X, y)

    X, y = data(s=1)
    one = fitted(X, y)
    assert (one.loss_[:, -1] < one.loss_[:, 0]).all()
    np.testing.assert_allclose(one.attention(X), 1, rtol=1e-15)
    assert one.tangent(X).shape == (2, 6, 6)
    X, y = data()
    np.testing.assert_allclose(fitted(X, y, 2, 0.0).attention(X), 0.25)
    mute = fitted(X, y, 2, 1.0, 0.0)
    assert (mute.values(X) == 0).all()
    assert (mute.loss_ == mute.loss_[0, 0]).all()
    assert (fitted(0 * X, y).predict(0 * X) == 0).all()


def test_batches_are_not_stopped_early():
    "A loss that falls by less than `tol` stops the training, unless it is of a batch."
    X = np.random.default_rng(0).standard_normal((6, 3, 2))
    how = dict(learning_rate=0.01, max_iter=120, tol=1e3, random_state=0, verbose=False)
    steps = [
        AttentionDescent(**how, **batch).fit(X, X[:, 0, 0]).n_iter_
        for batch in (dict(), dict(batch_size=2))
    ]
    assert steps[0] < 120 == steps[1]
