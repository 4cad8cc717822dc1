"""Chains of Gram matrices: against explicit simulation, the limit of large widths, one
attention layer, and at the edges of what is allowed.
"""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from conftest import columns, least_p, nightly
from reference import explicit, softmax

from infattn_nb import Attention, Tokens, Transformer, from_config
from infattn_nb.convergence import participation_moments, row_overlap
from infattn_nb.nonlinearities import gelu_tanh, identity, relu, silu, tanh
from infattn_nb.numerics import parallel
from infattn_nb.transformer import embedding_cov


def agree(pairs, level=1e-7):
    "Both sides of each pair (N, …), (M, …) have one law, entry by entry."
    assert least_p(*columns(pairs)) > level


rng = np.random.default_rng(7)
COV = (lambda A: A @ A.T / 6)(rng.standard_normal((4, 6)))
# two tokens, twice each
TWICE = np.ones((4, 4)) * 0.5 + 0.5 * np.kron(np.eye(2), np.ones((2, 2)))
MASK = np.array([[1, 0, 0, 1], [1, 1, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1]], dtype=bool)
net = Transformer.uniform
two = partial(net, COV, layers=2)
BIASES = dict(var_b1=0.5, var_b2=0.3)
POST, RANDOM = dict(norm_placement="post"), dict(random_embeddings=True)
RMS = dict(kind="rms", eps=0.1, activation=tanh)
RMS_AFTER = dict(kind="rms", eps=0.0, activation=silu, var_q=[0.1, 9.0])
CASES = dict(
    pre=(two(0.3, heads=2, mask="causal"), 12),
    post=(
        two([0.5, 0, -0.5, 1], heads=3, activation=relu, ff=2, final_norm=True, **POST),
        12,
    ),
    rms=(two(0.5, heads=2, mask=MASK, **RMS, **BIASES), 8),
    postrms=(two(0.5, heads=4, var_1=[2.0, 0.5], **RMS_AFTER, **POST), 8),
    bare=(
        net(
            0.2 * COV,
            0.0,
            2,
            heads=2,
            norm_placement=None,
            head_width=3,
            activation=gelu_tanh,
            var_q=2.0,
        ),
        7,
    ),
    one=(net(TWICE, 0.2, 2, heads=1, **RANDOM), 6),
    narrow=(two(0.3, heads=3, ff=1, eps=0.01, **RANDOM), 3),
    least=(net(COV, 0.3, 1, heads=1, kind="rms", activation=identity, **RANDOM), 1),
    tight=(two(0.3, heads=1, head_width=2), 5),
    twice=(net(TWICE, 0.3, 2, heads=2, **POST, **RANDOM), 4),
    few=(two(0.3, heads=2, activation=relu, ff=0.5, **BIASES), 8),
    blind=(two(0.3, heads=2, mask=~np.eye(4, dtype=bool)), 8),
)


@pytest.mark.power(
    "distribution functions .11 apart: Gram entries, units, scores of every layer"
)
@pytest.mark.parametrize("name", nightly(CASES, "postrms", "one", "tight", "twice"))
@pytest.mark.long
def test_explicit_simulation(name):
    "Every norm, mask, bias and odd width, against all matrices."
    t, n = CASES[name]
    X, G = explicit(t, n, 2000, np.random.default_rng(0))
    upper = np.triu_indices(len(t.cov))
    for c in (0, min(2, n), n):
        y = t.chain(n, 2000, 1 + c, coords=c, scores=True)
        agree(
            [
                ((X @ X.mT / n)[..., *upper], y.gram[..., *upper]),
                (X.mean(-1), y.mean),
                (G, y.scores),
            ]
        )
        if c:
            agree(
                [
                    (X[..., 0], y.units[..., -1]),
                    (X[..., 0] * X[..., -1], y.units[..., 0] * y.units[..., -1]),
                ]
                if n > 1
                else [(X[..., 0], y.units[..., 0])]
            )
    if c == n:
        np.testing.assert_allclose(y.units @ y.units.mT / n, y.gram, atol=1e-10)


def test_entropy_of_scores():
    "Entropies are those of the weights; a masked score counts for nothing."
    for t, n in CASES.values():
        y = t.chain(n, 20, 0, scores=True)
        A = softmax(
            y.scores
            if (mask := t.blocks[0].attention.allowed(len(t.cov))) is None
            else np.where(mask, y.scores, -np.inf)
        )
        np.testing.assert_allclose(
            y.entropy, -(A * np.log(np.where(A > 0, A, 1))).sum(-1), atol=1e-12
        )


