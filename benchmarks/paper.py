"""The whole paper: processor seconds of `infattn_figures`, this checkout against others.

    python benchmarks/paper.py [name=python ...]

runs the command of this environment and of each other environment (an interpreter
that has some version of the package), figure by figure in turn, so that a busy machine
disturbs all alike, then once more all nine figures at a time; and writes
nbs/data/benchmarks_paper.json, from which the page on benchmarks is made.
Processor seconds are those of the whole process, imports and drawing included.
"""
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

FILE = Path(__file__).parent.parent/"nbs/data/benchmarks_paper.json"
PAIRS = ("fig1a,fig1b", "fig2a", "fig2b", "fig3a,fig3b", "relu_a,relu_b", "heads")

def processor_seconds():
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime

def figures(python, *options):
    "Processor seconds of one call, and seconds until its first figure was written."
    command = [Path(python).with_name("infattn_figures"), "--quiet", *options]
    with tempfile.TemporaryDirectory() as out:
        before, start, first = processor_seconds(), time.perf_counter(), None
        run = subprocess.Popen([*command, "--out", out])
        while run.poll() is None:
            if first is None and any(Path(out).glob("*.pdf")):
                first = time.perf_counter() - start
            time.sleep(.05)
        if run.returncode:
            sys.exit(f"{python} failed")
    return processor_seconds() - before, first

def main(*others):
    pythons = {"here": sys.executable} | dict(o.split("=", 1) for o in others)
    rows = []
    for only in (*PAIRS, None):
        options = ["--only", only] if only else []
        row = {"figures": only or "all nine"}
        for name, python in pythons.items():
            row[name], first = figures(python, *options)
            if only is None:
                row[f"first figure, {name}"] = first
        rows.append({k: v if isinstance(v, str) else round(v, 2) for k, v in row.items()})
        print(rows[-1], flush=True)
    content = dict(processors=os.cpu_count(), rows=rows)
    FILE.write_text(json.dumps(content, indent=1) + "\n")

if __name__ == "__main__": main(*sys.argv[1:])
