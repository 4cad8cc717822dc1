"""Programs forward and backward, trained: the same as explicit matrices from the same
start, and in law.

Samples are compared by Kolmogorov–Smirnov tests; the smallest p-value of k
statistics times k must exceed 1e-8 (a false alarm below 1e-6 in all): distribution
functions .1 apart are seen with 4,000 networks on both sides (`least_p` of
conftest.py).
"""

import re
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import explicit
import numpy as np
import pandas as pd
import programs
import pytest
from conftest import BEYOND_THEOREM, columns, least_p, nightly
from program_cases import HOW, LAW, PROGRAMS, STEPS, WIDTH, Σ, Y, network
from program_cases import watched_program, written
from revealed_cases import p_of_law, quiet, trained

from infattn_nb import AttentionDescent, CircuitDescent, Nonlinearity, Program
from infattn_nb import Transformer, gradients, limit, simulate, train
from infattn_nb.netsor import attention, mlp
from infattn_nb.netsor.nodes import Input
from infattn_nb.nonlinearities import absolute, cos, erf, gelu, leaky_relu, relu, sin
from infattn_nb.nonlinearities import softmax, tanh
from infattn_nb.numerics import parallel
from infattn_nb.training import programs as training

pytestmark = BEYOND_THEOREM
STORED = np.load(Path(__file__).parents[1] / "data/programs.npz")

# -- exactness


def from_its_start(name, **how):
    "One network of a program, trained from the explicit start that torch had, too."
    p, fs, start = written(name)
    one = dict(width=WIDTH, steps=STEPS, init=start, size=1, rng=0)
    return quiet(p, fs, Y, **one, **how)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.long
def test_the_path_is_that_of_torch(name, how):
    "Twenty steps: torch's autograd, explicit and revealed matrices."
    truth = STORED[f"{name}, {how}"]
    assert abs(truth[-1] - truth[0]).max() > 0.3  # it moved
    for dense in (True, False):
        found = from_its_start(name, dense=dense, **HOW[how]).outputs[0]
        there = ~np.isnan(found)
        assert there[-1].all()
        assert there.any(1).all()
        np.testing.assert_allclose(found[there], truth[there], rtol=0, atol=1e-9)


def test_it_notices_a_wrong_rate_of_one_matrix():
    found = from_its_start(
        "two blocks", rate_factors={"M": 1.001}, **HOW["plain"]
    ).outputs[0]
    assert 1e-7 < abs(found - STORED["two blocks, plain"]).max() < 0.1


def test_matrices_of_many_directions_become_explicit_on_the_way():
    "The rule of size switches in the run; the path stays."
    run = from_its_start("two blocks", **HOW["momentum and decay"])
    kinds = {
        type(M).__name__
        for block in run._blocks
        for M in block.networks.drawn.matrices.values()
    }
    assert "Explicit" in kinds
    np.testing.assert_allclose(
        run.outputs[0], STORED["two blocks, momentum and decay"], rtol=0, atol=1e-9
    )


# -- law


@pytest.mark.power(
    "distribution functions .09 apart with 2,000 networks, .037 with 20,000"
)
@pytest.mark.parametrize(
    "name, n, size",
    nightly(
        [("gated product", 12, 2_000), ("two blocks", 12, 2_000), *LAW],
        ("two blocks", 12, 2_000),
        *LAW,
    ),
)
@pytest.mark.long
def test_the_law_is_that_of_explicit_networks(name, n, size):
    "At n = 12 more directions are met than there are coordinates."
    assert p_of_law(name, n, trained(name, n, size)) > 1e-8


# -- networks that diverge, batches of one's own, targets


def two_layers(width, P=4, N=6, seed=0):
    "A program, its outputs and matrices, and a start of everything random in it."
    rng = np.random.default_rng(seed)
    p = Program()
    x = p.inputs(np.eye(P))
    W, R = p.matrix(), p.readout()
    outputs = [R @ relu(W @ v) for v in x]
    start = {v: rng.standard_normal((N, width)) for v in x}
    start[W] = rng.standard_normal((N, width, width)) / np.sqrt(width)
    start[R] = rng.standard_normal((N, 1, width)) / np.sqrt(width)
    return p, outputs, (W, R), start


def by_hand(start, W, R, y, rate, batches):
    "Outputs before each step and after the last, entry by entry, network by network."
    found = []
    for n in range(len(start[W])):
        x, A, r = (
            np.array([z[n] for key, z in start.items() if key not in (W, R)]),
            start[W][n].copy(),
            start[R][n, 0].copy(),
        )
        width, path = len(r), []
        for rows in (*batches[n], range(len(y))):
            h = np.maximum(x @ A.T, 0)
            f = h @ r
            path.append(f)
            χ = np.zeros(len(y))
            χ[list(rows)] = len(y) / len(rows) * (f - y)[list(rows)]
            dA = ((χ[:, None] * (h > 0)) * r).T @ x
            A, r = A - rate / width * dA, r - rate / width * χ @ h
        found.append(path)
    return np.array(found)


TARGETS = np.array([1.0, -1.0, 0.5, 2.0])


