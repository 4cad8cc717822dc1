"""Learning: evidence and posterior against brute force, the exact law, explicit
matrices, closed forms; calibration, determinism, bad input, scikit-learn as a
client.
"""

import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import ROUGH_POSTERIOR, nightly
from numpy.random import default_rng
from regressor_cases import MANY, brute, bump, data, layer_target, normal_grid, ragged
from regressor_cases import scalar_case
from scikit_learn import OneToken, check
from scipy.integrate import quad
from scipy.stats import kstest, multivariate_normal, norm
from sklearn import config_context
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from infattn_nb import Attention, AttentionRegressor, ScaleMixture, Tokens
from infattn_nb.distributions.scale_mixture import Mixture
from infattn_nb.learning.fitting import DIAL_RANGE
from infattn_nb.learning.layer_on_data import attend
from infattn_nb.learning.sequences import stacked
from infattn_nb.nonlinearities import identity
from infattn_nb.numerics import parallel
from infattn_nb.numerics.smc import borrowed_metric, cloud_at, hamiltonian_move
from infattn_nb.numerics.smc import leapfrog

pytestmark = ROUGH_POSTERIOR
ROOT = Path(__file__).parents[2]
DATA = ROOT / "nbs/data"
SMALL = dict(n_islands=2, n_particles=16, n_moves=2)


def expected(P, seed, scale):
    "Data as the model expects them: drawn from its prior, noise of variance .1."
    X, noise = data(P, 3, 2, seed=seed, scale=scale)
    prior = AttentionRegressor(2, random_state=7, **SMALL)
    return X, prior.sample_y(X, random_state=7)[:, 0] + 0.1**0.5 * noise


# --- brute force over the one or two latent numbers that matter


def cls_case():
    "Every sequence ends with one token: one query, two key directions."
    X, y = data(4, 3, 2, seed=3)
    X[:, -1] = [0.6, 0.8]
    g, w = normal_grid(2, 0.2)
    return (
        X,
        y,
        dict(readout=-1),
        brute(
            X, y, np.einsum("i,nj->nij", X[0, -1], g)[:, None], w, 0.2, np.eye(3)[-1]
        ),
        np.eye(3)[-1],
    )  # |query| = 1: its row of N is g


CASES = {
    "one head": lambda: scalar_case(1, -1),
    "two heads": lambda: scalar_case(2, 0, seed=1),
    "CLS query": cls_case,
    "mean pooling": lambda: scalar_case(1, "mean", seed=2),
    "three outputs": lambda: scalar_case(1, -1, D=3, seed=4),
    "causal mask": lambda: scalar_case(1, "mean", mask="causal", seed=5),
}


def jackknife(model, f):
    "Mean of f (..., M), and its error from leaving out islands."
    w, n = model.weights_, len(model.log_evidences_)
    parts = [
        (w[k].sum(), f[..., k] @ w[k]) for k in np.array_split(np.arange(len(w)), n)
    ]
    m, x = (np.stack(p) for p in zip(*parts))
    others = np.stack([(x.sum(0) - a) / (m.sum() - b) for a, b in zip(x, m)])
    return x.sum(0) / m.sum(), np.sqrt((n - 1) * others.var(0))


@pytest.mark.slow
@pytest.mark.power("evidence 2 to 8 % off, weights .02")
@pytest.mark.parametrize("name", nightly(CASES, "CLS query", "three outputs"))
def test_evidence_and_weights_are_those_of_quadrature(name):
    X, y, options, (exact, A), c = CASES[name]()
    m = AttentionRegressor(alpha=0.2, random_state=0, **options, **MANY).fit(X, y)
    assert (
        abs(m.log_marginal_likelihood_value_ - exact)
        < 10 * m.log_marginal_likelihood_error_
        < 0.5
    )
    latents = m.layer_.split(m.latents_)
    W = attend(m.layer_, m.layer_.view(stacked(X[:1]), leading=True), latents)[0]
    W = W.reshape(*W.shape[:2], m.heads, -1).mean(2)  # (R, s, M)
    mean, error = jackknife(m, W)
    assert (np.abs(mean - A[np.flatnonzero(c)]) < 10 * error + 1e-3).all()
    assert error.max() < 0.02
    np.testing.assert_allclose(
        m.attention(X[:1])[0], mean if m.readout == "mean" else mean[0], rtol=1e-9
    )


@pytest.mark.power("evidence 2 % off")
@pytest.mark.parametrize("H, readout", [(1, -1), (3, 0)])
@pytest.mark.long
def test_one_sequence_is_the_exact_law(H, readout):
    "P = 1: an average over the law of the layer's variance."
    X, y = data(1, 3, 3, seed=6)
    law = (
        Attention(Tokens(3, identity, X[0] @ X[0].T), heads=H, var_q=0.5, var_o=2.0)
        .law()
        .marginal(readout % 3)
    )
    exact = ScaleMixture(law.variances + 0.1, law.weights).logpdf(y[0])
    m = AttentionRegressor(
        H, var_qk=0.5, var_vo=2.0, alpha=0.1, readout=readout, random_state=1, **MANY
    ).fit(X, y)
    assert (
        abs(m.log_marginal_likelihood_value_ - exact)
        < 10 * m.log_marginal_likelihood_error_
        < 0.3
    )


