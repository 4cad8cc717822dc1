"""Gradients of random transformers against torch's automatic differentiation (stored,
see torch_gradients.py), explicit networks in NumPy, and exact identities.
"""

from dataclasses import replace

import numpy as np
import pytest
from conftest import least_p, nightly
from gradient_cases import CASES, INDEPENDENT, attention, case, feedforward, informative
from gradient_cases import readout_cov, statistics
from passes_cases import BY_HAND, drawn, ensemble, readout, smallest, stored
from reference import Explicit
from scipy.stats import ks_2samp

from infattn_nb import Block, FeedForward, Norm, Rotary, SelfAttention, Transformer
from infattn_nb.nonlinearities import clip, gelu, relu, step
from infattn_nb.numerics import parallel
from infattn_nb.numerics.linalg import divided, root, spanned, square, triangle_times
from infattn_nb.transformer import embedding_cov
from infattn_nb.transformer.passes import Network
from infattn_nb.transformer.stream import Sum

LEVEL = 1e-6


# daily against networks of our own
EXPLICIT = ("post, strong", "groups, bias, own width")


@pytest.mark.power("distribution functions .11 apart, of any of 30 statistics")
@pytest.mark.parametrize("name", nightly(CASES, *EXPLICIT))
@pytest.mark.long
def test_gradients_are_torchs(name, seed=0):
    c = case(name)
    ours, theirs = (
        drawn(ensemble(c), c["n"], 2000, seed, readout_cov(c["readout"])),
        stored(name),
    )
    assert set(ours) == set(theirs)
    assert all(len(x) >= 1500 for x in theirs.values())
    assert smallest(theirs, ours) > LEVEL
    if name in INDEPENDENT:  # and gradient independence is not what is computed
        fresh = stored(f"{name} (independent)")
        more = drawn(
            ensemble(c),
            c["n"],
            12_000 if name == "one strong head" else 6000,
            seed + 1,
            readout_cov(c["readout"]),
        )
        assert fresh
        assert smallest(fresh, {k: more[k] for k in fresh if informative(k)}) < LEVEL


def sample(name, size, rng, broken=None):
    "Statistics of explicit networks."
    c = case(name)
    net = Explicit(ensemble(c), c["n"], size, rng, broken)
    streams, dX, grads = net.gradients(*readout(c, size, rng))
    X, dX = (np.stack(x, 1) for x in (streams, dX))
    norms = {
        k: np.stack(
            [W[k][1] * (g[k] ** 2).sum((1, 2)) for W, g in zip(net.layers, grads)], 1
        )
        for k in net.layers[0]
    }
    K = X[:, 1] @ X[:, 1].mT
    return statistics(
        dX @ dX.mT, dX @ X.mT, norms, K[:, 0, -1] / np.sqrt(K[:, 0, 0] * K[:, -1, -1])
    )


@pytest.mark.power("distribution functions .09 apart, of any of 30 statistics")
@pytest.mark.parametrize("name", nightly(BY_HAND, *set(BY_HAND) - {*EXPLICIT}))
@pytest.mark.long
def test_gradients_are_those_of_explicit_networks(name, seed=0):
    "Torch's cases; a mistake in the softmax is seen."
    c = case(name)
    ours = drawn(ensemble(c), c["n"], 3000, seed, readout_cov(c["readout"]))
    theirs = sample(name, 1500, np.random.default_rng(seed + 1))
    assert set(ours) == set(theirs)
    assert smallest(theirs, ours) > LEVEL
    if name in (
        "rms, causal, relu",
        "post, strong",
        "output",
    ):  # a mistake in the softmax is seen
        assert (
            smallest(
                sample(name, 1500, np.random.default_rng(seed + 2), "softmax"), ours
            )
            < LEVEL
        )


@pytest.fixture
def whole(monkeypatch):
    "Backward passes follow all coordinates of the stream."
    monkeypatch.setattr(Network, "follows_all", lambda self, n: n < np.inf)


