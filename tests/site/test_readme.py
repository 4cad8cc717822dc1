"""README.md is nbs/index.ipynb, and its two commands are those of CI."""

import re
import subprocess

import pytest
from written import CFG, ROOT, readme


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([\w/.]+?)(?:#[\w-]+)?\)", readme()):
        assert (ROOT / target).exists(), target


def test_readme_is_the_index_page():
    assert (ROOT / "README.md").read_text(encoding="utf-8") == readme()


def test_one_version():
    "The settings, the citation and the newest entry of the changelog agree."
    changes, cite = (
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("CHANGELOG.md", "CITATION.cff")
    )
    assert (
        re.search(r"^## (\S+)", changes, flags=re.M)[1]
        == CFG["version"]
        == re.search(r"^version: (\S+)", cite, flags=re.M)[1]
    )


COMMANDS = re.compile(r"^```sh\n(.*?)^```", flags=re.M | re.S)


def test_two_commands():
    """One sets up and draws the figures, one sets up and tests (CI runs that one); each
    is one line to copy. Elsewhere a line is one command.
    """
    lines = [
        line for block in COMMANDS.findall(readme()) for line in block.splitlines()
    ]
    chained = [line for line in lines if line.startswith("python3 -m venv")]
    assert len(chained) == 2
    assert chained[0].endswith("infattn_figures")
    assert chained[1].endswith("nbdev_test && pytest")
    assert [line for line in lines if "&&" in line] == chained
    assert 'infattn_report gpt2 --text "the cat sat on the mat"' in lines
    assert lines[0] == "pip install ."
    ci = (ROOT / ".ci/run").read_text()
    found = re.search(r"^command=.*$", ci, flags=re.M)[0]
    said = subprocess.run(
        ["bash", "-c", f'{found}; printf %s "$command"'],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said == chained[1]
    assert 'eval "$command"' in ci


def test_no_dead_addresses():
    "Until it is published, nothing names an address where it is to be."
    assert CFG.getboolean("published") or CFG["git_url"] not in readme()


def test_no_display_maths_or_cross_references():
    assert "$$" not in readme()
    assert not re.search(r"(?<!\w)@(eq|fig|sec)-", readme())


STEPS = re.findall(
    r"^\d\. (.*(?:\n   .*)*)",
    (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
    flags=re.M,
)
EXAMPLES = {"mish", "_mish"}  # what a contributor writes


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step[:40])
def test_recipes_name_what_there_is(step):
    "Files that exist, and names that a step tells to change."
    codes = re.findall(r"`([^`]+)`", step)
    files = [x for x in codes if (ROOT / x).is_file()] or [
        str(x) for x in (ROOT / "infattn_nb").rglob("*.py")
    ]
    there = "\n".join((ROOT / file).read_text(encoding="utf-8") for file in files)
    assert not [
        x for x in codes if "/" in x and " " not in x and not list(ROOT.glob(x))
    ]
    assert not [
        x
        for x in codes
        if re.fullmatch("[A-Za-z_]+", x)
        and x not in EXAMPLES
        and not re.search(rf"\b{x}\b", there)
    ]