@pytest.mark.power("predictive density 15 % off")
def test_chain_rule():
    "Evidence of P + 1 sequences − evidence of P = predictive log density."
    X, y = expected(6, seed=7, scale=0.8)
    less, more = (
        AttentionRegressor(2, alpha=0.1, random_state=k, **MANY).fit(X[:k], y[:k])
        for k in (5, 6)
    )
    law = less.predictive(X[5:])
    p, se = jackknife(
        less, norm.pdf(y[5], law.means[:, 0], np.sqrt(law.variances[:, 0]))
    )
    error = np.hypot(
        np.hypot(
            less.log_marginal_likelihood_error_, more.log_marginal_likelihood_error_
        ),
        se / p,
    )
    assert law.logpdf(y[5])[0] == pytest.approx(np.log(p), rel=1e-9)
    assert (
        abs(
            more.log_marginal_likelihood_value_
            - less.log_marginal_likelihood_value_
            - np.log(p)
        )
        < 10 * error
        < 1.5
    )


@pytest.mark.power("evidence 40 % off, weights .1, prediction .1")
@pytest.mark.parametrize("n", nightly([2, 32, 64], 64))
@pytest.mark.long
def test_finite_width_is_that_of_explicit_matrices(n):
    "Prior draws weighed by the likelihood, and Bartlett latents."
    X, y = data(4, 3, 2, seed=8, scale=0.8)
    x, α, B = X[3:], 0.3, 1000

    def batch(rng):
        # (B, 4, 3, n)
        Q, K, V = (X @ rng.standard_normal((B, 1, 2, n)) for _ in range(3))
        A = np.exp(np.einsum("bpn,bpjn->bpj", Q[:, :, -1], K) / np.sqrt(n))
        A /= A.sum(-1, keepdims=True)
        Z = np.einsum("bpj,bpjn->bpn", A, V) / np.sqrt(n)
        S = Z @ Z.mT
        C = S[:, :3, :3] + α * np.eye(3)
        solved = np.linalg.solve(C, np.tile(y[:3, None], (B, 1, 1)))[..., 0]
        L = np.exp(-0.5 * solved @ y[:3]) / np.sqrt(np.linalg.det(2 * np.pi * C))
        f = (S[:, 3, :3] * solved).sum(1)
        return L.mean(), (L * A[:, 3, 0]).mean(), (L * f).mean()

    parts = np.array([batch(g) for g in default_rng(0).spawn(32)])
    evidence, *means = parts.mean(0)
    others = (parts.sum(0) - parts) / 31
    se = np.sqrt(
        31
        * np.stack(
            [others[:, 0], others[:, 1] / others[:, 0], others[:, 2] / others[:, 0]]
        ).var(1)
    )
    m = AttentionRegressor(alpha=α, width=n, random_state=0, **MANY).fit(X[:3], y[:3])
    w = attend(
        m.layer_, m.layer_.view(stacked(x), leading=True), m.layer_.split(m.latents_)
    )[0, 0, 0]
    (weight, e1), (f, e2) = (
        jackknife(m, w),
        jackknife(m, m.predictive(x, noise=0).means[:, 0]),
    )
    assert (
        abs(m.log_marginal_likelihood_value_ - np.log(evidence))
        < 10 * np.hypot(m.log_marginal_likelihood_error_, se[0] / evidence)
        < 0.6
    )
    assert abs(weight - means[0] / evidence) < 10 * np.hypot(e1, se[1]) < 0.3
    assert abs(f - means[1] / evidence) < 10 * np.hypot(e2, se[2]) < 0.5


# --- closed forms


def ridge(F, G, y, alpha):
    "A Gaussian process with features F, G: log evidence, mean, deviation."
    C = F @ F.T + alpha * np.eye(len(F))
    W = np.linalg.solve(C, F @ G.T)
    return (
        multivariate_normal(cov=C).logpdf(y),
        W.T @ y,
        np.sqrt((G * G).sum(1) - np.einsum("qp,pq->q", G @ F.T, W)),
    )


@pytest.mark.parametrize(
    "options",
    [
        dict(scaling="linear"),
        dict(var_qk=0.0),
        dict(scaling="linear", heads=np.inf),
        dict(var_qk=0.0, heads=5),
    ],
)
def test_uniform_weights_are_regression_on_mean_tokens(options):
    X, y = data(6, 4, 3)
    exact = ridge(X.mean(1)[:4], X.mean(1)[4:], y[:4], 0.1)
    m = AttentionRegressor(alpha=0.1, random_state=0, **options).fit(X[:4], y[:4])
    for a, b in zip(
        (m.log_marginal_likelihood_value_, *m.predict(X[4:], return_std=True)), exact
    ):
        np.testing.assert_allclose(a, b, rtol=1e-9)


