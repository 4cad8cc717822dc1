"""The whole paper: processor seconds of `infattn_figures`, this version against others.

    python benchmarks/paper.py [name=python ...]

runs the command of this environment and those of other environments (interpreters that
have some version of the package). First one after the other, with a thread for every
processor: seconds by the clock until the first figure is on disk. Then all nine figures
with the paper's counts, all at the same time, one thread each, so that a busy machine
disturbs all alike: processor seconds of the whole process, imports and drawing
included. Writes nbs/data/benchmarks_paper.json, from which the page on benchmarks is
made; there `before` is commit a2a96017.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stored import store

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"


def start(python, folder, *options):
    "All nine figures into a folder, by the command of an environment."
    command = Path(python).with_name("infattn_figures")
    return subprocess.Popen([command, "--quiet", "--out", folder, *options])


def until_the_first(python):
    "Seconds by the clock until the first figure is on disk."
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        run = start(python, folder)
        while run.poll() is None and not any(Path(folder).glob("*.png")):
            time.sleep(0.02)
        seconds = time.perf_counter() - begin
        run.terminate()
        run.wait()
    return round(seconds, 1)


def side_by_side(pythons):
    "Processor seconds of the command in each environment, all at the same time."
    with tempfile.TemporaryDirectory() as folder:
        runs = {
            name: start(python, Path(folder) / name, "--workers", "1")
            for name, python in pythons.items()
        }
        return {name: processor_seconds(run) for name, run in runs.items()}


def processor_seconds(run):
    _, status, use = os.wait4(run.pid, 0)
    if status:
        sys.exit(f"{run.args[0]} failed")
    return round(use.ru_utime + use.ru_stime, 1)


def main(others):
    pythons = dict(other.split("=", 1) for other in others) | {"here": sys.executable}
    first = {name: until_the_first(python) for name, python in pythons.items()}
    print(first, flush=True)
    rows = [
        {"figures": "the first, by the clock"} | first,
        {"figures": "all nine, processor time"} | side_by_side(pythons),
    ]
    print(rows[1])
    store("benchmarks_paper", rows=rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("others", nargs="*", metavar="name=python")
    main(parser.parse_args().others)
