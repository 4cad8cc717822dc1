"""What gets installed: the package alone, light to import."""
import ast
import configparser
import inspect
import subprocess
import sys
import zipfile
from functools import lru_cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest
import written

import infattn_nb

pytestmark = pytest.mark.xdist_group("package") # its fixtures are made once

ROOT = Path(__file__).parent.parent
NAME = configparser.ConfigParser(delimiters=["="])
NAME.read(ROOT/"settings.ini", encoding="utf-8")
CFG = NAME["DEFAULT"]

@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", out, ROOT], check=True, capture_output=True)
    assert list(out.glob("*.tar.gz"))
    return next(out.glob("*.whl"))

def test_wheel_holds_the_package_alone(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {n.split("/")[0] for n in names} == {"infattn_nb", f"infattn_nb-{CFG['version']}.dist-info"}
    assert {"infattn_nb/py.typed", "infattn_nb/__init__.pyi", "infattn_nb/infattn.mplstyle", "infattn_nb/initialisation/report.html", "infattn_nb/attention/layer.py", "infattn_nb/paper/command.py"} <= set(names)

def test_wheel_works_in_a_foreign_folder(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path/"site")
    code = "import infattn_nb as a, numpy as np; assert a.__file__.startswith({!r}); print(a.Attention(a.Tokens(2, a.relu)).law(np.inf).rvs(3, rng=0).shape); a.figure_2a(trials=1, samples=50)[1].savefig('f.png')"
    run = subprocess.run([sys.executable, "-c", code.format(str(tmp_path/"site"))], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path/"site"), "PATH": ""}, capture_output=True, text=True)
    assert run.stdout.strip() == "(3, 2)", run.stderr

def test_light_import():
    code = "import sys; from infattn_nb import Attention; sys.exit(any(m.split('.')[0] in ('matplotlib', 'seaborn', 'pandas', 'IPython', 'nbdev') for m in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr

PACKAGE = ROOT/"infattn_nb"
FILES = {".".join(p.relative_to(PACKAGE).with_suffix("").parts): p for p in sorted(PACKAGE.glob("*/[a-z]*.py"))}

@lru_cache
def tree(path): return ast.parse(path.read_text(encoding="utf-8"))

def imported(room, path):
    "The rooms that a room imports, at any indentation, by its syntax tree."
    wing = room.partition(".")[0]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.level: # .room or ..wing.room
            start = [wing] if node.level == 1 else []
            module = ".".join([*start, *filter(None, [node.module])])
            yield from {module, *(f"{module}.{a.name}" for a in node.names)} & set(FILES)
        absolute = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        absolute += [a.name for a in node.names] if isinstance(node, ast.Import) else []
        yield from (name.removeprefix("infattn_nb.") for name in absolute if name.startswith("infattn_nb"))

def test_imports_go_one_way():
    "No wing imports one above it, no room itself by a detour, and the house has twelve floors at most, with a command on top."
    below = {room: set(imported(room, path)) for room, path in FILES.items()}
    wings = ["numerics", "laws", "layer", "programs", "theorem", "convergence", "blocks", "readers", "transformers", "initialisation", "learning", "paper"]
    height = {wing: k for k, wing in enumerate(wings)}
    for room, rooms in below.items():
        assert "infattn_nb" not in rooms, f"{room} comes through the front door"
        for other in rooms: assert height[other.partition(".")[0]] <= height[room.partition(".")[0]], f"{room} imports {other}"
    floors = list(floors_of(below)) # raises CycleError for a circle
    assert len(floors) <= 13

def floors_of(below):
    sorter = TopologicalSorter(below)
    sorter.prepare()
    while sorter.is_active():
        floor = sorter.get_ready()
        yield floor
        sorter.done(*floor)

@pytest.mark.parametrize("line", ["import infattn_nb", "import infattn_nb as house", "def f():\n    from infattn_nb.paper import sweep"])
def test_the_face_is_seen_from_inside(line, tmp_path):
    (tmp_path/"room.py").write_text(line)
    assert set(imported("layer.room", tmp_path/"room.py")) == {"infattn_nb"}

@pytest.mark.parametrize("line, seen", [("from ..paper.figures import sweep", True), ("def f():\n    from ..paper import figures", True),
    ("import infattn_nb.paper.figures", True), ("import infattn_nb.paper.figures as f", True), ("from .tokens import Tokens", False), ("import numpy", False)])
def test_late_imports_are_seen(line, seen, tmp_path):
    (tmp_path/"room.py").write_text(line)
    assert ("paper.figures" in set(imported("layer.room", tmp_path/"room.py"))) == seen

def test_no_private_name_crosses_a_wall():
    for path in FILES.values():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("infattn_nb")):
                assert not [a.name for a in node.names if a.name.startswith("_")], path.name

def test_version_stands_in_one_place():
    assert infattn_nb.__version__ == CFG["version"] and f"version: {CFG['version']}" in (ROOT/"CITATION.cff").read_text()

def test_every_public_name_comes_through_the_front_door():
    "Whole, as the object and not its room; rooms offer to everybody what the door offers of them."
    for name, room in infattn_nb.ROOM_OF.items():
        x = getattr(infattn_nb, name)
        assert x is getattr(import_module(f"infattn_nb.{room}"), name) and not inspect.ismodule(x)
    for room in FILES:
        assert import_module(f"infattn_nb.{room}").__all__ == infattn_nb.PUBLIC.get(room, "").split(), room
    assert len(infattn_nb.__all__) == len(set(infattn_nb.__all__)) and set(infattn_nb.__all__) <= set(dir(infattn_nb))

def test_the_front_door_is_up_to_date():
    "Editors read what the table of public names says, and so does the last cell of each page that makes a room."
    assert (ROOT/"infattn_nb/__init__.pyi").read_text(encoding="utf-8") == written.stub(), "run `python tools/written.py`"
    stale = [path.name for path in written.PAGES if written.with_public(written.read(path)) != written.read(path)]
    assert not stale, f"{stale}: run `python tools/written.py`"

@pytest.mark.parametrize("line, error", [("from infattn_nb import Atention", "ImportError"), ("import infattn_nb; infattn_nb.Atention", "AttributeError")])
def test_a_misspelt_name_fails_at_once(line, error):
    "Without importing a room, and with the nearest name."
    code = f"""import sys
try: exec({line!r})
except {error} as e: print(e)
sys.exit(any(m.startswith("infattn_nb.") for m in sys.modules))"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0 and "did you mean 'Attention'?" in run.stdout, run.stderr

def test_star_import_brings_all_names():
    space = {}
    exec("from infattn_nb import *", space)
    assert set(infattn_nb.__all__) <= set(space)
    assert not hasattr(infattn_nb, "nothing") and infattn_nb.attention.layer.Attention is infattn_nb.Attention
