"""Trained vectors, rotations and logits in programs: derivatives by finite differences,
unknown matrices against explicit ones, tangent kernels against the limit.
"""

import numpy as np
import pytest
from conftest import BEYOND_THEOREM, nightly

from infattn_nb import Program, from_config, gradients, train
from infattn_nb.huggingface import next_tokens
from infattn_nb.netsor.kinds import Normalize
from infattn_nb.netsor.revealed import State
from infattn_nb.nonlinearities import relu, tanh, times
from infattn_nb.training import SGD, Adam, AdamW, Lion, Muon
from infattn_nb.training.optimizers import MUP, OPTIMIZERS, Optimizer, clipped
from infattn_nb.training.optimizers import muon_step
from infattn_nb.transformer.as_program import ScoreSoftmax

pytestmark = BEYOND_THEOREM
IDS = [1, 4, 4, 2, 0]
ANGLES = np.outer(np.arange(5), [1.0, 0.2])
n = 8


def everything(words=6):
    "Embeddings, a gain, biases, queries that turn, capped scores, logits with a cap."
    p = Program()
    E = p.parameter(0.0, 0.5, size=words, name="E")
    gain = p.parameter(1.0, 0.1, name="gain")
    bias = p.parameter(0.0, 0.2, rows=1 / 2, name="bias")
    X = E[IDS]
    U = times(p.normalize(X, "rms"), gain)
    Q, K, V = (p.matrix(k, 1.5, 1 / 2) @ U for k in "QKV")
    Q, K = (p.rotate(x + bias, ANGLES) for x in (Q, K))
    sees = np.where(np.tri(5, dtype=bool), 0.0, -np.inf)
    Y = p.attend(p.scores(Q, K), V, ScoreSoftmax(sees, 1.0))
    X = X + p.matrix("O", 2.0) @ Y
    β = p.parameter(0.0, 0.3, size=words, rows=0, name="β")
    return p, p.logits(X[:4], E, scale=0.7, cap=2.0, bias=β)


NAMES = "EQKVO", ("gain", "bias", "β")
EVERY = [*NAMES[0], *NAMES[1]]
TARGETS = [4, 4, 2, 0]
FIXED = dict(width=n, parametrization="standard", loss="softmax", verbose=False, size=1)


def run(p, f, **how):
    common = FIXED | dict(learning_rate=1.0, rng=0)
    return train(p, f, TARGETS, **common | how)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_one_step_is_the_gradient(reduction, h=1e-5):
    "Central differences of the loss, of all that is trained; one of them off is seen."
    p, f = everything()
    one = run(p, f, steps=1, reduction=reduction)
    start = {name: one.weights(name, "start")[0] for name in EVERY}
    rng = np.random.default_rng(1)
    for name in EVERY:
        d = rng.standard_normal(start[name].shape)
        side = [
            run(
                p,
                f,
                steps=0,
                reduction=reduction,
                init=start | {name: start[name] + s * h * d},
            ).loss[0, 0]
            for s in (1, -1)
        ]
        slope = (side[0] - side[1]) / (2 * h)
        step = one.weights(name)[0] - start[name]
        assert abs(slope) > 1e-3
        assert -(step * d).sum() == pytest.approx(slope, rel=1e-5)


def test_logits_of_a_mini_batch_are_those_of_its_rows():
    "Rows in the batch are trained on as if they were all, scaled to all."
    p, f = everything()
    one = run(p, f, steps=1, batch_size=2)
    rows = np.flatnonzero(~np.isnan(one.outputs[0, 0, :, 0]))
    assert len(rows) == 2
    start = {name: one.weights(name, "start")[0] for name in EVERY}
    few = train(
        p,
        [list(f[int(i)]) for i in rows],
        [TARGETS[i] for i in rows],
        **FIXED,
        learning_rate=2.0,
        init=start,
        steps=1,
    )
    for name in EVERY:
        np.testing.assert_allclose(one.weights(name), few.weights(name), atol=1e-12)


