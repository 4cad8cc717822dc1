import subprocess
import sys

import pytest
from written import ROOT


@pytest.fixture(scope="session")
def dist(tmp_path_factory):
    "A folder with what is published: the source, and the wheel built from it."
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT]
    subprocess.run(build, check=True, capture_output=True)
    return out


@pytest.fixture(scope="session")
def wheel(dist):
    return next(dist.glob("*.whl"))
