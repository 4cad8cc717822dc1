"""The site serves its own source while no host does: the repository as a zip, without
the pictures stored in its notebooks, and the wheel that is built from that zip.

    python tools/pack_source.py FOLDER

Quarto runs it after rendering (`_quarto.yml`) and names the folder of the site in
QUARTO_PROJECT_OUTPUT_DIR.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from written import CFG, ROOT

NAME = f"{CFG['lib_name']}-{CFG['version']}"
PACKAGE = """
nbs infattn_nb tests tools benchmarks .ci .github settings.ini setup.py pyproject.toml
_quarto.yml README.md CONTRIBUTING.md CHANGELOG.md CITATION.cff LICENSE MANIFEST.in
.gitignore .editorconfig .pre-commit-config.yaml
""".split()
LEFT_OUT = {
    "__pycache__",
    ".ipynb_checkpoints",
    "nbdev.yml",
    "sidebar.yml",
    ".last_checked",
}
LARGE = (
    "tests/data/gradients.npz",
    "tests/data/programs_law.npz",
    "tests/data/families/*.npz",
)  # tests are skipped without them


def files():
    "What belongs to the repository: relative paths, in order."
    for part in PACKAGE:
        path = ROOT / part
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            name = file.relative_to(ROOT)
            if (
                file.is_file()
                and not LEFT_OUT & {*name.parts}
                and not any(map(name.match, LARGE))
            ):
                yield name


def without_pictures(notebook):
    "The text of a notebook, its tables as plain text; who runs it draws them again."
    return re.sub(
        r'"image/png": "[^"]*",\s*|"text/html": \[.*?\n\s*\],\s*',
        "",
        notebook,
        flags=re.DOTALL,
    )


def pack(folder):
    "Write the zip and, built from it, the wheel."
    folder.mkdir(parents=True, exist_ok=True)
    with ZipFile(folder / f"{NAME}.zip", "w", ZIP_DEFLATED, compresslevel=9) as archive:
        for file in files():
            if file.suffix == ".ipynb":
                archive.writestr(
                    str(Path(NAME) / file),
                    without_pictures((ROOT / file).read_text(encoding="utf-8")),
                )
            else:
                archive.write(ROOT / file, Path(NAME) / file)
    with tempfile.TemporaryDirectory() as here:
        ZipFile(folder / f"{NAME}.zip").extractall(here)
        command = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            folder.resolve(),
            Path(here) / NAME,
        ]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    if not CFG.getboolean("published"):
        site = (
            sys.argv[1]
            if len(sys.argv) > 1
            else os.environ["QUARTO_PROJECT_OUTPUT_DIR"]
        )
        pack(Path(site) / "download")
