"""Deep attention as its circuits: against wide networks from the same start, finite
differences, the layer of one, and what is rejected.
"""

import pickle
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import least_p, nightly
from numpy.random import SeedSequence, default_rng
from reference_circuits import BARE, OF_TORCH, Wide, WrongRates, composition, data
from reference_circuits import distances, last_scores, letters_shown, one_rate, rms
from reference_circuits import same, side_by_side, start

from infattn_nb import AttentionDescent, CircuitDescent, Transformer
from infattn_nb.attention.spec import AttentionSpec
from infattn_nb.learning import make_recall
from infattn_nb.learning.circuits import Depth, ReadRows, backward
from infattn_nb.learning.circuits import circuit_scores, forward, named
from infattn_nb.learning.circuits import theta
from infattn_nb.learning.descent_step import circuits_from, dynamics
from infattn_nb.numerics import parallel

ROOT = Path(__file__).parents[2]
DEPTHS = (
    Depth(2, AttentionSpec(2, var_q=0.64, var_v=1.3), True, False, True, 2),
    Depth(2, AttentionSpec(2, var_q=0.64, var_v=1.3), True, True, False, 2),
    Depth(3, AttentionSpec(var_v=0.7), True, True, True, 2),
    Depth(1, AttentionSpec(2), False, False, True, 2),
    Depth(2, AttentionSpec(var_q=1.44), False, True, True, 2),
)
each_depth = pytest.mark.parametrize(
    "depth",
    DEPTHS,
    ids=lambda x: (
        f"{x.layers} layers, {x.heads} heads"
        + ", norm" * x.norm
        + ", skip" * x.residual
    ),
)


def circuits_bench():
    return import_module("circuits")


QUICK = dict(layers=2, heads=2, n_networks=3, max_iter=60, random_state=0)


@each_depth
@pytest.mark.parametrize("every", [False, True])
def test_backward_is_the_derivative(depth, every):
    "Along random directions, by central differences."
    rng = default_rng(0)
    rows, _ = data(1, P=3, d=2, every=every)
    now = start(depth, 2, [1, 2]).products()
    answer = forward(depth, rows, now)
    χ = rng.standard_normal(answer.values.shape)
    for k, slope in enumerate(backward(depth, rows, answer, χ)):
        along, h = rng.standard_normal(slope.shape), 1e-5
        there, back = (
            (
                forward(
                    depth,
                    rows,
                    [x + e * along if j == k else x for j, x in enumerate(now)],
                ).values
                * χ
            ).sum()
            for e in (h, -h)
        )
        np.testing.assert_allclose(
            (there - back) / 2 / h, (slope * along).sum(), rtol=1e-6, atol=1e-8
        )


@pytest.mark.parametrize("size", [1e-12, 1.0, 3.0, 10.0])
@each_depth
@pytest.mark.long
def test_back_and_sideways_is_the_tangent_kernel(depth, size):
    """For tokens of any length: a difference with one step for all lengths was off by
    130 % at three, by 48 % at ten, and zero at 1e-14.
    """
    rows, _ = data(2, P=3, d=2)
    rows = ReadRows(size * rows.tokens, rows.see, rows.rows, rows.weights)
    net = start(depth, 2, [1])
    answer = net.reply(depth, rows)
    χ = default_rng(0).standard_normal(answer.values.shape)
    Θ = net.tangent(depth, (rows, rows))
    np.testing.assert_allclose(
        net.times(depth, rows, answer, χ).ravel(),
        Θ @ χ.ravel(),
        rtol=0,
        atol=1e-11 * np.abs(Θ).max(),
    )
    assert 0 < net.steepness(depth, rows)[0] <= (1 + 1e-11) * np.linalg.eigvalsh(Θ)[-1]


