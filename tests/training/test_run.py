"The run that all training shares, where every number is known."

import numpy as np
import pytest
from numpy.random import SeedSequence, default_rng

from infattn_nb import AttentionDescent, CircuitDescent, Program, train
from infattn_nb.learning import make_recall
from infattn_nb.nonlinearities import relu
from infattn_nb.training.losses import Squared, batch_at, own_batches
from infattn_nb.training.run import Batches, Diverged, Learner, NetworkBlock, Problem
from infattn_nb.training.run import Record, at_a_rate, largest_eigenvalues, look_at, run
from infattn_nb.training.run import stable_rate

rng = default_rng(0)
X = rng.standard_normal((9, 3))
Y = rng.standard_normal((9, 2))
W = rng.standard_normal((5, 3, 2))


class Values:
    def __init__(self, values):
        self.values = values


class Regression(Learner):
    "f = X W, one W for each network."

    def __init__(self, rate, noise=0.0):
        self.rate = rate
        self.noise = noise

    def take(self, rows):
        return X[rows]

    def forward(self, W, data):
        return Values(data @ W)

    def backward(self, W, data, reply, χ):
        return [data.T @ χ]

    def step(self, W, slopes, t, rng):
        moved = W - self.rate * slopes[0]
        return moved + self.noise * rng.standard_normal(W.shape) if rng else moved

    def reset(self, W, lost):
        return np.where(lost[:, None, None], 0.0, W)


class Looks(Record):
    every = 4
    looks = True


def problem(rate=0.02, learner=Regression, **batches):
    return Problem(learner(rate), Y, Squared(), Batches(9, **batches), rate)


def by_hand(rate, steps, rows):
    "Each network by itself: weights, and losses before each step and at the end."
    now, losses = W.copy(), []
    for t in range(steps):
        each = [rows(t, n) for n in range(len(W))]
        slopes = [X[k].T @ (X[k] @ w - Y[k]) * 9 / len(k) for k, w in zip(each, now)]
        losses.append(
            [
                0.5 * ((X[k] @ w - Y[k]) ** 2).sum() * 9 / len(k)
                for k, w in zip(each, now)
            ]
        )
        now = now - rate * np.array(slopes)
    return now, np.array(losses)


