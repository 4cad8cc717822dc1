"""Parts of benchmarks beside torch: one thread, processor seconds, and a table of rows
that is printed and stored.
"""

import argparse
import os
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import torch
from stored import store

torch.set_num_threads(1)


def seconds(call):
    "Processor seconds of a call."
    start = time.process_time()
    call()
    return time.process_time() - start


def main(about, name, rows):
    "Print rows as they are measured, and store them under a name."
    argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    table = []
    for row in rows:
        table.append(row)
        print(
            f"{row['case']:55s}{row['value']:15.5g}"
            f"{row['ratio']:10,.2f} × {row['against']}",
            flush=True,
        )
    store(name, rows=table)