@pytest.mark.parametrize("every", [False, True])
def test_a_wide_network_is_its_circuits_at_the_start(every):
    """Without a norm every score and value is a form of the circuits, at any width;
    with one, lengths of sums are those of orthogonal pieces only in the limit.
    """
    rows, _ = data(7, every=every)
    far = {}
    for norm in (False, True):
        net = Wide(
            Depth(2, AttentionSpec(2, var_v=0.5), True, norm, True, 3),
            32,
            1,
            default_rng(0),
        )
        far[norm] = np.abs(
            net.circuits().reply(net.depth, rows).values[0] - net.values(rows)
        ).max()
    assert far[False] < 1e-11 < 1e-4 < far[True]


def without_readout(depth):
    *scores, values = (k.array for k in depth.counts)
    return [*scores, values - 1]


def dependent(state):
    "The circuits of the second head are those of the first."
    scores = tuple(np.repeat(x[:, :, :1], x.shape[2], axis=2) for x in state.scores)
    return replace(state, scores=scores)


def unscaled(depth):
    "No 1/H in a path."
    spec = replace(depth.spec, var_v=depth.spec.var_v * depth.heads)
    return replace(depth, spec=spec)


CASES = [  # network, causal mask?
    (Depth(2, AttentionSpec(2), True, True, True, 3), True),
    (Depth(2, AttentionSpec(2, var_v=0.5), True, False, True, 3), True),
    (Depth(2, AttentionSpec(), False, True, False, 3), True),
    (Depth(3, AttentionSpec(), True, True, True, 3), True),
    (Depth(1, AttentionSpec(2), True, True, True, 3), False),
]


@pytest.mark.power(
    "one rate for all, rates without the readout, dependent circuits, no 1/H"
)
@pytest.mark.parametrize("k", nightly([*range(len(CASES))], 1, 2, 3, 4))
@pytest.mark.slow
def test_training_approaches_the_circuits(k):
    """The largest distance of values over a short time falls with the width, while the
    values move by more than one; four mistakes are further off at the larger width.
    """
    depth, causal = CASES[k]
    rate = 0.004 if not depth.norm else 0.01
    mistakes = [(WrongRates(depth, one_rate), same)]
    if depth.train_readout:
        mistakes += [(WrongRates(depth, without_readout), same)]
    if depth.heads > 1:
        mistakes += [(depth, dependent), (unscaled(depth), same)]

    def typical(n, networks, mistakes=()):
        """Geometric means: how far values move, distances. Their logarithms differ by
        .5 to .9 from network to network.
        """
        return np.exp(
            np.mean(
                [
                    np.log(distances(depth, n, seed, 15, rate, mistakes, causal=causal))
                    for seed in range(networks)
                ],
                axis=0,
            )
        )

    _, narrow = typical(16, 40)
    moved, wide, *wrong = typical(256, 16, mistakes)
    assert wide < 0.7 * narrow  # like the root of the width: .25
    assert moved > 3 * wide
    assert len(wrong) == len(mistakes)
    assert min(wrong) > 1.5 * wide


@pytest.mark.slow
@pytest.mark.power("one rate for all circuits")
def test_induction_is_learnt_side_by_side():
    """A network and its own circuits on the same batches of four letters: distances of
    values, of scores and of the circuit of K-composition fall like the root of the
    width (eight times as wide: log distance 1.04 less); with one rate for all
    circuits values are further off.
    """
    X, y = circuits_bench().induction(letters=4)
    shown, new, Y = letters_shown(X[:48]), letters_shown(X[48:]), np.eye(4)[y[:48]]
    depth = Depth(2, AttentionSpec(), True, True, True, X.shape[2])

    def log_distances(n, seed):
        _, net, right, wrong = next(
            side_by_side(depth, n, seed, shown, Y, (40,), rate=0.06, batch=12)
        )
        theirs, ours = last_scores(net, right, depth, new)
        own = composition(net.circuits(), depth.size)
        f = net.values(new)
        far = [
            right.reply(depth, new).values[0] - f,
            ours - theirs,
            composition(right, depth.size) - own,
            wrong.reply(depth, new).values[0] - f,
        ]
        return np.log([rms(x) for x in far])

    narrow, wide = (
        np.mean([log_distances(n, seed) for seed in range(10)], 0) for n in (16, 128)
    )
    assert (wide[:3] - narrow[:3] < -0.4).all(), (narrow, wide)
    assert wide[3] > wide[0] + 0.3


