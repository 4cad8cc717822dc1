"The Gaussian regimes: tied layer, distances and tails by other routes."

from functools import lru_cache

import numpy as np
import pytest
from conftest import nightly
from scipy.stats import ks_2samp, norm

from infattn_nb import Attention, Program, ScaleMixture, Tokens, limit_error, paired_kl
from infattn_nb.convergence import gaussian_distances, gaussian_limits, importance_tail
from infattn_nb.convergence import tail_probability, tied_law, tied_scores
from infattn_nb.convergence.regimes import DISTANCES, LimitErrorResult
from infattn_nb.distributions.scale_mixture import value_and_error
from infattn_nb.netsor import ProgramTokens
from infattn_nb.nonlinearities import clip, identity, relu, softmax, tanh
from infattn_nb.theory import softmax_weight

T = Tokens(4, clip(100.0))
made = lru_cache(Attention)  # the limit law of a layer is computed once
CORRELATED = Tokens(3, relu, [[1, 0.5, 0], [0.5, 2, 0.3], [0, 0.3, 1]])


def dense(layer, n, size, rng):
    "Scores and outputs with W^Q = W^K, all matrices drawn."
    m, X = layer.width_of_heads(n), layer.tokens.explicit(n, size, rng)
    W = lambda rows, cols, var: (
        rng.standard_normal((size, rows, cols)) * np.sqrt(var / rows)
    )
    y, scores = 0.0, []
    for a in range(layer.heads):
        Q = X @ W(n, m, layer.var_q)
        G = Q @ Q.mT / m
        scores.append(G)
        y = y + layer.attend(G) @ X @ W(n, m, layer.var_v) @ W(
            m, n, layer.var_o
        ) / np.sqrt(layer.heads)
    return np.stack(scores, axis=1), y[:, :, 0]


@pytest.mark.parametrize(
    "layer, n",
    [
        (Attention(T, heads=2, var_q=0.6, var_k=0.6), 3),
        (Attention(CORRELATED, heads=2, var_q=2.0, var_k=2.0, var_v=0.5), 7),
        (Attention(T, heads=3, head_width=2), 6),
        (Attention(CORRELATED, mask="causal", bias=np.eye(3)), 9),
    ],
)
@pytest.mark.power("distribution functions .042 apart")
def test_tied_layer_is_the_explicit_one(layer, n):
    G, y = dense(layer, n, 12_000, np.random.default_rng(0))
    scores, law = tied_scores(layer, n, 12_000, rng=1), tied_law(layer, n)
    s, z = layer.tokens.seq_len, law.rvs(12_000, rng=2)
    assert scores.shape == (12_000, layer.heads, s, s)
    # symmetric, as QQᵀ is
    np.testing.assert_allclose(scores, np.swapaxes(scores, 2, 3), rtol=0, atol=1e-12)
    for i, j in ((0, 0), (0, 1), (s - 1, s - 2)):
        assert ks_2samp(G[:, -1, i, j], scores[:, -1, i, j]).pvalue > 1e-9
    for f in (
        lambda y: y[:, 0],
        lambda y: y[:, -1],
        lambda y: y.sum(1),
        lambda y: y[:, 0] * y[:, 1],
    ):
        assert ks_2samp(f(y), f(z)).pvalue > 1e-9


@pytest.mark.slow
@pytest.mark.power("spreads 15 % off 1/√n, over a factor of 4")
def test_tied_limit_is_one_gaussian():
    layer = Attention(CORRELATED, heads=5, var_q=0.7, var_k=0.7, var_v=2.0, var_o=0.3)
    K = CORRELATED.kernel()
    A = softmax(0.7 * K)
    np.testing.assert_allclose(
        tied_scores(layer, np.inf, 2, rng=0),
        np.broadcast_to(0.7 * K, (2, 5, 3, 3)),
        atol=1e-12,
    )
    np.testing.assert_allclose(
        tied_law(layer).covariances(2, 0), np.broadcast_to(0.6 * A @ K @ A.T, (2, 3, 3))
    )
    spread = [
        tied_scores(layer, n, 4000, rng=0)[:, 0, 0, 1].std() * np.sqrt(n)
        for n in (400, 6400)
    ]
    assert spread[0] == pytest.approx(spread[1], rel=0.15)  # ± 1.1 % each, and O(1/n)
    # heads of fixed width stay random
    random = tied_law(Attention(T, head_width=4)).covariances(100, 0)
    assert random[:, 0, 0].std() > 0.1