@pytest.mark.parametrize(
    "how",
    [
        dict(optimizer="sgd", momentum=0.9, nesterov=True, weight_decay=0.1),
        dict(optimizer="sgd", momentum=0.9, schedule=lambda t: 1 / (1 + t)),
        dict(optimizer="sgd", clip_norm=0.1),
        dict(optimizer="muon", momentum=0.9, weight_decay=0.1),
    ],
)
def test_unknown_matrices_do_the_same(how, steps=6):
    p, f = everything()
    first = run(p, f, steps=0, dense=True)
    start = {name: first.weights(name, "start")[0] for name in EVERY}
    how = dict(init=start, steps=steps, learning_rate=0.1) | how
    runs = [run(p, f, dense=dense, **how) for dense in (True, False)]
    np.testing.assert_allclose(runs[0].loss, runs[1].loss, rtol=1e-10)
    for name in EVERY:
        found = [one.weights(name) for one in runs]
        np.testing.assert_allclose(*found, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_a_resumed_run_is_the_unbroken_one(optimizer):
    p, f = everything()
    how = dict(optimizer=optimizer, learning_rate=0.02)
    how |= dict(momentum=0.5) if optimizer == "sgd" else {}
    whole = run(p, f, steps=6, **how)
    half = run(p, f, steps=3, **how)
    rest = run(p, f, steps=3, init=half, **how)
    np.testing.assert_array_equal(whole.loss[:, 3:], rest.loss)


def test_a_network_that_diverges_rests():
    "Its vectors are back at their start, too; the other network goes on as alone."
    p, f = network()
    how = dict(width=n, steps=3, learning_rate=0.01, optimizer="adam", verbose=False)
    one = train(p, f, [1.0, -1.0], size=2, rng=0, **how)
    start = {name: one.weights(name, "start") for name in ("W", "R", "gain", "bias")}
    start |= {p.nodes[0]: one.values(p.nodes[0], "start")}
    far = start | {"R": start["R"] * np.array([1.0, 1e200])[:, None, None]}
    with pytest.warns(UserWarning, match="1 of 2 networks diverged"):
        two = train(p, f, [1.0, -1.0], init=far, size=2, **how)
    assert two.diverged.tolist() == [False, True]
    np.testing.assert_allclose(two.loss[0], one.loss[0], rtol=1e-12)
    np.testing.assert_array_equal(two.weights("gain", "start"), start["gain"])


def test_weight_decay_leaves_vectors_out():
    "Biases and gains stay without a gradient; numbers by name say otherwise."
    p, f = everything()
    how = dict(steps=1, learning_rate=1e-9, optimizer="adamw", eps=1.0)
    for decay, moved in ((1e8, {"E", *"QKVO"}), ({"gain": 1e8}, {"gain"})):
        one = run(p, f, weight_decay=decay, **how)
        change = {
            name: abs(one.weights(name) / one.weights(name, "start") - 1).max()
            for name in EVERY
        }
        assert {name for name, x in change.items() if x > 0.05} == moved


def test_parametrizations_are_one_rate_apart():
    "A step of SGD on normal weights is one on the entries, times their variance."
    p, f = everything()
    ntk = run(p, f, steps=1, parametrization="ntk", learning_rate=0.3)
    variances = dict.fromkeys("QKV", 1.5 / n) | dict(O=4.0 / n)
    variances |= dict(E=0.5, gain=0.1, bias=0.2, β=0.3)
    start = {name: ntk.weights(name, "start")[0] for name in EVERY}
    own = run(p, f, steps=1, learning_rate=0.3, rate_factors=variances, init=start)
    for name in EVERY:
        np.testing.assert_allclose(ntk.weights(name), own.weights(name), rtol=1e-12)


def network():
    "Two inputs, a gain, biases in front of and behind a function."
    p = Program()
    X = p.inputs([[1.0, 0.3], [0.3, 0.8]])
    gain = p.parameter(1.0, name="gain")
    bias = p.parameter(0.0, 0.4, name="bias")
    H = tanh(p.matrix("W", 1.2) @ times(X, gain) + bias)
    return p, p.readout("R") @ H


def test_tangent_kernels_count_vectors(wide=2000, size=40):
    """At infinite width those of a wide network: the error of the mean is stated by its
    networks; without a vector it would be off by far more.
    """
    p, f = network()
    there = gradients(p, [f])
    wide = gradients(p, [f], wide, size=size, rng=0)
    assert set(there.by_matrix) == {"W", "R", "gain", "bias"}
    for name, Θ in there.by_matrix.items():
        Θ = Θ[0]
        found = wide.by_matrix[name]
        error = found.std(0) / np.sqrt(size) + 1e-3
        assert (abs(found.mean(0) - Θ) < 7 * error).all()
        if name in ("gain", "bias"):
            assert (np.diag(Θ) > 20 * np.diag(error)).all()


def test_tangent_kernels_of_vectors_in_closed_form():
    """Of R(W(E g) + b), words 0, 1, 0: each is the variance of what is trained times
    the second moments of what it is multiplied with; words share their row alone.
    """
    p = Program()
    E = p.parameter(0.0, 0.5, size=3, name="E")
    gain = p.parameter(2.0, 0.3, name="gain")
    bias = p.parameter(0.0, 0.7, rows=1 / 2, name="bias")
    f = p.matrix("W", 1.5, 1 / 2) @ times(E[[0, 1, 0]], gain) + bias
    found = gradients(p, p.readout("R", 3.0) @ f).by_matrix
    same = np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]])
    moved = 1.5 * 0.5 * (4 + 0.3) * same
    expected = dict(
        E=3 * moved, gain=3 * 1.5 * 0.3 * 0.5 * same, bias=3 * 0.7 * np.ones((3, 3))
    )
    for name, Θ in expected.items():
        np.testing.assert_allclose(found[name][0], Θ, rtol=1e-12)
    for name, Θ in dict(W=3 * moved, R=3 * (moved + 0.7)).items():
        np.testing.assert_allclose(found[name][0], Θ, atol=0.02)


