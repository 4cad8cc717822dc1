"""Networks that torch has drawn and trained, 2,000 of each kind and width, against
ours: losses and a weight of attention at the start, on the way and in the end.

Kolmogorov and Smirnov's test with Bonferroni's correction: a false alarm in less than
one of a million runs, for any seed.
"""

from pathlib import Path

import numpy as np
import pytest
from conftest import nightly
from scipy.stats import ks_2samp
from trained_models import AT, KINDS, STEPS, TOKENS, WIDTHS, config, rule

from infattn_nb import from_config, train
from infattn_nb.huggingface import next_tokens

STORED = np.load(Path(__file__).parents[1] / "data/trained_models.npz")
CASES = [(kind, n) for kind in KINDS for n in WIDTHS]
NUMBERS = 2 * len(AT)
ALARM = 1e-6 / (len(CASES) * NUMBERS)


def ours(kind, n, size, rng, change=None, **how):
    "Losses and a weight of attention at some steps, (networks, numbers)."
    net = from_config(config(kind, n) | (change or {}), [TOKENS])
    program, logits = net.program(readout="lm")
    optimizer, rate, momentum = rule(kind)
    run = train(
        program,
        logits,
        next_tokens(net),
        width=n,
        steps=STEPS,
        size=size,
        rng=rng,
        watch=program.attention(0, 0),
        loss="softmax",
        reduction="mean",
        parametrization="standard",
        verbose=False,
        **(dict(momentum=momentum) if momentum else {})
        | dict(optimizer=optimizer, learning_rate=rate)
        | how,
    )
    at = list(AT)
    weight = run.attention(0)[:, at, 0, -1, -1]
    return np.concatenate([run.loss[:, at], weight], axis=1)


def chances(kind, n, mine):
    "The chance of each number, if both laws are one."
    theirs = STORED[f"{kind},{n}"]
    assert theirs.shape == (2000, NUMBERS)
    return np.array([ks_2samp(x, y).pvalue for x, y in zip(mine.T, theirs.T)])


@pytest.mark.parametrize(("kind", "n"), CASES)
@pytest.mark.parametrize("size", nightly([200, 2000], 2000))
@pytest.mark.long
def test_trained_networks_have_the_law_of_those_of_torch(kind, n, size):
    assert chances(kind, n, ours(kind, n, size, 0)).min() > ALARM


@pytest.mark.long
def test_broken_variants_are_rejected():
    "Larger weights at the start, and half of the rate."
    wrong = ours("gpt2", 16, 200, 0, dict(initializer_range=1.5 * 16**-0.5))
    assert chances("gpt2", 16, wrong).min() < ALARM
    wrong = ours("llama", 48, 200, 0, learning_rate=0.005)
    found = chances("llama", 48, wrong)
    assert found.min() < ALARM
    assert found[0] > ALARM  # the start is the same


@pytest.mark.parametrize("optimizer", nightly(["sgd", "muon"], "muon"))
@pytest.mark.parametrize("kind", nightly(KINDS, *KINDS[1:]))
@pytest.mark.long
@pytest.mark.power("half of the rate")
def test_unknown_matrices_have_the_law_of_explicit_ones(kind, optimizer):
    "Where both exist; their draws are independent."
    how = dict(optimizer=optimizer, learning_rate=0.03, momentum=0.9)
    each = [
        ours(kind, 16, 400, rng, dense=dense, **how)
        for rng, dense in ((1, True), (2, False))
    ]
    found = [ks_2samp(x, y).pvalue for x, y in zip(each[0].T, each[1].T)]
    assert min(found) > ALARM
    slow = ours(kind, 16, 400, 3, dense=False, **how | dict(learning_rate=0.015))
    assert min(ks_2samp(x, y).pvalue for x, y in zip(each[0].T, slow.T)) < ALARM
