"""What gets installed: the package alone, light to import."""
import configparser
import re
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

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
    assert {"infattn_nb/py.typed", "infattn_nb/infattn.mplstyle", "infattn_nb/all.py", "infattn_nb/attention.py"} <= set(names)

def test_wheel_works_in_a_foreign_folder(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path/"site")
    code = "import infattn_nb.all as a, numpy as np; assert a.__file__.startswith({!r}); print(a.Attention(a.Tokens(2, a.relu)).law(np.inf).rvs(3, rng=0).shape); a.figure_2a(trials=1, samples=50)[1].savefig('f.png')"
    run = subprocess.run([sys.executable, "-c", code.format(str(tmp_path/"site"))], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path/"site"), "PATH": ""}, capture_output=True, text=True)
    assert run.stdout.strip() == "(3, 2)", run.stderr

def test_light_import():
    code = "import sys, infattn_nb.attention; sys.exit(any(m.split('.')[0] in ('matplotlib', 'seaborn', 'pandas', 'IPython', 'nbdev') for m in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr

def test_imports_go_one_way():
    "A room imports those below it; late imports inside a function, of which there are two, may go up."
    from infattn_nb import ROOMS
    assert {f"{name}.py" for name in ROOMS} == {p.name for p in (ROOT/"infattn_nb").glob("[a-z]*.py")} - {"all.py"}
    for k, name in enumerate(ROOMS):
        lines = (ROOT/f"infattn_nb/{name}.py").read_text(encoding="utf-8").splitlines()
        imported = {m[1] for line in lines if (m := re.match(r"from \.(\w+) import", line))}
        assert not imported & set(ROOMS[k:]), name

def test_no_private_name_crosses_a_wall():
    for path in (ROOT/"infattn_nb").glob("[a-z]*.py"):
        for line in re.findall(r"^ *from \.\w* import (.*)", path.read_text(encoding="utf-8"), flags=re.M):
            assert not re.search(r"\b_[a-z]", line), f"{path.name}: {line}"

def test_rooms_are_small():
    for path in (ROOT/"infattn_nb").glob("[a-z]*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 350, path.name

def test_version_stands_in_one_place():
    import infattn_nb
    assert infattn_nb.__version__ == CFG["version"] and f"version: {CFG['version']}" in (ROOT/"CITATION.cff").read_text()

HOOD = """checks sampling factors quadrature tokens attention dense vectors paths stream
modules store live doubling rows particles likelihood""".split() # not all of what they offer is for everybody

def test_names_are_unique():
    "No module hides a name of another in `from infattn_nb.all import *`."
    from infattn_nb import ROOMS
    names = [name for room in ROOMS if room not in HOOD for name in import_module(f"infattn_nb.{room}").__all__]
    assert len(names) == len(set(names))
    public = import_module("infattn_nb.all")
    assert all(hasattr(public, name) for name in names)

def test_names_of_the_package_itself():
    "`from infattn_nb import Attention` works, is light, and old addresses of moved names still do."
    code = """import sys
from infattn_nb import Attention, Tokens, relu, draw
assert "matplotlib" not in sys.modules and "infattn_nb.limit" not in sys.modules
from infattn_nb.netsor import mlp, rnn, lstm, conv1d, attention
from infattn_nb.functions import times, compose, product, growth, break_pseudo_lipschitz, seed_sequence, check_real, check_cov, dual_quadrature
from infattn_nb.hierarchical import draw, fold, psd_factor, jacobi, gauss, mixture_of_heads, sample_shape, head_mean, BLOCK, AHEAD
from infattn_nb.attention import Tokens, ProgramTokens, wishart_factor, narrow, normal_nodes, BUFFER
from infattn_nb.limit import cross_moment, Paths, BATCHES
from infattn_nb.experiments import reproduce, infattn_figures, read_table, write_table, literal_seconds
import infattn_nb
try: infattn_nb.nothing
except AttributeError: pass"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