def test_what_has_no_limit_is_said():
    p = Program()
    g = p.matrix() @ p.inputs(np.eye(2))
    f = p.readout() @ p.rotate(g, np.ones((2, 1)))
    with pytest.raises(ValueError, match="finite for programs with rotary positions"):
        gradients(p, f)
    p = Program()
    f = p.logits(p.inputs(np.eye(2)), p.parameter(size=3))
    with pytest.raises(ValueError, match="finite for programs with rotary positions"):
        gradients(p, f[0])


def test_the_memory_of_moments_counts():
    "Adam keeps two arrays of the size of each matrix."
    rules = SGD(), SGD(momentum=0.9), Muon(momentum=0.9), Lion(), Adam(), AdamW()
    assert [rule.moments for rule in rules] == [0, 1, 1, 1, 2, 2]
    start = State(0.0, np.ones((1, 2, 2)))
    for rule in rules:
        after = rule.step(start, np.ones((1, 2, 2)), 1, 1, 0)
        kept = [x for x in (after.velocity, after.square) if x is not None]
        assert [x.shape for x in kept] == rule.moments * [(1, 2, 2)]


# µP

BASE = 64
WORDS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]]
COORDINATES = dict(adam=(0.003, 0.0), sgd=(0.05, 0.9), muon=(0.01, 0.9))
WIDER = dict(adam=4, sgd=8, muon=8)  # adam varies least from seed to seed