@pytest.mark.parametrize("heads", [1, 3, np.inf])
def test_one_token_is_linear_regression(heads):
    X, y = data(9, 1, 3)
    m = AttentionRegressor(heads, alpha=0.1, random_state=0, **SMALL).fit(X[:6], y[:6])
    exact = ridge(X[:6, 0], X[6:, 0], y[:6], 0.1)
    for a, b in zip(
        (m.log_marginal_likelihood_value_, *m.predict(X[6:], return_std=True)), exact
    ):
        np.testing.assert_allclose(a, b, rtol=1e-8)
    assert m.log_marginal_likelihood_error_ < 1e-9


@pytest.mark.power("covariances .03 off")
@pytest.mark.long
def test_infinitely_many_heads_are_the_gaussian_process_of_the_mean_covariance():
    X, y = expected(2, seed=10, scale=0.6)
    layer = Attention(
        Tokens(6, identity, X.reshape(6, 2) @ X.reshape(6, 2).T),
        mask=np.kron(np.eye(2, dtype=bool), np.ones((3, 3), dtype=bool)),
    )  # two sequences in one, that do not see each other
    S, error = layer.infinite_heads(return_error=True)
    S = S.covariances(1, 0)[0][np.ix_([2, 5], [2, 5])]
    m = AttentionRegressor(np.inf, alpha=0.1, random_state=0).fit(X, y)
    assert (
        abs(
            m.log_marginal_likelihood_value_
            - multivariate_normal(cov=S + 0.1 * np.eye(2)).logpdf(y)
        )
        < 10 * (m.log_marginal_likelihood_error_ + 10 * error.max())
        < 0.5
    )
    many = AttentionRegressor(256, alpha=0.1, random_state=0, **MANY).fit(X, y)
    assert (
        abs(many.log_marginal_likelihood_value_ - m.log_marginal_likelihood_value_)
        < 10 * many.log_marginal_likelihood_error_ + 0.05
    )


@pytest.mark.long
def test_powers_of_two_move_between_tokens_and_variances():
    "X → 2X with σ_Q²σ_K²/16 and σ_V²σ_O²/4 is the same model, to the last bit."
    X, y = data(5, 3, 2)
    a = AttentionRegressor(2, random_state=0, **SMALL).fit(X, y)
    b = AttentionRegressor(2, var_qk=1 / 16, var_vo=1 / 4, random_state=0, **SMALL).fit(
        2 * X, y
    )
    np.testing.assert_allclose(a.predict(X), b.predict(2 * X), rtol=1e-6)


@pytest.mark.power("standard deviation 12 % off; kurtosis .8")
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.long
def test_before_fit_it_is_the_prior(heads):
    X, _ = data(2, 3, 3)
    law = Attention(Tokens(3, identity, X[0] @ X[0].T), heads=heads).law().marginal(2)
    prior = AttentionRegressor(heads, random_state=0).predictive(X, noise=0)
    assert not prior.mean().any()
    v = prior.variances[:, 0]
    assert abs(v.mean() - law.var()) < 7 * v.std() / len(v) ** 0.5 < 0.5 * law.var()
    f = AttentionRegressor(heads, random_state=1).sample_y(X, 3000, random_state=2)[0]
    assert (
        abs((f**2).mean() - law.var())
        < 7 * (f**2).std() / 3000**0.5 + 7 * v.std() / 2048**0.5
    )


# --- prediction


def example():
    X, y = data(6, 4, 3, 2, seed=11, scale=0.6)
    return AttentionRegressor(
        2, alpha=0.05, random_state=0, n_islands=2, n_particles=128, n_moves=3
    ).fit(X, y)


@pytest.fixture(scope="module")
def fitted():
    return example()


@pytest.mark.long
def test_predictions_do_not_depend_on_company(fitted):
    X, _ = data(600, 4, 3)
    for method in (fitted.predict, fitted.attention):
        np.testing.assert_allclose(method(X)[590:595], method(X[590:595]), rtol=1e-9)


@pytest.mark.power("means .15 standard deviations off, covariances 20 %")
@pytest.mark.long
def test_samples_have_the_moments_of_the_predictions():
    fitted = example()
    X, _ = data(3, 4, 3, seed=1)
    f = fitted.sample_y(X, 5000, random_state=3)
    mean, std = fitted.predict(X, return_std=True)
    assert (np.abs(f.mean(-1) - mean) < 7 * std / 5000**0.5).all()
    v = (f - mean[..., None]) ** 2
    assert (np.abs(v.mean(-1) - std**2) < 7 * v.std(-1) / 5000**0.5).all()
    np.testing.assert_array_equal(f, fitted.sample_y(X, 5000, random_state=3))
    gp = AttentionRegressor(np.inf, random_state=0).fit(*data(4, 4, 3))
    g, (mean, std) = gp.sample_y(X, 5000), gp.predict(X, return_std=True)
    assert (np.abs(g.mean(-1) - mean) < 7 * std / 5000**0.5).all()
    assert (np.abs(g.std(-1) / std - 1) < 7 / 10_000**0.5).all()


