"""What the law of one row costs, and how many digits it has, against the number of tokens.

    python benchmarks/length.py [file]

Independent unit tokens, one head; each length in a fresh state. Digits are those of the tail
beyond six standard deviations, from the error that the law itself states. Seconds depend on the
machine; what it costs to double the length does not so much, and is the ratio shown."""
import json
import sys
import time
from pathlib import Path

import numpy as np

from infattn_nb.rows import block_of, row_mixture

LENGTHS, SCALES = 2**np.arange(4, 21, 4), (1., 3.)

def measure(s, τ):
    block_of.cache_clear()
    start = time.perf_counter()
    law = row_mixture(np.ones(s), τ)
    seconds = time.perf_counter() - start
    tail, error = law.sf(6*law.std(), return_error=True)
    return dict(s=int(s), τ=τ, seconds=seconds, digits=float(-np.log10(error/tail)), tail=float(tail))

if __name__ == "__main__":
    rows = []
    for τ in SCALES:
        for s in LENGTHS:
            rows.append(measure(s, τ))
            print(rows[-1], flush=True)
    file = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent/"nbs/data/benchmarks_length.json")
    file.write_text(json.dumps(dict(rows=rows), indent=1) + "\n")