@pytest.mark.slow
@pytest.mark.power("variances .04 % off")
@pytest.mark.parametrize(
    "layer",
    [
        Attention(T, heads=3),
        Attention(CORRELATED, heads=2, var_v=4.0),
        Attention(Tokens(2, identity), var_q=5.0, var_k=5.0),
    ],
)
def test_gaussian_limits(layer):
    K, s = layer.tokens.kernel(), layer.tokens.seq_len
    σ2 = layer.var_v * layer.var_o
    S, error = layer.infinite_heads(return_error=True)
    by_default = gaussian_limits(layer)
    for i in range(s):  # the last output is the default
        limits = gaussian_limits(layer, i)
        assert limits["1/n"].var() == pytest.approx(σ2 * K.sum() / s**2)
        a = softmax(layer.var_q * K)[i]
        assert limits["1/n, tied"].var() == pytest.approx(σ2 * a @ K @ a)
        heads = limits["infinite heads"].var()
        assert abs(heads - S.marginal(i).var()) < 10 * error[i, i]
    assert {k: law.std() for k, law in limits.items()} == {
        k: law.std() for k, law in by_default.items()
    }
    assert "1/n, tied" not in gaussian_limits(Attention(T, var_q=2.0))


def test_distances_vanish_where_the_limit_is_gaussian():
    "Without score variance all weights are equal, in every regime."
    table = gaussian_distances(Attention(T, heads=2, var_q=0.0, var_k=0.0))
    assert set(table) == {"infinite heads", "1/n", "1/n, tied"}
    assert all(set(row) == set(DISTANCES) for row in table.values())
    for row in table.values():
        assert all(abs(d) < 1e-7 for d in row.values()), row


@pytest.mark.slow
def test_scale_does_not_matter():
    one, big = (gaussian_distances(Attention(T, heads=2, var_v=v)) for v in (1.0, 1e6))
    for regime in one:
        for name in DISTANCES:
            assert big[regime][name] == pytest.approx(
                one[regime][name], rel=1e-6, abs=0
            )


@pytest.mark.slow
def test_distances_by_heads():
    "Slopes −2 (KL) and −1; the other two Gaussians have wrong variances."
    few, many = (
        gaussian_distances(Attention(T, heads=H), return_error=True) for H in (32, 128)
    )
    for name, slope in (("KL", -2), ("TV", -1), ("Hellinger", -1), ("W1", -1)):
        (a, da), (b, db) = (row["infinite heads"][name] for row in (few, many))
        assert np.log(b / a) / np.log(4) == pytest.approx(slope, abs=0.02)
        assert da < 1e-3 * a
        assert db < 1e-3 * b
        assert many["1/n"][name][0] > 100 * b
        assert many["1/n, tied"][name][0] > 100 * b


@pytest.mark.slow
@pytest.mark.power("KL 8 % off")
@pytest.mark.parametrize("s", nightly([2, 5], 5))
def test_stated_error_of_distances_covers_the_truth(s):
    "Five tokens; the answer has more digits from 10 sets of draws."
    layer = Attention(Tokens(s, identity), heads=1)
    value, error = gaussian_distances(layer, return_error=True)["infinite heads"]["KL"]
    exact = layer.law().marginal(0)
    fine = [
        DISTANCES["KL"](
            layer.law().marginal(0, draws=2**15, rng=k), norm(scale=exact.std())
        )
        for k in range(10)
    ]
    assert (
        abs(value - np.mean(fine)) < 10 * np.std(fine, ddof=1) / 10**0.5 + error + 1e-5
    )  # bias of 2^15 draws
    assert 0 < error < 1e-2 * value


@pytest.mark.slow
@pytest.mark.power("stated errors a factor of two off")
@pytest.mark.parametrize("name", ("KL", "TV"))
def test_stated_error_of_distances_of_draws_is_their_scatter(name):
    "Low-rank heads, whose limit is known by draws only."
    layer = Attention(Tokens(2, identity), heads=2, head_width=4)
    laws = [layer.law().marginal(0, draws=2**12, rng=k) for k in range(24)]
    values, errors = np.transpose(
        [
            value_and_error(lambda p: DISTANCES[name](p, norm(scale=1.3)), law)
            for law in laws
        ]
    )
    assert 0.5 < np.median(errors) / values.std(ddof=1) < 2