OFTEN = {
    "rms, causal, relu",
    "post, strong",
    "sandwich",
    "groups, qk norm, rotary",
    "no norm, biases",
}


@pytest.mark.power("distribution functions .1 apart, of any of 30 statistics")
@pytest.mark.parametrize("name", nightly(CASES, *set(CASES) - OFTEN))
@pytest.mark.long
def test_all_coordinates(whole, monkeypatch, name, seed=0):
    "All n coordinates followed: the same laws; less is seen."
    c = case(name)
    ours = drawn(ensemble(c), c["n"], 3000, seed, readout_cov(c["readout"]))
    assert smallest(stored(name), ours) > LEVEL
    if name == "post, strong":
        monkeypatch.setattr(
            "infattn_nb.transformer.block.spanned", lambda T, V, K: 0 * T @ V
        )
        assert (
            smallest(
                stored(name),
                drawn(ensemble(c), c["n"], 3000, seed + 1, readout_cov(c["readout"])),
            )
            < LEVEL
        )


NARROW = {
    "all axes but two": dict(
        n=8,
        attention=attention(heads=2, mask="causal", var_q=4.0),
        ff=feedforward(),
        kind="rms",
        final=True,
        readout="mean",
    ),
    "as many axes as tokens": dict(
        n=4,
        attention=attention(heads=1, var_q=4.0),
        ff=feedforward(units=3, var_b1=0.5),
        final=True,
    ),
    "biases of attention": dict(
        n=8,
        attention=attention(
            heads=2, mask="causal", var_q=4.0, var_bq=2.0, var_bv=0.7, var_bo=0.4
        ),
        ff=feedforward(),
        final=True,
        readout="mean",
    ),
    "biases that turn": dict(
        n=16,
        attention=attention(
            heads=4,
            groups=2,
            rotary=dict(base=10.0),
            var_q=4.0,
            var_bq=1.0,
            var_bk=3.0,
            var_bv=0.5,
        ),
        ff=feedforward(),
        kind="rms",
        final=True,
    ),
    "fewer axes than tokens": dict(
        n=3,
        norm_placement="post",
        eps=0.01,
        attention=attention(heads=1, var_q=4.0),
        ff=feedforward(units=2, activation="tanh"),
        final=True,
    ),
}


@pytest.mark.power("distribution functions .09 apart, of any of 30 statistics")
@pytest.mark.parametrize("name", NARROW)
@pytest.mark.long
def test_narrow_networks(monkeypatch, name, seed=0):
    "Where frames do not fit: explicit networks, and mistakes."
    monkeypatch.setitem(CASES, name, NARROW[name])
    c = case(name)
    ours = drawn(ensemble(c), c["n"], 3000, seed, readout_cov(c["readout"]))
    assert smallest(sample(name, 1500, np.random.default_rng(seed + 1)), ours) > LEVEL
    if c["n"] == 8:
        assert (
            smallest(
                sample(name, 1500, np.random.default_rng(seed + 2), "softmax"), ours
            )
            < LEVEL
        )


@pytest.mark.parametrize("s", (3, 70))
def test_factors_of_long_and_short_texts(s):
    "One identity for each of what LAPACK does matrix by matrix, regular and singular."
    rng = np.random.default_rng(0)
    V, B = rng.standard_normal((2, s, s + 5)), rng.standard_normal((2, s, s))
    flat = V.copy()
    flat[0, -1] = flat[0, 0]  # a token twice
    for X in (V, flat):
        F = square(X)
        L = root(F)
        np.testing.assert_allclose(square(L), F, atol=1e-9 * s)
        np.testing.assert_allclose(divided(B @ F, F) @ F, B @ F, atol=1e-7 * s**2)
        np.testing.assert_allclose(spanned(B @ F, X, F), B @ X, atol=1e-7 * s**2)
        np.testing.assert_allclose(triangle_times(L, X.copy()), L @ X, atol=1e-9 * s)
    # no triangle
    np.testing.assert_allclose(triangle_times(F, X.copy()), F @ X, rtol=1e-9)