# --- torch, whose side is stored

TORCH = np.load(ROOT / "tests/data/circuits.npz")


@pytest.mark.parametrize(
    "name", [name for name, case in OF_TORCH.items() if case[1] != "layer"]
)
def test_explicit_networks_are_torchs(name):
    """Its autograd and SGD on every matrix, twenty steps: the reference's values to
    rounding. Without the readout's own step, or with a causal mask forgotten, they
    are others.
    """
    depth, _, causal, every = OF_TORCH[name]
    rows, y = data(7, d=3, every=every, causal=causal)
    theirs = TORCH[name]

    def far(depth, rows):
        net, f = Wide(depth, 24, 1, default_rng([0, 24])), []
        for _ in theirs:
            f.append(net.values(rows))
            net.step(rows, f[-1] - y, 0.01)
        return np.abs(f - theirs).max()

    assert np.abs(theirs[-1] - theirs[0]).max() > 1
    assert far(depth, rows) < 1e-9
    assert far(replace(depth, train_readout=not depth.train_readout), rows) > 1e-3
    if depth.layers > 1:
        # the last token sees all of them anyway
        assert far(depth, data(7, d=3, every=every, causal=not causal)[0]) > 1e-3


@pytest.mark.parametrize(
    "name, wide",
    [
        ("LayerNorm", 256),
        pytest.param("LayerNorm, one head", 1024, marks=pytest.mark.slow),
    ],
)
@pytest.mark.long
def test_layer_norm_approaches_the_same_circuits(name, wide):
    """Torch's networks with LayerNorm against their own circuits, ten steps: the
    distance falls with the width; with one rate for all circuits it stays.
    """
    depth, _, causal, _ = OF_TORCH[name]
    rows, y = data(7, d=3, causal=causal)

    def typical(n, limit=depth):
        logs = []
        for seed in range(8):
            theirs, state = (
                TORCH[f"{name} {n} {seed}"],
                Wide(depth, n, 1, default_rng([seed, n])).circuits(),
            )
            far = 0.0
            for f in theirs[:10]:
                answer = state.reply(limit, rows)
                far = max(far, np.abs(answer.values[0] - f).max())
                slopes = state.slopes(limit, rows, answer, answer.values - y)
                state = state.step(limit, slopes, dynamics(0.01), None)
            logs.append(np.log(far))
        return np.exp(np.mean(logs))

    assert typical(wide) < 0.75 * typical(64)
    assert typical(wide, WrongRates(depth, one_rate)) > 1.5 * typical(wide)


def test_torch_live():
    pytest.importorskip("torch", reason="PyTorch is large and only the other side")
    import torch_circuits as theirs

    for name in ("RMSNorm", "LayerNorm"):
        np.testing.assert_allclose(
            theirs.run(name, theirs.SMALL, 0), TORCH[name], atol=1e-9
        )


# --- the start, by the chain of a Transformer

STARTS = {
    "causal": (Depth(2, AttentionSpec(2, var_v=0.5), True, False, False, 3), "causal"),
    "norm": (Depth(2, AttentionSpec(2, var_q=2.25), True, True, False, 2), None),
    "three": (Depth(3, AttentionSpec(var_q=1.44), True, True, False, 2), "causal"),
}