SEED = SeedSequence(3)
ROWS = {
    "all": ({}, lambda t, n: np.arange(9)),
    "shared": (dict(size=4, seed=SEED), lambda t, n: batch_at(9, 4, t, SEED)),
    "own": (
        dict(size=4, kind="own", seed=SEED),
        lambda t, n: own_batches(9, 4, t, SEED, [n])[0],
    ),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("record", [Record, Looks])
def test_a_run_is_gradient_descent(name, parts, record):
    "Of every network alone, in any blocks and rounds; another seed of batches is seen."
    batches, rows = ROWS[name]
    some = np.array_split(np.arange(5), parts)
    blocks = [NetworkBlock.of(W[k], k[0], len(k)) for k in some]
    task = problem(**batches)
    kept = record()
    start = look_at(task, blocks, kept) if record.looks else blocks
    found = run(task, start, 10, kept)
    end, losses = by_hand(0.02, 10, rows)
    moved = np.concatenate([b.networks for b in found.blocks])
    np.testing.assert_allclose(moved, end, rtol=1e-12)
    seen = np.array(found.record.steps)
    assert len(seen) == 10 + record.looks
    exact = [t for t in (4, 8, 10) if record.looks]
    between = [t for t in range(10) if t not in (0, 4, 8) or not record.looks]
    np.testing.assert_allclose(seen[between], losses[between], rtol=1e-12)
    for t in exact:  # a look is at all rows
        now, _ = by_hand(0.02, t, rows)
        whole = 0.5 * ((X @ now - Y) ** 2).sum((1, 2))
        np.testing.assert_allclose(seen[t], whole, rtol=1e-12)
    if name != "all":
        other = problem(**batches | dict(seed=SeedSequence(4)))
        off = run(other, blocks, 10).blocks[0].networks - end[: len(some[0])]
        assert np.abs(off).max() > 1e-3


def test_the_share_of_a_mean():
    "A mean over rows is a ninth of their sum, for a mini-batch too."
    few = Batches(9, 3, seed=SEED, share=1 / 9).at(0, range(5))
    assert few.scale == pytest.approx(1 / 3)
    f = rng.standard_normal((5, 9, 2))
    (a, da), (b, db) = (
        problem(share=s).loss_and_slope(f, Batches(9, share=s).all())
        for s in (1.0, 1 / 9)
    )
    np.testing.assert_allclose(a, 9 * b)
    np.testing.assert_allclose(da, 9 * db)


@pytest.mark.parametrize("how", ["loss", "gradient"])
def test_a_network_that_diverges_leaves_the_others_as_they_are(how):
    class Broken(Regression):
        def backward(self, W, data, reply, χ):
            slopes = data.T @ χ
            if how == "gradient":
                slopes[3, 0, 0] = np.inf
            return [slopes]

    start = W.copy()
    if how == "loss":
        start[3] = 1e200
    whole = run(problem(), [NetworkBlock.of(W, 0, 5)], 20)
    broken = run(problem(learner=Broken), [NetworkBlock.of(start, 0, 5)], 20)
    assert broken.diverged.tolist() == [False, False, False, True, False]
    others = [0, 1, 2, 4]
    np.testing.assert_array_equal(
        broken.blocks[0].networks[others], whole.blocks[0].networks[others]
    )
    losses = np.array(broken.record.steps)
    np.testing.assert_array_equal(
        losses[:, others], np.array(whole.record.steps)[:, others]
    )
    assert np.isnan(losses[:, 3]).all()
    assert np.isfinite(broken.blocks[0].networks).all()


def test_noise_of_a_block_is_its_own_stream():
    noisy = Problem(Regression(0.02, 0.1), Y, Squared(), Batches(9), 0.02)

    def end(seed):
        blocks = [NetworkBlock.of(W, 0, 5, default_rng(seed))]
        return run(noisy, blocks, 5).blocks[0].networks

    np.testing.assert_array_equal(end(0), end(0))
    assert np.abs(end(0) - end(1)).max() > 0.01


@pytest.mark.parametrize("looks", [False, True])
def test_a_run_that_ends_early_has_the_networks_of_its_last_record(looks):
    kind = Looks if looks else Record

    class Ends(kind):
        def ends(self):
            return len(self.steps) > 6

    record = Ends()
    blocks = [NetworkBlock.of(W, 0, 5)]
    if looks:
        look_at(problem(), blocks, record)
    found = run(problem(), blocks, 100, record)
    done = len(record.steps) - looks
    assert done == (8 if looks else 6)
    end, _ = by_hand(0.02, done, ROWS["all"][1])
    np.testing.assert_allclose(found.blocks[0].networks, end, rtol=1e-12)


def test_an_interrupted_round_counts_for_nothing():
    class Interrupted(Regression):
        def step(self, W, slopes, t, rng):
            if t == 6:
                raise KeyboardInterrupt
            return super().step(W, slopes, t, rng)

    for record, steps in ((Record(), 6), (Looks(), 4)):
        blocks = [NetworkBlock.of(W, 0, 5)]
        if record.looks:
            look_at(problem(), blocks, record)
        found = run(problem(learner=Interrupted), blocks, 100, record)
        assert found.interrupted
        assert len(record.steps) == steps + record.looks
        end, _ = by_hand(0.02, steps, ROWS["all"][1])
        np.testing.assert_allclose(found.blocks[0].networks, end, rtol=1e-12)


def test_a_rate_that_was_found_is_halved_and_one_that_was_given_is_not():
    def attempt(rate):
        tried.append(rate)
        return run(problem(rate), [NetworkBlock.of(W, 0, 5)], 60)

    limit = 2 / np.linalg.eigvalsh(X.T @ X)[-1]
    tried = []
    rate, result = at_a_rate(attempt, 16 * limit, given=False)
    assert tried == [16 * limit / 2**k for k in range(len(tried))]
    assert rate == tried[-1] < 2 * limit
    assert not result.diverged.any()
    tried = []
    with pytest.raises(Diverged, match="`learning_rate` must keep.*5 of 5 diverge by"):
        at_a_rate(attempt, 16 * limit, given=True)
    assert len(tried) == 1
    tried = []
    never = at_a_rate(attempt, 0.01, given=False, holds=lambda run: False)
    assert len(tried) == 20 and never[0] == tried[-1]


def test_a_stable_rate_by_the_power_method():
    λ = np.linalg.eigvalsh(X.T @ X)[-1]
    found = largest_eigenvalues(lambda χ: X @ (X.T @ χ), (4, 9, 2))
    assert (0.95 * λ < found).all() and (found <= λ * (1 + 1e-12)).all()

    class Steep(Squared):
        curvature = 4.0

    assert stable_rate(Steep(), λ) == pytest.approx(1 / (4 * λ))
    assert stable_rate(Squared(), λ, 0.5, 0.1) == pytest.approx(0.1 / (λ + 1))
    assert stable_rate(Squared(), 0.0) == 1.0


@pytest.mark.filterwarnings("ignore:.*networks diverged")
def test_programs_too_begin_anew_at_half_of_a_rate_that_was_found():
    "A loss that understates its curvature: this was an error."

    class Understated(Squared):
        curvature = 1e-3

    p = Program()
    x = p.inputs(np.eye(3))
    hidden, readout = p.matrix(), p.readout()
    f = [readout @ relu(hidden @ v) for v in x]
    how = dict(width=32, steps=30, size=4, rng=0, verbose=False)
    found = train(p, f, np.ones(3), loss=Understated(), **how)
    assert found.diverged.mean() <= 0.5
    assert found.loss.shape == (4, 31)
    given = train(
        p, f, np.ones(3), loss=Understated(), learning_rate=found.learning_rate, **how
    )
    np.testing.assert_array_equal(given.outputs, found.outputs)  # from the same start
    with pytest.raises(Diverged):
        train(
            p,
            f,
            np.ones(3),
            loss=Understated(),
            learning_rate=2 * found.learning_rate,
            **how,
        )


@pytest.mark.filterwarnings("ignore:.*networks diverged")
@pytest.mark.parametrize("kind", [AttentionDescent, CircuitDescent])
def test_a_gradient_that_is_not_finite_marks_a_layer_as_it_marks_a_program(kind):
    "It made the weights NaN in silence until the next loss."
    A, y, _ = make_recall(8, 0)

    class Jumps(Squared):
        def gradient(self, f, y):
            slope = f - y
            if len(f) == 4:  # not where the loss is tried
                slope[1] = np.inf
            return slope

    model = kind(loss=Jumps(), n_networks=4, max_iter=10, learning_rate=1e-3)
    model.fit(A, y)
    assert model.diverged_.tolist() == [False, True, False, False]
    assert np.isnan(model.loss_[1, 1:]).all()  # after the look at the start
    assert np.isfinite(model.loss_[[0, 2, 3]]).all()
