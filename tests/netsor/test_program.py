"""Programs: the matrix-free sampler has the law of the dense one, and the limit is what
both tend to.

Two samples of N are compared by Kolmogorov–Smirnov tests at level 1e-9: a difference
of distribution functions above sqrt(21.4/N), 0.033 for N = 20,000 and 0.052 for N =
8,000, is seen. About 150 such tests leave a false alarm less likely than 1e-6, for
any seed.
"""

import pickle
import sys
import warnings

import numpy as np
import pytest
from conftest import BEYOND_THEOREM, nightly
from netsor_cases import PROGRAMS, Σ, crosswise, mlp_then_attention, program, repeated
from scipy.stats import ks_2samp

from infattn_nb import AssumptionError, AssumptionWarning, Attention, Program, Tokens
from infattn_nb import limit, simulate
from infattn_nb.attention import simulate_dense
from infattn_nb.netsor import ProgramTokens, attention, mlp
from infattn_nb.netsor.nodes import Score
from infattn_nb.nonlinearities import clip, erf, relu, softmax, tanh

pytestmark = BEYOND_THEOREM


def scores_of(p):
    return [h for h in p.nodes if isinstance(h, Score)]


def same(a, b):
    return ks_2samp(a, b, method="asymp").pvalue > 1e-9


def differ(a, b):
    return ks_2samp(a, b, method="asymp").pvalue < 1e-12


def statistics(y, p):
    "y (size, k, 2 coordinates), scores p."
    c = y.shape[2] - 1
    yield y[:, -1, 0]
    yield y[:, 0, 0] * y[:, -1, 0]
    yield y[:, :, 0].sum(1)
    yield y[:, -1, 0] * y[:, -1, c]
    yield (y[:, :, 0] * y[:, :, c]).sum(1)
    if p.shape[1]:
        yield p[:, 0]
        yield p[:, 0] * p[:, -1]
        yield p[:, 0] * y[:, 0, 0]


@pytest.mark.power("distribution functions .052 apart")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.long
def test_without_matrices_the_law_is_the_same(name, size=8_000):
    "Power: see above."
    n, build = PROGRAMS[name]
    p, outputs = program(build)
    fast, dense = (
        simulate(
            p,
            outputs,
            n,
            size=size,
            rng=k,
            coords=min(n, 2),
            scores=scores_of(p),
            dense=bool(k),
        )
        for k in (0, 1)
    )
    for k, (a, b) in enumerate(zip(statistics(*fast), statistics(*dense))):
        assert same(a, b), (name, k)


@pytest.mark.power("p < 1e-12 for fresh matrices")
def test_a_forgotten_tie_is_seen():
    "Fresh matrices at every step are not tied ones (p < 1e-12)."
    p, h = program(PROGRAMS["recurrent, 4 steps"][1])
    q = Program()
    g = []
    for x in q.inputs(np.ones((4, 4))):
        g.append(tanh(q.matrix() @ x + (q.matrix(var=2.0) @ g[-1] if g else 0)))
    a, b = (
        simulate(p, h, 4, size=20_000, rng=0, dense=True),
        simulate(q, g, 4, size=20_000, rng=1),
    )
    assert differ(a[:, 2] * a[:, 3], b[:, 2] * b[:, 3])


def test_equal_vectors_have_equal_products():
    "The same node: the identical output. Numerically equal vectors: equal to rounding."
    p, (a, b, _) = program(repeated)
    y = simulate(p, [a, b, a], 50, size=1000, rng=0)
    np.testing.assert_array_equal(y[:, 0], y[:, 2])
    np.testing.assert_allclose(y[:, 0], y[:, 1], atol=1e-6 * np.abs(y).max())
    more_inputs_than_coordinates = mlp(p := Program(), p.inputs(np.eye(5) + 1.0), 1)
    X = simulate(
        p, [p.nodes[0], more_inputs_than_coordinates], 3, size=200, rng=0, coords=3
    )
    W = np.linalg.lstsq(X[:, :3][0], X[:, 5:8][0], rcond=None)[0]
    np.testing.assert_allclose(X[0, :5] @ W, X[0, 5:], rtol=1e-6, atol=1e-9)


# -- the limit
# --------------------------------------------------------------------------------