def small_gpt2(n):
    "Heads of width 16; embeddings keep their size, other entries fall like n^−1/2."
    entries = dict(n_embd=n, n_head=n // 16, n_layer=1, n_positions=16, vocab_size=16)
    how = dict(model_type="gpt2", initializer_range=n**-0.5)
    return from_config(how | entries, WORDS).embedded((n / BASE) ** 0.5)


def moved_per_coordinate(n, optimizer, **how):
    "Root mean square change of the stream below the last norm, of six networks."
    net = small_gpt2(n)
    program, logits = net.program(readout="lm")
    rate, momentum = COORDINATES[optimizer]
    run = train(
        program,
        logits,
        next_tokens(net),
        width=n,
        steps=3,
        size=6,
        rng=0,
        optimizer=optimizer,
        learning_rate=rate,
        loss="softmax",
        reduction="mean",
        verbose=False,
        **(dict(momentum=momentum) if momentum else {}) | how,
    )
    stream = [h for h in program.nodes if isinstance(h, Normalize)][-1].args[0]
    change = run.values(stream) - run.values(stream, "start")
    return np.sqrt((change**2).mean())


def growth(optimizer, **how):
    "By what the change is multiplied from width 64 to 256 or 512."
    wide = moved_per_coordinate(WIDER[optimizer] * BASE, optimizer, **how)
    return wide / moved_per_coordinate(BASE, optimizer, **how)


MUP_HOW = dict(parametrization="mup", base_width=BASE)


@pytest.mark.parametrize("optimizer", nightly(COORDINATES, "muon"))
@pytest.mark.long
def test_coordinate_check(optimizer):
    """Under µP hidden units move by as much at every width; with one rate for all
    weights they move by more, the wider they are (a missing power of 1/2 would be a
    factor of 2 or 2.8, standard errors are 2 or 5 %).
    """
    assert 0.8 < growth(optimizer, **MUP_HOW) < 1.25
    assert growth(optimizer, parametrization="standard") > 1.4


@pytest.mark.long
def test_a_broken_table_fails_the_coordinate_check(monkeypatch):
    "Hidden matrices with the rate of vectors, under Adam."
    monkeypatch.setitem(MUP, "hidden", MUP["hidden"]._replace(adam=0.0))
    monkeypatch.setitem(MUP, "into a head", MUP["into a head"]._replace(adam=0.0))
    monkeypatch.setitem(MUP, "out of a head", MUP["out of a head"]._replace(adam=0.0))
    assert growth("adam", **MUP_HOW) > 1.4


def mixed_program():
    "A matrix and a readout that widen, a bias."
    p = Program()
    X = p.inputs(np.eye(2))
    W = p.matrix("W", 2.0)
    b = p.parameter(name="b")
    R = p.readout("R", 3.0)
    return p, R @ relu(W @ X + b)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "muon"])
def test_mup_is_the_standard_parametrization_with_the_factors_of_its_table(optimizer):
    p, f = mixed_program()
    rng = np.random.default_rng(0)
    init = dict(W=rng.standard_normal((32, 32)), R=rng.standard_normal((1, 32)))
    how = dict(optimizer=optimizer, learning_rate=0.01, init=init, rng=0, width=32)
    common = how | dict(steps=4, size=1, verbose=False)
    given = train(p, f, [1.0, -1.0], parametrization="mup", base_width=8, **common)
    power = dict(
        sgd=dict(W=0, b=1, R=-1), adam=dict(W=-1, b=0, R=-1), muon=dict(b=0, R=-0.5)
    )[optimizer]
    factors = {name: 4.0**x for name, x in power.items()}
    by_hand = train(
        p, f, [1.0, -1.0], parametrization="standard", rate_factors=factors, **common
    )
    for name in "WbR":
        np.testing.assert_allclose(
            given.weights(name), by_hand.weights(name), rtol=1e-12, atol=1e-14
        )
    assert given.loss[0, -1] != given.loss[0, 0]


def test_readouts_start_smaller_under_mup():
    "By 4^−1/2 in size, and all else as without."
    p, f = mixed_program()
    how = dict(width=64, steps=0, size=400, rng=0, learning_rate=0.1, verbose=False)
    runs = [
        train(p, f, [1.0, -1.0], **how),
        train(p, f, [1.0, -1.0], parametrization="mup", base_width=16, **how),
    ]
    sizes = [run.weights("R", "start").std() for run in runs]
    np.testing.assert_allclose(sizes[0] / sizes[1], 2.0, rtol=1e-9)
    sizes = [run.weights("W", "start").std() for run in runs]
    np.testing.assert_allclose(sizes[0], sizes[1], rtol=1e-9)


