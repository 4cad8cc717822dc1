"""Bars of progress, and workers that are killed."""

import io
import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from unittest.mock import patch

import pytest

from infattn_nb.numerics import draw, parallel
from infattn_nb.numerics.workers import progress_bar


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
