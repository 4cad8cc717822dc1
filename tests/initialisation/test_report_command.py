"""The command of reports: its files, its sentences, its interruption."""

import json
from pathlib import Path

import numpy as np
import pytest
from config_cases import LLAMA
from report_cases import TINY

from infattn_nb.initialisation.report_command import infattn_report, report_of

pytestmark = pytest.mark.xdist_group("report")  # its fixtures are made once
HERE = Path(__file__).parents[1]
BAD_PLACES = [
    ("report.doc", "end in .html or .pdf or .png"),
    ("report", "end in"),
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
    (dict(config="t5.json", target="0"), "`target` must be at least 1, got 0"),
    (dict(target="to be"), "`target` must be omitted for a model with one text"),
    (dict(config="half.json"), "`config['n_head']` must divide the width 64, got 12"),
    (dict(out="report.txt"), "`out` must end in"),
    (dict(out="nowhere/report.html"), "`out` must be in a folder"),
    (dict(tokens=3, text="a b"), "`tokens` must be omitted"),
    (dict(text=" "), "`text` must hold words"),
    (dict(width=25), "multiple of heads"),
]


@pytest.mark.parametrize("options, fragment", REJECTED)
def test_the_command_rejects_in_one_sentence(options, fragment, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in dict(
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