def by_circuits(depth, rows, networks, broken=None):
    "At the start: scores, Gram matrices, θ, tangent kernel, (networks, ·)."
    state = start(depth, 1, SeedSequence(1).spawn(networks))
    now = (dependent(state) if broken == "dependent" else state).products()
    limit = unscaled(depth) if broken == "no 1/H" else depth
    answer = forward(limit, rows, now)
    slopes = [
        backward(limit, row, forward(limit, row, now), np.ones((networks, 1, 1)))
        for row in (rows.take([p]) for p in range(2))
    ]
    rates = [2 if broken == "one rate" else k.array for k in depth.counts]
    Θ = [
        sum((k * a * b).reshape(networks, -1).sum(1) for k, a, b in zip(rates, *pair))
        for pair in ((slopes[0], slopes[0]), slopes, (slopes[1], slopes[1]))
    ]
    θ = theta(limit, [a + b for a, b in zip(*slopes)])
    last = answer.layers[-1]
    P = [
        np.broadcast_to(
            circuit_scores(limit, rows, now, l, answer.layers[l].seen)[0],
            (networks, depth.heads, 2, len(x[0]), 3),
        )
        for l, x in ((0, rows.see), (-1 % depth.layers, rows.rows))
    ]
    met = last.seen if last.size is None else last.seen * last.size
    grams = [(met @ met.mT)[:, 0], (answer.read @ answer.read.mT)]
    return np.concatenate(
        [x.reshape(networks, -1) for x in (*P, *grams, *θ, np.transpose(Θ))], axis=1
    )


def by_the_chain(depth, rows, mask, networks):
    "The same of a Transformer without MLPs."
    tokens = rows.tokens.reshape(6, -1)
    net = Transformer.uniform(
        tokens @ tokens.T,
        layers=depth.layers,
        heads=depth.heads,
        norm_placement="pre" if depth.norm else None,
        kind="rms",
        ff=0,
        mask=mask,
        var_q=depth.scale**2,
        var_v=depth.spec.var_v,
        texts=[0, 0, 0, 1, 1, 1],
    )
    back, chain = (
        net.gradients(np.inf, networks, 0, count_readout=False),
        net.chain(np.inf, networks, 1, scores=True),
    )
    # (N, L, H, text, 3, 3)
    own = np.stack([chain.scores[..., :3, :3], chain.scores[..., 3:, 3:]], axis=3)
    Θ = back.tangent[:, [0, 0, 1], [0, 1, 1]]
    parts = (
        own[:, 0],
        own[:, -1, :, :, -1:],
        chain.gram[:, -2, :3, :3],
        chain.kernel_of_texts("last")[:, -1],
        back.squared_norms["q"],
        back.squared_norms["v"],
        Θ,
    )
    return np.concatenate([x.reshape(networks, -1) for x in parts], axis=1)


@pytest.mark.power("distribution functions .1 apart, and each of three mistakes")
@pytest.mark.parametrize("name", STARTS)
@pytest.mark.long
def test_the_start_is_that_of_the_chain(name, networks=2_000):
    "Two programs that share nothing: scores, Gram matrices, θ, tangents."
    depth, mask = STARTS[name]
    tokens = default_rng(0).standard_normal((2, 3, depth.size))
    tokens /= np.sqrt((tokens**2).mean())
    see = np.where(np.tri(3) > 0 if mask else np.ones((3, 3)) > 0, 0.0, -np.inf)
    rows = ReadRows(tokens, np.stack([see, see]), np.full((2, 1), 2), np.ones((2, 1)))
    theirs = by_the_chain(depth, rows, mask, networks)

    def off(broken=None):
        ours = by_circuits(depth, rows, networks, broken)
        fixed = ours.std(0) < 1e-9  # the first row of a causal layer attends to itself
        same = np.allclose(ours[:, fixed], theirs[:, fixed], atol=1e-9)
        return same * least_p(ours[:, ~fixed], theirs[:, ~fixed])

    assert off() > 1e-6
    for mistake in ("one rate", *["dependent", "no 1/H"] * (depth.heads > 1)):
        assert off(mistake) < 1e-6, mistake


