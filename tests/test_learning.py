"""Learning: evidence and posterior against brute force, the exact law, literal matrices, closed forms; calibration, determinism, bad input, scikit-learn as a client."""
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.random import SeedSequence, default_rng
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import kstest, multivariate_normal, norm

from infattn_nb import Attention, AttentionRegressor, ScaleMixture, Tokens, identity
from infattn_nb import recall
from infattn_nb.learning.layer_on_data import Mixture, attend
from infattn_nb.learning.regressor.particles import climb, islands, next_temperature
from infattn_nb.learning.regressor.particles import pool, slice_move, systematic

pytestmark = pytest.mark.filterwarnings("ignore:the posterior is rough:RuntimeWarning") # small clouds are rough, and say so

ROOT = Path(__file__).parent.parent
DATA = ROOT/"nbs/data"
sys.path.append(str(ROOT/"benchmarks"))

MANY = dict(n_islands=16, n_particles=256, n_moves=5) # a t-law of 15 degrees of freedom: beyond 10 errors once in 2e7
SMALL = dict(n_islands=2, n_particles=16, n_moves=2)

def data(P, s, d, D=None, seed=0, scale=1.):
    rng = default_rng(seed)
    return scale*rng.standard_normal((P, s, d)), rng.standard_normal(P if D is None else (P, D))

def expected(P, seed, scale):
    "Data as the model expects them: drawn from its prior, noise of variance .1."
    X, noise = data(P, 3, 2, seed=seed, scale=scale)
    return X, AttentionRegressor(2, **SMALL).sample_y(X, random_state=7)[:, 0] + .1**.5*noise

# --- brute force over the one or two latent numbers that matter

def weights(x, N, mask=None):
    "Attention of one sequence, row by row: the literal formula."
    G = x @ N @ x.T
    if mask is not None: G = np.where(mask, G, -np.inf)
    A = np.exp(G - G.max(1, keepdims=True))
    return A/A.sum(1, keepdims=True)

def brute(X, y, forms, prior, alpha, c, mask=None):
    "Log evidence and posterior mean weights of the first sequence's rows, by quadrature over `forms`: heads' matrices N (nodes, H, d, d)."
    Y = y.reshape(len(y), -1)
    ℓ, first = [], []
    for N in forms:
        A = np.array([[weights(x, n, mask) for x in X] for n in N])
        Z = np.einsum("i,hpij,pjd->hpd", c, A, X)
        S = np.einsum("hpd,hqd->pq", Z, Z)/len(N) + alpha*np.eye(len(X))
        ℓ.append(multivariate_normal.logpdf(Y.T, cov=S).sum())
        first.append(A[:, 0].mean(0))
    ℓ = np.array(ℓ) + np.log(prior)
    return logsumexp(ℓ), np.einsum("n,nij->ij", np.exp(ℓ - logsumexp(ℓ)), first)

def normal_grid(dim, step):
    t = np.arange(-7, 7 + step/2, step)
    g = np.stack(np.meshgrid(*[t]*dim, indexing="ij")).reshape(dim, -1).T
    return g, np.exp(-(g*g).sum(1)/2)*(step/np.sqrt(2*np.pi))**dim

def scalar_case(H, readout, P=4, D=None, mask=None, seed=0):
    X, y = data(P, 3, 1, D, seed)
    g, w = normal_grid(H, .05 if H == 1 else .2)
    c = np.full(3, 1/3) if readout == "mean" else np.eye(3)[readout]
    allowed = None if mask is None else np.tri(3, dtype=bool)
    return X, y, dict(heads=H, readout=readout, mask=mask), brute(X, y, g[:, :, None, None], w, .2, c, allowed), c

def cls_case():
    "Tokens in the plane, every sequence ends with the same token: one query, two key directions."
    X, y = data(4, 3, 2, seed=3)
    X[:, -1] = [.6, .8]
    g, w = normal_grid(2, .2)
    return X, y, dict(readout=-1), brute(X, y, np.einsum("i,nj->nij", X[0, -1], g)[:, None], w, .2, np.eye(3)[-1]), np.eye(3)[-1] # |query| = 1: its row of N is g

CASES = {"one head": lambda: scalar_case(1, -1), "two heads": lambda: scalar_case(2, 0, seed=1), "CLS query": cls_case, "mean pooling": lambda: scalar_case(1, "mean", seed=2),
         "three outputs": lambda: scalar_case(1, -1, D=3, seed=4), "causal mask": lambda: scalar_case(1, "mean", mask="causal", seed=5)}

