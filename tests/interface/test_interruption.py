"""Runs that are killed, stopped or doubled end with the files of an undisturbed one."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import pytest
from paper_cases import SMALL, computed

from infattn_nb.numerics import parallel
from infattn_nb.numerics.files import write
from infattn_nb.paper import command as running
from infattn_nb.paper import reproduce, sweep, tables

UNDRAWN = """from infattn_nb.paper import command
from infattn_nb.paper.tables import as_csv
command.files = lambda data, fig: [("csv", as_csv(data)), ("png", b""), ("pdf", b"")]
command.infattn_figures()"""
OPTIONS = [
    "--only",
    "fig1b,fig2a",
    "--trials",
    "2",
    "--samples",
    "2000",
    "--quiet",
    "--out",
]


def start(out):
    script = out.with_suffix(".py")  # beside the folder
    script.write_text(UNDRAWN)
    return subprocess.Popen(
        [sys.executable, script, *OPTIONS, out],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_here(out):
    reproduce(
        out, "fig1b,fig2a", trials=2, samples=2000
    )  # the same without another process, whose imports take longer


def contents(out):
    return {p.name: p.read_bytes() for p in out.iterdir() if p.name != "timings.json"}


def csv(out):
    return {
        name: content
        for name, content in contents(out).items()
        if name.endswith(".csv")
    }


def first_figure(out):
    "Wait until it is there: the cheapest one."
    for _ in range(10_000):
        if (out / "timings.json").exists():
            return contents(out)
        time.sleep(0.01)
    raise TimeoutError


@pytest.fixture(scope="module")
def undisturbed():
    "The tables of a run that draws nothing."
    return {
        f"{name}.csv": tables.as_csv(sweep(name, trials=2, samples=2000))
        for name in ("fig1b", "fig2a")
    }


def goes_on(out, undisturbed, before):
    "What was there is kept, what was missing is made."
    assert set(before) == {f"fig2a.{kind}" for kind in tables.FIGURE_FILES}
    when = {name: (out / name).stat().st_mtime_ns for name in before}
    run_here(out)
    assert csv(out) == undisturbed
    assert len(contents(out)) == 8  # and nothing else is left
    assert all((out / name).stat().st_mtime_ns == t for name, t in when.items())


@pytest.mark.slow
def test_killed_and_started_again(undisturbed, tmp_path, undrawn):
    run = start(tmp_path)
    before = first_figure(tmp_path)
    run.kill()
    run.communicate()
    goes_on(tmp_path, undisturbed, before)


@pytest.mark.slow
def test_stopped_by_control_c(undisturbed, tmp_path, undrawn):
    run = start(tmp_path)
    before = first_figure(tmp_path)
    run.send_signal(signal.SIGINT)
    out, error = run.communicate(timeout=60)
    assert run.returncode == 130
    assert not out
    assert error.count("\n") == 1
    assert "the same call continues" in error
    goes_on(tmp_path, undisturbed, before)


@pytest.mark.slow
def test_another_executor_and_the_death_of_its_worker(
    undisturbed, tmp_path, monkeypatch, undrawn
):
    "One figure from processes; then one of them is killed."

    def kill_a_worker(path, content):
        write(path, content)
        if path.name == "timings.json":
            os.kill(next(iter(pool._processes)), signal.SIGKILL)

    with (
        monkeypatch.context() as m,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        parallel(pool),
    ):
        m.setattr(running, "write", kill_a_worker)
        with pytest.raises(BrokenProcessPool):
            run_here(tmp_path)
    goes_on(tmp_path, undisturbed, contents(tmp_path))


@pytest.mark.slow
def test_two_runs_into_one_folder(tmp_path):
    runs = [
        start(tmp_path / "both"),
        start(tmp_path / "both"),
        start(tmp_path / "alone"),
    ]
    for run in runs:
        assert run.communicate(timeout=300) == ("", "")
        assert run.returncode == 0
    assert contents(tmp_path / "both") == contents(tmp_path / "alone")


@pytest.mark.parametrize("written", [1, 2, 3])
@pytest.mark.long
def test_a_figure_that_is_half_replaced_is_not_kept(
    written, tmp_path, monkeypatch, undrawn
):
    "With the files of one seed there, the run of another is stopped between its files."
    computed(tmp_path, monkeypatch)
    first = csv(tmp_path)

    def write_some(path, content):
        done.append(path)
        if len(done) > written:
            raise KeyboardInterrupt
        write(path, content)

    done = []
    with monkeypatch.context() as m:
        m.setattr(running, "write", write_some)
        with pytest.raises(KeyboardInterrupt):
            reproduce(tmp_path, "fig2a", rng=1, **SMALL)
    assert computed(tmp_path, monkeypatch) == 8
    assert csv(tmp_path) == first
