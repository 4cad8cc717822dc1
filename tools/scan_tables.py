"""The table of the page "Which initialisation?": an encoder and a decoder of 12, 48, 96 blocks over a grid of scales, and five rules.

    python tools/scan_tables.py

writes nbs/data/initialisation.csv in about eight minutes of one processor, and nbs/data/initialisation_lengths.csv, the same at 64 and 256 tokens, in about ten; `tests/test_scan.py` computes some of their rows again."""
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd

from infattn_nb import Transformer, embedding_cov, scan

PATH = Path(__file__).parent.parent/"nbs/data/initialisation.csv"
LENGTHS_PATH = PATH.with_name("initialisation_lengths.csv")
LAYERS = [12, 48, 96]
RESIDUAL = [.01, .02, .05, .1, .2, .5, 1, 2]
SCORES = [.1, .2, .5, 1, 2, 5, 10]
MASKS = {"encoder": None, "decoder": "causal"}
DEPTHS = {64: [12, 48], 256: [12]} # at which each length is computed

def network(kind, tokens):
    "An encoder or a decoder of so many different tokens."
    return Transformer.uniform(embedding_cov(range(tokens)), mask=MASKS[kind], final_norm=True)

NETWORKS = {kind: network(kind, 16) for kind in MASKS}

def table(kind, residual=RESIDUAL, scores=SCORES, layers=LAYERS, **options):
    "The rows of an encoder, or of a decoder."
    found = scan(NETWORKS[kind], residual=residual, scores=scores, layers=layers, width=np.inf, size=16, rng=0, **options)
    return found.table.assign(network=kind)

def lengths_table(kind, tokens, **options):
    "Unscaled blocks, GPT-2's residual scale with three scales of scores, and the rules, at another length, 4 networks each."
    parts = []
    for L in DEPTHS[tokens]:
        for residual, scores, rules in ((1, [1], {}), ((2*L)**-.5, [.5, 1, 2], dict(rules=()))):
            found = scan(network(kind, tokens), residual=residual, scores=scores, layers=L, width=np.inf, size=4, rng=0, **rules, **options)
            parts.append(found.table.assign(network=kind, tokens=tokens))
    return pd.concat(parts)

def write(rows, path):
    rows.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")
    print(path.name, rows.shape)

if __name__ == "__main__":
    with ThreadPoolExecutor(int(*sys.argv[1:2] or "2")) as pool:
        how = dict(progress=True, executor=pool)
        write(pd.concat([table(kind, **how) for kind in MASKS]), PATH)
        write(pd.concat([lengths_table(kind, s, **how) for s in DEPTHS for kind in MASKS]), LENGTHS_PATH)
