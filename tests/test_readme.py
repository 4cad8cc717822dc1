"""README.md is nbs/index.ipynb. Run this file as a script to write it."""
import configparser
import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
_parser = configparser.ConfigParser(delimiters=["="])
_parser.read(ROOT/"settings.ini", encoding="utf-8")
CFG = _parser["DEFAULT"]
BLOB = CFG["git_url"] + f"/blob/{CFG['branch']}/" # what lies beside the README needs no host

def readme():
    "The notebook as GitHub markdown: hidden cells dropped, the one figure as an image, links relative to the root."
    cells = json.loads((ROOT/"nbs/index.ipynb").read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(filter(None, map(_markdown, cells))) + "\n"

def _markdown(cell):
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown": return re.sub(r"\]\((\w+\.ipynb)", r"](nbs/\1", source).replace(f"]({BLOB}", "](")
    if "#| hide" in source: return ""
    if "images/limit.png" in source:
        caption, alt = (re.search(rf'#\| {key}: "(.*)"', source)[1] for key in ("fig-cap", "fig-alt"))
        return f"![{alt}](nbs/images/limit.png)\n\n*{caption}*"
    text = "".join("".join(o["text"]) for o in cell["outputs"])
    return f"```python\n{source}\n```\n\n```\n{text.rstrip()}\n```"

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
    ci = (ROOT/".ci/run").read_text()
    assert "grep -m1 'pytest' README.md" in ci and 'eval "$command"' in ci

def test_no_display_maths_or_cross_references():
    assert "$$" not in readme() and not re.search(r"(?<!\w)@(eq|fig|sec)-", readme())

if __name__ == "__main__": (ROOT/"README.md").write_text(readme(), encoding="utf-8")