def test_noise_is_added_once(fitted):
    X, _ = data(3, 4, 3)
    np.testing.assert_allclose(
        fitted.predictive(X).var(), fitted.predictive(X, noise=0).var() + 0.05
    )
    np.testing.assert_allclose(
        fitted.predictive(X, noise=0).std(), fitted.predict(X, return_std=True)[1]
    )


@pytest.mark.long
def test_mixture_against_integration():
    law = Mixture(
        np.array([[0.0], [1.0], [4.0]]),
        np.array([[1.0], [0.25], [2.0]]),
        np.array([0.5, 0.3, 0.2]),
    )
    moment = lambda f: quad(lambda y: f(y) * law.pdf(y)[0], -30, 30, limit=200)[0]
    m, v = law.mean()[0], law.var()[0]
    assert moment(lambda y: 1.0) == pytest.approx(1, rel=1e-8)
    assert moment(lambda y: y) == pytest.approx(m, rel=1e-8)
    assert moment(lambda y: (y - m) ** 2) == pytest.approx(v, rel=1e-8)
    assert moment(lambda y: (y - m) ** 4) / v**2 - 3 == pytest.approx(
        law.kurtosis()[0], rel=1e-6
    )
    assert quad(lambda y: law.pdf(y)[0], 3, 30)[0] == pytest.approx(
        law.sf(3.0)[0], rel=1e-8
    )
    assert law.cdf(3.0)[0] + law.sf(3.0)[0] == pytest.approx(1)
    assert law.sf(40.0)[0] == pytest.approx(0.2 * norm.sf(36 / 2**0.5), rel=1e-9, abs=0)


# --- particles


class Rough:
    "The bump, whose gradient between the ends of a move is wrong by a third."

    def __call__(self, z):
        return bump(z)

    def rough_slope(self, z):
        return bump(z)[1] / 1.5


class RoughEnds(Rough):
    "Here the likelihood is wrong, too: the moves lead elsewhere."

    def __call__(self, z):
        loglik, slope = bump(z)
        return loglik / 1.5, slope / 1.5


@pytest.mark.power("mean .03 off")
def test_rough_gradients_between_the_ends_change_no_law():
    def worst(target):
        "Largest deviation of the means, in standard errors."
        rng = default_rng(0)
        cloud = cloud_at(0.8 + rng.standard_normal((3, 20_000)) * 0.2**0.5, target)
        metric = borrowed_metric(rng.standard_normal((3, 20_000)), ((3, 1),))
        for _ in range(3):
            cloud, accepted = hamiltonian_move(cloud, target, 1.0, 0.6, 3, metric, rng)
        assert 0.3 < accepted < 0.99
        return np.abs(cloud.latents.mean(1) - 0.8).max() / (0.2 / 20_000) ** 0.5

    assert worst(Rough()) < 7
    assert worst(RoughEnds()) > 14


@pytest.mark.parametrize("width", [3, np.inf])
def test_trajectories_are_reversible(width):
    "Turned round they return, with two kinds of latents."
    target, rng = layer_target(width=width), default_rng(0)
    z, p = rng.standard_normal((2, target.layer.dim(), 40))
    cloud = cloud_at(z, target)
    metric = borrowed_metric(cloud.latents - cloud.slope, target.layer.blocks())
    there, q = leapfrog(cloud, p, target, 0.7, np.full(40, 0.02), 6, metric)
    back, last = leapfrog(there, -q, target, 0.7, np.full(40, 0.02), 6, metric)
    assert np.abs(there.latents - z).max() > 0.1
    np.testing.assert_allclose(back.latents, z, atol=1e-8)
    np.testing.assert_allclose(-last, p, atol=1e-8)


def test_hundreds_of_sequences_and_infinitely_many_heads():
    "The kernel regression of explicit formulas, beyond one piece of memory."
    X, y = data(300, 3, 2)
    m = AttentionRegressor(
        np.inf, alpha=0.3, random_state=0, n_islands=2, n_particles=16
    ).fit(X[:280], y[:280])
    (Uq, a), (Uk, b), _ = m.layer_.bases
    N = np.einsum(
        "ia,acm,jc->mij", Uq[:, :a], m.layer_.split(m.latents_)[0][:, :, 0], Uk[:, :b]
    )
    G = np.einsum("pi,mij,psj->mps", X[:, -1], N, X)
    A = np.exp(G - G.max(2, keepdims=True))
    Z = np.einsum("mps,psj->pmj", A / A.sum(2, keepdims=True), X).reshape(300, -1)
    S = Z @ Z.T / len(N)
    C = S[:280, :280] + 0.3 * np.eye(280)
    assert m.log_marginal_likelihood_value_ == pytest.approx(
        multivariate_normal(cov=C).logpdf(y[:280])
    )
    mean, std = m.predict(X[280:], return_std=True)
    W = np.linalg.solve(C, S[:280, 280:])
    np.testing.assert_allclose(mean, W.T @ y[:280])
    np.testing.assert_allclose(std**2, np.diag(S)[280:] - (S[280:, :280] * W.T).sum(1))


