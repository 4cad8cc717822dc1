"""The law of one row against the number of tokens: what it costs, how many digits it
has, and the laws of three phases.

    python benchmarks/length.py speed
    python benchmarks/length.py laws

`speed`: independent unit tokens, one head; each length in a fresh state. Digits are
those of the tail beyond six standard deviations, from the error that the law itself
states. Seconds depend on the machine; what it costs to double the length does not so
much, and is the ratio shown. `laws`: the participation ratio of 2^8, 2^20 and 2^40
tokens at β = 0.3, 0.7 and 2, as 60 weighted points each, for the page "Long sequences"
(a few minutes). 2^40 tokens are 40 doublings; only rows that somebody lists must end at
a million.
"""

import argparse
import time
from itertools import product

import numpy as np
import pandas as pd
from stored import DATA, store

from infattn_nb.attention.rows import ROUGH_MESH, block_of, join, row_mixture, token
from infattn_nb.numerics.quadrature import gauss, jacobi

LENGTHS, SCALES = 2 ** np.arange(4, 21, 4), (1.0, 3.0)


def measure(s, τ):
    block_of.cache_clear()
    start = time.perf_counter()
    law = row_mixture(np.ones(s), τ)
    seconds = time.perf_counter() - start
    tail, error = law.sf(6 * law.std(), return_error=True)
    row = dict(
        s=int(s),
        τ=τ,
        seconds=seconds,
        digits=float(-np.log10(error / tail)),
        tail=float(tail),
    )
    print(row, flush=True)
    return row


def law(β, e, m=60):
    """u and weights (m,) of the participation ratio of 2**e tokens with scores of
    standard deviation β √(2 log s).
    """
    margin = (
        6 if e <= 20 else 4
    )  # of exponent, for each doubling to come: the ends of a grid ring
    cut = lambda left: ROUGH_MESH.cut + 20 + margin * left
    block = token(1.0, β * np.sqrt(2 * e * np.log(2)), ROUGH_MESH, cut(e))
    for left in reversed(range(e)):
        block = join(
            block, block, ROUGH_MESH, cut(left), ROUGH_MESH.cut + left * np.log(2)
        )
    _, log_u, w = block.points()
    x, w = gauss(jacobi(log_u[None], w[None], m))
    return np.exp(x[0]), w[0]


def speed():
    rows = [measure(s, τ) for τ, s in product(SCALES, LENGTHS)]
    store("benchmarks_length", rows=rows)


def laws():
    parts = [
        pd.DataFrame(dict(beta=β, log2_s=e, u=u, weight=w)).query("weight > 0")
        for e, β in product((8, 20, 40), (0.3, 0.7, 2.0))
        for u, w in [law(β, e)]
    ]
    pd.concat(parts).to_csv(DATA / "length.csv", index=False, float_format="%.17g")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = dict(speed=speed, laws=laws)
    parser.add_argument("part", choices=parts)
    parts[parser.parse_args().part]()