def test_steps_of_muon_by_kind():
    "In spectral norm as √(fan-out/fan-in), a head's share being H^−1/2 of it."
    for kind, shape, wanted in (
        ("hidden", (512, 512), 1.0),
        ("hidden", (2048, 512), 2.0),
        ("into a head", (16, 512), 8**-0.5),
        ("out of a head", (512, 16), 2 * 8**-0.5),
        ("input", (512, 12), np.sqrt(512 / 12)),
        ("output", (1, 512), 8**-0.5),
    ):
        step = muon_step(shape, kind, 8.0) * 8.0 ** MUP[kind].muon
        np.testing.assert_allclose(step, wanted, rtol=1e-12)


PUBLISHED = {
    "hidden": (-1, 0, -1),
    "into a head": (-1, 0, -1),
    "out of a head": (-1, 0, -1),
    "input": (0, 1, 0),
    "vector": (0, 1, 0),
    "untied head": (0, 1, 0),
    "output": (-2, -1, -1),
    "router": (-1, -1, -1),  # z = ⟨w, x⟩ of order one: the rate of an output
    "router over √n": (0, 0, -0.5),  # w/√n in its place
    "number": (0, 0, 0),
    "adapter A": (-1, -1, -1),  # as an output, whose start is torch's
    "adapter B": (0, 1, 0),  # those of an input
}
GROWING = {"hidden", "into a head", "out of a head", "output", "untied head", "router"}
GROWING |= {"adapter A"}


def test_mup_is_the_published_table():
    """Powers of the width in Yang et al. (2022): initial variance, rate of SGD, rate of
    Adam. Table 3, and for an untied head table 8. "Number" is no row there, and a
    router has a larger start than an output.
    """
    found = {
        kind: (2 * powers.start - (kind in GROWING), powers.sgd, powers.adam)
        for kind, powers in MUP.items()
    }
    assert found == PUBLISHED


λ, η, μ = 0.3, 0.1, 0.9
DECAYED = {  # after two steps without a gradient, in units of the start
    "sgd": 1 - η * λ - η * (λ * (1 - η * λ) + μ * λ),
    "muon": (1 - η * λ) ** 2,
    "adamw": (1 - η * λ) ** 2,
    "lion": (1 - η * λ) ** 2,
    "adam": 1 - 2 * η,  # the decay is its gradient, and each step has the length η
}


@pytest.mark.parametrize("optimizer", DECAYED)
def test_decay_of_each_optimizer(optimizer):
    kind = OPTIMIZERS[optimizer]
    rule = kind(momentum=μ) if optimizer in ("sgd", "muon") else kind()
    state = State(float(not rule.entrywise), np.ones((1, 2, 2)))
    for _ in range(2):
        state = rule.step(state, np.zeros((1, 2, 2)), 1.0, η, λ)
    rtol = 0.01 if optimizer == "adam" else 1e-12
    np.testing.assert_allclose(state.moved, DECAYED[optimizer], rtol=rtol)
    if not rule.entrywise:
        assert state.start_factor == pytest.approx(DECAYED[optimizer])


def test_the_joint_norm_of_gradients_is_clipped():
    """Entries are size times the slopes. Directions stay, and shorter ones stay as they
    are; in each network of its own.
    """
    rng = np.random.default_rng(0)
    sizes = dict(W=0.5, b=2.0)
    slopes = dict(W=rng.standard_normal((2, 3, 4)), b=rng.standard_normal((2, 3, 1)))
    slopes = {k: x * np.array([1.0, 1e-3])[:, None, None] for k, x in slopes.items()}
    found = clipped(slopes, sizes, 0.7)
    entries = [
        [size * x[k][i].ravel() for k, size in sizes.items()]
        for x in (slopes, found)
        for i in (0, 1)
    ]
    before, short, after, kept = (np.concatenate(x) for x in entries)
    assert np.linalg.norm(after) == pytest.approx(0.7, rel=1e-5)
    np.testing.assert_allclose(after / 0.7, before / np.linalg.norm(before), rtol=1e-5)
    np.testing.assert_array_equal(kept, short)


