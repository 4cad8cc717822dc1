"""A run that is killed, stopped, damaged or doubled ends with the files of an undisturbed one."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import infattn_nb
from infattn_nb.paper import command as running
from infattn_nb.paper import read_table, reproduce, sweep
from infattn_nb.paper import tables as store
from infattn_nb.paper.tables import UNFINISHED, digest, write

pytestmark = pytest.mark.xdist_group("interruption") # its fixtures are made once

COMMAND = [Path(sys.executable).with_name("infattn_figures"), "--only", "fig1b,fig2a", "--trials", "2", "--samples", "2000", "--quiet", "--out"]

def start(out):
    return subprocess.Popen([*COMMAND, out], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

def run_here(out): reproduce(out, "fig1b,fig2a", trials=2, samples=2000) # the same without another process, whose imports take longer

def finish(run):
    out, error = run.communicate(timeout=300)
    assert run.returncode == 0 and not out and not error, error

def contents(out): return {p.name: p.read_bytes() for p in out.iterdir() if p.name != "timings.json"}

def wait_for(condition):
    for _ in range(10_000):
        if condition(): return
        time.sleep(.01)
    raise TimeoutError

@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    run_here(out)
    assert len(contents(out)) == 8
    return contents(out)

def blocks(out): return len(list(out.glob(f"{UNFINISHED}/*/*.json")))

@pytest.fixture(scope="module")
def tables():
    "Of an undisturbed run that draws nothing."
    return {f"{name}.csv": store.as_csv(sweep(name, trials=2, samples=2000)) for name in ("fig1b", "fig2a")}

def go_on_after_a_kill(moment, out, monkeypatch):
    "Finished blocks are used, not made again; returns those that were missing."
    run = start(out)
    wait_for(lambda: moment(out))
    run.kill()
    run.communicate()
    before, written = set(out.glob(f"{UNFINISHED}/*/*.json")), set()
    assert len(before) > 2
    def noted(path, *rest):
        written.add(path)
        return write(path, *rest)
    monkeypatch.setattr(store, "write", noted)
    run_here(out)
    assert not written & before
    return written

def test_killed_and_started_again(tables, tmp_path, monkeypatch, undrawn):
    assert go_on_after_a_kill(lambda out: blocks(out) > 2, tmp_path, monkeypatch)
    assert contents(tmp_path) == tables

@pytest.mark.slow
@pytest.mark.parametrize("moment", [lambda out: blocks(out) > 2, lambda out: (out/"fig1b.csv").exists(), lambda out: blocks(out) > 5], ids=["computing", "writing", "second figure"])
def test_killed_and_drawn_again(moment, undisturbed, tmp_path, monkeypatch):
    go_on_after_a_kill(moment, tmp_path, monkeypatch)
    assert contents(tmp_path) == undisturbed

@pytest.mark.slow
def test_stopped_by_control_c(tables, tmp_path, undrawn):
    run = start(tmp_path)
    wait_for(lambda: blocks(tmp_path) > 2)
    run.send_signal(signal.SIGINT)
    out, error = run.communicate(timeout=60)
    assert run.returncode != 0 and error.count("\n") == 1 and "goes on from the finished blocks" in error
    assert [p.name for p in tmp_path.iterdir()] == [UNFINISHED]
    run_here(tmp_path)
    assert contents(tmp_path) == tables

@pytest.mark.slow
def test_two_runs_into_one_folder(undisturbed, tmp_path):
    run = start(tmp_path)
    wait_for(lambda: blocks(tmp_path))
    run_here(tmp_path)
    finish(run)
    assert contents(tmp_path) == undisturbed

SMALL = dict(trials=4, samples=100)

def damage(files):
    "Each file in another way; the names of what was done."
    whole = [f.read_bytes() for f in files]
    files[0].write_bytes(whole[0][:-1]), files[1].write_bytes(whole[1][:70]), files[2].write_bytes(b"")
    files[3].write_bytes(whole[3].replace(b"1", b"2", 80)), files[4].write_bytes(os.urandom(1000)), files[5].write_bytes(whole[6])
    for file, content in ((files[6], b"5"), (files[7], b"[]"), (files[8], b"not json")): file.write_bytes(digest(content).encode() + b"\n" + content)
    return ["is damaged"]*5 + ["belongs to another run"] + ["cannot be read"]*3

def test_damaged_and_foreign_blocks_are_named_and_computed_again(tmp_path):
    fresh = sweep("fig2a", blocks=tmp_path, **SMALL)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 16 and all(json.loads(f.read_text(encoding="utf-8").split("\n")[1]) for f in files) # text, nothing that runs
    problems = damage(files)
    with pytest.warns() as messages: again = sweep("fig2a", blocks=tmp_path, **SMALL)
    assert [str(m.message) for m in messages] == [f"{f} {problem}; this block is computed again" for f, problem in zip(files, problems)]
    np.testing.assert_equal(again, fresh)
    np.testing.assert_equal(sweep("fig2a", blocks=tmp_path, **SMALL), fresh) # and mended

@pytest.mark.parametrize("change", [dict(seed=1), dict(samples=101)])
def test_blocks_of_other_parameters_are_not_used(change, tmp_path):
    sweep("fig2a", blocks=tmp_path, **SMALL)
    with pytest.warns(match="belongs to another run"): other = sweep("fig2a", blocks=tmp_path, **SMALL | change)
    np.testing.assert_equal(other, sweep("fig2a", **SMALL | change))

def test_more_trials_go_on_from_fewer(tmp_path):
    "The stream of a trial does not depend on how many there are."
    sweep("fig2a", blocks=tmp_path, **SMALL)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    other = sweep("fig2a", blocks=tmp_path, **SMALL | dict(trials=5))
    np.testing.assert_equal(other, sweep("fig2a", **SMALL | dict(trials=5)))
    assert len(list(tmp_path.iterdir())) == 5/4*len(before) and all(p.stat().st_mtime_ns == t for p, t in before.items())

@pytest.mark.parametrize("package", ["numerics", "distributions", "attention", "paper"])
def test_a_change_in_any_subpackage_makes_blocks_stale(package, tmp_path, monkeypatch):
    copy = shutil.copytree(Path(infattn_nb.__file__).parent, tmp_path/"infattn_nb")
    fresh_versions = store.code_versions.__wrapped__
    monkeypatch.setattr(store, "PACKAGE", copy)
    monkeypatch.setattr(store, "code_versions", fresh_versions)
    keep = lambda cell: cell["n"] == 16
    sweep("fig2a", trials=1, samples=32, blocks=tmp_path/"blocks", keep=keep)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sweep("fig2a", trials=1, samples=32, blocks=tmp_path/"blocks", keep=keep)
    module = max((copy/package).glob("*.py"), key=lambda p: p.stat().st_size)
    module.write_text(module.read_text(encoding="utf-8") + "# a change\n", encoding="utf-8")
    with pytest.warns(match="belongs to another run"): sweep("fig2a", trials=1, samples=32, blocks=tmp_path/"blocks", keep=keep)

def test_blocks_of_another_version_are_not_used(tmp_path, monkeypatch):
    sweep("fig2a", blocks=tmp_path, **SMALL)
    monkeypatch.setattr(store, "code_versions", lambda: dict(numpy="1.0"))
    with pytest.warns(match="belongs to another run"): sweep("fig2a", blocks=tmp_path, **SMALL)

def test_a_sweep_in_memory_equals_one_from_blocks(tmp_path):
    first, stored = (sweep("fig1b", blocks=tmp_path, **SMALL) for _ in range(2))
    plain = sweep("fig1b", **SMALL)
    for c in plain: assert plain[c].tobytes() == first[c].tobytes() == stored[c].tobytes() and plain[c].dtype == stored[c].dtype

def test_other_unfinished_runs_are_left_alone(tmp_path, undrawn):
    other = tmp_path/UNFINISHED/"fig1a-of-another-run"/"0001.json"
    other.parent.mkdir(parents=True)
    other.write_text("theirs")
    reproduce(tmp_path, only="fig2a", **SMALL)
    assert other.read_text() == "theirs" and [p.name for p in (tmp_path/UNFINISHED).iterdir()] == [other.parent.name]

def test_a_file_is_complete_or_as_it_was(tmp_path, monkeypatch):
    path = tmp_path/"figure.csv" # alone in its folder, also after failures
    write(path, b"old")
    monkeypatch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match=r"figure.csv cannot be written \(No space"): write(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    tidied = []
    def replace(a, b):
        if not tidied: tidied.append(os.unlink(a)) # as another run that ends just now would do
        return original(a, b)
    original = os.replace
    monkeypatch.setattr(os, "replace", replace)
    write(path, b"new", tmp_path/"scratch")
    assert path.read_bytes() == b"new" and tidied

def test_whatever_stops_a_run_says_how_to_go_on(tmp_path, monkeypatch, undrawn):
    monkeypatch.setattr(running, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError) as e: reproduce(tmp_path, only="fig2a", **SMALL)
    assert "goes on from the finished blocks" in e.value.__notes__[0]

def test_what_is_in_the_way_is_named_at_once(tmp_path):
    (tmp_path/"a/fig2a.csv").mkdir(parents=True)
    (tmp_path/"b").mkdir()
    (tmp_path/"b"/UNFINISHED).write_text("")
    for folder, what in (("a", "fig2a.csv"), ("b", UNFINISHED), ("c\0", "null")):
        with pytest.raises(ValueError, match=f"`out` must .*{what}"): reproduce(tmp_path/folder, only="fig2a", **SMALL)

def _figure_2a(out, seed):
    "Without drawing, which is what takes time."
    with pytest.MonkeyPatch.context() as m:
        m.setattr(running, "files", lambda data, fig, parameters: [("csv", store.as_csv(data)), ("json", json.dumps(parameters).encode()), ("png", b"%d" % seed), ("pdf", b"%d" % seed)])
        for _ in range(6): reproduce(out, only="fig2a", trials=1, samples=32, seed=seed)

@pytest.mark.slow
def test_files_of_a_figure_belong_together(tmp_path):
    "Two runs with other seeds into one folder, again and again: the table is that of the seed in the parameters."
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(_figure_2a, tmp_path, 1).result() # from here on it has imported everything
        other = pool.submit(_figure_2a, tmp_path, 1)
        _figure_2a(tmp_path, 2)
        other.result()
    seed = json.loads((tmp_path/"fig2a.json").read_text())["seed"]
    np.testing.assert_equal(read_table(tmp_path/"fig2a.csv"), sweep("fig2a", trials=1, samples=32, seed=seed))
    assert (tmp_path/"fig2a.png").read_bytes() == (tmp_path/"fig2a.pdf").read_bytes() == b"%d" % seed
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fig2a.csv", "fig2a.json", "fig2a.pdf", "fig2a.png", "timings.json"]
