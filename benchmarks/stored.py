"""Where the tables of benchmarks are kept, with what they were measured on."""

import json
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parent.parent
DATA = ROOT / "nbs/data"


def about():
    "Versions, processors, and the commit; a star: its code has been changed since."
    versions = dict(python=platform.python_version())
    for name in ("numpy", "scipy", "torch"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    commit = git("rev-parse", "--short", "HEAD").stdout.strip()
    code = ("infattn_nb", "benchmarks", "tests/reference_circuits.py")
    changed = git("diff", "--quiet", "HEAD", "--", *code).returncode
    commit += "*" * changed
    return versions | dict(processors=os.cpu_count(), commit=commit)


def git(*command):
    return subprocess.run(["git", *command], capture_output=True, text=True, cwd=ROOT)


def store(name, **content):
    "Write nbs/data/<name>.json: what it was measured on, and the content."
    text = json.dumps(dict(about=about(), **content), indent=1)
    (DATA / f"{name}.json").write_text(text + "\n", encoding="utf-8")
