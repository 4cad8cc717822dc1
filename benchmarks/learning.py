"""The experiments on learning: long runs, one table each.

    python benchmarks/learning.py recall average heads calibration width trust speed [--seeds 12]

writes nbs/data/learning_<name>.csv (speed: nbs/data/benchmarks_learning.json), from which the page "What does it learn?" is made.
The stored tables have the default of 12 seeds, that of trust ten (`trust --seeds 10`: half an hour).
Each row depends on its seed alone; a test recomputes some. No clock times in the tables.
"""
import argparse
import json
import os
import sys
import time
import warnings
from itertools import product
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"): os.environ.setdefault(name, "1")

import numpy as np
import pandas as pd
import scipy
from numpy.random import SeedSequence

from infattn_nb import AttentionRegressor, recall
from infattn_nb.learning.layer_on_data import attend, latent_likelihood
from infattn_nb.learning.layer_on_data import training_layer

DATA = Path(__file__).parent.parent/"nbs/data"
ROUGH = dict(n_particles=100, n_islands=2, n_moves=4, keep=.8) # enough for P D = 6
FAIR = dict(n_particles=256, n_islands=2, n_moves=5) # enough for P D = 16
OTHERS = ~np.eye(5, dtype=bool) # no token attends to itself: the cue looks at the keys

def test_row(model, X, y, answer=None):
    "How a fitted model does on fresh data."
    law = model.predictive(X)
    wrong2, var = (law.mean() - y)**2, law.var()
    row = dict(rmse=wrong2.mean()**.5, stated=var.mean()**.5, inside95=float(np.mean((law.cdf(y) > .025) & (law.cdf(y) < .975))), logpdf=law.logpdf(y).mean(),
               kurtosis=float(np.median(law.kurtosis())), evidence=model.log_marginal_likelihood_value_, error=model.log_marginal_likelihood_error_)
    if answer is not None: row["weight"] = model.attention(X)[np.arange(len(X)), answer].mean()
    return row

def models():
    "Name → model of the recall experiments."
    for H in (1, 2, 4, 16, 64): yield str(H), dict(heads=H, mask=OTHERS, **FAIR)
    yield "inf", dict(heads=np.inf, mask=OTHERS)
    yield "1/n", dict(score_scale="linear", mask=OTHERS)

def run_recall(seed, name, options, sequences=16):
    "16 examples of associative recall, 400 fresh ones."
    X, y, _ = recall(sequences, SeedSequence([seed, 0]))
    fresh = recall(400, SeedSequence([seed, 1]))
    return dict(seed=seed, heads=name) | test_row(AttentionRegressor(random_state=seed, **options).fit(X, y), *fresh)

def average(sequences, seed, **options):
    "The same sequences, but y is the mean of their values."
    X, _, answer = recall(sequences, SeedSequence(seed))
    return X, X[:, :-1, -1].mean(1) + .1*np.random.default_rng([*seed, 2]).standard_normal(sequences), answer

def run_average(seed, name, options):
    X, y, _ = average(16, [seed, 0])
    fresh = average(400, [seed, 1])
    return dict(seed=seed, heads=name) | test_row(AttentionRegressor(random_state=seed, **options).fit(X, y), *fresh)

def prior_data(seed, heads, P, Q, s, d, D=1, alpha=.01):
    "P + Q sequences of normal tokens, targets from the layer with so many heads and noise."
    rng = np.random.default_rng([seed, P, s, d])
    X = rng.standard_normal((P + Q, s, d))/d**.5
    f = AttentionRegressor(heads, n_particles=512 if heads == np.inf else 2, n_islands=4 if heads == np.inf else 1, random_state=seed).sample_y(X, D, random_state=seed)
    return X[:P], f[:P] + alpha**.5*rng.standard_normal((P, D)), X[P:], f[P:] + alpha**.5*rng.standard_normal((Q, D))

def run_heads(seed, truth, heads):
    X, y, *fresh = prior_data(seed, truth, 16, 100, 4, 3)
    fresh[1] = fresh[1][:, 0]
    model = AttentionRegressor(heads, random_state=seed, **FAIR).fit(X, y[:, 0])
    return dict(seed=seed, truth=truth, heads=heads) | test_row(model, *fresh)

def run_calibration(seed, heads):
    X, y, x, target = prior_data(10_000 + seed, heads, 6, 1, 3, 2, alpha=.1)
    law = AttentionRegressor(heads, alpha=.1, random_state=seed, **ROUGH).fit(X, y[:, 0]).predictive(x)
    return dict(seed=seed, heads=heads, rank=law.cdf(target[:, 0])[0], error=(law.mean() - target[:, 0])[0], variance=law.var()[0])

