"""Cases and helpers of several test files."""

from functools import partial

import numpy as np
from conftest import large
from program_cases import EVERY, Y, watched_program
from scipy.stats import kstwo

from infattn_nb import train

quiet = partial(train, verbose=False)


def trained(name, n, size, rng=1, steps=3, at_once=250, **how):
    """As tests/torch_programs.py: outputs and losses of three steps, scores, tangent
    kernels at both ends, the motion of a vector.

    One network in 20,000 or so diverges: then its run is left out.
    """
    p, fs, scores = watched_program(name)
    found = []
    for seed in np.random.SeedSequence(rng).spawn(
        -(-size // at_once)
    ):  # a run keeps its networks
        b = min(at_once, size)
        options = dict(learning_rate=0.1, width=n, steps=steps, size=b, watch=scores)
        try:
            run = quiet(p, fs, Y, rng=seed, dense=False, **options | how)
        except ValueError as e:
            assert "keep the losses of most networks bounded" in str(e)
            continue
        if run.diverged.any():
            continue
        numbers = (
            run.outputs,
            np.sort(run.loss, axis=1),
            run.watched,
            run.outputs[:, -1] * run.outputs[:, 0],
            run.tangent("start"),
            run.tangent("end"),
            run.change(fs[-1].args[0]),
        )
        found.append(np.concatenate([x.reshape(b, -1) for x in numbers], axis=1))
    assert len(found) * at_once > size / 2
    return np.concatenate(found)


def p_of_law(name, n, ours, total=20_000):
    """The smallest p-value of Kolmogorov and Smirnov over the columns, times their
    number.

    Of the explicit networks every fiftieth order statistic is stored: the largest
    distance there is at most .0025 less than that everywhere.
    """
    explicit = large("programs_law")[f"{name}, {n}"]
    moves = np.ptp(explicit, axis=0) > 1e-6
    rank = np.arange(EVERY // 2, total, EVERY)
    ours = np.sort(ours.round(9).astype(np.float32), axis=0)
    far = 0.0
    for x, q in zip(ours.T[moves], explicit.T[moves], strict=True):
        above, below = (
            np.searchsorted(x, q, side) / len(x) for side in ("right", "left")
        )
        far = max(far, (rank / total - above).max(), (below - (rank - 1) / total).max())
    return moves.sum() * kstwo.sf(far, round(len(ours) * total / (len(ours) + total)))