# --- the stored experiments


def read(name):
    return pd.read_csv(DATA / f"learning_{name}.csv")


@pytest.mark.power(
    "distribution functions .15 apart, stated variances off by nine tenths"
)
def test_calibration_of_the_stored_table():
    """Data from the prior: ranks of fresh values uniform (Kolmogorov–Smirnov, p >
    1e-6), stated variance = squared error, for 1, 2 and 8 heads.
    """
    for H, t in read("calibration").groupby("heads"):
        assert len(t) >= 300
        assert kstest(t["rank"], "uniform").pvalue > 1e-6
        gap = t["error"] ** 2 - t["variance"]
        assert (
            abs(gap.mean())
            < 6 * gap.std() / len(gap) ** 0.5
            < 0.9 * t["variance"].mean()
        ), H


ROWS = {
    "calibration": ("run_calibration", 3, 2),
    "recall": ("run_recall", 1, "1"),
    "average": ("run_average", 1, "1"),
    "heads": ("run_heads", 1, 1, 1),
    "trust": ("run_trust", 0, 16, 1, 4, 4, 1, 64, 1),
}


# About six standard deviations of the difference of two fits with other random numbers,
# measured on eight to sixteen of them
FAR = {
    "recall": dict(rmse=0.5, evidence=4),
    "average": dict(rmse=0.5, evidence=4),
    "heads": dict(rmse=0.2, evidence=1),
    "trust": dict(spread=3, evidence=1),
}
WRONG = {  # a model that the data reject; for trust, other data
    "recall": dict(seed=1, heads="1/n"),
    "average": dict(seed=1, heads="1/n"),
    "heads": dict(seed=1, truth=1, heads=8),
    "trust": dict(seed=1, P=16, D=1, s=4, d=4, heads=1, particles=64, moves=1),
}


def the_row(table, keys):
    "The only row with these values; a column of numbers holds them as its own type."
    there = np.ones(len(table), bool)
    for k, v in keys.items():
        kind = table[k].dtype
        there &= table[k].astype(str) == str(kind.type(v) if kind.kind in "if" else v)
    assert there.sum() == 1
    return table[there].iloc[0]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", nightly(ROWS, "heads", "trust"))