def test_scores_and_outputs_of_example_1():
    p = Program()
    x = [clip(1.0)(h) for h in p.inputs(Σ)]
    y = attention(p, x, heads=2, var_q=2.0, var_k=1.5, var_v=0.7, var_o=3.0)
    K, lim = clip(1.0).dual(Σ), limit(p, draws=64)
    np.testing.assert_allclose(
        lim.score_cov(scores_of(p)), 3 * np.kron(np.eye(2), np.kron(K, K)), atol=1e-10
    )
    P = lim.paths(100, 0)
    A = softmax(P.scores.reshape(100, 2, 3, 3))
    np.testing.assert_allclose(
        P.cov(y), 2.1 / 2 * np.einsum("nhij,jk,nhlk->nil", A, K, A), rtol=1e-9
    )
    np.testing.assert_allclose(lim.given(P.scores).cov(y), P.cov(y), rtol=1e-9)


@pytest.mark.power("distribution functions .052 apart, kurtosis 11 % off")
@pytest.mark.parametrize("low_rank, n", [(False, 5), (True, 6), (False, np.inf)])
@pytest.mark.long
def test_attention_written_as_a_program(low_rank, n, size=8_000):
    p = Program()
    outputs = attention(
        p,
        [clip(0.7)(h) for h in p.inputs(Σ)],
        heads=2,
        low_rank=low_rank,
        var_q=3.0,
        var_v=2.0,
        mask="causal",
    )
    layer = Attention(
        Tokens(3, clip(0.7), Σ),
        heads=2,
        head_width=3 if low_rank else "full",
        var_q=3.0,
        var_v=2.0,
        mask="causal",
    )
    a = (
        limit(p).rvs(outputs, size, 0)
        if n == np.inf
        else simulate(p, outputs, n, size=size, rng=0)
    )
    b = layer.law(n).rvs(size, 1)
    for f in (
        lambda y: y[:, 0],
        lambda y: y[:, 2],
        lambda y: y[:, 0] * y[:, 2],
        lambda y: (y**2).sum(1),
    ):
        assert same(f(a), f(b))
    if n == np.inf:
        v, w = (
            law.marginal(2, draws=2**14) for law in (limit(p).law(outputs), layer.law())
        )
        value, error = v.kurtosis(return_error=True)
        assert abs(value - w.kurtosis()) < 10 * error


@pytest.mark.power(
    "distribution functions .052 apart, nightly .033; p < 1e-12 without the cross term"
)
@pytest.mark.parametrize("size", nightly([8_000, 20_000], 20_000))
@pytest.mark.long
def test_cross_term(size):
    "As wide dense scores; without the cross term the test fails."
    p, _ = program(crosswise)
    pair = scores_of(p)
    explicit = simulate(p, p.nodes[:1], 64, size=size, rng=0, scores=pair, dense=True)[
        1
    ]
    _, ours = limit(p).rvs(p.nodes[:1], size, 1, scores=pair)
    assert same(explicit.prod(1), ours.prod(1))
    assert same(explicit.sum(1), ours.sum(1))
    without = np.random.default_rng(2).standard_normal((size, 2)) * np.sqrt(
        np.diag(limit(p).score_cov(pair))
    )
    assert differ(explicit.prod(1), without.prod(1))


@pytest.mark.slow
@pytest.mark.power("second moments 22 % off at n = 4096")
def test_tied_linear_scores():
    "One matrix, divided by n: A K Aᵀ with A = softmax(σ²K)."
    p = Program()
    x = [tanh(h) for h in p.inputs(Σ)]
    W, V = p.matrix(var=3.0), p.matrix()
    y = [
        p.attend([p.score(W @ a, W @ b, "linear") for b in x], [V @ b for b in x])
        for a in x
    ]
    K = tanh.dual(Σ)
    S = softmax(3 * K) @ K @ softmax(3 * K).T
    np.testing.assert_allclose(limit(p).cov(y), S, rtol=1e-9)
    assert not limit(p).score_cov(scores_of(p)).any()
    wide = simulate(p, y, 4096, size=4096, rng=0)
    w = wide[:, :, None] * wide[:, None]
    assert (np.abs(w.mean(0) - S) < 6 * w.std(0) / 64 + 0.01 * np.abs(S)).all()


def deep(p):
    W = p.matrix(var=2.0)
    x = [relu(W @ u) for u in p.inputs(Σ)]
    z = [tanh(a + b) for a, b in zip(x, attention(p, x, var_q=9.0))]
    return [*z, *attention(p, z, var_q=30.0)]