def jackknife(model, f):
    "Mean of f (..., M) over the particles and its standard error from leaving out one island at a time."
    w, n = model.weights_, len(model.log_evidences_)
    parts = [(w[k].sum(), f[..., k] @ w[k]) for k in np.array_split(np.arange(len(w)), n)]
    m, x = (np.stack(p) for p in zip(*parts))
    others = np.stack([(x.sum(0) - a)/(m.sum() - b) for a, b in zip(x, m)])
    return x.sum(0)/m.sum(), np.sqrt((n - 1)*others.var(0))

@pytest.mark.power("evidence 2 to 8 % off, weights .02")
@pytest.mark.parametrize("name", CASES)
def test_evidence_and_weights_are_those_of_quadrature(name):
    X, y, options, (exact, A), c = CASES[name]()
    m = AttentionRegressor(alpha=.2, random_state=0, **options, **MANY).fit(X, y)
    assert abs(m.log_marginal_likelihood_value_ - exact) < 10*m.log_marginal_likelihood_error_ < .5
    latents = m.layer_.split(m.latents_)
    W = attend(m.layer_, m.layer_.view(X[:1], leading=True), latents)[0]
    W = W.reshape(*W.shape[:2], m.heads, -1).mean(2) # (R, s, M)
    mean, error = jackknife(m, W)
    assert (np.abs(mean - A[np.flatnonzero(c)]) < 10*error + 1e-3).all() and error.max() < .02
    np.testing.assert_allclose(m.attention(X[:1])[0], mean if m.readout == "mean" else mean[0], rtol=1e-9)

@pytest.mark.power("evidence 2 % off")
@pytest.mark.parametrize("H, readout", [(1, -1), (3, 0)])
def test_one_sequence_is_the_exact_law(H, readout):
    "P = 1: the evidence is an average over the law of the layer's variance, known to ten digits."
    X, y = data(1, 3, 3, seed=6)
    law = Attention(Tokens(3, identity, X[0] @ X[0].T), heads=H, var_q=.5, var_o=2.).law().marginal(readout % 3)
    exact = ScaleMixture(law.variances + .1, law.weights).logpdf(y[0])
    m = AttentionRegressor(H, var_qk=.5, var_vo=2., alpha=.1, readout=readout, random_state=1, **MANY).fit(X, y)
    assert abs(m.log_marginal_likelihood_value_ - exact) < 10*m.log_marginal_likelihood_error_ < .3

@pytest.mark.power("predictive density 15 % off")
def test_chain_rule():
    "Evidence of P + 1 sequences − evidence of P = predictive log density."
    X, y = expected(6, seed=7, scale=.8)
    less, more = (AttentionRegressor(2, alpha=.1, random_state=k, **MANY).fit(X[:k], y[:k]) for k in (5, 6))
    law = less.predictive(X[5:])
    p, se = jackknife(less, norm.pdf(y[5], law.means[:, 0], np.sqrt(law.variances[:, 0])))
    error = np.hypot(np.hypot(less.log_marginal_likelihood_error_, more.log_marginal_likelihood_error_), se/p)
    assert law.logpdf(y[5])[0] == pytest.approx(np.log(p), rel=1e-9)
    assert abs(more.log_marginal_likelihood_value_ - less.log_marginal_likelihood_value_ - np.log(p)) < 10*error < 1.5

