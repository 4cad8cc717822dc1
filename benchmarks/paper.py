"""The whole paper: processor seconds of `infattn_figures`, this version against others.

    python benchmarks/paper.py [name=python ...]

runs the command of this environment and those of other environments (interpreters that
have some version of the package) at the same time, one thread each, so that a busy
machine disturbs all alike: first the first figure, then all nine with the paper's
counts. Writes nbs/data/benchmarks_paper.json, from which the page on benchmarks is made.
Processor seconds are those of the whole process, imports and drawing included.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

FILE = Path(__file__).parent.parent/"nbs/data/benchmarks_paper.json"
CASES = {"the first figure alone": ("--only", "fig1a"), "all nine figures": ()}

def side_by_side(pythons, *options):
    "Processor seconds of the command in each environment, all at the same time."
    with tempfile.TemporaryDirectory() as folder:
        runs = {}
        for name, python in pythons.items():
            command = [Path(python).with_name("infattn_figures"), "--quiet", *options,
                       "--workers", "1", "--out", Path(folder)/name]
            runs[name] = subprocess.Popen(command)
        return {name: processor_seconds(run) for name, run in runs.items()}

def processor_seconds(run):
    _, status, use = os.wait4(run.pid, 0)
    if status:
        sys.exit(f"{run.args[0]} failed")
    return round(use.ru_utime + use.ru_stime, 1)

def main(*others):
    pythons = dict(other.split("=", 1) for other in others) | {"here": sys.executable}
    rows = []
    for case, options in CASES.items():
        rows.append({"figures": case} | side_by_side(pythons, *options))
        print(rows[-1], flush=True)
    FILE.write_text(json.dumps(rows, indent=1) + "\n")

if __name__ == "__main__": main(*sys.argv[1:])