@pytest.mark.long
def test_stored_tables_are_what_the_command_writes(name):
    """One row of each, computed again. Sharp posteriors enlarge rounding, which is
    another machine's own: there a fit agrees as one of other random numbers would.
    """
    learning = import_module("learning")
    run, *arguments = ROWS[name]
    if name in ("recall", "average"):
        arguments.append(dict(learning.models())["1"])
    fresh = getattr(learning, run)(*arguments)
    stored = read(name)
    keys = [
        k
        for k in ("seed", "truth", "heads", "P", "D", "s", "d", "particles", "moves")
        if k in fresh
    ]
    row = the_row(stored, {k: fresh[k] for k in keys})
    if name in FAR:

        def agrees(row):
            apart = {
                k: row[k] - fresh[k] if k == "evidence" else np.log(row[k] / fresh[k])
                for k in FAR[name]
            }
            return all(abs(x) < FAR[name][k] for k, x in apart.items())

        assert agrees(row)
        assert not agrees(the_row(stored, WRONG[name]))
        return
    for k, v in fresh.items():
        if k not in keys:
            np.testing.assert_allclose(float(row[k]), float(v), rtol=1e-4, err_msg=k)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "model", ["infinitely many", "linear scale", "Gaussian process", "kernel ridge"]
)
@pytest.mark.long
def test_stored_results_on_real_data(model):
    "One split of the smooth models, fitted again."
    learning = import_module("learning")
    fresh = learning.run_real(0, "diabetes, features", model)
    row = learning.stored_row("real", seed=0, task=fresh["task"], model=model)
    assert row["r2"] == pytest.approx(fresh["r2"], abs=1e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", nightly(["real", "longer"], "longer"))
def test_stored_rows_of_one_head_on_real_data(name):
    """One split, tuned and explored again: the same bytes on the same machine,
    elsewhere within the spread of its islands.
    """
    learning = import_module("learning")
    task = "digits, patches"
    fresh = (
        learning.run_real(0, task, "1 head")
        if name == "real"
        else learning.run_longer(0, task, 1, 2)
    )
    row = learning.stored_row(
        name, seed=0, task=task, **dict(model="1 head") if name == "real" else {}
    )
    assert (
        abs(row["evidence"] - fresh["evidence"])
        < 2 * (row["spread"] + fresh["spread"]) + 0.2
        < 2
    )
    assert row["r2"] == pytest.approx(fresh["r2"], abs=0.1)
    assert fresh["ancestors"] >= 10


def test_finite_width_converges_like_one_over_n():
    "Stored: n times differences is nearly constant."
    t = read("width")
    limit = t[t.n == np.inf].set_index(["seed", "outputs"])["evidence"]
    t = t[t.n < np.inf].set_index(["seed", "outputs", "n"])["evidence"]
    size = (
        (t - limit.reindex(t.index.droplevel("n")).to_numpy())
        .abs()
        .groupby(["outputs", "n"])
        .mean()
        .unstack()
    )
    assert ((np.log2(size[1024.0] / size[64.0]) / 4 + 1).abs() < 0.2).all()
    assert size[64.0][16] > size[64.0][4] > size[64.0][1]


# --- determinism

SPAWNED = partial(ProcessPoolExecutor, mp_context=get_context("spawn"))


@pytest.mark.parametrize(
    "pool",
    nightly([ThreadPoolExecutor, SPAWNED], SPAWNED),
    ids=["threads", "processes"],
)
@pytest.mark.long
def test_same_bytes_for_any_number_of_workers(pool):
    X, y = data(5, 3, 2)

    def fit(workers):
        with parallel(workers):
            return AttentionRegressor(2, random_state=3, **SMALL).fit(X, y)

    with pool(1) as one:
        first, *others = (
            pickle.dumps((m.log_evidences_, m.latents_, m.predict(X), m.sample_y(X, 3)))
            for m in map(fit, (one, 4, None))
        )
    assert all(first == other for other in others)


def test_a_failed_or_interrupted_fit_loses_nothing(monkeypatch):
    X, y = data(4, 3, 2)
    m = AttentionRegressor(random_state=0, **SMALL).fit(X, y)
    before = m.predict(X)
    with pytest.raises(ValueError):
        m.fit(X, y * np.nan)
    monkeypatch.setattr(
        "infattn_nb.learning.fitting.islands",
        lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt),
    )
    with pytest.raises(KeyboardInterrupt):
        m.fit(2 * X, y)
    np.testing.assert_array_equal(m.predict(X), before)


@pytest.mark.slow
@pytest.mark.power("log evidences .6 apart")
def test_weights_that_are_uniform_at_a_finite_width():
    """Without scores only the factors of the values are random: the evidence is that of
    very small scores, and not that of scores.
    """
    X, _ = data(12, 3, 2)
    options = dict(width=3, n_islands=8, n_particles=128, alpha=0.1, random_state=0)
    none, few, many = (
        AttentionRegressor(2, v, **options).fit(X, 4 * X[:, :2].mean((1, 2)))
        for v in (0.0, 1e-12, 9.0)
    )
    assert len(none.latents_) < len(few.latents_)
    values, errors = np.transpose(
        [
            (m.log_marginal_likelihood_value_, m.log_marginal_likelihood_error_)
            for m in (none, few, many)
        ]
    )
    assert (
        abs(values[0] - values[1])
        < 16 * np.hypot(*errors[:2])
        < abs(values[0] - values[2])
    )  # t, 7 d.o.f.


def test_scores_of_little():
    "One sequence has no spread; a weight counts as so many copies."
    X, Y = data(7, 3, 2, D=3)
    m = AttentionRegressor(random_state=0, **SMALL).fit(X, Y)
    with pytest.warns(UndefinedMetricWarning, match="two samples"):
        assert np.isnan(m.score(X[:1], Y[:1]))
    assert m.score(X, m.predict(X)) == 1
    w = np.array([0, 1, 2, 1, 1, 0, 3])
    assert m.score(X, Y, w) == pytest.approx(
        m.score(np.repeat(X, w, axis=0), np.repeat(Y, w, axis=0)), rel=1e-12
    )
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        m.score(X, Y, w[:3])


def test_rough_posteriors_are_named():
    rng = default_rng(0)
    with pytest.warns(RuntimeWarning, match="the posterior is rough: of 16 particles"):
        AttentionRegressor(n_particles=16, n_moves=1, random_state=0).fit(
            3 * rng.standard_normal((12, 4, 4)), rng.standard_normal(12)
        )


# --- sequences of different lengths


