"""Programs in stacks: the same numbers as vector by vector, in few nodes."""

import numpy as np
import pytest
from conftest import BEYOND_THEOREM
from stack_cases import COV, MASK, both

from infattn_nb import Program, gradients, limit, simulate, train
from infattn_nb.netsor import attention, mlp
from infattn_nb.netsor.nodes import Score
from infattn_nb.netsor.score_paths import Paths
from infattn_nb.netsor.stacks import Stacks, live_rows
from infattn_nb.nonlinearities import clip, relu, softmax, tanh, times

pytestmark = BEYOND_THEOREM


def test_a_loop_is_a_stack():
    "The same stacks, the same draws at finite width, the same gradients."
    (p, F), (q, fs) = both()
    kinds = [
        [(type(h).__name__, getattr(h, "k", None)) for h in Stacks(r, f).nodes]
        for r, f in ((p, [F]), (q, fs))
    ]
    assert sorted(map(str, kinds[0])) == sorted(map(str, kinds[1]))
    assert len(kinds[0]) < len(q.nodes) / 2
    a, b = (
        gradients(r, f, width=20, size=3, rng=0, dense=False)
        for r, f in ((p, F), (q, fs))
    )
    np.testing.assert_allclose(a.outputs, b.outputs, rtol=1e-9)
    np.testing.assert_allclose(a.tangent, b.tangent, rtol=1e-9)


def test_rows_that_nobody_needs_are_not_computed():
    p = Program()
    X = clip(1.0)(p.inputs(np.eye(6) + 0.2))
    Q, K, V = (p.matrix(name) for name in "QKV")
    queries, keys = Q @ X, K @ X
    Y = p.attend(p.scores(queries, keys), V @ X, mask="causal")
    live = live_rows(p, [Y[3]])
    assert live[queries].sum() == 1
    assert live[keys].tolist() == [True] * 4 + [False] * 2
    stacks = Stacks(p, [Y[3]])
    assert {h.shape for h in stacks.nodes if isinstance(h, Score)} == {(1, 4)}
    whole, part = limit(p, 64), Paths(p, 64, rng=0, wanted=[Y[3]])
    assert whole.cov(Y).shape == (6, 6)
    assert part.cov([Y[3]]).shape == (64, 1, 1)


def test_mixtures_and_stacks_below_each_other():
    "C X at every width: C K Cᵀ, and sums of rows."
    C = np.array([[1.0, -0.5, 0.0], [0.3, 0.0, 2.0]])
    p = Program()
    X = relu(p.matrix() @ p.inputs(COV))
    mixed = X.mix(C)
    sums = [X[0] - 0.5 * X[1], 0.3 * X[0] + 2 * X[2]]
    y = simulate(p, [mixed, *sums, p.concatenate(X, mixed)], 5, size=4, rng=0, coords=5)
    np.testing.assert_allclose(y[:, :2], y[:, 2:4], rtol=1e-12)
    np.testing.assert_array_equal(y[:, 7:], y[:, :2])
    K = limit(p).second_moment(X, X)
    np.testing.assert_allclose(limit(p).second_moment(mixed, mixed), C @ K @ C.T)
    np.testing.assert_allclose(limit(p).second_moment(mixed, X), C @ K)


@pytest.mark.power("second moments 2 % off")
def test_functions_of_mixed_functions():
    "Rows of nonlinear vectors mixed inside of a function: draws of one coordinate."
    p = Program()
    U = p.inputs(COV, mean=[0.2, 0.0, 0.0])
    Y = p.nonlin(lambda a, b: a * np.tanh(b), relu(U).mix([[1, 1, -1.0]]), U[1])
    lim = limit(p, 16)
    draws = simulate(p, [Y, U], 1, size=10**6, rng=0)
    for i, h in enumerate((Y, U[0], U[1], U[2])):
        value, error = lim.second_moment(Y, h, return_error=True)
        w = draws[:, 0] * draws[:, i]
        assert abs(w.mean() - value) < 6 * (w.std() / 1000 + error), i
        assert error < 2e-3


def test_several_outputs_of_each_row():
    "Readouts (k, D) are k lists of D outputs."
    p = Program()
    X = tanh(p.matrix() @ p.inputs(COV))
    table = p.readouts(2) @ X
    assert table.shape == (3, 2)
    lists = [[f[i] for f in table.columns] for i in range(3)]
    y = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    how = dict(width=16, steps=3, learning_rate=0.1, rng=0, verbose=False, batch_size=2)
    a, b = train(p, table, y, **how), train(p, lists, y, **how)
    np.testing.assert_array_equal(a.outputs, b.outputs)
    assert a.outputs.shape == (8, 4, 3, 2)


