"""The collapsed sampler has exactly the law of the explicit simulation, at every width.

Each cell compares N draws with N draws by two-sample Kolmogorov–Smirnov tests at
level 1e-9, so a difference of distribution functions above sqrt(21.4/N) is seen:
0.046 for N = 10,000, and nightly 0.023 for N = 40,000. About 600 tests leave a
false alarm less likely than 1e-6, for any seed.
"""

import numpy as np
import pytest
from conftest import nightly
from numpy.random import default_rng
from scipy.stats import ks_2samp

from infattn_nb import Attention, CommonTokens, HierarchicalGaussian, Tokens
from infattn_nb.attention import sampling as recipe
from infattn_nb.attention import simulate_dense
from infattn_nb.nonlinearities import clip, identity, relu, tanh
from infattn_nb.numerics import parallel

CORRELATED = np.array(
    [[1, 0.8, -0.3, 0], [0.8, 2, 0.1, 0.4], [-0.3, 0.1, 0.5, 0], [0, 0.4, 0, 1]]
)
REPEATED = np.kron(np.array([[1, 0.5], [0.5, 1]]), np.ones((2, 2)))
BIAS = np.arange(16.0).reshape(4, 4) / 8
LONG = np.kron(REPEATED, np.full((4, 4), 0.3) + 0.7 * np.eye(4))  # 16 tokens
CELLS = {
    "one neuron, one ReLU token": (1, Attention(CommonTokens(1, relu))),
    "one neuron, four clipped tokens": (
        1,
        Attention(CommonTokens(4, clip(0.7)), heads=2),
    ),
    "fewer neurons than tokens": (2, Attention(CommonTokens(4, identity))),
    "five heads, ReLU, n = 3": (3, Attention(CommonTokens(2, relu), heads=5)),
    "correlated tokens": (8, Attention(Tokens(4, identity, CORRELATED), heads=2)),
    "correlated ReLU tokens": (
        3,
        Attention(Tokens(4, relu, CORRELATED), heads=1, var_q=3.0),
    ),
    "repeated tokens": (8, Attention(Tokens(4, clip(0.7), REPEATED), heads=2)),
    "repeated identity tokens": (2, Attention(Tokens(4, identity, REPEATED), heads=1)),
    "low rank": (8, Attention(CommonTokens(4, clip(0.7)), heads=2, head_width=4)),
    "heads share the width": (
        8,
        Attention(CommonTokens(4, clip(0.7)), heads=2, head_width=None),
    ),
    "low rank, head width one": (
        2,
        Attention(CommonTokens(2, relu), heads=2, head_width=1),
    ),
    "causal mask": (3, Attention(CommonTokens(4, relu), heads=2, mask="causal")),
    "several outputs with a mask, n = 4": (
        4,
        Attention(
            Tokens(4, tanh, CORRELATED),
            heads=3,
            mask=np.array(
                [[1, 0, 0, 1], [1, 1, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1]], dtype=bool
            ),
        ),
    ),
    "rows blind to themselves": (
        4,
        Attention(Tokens(4, relu, CORRELATED), heads=2, mask=~np.eye(4, dtype=bool)),
    ),
    "bias": (8, Attention(CommonTokens(4, clip(0.7)), heads=2, bias=BIAS)),
    "linear scaling": (
        8,
        Attention(CommonTokens(2, identity), heads=2, scaling="linear"),
    ),
    "linear scaling, low rank, mask and bias": (
        6,
        Attention(
            Tokens(4, tanh, CORRELATED),
            heads=2,
            head_width=3,
            scaling="linear",
            mask="causal",
            bias=BIAS,
        ),
    ),
    "identity weights": (8, Attention(CommonTokens(4, identity), weights=identity)),
    "identity weights, masked": (
        3,
        Attention(CommonTokens(4, relu), weights=identity, mask="causal"),
    ),
    "five heads, other variances": (
        8,
        Attention(
            CommonTokens(2, relu), heads=5, var_q=2.0, var_k=0.5, var_v=3.0, var_o=0.7
        ),
    ),
    "heads of unequal variances": (
        16,
        Attention(Tokens(4, identity, CORRELATED), heads=3, var_o=[0.1, 1.0, 4.0]),
    ),
    "unequal heads share the width": (
        6,
        Attention(CommonTokens(2, relu), heads=2, head_width=None, var_o=[0.0, 3.0]),
    ),
    "sixteen tokens, fewer neurons": (
        6,
        Attention(CommonTokens(16, relu), heads=2, mask="causal", var_q=4.0),
    ),
    "sixteen tokens, narrow heads that differ": (
        15,
        Attention(
            Tokens(16, tanh, LONG),
            heads=3,
            head_width=5,
            var_q=3.0,
            var_o=[0.1, 1.0, 4.0],
            bias=np.kron(BIAS, np.ones((4, 4))),
        ),
    ),
    "sixteen tokens, wide heads": (
        24,
        Attention(CommonTokens(16, identity), heads=2, weights=identity, var_k=2.0),
    ),
    "sixteen tokens, linear scaling": (
        20,
        Attention(CommonTokens(16, clip(0.7)), heads=2, scaling="linear", var_q=90.0),
    ),
    "n = 32": (32, Attention(CommonTokens(4, relu))),
    "n = 64": (64, Attention(CommonTokens(4, relu), heads=2)),
}
TWINS = (
    "one neuron, four clipped tokens",
    "correlated ReLU tokens",
    "repeated identity tokens",
    "low rank, head width one",
    "linear scaling",
    "identity weights",
    "causal mask",
    "sixteen tokens, linear scaling",
)  # each part of them is in another cell


