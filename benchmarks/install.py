"""What an installation costs: processor seconds and megabytes of each package.

    python benchmarks/install.py

downloads what the package requires into a temporary folder, installs one wheel after
the other, each without its dependencies, into an empty environment, and writes
nbs/data/benchmarks_install.json, from which the page on benchmarks is made. The time
that pip takes for nothing (an empty wheel's worth) is taken off.
"""

import argparse
import configparser
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from stored import ROOT, store


def seconds(*command):
    "Processor seconds of a command and its children."
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def requirements():
    settings = configparser.ConfigParser(delimiters=["="])
    settings.read(ROOT / "settings.ini")
    return settings["DEFAULT"]["requirements"].split()


def measure(folder):
    wheels, python = folder / "wheels", folder / "empty/bin/python"
    subprocess.run([sys.executable, "-m", "venv", folder / "empty"], check=True)
    subprocess.run(
        [python, "-m", "pip", "download", "-q", "-d", wheels, *requirements()],
        check=True,
    )
    pip = (python, "-m", "pip", "install", "-q", "--no-index", "--no-deps")
    nothing = min(seconds(*pip, "pip") for _ in range(3))
    for wheel in sorted(wheels.glob("*.whl")):
        yield dict(
            package=wheel.name.split("-")[0].lower().replace("_", "-"),
            seconds=round(max(seconds(*pip, wheel) - nothing, 0.0), 2),
            megabytes=round(wheel.stat().st_size / 1e6, 1),
        )


def main():
    with tempfile.TemporaryDirectory() as folder:
        rows = sorted(measure(Path(folder)), key=lambda row: -row["seconds"])
    for row in rows:
        print(row)
    store("benchmarks_install", rows=rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    main()
