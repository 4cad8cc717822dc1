"""Random streams, Sobol points, mirrors and bars of progress."""

import io
import os
import signal
import sys
import tracemalloc
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from numpy.random import default_rng
from scipy.stats import chi2, kstest, qmc

from infattn_nb import Attention, Tokens, draw, parallel
from infattn_nb.nonlinearities import identity
from infattn_nb.numerics.rng import (
    BLOCK,
    Mirror,
    Quasi,
    by_pieces,
    chisquare_pair,
    progress_bar,
    sobol_normals,
)


@pytest.mark.parametrize("dim", [1, 3, 64])
def test_sobol_normals(dim):
    """Those of scipy, which shrinks the numbers by 1e-10; a stand-in for a generator
    hands out the same ones, row by row.
    """
    z = sobol_normals(dim, 256, 5)
    np.testing.assert_allclose(
        z,
        qmc.MultivariateNormalQMC(np.zeros(dim), rng=default_rng(5)).random(256).T,
        atol=1e-7,
    )
    np.testing.assert_array_equal(Quasi(dim, 256, 5).standard_normal((dim, 256)), z)
    samples_first = Quasi(dim, 256, 5, axis=0)
    np.testing.assert_array_equal(samples_first.standard_normal((256, dim)), z.T)


@pytest.mark.power("means of a variance a quarter apart")
@pytest.mark.parametrize("s", [4, 16])
def test_a_mirror_serves_short_and_long_texts(s):
    "With sign +1 it has the law of a generator: means of covariances agree."
    law = Attention(Tokens(s, identity), 2).law(40)
    v = law.sample(4000, Mirror(default_rng(0), 1))[:, 0, 0]
    w = law.sample(4000, default_rng(1))[:, 0, 0]
    assert abs(v.mean() - w.mean()) < 6 * np.hypot(v.std(), w.std()) / 4000**0.5
    assert abs(1.25 * v.mean() - w.mean()) > 6 * np.hypot(v.std(), w.std()) / 4000**0.5


@pytest.mark.power("distribution functions .02 apart")
@pytest.mark.parametrize("df", [1, 2, 3, 16, 1000])
def test_a_chi_square_and_its_image(df):
    x = chisquare_pair(df, (3, 20_000), np.random.default_rng(df))
    assert x.shape == (3, 2, 20_000)
    for sample in (x[0, 0], x[0, 1], x[2, 1]):
        assert kstest(sample, chi2(df).cdf).pvalue > 1e-7
    assert abs(np.corrcoef(x[0, 0], x[1, 0])[0, 1]) < 0.05
    assert df == 1 or np.corrcoef(x[0])[0, 1] < -0.3


class Pair(NamedTuple):
    "What a sampler may return: fields with names, and one that is not there."

    square: np.ndarray
    inner: tuple
    absent: None = None


def _pairs(size, rng):
    x = rng.standard_normal((size, 2))
    return Pair(x * x, (x, x.sum(1)))


def peak_of(draw_all):
    "Bytes that are held at a time, at most, and the result."
    tracemalloc.start()
    result = draw_all()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most, result


def test_samples_are_not_held_twice(size=2**16):
    """Blocks are written where they belong: a quarter more than the result is held, not
    as much again.
    """

    def rows(number, rng):
        return rng.standard_normal((number, 64))

    def pairs(number, rng):
        return rows(number, rng), rng.integers(3, size=number)

    with parallel(1):
        most, y = peak_of(lambda: draw(rows, size, 0))
        assert y.shape == (size, 64)
        assert most < 1.25 * y.nbytes
        most, both = peak_of(lambda: draw(pairs, size, 0))
        assert most < 1.25 * sum(x.nbytes for x in both)
        rng = np.random.default_rng(0)
        most, y = peak_of(lambda: by_pieces(lambda b: rows(b, rng), size, 2**12))
        assert y.shape == (size, 64)
        assert most < 1.25 * y.nbytes
    blocks = np.random.SeedSequence(0).spawn(size // BLOCK)
    expected = [rows(BLOCK, np.random.default_rng(seed)) for seed in blocks]
    np.testing.assert_array_equal(draw(rows, size, 0), np.concatenate(expected))


def test_blocks_of_other_types_and_shapes():
    "A wider type is taken; another shape is one sentence."
    calls = []

    def uneven(number, rng):
        calls.append(number)
        return np.zeros(number, int if len(calls) < 2 else float)

    with parallel(1):
        assert draw(uneven, 2 * BLOCK, 0).dtype == float
        assert draw(lambda b, rng: np.zeros((b, 3)), 0).shape == (0, 3)
        with pytest.raises(ValueError, match="must return one shape for every sample"):
            draw(lambda b, rng: np.zeros((b, b)), BLOCK + 1)


def test_draw_keeps_the_names_of_a_samplers_tuples():
    "Joined over blocks and shaped field by field, also in tuples of tuples."
    drawn = draw(_pairs, (3, 2000), 0)
    assert isinstance(drawn, Pair)
    assert drawn.absent is None
    assert drawn.square.shape == (3, 2000, 2)
    assert drawn.inner[1].shape == (3, 2000)
    np.testing.assert_array_equal(drawn.square, drawn.inner[0] ** 2)
    with pytest.raises(ValueError, match="6 samples"):
        draw(lambda size, rng: Pair(np.zeros(6), (np.zeros(5),)), 6)
    with pytest.raises(ValueError):
        draw(lambda size, rng: None, 6)


def test_no_bar_without_stderr():
    with ThreadPoolExecutor(1) as pool, patch.object(sys, "stderr", None):
        with progress_bar(True, total=3) as bar:
            pool.submit(bar.update, 1).result(timeout=10)


def test_a_bar_in_a_notebook(monkeypatch):
    "A widget, or a line of text without `ipywidgets`; nothing in a file."
    Kernel = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})
    monkeypatch.setattr("tqdm.notebook.IProgress", None)
    for stream, seen in ((Kernel(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_bar(True, total=3) as bar:
            bar.update(3)
        assert ("3/3" in stream.getvalue()) == seen
    monkeypatch.setattr("tqdm.notebook.IProgress", "there")
    monkeypatch.setattr("tqdm.notebook.tqdm_notebook", dict)
    monkeypatch.setattr(sys, "stderr", Kernel())
    assert progress_bar(True, total=3) == dict(total=3)


def killed(number, rng):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL there")
@pytest.mark.long
def test_a_killed_worker_is_named():
    "The exception is the pool's own, with a sentence."
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        parallel(pool),
        pytest.raises(
            BrokenProcessPool, match="a worker of the pool ended.*make a new"
        ),
    ):
        draw(killed, 3, rng=0)