@pytest.mark.power("no decay; every circuit counted as two matrices")
@pytest.mark.long
def test_wide_networks_with_decay_and_momentum_approach_their_circuits():
    """Values over fifteen steps, in which every weight would shrink to less than two
    thirds without gradients; circuits without decay, or with the counts of two
    matrices, are further off.
    """
    rows, y = data(7)
    rate, decay, momentum = 0.004, 5.0, 0.5
    how = dynamics(rate, momentum, decay)
    most = max(max(k.each) for k in BARE.counts)
    as_two = replace(BARE)
    as_two.__dict__["counts"] = tuple(
        k._replace(each=(2,) * len(k.each)) for k in BARE.counts
    )

    def far(n, seed):
        net = Wide(BARE, n, 1, default_rng([seed, n]))
        start = net.circuits().products()
        states = [circuits_from(start, most + 1) for _ in range(3)]
        rules = (BARE, how), (BARE, dynamics(rate, momentum)), (as_two, how)
        found = []
        for _ in range(15):
            f = net.values(rows)
            later = []
            for state, (limit, own) in zip(states, rules):
                answer = state.reply(BARE, rows)
                found.append(np.abs(answer.values[0] - f).max())
                slopes = state.slopes(BARE, rows, answer, answer.values - y)
                later.append(state.step(limit, slopes, own, None))
            states = later
            net.step(rows, f - y, rate, decay, momentum)
        return np.log(np.reshape(found, (15, 3)).max(0))

    narrow, wide = (
        np.exp(np.mean([far(n, seed) for seed in range(8)], axis=0)) for n in (16, 256)
    )
    assert wide[0] < 0.6 * narrow[0]  # like the root of the width: .25
    assert min(wide[1:]) > 2 * wide[0]