@pytest.mark.power("evidence 40 % off, weights .1, prediction .1")
@pytest.mark.parametrize("n", [2, 32, 64])
def test_finite_width_is_that_of_literal_matrices(n):
    "Prior draws of W^Q, W^K, W^V, weighed by the likelihood, against the sampler with Bartlett latents."
    X, y = data(4, 3, 2, seed=8, scale=.8)
    x, α, B = X[3:], .3, 1000
    def batch(rng):
        Q, K, V = (X @ rng.standard_normal((B, 1, 2, n)) for _ in range(3)) # (B, 4, 3, n)
        A = np.exp(np.einsum("bpn,bpjn->bpj", Q[:, :, -1], K)/np.sqrt(n))
        A /= A.sum(-1, keepdims=True)
        Z = np.einsum("bpj,bpjn->bpn", A, V)/np.sqrt(n)
        S = Z @ Z.mT
        C = S[:, :3, :3] + α*np.eye(3)
        L = np.exp(-.5*np.einsum("p,bp->b", y[:3], np.linalg.solve(C, np.tile(y[:3, None], (B, 1, 1)))[..., 0]))/np.sqrt(np.linalg.det(2*np.pi*C))
        f = np.einsum("bp,bp->b", S[:, 3, :3], np.linalg.solve(C, np.tile(y[:3, None], (B, 1, 1)))[..., 0])
        return L.mean(), (L*A[:, 3, 0]).mean(), (L*f).mean()
    parts = np.array([batch(g) for g in default_rng(0).spawn(32)])
    evidence, *means = parts.mean(0)
    others = (parts.sum(0) - parts)/31
    se = np.sqrt(31*np.stack([others[:, 0], others[:, 1]/others[:, 0], others[:, 2]/others[:, 0]]).var(1))
    m = AttentionRegressor(alpha=α, width=n, random_state=0, **MANY).fit(X[:3], y[:3])
    w = attend(m.layer_, m.layer_.view(x, leading=True), m.layer_.split(m.latents_))[0, 0, 0]
    (weight, e1), (f, e2) = jackknife(m, w), jackknife(m, m.predictive(x, noise=False).means[:, 0])
    assert abs(m.log_marginal_likelihood_value_ - np.log(evidence)) < 10*np.hypot(m.log_marginal_likelihood_error_, se[0]/evidence) < .6
    assert abs(weight - means[0]/evidence) < 10*np.hypot(e1, se[1]) < .3
    assert abs(f - means[1]/evidence) < 10*np.hypot(e2, se[2]) < .5

@pytest.mark.power("evidence 20 % off")
def test_a_very_wide_layer_is_the_limit():
    X, y = data(3, 3, 2, seed=9)
    a, b = (AttentionRegressor(alpha=.2, width=n, random_state=0, **MANY).fit(X, y) for n in (1e9, np.inf))
    assert abs(a.log_marginal_likelihood_value_ - b.log_marginal_likelihood_value_) < 10*np.hypot(a.log_marginal_likelihood_error_, b.log_marginal_likelihood_error_) < 1.

# --- closed forms

def ridge(F, G, y, alpha):
    "Gaussian process with features F at the data, G at new points: log evidence, mean, standard deviation."
    C = F @ F.T + alpha*np.eye(len(F))
    W = np.linalg.solve(C, F @ G.T)
    return multivariate_normal(cov=C).logpdf(y), W.T @ y, np.sqrt((G*G).sum(1) - np.einsum("qp,pq->q", G @ F.T, W))

@pytest.mark.parametrize("options", [dict(score_scale="linear"), dict(var_qk=0.), dict(score_scale="linear", heads=np.inf), dict(var_qk=0., heads=5)])
def test_uniform_weights_are_regression_on_mean_tokens(options):
    X, y = data(6, 4, 3)
    exact = ridge(X.mean(1)[:4], X.mean(1)[4:], y[:4], .1)
    m = AttentionRegressor(alpha=.1, random_state=0, **options).fit(X[:4], y[:4])
    for a, b in zip((m.log_marginal_likelihood_value_, *m.predict(X[4:], return_std=True)), exact): np.testing.assert_allclose(a, b, rtol=1e-9)

@pytest.mark.parametrize("heads", [1, 3, np.inf])
def test_one_token_is_linear_regression(heads):
    X, y = data(9, 1, 3)
    m = AttentionRegressor(heads, alpha=.1, random_state=0, **SMALL).fit(X[:6], y[:6])
    exact = ridge(X[:6, 0], X[6:, 0], y[:6], .1)
    for a, b in zip((m.log_marginal_likelihood_value_, *m.predict(X[6:], return_std=True)), exact): np.testing.assert_allclose(a, b, rtol=1e-8)
    assert m.log_marginal_likelihood_error_ < 1e-9

