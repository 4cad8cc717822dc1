"""The notebooks that the site offers: they need the wheel and Jupyter, nothing else.

    python tools/offer.py FOLDER

What only developers need is left out, as are stored pictures and tables, which whoever
runs a notebook makes again. A first cell installs the package where it is missing. Each
notebook is a zip, with the stored tables that it reads. Quarto runs it after rendering
(`_quarto.yml`) and names the folder of the site in QUARTO_PROJECT_OUTPUT_DIR.
"""

import json
import os
import re
import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from pack_source import CFG, NAME
from run_pages import data_of
from written import NBS, PAGES, read, text

WHEEL = f"{NAME}-py3-none-any.whl"
INSTALL = f"""# Installs what is missing; the wheel is looked for beside this notebook
from importlib.util import find_spec
from pathlib import Path

if find_spec("infattn_nb") is None:
    wheels = sorted(Path().glob("infattn_nb-*.whl"))
    if not wheels:
        raise FileNotFoundError("put {WHEEL}, which the site offers as a "
                                "download, into the folder of this notebook")
    %pip install -q {{wheels[-1]}}"""
PUBLISHED = """# Installs what is missing
from importlib.util import find_spec

if find_spec("infattn_nb") is None:
    %pip install -q infattn_nb"""
LEARNING = """
if find_spec("sklearn") is None:
    %pip install -q "scikit-learn>=1.6\""""


def for_readers(cell):
    "A cell without what only developers need, or None if nothing is left of it."
    lines = re.sub(r'"(\.\./)+data/', '"data/', text(cell)).splitlines()
    if cell["cell_type"] != "code":
        return cell
    if any(line.startswith("#| default_exp") for line in lines):
        return None
    kept = [line for line in lines if not re.match(r"\s*(from|import) nbdev\b", line)]
    if not any(line.strip() and not line.startswith("#|") for line in kept):
        return None
    new = dict(cell, source="\n".join(kept).splitlines(keepends=True))
    new["outputs"] = [o for o in map(without_pictures, cell["outputs"]) if o]
    return new


def without_pictures(output):
    "An output as text alone; None for a picture."
    data = output.get("data")
    if data is None:
        return output
    kept = {
        kind: x for kind, x in data.items() if kind in ("text/plain", "text/markdown")
    }
    return None if "image/png" in data or not kept else dict(output, data=kept)


def offered(nb):
    "The notebook for readers."
    cells = [new for cell in nb["cells"] if (new := for_readers(cell))]
    code = "\n".join(text(cell) for cell in cells if cell["cell_type"] == "code")
    first = PUBLISHED if CFG.getboolean("published") else INSTALL
    if re.search(r"\b(sklearn|Attention(Regressor|Descent)|CircuitDescent)\b", code):
        first += LEARNING
    install = dict(
        cell_type="code",
        id="install",
        metadata={},
        execution_count=None,
        outputs=[],
        source=first.splitlines(keepends=True),
    )
    return dict(nb, cells=[cells[0], install, *cells[1:]])


def offer(folder):
    "Write a zip of each notebook and its tables."
    folder.mkdir(parents=True, exist_ok=True)
    for path in PAGES:
        target = folder / path.relative_to(NBS).with_suffix(".zip")
        target.parent.mkdir(exist_ok=True)
        with ZipFile(target, "w", ZIP_DEFLATED) as archive:
            nb = json.dumps(offered(read(path)), ensure_ascii=False)
            archive.writestr(path.name, nb)
            for file in data_of(path):
                archive.write(file, file.resolve().relative_to(NBS))


if __name__ == "__main__":
    site = sys.argv[1] if len(sys.argv) > 1 else os.environ["QUARTO_PROJECT_OUTPUT_DIR"]
    offer(Path(site) / "notebooks")