@pytest.mark.parametrize("norm", ("pre", "post", "output", "sandwich", None))
@pytest.mark.parametrize("kind", ("layer", "rms"))
def test_limit_has_twins(norm, kind):
    "At n = m = ∞ q and k, v and o have gradients of one norm."
    own = dict(var_q=3.0, var_k=0.5, var_v=2.0, var_o=0.7, score_scale=1.3)
    heads = SelfAttention(2, softcap=3.0, mask="causal", **own)
    about = dict(norm=Norm(kind), branch_scale=0.8)
    blocks = [Block(heads, FeedForward(activation=relu), norm, **about)] * 3
    t = Transformer(np.eye(4) + 0.5, blocks, mean=0.3, final_norm=True)
    θ = t.gradients(np.inf, 50, 0, readout="mean").squared_norms
    np.testing.assert_allclose(θ["q"], θ["k"], rtol=1e-11)
    np.testing.assert_allclose(θ["v"], θ["o"], rtol=1e-11)


@pytest.mark.parametrize("norm", ("pre", "post", None))
@pytest.mark.parametrize("parallel", (False, True))
def test_what_a_sum_knows_is_shared_out(norm, parallel, monkeypatch):
    """In the limit dX′X′ᵀ is what goes past the branches plus S, in every sum of every
    network; without M it is not.
    """
    through, seen = Sum.back_in_the_limit, []

    def watched(step, g, overlap, rng):
        M, past = through(step, g, overlap, rng)
        known = g.inner(step.total)
        for kept, S in ((True, overlap + M @ step.F), (False, overlap)):
            gap = abs(past.inner(step.x) + S - known).max((-2, -1)) / abs(known).max(
                (-2, -1)
            )
            assert (gap < 1e-9).all() if kept else (gap > 1e-4).all()
        seen.append(step)
        return M, past

    monkeypatch.setattr(Sum, "back_in_the_limit", watched)
    block = Block(
        SelfAttention(2, var_q=3.0, mask="causal"),
        FeedForward(activation=gelu, var_b1=0.2, var_b2=0.3),
        norm,
        parallel=parallel,
        skip_scale=0.9,
        branch_scale=1.2,
    )
    Transformer(
        np.eye(4) + 0.5, blocks=[block] * 3, mean=0.3, final_norm=True
    ).gradients(np.inf, 50, 0, readout="mean")
    assert len(seen) == (3 if parallel else 6)


LIMITS = {
    "plain": (SelfAttention(2, var_q=4.0), None, dict(final_norm=True)),
    "no norm": (
        SelfAttention(1, var_q=4.0, mask="causal"),
        None,
        dict(norm_placement=None),
    ),
    "post, rms": (
        SelfAttention(2, var_q=4.0),
        None,
        dict(norm_placement="post", kind="rms"),
    ),
    "capped, normed queries": (
        SelfAttention(
            2, qk_norm=Norm("layer", 0.3), var_q=0.5, score_scale=3.0, softcap=2.0
        ),
        None,
        dict(norm_placement="sandwich"),
    ),
    "turned": (
        SelfAttention(
            4,
            groups=2,
            var_q=4.0,
            rotary=Rotary(base=1.0),
            qk_norm=Norm("rms"),
            score_scale=3.0,
        ),
        None,
        dict(kind="rms", final_norm=True),
    ),
    "units": (
        SelfAttention(2, 3, var_q=4.0),
        FeedForward(activation=relu),
        dict(norm_placement="post"),
    ),
    "gated": (
        SelfAttention(2, 3),
        FeedForward(activation=gelu, gated=True, var_b1=0.5, var_3=2.0, var_b2=0.3),
        dict(parallel=True),
    ),
    "a function of gates": (
        SelfAttention(2, 3),
        FeedForward(activation=relu, gated=True, gate_activation=gelu, var_3=2.0),
        dict(norm_placement=None),  # a norm would remove the gradient along a token
    ),
    "sinks": (SelfAttention(2, var_q=4.0, var_sink=2.0), None, {}),
}