@pytest.mark.parametrize(
    "options",
    [
        dict(),
        dict(readout="mean"),
        dict(mask="causal", readout="mean"),
        dict(heads=np.inf),
        dict(width=3),
    ],
)
@pytest.mark.long
def test_padding_never_changes_a_number(options):
    X, y = ragged()
    m = AttentionRegressor(random_state=0, **SMALL | options).fit(X, y)
    long = [*X, default_rng(1).standard_normal((9, 2))]  # in longer company
    np.testing.assert_allclose(m.predict(long)[:6], m.predict(X), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        m.predict(X[2:3]), m.predict(X)[2:3], rtol=1e-9, atol=1e-12
    )
    A = m.attention(long)
    for a, x in zip(A, long):
        rows = a[: len(x)] if a.ndim == 2 else a
        # nobody looks at padding
        np.testing.assert_array_equal(rows[..., len(x) :], 0.0)
        np.testing.assert_allclose(rows.sum(-1), 1.0)


# --- answers


def test_quantiles_and_intervals(fitted):
    X, _ = data(5, 4, 3)
    law = fitted.predictive(X)
    for q in (1e-6, 0.05, 0.5, 0.999):
        np.testing.assert_allclose(law.cdf(law.ppf(q)), q, rtol=1e-8)
    low, high = law.interval(0.9)
    np.testing.assert_allclose(law.cdf(high) - law.cdf(low), 0.9, rtol=1e-8)
    assert len(repr(law)) < 80
    assert "256 Gaussians" in repr(law)


@pytest.mark.power("mean .1 standard deviations off, variance 20 %")
@pytest.mark.long
def test_draws_of_the_predictive_law():
    fitted = example()
    X, _ = data(3, 4, 3)
    law = fitted.predictive(X)
    y = law.rvs(4000, rng=1)
    assert y.shape == (4000, 3, 2)
    assert (np.abs(y.mean(0) - law.mean()) < 7 * law.std() / 4000**0.5).all()
    square = (y - law.mean()) ** 2
    assert (np.abs(square.mean(0) - law.var()) < 7 * square.std(0) / 4000**0.5).all()
    np.testing.assert_array_equal(y, law.rvs(4000, rng=1))


@pytest.mark.power("covariances 20 % off")
@pytest.mark.parametrize("heads", [2, np.inf])
def test_covariances_have_the_variances(heads):
    X, y = data(6, 3, 2, 2)
    m = AttentionRegressor(heads, random_state=0, normalize_y=True, **SMALL).fit(
        X[:4], 5 * y[:4]
    )
    mean, cov = m.predict(X, return_cov=True)
    _, std = m.predict(X, return_std=True)
    np.testing.assert_allclose(np.sqrt(np.einsum("qqd->qd", cov)), std, rtol=1e-8)
    np.testing.assert_allclose(mean, m.predict(X))
    one = AttentionRegressor(heads, random_state=0, **SMALL).fit(X[:4], y[:4, 0])
    assert one.predict(X, return_cov=True)[1].shape == (6, 6)
    f = m.sample_y(X, 4000)[:, 0]
    error = np.einsum("qm,rm->qrm", f - mean[:, :1], f - mean[:, :1])
    assert (np.abs(error.mean(-1) - cov[..., 0]) < 8 * error.std(-1) / 4000**0.5).all()


@pytest.mark.parametrize("heads", [1, np.inf])
@pytest.mark.long
def test_normalized_targets_keep_their_own_units(heads):
    X, y = data(8, 3, 2)
    y -= y.mean()
    a = AttentionRegressor(heads, random_state=0, normalize_y=True, **SMALL).fit(
        X, 4 * y
    )  # a power of two: the same bits
    b = AttentionRegressor(heads, random_state=0, **SMALL).fit(
        X, (y - y.mean()) / y.std()
    )
    unit, shift = 4 * y.std(), 4 * y.mean()
    np.testing.assert_allclose(a.predict(X), shift + unit * b.predict(X), rtol=1e-8)
    np.testing.assert_allclose(
        a.predictive(X).std(), unit * b.predictive(X).std(), rtol=1e-8
    )
    np.testing.assert_allclose(a.sample_y(X), shift + unit * b.sample_y(X), rtol=1e-8)
    assert a.log_marginal_likelihood_value_ == pytest.approx(
        b.log_marginal_likelihood_value_
    )
    model = AttentionRegressor(np.inf, random_state=0, normalize_y=True, **SMALL)
    still, moved = (model.fit(X, 4 * y + shift).predict(X) for shift in (0, 7))
    np.testing.assert_allclose(moved, still + 7)


@pytest.mark.slow
def test_auto_stops_when_the_answer_can_be_trusted():
    X, y = data(4, 3, 2)
    fixed, auto = (
        AttentionRegressor(n_moves=k, n_islands=2, n_particles=64, random_state=0).fit(
            X, y
        )
        for k in (1, "auto")
    )
    # an easy posterior: one move is enough
    np.testing.assert_array_equal(fixed.latents_, auto.latents_)
    hard = dict(n_islands=2, n_particles=32, keep=0.3, alpha=1e-3, random_state=0)
    X, y = data(16, 4, 3, scale=2.0)
    fixed, auto = (AttentionRegressor(n_moves=k, **hard).fit(X, y) for k in (1, "auto"))
    assert not np.array_equal(fixed.latents_, auto.latents_)