def test_every_optimizer_of_the_package_has_a_row():
    ours = {k for k, v in OPTIMIZERS.items() if v.__module__.startswith("infattn_nb")}
    assert ours == DECAYED.keys()


def test_lion_by_hand():
    "Signs of a mean of gradient and momentum; the momentum has its own β."
    rng = np.random.default_rng(0)
    rule = Lion(betas=(0.7, 0.9))
    state = State(0.0, np.ones((1, 2, 3)))
    w, m = np.ones((1, 2, 3)), 0.0
    for g in rng.standard_normal((4, 1, 2, 3)):
        state = rule.step(state, g / 0.5, 0.5, 0.1, 0.2)  # W = 0.5 w
        w = 0.98 * w - 0.05 * np.sign(0.7 * m + 0.3 * g)
        m = 0.9 * m + 0.1 * g
        np.testing.assert_allclose(state.moved, w, rtol=1e-12)


def quadratic(**how):
    p = Program()
    f = p.readout("R") @ tanh(p.matrix("W") @ p.inputs(np.eye(3)) + p.parameter())
    return train(
        p, f, [1.0, 0, -1], width=8, steps=3, size=2, rng=0, verbose=False, **how
    )


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        (SGD(momentum=0.9, nesterov=True), dict(momentum=0.9, nesterov=True)),
        (
            Adam(betas=(0.8, 0.9), weight_decay=0.1),
            dict(betas=(0.8, 0.9), weight_decay=0.1),
        ),
        (
            AdamW(eps=1e-3, weight_decay={"R": 0.2}),
            dict(eps=1e-3, weight_decay={"R": 0.2}),
        ),
        (Muon(momentum=0.5), dict(momentum=0.5)),
        (Lion(), {}),
    ],
)
def test_an_object_is_its_name_with_options(rule, named):
    a, b = quadratic(optimizer=rule), quadratic(optimizer=rule.name, **named)
    np.testing.assert_array_equal(a.outputs, b.outputs)
    assert a.learning_rate == b.learning_rate
    assert eval(repr(rule)) == rule
    assert (a.outputs != quadratic(optimizer=rule.name).outputs).any() or not named


def test_options_of_another_optimizer_are_refused():
    for how, said in (
        (
            dict(optimizer="adam", momentum=0.9),
            "`momentum` must be an option of `train`",
        ),
        (dict(optimizer=SGD(), momentum=0.9), "pass optimizer=SGD"),
        (dict(betas=(0.9, 0.9)), "SGD has weight_decay, momentum, nesterov"),
    ):
        with pytest.raises(TypeError, match=said):
            quadratic(**how)


def test_an_optimizer_from_outside():
    "Signs of the gradient, by name and under µP, without a place elsewhere."

    class Signs(Optimizer):
        column = "adam"
        usual_rate = 0.01
        entrywise = True

        def step(self, state, slope, size, η, decay):
            return State(0.0, state.moved - η * size * np.sign(slope))

    try:
        run = quadratic(optimizer="signs", parametrization="mup", base_width=4)
        moved = abs(run.weights("W") - run.weights("W", "start"))
        np.testing.assert_allclose(moved.max(), 3 * 0.01 / 2, rtol=1e-9)
        assert repr(Signs()) == "Signs()" and run.learning_rate == 0.01
        with pytest.raises(
            TypeError, match="`Half` must state every .* no column, step"
        ):
            type("Half", (Optimizer,), {"usual_rate": None})
    finally:
        del OPTIMIZERS["signs"]