def test_scores_come_row_by_row():
    "Of a block, and as prescribed."
    p = Program()
    X = clip(1.0)(p.inputs(COV))
    P = p.scores(p.matrix("Q") @ X, p.matrix("K") @ X)
    Y = p.attend(P, p.matrix("V") @ X)
    lim = limit(p, 64)
    K = clip(1.0).dual(COV)
    np.testing.assert_allclose(lim.score_cov(P), np.kron(K, K), atol=1e-12)
    np.testing.assert_allclose(lim.score_cov(P[1, 2]), K[1:2, 1:2] * K[2:, 2:])
    given = np.random.default_rng(0).standard_normal((7, 9))
    told = lim.given(given)
    np.testing.assert_array_equal(told.scores, given)
    A = softmax(given.reshape(7, 3, 3))
    np.testing.assert_allclose(told.cov(Y), A @ K @ A.mT, rtol=1e-9)
    y, s = simulate(p, Y, 4, size=5, rng=0, scores=[P[0], P[:, 1]])
    assert y.shape == (5, 3)
    np.testing.assert_array_equal(s[:, 1], s[:, 3])


def test_a_transformer_is_a_page():
    from infattn_nb import Transformer

    net = Transformer.uniform(np.eye(48), layers=2, heads=2, mask="causal", ff=4)
    p, _ = net.program()
    assert len(p.nodes) < 60
    assert len(repr(p).splitlines()) == len(p.nodes)


def bad():
    p, q = Program(), Program()
    X, Y = p.inputs(COV), q.inputs(COV)
    half = p.matrix(rows=1 / 2) @ X
    P = p.scores(X, X, "linear")
    R, one = p.readout(), p.inputs([[1.0]])
    yield lambda: X + Y, ValueError, "belong to the same program"
    yield lambda: p.concatenate(X, Y), ValueError, "belong to the same program"
    yield lambda: p.concatenate(X, half), ValueError, "have the same length"
    yield lambda: p.concatenate(), ValueError, "contain at least one"
    yield lambda: X + p.inputs(np.eye(2)), ValueError, "have the same number of rows"
    yield lambda: times(X, X[:2]), ValueError, "have the same number of rows"
    yield lambda: X.mix(np.eye(4)), ValueError, r"`C` must have shape \(m, 3\)"
    yield lambda: X.mix([[1.0, np.nan, 0.0]]), ValueError, "`C` must"
    yield lambda: p.attend(P, X, mask=np.ones((2, 3), bool)), ValueError, "`mask` must"
    yield lambda: p.attend(P, X, mask=np.zeros((3, 3))), ValueError, "`mask` must"
    yield lambda: p.attend(P, X, mask=MASK & False), ValueError, "`mask` must"
    yield lambda: p.attend(P, X, mask="all"), ValueError, "`mask` must"
    yield lambda: p.attend(P, X[:2]), ValueError, "one score per value"
    yield lambda: p.nonlin(np.add, X[:2], scores=P[:, 0]), ValueError, "have a row for"
    yield lambda: p.score(X, one), ValueError, r"program.scores\(Q, K\)"
    yield lambda: gradients(p, half, width=8), TypeError, "be outputs of readouts"
    yield lambda: gradients(p, [R @ X, X], width=8), TypeError, "outputs of readouts"
    yield lambda: X[7:], ValueError, "selected by one index"
    yield lambda: X["a"], ValueError, "be indexed like an array of length 3"
    yield lambda: p.readouts(0), ValueError, "`size` must"


@pytest.mark.parametrize("n", range(len(list(bad()))))
def test_bad_input_in_one_sentence(n):
    call, kind, text = list(bad())[n]
    with pytest.raises(kind, match=text) as error:
        call()
    assert "\n" not in str(error.value)


def test_memory_beyond_the_machine_is_said_before(monkeypatch):
    p = Program()
    attention(p, clip(1.0)(p.inputs(np.eye(40))), heads=4)
    monkeypatch.setattr("infattn_nb.numerics.checks.memory_of_the_machine", lambda: 1e5)
    with pytest.raises(ValueError, match="memory"):
        limit(p)


def test_indices_end_a_loop():
    X = Program().inputs(COV)
    with pytest.raises(IndexError):
        X[3]
    assert len(list(X)) == 3
    assert X[::-1][0].index.tolist() == [2]
    assert X[[0, 1, 2]] is X
    assert mlp(X.program, X, 1).k == 3