# --- the evidence chooses


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", nightly([0, 1, 2], 1, 2))
@pytest.mark.parametrize("heads", [1, np.inf])
@pytest.mark.long
def test_tuned_evidence_is_never_below_the_start(heads, seed):
    X, y = data(10, 3, 2, seed=seed)
    options = dict(
        heads=heads, random_state=seed, n_islands=2, n_particles=32, n_moves=1
    )
    fixed, tuned = (
        AttentionRegressor(optimizer=o, **options).fit(X, y) for o in (None, "evidence")
    )
    assert tuned.log_marginal_likelihood_value_ >= fixed.log_marginal_likelihood_value_
    assert (fixed.var_qk_, fixed.var_vo_, fixed.alpha_) == (1.0, 1.0, 1e-2)
    assert tuned.get_params()["alpha"] == 1e-2
    assert tuned.alpha_ > 0.05  # the targets are noise


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_infinitely_many_heads_are_tuned_to_a_maximum():
    X, y = expected(30, 0, 1.0)
    m = AttentionRegressor(
        np.inf, optimizer="evidence", random_state=0, n_islands=2
    ).fit(X, y)
    dials = dict(var_qk=m.var_qk_, var_vo=m.var_vo_, alpha=m.alpha_)
    at = lambda **turned: (
        AttentionRegressor(np.inf, random_state=0, n_islands=2, **dials | turned)
        .fit(X, y)
        .log_marginal_likelihood_value_
    )
    assert at() == pytest.approx(m.log_marginal_likelihood_value_, abs=1e-6)
    start = AttentionRegressor().get_params()
    for (name, value), end in zip(dials.items(), np.exp(DIAL_RANGE)):
        for turned in (value / 2, 2 * value):
            if 1 / end <= turned / start[name] <= end:
                assert at(**{name: turned}) < at() + 0.05


@pytest.mark.filterwarnings("ignore:the data hardly determine:RuntimeWarning")
def test_a_flat_evidence_is_reported_and_not_followed():
    X, y = data(10, 3, 2)
    for options in (
        dict(scaling="linear"),
        dict(heads=np.inf, scaling="linear"),
    ):  # scores without effect
        with pytest.warns(RuntimeWarning, match="the data hardly determine `var_qk`"):
            m = AttentionRegressor(
                optimizer="evidence", random_state=0, **SMALL, **options
            ).fit(X, y)
        assert np.isclose(m.var_qk_, 1.0, rtol=1e-12)  # the climb moves by rounding
    with pytest.warns(
        RuntimeWarning, match="reached the end of its range|hardly determine"
    ):
        m = AttentionRegressor(
            np.inf, optimizer="evidence", random_state=0, **SMALL
        ).fit(X, 0 * y)
    assert m.var_vo_ >= 1e-4 * (1 - 1e-9)
    assert m.alpha_ >= 1e-6 * (1 - 1e-9)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.long
def test_comparison_of_heads():
    X, y = data(5, 3, 2)
    m = AttentionRegressor(random_state=0, **SMALL).fit(X, y)
    table = m.compare([1, 2, np.inf])
    assert list(table.index) == [1, 2, np.inf]
    assert table["probability"].sum() == pytest.approx(1)
    for heads, row in table.iterrows():
        again = AttentionRegressor(
            heads if heads == np.inf else int(heads), random_state=0, **SMALL
        ).fit(X, y)
        assert row["log evidence"] == pytest.approx(
            again.log_marginal_likelihood_value_, rel=1e-12
        )
    share = np.exp(np.diff(table["log evidence"]))
    np.testing.assert_allclose(
        table["probability"].to_numpy()[1:] / table["probability"].to_numpy()[:-1],
        share,
    )


# --- scikit-learn as a client


class Table(OneToken, AttentionRegressor):
    "Of one token the model is Bayesian linear regression."


@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_checks():
    check(
        Table(n_particles=4, n_islands=1, n_moves=1, random_state=0),
        35,
        "check_requires_y_none",
        "check_regressor_data_not_an_array",
    )
    check_estimator(AttentionRegressor())


def test_weights_of_sequences_are_routed():
    "Through cross-validation to the score, where scikit-learn's routing is on."
    X, y = data(12, 3, 2)
    w = default_rng(0).random(12)
    m = AttentionRegressor(np.inf, random_state=0, **SMALL)
    with config_context(enable_metadata_routing=True):
        scores = cross_val_score(
            m.set_score_request(sample_weight=True),
            X,
            y,
            cv=2,
            params=dict(sample_weight=w),
        )
    m.fit(X[6:], y[6:])
    assert scores[0] == pytest.approx(m.score(X[:6], y[:6], w[:6]), rel=1e-12)
    assert scores[0] != pytest.approx(m.score(X[:6], y[:6]), rel=1e-3)
