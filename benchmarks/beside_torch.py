"""Parts of benchmarks beside torch: one thread, processor seconds, and a table of rows
that is printed and stored.
"""

import argparse
import json
import os
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np
import torch

torch.set_num_threads(1)
DATA = Path(__file__).parent.parent / "nbs/data"


def seconds(call):
    "Processor seconds of a call."
    start = time.process_time()
    call()
    return time.process_time() - start


def store(about, name, rows):
    "Print rows as they are measured; write them to the file that the caller names."
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path, default=DATA / f"{name}.json")
    file = parser.parse_args().file
    table = []
    for row in rows:
        table.append(row)
        print(
            f"{row['case']:55s}{row['value']:15.5g}"
            f"{row['ratio']:10,.2f} × {row['against']}",
            flush=True,
        )
    versions = dict(numpy=np.__version__, torch=torch.__version__)
    text = json.dumps(dict(rows=table, versions=versions), indent=1)
    file.write_text(text + "\n", encoding="utf-8")