@pytest.mark.power("covariances .03 off")
def test_infinitely_many_heads_are_the_gaussian_process_of_the_mean_covariance():
    X, y = expected(2, seed=10, scale=.6)
    layer = Attention(Tokens(6, identity, X.reshape(6, 2) @ X.reshape(6, 2).T), mask=np.kron(np.eye(2, dtype=bool), np.ones((3, 3), dtype=bool))) # two sequences in one, that do not see each other
    S, error = layer.infinite_heads(return_error=True)
    S = S.covariances(1, 0)[0][np.ix_([2, 5], [2, 5])]
    m = AttentionRegressor(np.inf, alpha=.1, random_state=0).fit(X, y)
    assert abs(m.log_marginal_likelihood_value_ - multivariate_normal(cov=S + .1*np.eye(2)).logpdf(y)) < 10*(m.log_marginal_likelihood_error_ + 10*error.max()) < .5
    many = AttentionRegressor(256, alpha=.1, random_state=0, **MANY).fit(X, y)
    assert abs(many.log_marginal_likelihood_value_ - m.log_marginal_likelihood_value_) < 10*many.log_marginal_likelihood_error_ + .05

def test_powers_of_two_move_between_tokens_and_variances():
    "X → 2X with σ_Q²σ_K²/16 and σ_V²σ_O²/4 is the same model, to the last bit."
    X, y = data(5, 3, 2)
    a = AttentionRegressor(2, random_state=0, **SMALL).fit(X, y)
    b = AttentionRegressor(2, var_qk=1/16, var_vo=1/4, random_state=0, **SMALL).fit(2*X, y)
    np.testing.assert_allclose(a.predict(X), b.predict(2*X), rtol=1e-6)

@pytest.mark.power("standard deviation 12 % off; kurtosis .8")
@pytest.mark.parametrize("heads", [1, 2])
def test_before_fit_it_is_the_prior(heads):
    X, _ = data(2, 3, 3)
    law = Attention(Tokens(3, identity, X[0] @ X[0].T), heads=heads).law().marginal(2)
    prior = AttentionRegressor(heads, random_state=0).predictive(X, noise=False)
    assert not prior.mean().any()
    v = prior.variances[:, 0]
    assert abs(v.mean() - law.var()) < 7*v.std()/len(v)**.5 < .5*law.var()
    f = AttentionRegressor(heads, random_state=1).sample_y(X, 3000, random_state=2)[0]
    assert abs((f**2).mean() - law.var()) < 7*(f**2).std()/3000**.5 + 7*v.std()/2048**.5

# --- prediction

def example():
    X, y = data(6, 4, 3, 2, seed=11, scale=.6)
    return AttentionRegressor(2, alpha=.05, random_state=0, n_islands=2, n_particles=128, n_moves=3).fit(X, y)

@pytest.fixture(scope="module")
def fitted(): return example()

def test_shapes(fitted):
    X, y = data(7, 4, 3)
    assert fitted.predict(X).shape == (7, 2) and fitted.predict(X, return_std=True)[1].shape == (7, 2)
    assert fitted.sample_y(X).shape == (7, 2, 1) and fitted.attention(X).shape == (7, 4)
    assert fitted.predictive(X).logpdf(y[:, None]).shape == (7, 2)
    np.testing.assert_allclose(fitted.attention(X).sum(1), 1.)
    longer = fitted.predict(data(2, 9, 3)[0]) # sequences of another length are read by the same scores
    assert longer.shape == (2, 2)
    one = AttentionRegressor(readout="mean", random_state=0, **SMALL).fit(X, y)
    assert one.predict(X).shape == (7,) and one.sample_y(X, 5).shape == (7, 5) and one.attention(X).shape == (7, 4, 4)

def test_predictions_do_not_depend_on_company(fitted):
    X, _ = data(600, 4, 3)
    for verb in (fitted.predict, fitted.attention): np.testing.assert_allclose(verb(X)[590:595], verb(X[590:595]), rtol=1e-9)

@pytest.mark.power("means .15 standard deviations off, covariances 20 %")
def test_samples_have_the_moments_of_the_predictions():
    fitted = example()
    X, _ = data(3, 4, 3, seed=1)
    f = fitted.sample_y(X, 5000, random_state=3)
    mean, std = fitted.predict(X, return_std=True)
    assert (np.abs(f.mean(-1) - mean) < 7*std/5000**.5).all()
    v = (f - mean[..., None])**2
    assert (np.abs(v.mean(-1) - std**2) < 7*v.std(-1)/5000**.5).all()
    np.testing.assert_array_equal(f, fitted.sample_y(X, 5000, random_state=3))
    gp = AttentionRegressor(np.inf, random_state=0).fit(*data(4, 4, 3))
    g, (mean, std) = gp.sample_y(X, 5000), gp.predict(X, return_std=True)
    assert (np.abs(g.mean(-1) - mean) < 7*std/5000**.5).all() and (np.abs(g.std(-1)/std - 1) < 7/10_000**.5).all()