def statistics(y, G):
    s, H = y.shape[1], G.shape[1]
    i, j, a = s - 1, min(1, s - 1), H - 1
    yield "first output", y[:, 0]
    yield "last output", y[:, i]
    yield "product", y[:, 0] * y[:, i]
    yield "sum", y.sum(1)
    yield "squared length", (y**2).sum(1)
    yield "score", G[:, a, 0, 0]
    yield "score across tokens", G[:, a, i, 0]
    yield "scores sharing a query", G[:, 0, i, 0] * G[:, 0, i, j]
    yield "scores sharing a key", G[:, 0, 0, j] * G[:, 0, i, j]
    yield "heads sharing tokens", G[:, 0, 0, 0] * G[:, a, 0, 0]


@pytest.mark.power("distribution functions .046 apart")
@pytest.mark.parametrize("name", nightly(CELLS, *TWINS, "n = 32", "n = 64"))
@pytest.mark.long
def test_same_law_as_explicit_simulation(name, size=10_000, seed=0):
    n, layer = CELLS[name]
    explicit = simulate_dense(layer, n, size, rng=seed, scores=True)
    law = layer.law(n, exact=True)
    scores = layer.scores(n, size, rng=seed + 2, exact=True)
    for y in (
        law.rvs(size, rng=seed + 1),
        HierarchicalGaussian(law.sample, law.dim).rvs(size, rng=seed + 3),
    ):  # at once, and through S
        for (what, a), (_, b) in zip(statistics(*explicit), statistics(y, scores)):
            assert ks_2samp(a, b, method="asymp").pvalue > 1e-9, f"{name}: {what}"


@pytest.mark.slow
@pytest.mark.power("distribution functions .023 apart")
@pytest.mark.parametrize("name", [name for name, (n, _) in CELLS.items() if n < 32])
def test_same_law_by_four_times_as_many_draws(name, size=40_000):
    test_same_law_as_explicit_simulation(name, size, seed=10)


@pytest.mark.power("distribution functions .046 apart")
@pytest.mark.parametrize(
    "name",
    nightly(
        ["correlated tokens", "low rank", "causal mask", "repeated identity tokens"],
        "correlated tokens",
    ),
)
@pytest.mark.long
def test_one_output_alone_has_the_same_law(name, size=10_000):
    n, layer = CELLS[name]
    for i in range(layer.tokens.seq_len):
        whole, alone = (
            layer.law(n).rvs(size, rng=i)[:, i],
            layer.law(n).marginal(i).rvs(size, rng=100 + i),
        )
        assert ks_2samp(whole, alone, method="asymp").pvalue > 1e-9


