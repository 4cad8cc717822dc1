"""The table of the page "Which initialisation?": an encoder and a decoder of 12, 48, 96 blocks over a grid of scales, and five rules.

    python tools/scan_tables.py

writes nbs/data/initialisation.csv in about eight minutes of one processor; `tests/test_scan.py` computes some of its rows again."""
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd

from infattn_nb import Transformer, embedding_cov, scan

PATH = Path(__file__).parent.parent/"nbs/data/initialisation.csv"
LAYERS = [12, 48, 96]
RESIDUAL = [.01, .02, .05, .1, .2, .5, 1, 2]
SCORES = [.1, .2, .5, 1, 2, 5, 10]
NETWORKS = {kind: Transformer.uniform(embedding_cov(range(16)), mask=mask, final_norm=True) for kind, mask in (("encoder", None), ("decoder", "causal"))}

def table(kind, residual=RESIDUAL, scores=SCORES, layers=LAYERS, **options):
    "The rows of an encoder, or of a decoder."
    found = scan(NETWORKS[kind], residual=residual, scores=scores, layers=layers, width=np.inf, size=16, rng=0, **options)
    return found.table.assign(network=kind)

if __name__ == "__main__":
    with ThreadPoolExecutor(int(*sys.argv[1:2] or "2")) as pool:
        rows = pd.concat([table(kind, progress=True, executor=pool) for kind in NETWORKS])
    rows.to_csv(PATH, index=False, float_format="%.6g", lineterminator="\n")
    print(rows.shape)