def test_noise_is_added_once(fitted):
    X, _ = data(3, 4, 3)
    np.testing.assert_allclose(fitted.predictive(X).var(), fitted.predictive(X, noise=False).var() + .05)
    np.testing.assert_allclose(fitted.predictive(X, noise=False).std(), fitted.predict(X, return_std=True)[1])

def test_mixture_against_integration():
    law = Mixture(np.array([[0.], [1.], [4.]]), np.array([[1.], [.25], [2.]]), np.array([.5, .3, .2]))
    moment = lambda f: quad(lambda y: f(y)*law.pdf(y)[0], -30, 30, limit=200)[0]
    m, v = law.mean()[0], law.var()[0]
    assert moment(lambda y: 1.) == pytest.approx(1, rel=1e-8) and moment(lambda y: y) == pytest.approx(m, rel=1e-8)
    assert moment(lambda y: (y - m)**2) == pytest.approx(v, rel=1e-8) and moment(lambda y: (y - m)**4)/v**2 - 3 == pytest.approx(law.kurtosis()[0], rel=1e-6)
    assert quad(lambda y: law.pdf(y)[0], 3, 30)[0] == pytest.approx(law.sf(3.)[0], rel=1e-8) and law.cdf(3.)[0] + law.sf(3.)[0] == pytest.approx(1)
    assert law.sf(40.)[0] == pytest.approx(.2*norm.sf(36/2**.5), rel=1e-9, abs=0)

# --- particles

def bump(z): return -.5*((z - 1)**2).sum(0)/.5**2

@pytest.mark.power("mean .03 off")
def test_slice_moves_leave_the_posterior_as_it_is():
    rng = default_rng(0)
    z = .8 + rng.standard_normal((3, 20_000))*.2**.5 # the posterior: mean 1/(1 + 1/4)… variance 1/(1 + 4)
    z, ℓ = slice_move(z, bump(z), bump, 1., rng)
    np.testing.assert_allclose(ℓ, bump(z))
    assert (np.abs(z.mean(1) - .8) < 7*(.2/20_000)**.5).all() and (np.abs(z.var(1)/.2 - 1) < 7*(2/20_000)**.5).all()

@pytest.mark.power("evidence 10 % off in 5 dimensions")
def test_evidence_of_a_bump():
    value, error, w = pool([c.log_evidence for c in islands(bump, 5, 16, 128, 5, rng=0)])
    exact = 5*(norm.logpdf(1, scale=1.25**.5) - norm.logpdf(0, scale=.5))
    assert abs(value - exact) < 10*error < 1 and w.sum() == pytest.approx(1)

def test_the_ladder_rises():
    assert next_temperature(.9, np.zeros(5), .9) == 1.
    assert 0 < next_temperature(0., -1e200*np.arange(50.), .9) < 1e-190
    assert next_temperature(.5, -1e200*np.arange(50.), .9) == pytest.approx(.505)
    island = climb(bump, 2, 64, 2, .5, False, SeedSequence(0))
    assert island.ladder[0] == 0 and island.ladder[-1] == 1 and (np.diff(island.ladder) > 0).all() and 1 <= island.ancestors <= 64

def test_systematic_resampling():
    w = default_rng(0).random(40)
    n = np.bincount(systematic(w, 1000, default_rng(1)), minlength=40)
    assert n.sum() == 1000 and (np.abs(n - 1000*w/w.sum()) <= 1 + 1e-9).all()

# --- the stored experiments

def read(name): return pd.read_csv(DATA/f"learning_{name}.csv")

@pytest.mark.power("distribution functions .15 apart, stated variances off by nine tenths")
def test_calibration_of_the_stored_table():
    "Data from the prior: ranks of fresh values uniform (Kolmogorov–Smirnov, p > 1e-6), stated variance = squared error, for 1, 2 and 8 heads."
    for H, t in read("calibration").groupby("heads"):
        assert len(t) >= 300 and kstest(t["rank"], "uniform").pvalue > 1e-6
        gap = t["error"]**2 - t["variance"]
        assert abs(gap.mean()) < 6*gap.std()/len(gap)**.5 < .9*t["variance"].mean(), H