@pytest.mark.power("distribution functions .1 apart, of any of 30 statistics")
@pytest.mark.parametrize(
    "name", nightly(LIMITS, "turned", "gated", "a function of gates")
)
@pytest.mark.long
def test_many_coordinates_are_the_limit(name, seed=0, n=10**7):
    a, f, options = LIMITS[name]
    final, kind = options.get("final_norm", False), options.get("kind", "layer")
    options = {k: v for k, v in options.items() if k not in ("final_norm", "kind")}
    K, μ = (
        np.array([[1, 0.6, 0], [0.6, 1, 0.1], [0, 0.1, 1.2]]),
        np.array([0.5, -0.3, 0]),
    )
    build = lambda a, f: Transformer(
        K,
        blocks=[Block(a, f, norm=Norm(kind), **options)] * 2,
        mean=μ,
        final_norm=final,
    )
    limit = drawn(build(a, f), np.inf, 1500, seed, np.eye(3))
    wide = replace(a, head_width=a.head_width or (400 if a.explicit else 10**5))
    far = drawn(
        build(wide, f and replace(f, units=4096 / n)),
        n,
        300 if f else 1500,
        seed + 1,
        np.eye(3),
    )
    # finitely many units and axes keep a spread of their own
    own = ("θ1", "θ2", "θ3", "θb", "θv", "θo") if f or a.explicit else ()
    keys = [
        k
        for k in limit
        if not k.startswith(own) and min(limit[k].std(), far[k].std()) > 1e-4
    ]
    assert len(keys) > 10
    assert (
        least_p(*(np.stack([x[k] for k in keys], axis=1) for x in (limit, far))) > LEVEL
    )
    for k in limit:
        assert (
            abs(limit[k].mean() - far[k].mean())
            < 0.01 * abs(limit[k].mean())
            + 6
            * np.hypot(limit[k].std() / 1500**0.5, far[k].std() / len(far[k]) ** 0.5)
            + 1e-4
        )


SAME = np.ones((4, 4))
TWINS = np.eye(4)[[0, 1, 2, 0]][:, [0, 1, 2, 0]]
EDGES = {
    "equal tokens": dict(cov=SAME),
    "equal, post": dict(cov=SAME, norm_placement="post"),
    "twins": dict(cov=TWINS),
    "twins, no norm": dict(cov=TWINS, norm_placement=None, activation=relu),
    "σ_q = 0": dict(var_q=0.0),
    "σ_q = 0, one head": dict(var_q=0.0, heads=1, ff=0),
    "σ_v = 0": dict(var_v=0.0),
    "no branches": dict(var_o=0.0, var_2=0.0),
    "σ_1 = 0": dict(var_1=0.0, var_b1=1.0),
    "eps = 0": dict(eps=0.0),
    "eps = 0, rms, post": dict(eps=0.0, norm_placement="post", kind="rms"),
    "one token": dict(cov=np.eye(1)),
    "zero": dict(cov=0 * SAME, var_b1=1.0, var_b2=1.0),
    "deep": dict(layers=40),
    "frozen": dict(var_q=1e6, var_k=1e6),
    "itself only": dict(mask=np.eye(4, dtype=bool)),
    "step": dict(activation=step),
    "clip": dict(activation=clip(1.0)),
    "own φ": dict(activation=np.arctan),
}


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.filterwarnings("error")
@pytest.mark.long
def test_edges(name):
    options = dict(cov=np.eye(4), layers=2, heads=2, final_norm=True) | EDGES[name]
    for n in (np.inf, 10, 40):
        with np.errstate(all="raise", under="ignore"):
            g = Transformer.uniform(**options).gradients(n, 20, 0)
        assert all(
            np.isfinite(x).all()
            for x in (g.gram, g.inner, g.tangent, g.cosine, *g.squared_norms.values())
        )
        assert "Gradients" in repr(g)
        assert len(repr(g).splitlines()) <= 8
        if name in ("equal tokens", "one token", "σ_q = 0", "σ_v = 0", "itself only"):
            assert g.squared_norms["q"].max() < 1e-12  # scores that nothing follows