@pytest.mark.power("probabilities 1e-5 off as stated, 10 % off by importance sampling")
@pytest.mark.parametrize("H", nightly([1, 2, 8, 64], 2, 8))
@pytest.mark.long
def test_tails(H):
    """Stated relative error ≤ 1e-5 at 4σ and 6σ; importance sampling agrees, at two
    inflations; and kurtosis is (3/H) Var u/E[u]².
    """
    layer = made(T, H)
    law, k = layer.law().marginal(0), np.array([4.0, 6.0])
    p, error = tail_probability(law, k, return_error=True)
    assert (error < 1e-5 * p).all()
    assert (p > 2 * norm.sf(k)).all()
    np.testing.assert_allclose(p, tail_probability(law, k), rtol=1e-14)
    for inflate, seed in ((None, 0), (1 + 0.2 / H**0.75, 1)):
        q, se = importance_tail(
            layer, k * law.std(), draws=2**18 // H, inflate=inflate, rng=seed
        )
        assert (np.abs(q - p) < 8 * se).all()
        assert (se < 0.02 * p).all()
    one = made(T, 1).law().marginal(0)
    assert law.kurtosis() == pytest.approx(one.kurtosis() / H, rel=1e-8)


def test_known_tails():
    "Six-sigma tails and moments of u, by Fourier along a shifted contour."
    law = Attention(T, heads=2).law().marginal(0)
    assert tail_probability(law, 6) / 2 == pytest.approx(5.39041e-8, rel=2e-6, abs=0)
    assert 3 / 2 * 0.0124613 / 0.3919714**2 == pytest.approx(law.kurtosis(), rel=1e-5)


@pytest.mark.power("probabilities 1 % off at .5, 11 % at 2")
def test_importance_sampling_without_inflation_is_conditional_monte_carlo():
    layer, t = Attention(CORRELATED, heads=2), np.array([0.5, 2.0])
    p, se = importance_tail(layer, t, width=50, inflate=1, draws=2**14, rng=3)
    plain, error = (
        layer.law(50).marginal(0, draws=2**16, rng=4).sf(t, return_error=True)
    )
    assert p.shape == se.shape == (2,)
    assert (np.abs(p - 2 * plain) < 8 * np.hypot(se, 2 * error)).all()
    scalar, _ = importance_tail(layer, 0.5, width=50, inflate=1, draws=2**14, rng=3)
    assert scalar == p[0]


@pytest.mark.power("a bias of .8 standard errors; errors wrong by a factor of 2")
@pytest.mark.long
def test_importance_errors_are_honest():
    "z-scores of 60 seeds: unbiased, spread one, also when the weights matter."
    law = Attention(T, heads=2).law().marginal(0)
    t = 6 * law.std()
    z = np.array(
        [
            (lambda m, se: (m - tail_probability(law, 6)) / se)(
                *importance_tail(Attention(T, heads=2), t, draws=2**13, rng=k)
            )
            for k in range(60)
        ]
    )
    assert abs(z.mean()) < 6 / 60**0.5
    assert 0.5 < z.std() < 1.8


@pytest.mark.power("8 standard errors between n = 64 and 1024")
def test_wide_tails_of_narrow_layers():
    layer = Attention(T, heads=2)
    t = 6 * layer.law().marginal(0).std()
    (p, dp), (q, dq) = (
        importance_tail(layer, t, width=n, draws=2**16, rng=0) for n in (64, 1024)
    )
    assert p - q > 8 * np.hypot(dp, dq)
    assert q - tail_probability(layer.law().marginal(0), 6) > 5 * dq


def test_tied_scores_over_random_tokens_leave_the_covariance_random():
    p = Program()
    (h,) = p.inputs([[1.0]])
    x = tanh(h)
    y = p.nonlin(softmax_weight(2), h, scores=[p.score(p.matrix() @ x, p.matrix() @ x)])
    assert tied_law(Attention(ProgramTokens(p, [y]))).covariances(50, 0).std() > 0.01