@pytest.mark.parametrize("name", ["calibration", "recall", "average", "heads", "trust"])
def test_stored_tables_are_what_the_command_writes(name):
    "One row of each, computed again."
    learning = pytest.importorskip("learning")
    stored = read(name)
    fresh = {"calibration": lambda: learning.run_calibration(3, 2), "recall": lambda: learning.run_recall(1, "1", dict(learning.models())["1"]), "average": lambda: learning.run_average(1, "1", dict(learning.models())["1"]),
             "heads": lambda: learning.run_heads(1, 1, 1), "trust": lambda: learning.run_trust(0, 16, 1, 4, 1, 128, 3)}[name]()
    keys = [k for k in ("seed", "truth", "heads", "P", "D", "d", "particles", "moves") if k in fresh]
    row = stored[np.all([stored[k].astype(str) == str(stored[k].dtype.type(fresh[k]) if stored[k].dtype.kind in "if" else fresh[k]) for k in keys], axis=0)]
    assert len(row) == 1
    for k, v in fresh.items():
        if k not in keys: np.testing.assert_allclose(float(row[k].iloc[0]), float(v), rtol=1e-5, err_msg=k)

def test_finite_width_converges_like_one_over_n():
    "Stored paired differences: n times them is nearly constant, and larger for more outputs."
    t = read("width")
    limit = t[t.n == np.inf].set_index(["seed", "outputs"])["evidence"]
    t = t[t.n < np.inf].set_index(["seed", "outputs", "n"])["evidence"]
    size = (t - limit.reindex(t.index.droplevel("n")).to_numpy()).abs().groupby(["outputs", "n"]).mean().unstack()
    assert ((np.log2(size[1024.]/size[64.])/4 + 1).abs() < .2).all()
    assert size[64.][16] > size[64.][4] > size[64.][1]

@pytest.mark.power("ranks .1 off uniform")
@pytest.mark.slow
def test_calibration_live():
    learning = pytest.importorskip("learning")
    ranks = [learning.run_calibration(50_000 + k, 2)["rank"] for k in range(300)]
    assert kstest(ranks, "uniform").pvalue > 1e-6

# --- determinism

def test_same_bytes_for_any_number_of_workers():
    X, y = data(5, 3, 2)
    fit = lambda e: AttentionRegressor(2, random_state=3, **SMALL).fit(X, y, executor=e)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(4) as four, ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        first, *others = (pickle.dumps((m.log_evidences_, m.latents_, m.predict(X), m.sample_y(X, 3))) for m in map(fit, (one, four, processes, None)))
    assert all(first == other for other in others)

def test_seeds_are_seeds():
    X, y = data(4, 3, 2)
    a, b, c = (AttentionRegressor(random_state=r, **SMALL).fit(X, y).log_marginal_likelihood_value_ for r in (1, SeedSequence(1), 2))
    assert a == b != c
    g = default_rng(1)
    m = AttentionRegressor(random_state=g, **SMALL).fit(X, y)
    assert m.log_marginal_likelihood_value_ == a
    np.testing.assert_array_equal(m.predict(X), m.predict(X)) # prediction is a function
    assert m.fit(X, y).log_marginal_likelihood_value_ != a # a Generator is a state

def test_a_failed_or_interrupted_fit_loses_nothing(monkeypatch):
    X, y = data(4, 3, 2)
    m = AttentionRegressor(random_state=0, **SMALL).fit(X, y)
    before = m.predict(X)
    with pytest.raises(ValueError): m.fit(X, y*np.nan)
    monkeypatch.setattr("infattn_nb.learning.regressor.islands", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt): m.fit(2*X, y)
    np.testing.assert_array_equal(m.predict(X), before)

# --- bad input

def test_unusual_but_right():
    X, y = data(4, 3, 2)
    twice = AttentionRegressor(random_state=0, **SMALL).fit(np.concatenate([X, X]), np.concatenate([y, y]))
    assert np.isfinite(twice.predict(X)).all()
    wide = AttentionRegressor(random_state=0, **SMALL).fit(X[:2], default_rng(0).standard_normal((2, 5))) # D > P
    assert wide.predict(X).shape == (4, 5)
    for target in (np.zeros(4), np.full(4, 3.), 100*y, [1, 2, 3, 4]):
        assert np.isfinite(AttentionRegressor(random_state=0, n_islands=2, n_particles=32, n_moves=2).fit(X, target).predict(X)).all()
    assert AttentionRegressor(random_state=0, **SMALL).fit(0*X, y).log_marginal_likelihood_value_ == pytest.approx(norm.logpdf(y, scale=.1).sum())
    assert np.isnan(AttentionRegressor(random_state=0, n_islands=1, n_particles=16, n_moves=1).fit(X, y).log_marginal_likelihood_error_)
    assert np.isfinite(AttentionRegressor(random_state=0, **SMALL).fit(X[:, :1], y).predict(X)).all() # s = 1, then more tokens than it has seen
    assert twice.fit(X[:, :, :1], y).predict(X[:, :, :1]).shape == (4,) # fitted again to another embedding

