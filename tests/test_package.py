"""What gets installed: the package alone, light to import."""
import configparser
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
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

def test_imports_go_one_way():
    order = ["functions", "hierarchical", "netsor", "limit", "finite", "clt", "attention", "theorem", "divergence", "regimes", "rates", "robustness", "experiments"]
    assert {f"{name}.py" for name in order} == {p.name for p in (ROOT/"infattn_nb").glob("[a-z]*.py")} - {"all.py"}
    for k, name in enumerate(order):
        source = (ROOT/f"infattn_nb/{name}.py").read_text(encoding="utf-8")
        assert not [later for later in order[k:] if f"infattn_nb.{later} import" in source or f"from .{later}" in source], name

def test_version_stands_in_one_place():
    import infattn_nb
    assert infattn_nb.__version__ == CFG["version"] and f"version: {CFG['version']}" in (ROOT/"CITATION.cff").read_text()

def test_names_are_unique():
    "No module hides a name of another in `from infattn_nb.all import *`."
    modules = [import_module(f"infattn_nb.{p.stem}") for p in (ROOT/"infattn_nb").glob("[a-z]*.py") if p.stem != "all"]
    names = [name for m in modules for name in m.__all__]
    assert len(names) == len(set(names))
    public = import_module("infattn_nb.all")
    assert all(hasattr(public, name) for name in names)