@pytest.mark.filterwarnings("ignore:.*beyond six standard deviations")
@pytest.mark.power("an excess kurtosis or a divergence eight standard errors off")
@pytest.mark.long
def test_good_enough_says_what_its_parts_say():
    "The numbers are those of the laws and of the paired divergence."
    narrow = Attention(Tokens(4, identity, np.eye(4)), heads=2, head_width=8, var_q=4.0)
    wide = Attention(Tokens(4, identity, np.eye(4)), heads=2, var_q=4.0)
    said = limit_error(narrow, 16, draws=2**12)
    x, limit = said.numbers, wide.law().marginal(0)
    assert (
        x["limit kurtosis"]
        == limit.kurtosis()
        != narrow.law().marginal(0, draws=2**12).kurtosis()
    )
    assert x["limit beyond 6 sd"] == tail_probability(limit, 6) / (2 * norm.sf(6))
    y = narrow.law(16).marginal(0, draws=2**16, rng=1)
    both = [law.kurtosis(return_error=True) for law in (y, said.law)]
    assert abs(both[0][0] - both[1][0]) < 8 * (both[0][1] + both[1][1])
    D, error = paired_kl(narrow, 16, draws=2**14, rng=5, limit=wide)
    assert abs(said.divergence - D) < 8 * np.hypot(error, said.divergence_error)
    assert x["off"] == pytest.approx(np.sqrt(said.divergence / 2))
    assert 0 < x["share"] < 1
    assert "rough guide" in said.verdict
    assert "in the bulk, not in the tails" in said.verdict
    assert repr(said).count("\n") <= 7
    assert "width 16" in repr(said)


@pytest.mark.long
def test_good_enough_at_the_last_width():
    "At infinite width a layer is its limit: no divergence."
    x = limit_error(Attention(T, heads=2), np.inf, draws=2**10)
    assert x.divergence == 0
    assert x.numbers["share"] == pytest.approx(1, abs=0.01)
    assert x.numbers["beyond 6 sd"] == pytest.approx(
        x.numbers["limit beyond 6 sd"], rel=1e-9
    )


@pytest.mark.filterwarnings("ignore:.*beyond six standard deviations")
@pytest.mark.power("an error a factor of ten too small or too large")
@pytest.mark.long
def test_each_number_of_good_enough_has_its_error():
    """Over ten seeds the numbers scatter as the errors say, and what a share of the
    errors cannot say: a tail that too few draws reach.
    """
    layer = Attention(Tokens(4, identity, np.eye(4)), heads=2, var_q=0.25)
    said = [limit_error(layer, 64, draws=2**13, rng=seed) for seed in range(10)]
    for name in ("kurtosis", "share", "beyond 6 sd", "divergence", "off"):
        x = np.array([s.numbers[name] for s in said])
        error = np.array([s.errors[name] for s in said])
        if np.isfinite(error).all():
            assert 0.1 < x.std(ddof=1) / np.mean(error) < 3, name
    assert said[0].errors["limit kurtosis"] < 1e-9
    few_draws = limit_error(layer, 64, draws=2**11, rng=0)
    share, error = few_draws.numbers["share"], few_draws.errors["share"]
    assert error > 0.03 * share
    assert f"{share:.0%} ± {error:.0%}" in repr(few_draws)
    few = "not determined by 64 draws; pass more `draws`"
    with pytest.warns(UserWarning, match=few):
        x = limit_error(
            Attention(Tokens(4, identity, np.eye(4)), var_q=4.0), 64, draws=64
        )
    assert x.errors["beyond 6 sd"] == np.inf
    assert "error unknown" in repr(x)
    with pytest.raises(ValueError, match="`draws` must be at least 32"):
        limit_error(layer, 64, draws=31)


@pytest.mark.filterwarnings("ignore:.*beyond six standard deviations")
def test_good_enough_draws_itself():
    ax = limit_error(Attention(Tokens(2, identity, np.eye(2))), 64, draws=2**10).plot()
    assert [line.get_label() for line in ax.lines] == ["width 64", "limit", "Gaussian"]
    assert (ax.lines[0].get_ydata()[-1] > ax.lines[1].get_ydata()[-1] > 1).all()