@pytest.mark.power("distribution functions .07 apart")
@pytest.mark.parametrize(
    "t",
    [
        Transformer.uniform(COV, 0.2, 3, heads=2, head_width=5, ff=0, mask="causal"),
        pytest.param(
            Transformer.uniform(
                COV,
                0.2,
                2,
                heads=2,
                head_width=5,
                ff=0.01,
                norm_placement="post",
                activation=relu,
            ),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["attention", "mlp"],
)
def test_a_million_coordinates(t):
    "Infinity is the last width: n = 10⁶ is not told from it."
    a, b = (
        t.chain(np.inf, 6000, 0, coords=1),
        t.chain(10**6, 6000 if t.blocks[0].feedforward is None else 1500, 1, coords=1),
    )
    upper = np.triu_indices(len(t.cov))
    agree(
        [
            (a.gram[:, 1:, *upper], b.gram[:, 1:, *upper]),
            (a.entropy, b.entropy),
            (a.units, b.units),
        ]
    )
    # constant at infinite width, if without norms after sums
    assert abs(a.mean[0] - b.mean).max() < 0.02


@pytest.mark.power("distribution functions .07 apart")
@pytest.mark.parametrize("m", (None, 4))
def test_one_layer_is_attention(m):
    "Without norms and MLP one block is x + y of `Attention`."
    layer = Attention(
        Tokens(4, identity, COV), heads=3, head_width=m, var_q=2.0, var_v=0.5
    )
    one = partial(
        Transformer.uniform,
        COV,
        layers=1,
        heads=3,
        norm_placement=None,
        ff=0,
        var_q=2.0,
        var_v=0.5,
        random_embeddings=True,
    )
    t = one(head_width=m or np.inf)
    upper = np.triu_indices(4)
    y = t.chain(np.inf, 6000, 0, scores=True)
    agree(
        [
            (
                layer.law().covariances(6000, 1)[..., *upper],
                (y.gram[:, 1] - y.gram[:, 0])[..., *upper],
            ),
            (layer.scores(np.inf, 6000, 2), y.scores[:, 0]),
        ]
    )
    n = 12
    y = one(head_width=m or n).chain(n, 6000, 0, scores=True, coords=1)
    agree(
        [
            (layer.law(n).rvs(6000, 1), (y.units[:, 1] - y.units[:, 0])[..., 0]),
            (layer.scores(n, 6000, 2), y.scores[:, 0]),
        ]
    )


@pytest.mark.power("six standard errors, about 1 %")
def test_kernel_is_infinitely_many_heads():
    layer = Attention(Tokens(4, identity, COV), heads=3, var_q=4.0)
    S, error = layer.infinite_heads(return_error=True)
    K, e = Transformer.uniform(
        COV, 0.0, 1, heads=3, norm_placement=None, ff=0, var_q=4.0
    ).kernel(rng=1, return_error=True)
    assert K.gram.shape == (2, 4, 4)
    assert K.entropy.shape == (1, 1, 4)
    assert (
        abs(K.gram[1] - COV - S.covariances(1, 0)[0]) < 7 * (e.gram[1] + error) + 1e-12
    ).all()
    np.testing.assert_array_equal(
        K.gram,
        Transformer.uniform(COV, 0.0, 1, heads=7, norm_placement=None, ff=0, var_q=4.0)
        .kernel(rng=1)
        .gram,
    )


@pytest.mark.slow
@pytest.mark.power("the mean within 1 %, an exponent of −1/2 within .1")
def test_spread_shrinks_like_the_root_of_heads():
    net = partial(Transformer.uniform, embedding_cov(range(6)), layers=4, var_q=4.0)
    K, H = net(heads=64).kernel(), np.array([4, 16, 64])
    sd = []
    for h in H:
        cosine = net(heads=int(h)).chain(np.inf, 4000, 0).cosine[:, -1, 0, 1]
        assert (
            abs(cosine.mean() / K.cosine[-1, 0, 1] - 1)
            < 0.03 + 6 * cosine.std() / cosine.mean() / 4000**0.5
        )
        sd.append(cosine.std())
    assert (abs(np.diff(np.log(sd)) / np.diff(np.log(H)) + 0.5) < 0.1).all()


@pytest.mark.power("six standard errors, about 1 %; a forgotten overlap by far")
@pytest.mark.parametrize("s, τ, ρ", [(4, 2.0, 0.3), (16, 6.0, 0.7)])
def test_equally_distant_tokens(s, τ, ρ):
    "A branch adds ρ + (1 − ρ) × participation ratio or overlap."
    t = Transformer.uniform(
        (1 - ρ) * np.eye(s) + ρ,
        layers=1,
        heads=64,
        kind="rms",
        eps=0.0,
        ff=0,
        var_q=τ**2 / (1 - ρ),
    )
    K = t.chain(np.inf, 200, 1).gram
    added, other = K[:, 1] - K[:, 0], ~np.eye(s, dtype=bool)
    for part, limit in (
        (~other, participation_moments(s, τ, 1)[0]),
        (other, row_overlap(s, τ, ρ)),
    ):
        mean = added[:, part].mean(1)
        error = mean.std() / 200**0.5
        assert abs(mean.mean() - ρ - (1 - ρ) * limit) < 6 * error
    assert mean.mean() - ρ > 10 * error  # what s → ∞ leaves out


# Edges


@pytest.mark.parametrize("n", (np.inf, 64))
@pytest.mark.long
def test_deep_and_steep(n):
    "A hundred blocks, scores of sd 50: one token takes (nearly) all."
    y = Transformer.uniform(
        embedding_cov(range(8)), layers=100, heads=2, var_q=50.0, var_k=50.0
    ).chain(n, 4, 0, scores=True)
    assert np.isfinite(y.gram).all()
    assert (abs(y.cosine) < 1 + 1e-12).all()
    assert 25 < y.scores[:, 0].std() < 75
    assert 0 <= y.entropy.min()
    assert y.entropy.mean() < 0.3
    y = Transformer.uniform(
        embedding_cov(range(8)), layers=100, heads=2, norm_placement="post", var_q=0.01
    ).chain(n, 4, 0)
    assert y.cosine[:, -1].min() > 0.99  # all tokens alike


@pytest.mark.long
def test_long_text_briefly():
    y = Transformer.uniform(
        embedding_cov([0] * 256 + [1] * 256), layers=2, heads=1
    ).chain(1024, 1, 0)
    assert np.isfinite(y.gram).all()
    assert abs(y.cosine[0, -1, :256, :256] - 1).max() < 1e-9


def test_zero_tokens():
    "A zero token attends, is normalised with eps, and rejected without."
    cov = np.diag([1.0, 0.0, 2.0])
    for n in (np.inf, 8):
        y = Transformer.uniform(cov, layers=2, heads=2).chain(n, 10, 0)
        assert np.isfinite(y.gram).all()
        assert not y.gram[:, 0, 1].any()
        assert not y.cosine[:, 0, 1].any()
        assert (y.gram[:, 1, 1, 1] > 0).all()
    with pytest.raises(ValueError, match="`eps` must be positive .* token 1"):
        Transformer.uniform(cov, eps=0.0)
    with pytest.raises(ValueError, match="`eps` must be positive"):
        Transformer.uniform(cov, 1.0, norm_placement="post", eps=0.0)
    Transformer.uniform(cov, 1.0, kind="rms", eps=0.0)
    Transformer.uniform(cov, norm_placement=None, eps=0.0)


def test_nothing_happens_without_weights():
    "All variances zero: the stream stays what it was, at every width."
    t = Transformer.uniform(COV, 0.3, 3, heads=2, **{f"var_{k}": 0.0 for k in "qkvo12"})
    for n in (np.inf, 12):
        y = t.chain(n, 3, 0)
        np.testing.assert_allclose(
            y.gram, np.broadcast_to(COV + 0.09, y.gram.shape), rtol=1e-12
        )
        np.testing.assert_allclose(y.entropy, np.log(4), rtol=1e-12)


def test_one_coordinate():
    "LayerNorm of a single coordinate is zero: nothing is added, whatever the weights."
    for norm in ("pre", "post"):
        y = Transformer.uniform(
            COV, layers=2, heads=1, norm_placement=norm, random_embeddings=True
        ).chain(1, 20, 0, coords=1)
        np.testing.assert_allclose(
            y.gram[:, 0], y.units[:, 0] @ y.units[:, 0].mT, rtol=1e-12
        )
        if norm == "pre":
            np.testing.assert_allclose(y.gram[:, 2], y.gram[:, 0], rtol=1e-12)
        else:
            assert not y.gram[:, 2].any()
            assert not y.cosine[:, 2].any()
    y = Transformer.uniform(
        embedding_cov(range(40)), layers=2, heads=1, random_embeddings=True
    ).chain(2, 5, 0)
    # forty tokens in two dimensions
    np.testing.assert_allclose(np.linalg.matrix_rank(y.gram[:, -1], tol=1e-9), 2)


@pytest.mark.parametrize("n", (np.inf, 4))
def test_same_bytes_everywhere(n):
    "Blocks and their seeds do not depend on who computes them."
    t = Transformer.uniform(np.eye(2), layers=1, heads=1, ff=1)
    plain = t.chain(n, (3, 2000), 5, coords=1, scores=True)
    assert plain.gram.shape == (3, 2000, 2, 2, 2)
    assert plain.scores.shape == (3, 2000, 1, 1, 2, 2)
    assert plain.units.shape == (3, 2000, 2, 2, 1)
    assert plain.entropy.shape == (3, 2000, 1, 1, 2)
    for make in (
        partial(ThreadPoolExecutor, 1),
        partial(ThreadPoolExecutor, 3),
        partial(ProcessPoolExecutor, 2),
    ):
        with make() as pool, parallel(pool):
            other = t.chain(n, 6000, np.random.SeedSequence(5), coords=1, scores=True)
        for name in ("gram", "mean", "entropy", "scores", "units"):
            assert getattr(other, name).tobytes() == getattr(plain, name).tobytes(), (
                name
            )
    assert t.chain(n, (), 0).gram.shape == (2, 2, 2)
    assert t.chain(n, 0, 0).gram.shape == (0, 2, 2, 2)


def test_a_patch_is_no_class_token():
    vit = dict(
        model_type="vit",
        hidden_size=64,
        num_attention_heads=4,
        num_hidden_layers=2,
        intermediate_size=128,
    )
    np.testing.assert_array_equal(
        from_config(vit, ["class", 1, "1"]).cov, from_config(vit, 3).cov
    )