@pytest.mark.filterwarnings("ignore:1 of 6 networks diverged")
@pytest.mark.parametrize("dense", (True, False, None))
@pytest.mark.parametrize(
    "how",
    (
        dict(learning_rate=0.3),
        dict(learning_rate=0.3, momentum=0.8, weight_decay=0.1),
        dict(learning_rate=0.1, optimizer="muon", momentum=0.5),
        dict(learning_rate=0.3, batch_size=2),
        dict(learning_rate=0.3, batch_size=3, batches="own"),
    ),
    ids=str,
)
@pytest.mark.long
def test_one_network_that_diverges_leaves_the_others_alone(how, dense):
    """The last of six begins with matrices of 1e3 (of 1e170: its outputs are infinite):
    the others are those of a run of five, and the last is marked.
    """
    for size in (1e3, 1e170):
        p, f, (W, R), start = two_layers(9)
        start[R][-1] *= size
        start[W][-1] *= size
        if "optimizer" in how and size < 1e100:
            continue  # a step of Muon is bounded
        common = dict(width=9, steps=20, dense=dense, rng=0, **how)
        run = quiet(p, f, TARGETS, init=start, **common)
        fewer = {key: x[:-1] for key, x in start.items()}
        five = quiet(p, f, TARGETS, init=fewer, **common)
        assert run.diverged.tolist() == [False] * 5 + [True]
        assert len(five.loss) == 5
        assert not five.diverged.any()
        for name in ("outputs", "loss"):
            ours, alone = getattr(run, name), getattr(five, name)
            np.testing.assert_allclose(ours[:-1], alone, rtol=1e-7, atol=1e-9)
            assert np.isnan(ours[-1, -1]).all()
        asked = (run.values(f), run.weights(W), run.tangent(), run.change(f[0].args[0]))
        for x in asked:
            assert np.isnan(x[-1]).all()
            assert np.isfinite(x[:-1]).all()
        assert np.isfinite(run.weights(W, "start")).all()
        assert "1 diverged" in repr(run)
        assert "5 networks" in repr(five)
        later = quiet(p, f, TARGETS, init=run, **common | dict(rng=None))
        assert later.diverged.sum() == 1
        assert len(later.loss) == 6


def test_what_diverges_is_said_and_too_much_of_it_rejected():
    p, f, (W, R), start = two_layers(5)
    start[R][-1] *= 1e3
    start[W][-1] *= 1e3
    common = dict(width=5, steps=20, init=start, rng=0, verbose=False)
    with pytest.warns(
        UserWarning, match="1 of 6 networks diverged at learning rate 0.3"
    ):
        train(p, f, TARGETS, learning_rate=0.3, **common)
    with pytest.raises(
        ValueError, match="`learning_rate` must keep.*6 of 6 diverge by step"
    ):
        train(p, f, TARGETS, learning_rate=1e4, **common)
    run = quiet(p, f, TARGETS, **common | dict(init=None), size=3)
    with pytest.raises(ValueError, match="`size` must be the number of.*4 after 3"):
        train(p, f, TARGETS, **common | dict(init=run), size=4)


@pytest.mark.filterwarnings("ignore:.*networks diverged")
@pytest.mark.power("half the rate at p < 1e-12")
def test_the_law_of_what_does_not_diverge(size=20_000, steps=3, rate=0.5):
    """Networks of width one, whose products of three normals have heavy tails: the
    others have the law of explicit ones that stay within the same bound.
    """
    p = Program()
    x = p.inputs(np.eye(2))
    W, R = p.matrix(), p.readout()
    f = [R @ relu(W @ v) for v in x]
    run = quiet(
        p, f, [1.0, -1.0], width=1, steps=steps, learning_rate=rate, size=size, rng=0
    )

    def explicit_ones(rate):
        rng = np.random.default_rng(1)
        x, w, r = (rng.standard_normal((size, k)) for k in (2, 1, 1))
        y, losses = np.array([1.0, -1.0]), []
        for _ in range(steps + 1):
            h = np.maximum(w * x, 0)
            χ = r * h - y
            losses.append(0.5 * (χ**2).sum(1))
            dw = (χ * r * (w * x > 0) * x).sum(1, keepdims=True)
            w, r = w - rate * dw, r - rate * (χ * h).sum(1, keepdims=True)
        losses = np.array(losses)
        kept = (losses <= 1e6 * (losses[0] + 1e-3)).all(0)
        return kept, np.concatenate([χ + y, losses.T], axis=1)[kept]

    kept, theirs = explicit_ones(rate)
    share = (run.diverged.mean() + 1 - kept.mean()) / 2
    gap = abs(run.diverged.mean() - 1 + kept.mean())
    assert 0 < share < 0.05
    assert gap < 5 * np.sqrt(2 * share / size)
    alive = ~run.diverged
    ours = np.concatenate([run.outputs[alive, -1], run.loss[alive]], axis=1)
    assert least_p(ours, theirs) > 1e-8
    assert least_p(ours, explicit_ones(rate / 2)[1]) < 1e-12