def test_readouts():
    t = Transformer.uniform(np.eye(3), layers=1, heads=1, ff=0)
    G = np.array([[1, 0.5, 0], [0.5, 1, 0], [0, 0, 0.0]])  # the third token is not read
    g = t.gradients(np.inf, 3, 0, readout=G)
    np.testing.assert_allclose(g.gram[:, -1], np.broadcast_to(G, (3, 3, 3)), atol=1e-12)
    np.testing.assert_allclose(
        t.gradients(np.inf, 1, 0, readout="mean").gram[0, -1], 1 / 9, rtol=1e-12
    )
    np.testing.assert_allclose(
        t.gradients(np.inf, 1, 0).gram[0, -1], np.diag([0, 0, 1.0]), atol=1e-12
    )
    silent = t.gradients(np.inf, 2, 0, readout=0 * G)
    assert silent.tangent.max() == 0 == silent.gram.max()


@pytest.mark.power("distribution functions .09 apart")
@pytest.mark.long
def test_tangent_kernel_of_texts():
    """Texts that do not see each other: entries sum to the square of their common loss,
    and a text's own entry is that of the text alone.
    """
    cov, labels = (
        embedding_cov([list("to be"), list("or not")], 1.0, 0.5),
        np.repeat([0, 1], [5, 6]),
    )
    t = Transformer.uniform(cov, layers=2, heads=2, mask="causal", texts=labels)
    g = t.gradients(np.inf, 1000, 0, count_readout=False)
    assert g.tangent.shape == (1000, 2, 2)
    np.testing.assert_allclose(
        g.tangent.sum((1, 2)),
        sum(x.sum(-1) for x in g.squared_norms.values()),
        rtol=1e-10,
    )
    assert np.linalg.eigvalsh(g.tangent).min() > -1e-9
    assert g.tangent[:, 0, 1].std() > 0
    alone = Transformer.uniform(
        cov[:5, :5], layers=2, heads=2, mask="causal"
    ).gradients(np.inf, 1000, 1, count_readout=False)
    assert ks_2samp(alone.tangent, g.tangent[:, 0, 0]).pvalue > LEVEL


def test_same_bytes_for_any_workers():
    t = Transformer.uniform(np.eye(3), layers=1, heads=1, ff=1)
    a = t.gradients(8, 5000, 0)
    with parallel(3):
        b = t.gradients(8, (50, 100), 0)
    for x, y in (
        (a.gram, b.gram),
        (a.tangent, b.tangent),
        *((a.squared_norms[k], b.squared_norms[k]) for k in a.squared_norms),
    ):
        assert x.tobytes() == y.tobytes()


@pytest.mark.power("distribution functions .06 apart")
def test_forward_is_the_chain():
    t = Transformer.uniform(np.eye(3), layers=2, heads=2, ff=1, final_norm=True)
    g = t.gradients(16, 3000, 0)
    chain = t.chain(16, 3000, 1)
    for l in (1, 2):
        assert ks_2samp(g.chain.gram[:, l, 0, 1], chain.gram[:, l, 0, 1]).pvalue > LEVEL
    assert g.chain.entropy.shape == chain.entropy.shape


def test_given_embeddings_may_have_a_mean():
    X = np.random.default_rng(0).standard_normal((3, 8)) + 1
    blocks = [Block(SelfAttention(2), None)]
    t = Transformer(np.cov(X, bias=True), blocks, mean=X.mean(1), embeddings=X)
    np.testing.assert_array_equal(t.embeddings, X)