def test_rough_posteriors_are_named():
    rng = default_rng(0)
    with pytest.warns(RuntimeWarning, match="the posterior is rough: of 16 particles"):
        AttentionRegressor(n_particles=16, n_moves=1, random_state=0).fit(3*rng.standard_normal((12, 4, 4)), rng.standard_normal(12))

X, Y = data(4, 3, 2)
NAN = np.where(np.arange(24).reshape(4, 3, 2) == 5, np.nan, X)
BAD = [
    (dict(), NAN, Y, ValueError, "`X` must be finite"), (dict(), X, NAN[:, 0, 1]*np.nan, ValueError, "`y` must be finite"),
    (dict(), X[0], Y, ValueError, r"`X` must be \(sequences, tokens, features\)"), (dict(), X[:0], Y[:0], ValueError, "none of them 0"),
    (dict(), X, Y[:3], ValueError, r"`y` must be \(4,\)"), (dict(), X, X, ValueError, "`y` must be"), (dict(), X.astype(str), Y, TypeError, "`X` must hold real numbers"),
    (dict(), 1e60*X, Y, ValueError, "`X` must be finite with squares below"), (dict(), X, None, ValueError, "`y` must be given"), (dict(), [[1.], [1., 2.]], Y, ValueError, "lists of different lengths"),
    (dict(alpha=0), X, Y, ValueError, r"`alpha` must be in \(0, ∞\)"), (dict(alpha=1e-30), X, Y, ValueError, "`alpha` must be at least"), (dict(alpha="a"), X, Y, TypeError, "`alpha`"),
    (dict(heads=0), X, Y, ValueError, "`heads` must be at least 1"), (dict(heads=1.5), X, Y, TypeError, "`heads` must be an integer"), (dict(width=.5), X, Y, ValueError, "`width` must be a whole number"),
    (dict(var_qk=-1.), X, Y, ValueError, r"`var_qk` must be in \[0, ∞\)"), (dict(var_vo=np.inf), X, Y, ValueError, "`var_vo` must be"), (dict(keep=1.), X, Y, ValueError, r"`keep` must be in \(0, 1\)"),
    (dict(readout=3), X, Y, ValueError, "`readout` must be an output 0…2"), (dict(readout="max"), X, Y, ValueError, "`readout` must be 'mean'"), (dict(readout=.5), X, Y, TypeError, "`readout`"),
    (dict(mask="future"), X, Y, ValueError, "`mask` must be 'causal'"), (dict(mask=np.ones((2, 2), bool)), X, Y, ValueError, r"`mask` must be \(3, 3\)"), (dict(score_scale="cubic"), X, Y, ValueError, "`score_scale`"),
    (dict(n_particles=1), X, Y, ValueError, "`n_particles` must be at least 2"), (dict(n_islands=0), X, Y, ValueError, "`n_islands`"), (dict(n_moves=0), X, Y, ValueError, "`n_moves`"), (dict(random_state="x"), X, Y, TypeError, "`random_state`|`rng`"),
]

@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_input_is_one_sentence(case):
    options, X, y, kind, match = BAD[case]
    with pytest.raises(kind, match=match) as e: AttentionRegressor(**(dict(random_state=0) | SMALL | options)).fit(X, y)
    assert str(e.value).count("\n") == 0

@pytest.mark.parametrize("call, words", [(lambda: recall(0), "`sequences` must be at least 1"), (lambda: recall(4, keys=0), "`keys`"), (lambda: recall(4, size=-1.), "`size`"),
    (lambda: recall(4, noise=np.nan), "`noise`"), (lambda: recall(4, rng="x"), "`rng`")])
def test_recall_refuses(call, words):
    with pytest.raises((ValueError, TypeError), match=words) as e: call()
    assert "\n" not in str(e.value)