@pytest.mark.parametrize("dense", (True, False))
def test_batches_of_ones_own_are_those_of_explicit_networks(dense, steps=9):
    "Each epoch goes through all rows once; the networks' orders are not the same."
    p, f, (W, R), start = two_layers(7)
    common = dict(
        width=7, steps=steps, learning_rate=0.4, batch_size=2, dense=dense, rng=3
    )
    run = quiet(p, f, TARGETS, init=start, batches="own", **common)
    met = ~np.isnan(run.outputs[:, :-1])
    assert (met.sum(2) == 2).all()
    assert (met[:, 0:8:2] ^ met[:, 1:8:2]).all()
    assert len({m.tobytes() for m in met}) == 6
    batches = [[np.flatnonzero(row) for row in m] for m in met]
    path = by_hand(start, W, R, TARGETS, 0.4, batches)
    np.testing.assert_allclose(
        run.outputs, np.where(np.isnan(run.outputs), np.nan, path), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(
        run.loss[:, -1], 0.5 * ((path[:, -1] - TARGETS) ** 2).sum(1), rtol=1e-9
    )
    same = quiet(p, f, TARGETS, init=start, **common)
    shared = ~np.isnan(same.outputs[:, :-1])
    assert (shared == shared[0]).all()
    half = quiet(p, f, TARGETS, init=start, batches="own", **common | dict(steps=4))
    rest = quiet(
        p, f, TARGETS, init=half, batches="own", **common | dict(steps=5, rng=None)
    )
    np.testing.assert_array_equal(rest.outputs, run.outputs[:, 4:])


def test_a_loss_says_what_its_targets_are():
    "A class of one's own may be called Softmax, and may take labels."

    class Softmax:
        "Half the sum of squares."

        def value(self, f, y):
            return 0.5 * ((f - y) ** 2).sum((1, 2))

        def gradient(self, f, y):
            return f - y

    class Words(Softmax):
        def targets(self, y, P, D):
            return np.array([[{"up": 1.0, "down": -1.0}[word]] * D for word in y])

    p, f, _, _ = two_layers(7)
    common = dict(width=7, steps=5, size=3, learning_rate=0.1, rng=0)
    own = quiet(p, f, TARGETS, loss=Softmax(), **common)
    np.testing.assert_array_equal(own.outputs, quiet(p, f, TARGETS, **common).outputs)
    said = quiet(p, f, ["up", "down", "up", "up"], loss=Words(), **common)
    meant = quiet(p, f, [1.0, -1.0, 1.0, 1.0], **common)
    np.testing.assert_array_equal(said.outputs, meant.outputs)

    class Wrong(Softmax):
        def targets(self, y, P, D):
            return np.zeros(P + 1)

    with pytest.raises(
        ValueError, match=r"`loss.targets\(y, P, D\)` must return shape"
    ):
        quiet(p, f, TARGETS, loss=Wrong(), **common)


# -- other routes


@pytest.mark.power("distribution functions .1 apart with 2,000 networks")
@pytest.mark.parametrize("norm, final", [("pre", True), (None, False)])
@pytest.mark.long
def test_gradients_are_those_of_the_chain(norm, final, size=2_000):
    "Transformers: ★ the chain and the program, at one width."
    net = Transformer.uniform(
        np.eye(4) + 0.3,
        layers=2,
        heads=2,
        norm_placement=norm,
        activation=tanh,
        final_norm=final,
        mask="causal",
        texts="aabb",
        var_q=2.0,
        ff=2,
        random_embeddings=True,
    )
    p, fs = net.program()
    ours = gradients(p, fs, width=24, size=size, rng=0)
    chain = net.gradients(24, size, 1)
    matrix = lambda letter: sum(
        Θ for name, Θ in ours.by_matrix.items() if name.startswith(letter)
    )
    theirs = {
        name: chain.squared_weight_norms[name].sum(-1)
        for name in chain.squared_weight_norms
    }
    pairs = [
        (np.einsum("bii->b", ours.tangent), np.einsum("bii->b", chain.tangent)),
        (ours.tangent[:, 0, 1], chain.tangent[:, 0, 1]),
    ]
    assert set(theirs) == set("qkvo12")
    assert matrix("Q").shape == (size, 2, 2)
    assert least_p(*columns(pairs)) > 1e-8


@pytest.mark.power(
    "distribution functions .1 apart with 2,000 networks; half the rate at p < 1e-12"
)
@pytest.mark.parametrize("factor", [1.0, 0.5])
@pytest.mark.long
def test_one_layer_trains_as_its_recursion(factor, size=2_000, m=4, n=8):
    "AttentionDescent at finite head width, step by step."
    d, s, P, steps, rate = 3, 3, 2, 6, 0.05
    X = np.random.default_rng(0).standard_normal((P, s, d))
    y = np.array([1.0, -1.0])
    how = dict(learning_rate=rate, max_iter=steps, tol=0.0, mask="causal")
    how |= dict(head_width=m, n_networks=size, random_state=0)
    model = AttentionDescent(1, 1.5, 0.8, **how).fit(X, y)
    p = Program()
    tokens = [p.inputs(np.eye(s)) for _ in range(P)]
    Q, K, V = (
        p.matrix(k, var, rows=m / n) for k, var in (("Q", 1.5), ("K", 1.0), ("V", 0.8))
    )
    R = p.readout()
    fs = [
        R @ p.attend([p.score(Q @ x[-1], K @ z) for z in x], [V @ z for z in x])
        for x in tokens
    ]
    start = {
        z: np.sqrt(n) * np.pad(X[i, j], (0, n - d))
        for i, x in enumerate(tokens)
        for j, z in enumerate(x)
    }
    how = dict(width=n, learning_rate=factor * rate, steps=steps, size=size, rng=1)
    for dense in (None, False)[: 1 + (factor == 1)]:
        ours = quiet(p, fs, y, init=start, dense=dense, **how)
        p_value = least_p(
            *columns([(model.loss_, ours.loss), (model.values(X), ours.outputs[:, -1])])
        )
        assert p_value > 1e-8 if factor == 1 else p_value < 1e-12


@pytest.mark.slow
@pytest.mark.power(
    "distribution functions .36 apart with 120 networks; half the rate at p < 1e-7"
)
@pytest.mark.parametrize("n, size", nightly([(512, 120), (8192, 120)], (8192, 120)))
def test_a_wide_attention_only_network_trains_as_its_circuits(n, size):
    d, s, P, steps, rate = 3, 3, 2, 10, 0.05
    X = np.random.default_rng(0).standard_normal((P, s, d))
    y = np.array([1.5, -1.0])
    model = CircuitDescent(
        2,
        1,
        var_qk=1.0,
        var_vo=0.7,
        learning_rate=rate,
        max_iter=steps,
        n_networks=4_000,
        random_state=0,
        tol=0.0,
        mask="causal",
    ).fit(X, y)
    p = Program()
    e = p.inputs(np.eye(d))
    R = p.readout()
    start = dict(zip(e, np.sqrt(n) * np.eye(d, n)))
    layers = [
        [p.matrix(f"{k}{l}", 0.7 if k == "V" else 1.0) for k in "QKVO"]
        for l in range(2)
    ]
    fs = []
    for text in X:
        x = [sum(float(c) * h for c, h in zip(row, e)) for row in text]
        for Q, K, V, O in layers:
            x = [
                h
                + O
                @ p.attend(
                    [p.score(Q @ h, K @ z) for z in x[: i + 1]],
                    [V @ z for z in x[: i + 1]],
                )
                for i, h in enumerate(x)
            ]
        fs.append(R @ x[-1])

    def p_value(rate):  # thirty at a time: memory
        runs = [
            quiet(
                p,
                fs,
                y,
                width=n,
                learning_rate=rate,
                steps=steps,
                size=30,
                rng=k,
                init=start,
            )
            for k in range(size // 30)
        ]
        losses, values = (
            np.concatenate(x)
            for x in zip(*((run.loss, run.outputs[:, -1]) for run in runs))
        )
        return least_p(*columns([(model.loss_, losses), (model.values(X), values)]))

    assert p_value(rate) > 1e-8
    assert p_value(rate / 2) < 1e-7


# -- infinite width

GRAM = np.array([[1.0, 0.5, 0.2], [0.5, 1.2, -0.3], [0.2, -0.3, 0.8]])
ACTIVATIONS = {
    "relu": relu,
    "erf": erf,
    "gelu": gelu,
    "sin": sin,
    "cos": cos,
    "absolute": absolute,
    "leaky": leaky_relu(0.2),
}
KERNELS = np.load(Path(__file__).parents[1] / "data/ntk.npz")


def as_program(name):
    p = Program()
    x = p.inputs(GRAM)
    R = p.readout()
    if name.startswith("residual"):
        phi = ACTIVATIONS[name.split()[1]]
        W = p.matrix(var=1.7)
        z = [W @ h for h in x]
        for _ in range(2):
            W = p.matrix(var=1.7)
            z = [h + W @ phi(h) for h in z]
        return p, [R @ phi(h) for h in z]
    phi, depth = name.split(", depth ")
    phi = ACTIVATIONS[phi]
    return p, [R @ phi(g) for g in mlp(p, x, int(depth), activation=phi, var_w=1.7)]


@pytest.mark.parametrize("name", sorted({key.rsplit(", ", 1)[0] for key in KERNELS}))
def test_tangent_kernels_are_those_of_neural_tangents(name):
    p, fs = as_program(name)
    found = gradients(p, fs)
    scale = KERNELS[f"{name}, ntk"].max()
    np.testing.assert_allclose(
        found.tangent[0], KERNELS[f"{name}, ntk"], rtol=0, atol=1e-8 * scale
    )
    np.testing.assert_allclose(
        limit(p).law(fs).covariances(1, 0)[0],
        KERNELS[f"{name}, nngp"],
        rtol=0,
        atol=1e-8 * scale,
    )


def test_other_kernels_are_not():
    "A readout of another variance, and a depth of another network, are seen."
    p, fs = as_program("relu, depth 3")
    assert abs(gradients(p, fs).tangent[0] - KERNELS["relu, depth 1, ntk"]).max() > 0.1


@pytest.mark.slow
@pytest.mark.power("kernels 2 % off; outputs' covariances 10 % off")
def test_gates_norms_and_tied_matrices_at_infinite_width(n=1024, size=150):
    "Averages over points, with their error; a wide network agrees."
    from infattn_nb.netsor import lstm

    p = Program()
    R = p.readout()
    fs = [R @ h for h in lstm(p, p.inputs(np.eye(2) + 0.2))]
    exact, wide = (
        gradients(p, fs, size=4000, rng=0),
        gradients(p, fs, width=n, size=size, rng=1),
    )
    assert (exact.error > 0).any()
    assert (exact.error < 1e-2 * exact.tangent[0].max()).all()
    scatter = wide.tangent.std(0) / np.sqrt(size)
    assert (
        abs(wide.tangent.mean(0) - exact.tangent[0])
        < 6 * scatter + 6 * exact.error + 0.01 * exact.tangent[0]
    ).all()
    S = limit(p).law(fs).covariances(1, 0)[0]
    products = exact.outputs[:, :, None] * exact.outputs[:, None]
    assert (abs(products.mean(0) - S) < 6 * products.std(0) / np.sqrt(4000)).all()


def test_a_linear_score_hands_nothing_back():
    p = Program()
    x = [tanh(h) for h in p.inputs(Σ)]
    R = p.readout()
    fs = [R @ y for y in attention(p, x, scaling="linear", var_q=3.0)]
    exact, wide = gradients(p, fs), gradients(p, fs, width=4096, size=8, rng=0)
    assert not exact.by_matrix["Q1"].any()
    assert wide.by_matrix["Q1"].max() < 0.01
    np.testing.assert_allclose(wide.tangent.mean(0), exact.tangent[0], rtol=0.05)


@pytest.mark.power("distribution functions .085 apart; outputs 1.3 times as large")
@pytest.mark.long
def test_outputs_are_part_of_the_law(size=3_000):
    p = Program()
    R = p.readout(var=2.0)
    fs = [
        R @ y for y in attention(p, [tanh(h) for h in p.inputs(Σ)], heads=2, var_q=4.0)
    ]
    law = limit(p).law(fs)
    wide = simulate(p, fs, 256, size=size, rng=0)
    drawn = law.rvs(size, 1)
    moments = lambda f: np.column_stack([f, f[:, 0] * f[:, 1], (f**2).sum(1)])
    assert least_p(moments(wide), moments(drawn)) > 1e-8
    assert least_p(moments(wide), moments(drawn * 1.3)) < 1e-8


# -- how it is run


def small():
    p = Program()
    fs = network(p)
    return p, fs


def test_losses_of_classes():
    "Softmax and logistic go down; labels are labels."
    p = Program()
    x = p.inputs(np.eye(4))
    W, rows = p.matrix(), [p.readout() for _ in range(3)]
    outputs = [[R @ tanh(W @ h) for R in rows] for h in x]
    run = quiet(p, outputs, [0, 1, 2, 1], width=64, loss="softmax", steps=60, rng=0)
    assert run.outputs.shape == (8, 61, 4, 3)
    assert (run.loss[:, -1] < 0.5 * run.loss[:, 0]).all()
    assert (run.outputs[:, -1].argmax(-1) == [0, 1, 2, 1]).mean() > 0.9
    first = [row[0] for row in outputs]
    run = quiet(p, first, [0, 1, 1, 0], width=64, loss="logistic", steps=60, rng=0)
    assert ((run.outputs[:, -1] > 0) == [0, 1, 1, 0]).mean() > 0.9


def test_what_is_not_trained_stays():
    p, fs = small()
    last = p.matrices[-1]
    run = quiet(p, fs, Y, width=32, steps=5, matrices=[last], rng=0)
    for W in (*p.matrices, *p.readouts):
        moved = abs(run.weights(W) - run.weights(W, "start")).max()
        assert (moved > 1e-6) == (W is last)
    first = p.nodes[1]
    assert not run.change(first).any()
    assert run.change(fs[0].args[0]).min() > 1e-3


def test_rates_by_matrix(η=0.05):
    "By matrix or name, times the rate: a first step of factor times as much."
    p, fs = small()
    fit = partial(quiet, p, fs, Y, width=32, rng=0)
    W, stays, *_ = p.matrices
    step = lambda run, M: run.weights(M) - run.weights(M, "start")
    plain, other = (
        fit(steps=1, learning_rate=η, dense=True, rate_factors=rates)
        for rates in (None, {W: 3.0, stays.name: 0.0})
    )
    every = *p.matrices, *p.readouts
    for M in every:
        moved = {W: 3.0, stays: 0.0}.get(M, 1.0) * step(plain, M)
        np.testing.assert_allclose(step(other, M), moved, rtol=1e-9, atol=1e-15)
    found = fit(steps=0, rate_factors=dict.fromkeys(every, 4.0)).learning_rate
    np.testing.assert_allclose(found, fit(steps=0).learning_rate / 4, rtol=1e-10)


def test_a_long_run_is_announced(monkeypatch, capfd):
    "By its bar or a warning, from ten seconds or half the memory on."
    p, fs = small()
    fit = partial(train, p, fs, Y, width=16, steps=2, size=2, rng=0)
    with warnings.catch_warnings(action="error"):
        needs = training.needs(fit()._learner.plan, 2, 2, 0)
    monkeypatch.setattr(
        training.checks, "memory_of_the_machine", lambda: 1.5 * needs.bytes
    )
    with pytest.warns(
        UserWarning, match=r"this run takes about .* GB, .* processor seconds"
    ):
        fit()
    monkeypatch.undo()
    monkeypatch.setattr(training, "ANNOUNCED_SECONDS", 0.0)
    with pytest.warns(
        UserWarning, match=r"this run takes about .* GB, .* processor seconds"
    ):
        fit()
    with warnings.catch_warnings(action="error"):
        fit(verbose=False)
        capfd.readouterr()
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        fit()
    said = capfd.readouterr().err
    assert re.search(r"0/2 steps .*left, about \S+ GB, \S+ processor seconds", said)


def test_questions_leave_no_trace_and_agree():
    "Asked twice, or after another question, the same answer."
    p, fs = small()
    run = quiet(p, fs, Y, width=48, steps=6, rng=0, dense=False)
    before = run.values(fs)
    np.testing.assert_allclose(before[..., 0], run.outputs[:, -1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        run.values(fs, "start")[..., 0], run.outputs[:, 0], rtol=0, atol=1e-12
    )
    run.weights(p.matrices[0]), run.tangent()
    np.testing.assert_array_equal(run.values(fs), before)
    x, W = p.nodes[0][0], p.matrices[0]
    np.testing.assert_allclose(
        np.einsum("brc,bc->br", run.weights(W), run.values(x)),
        run.values(W @ x),
        atol=1e-10,
    )
    R = p.readouts[0]
    rest = run.values(fs[1].args[0])
    np.testing.assert_allclose(
        (run.weights(R)[:, 0] * rest).sum(1), run.outputs[:, -1, 1], atol=1e-10
    )


def test_callbacks_patience_and_watching():
    p = Program()
    R = p.readout()
    xs = p.inputs(np.eye(5) + 0.5)
    fs = [R @ tanh(h) for h in mlp(p, xs, 2)]
    seen = []

    def until(step):
        seen.append(step.step)
        return step.step == 3

    run = quiet(p, fs[:3], Y, width=32, steps=50, rng=0, callback=until, watch=fs[3:])
    assert seen == [0, 1, 2, 3]
    assert run.steps == 3
    assert run.outputs.shape == (8, 4, 3)
    assert run.watched.shape == (8, 4, 2)
    np.testing.assert_allclose(
        run.values(fs[3:])[..., 0], run.watched[:, -1], atol=1e-12
    )
    fit = partial(quiet, p, fs[:3], Y, width=32, size=1, rng=0, learning_rate=0.1)
    run = fit(steps=20, callback=lambda s: s.loss.mean() < 0.9 * run.loss[:, 0].mean())
    assert 0 < run.steps < 20
    path = fit(steps=20, watch=fs[3:]).watched[0]
    run = fit(steps=20, watch=fs[3:], y_watch=path[10], patience=5)
    assert run.watched_loss[0].argmin() == 10
    assert run.steps == 15


def test_an_interruption_leaves_what_there_is():
    p, fs = small()

    def stop(step):
        if step.step == 4:
            raise KeyboardInterrupt

    with pytest.warns(RuntimeWarning, match="interrupted at step 4"):
        run = quiet(p, fs, Y, width=32, steps=50, rng=0, callback=stop)
    whole = quiet(p, fs, Y, width=32, steps=4, rng=0, learning_rate=run.learning_rate)
    assert run.interrupted
    assert run.steps == 4
    np.testing.assert_array_equal(run.outputs, whole.outputs)
    assert "interrupted" in repr(run)


@pytest.mark.parametrize("how", ["momentum and decay", "batches", "muon"])
@pytest.mark.long
def test_a_resumed_run_is_the_unbroken_one(how):
    "To the last byte, revealed and explicit; with test texts asked between."
    p, fs = small()
    for dense in (True, False, None):
        common = dict(width=40, size=3, dense=dense, **HOW[how])
        whole = quiet(p, fs, Y, steps=12, rng=1, **common)
        half = quiet(p, fs, Y, steps=5, rng=1, **common)
        half.tangent()
        rest = quiet(p, fs, Y, steps=7, init=half, **common)
        np.testing.assert_array_equal(whole.outputs[:, 5:], rest.outputs)
        assert rest.steps == 12


def test_blocks_of_networks_do_not_depend_on_who_computes(monkeypatch):
    p, fs = small()
    run = lambda: quiet(p, fs, Y, width=64, steps=3, size=7, rng=0).outputs
    monkeypatch.setattr(training, "BLOCK_NUMBERS", 2**14)
    expected = run()
    with (
        ProcessPoolExecutor(1) as elsewhere,
        ThreadPoolExecutor(1) as one,
    ):  # networks stay in their process
        for workers in (1, 3, one, elsewhere):
            with parallel(workers):
                np.testing.assert_array_equal(expected, run())


def test_the_same_seed_gives_the_same_bytes_however_the_program_lies_in_memory():
    "What is left of a matrix is drawn in the program's order."

    def run():
        p, fs, _ = watched_program("two blocks")
        return quiet(p, fs, Y, width=48, steps=6, size=2, learning_rate=0.05, rng=0)

    first, held = run(), []
    assert "Explicit" in {
        type(M).__name__ for M in first._blocks[0].networks.drawn.matrices.values()
    }
    for _ in range(4):
        held.append(run())  # elsewhere in memory
        np.testing.assert_array_equal(held[-1].outputs, first.outputs)


def test_muon_moves_by_its_rate():
    "Its step is a polar factor: spectral norm η σ √(r/c), at every singular value."
    p, fs = small()
    run = quiet(
        p, fs, Y, width=64, steps=1, optimizer="muon", learning_rate=0.05, rng=0
    )
    W = p.matrices[1]
    s = np.linalg.svd(run.weights(W) - run.weights(W, "start"), compute_uv=False)
    np.testing.assert_allclose(s[:, :3], 0.05 * np.sqrt(1.5), rtol=1e-8)
    assert s[:, 3:].max() < 1e-12


@pytest.mark.long
def test_the_rate_that_is_found_is_stable():
    p, fs = small()
    run = quiet(p, fs, Y, width=128, steps=200, rng=0, dense=True)
    assert (run.loss[:, -1] < 1e-2 * run.loss[:, 0]).all()
    Θ = run.tangent("start")
    np.testing.assert_allclose(
        1 / run.learning_rate, np.linalg.eigvalsh(Θ)[:, -1].max(), rtol=1e-10
    )


def test_gradients_of_a_wide_network_need_no_matrices():
    "Memory: a matrix of this width alone would be 20 GB."
    import tracemalloc

    p, fs = small()
    tracemalloc.start()
    run = quiet(p, fs, Y, width=50_000, steps=2, size=1, rng=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e8
    assert run.loss[0, -1] < run.loss[0, 0]


def test_a_function_of_ones_own_has_slopes():
    "By complex steps, by differences, or stated; weights of one's own, too."
    stated = Nonlinearity(
        lambda x: np.exp(-x * x), derivative=lambda x: -2 * x * np.exp(-x * x)
    )
    kinked = lambda x: np.abs(x) + np.minimum(x, 0.3)

    def outputs(phi, weights):
        p = Program()
        M, W, R = p.matrix(), p.matrix(var=2.0), p.readout()
        x = [p.nonlin(phi, M @ h) for h in p.inputs(Σ)]
        y = p.attend([p.score(W @ h, h) for h in x], x, weights)
        return gradients(p, [R @ (W @ y)], width=8, size=50, rng=0).tangent

    plain = lambda row: np.exp(row) / np.exp(row).sum(-1, keepdims=True)
    np.testing.assert_allclose(
        outputs(stated, softmax), outputs(lambda x: np.exp(-x * x), plain), rtol=1e-10
    )
    bent = Nonlinearity(kinked, derivative=lambda x: np.sign(x) + (x < 0.3))
    np.testing.assert_allclose(
        outputs(kinked, softmax), outputs(bent, softmax), rtol=1e-7
    )
    wrong = Nonlinearity(
        lambda x: np.exp(-x * x), derivative=lambda x: -x * np.exp(-x * x)
    )
    assert abs(outputs(stated, softmax) / outputs(wrong, softmax) - 1).max() > 0.01


def test_a_pass_does_not_name_its_nodes(monkeypatch):
    "To ask for a name at every node took minutes."
    p, fs, _ = watched_program("two blocks")
    monkeypatch.setattr(
        Program, "names", lambda self: pytest.fail("a name was asked for")
    )
    assert np.isfinite(
        quiet(p, fs, Y, width=12, steps=2, size=1, learning_rate=0.05, rng=0).loss
    ).all()
    monkeypatch.undo()
    odd = Program()
    f = odd.readout() @ odd.nonlin(
        lambda x: np.where(x > 9, np.nan, x), 10 * odd.inputs([[1.0]])[0]
    )
    with pytest.raises(ValueError, match="`fn` of `x1` must be finite"):
        gradients(odd, f, width=2000)


# -- benchmarks/programs.py


def explicit_start(p, blocks, r, X):
    "The matrices of benchmarks/explicit.py, heads one by one."
    named = {W.name: W for W in p.matrices}
    n = r.shape[1]
    start = {p.readouts[0]: r.copy()} | dict(zip(p.nodes[0], X.reshape(12, n).copy()))
    for l, w in enumerate(blocks, 1):
        start |= {named[f"W{l}.1"]: w["A"].copy(), named[f"W{l}.2"]: w["B"].copy()}
        for h, rows in enumerate((slice(n // 2), slice(n // 2, n)), 1):
            start |= {named[f"{k}{l}.{h}"]: w[k][rows].copy() for k in "QKV"}
            start[named[f"O{l}.{h}"]] = w["O"][:, rows].copy()
    return start


def test_the_other_sides_of_the_benchmark_are_the_same_network(n=16, passes=6):
    "In numpy by hand, in torch, and as a program: one path."
    p, fs = programs.transformer()
    drawn = explicit.drawn(n, 3)
    start = explicit_start(p, *drawn)
    paths = [explicit.in_numpy(*deepcopy(drawn), passes, 0.05)]
    if find_spec("torch"):
        paths.append(explicit.in_torch(*deepcopy(drawn), passes, 0.05))
    for dense in (True, False):
        paths.append(
            quiet(
                p,
                fs,
                explicit.Y,
                width=n,
                steps=passes - 1,
                learning_rate=0.05,
                size=1,
                init=start,
                dense=dense,
            ).loss[0]
        )
    for path in paths[1:]:
        np.testing.assert_allclose(path, paths[0], rtol=1e-9)
    assert paths[0][-1] < 0.1 * paths[0][0]


@pytest.mark.parametrize("n", nightly([64, 256], 256))
def test_rounding_does_not_choose_the_network(n):
    """Directions of one span are turned by rounding; what a matrix does to the span is
    not. Not turned back, the paths were 3.4 apart.
    """

    def path(scale):
        return quiet(
            *programs.transformer(scale=scale),
            Y,
            width=n,
            steps=10,
            learning_rate=0.1,
            size=4,
            rng=0,
            dense=False,
        ).outputs

    assert 0 < abs(path(1 + 1e-13) - path(1.0)).max() < 1e-5


@pytest.mark.parametrize(
    "part, n",
    nightly(
        [("all", 64), ("all", 256), ("attention alone", 1024)],
        ("attention alone", 1024),
    ),
)
def test_rows_of_the_motion_of_a_transformer_are_as_stored(part, n):
    stored = (
        pd.read_csv(programs.DATA / "programs_motion.csv")
        .set_index(["trained", "n", "seed"])
        .loc[(part, n, 0)]
    )
    found = pd.DataFrame(programs.motion_rows(part, n, 0))[stored.columns]
    # rounding may move an output by so much, on another processor
    np.testing.assert_allclose(found, stored, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "table, row, case",
    nightly(
        [
            ("kernels", programs.kernel_row, ("MLP", 256)),
            ("kernels", programs.kernel_row, ("attention", 1024)),
            ("coordinates", programs.coordinate_row, ("muP", 512)),
            ("coordinates", programs.coordinate_row, ("Muon", 4096)),
        ],
        ("kernels", programs.kernel_row, ("attention", 1024)),
        ("coordinates", programs.coordinate_row, ("Muon", 4096)),
    ),
)
def test_rows_of_kernels_and_coordinates_are_as_stored(table, row, case):
    "The second and larger widths have matrices of which only products are drawn."
    stored = pd.read_csv(programs.DATA / f"programs_{table}.csv")
    stored = stored.set_index([*stored.columns[:3]]).loc[(*case, 0)]
    found = pd.Series(row(*case))[stored.index].astype(float)
    np.testing.assert_allclose(found, stored, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["attention", "MLP"])
def test_the_start_of_induction_is_as_stored(kind):
    "Single precision leaves the last digits open."
    pytest.importorskip("torch")
    stored = pd.read_csv(programs.DATA / "programs_induction.csv").query(
        "network == @kind and steps == 0"
    )
    found = pd.DataFrame(programs.induction_rows(kind, 64, 4e-4, last=0))[
        ["loss", "right"]
    ]
    np.testing.assert_allclose(found["loss"], stored["loss"], rtol=1e-3)
    np.testing.assert_allclose(found["right"], stored["right"], atol=0.02)


@pytest.mark.parametrize("kind", ["attention", "MLP"])
def test_induction_is_trained_as_the_program_says(kind, n=16, steps=4):
    "What learns the task of circuits in torch is the program, step by step."
    torch = pytest.importorskip("torch")
    X, y = programs.induction(5)
    some = np.r_[:6, 300:302]
    p, fs = programs.induction_program(kind, X[some, :, :5].argmax(-1))
    E = torch.randn(
        1, 11, n, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    begun = [
        W.detach()
        for W in programs.explicit_induction(kind, X[some], n, 1, dtype="float64")[0]
    ]
    weights, outputs = programs.explicit_induction(
        kind, X[some], n, 1, start=[*begun, E], dtype="float64"
    )
    *matrices, rows = (W.detach().numpy()[0].copy() for W in weights)
    initial = [x for h in p.nodes if isinstance(h, Input) for x in h]
    start = (
        dict(zip(p.matrices, matrices))
        | {R: rows[k : k + 1] for k, R in enumerate(p.readouts)}
        | dict(zip(initial, E[0].numpy()))
    )
    run = quiet(
        p,
        fs[:6],
        y[some][:6],
        width=n,
        steps=steps,
        learning_rate=0.01,
        momentum=0.9,
        loss="softmax",
        size=1,
        init=start,
        dense=False,
    )
    descent = torch.optim.SGD(
        [dict(params=[W], lr=0.01 / W.shape[2]) for W in weights], momentum=0.9
    )
    for t in range(steps + 1):
        f = outputs(torch.arange(6))
        np.testing.assert_allclose(
            f.detach().numpy()[0], run.outputs[0, t], rtol=0, atol=1e-9
        )
        descent.zero_grad()
        torch.nn.functional.cross_entropy(
            f[0], torch.tensor(y[some][:6]), reduction="sum"
        ).backward()
        descent.step()
    assert abs(run.outputs[0, -1] - run.outputs[0, 0]).max() > 0.1


def test_networks_without_randomness_are_one(n=5):
    "A start with all weights has no other networks; any missing weight is random."
    p = Program()
    X = p.inputs(np.eye(2))
    b = p.parameter(0.0, 0.3)
    f = p.readout() @ tanh(p.matrix() @ X + b)
    (W,), (r,) = p.matrices, p.readouts
    every = {W: np.eye(n), r: np.ones((1, n)), X: np.ones((2, n)), b: np.ones(n)}
    fit = partial(train, p, f, [1.0, -1.0], width=n, steps=1, learning_rate=0.1)
    assert fit(init=every).loss.shape == (1, 2)
    assert fit(init=every, size=3).loss.shape == (3, 2)
    assert len(fit(init=every | {b: np.ones((4, n))}).loss) == 4
    named = {k: x for k, x in every.items() if k is not b}
    assert len(fit(init=named | {b.name: np.ones((4, n))}).loss) == 4
    for key in every:
        run = fit(init={k: x for k, x in every.items() if k is not key})
        assert len(run.loss) == 8 and np.ptp(run.loss[:, 0]) > 0
    own = partial(fit, init=every, batch_size=1, batches="own")
    assert len(own().loss) == 8 and np.ptp(own(size=40).loss[:, -1]) > 0
    rows = {k: x for k, x in every.items() if k is not X} | {X[0]: np.ones(n)}
    assert len(fit(init=rows).loss) == 8
    assert len(fit(init=rows | {X[1]: np.ones(n)}).loss) == 1


@pytest.mark.parametrize(
    "how",
    [
        dict(momentum=0.9, weight_decay=0.01, clip_norm=1.0),
        dict(optimizer="adamw", learning_rate=1e-3, weight_decay=0.1),
        dict(optimizer="muon", learning_rate=0.01, momentum=0.5),
    ],
    ids=["sgd", "adamw", "muon"],
)
def test_single_precision_keeps_six_digits(how, steps=5):
    "The same networks, and all states in single precision."
    p, fs = small()
    common = dict(width=32, steps=steps, size=2, rng=0, verbose=False, dense=True)
    common |= dict(learning_rate=0.1) | how
    exact = train(p, fs, Y, **common)
    single = train(p, fs, Y, precision="single", **common)
    for x in single._blocks[0].networks.states.values():
        assert x.moved.dtype == np.float32
        assert x.velocity is None or x.velocity.dtype == np.float32
    gap = abs(single.outputs - exact.outputs).max((0, 2)) / abs(exact.outputs).max()
    assert (gap < 1e-5).all() and gap.max() > 1e-9  # neither half nor double precision
    W = p.matrices[0]
    np.testing.assert_allclose(single.weights(W), exact.weights(W), atol=1e-4, rtol=0)
    later = train(p, fs, Y, init=single, precision="single", **common)
    assert later.steps == 2 * steps
    with pytest.raises(ValueError, match="`precision` must be that of the resumed run"):
        train(p, fs, Y, init=single, **common)
    with pytest.raises(ValueError, match="`dense` must be True or None for"):
        train(p, fs, Y, precision="single", **common | dict(dense=False))
    with pytest.raises(ValueError, match="`precision` must be 'double' or 'single'"):
        train(p, fs, Y, precision="half", **common)


def test_a_run_of_descent_is_resumed_by_adam(n=16):
    "Adam needs entries of which descent had drawn only products; none is drawn twice."
    p = Program()
    R, U, W = p.readout("R"), p.matrix("U"), p.matrix("W")
    f = R @ tanh(U @ tanh(W @ p.inputs(np.eye(2))))
    how = dict(width=n, size=3, rng=1, learning_rate=0.05, verbose=False)
    first = train(p, f, [1.0, -1.0], steps=3, dense=False, **how)
    then = train(p, f, [1.0, -1.0], steps=3, init=first, optimizer="adam", **how)
    np.testing.assert_allclose(then.loss[:, 0], first.loss[:, -1], rtol=1e-10)
    weights = {X: then.weights(X, "end") for X in (R, U, W)}
    assert then.steps == 6 and (then.loss[:, -1] != then.loss[:, 0]).all()
    assert weights[U].shape == (3, n, n)