@pytest.mark.power("p < 1e-12 for two laws that are nearly right")
def test_the_comparison_rejects_other_laws():
    "No Wishart factors, or a forgotten shared length."
    n, layer = CELLS["five heads, ReLU, n = 3"]
    size, explicit = 40_000, simulate_dense(layer, n, 40_000, rng=0)
    assert (
        ks_2samp(
            (explicit**2).sum(1), (layer.law().rvs(size, rng=1) ** 2).sum(1)
        ).pvalue
        < 1e-12
    )
    independent = Attention(Tokens(2, relu, np.eye(2)), heads=5).law(n).rvs(size, rng=1)
    assert ks_2samp((explicit**2).sum(1), (independent**2).sum(1)).pvalue < 1e-12


@pytest.mark.power(
    "it must reject: no length of the values; one length for all heads; the same "
    "values in all heads"
)
@pytest.mark.parametrize("wrong", ["no length", "one length", "one head"])
def test_broken_outputs_are_rejected(wrong, monkeypatch, size=40_000):
    right = recipe.values_of

    def broken(L, m, shape, normals, wisharts):
        if wrong == "one head":
            return np.repeat(
                right(L, m, (1, *shape[1:]), normals, wisharts), shape[0], axis=1
            )
        v = right(L, np.inf, shape, normals, wisharts)
        return (
            v
            if wrong == "no length"
            else v * np.sqrt(wisharts.chisquare(m, shape[1:]) / m)
        )

    law = Attention(CommonTokens(2, identity), heads=2).law(2)
    through_S = HierarchicalGaussian(law.sample, law.dim).rvs(size, rng=0)

    def p(y):
        return min(
            ks_2samp(a, b, method="asymp").pvalue
            for a, b in [
                (y[:, 0], through_S[:, 0]),
                ((y**2).sum(1), (through_S**2).sum(1)),
            ]
        )

    assert p(law.rvs(size, rng=1)) > 1e-9
    monkeypatch.setattr(recipe, "values_of", broken)
    assert p(law.rvs(size, rng=1)) < 1e-9


@pytest.mark.power("it must reject: keys, or values, as in the limit; one key's factor")
@pytest.mark.parametrize("wrong", ["keys", "values", "one for all heads"])
@pytest.mark.slow
def test_broken_long_texts_are_rejected(wrong, monkeypatch, size=20_000):
    layer = Attention(CommonTokens(16, identity), 2, 1, var_q=4.0)
    right = recipe._wishart_factors
    calls = []

    def broken(q, m, shape, streams):
        calls.append(m)
        if wrong == "one for all heads":
            T = right(q, m, (shape[0], 1), streams)
            return np.repeat(T, shape[1], axis=1)
        values = len(calls) % 2 == 0  # keys are asked for first
        if values == (wrong == "values"):
            return np.broadcast_to(np.eye(q), (*shape, q, q))
        return right(q, m, shape, streams)

    def numbers():
        calls.clear()
        with parallel(1):  # calls come in their order
            S = layer.law().covariances(size, rng=1)[:, -1, -1]
        calls.clear()
        G = recipe.sample_scores(layer, layer.tokens, np.inf, size, default_rng(2))
        return S, G[:, 0, 0, 0], G[:, 0, 0, 0] * G[:, 1, 0, 0]

    def p(a, b):
        return min(ks_2samp(x, y, method="asymp").pvalue for x, y in zip(a, b))

    sound = numbers()
    monkeypatch.setattr(recipe, "SHORT", 16)
    last = numbers()
    assert p(sound, last) > 1e-9
    monkeypatch.setattr(recipe, "SHORT", 15)
    monkeypatch.setattr(recipe, "_wishart_factors", broken)
    assert p(numbers(), last) < 1e-9


@pytest.mark.power(
    "distribution functions .046 apart, of heads that are drawn together"
)
@pytest.mark.long
def test_heads_drawn_together_have_the_law_of_explicit_ones(monkeypatch):
    "Few samples at a time, so that all heads go together, as in one network."
    monkeypatch.setattr(recipe, "most_samples", lambda tokens: 64)
    together = []
    right = recipe.scores_of_long

    def spied(layer, R, m, h, streams):
        together.append(h)
        return right(layer, R, m, h, streams)

    monkeypatch.setattr(recipe, "scores_of_long", spied)
    test_same_law_as_explicit_simulation("sixteen tokens, narrow heads that differ")
    assert set(together) == {3}
