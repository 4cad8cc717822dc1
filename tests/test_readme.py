"""README.md is nbs/index.ipynb, and its two commands are those of CI."""
import re

from written import CFG, ROOT, readme


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([\w/.]+?)(?:#[\w-]+)?\)", readme()): assert (ROOT/target).exists(), target

def test_readme_is_the_index_page():
    assert (ROOT/"README.md").read_text(encoding="utf-8") == readme()

def test_one_version():
    "The settings, the citation and the newest entry of the changelog agree."
    changes, cite = ((ROOT/name).read_text(encoding="utf-8") for name in ("CHANGELOG.md", "CITATION.cff"))
    assert re.search(r"^## (\S+)", changes, flags=re.M)[1] == CFG["version"] == re.search(r"^version: (\S+)", cite, flags=re.M)[1]

def test_two_commands():
    commands = re.findall(r"^python3 -m venv.*$", readme(), flags=re.M)
    assert len(commands) == 2 and commands[0].endswith("infattn_figures") and commands[1].endswith("nbdev_test && pytest")
    assert re.findall(r"^\. \.venv/bin/activate && (infattn_report .*)$", readme(), flags=re.M) == ['infattn_report gpt2 --text "the cat sat on the mat"']
    ci = (ROOT/".ci/run").read_text()
    assert "grep -m1 'pytest' README.md" in ci and 'eval "$command"' in ci

def test_no_display_maths_or_cross_references():
    assert "$$" not in readme() and not re.search(r"(?<!\w)@(eq|fig|sec)-", readme())
