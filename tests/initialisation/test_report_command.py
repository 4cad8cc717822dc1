"""The command of reports: its files, its sentences, its interruption."""

import json
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from config_cases import LLAMA
from report_cases import TINY, WORDS

from infattn_nb.initialisation import html as html_module
from infattn_nb.initialisation.report_command import infattn_report, report_of

pytestmark = pytest.mark.xdist_group("report")  # its fixtures are made once


HERE = Path(__file__).parents[1]


COMMAND = Path(sys.executable).with_name("infattn_report")


BAD_PLACES = [
    ("report.doc", "end in .html or .pdf or .png"),
    ("report", "end in"),
    ("nowhere/report.html", "No such file"),
    ("/dev/null/r.html", "Not a directory"),
    ("r\0.html", "null"),
    ("folder.html", "a folder has that name"),
]


@pytest.mark.parametrize("path, fragment", BAD_PLACES)
def test_places_that_cannot_be_written(path, fragment, report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(ValueError, match="`path` must") as e:
        report.save(path)
    assert fragment in str(e.value)
    assert "\n" not in str(e.value)
    assert [p.name for p in tmp_path.iterdir()] == ["folder.html"]


REJECTED = [
    (dict(config="nowhere.json"), "`config` must be a file that can be read"),
    (dict(config="text.json"), "`config` must be JSON"),
    (dict(config="t5.json"), "have one stack of blocks, got model_type 't5'"),
    (dict(config="half.json"), "`config['n_head']` must divide the width 64, got 12"),
    (dict(out="report.txt"), "`out` must end in"),
    (dict(out="nowhere/report.html"), "`out` must be in a folder"),
    (dict(tokens=0), "`tokens`"),
    (dict(tokens=3, text="a b"), "`tokens` must be omitted"),
    (dict(text=" "), "`text` must hold words"),
    (dict(width=0), "`width`"),
    (dict(width=25), "multiple of heads"),
    (dict(size=3), "`size`"),
    (dict(seed=-1), "`seed` must be at least 0"),
]


@pytest.mark.parametrize("options, fragment", REJECTED)
def test_the_command_rejects_in_one_sentence(options, fragment, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in dict(
        text="to be",
        t5='{"model_type": "t5"}',
        half='{"model_type": "gpt2", "n_embd": 64, "n_layer": 2}',
    ).items():
        (tmp_path / f"{name}.json").write_text(text)
    before = set(tmp_path.iterdir())
    with pytest.raises(SystemExit) as e:
        infattn_report.__wrapped__(**dict(config="gpt2", quiet=True) | options)
    assert str(e.value).startswith("infattn_report: ")
    assert fragment in str(e.value)
    assert "\n" not in str(e.value)
    assert len(str(e.value)) < 320
    assert set(tmp_path.iterdir()) == before


def run_here(monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", [str(COMMAND), *options])
    with pytest.raises(SystemExit) as e:
        runpy.run_path(str(COMMAND), run_name="__main__")
    return e.value.code


@pytest.mark.slow
def test_the_command_writes_the_same_bytes_without_torch(tmp_path, monkeypatch, capfd):
    """One sheet in a process of its own, then in this one; and the words of a page,
    without its pictures.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(TINY)
    options = ["config.json", "--text", " ".join(WORDS), "--size", "4", "--seed", "3"]
    code = (
        f"import runpy, sys; "
        f"sys.argv = {['infattn_report', *options, '--quiet', '--out', 'a.png']!r}\n"
        f"try: runpy.run_path({str(COMMAND)!r}, run_name='__main__')\n"
        "finally: assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert capfd.readouterr().out == ""
    assert not run_here(monkeypatch, *options, "--out", "b.png")
    assert capfd.readouterr().out.splitlines()[-1] == "b.png"
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    monkeypatch.setattr(html_module, "picture_of", lambda panel: "<img>")
    assert not run_here(monkeypatch, *options, "--out", "c.html")
    page = (tmp_path / "c.html").read_text()
    assert (
        "infattn_report config.json --text &#x27;to be or not to be&#x27; --size 4 "
        "--seed 3" in page
    )
    assert "gpt2 (config.json), before training" in page
    assert "n_embd" in page


def test_the_command_says_what_it_wrote(tmp_path, monkeypatch):
    "The call in a report makes that report."
    (tmp_path / "config.json").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    first = report_of("config.json", tokens=5, size=4)
    assert first.call == "infattn_report config.json --tokens 5 --size 4 --seed 0"
    assert first.labels == ("t1", "t2", "t3", "t4", "t5")
    assert json.loads(first.source)["n_embd"] == 64
    np.testing.assert_array_equal(
        first.measured.finite.cosine,
        report_of("config.json", tokens=5, size=4, seed=0).measured.finite.cosine,
    )


def test_images_have_a_class_token_more():
    found = report_of(
        str(HERE / "data" / "configs" / "vit-base-patch16-224.json"),
        tokens=3,
        size=4,
        width=96,
    )
    assert found.labels == ("1", "2", "3", "4")
    assert found.title.endswith("(vit-base-patch16-224.json)")


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [signal.SIGINT, signal.SIGKILL], ids=["control-c", "killed"]
)
def test_interrupted_it_leaves_nothing(how, tmp_path):
    code = (
        "import signal, sys; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from infattn_nb.initialisation import infattn_report as f; "
        "from infattn_nb.initialisation import diagnosis as r; d = r.diagnose\n"
        "def seen(*a): open('begun', 'w').close(); return d(*a)\nr.diagnose = seen; "
        "f.__wrapped__('gpt2', size=64, quiet=True)"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(6000):
        if (tmp_path / "begun").exists():
            break
        time.sleep(0.01)
    run.send_signal(how)
    out, error = run.communicate(timeout=60)
    assert run.returncode
    assert [p.name for p in tmp_path.iterdir()] == ["begun"]
    assert not out
    if how == signal.SIGINT:
        assert error == "infattn_report: interrupted; nothing was written\n"


@pytest.mark.slow
def test_the_command_says_threads_when_it_runs_not_when_it_is_imported():
    """Importing it sets nothing and loads no NumPy, which reads the number of threads
    once; running it does both, in this order.
    """
    code = """import os, sys
os.environ.pop("OMP_NUM_THREADS", None)
from infattn_nb.initialisation.report_command import infattn_report
assert "OMP_NUM_THREADS" not in os.environ and "numpy" not in sys.modules
try: infattn_report.__wrapped__("nowhere.json")
except SystemExit: assert os.environ["OMP_NUM_THREADS"] == "1"
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


SMALL = dict(model_type="gpt2", n_embd=64, n_layer=3, n_head=4)


@pytest.mark.slow
def test_against_another(tmp_path, capsys):
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    a.write_text(json.dumps(SMALL)), b.write_text(json.dumps(LLAMA))
    infattn_report.__wrapped__(
        str(a), str(b), out=str(tmp_path / "r.html"), tokens="4", size="4"
    )
    page, said = (
        (tmp_path / "r.html").read_text(encoding="utf-8"),
        capsys.readouterr().out,
    )
    assert "Comparison with llama (b.json)" in page
    assert "against\nReport of llama" in said
    assert page.count("<ul") == 3
    both = report_of(str(a), against=str(b), tokens=4, size=4)
    assert list(both.comparison.columns) == ["gpt2 (a.json)", "llama (b.json)"]
    assert list(both.comparison.loc["width"]) == [64, 64]
    alone = report_of(str(b), tokens=4, size=4)
    np.testing.assert_array_equal(
        both.against.measured.finite.tangent, alone.measured.finite.tangent
    )
    assert "--against" in both.call


def test_numbers_that_are_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        SystemExit, match=r"`--tokens` must be a whole number, got 'abc'"
    ):
        infattn_report.__wrapped__("gpt2", tokens="abc", quiet=True)


@pytest.mark.parametrize("name", ["tokens", "width", "size", "seed"])
def test_typed_numbers_end_alike(name, tmp_path, monkeypatch):
    "An x for a seed ended with 2, for tokens with 1."
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=rf"`--{name}` must be a whole number, got"):
        infattn_report.__wrapped__("gpt2", quiet=True, **{name: "x"})
    assert not list(tmp_path.iterdir())
