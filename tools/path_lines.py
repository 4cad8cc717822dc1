"""The path through the pages: what came before, what comes next, how long it takes, where to run it.
Derived from the sidebar in _quarto.yml and from settings.ini. `python tools/path_lines.py` writes it into the notebooks."""
import configparser
import json
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
parser = configparser.ConfigParser(delimiters=["="])
parser.read(ROOT/"settings.ini", encoding="utf-8")
CFG = parser["DEFAULT"]
PUBLISHED = CFG.getboolean("published") # only then there is anything to link to
GITHUB = f"github/{CFG['user']}/{CFG['repo']}/blob/{CFG['branch']}/nbs"
BADGE = "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/{}/{})"
INSTALL = f"""#| hide
#| eval: false
! [ -e /content ] && git clone -q --depth 1 {CFG['git_url']} src && pip install -q ./src && cp -r src/nbs/data ."""
SHORT = ("index.ipynb", "00_essay.ipynb", "01_hierarchical.ipynb", "03_attention.ipynb", "06_experiments.ipynb") # the way without proofs
SKIP = {"13_clt.ipynb": "14_theorem.ipynb", "15_proof.ipynb": "16_rates.ipynb"} # where to go without the proofs

def reading_order(contents=yaml.safe_load((ROOT/"_quarto.yml").read_text(encoding="utf-8"))["website"]["sidebar"]["contents"]):
    return [p for item in contents for p in ([item] if isinstance(item, str) else reading_order(item.get("contents", [])))]

ORDER = reading_order()

def read(name): return json.loads((ROOT/"nbs"/name).read_text(encoding="utf-8"))
def text(cell): return "".join(cell["source"])
def title(name): return re.match(r"# (.+)", text(read(name)["cells"][0]))[1]

def minutes(cells):
    "Reading time in steps of five minutes: 150 words a minute, a third of a minute for a displayed formula or a piece of code."
    words = sum(len(text(c).split()) for c in cells if c["cell_type"] == "markdown")
    pauses = sum(text(c).count("$$")/2 if c["cell_type"] == "markdown" else "#| hide" not in text(c) for c in cells)
    return 5*max(1, round((words/150 + pauses/3)/5))

def steps(name, cells):
    "The line under the title."
    k = ORDER.index(name)
    if k: yield f"Before: [{title(ORDER[k-1])}]({ORDER[k-1]})"
    short = SHORT[SHORT.index(name) + 1] if name in SHORT[:-1] else None
    if k + 1 < len(ORDER): yield f"{'Next, also on the short way' if short == ORDER[k+1] else 'Next'}: [{title(ORDER[k+1])}]({ORDER[k+1]})"
    if short and short != ORDER[k+1]: yield f"Short way, next: [{title(short)}]({short})"
    if name == SHORT[-1]: yield "the short way ends here: go on with the [recipes](recipes.ipynb), or with the theory"
    yield f"this page: {minutes(cells)} minutes"
    if name in SKIP: yield f"[skip the proof]({SKIP[name]})"
    if "32_notation.ipynb" in ORDER and name not in ("index.ipynb", "32_notation.ipynb"): yield "[notation](32_notation.ipynb)"
    if PUBLISHED: yield BADGE.format(GITHUB, name)

def with_path(name):
    "The notebook with its opening: title and claim, path, introduction, a hidden cell that installs the package on Colab."
    nb = read(name)
    cells = [c for c in nb["cells"] if c["id"] not in ("path", "colab")]
    head, rest = re.fullmatch(r"(# [^\n]+\n\n> [^\n]+(?:\n\n- aliases: [^\n]+)?)\n*(.*)", text(cells[0]), flags=re.S).groups()
    if rest: cells[1:1] = [cell("intro", "markdown", rest)]
    cells[0]["source"] = head.splitlines(keepends=True)
    code = next((k for k, c in enumerate(cells) if c["cell_type"] == "code"), len(cells))
    path = cell("path", "markdown", " · ".join(steps(name, cells)))
    colab = [cell("colab", "code", INSTALL)]*PUBLISHED
    nb["cells"] = [cells[0], path, *cells[1:code], *colab, *cells[code:]]
    return nb

def cell(id, kind, source):
    new = dict(cell_type=kind, id=id, metadata={}, source=source.splitlines(keepends=True))
    return new | (dict(execution_count=None, outputs=[]) if kind == "code" else {})

if __name__ == "__main__":
    for name in ORDER:
        nb = with_path(name)
        (ROOT/"nbs"/name).write_text(json.dumps(nb, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