def run_width(seed, D, widths, draws=2**14):
    "Log evidence, and posterior mean weight of a token, at finite width and in the limit, from the same draws of the prior."
    X, y, *_ = prior_data(seed, 1, 4, 1, 3, 2, D=D, alpha=.1)
    rng = np.random.default_rng(seed)
    N, *T = (rng.standard_normal((4, draws)) for _ in range(3))
    z = np.concatenate([np.concatenate([N, *T]), np.concatenate([N, *(-t for t in T)])], axis=1) # mirrored: what is of order n^(-1/2) cancels
    rows = []
    for n in (np.inf, *widths):
        layer = training_layer(X, width=n)
        view, latents = layer.view(X, leading=True), z[:layer.dim()]
        ℓ = latent_likelihood(layer, view, y, .1, latents)
        w = np.exp(ℓ - ℓ.max())
        A = np.concatenate([attend(layer, view, layer.split(latents[:, j:j+4096]))[0, 0] for j in range(0, 2*draws, 4096)], axis=1)
        rows.append(dict(seed=seed, outputs=D, n=n, evidence=np.log(w.mean()) + ℓ.max(), weight=(A[0] @ w)/w.sum()))
    return rows

def run_trust(seed, P, D, d, H, particles, moves):
    X, y, *_ = prior_data(seed, H, P, 1, 4, d, D=D)
    m = AttentionRegressor(H, n_particles=particles, n_moves=moves, random_state=seed).fit(X, y)
    return dict(seed=seed, P=P, D=D, d=d, heads=H, latents=m.layer_.dim(), particles=particles, moves=moves, evidence=m.log_marginal_likelihood_value_,
                spread=m.log_evidences_.std(ddof=1), ancestors=m.ancestors_.min())

SIZES = [(16, 1, 4, 1), (32, 1, 4, 1), (64, 1, 4, 1), (32, 1, 8, 1), (32, 1, 8, 2), (32, 2, 8, 1)]
TRIED = [*product(SIZES, ((128, 3), (512, 3), (512, 10))), (SIZES[-1], (512, 30))]
TABLES = {
    "recall": lambda seeds: [run_recall(seed, *m) for seed, m in product(range(seeds), models())],
    "average": lambda seeds: [run_average(seed, *m) for seed, m in product(range(seeds), [*((k, o) for k, o in models() if k in ("1", "4", "inf", "1/n")), ("1, long", dict(heads=1, mask=OTHERS) | FAIR | dict(n_moves=25))])],
    "heads": lambda seeds: [run_heads(seed, *Hs) for seed, Hs in product(range(seeds), product((1, 2, 8, np.inf), repeat=2))],
    "calibration": lambda seeds: [run_calibration(seed, H) for seed, H in product(range(320), (1, 2, 8))],
    "width": lambda seeds: sum((run_width(seed, D, (16, 64, 256, 1024)) for seed, D in product(range(seeds), (1, 4, 16))), []),
    "trust": lambda seeds: [run_trust(seed, *size, *how) for (size, how), seed in product(TRIED, range(seeds))],
}

def speed():
    "Seconds of a fit, the best of three, with the islands on two threads and on one."
    from concurrent.futures import ThreadPoolExecutor
    rows = []
    for P, D, d, H in ((16, 1, 4, 1), (32, 1, 8, 2), (32, 2, 8, 1)):
        X, y, *_ = prior_data(0, H, P, 1, 4, d, D=D)
        def fit(workers):
            start = time.perf_counter()
            with ThreadPoolExecutor(workers) as pool: AttentionRegressor(H, random_state=0).fit(X, y, executor=pool)
            return time.perf_counter() - start
        two, one = (min(fit(k) for _ in range(2)) for k in (2, 1))
        rows.append(dict(section="learning", case=f"fit: P = {P}, D = {D}, s = 4, d = {d}, H = {H}", value=two, against="the time on one thread", ratio=two/one))
        print(rows[-1], flush=True)
    versions = dict(python=".".join(map(str, sys.version_info[:2])), numpy=np.__version__, scipy=scipy.__version__, processors=os.cpu_count())
    (DATA/"benchmarks_learning.json").write_text(json.dumps(dict(versions=versions, rows=rows), indent=1) + "\n")

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", choices=[*TABLES, "speed"])
    parser.add_argument("--seeds", type=int, default=12)
    options = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning) # rough posteriors are in the tables: fewest ancestors, spread
    for name in options.tables:
        if name == "speed": speed()
        else: pd.DataFrame(TABLES[name](options.seeds)).to_csv(DATA/f"learning_{name}.csv", index=False, float_format="%.8g")
        print(name, time.strftime("%H:%M:%S"), flush=True)

if __name__ == "__main__": main()