@pytest.mark.slow
@pytest.mark.power(
    "distribution functions .052 apart (dense .073), nightly .033; kernel 5 % off"
)
@pytest.mark.parametrize("size", nightly([8_000, 20_000], 20_000))
def test_two_layers_of_attention(size):
    """Residual, nonlinearity, tied inputs. Dense = matrix-free at n = 12; matrix-free
    at n = 256 = limit; the kernel recursion is 5 percent off.
    """
    p, y = program(deep)
    dense, fast = (
        simulate(p, y, 12, size=size // 2, rng=k, dense=bool(k)) for k in (1, 0)
    )
    wide, ours = simulate(p, y, 256, size=size, rng=2), limit(p).rvs(y, size, 3)
    for f in (
        lambda y: y[:, 0],
        lambda y: y[:, 4],
        lambda y: y[:, 3] * y[:, 5],
        lambda y: y[:, 0] * y[:, 1],
        lambda y: (y[:, 3:] ** 2).sum(1),
    ):
        assert same(f(dense), f(fast))
        assert same(f(wide), f(ours))
    value, error = limit(p).second_moment(y[0], y[0], return_error=True)
    w = wide[:, 0] ** 2
    assert abs(w.mean() - value) < 6 * (w.std() / np.sqrt(size) + error) + 0.01 * value
    K = relu.dual(2 * Σ)
    S = (
        Attention(Tokens(3, relu, 2 * Σ), var_q=9.0)
        .infinite_heads()
        .covariances(1, 0)[0]
    )
    assert tanh.dual(K + S)[0, 0] > 1.05 * value


@pytest.mark.slow
@pytest.mark.power(
    "distribution functions .052 apart, nightly .033; covariance of the scores 20 % off"
)
@pytest.mark.parametrize("size", nightly([8_000, 20_000], 20_000))
def test_shared_matrices_across_depth(size):
    "The same Q and K in both layers: later scores depend on earlier."
    p = Program()
    x = [clip(1.0)(h) for h in p.inputs(Σ[:2, :2])]
    Q, K = p.matrix("Q", 4.0), p.matrix("K")
    layer = lambda x, V: [
        p.attend([p.score(Q @ a, K @ b) for b in x], [V @ b for b in x]) for a in x
    ]
    z = [tanh(a + b) for a, b in zip(x, layer(x, p.matrix()))]
    y, s = layer(z, p.matrix(var=2.0)), scores_of(p)
    (a, pa), (b, pb) = (
        simulate(p, y, 256, size=size, rng=0, scores=s),
        limit(p).rvs(y, size, 1, scores=s),
    )
    assert same(pa[:, 0] * pa[:, 4], pb[:, 0] * pb[:, 4])
    assert same(pa[:, 1] * pa[:, 5], pb[:, 1] * pb[:, 5])
    assert same(a[:, 0] * pa[:, 0], b[:, 0] * pb[:, 0])
    C, w = limit(p).score_cov(s), pb[:, 0] * pb[:, 4]
    assert abs(C[0, 4] - w.mean()) < 8 * w.std() * np.hypot(size**-0.5, 0.01)
    assert C[0, 4] > 0.1  # limit(p) has 10,000 paths


@pytest.mark.slow
@pytest.mark.power("slopes .1 off −1/2")
def test_second_moments_approach_the_limit():
    "Relative Frobenius error against width: slope −1/2."
    p = Program()
    y = attention(p, [erf(h) for h in p.inputs(Σ)], heads=2)
    widths, errors = 2 ** np.arange(4, 13, 2), []
    for n in widths:
        out, s = simulate(p, y, n, size=200, rng=0, coords=int(n), scores=scores_of(p))
        S = limit(p, draws=16).given(s).cov(y)
        errors.append(
            np.median(
                np.linalg.norm(out @ out.mT / n - S, axis=(1, 2))
                / np.linalg.norm(S, axis=(1, 2))
            )
        )
    assert abs(np.polyfit(np.log(widths), np.log(errors), 1)[0] + 0.5) < 0.1


@pytest.mark.slow
@pytest.mark.power("distribution functions .033 apart (dense .052), kurtosis 12 % off")
def test_tokens_from_a_program(size=20_000):
    "An attention layer on top of an MLP, as a layer and as one program."
    p, q = Program(), Program()
    tokens = lambda p: [
        tanh(g) for g in mlp(p, p.inputs(Σ), 2, activation=relu, var_w=2.0)
    ]
    layer = Attention(ProgramTokens(p, tokens(p)), heads=2, var_q=3.0)
    outputs = attention(q, tokens(q), heads=2, var_q=3.0)
    for f in (lambda y: y[:, 0], lambda y: y[:, 0] * y[:, 2], lambda y: (y**2).sum(1)):
        assert same(
            f(layer.law(6).rvs(size, 0)), f(simulate(q, outputs, 6, size=size, rng=1))
        )
        assert same(
            f(simulate_dense(layer, 6, size // 4, 2)),
            f(simulate(q, outputs, 6, size=size, rng=3)),
        )
    np.testing.assert_allclose(
        layer.tokens.kernel(),
        tanh.dual(
            limit(q).cov(
                [h.args[0] for h in q.past(*outputs) if getattr(h, "fn", None) == tanh]
            )
        ),
        rtol=1e-9,
    )
    value, error = (
        limit(q).law(outputs).marginal(0, draws=2**14).kurtosis(return_error=True)
    )
    assert abs(layer.law().marginal(0).kurtosis() - value) < 10 * error


@pytest.mark.slow
@pytest.mark.power("distribution functions .033 apart")
def test_tokens_after_attention(size=20_000):
    "Two attention layers: tokens whose kernel is random."
    p = Program()
    x = attention(p, [erf(h) for h in p.inputs(4 * Σ)], var_q=9.0)
    y, layer = attention(p, x, var_q=4.0), Attention(ProgramTokens(p, x), var_q=4.0)
    for f in (lambda y: y[:, 0], lambda y: y[:, 0] * y[:, 2]):
        assert same(
            f(layer.law(5).rvs(size, 0)), f(simulate(p, y, 5, size=size, rng=1))
        )
        assert same(f(layer.law().rvs(size, 0)), f(limit(p).rvs(y, size, 1)))
    with pytest.raises(ValueError, match="random"):
        layer.tokens.kernel()


# -- memory, records, errors
# ----------------------------------------------------------------------------------


def test_programs_travel():
    "Pickled and back, a program has the same samples."
    p, y = program(mlp_then_attention)
    q, z = pickle.loads(pickle.dumps((p, y)))
    np.testing.assert_array_equal(
        simulate(p, y, 4, size=10, rng=0), simulate(q, z, 4, size=10, rng=0)
    )
    assert repr(p) == repr(q)


def one_by_one(p, xs):
    "An attention layer, each score written by itself."
    Q, K, V, O = (p.matrix() for _ in "QKVO")
    return [
        O @ p.attend([p.score(Q @ x, K @ z) for z in xs], [V @ z for z in xs])
        for x in xs
    ]


def test_errors():
    p = Program()
    (h,) = p.inputs([[1.0]])
    x, A, B = clip(1.0)(h), p.matrix("A"), p.matrix("B")
    for make, clause in (
        (lambda: p.score(x, A @ x), "MatMul"),
        (lambda: p.score(A @ x, A @ clip(2.0)(h)), "b"),
        (lambda: [p.score(A @ x, B @ x), tanh(A @ h)], "a"),
    ):
        p.nodes, p.products = p.nodes[:2], {}
        make()
        with pytest.raises(AssumptionError) as e:
            limit(p)
        assert e.value.clause == clause
        assert "`p1`" in str(e.value)
        assert simulate(p, x, 3, size=5, rng=0).shape == (5, 1)
    p.nodes, p.products = p.nodes[:2], {}
    p.score(A @ relu(h), B @ x)
    with pytest.warns(AssumptionWarning, match="bounded"):
        p.check()
    assert [type(f) for f in p.check(strict=False)] == [AssumptionWarning]
    deep = Program()
    xs = one_by_one(deep, [relu(h) for h in deep.inputs(np.eye(3))])
    one_by_one(deep, [x + relu(h) for x, h in zip(xs, deep.inputs(np.eye(3)))])
    assert len(deep.check(strict=False)) > 30
    with pytest.warns(AssumptionWarning) as said:
        deep.check()  # one warning, not one per score
    assert len(said) == 1
    assert "`p1–p18`: " in str(said[0].message)
    assert "`p10–p18`: after earlier scores" in str(said[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        q = Program()
        attention(q, [clip(1.0)(h) for h in q.inputs(np.eye(2))])
        assert q.check() == []


@pytest.mark.long
def test_the_check_of_a_deep_program_is_quick():
    "Nodes are met a few times, not once for each of 2,880 scores."
    p = Program()
    x = p.inputs(np.eye(6) + 0.1)
    for _ in range(40):
        x = [clip(1.0)(a + b) for a, b in zip(one_by_one(p, x), one_by_one(p, x))]
    calls = 0

    def count(frame, event, arg):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        findings = p.check(strict=False)
    finally:
        sys.setprofile(None)
    assert calls < 200 * len(p.nodes)
    assert {f.clause for f in findings} == {"depth", "bounded"}
    assert sum(f.clause == "depth" for f in findings) == 39 * 72