@pytest.mark.parametrize("more", [{}, dict(weight_decay=2.0), dict(linearized=True)])
def test_one_layer_without_a_skip_is_the_layer(more):
    X, y, _ = make_recall(12, 0)
    one = dict(
        heads=2,
        n_networks=3,
        max_iter=50,
        learning_rate=0.01,
        random_state=0,
        momentum=0.5,
        **more,
    )
    plain, deep = (
        AttentionDescent(**one).fit(X, y),
        CircuitDescent(1, residual=False, train_readout=False, **one).fit(X, y),
    )
    np.testing.assert_allclose(deep.loss_, plain.loss_, rtol=1e-9)
    np.testing.assert_allclose(deep.scores(X), plain.scores(X), rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        deep.attention(X, "start"), plain.attention(X, "start"), rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(
        deep.tangent(X[:4], X[4:]), plain.tangent(X[:4], X[4:]), rtol=1e-7, atol=1e-9
    )


def test_the_tangent_kernel_says_how_one_step_moves_the_values():
    X, y, _ = make_recall(6, 0)
    model = CircuitDescent(
        norm="rms", learning_rate=1e-7, **QUICK | dict(max_iter=1, tol=0.0)
    ).fit(X, y)
    start, end, Θ = (
        model.values(X, "start"),
        model.values(X),
        model.tangent(X, when="start"),
    )
    np.testing.assert_allclose(
        (end - start) / 1e-7,
        -np.einsum("nqp,np->nq", Θ, start - y),
        rtol=1e-4,
        atol=1e-3,
    )
    np.testing.assert_allclose(Θ, Θ.swapaxes(1, 2), rtol=1e-10)


def test_after_decay_the_tangent_kernel_is_that_of_shorter_matrices():
    rows, y = data(3, P=3)
    state = start(BARE, 1, [0])
    for how in [dynamics(0.001, 0.0, 50.0)] * 10 + [dynamics(1e-8)]:
        answer = state.reply(BARE, rows)
        χ = answer.values - y
        before, state = (
            state,
            state.step(BARE, state.slopes(BARE, rows, answer, χ), how, None),
        )
    moved = (state.reply(BARE, rows).values - answer.values)[0] / 1e-8
    Θ = before.tangent(BARE, (rows, rows))
    np.testing.assert_allclose(moved, -Θ @ χ[0], rtol=1e-4, atol=1e-4 * np.abs(Θ).max())
    np.testing.assert_allclose(before.overlap, 0.95**20)


def test_every_position_is_read_and_trained():
    rng = default_rng(0)
    X, y = rng.standard_normal((10, 5, 3)), rng.standard_normal((10, 5))
    model = CircuitDescent(readout="every", mask="causal", **QUICK).fit(X, y)
    assert model.values(X).shape == (3, 10, 5)
    assert model.predict(X).shape == (10, 5)
    assert (model.loss_[:, -1] < model.loss_[:, 0]).all()
    changed = X.copy()
    changed[:, 3:] += 1.0
    # causal
    np.testing.assert_allclose(model.values(changed)[..., :3], model.values(X)[..., :3])
    labels = rng.integers(0, 3, (10, 5))
    classes = CircuitDescent(
        readout="every", loss="softmax", norm="layer", **QUICK
    ).fit(X, labels)
    assert classes.predict(X).shape == (10, 5)
    np.testing.assert_allclose(classes.predict_proba(X).sum(-1), 1)
    assert (classes.predict(X) == labels).mean() > (labels == 0).mean()
    assert (classes.loss_[:, -1] < classes.loss_[:, 0]).all()


@pytest.mark.power("means and variances of 400 networks; noise at a half of T rejected")
@pytest.mark.long
def test_noise_is_that_of_one_layer():
    "Values of one layer after noisy steps, in law, at another start of the noise."
    X, y = default_rng(0).standard_normal((3, 4, 2)), np.array([1.0, -1.0, 0.5])
    how = dict(heads=2, n_networks=400, max_iter=40, learning_rate=0.02, momentum=0.5)
    how |= dict(weight_decay=1.0, random_state=0)
    flat = dict(residual=False, train_readout=False)
    plain = AttentionDescent(temperature=1.0, **how).fit(X, y).values(X)

    def p(T):
        deep = CircuitDescent(1, temperature=T, **flat, **how | dict(random_state=1))
        return least_p(plain, deep.fit(X, y).values(X))

    assert p(1.0) > 1e-6 > p(0.1)


def test_a_linearised_network_moves_along_its_first_tangent_kernel():
    X, y, _ = make_recall(6, 0)
    how = QUICK | dict(max_iter=40, tol=0.0, learning_rate=0.002)
    model = CircuitDescent(norm="rms", linearized=True, **how).fit(X, y)
    Θ, f0 = model.tangent(X, when="start"), model.values(X, "start")
    shrink = np.linalg.matrix_power(np.eye(6) - 0.002 * Θ, 40)
    expected = y + np.einsum("nqp,np->nq", shrink, f0 - y)
    np.testing.assert_allclose(model.values(X), expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_array_equal(model.tangent(X), Θ)
    full = CircuitDescent(norm="rms", **how).fit(X, y)
    np.testing.assert_array_equal(full.values(X, "start"), f0)
    assert np.abs(full.values(X) - model.values(X)).max() > 0.01
    assert model.circuit_size()["score"].keys() == full.circuit_size()["score"].keys()
    with pytest.raises(ValueError, match="linearized"):
        model.without("value", ())


def test_circuits_by_name():
    X, y, _ = make_recall(12, 0)
    model = CircuitDescent(norm="rms", **QUICK).fit(X, y)
    found, start = model.circuits_, model.circuit_size("start")
    assert len(found["score"]) == 2 * 1 + 2 * 9
    assert len(found["value"]) == 9
    assert found["score"][1, 0, (), ((0, 1),)].shape == (3, 5, 5)
    assert found["value"][((0, 0), (1, 1))].shape == (3, 5, 1)
    sizes = np.concatenate([*start["score"].values()])
    assert 0.5 < sizes.min() < sizes.max() < 1.6
    cut = model.without("score", (1, 0, (), ((0, 1),)))
    assert not cut.circuits_["score"][1, 0, (), ((0, 1),)].any()
    assert model.circuits_["score"][1, 0, (), ((0, 1),)].any()
    kept = [
        np.array_equal(cut.circuits_["score"][key], x)
        for key, x in found["score"].items()
    ]
    assert sum(kept) == len(kept) - 1
    np.testing.assert_array_equal(model.scores(X, layer=0), cut.scores(X, layer=0))


def test_paths_are_in_the_order_of_the_stream():
    "A path's image is what its heads do, one after the other."
    depth, (rows, _) = DEPTHS[0], data(1, P=2, d=2)
    state = start(depth, 1, [0])
    answer = state.reply(depth, rows)
    A = [layer.weights[0] for layer in answer.layers]
    for path, i in zip(depth.paths(2), range(0, 18, 2)):
        X = rows.tokens
        for l, h in path:
            X = depth.weight * A[l][h] @ X
        # the last layer has one row alone
        last = X[:, -1] if not path or path[-1][0] == 0 else X[:, 0]
        np.testing.assert_allclose(answer.read[0][:, i : i + 2], last, atol=1e-12)
    with np.errstate(all="raise", under="ignore"):
        *scores, values = state.products()
        named(depth, scores, values)


def test_same_bytes_whoever_computes_and_after_a_pickle():
    X, y, _ = make_recall(12, 0)
    a = CircuitDescent(norm="rms", **QUICK).fit(X, y)
    with parallel(3):
        b = CircuitDescent(norm="rms", **QUICK).fit(X, y)
    np.testing.assert_array_equal(a.loss_, b.loss_)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(a)).values(X), a.values(X))