@pytest.mark.power("numbers of other draws, ten errors away")
@pytest.mark.filterwarnings("ignore:.*beyond six standard deviations")
def test_every_number_of_a_comparison_has_its_error():
    layer = Attention(Tokens(4, identity, np.eye(4)), var_q=4.0)
    small, large = (limit_error(layer, 64, draws=d, rng=1) for d in (2**10, 2**12))
    assert set(small.errors) == set(small.numbers)
    exact = large.limit.kurtosis()
    assert small.errors["limit kurtosis"] < 1e-6
    assert small.numbers["limit kurtosis"] == pytest.approx(exact)
    for name in ("kurtosis", "divergence", "share", "off"):
        off = small.numbers[name] - large.numbers[name]
        total = np.hypot(small.errors[name], large.errors[name])
        assert abs(off) < 10 * total, name
        assert small.errors[name] > large.errors[name] / 3 > 0, name


def test_errors_of_a_gram_matrix_reach_its_gaussians():
    "The kernel of tanh is known to some digits only."
    tokens = Tokens(2, "tanh", cov=[[1.0, 0.5], [0.5, 1.0]])
    _, error = tokens.kernel(return_error=True)
    assert error.max() > 1e-13
    layer = Attention(tokens)
    for law in (layer.linear_scaling(), tied_law(layer)):
        assert law.cov(return_error=True)[1].max() > error.max() / 2
        assert law.marginal(0).var(return_error=True)[1] > error.max() / 2
    assert tied_law(layer).logpdf([0.1, 0.2], return_error=True)[1] > 0
    drawn = layer.law().marginal(0, draws=64)
    assert drawn.nearby


def test_distances_state_the_errors_of_both_laws():
    v = np.random.default_rng(0).chisquare(8, 2**10) / 8
    drawn, exact = ScaleMixture(v), norm(scale=1.2)
    for name, distance in DISTANCES.items():
        _, error = distance(drawn, exact, return_error=True)
        _, reverse = distance(exact, drawn, return_error=True)
        other = ScaleMixture(np.random.default_rng(1).chisquare(8, 2**10) / 8)
        change = abs(distance(drawn, exact) - distance(other, exact))
        assert change < 10 * error, name
        assert min(error, reverse) > 1e-6, name


class Tail:
    "A law of variance one with a tail of some multiple of the Gaussian's."

    def __init__(self, times):
        self.times = times

    def sf(self, y):
        return self.times * norm.sf(y)

    def std(self):
        return 1.0

    def kurtosis(self):
        return self.times - 1


def result(divergence=0.0, tail=1.0, limit_tail=1.0, error=0.0):
    laws = Tail(tail), Tail(limit_tail)
    return LimitErrorResult(64, (1, 2), divergence, error, *laws)


def test_no_probability_is_off_by_more():
    """Pinsker: √(D/2) bounds the total variation. Two Gaussians of standard deviations
    1 and 1 + ε have D = ε² and total variation 2ε φ(1), up to higher orders.
    """
    ε = 1e-4
    D = np.log(1 + ε) + 1 / (2 * (1 + ε) ** 2) - 0.5
    off = result(D, error=D).numbers["off"]
    assert off / (2 * ε * norm.pdf(1)) == pytest.approx(
        1 / (2 * 2**0.5 * norm.pdf(1)), rel=1e-3
    )
    assert result(D, error=3 * D).errors["off"] == pytest.approx(off)
    assert result(-1e-9).numbers["off"] == 0


@pytest.mark.parametrize(
    "off, tail, limit_tail, said",
    [
        (0.0099, 1.4, 1.0, "good enough; so is the Gaussian"),
        (0.0101, 1.4, 1.0, "rough guide; so is the Gaussian"),
        (0.0, 1.45, 1.0, "good enough; so is"),
        (0.0, 1.55, 1.1, "good enough; the Gaussian misses"),
        (0.0, 1.55, 1.0, "in the bulk, not in the tails; the Gaussian misses"),
        (0.0, 1.0, 1.45, "good enough; so is"),
        (0.0, 1.0, 1.55, "in the bulk, not in the tails; so is"),
    ],
)
def test_verdicts_at_their_thresholds(off, tail, limit_tail, said):
    "A probability off by 1 %; tails by a factor of 1.5."
    assert said in result(2 * off**2, tail, limit_tail).verdict
