"""Downloaded notebooks run with the wheel and Jupyter alone, from an empty folder."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from every import on_every_page
from offer import INSTALL, LEARNING, WHEEL, data_of, offer, offered
from run_pages import PAGES
from run_pages import name as name_of
from written import NBS, read


def stored(name):
    return read(NBS / f"{name}.ipynb")


def code(nb):
    cells = [cell for cell in nb["cells"] if cell["cell_type"] == "code"]
    return ["".join(cell["source"]) for cell in cells]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("site")
    offer(found)
    return found


@on_every_page
def test_nothing_of_the_developers_is_left(page):
    nb = offered(stored(page))
    first, *others = code(nb)
    assert first.startswith(INSTALL)
    needs = "sklearn", "AttentionRegressor", "AttentionDescent", "CircuitDescent"
    assert (LEARNING in first) == any(name in "\n".join(others) for name in needs)
    assert not any(
        "nbdev" in line
        for source in others
        for line in source.splitlines()
        if line.lstrip().startswith(("import ", "from "))
    )
    assert '"image/png"' not in json.dumps(nb)
    # tables are named with their folder, so that they are found and packed
    assert not any(re.search(r'Path\("(\.\./)*data/?"', source) for source in others)


def test_tables_travel_with_the_notebook(folder):
    with ZipFile(folder / "paper/figures.zip") as archive:
        names = set(archive.namelist())
    assert {"figures.ipynb", "data/fig1a.csv", "data/heads.csv"} <= names
    for name in map(name_of, PAGES):
        with ZipFile(folder / f"{name}.zip") as archive:
            assert len(archive.namelist()) == 1 + len(data_of(NBS / f"{name}.ipynb"))


def test_a_notebook_without_the_wheel_says_where_to_put_it(tmp_path):
    script = INSTALL.replace("%pip install", "# ").replace(
        'find_spec("infattn_nb")', 'find_spec("no_such_package")'
    )
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, text=True, capture_output=True
    )
    assert f"put {WHEEL}" in run.stderr


RUN = """
import sys
import nbclient, nbformat
nb = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(nb, timeout=1200, kernel_name="python3").execute()
pictures = [o for c in nb.cells for o in c.get("outputs", [])
            if "image/png" in o.get("data", {})]
print(len(pictures), "pictures")
"""


def pictures(nb):
    return sum(
        "image/png" in o.get("data", {})
        for c in nb["cells"]
        for o in c.get("outputs", [])
    )


@pytest.fixture(scope="module")
def jupyter(wheel, tmp_path_factory):
    "A fresh environment with Jupyter's kernel and the wheel; its Python."
    home = tmp_path_factory.mktemp("jupyter")
    make = [sys.executable, "-m", "venv", "--without-pip", home]
    subprocess.run(make, check=True)
    python = home / "bin/python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "-q"]
    install += ["--disable-pip-version-check", "--no-compile"]
    needs = ["ipykernel", "nbclient", "scikit-learn", wheel]
    subprocess.run([*install, *needs], check=True)
    return python


def run(name, folder, python, here):
    "Execute an offered notebook in an empty folder."
    ZipFile(folder / f"{name}.zip").extractall(here)
    clean = {k: x for k, x in os.environ.items() if not k.startswith(("PYTHON", "MPL"))}
    done = subprocess.run(
        [python, "-W", "ignore", "-c", RUN, f"{Path(name).name}.ipynb"],
        cwd=here,
        env=clean,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout.split()[-2])


@pytest.mark.slow
@pytest.mark.xdist_group("package")
@pytest.mark.parametrize("name", [*map(name_of, PAGES)])
def test_it_runs_where_there_is_only_the_wheel(name, folder, jupyter, tmp_path):
    assert run(name, folder, jupyter, tmp_path) == pictures(stored(name))


@pytest.mark.slow
@pytest.mark.xdist_group("package")
@pytest.mark.parametrize(
    "command", ["infattn_figures", "infattn_report", "infattn_train"]
)
def test_the_commands_start_where_there_is_only_the_wheel(command, jupyter):
    "With the newest versions that the wheel admits."
    done = subprocess.run(
        [jupyter.with_name(command), "--help"], text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr[-1000:]
    assert "usage" in done.stdout, done.stderr[-1000:]