def test_stored_distances_fall_like_the_root_of_the_width():
    "Geometric means over networks, slope against log n with its error from the seeds."
    t = pd.read_csv(ROOT / "nbs/data/circuits_widths.csv")
    for case, part in t.groupby("case"):
        x, z = np.log(part["n"]), np.log(part["far"])
        slope, cov = np.polyfit(x, z, 1, cov=True)
        assert abs(slope[0] + 0.5) < 4 * np.sqrt(cov[0, 0]) + 0.1, case
        assert part["moved"].median() > 3 * part[part["n"] == 2048]["far"].median()


def test_a_stored_row_of_widths():
    circuits = circuits_bench()
    row = (
        pd.read_csv(circuits.DATA / "circuits_widths.csv")
        .query("n == 64 and seed == 3")
        .iloc[0]
    )
    fresh = circuits.run_widths(row["case"], 64, 3)
    assert fresh["far"] == pytest.approx(row["far"], rel=1e-4)


@pytest.mark.long
def test_a_stored_meeting():
    "The first hundred steps of an explicit network beside its circuits again."
    circuits = circuits_bench()
    kept = pd.read_csv(circuits.DATA / "circuits_meeting.csv").query(
        "n == 64 and seed == 3 and steps <= 100"
    )
    fresh = pd.DataFrame(circuits.run_meeting(64, 3, moments=(0, 50, 100)))
    assert len(kept) == 3
    assert (fresh.columns == kept.columns).all()
    np.testing.assert_allclose(fresh, kept, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_a_stored_row_of_explicit_networks():
    "The first 300 steps again; single precision leaves the last digits open."
    pytest.importorskip("torch", reason="PyTorch is large and only the other side")
    circuits = circuits_bench()
    kept = pd.read_csv(circuits.DATA / "circuits_explicit.csv").query(
        "n == 64 and seed == 1"
    )
    for fresh in circuits.run_explicit(64, 1, circuits.stable_rate(), moments=(0, 300)):
        row = kept[kept["steps"] == fresh["steps"]].iloc[0]
        assert fresh["loss"] == pytest.approx(
            row["loss"], rel=1e-5 if fresh["steps"] == 0 else 0.02
        )
        assert abs(fresh["test"] - row["test"]) < (
            1e-6 if fresh["steps"] == 0 else 0.05
        )