def test_bad_input_after_fit():
    m = AttentionRegressor(random_state=0, mask="causal", **SMALL).fit(X, Y)
    for verb in (m.predict, m.predictive, m.sample_y, m.attention, AttentionRegressor().predict):
        with pytest.raises(ValueError, match="`X` must be"): verb(X[0])
    with pytest.raises(ValueError, match="`X` must have tokens of 2 numbers as in `fit`, got 3"): m.predict(np.ones((1, 3, 3)))
    with pytest.raises(ValueError, match="`params` must be 'heads' or .* got 'head'"): m.set_params(head=2)
    with pytest.raises(ValueError, match="`n_samples` must be at least 1"): m.sample_y(X, 0)
    with pytest.raises(TypeError, match="`executor` must be"): m.fit(X, Y, executor=3)

# --- scikit-learn as a client

class OneToken(AttentionRegressor):
    "For scikit-learn's checks, which know tables only: a row is a sequence of one token. Then the model is Bayesian linear regression."
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags

    def fit(self, X, y): return super().fit(self._tokens(X), y)
    def _ready(self, X): return super()._ready(self._tokens(X))
    def _tokens(self, X): return X if hasattr(X, "toarray") or np.ndim(X) != 2 else np.asarray(X)[:, None]

WORDING = {"check_n_features_in_after_fitting", "check_estimators_empty_data_messages", "check_requires_y_none", # refused, but in this package's own sentence
           "check_dtype_object", "check_regressor_data_not_an_array"} # arrays of objects and things that hide an array are refused

@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_checks():
    checks = pytest.importorskip("sklearn.utils.estimator_checks", reason="scikit-learn is not installed: it is a test oracle only")
    results = checks.check_estimator(OneToken(n_particles=4, n_islands=1, n_moves=1, random_state=0), on_fail=None)
    failed = {r["check_name"]: repr(r["exception"]) for r in results if r["status"] == "failed"}
    assert set(failed) <= WORDING, failed
    assert sum(r["status"] == "passed" for r in results) > 35
    checks.check_estimator(AttentionRegressor())

def test_scikit_learn_clients():
    base, selection = pytest.importorskip("sklearn.base", reason="scikit-learn is not installed: it is a test oracle only"), pytest.importorskip("sklearn.model_selection")
    X, y = data(12, 3, 2)
    m = AttentionRegressor(2, random_state=0, **SMALL)
    assert base.clone(m).get_params() == m.get_params() and base.is_regressor(m)
    search = selection.GridSearchCV(m, {"heads": [1, np.inf]}, cv=3).fit(X, y)
    assert search.best_params_["heads"] in (1, np.inf) and search.predict(X).shape == (12,)

def test_as_in_gaussian_process_regressor():
    "Uniform weights against scikit-learn's Gaussian process with the linear kernel of the mean tokens."
    gp = pytest.importorskip("sklearn.gaussian_process", reason="scikit-learn is not installed: it is a test oracle only")
    X, y = data(8, 3, 2)
    ours = AttentionRegressor(score_scale="linear", alpha=.1).fit(X[:5], y[:5])
    theirs = gp.GaussianProcessRegressor(gp.kernels.DotProduct(sigma_0=0, sigma_0_bounds="fixed"), alpha=.1, optimizer=None).fit(X.mean(1)[:5], y[:5])
    np.testing.assert_allclose(ours.predict(X[5:], return_std=True), theirs.predict(X.mean(1)[5:], return_std=True), rtol=1e-6)
    assert ours.log_marginal_likelihood_value_ == pytest.approx(theirs.log_marginal_likelihood_value_)
    assert ours.score(X[:5], y[:5]) == pytest.approx(theirs.score(X.mean(1)[:5], y[:5]))

def test_repr_and_pickle():
    m = AttentionRegressor(3, alpha=.5, random_state=0, **SMALL).fit(X, Y)
    assert repr(AttentionRegressor(3, alpha=.5)) == "AttentionRegressor(heads=3, alpha=0.5)"
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(m)).predict(X), m.predict(X))

def test_recall_is_recall():
    X, y, answer = recall(50, 0, noise=0.)
    np.testing.assert_allclose(X[np.arange(50), answer, -1], y)
    np.testing.assert_allclose(X[np.arange(50), answer, :-1], X[:, -1, :-1])
    np.testing.assert_array_equal(recall(50, 0, noise=0.)[0], X)
