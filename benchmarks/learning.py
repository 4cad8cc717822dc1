"""The experiments on learning: long runs, one table each.

    python benchmarks/learning.py recall average odd heads calibration width trust
        real longer afford cost speed [--seeds 12]

writes nbs/data/learning_<name>.csv (afford and cost hold times; speed:
nbs/data/benchmarks_learning.json), from which the pages on learning are made. The
stored tables have the default of 12 seeds, those of real and longer ten, that of trust
five. `text` makes nbs/data/learning_text.json from Python's own documentation. `odd`,
`real` and `longer` need scikit-learn. Each row depends on its seed alone; a test
recomputes some. No clock times in the other tables.
"""

import argparse
import json
import os
import time
import warnings
from itertools import product

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
import pandas as pd
from numpy.random import SeedSequence
from stored import DATA, store

from infattn_nb import AttentionRegressor
from infattn_nb.attention.spec import AttentionSpec
from infattn_nb.learning import embed_features, make_recall, patches
from infattn_nb.learning.layer_on_data import Likelihood, attend, training_layer
from infattn_nb.learning.sequences import stacked
from infattn_nb.numerics import parallel

ROUGH = dict(
    n_particles=64, n_islands=2, n_moves=1, n_steps=4, keep=0.8
)  # enough for P D = 6
FAIR = dict(n_particles=128, n_islands=2, n_moves=1)  # enough for P D = 16
OTHERS = ~np.eye(5, dtype=bool)  # no token attends to itself: the cue looks at the keys


def test_row(model, X, y, answer=None):
    "How a fitted model does on fresh data."
    law = model.predictive(X)
    wrong2, var = (law.mean() - y) ** 2, law.var()
    row = dict(
        rmse=wrong2.mean() ** 0.5,
        stated=var.mean() ** 0.5,
        inside95=float(np.mean((law.cdf(y) > 0.025) & (law.cdf(y) < 0.975))),
        logpdf=law.logpdf(y).mean(),
        kurtosis=float(np.median(law.kurtosis())),
        evidence=model.log_marginal_likelihood_value_,
        error=model.log_marginal_likelihood_error_,
    )
    if answer is not None:
        row["weight"] = model.attention(X)[np.arange(len(X)), answer].mean()
    return row


def models():
    "Name → model of the recall experiments."
    for H in (1, 2, 4, 16, 64):
        yield str(H), dict(heads=H, mask=OTHERS, **FAIR)
    yield "inf", dict(heads=np.inf, mask=OTHERS)
    yield "1/n", dict(scaling="linear", mask=OTHERS)


def run_recall(seed, name, options, sequences=16):
    "16 examples of associative recall, 400 fresh ones."
    X, y, _ = make_recall(sequences, SeedSequence([seed, 0]))
    fresh = make_recall(400, SeedSequence([seed, 1]))
    return dict(seed=seed, heads=name) | test_row(
        AttentionRegressor(random_state=seed, **options).fit(X, y), *fresh
    )


def average(sequences, seed, **options):
    "The same sequences, but y is the mean of their values."
    X, _, answer = make_recall(sequences, SeedSequence(seed))
    return (
        X,
        X[:, :-1, -1].mean(1)
        + 0.1 * np.random.default_rng([*seed, 2]).standard_normal(sequences),
        answer,
    )


def run_average(seed, name, options):
    X, y, _ = average(16, [seed, 0])
    fresh = average(400, [seed, 1])
    return dict(seed=seed, heads=name) | test_row(
        AttentionRegressor(random_state=seed, **options).fit(X, y), *fresh
    )


def smooth_maximum(P, seed, constant):
    """Sequences of four numbers, their targets log ¼ Σ exp(2 x); as tokens (x) or (x,
    1).
    """
    X = np.random.default_rng(seed).standard_normal((P, 4, 1))
    y = np.log(np.exp(2 * X[..., 0]).mean(1))
    return np.concatenate([X, np.ones_like(X)], axis=2) if constant else X, y


def run_odd(seed, P, name, constant):
    """R² on fresh data of a layer that sees a constant or does not, or of a Gaussian
    process.
    """
    X, y = smooth_maximum(P, [seed, 0], constant)
    fresh = smooth_maximum(1000, [seed, 1], constant)
    row = dict(seed=seed, P=P, model=name, constant=constant)
    if name == "Gaussian process":
        return row | dict(
            r2=gaussian_process(X.reshape(P, -1), y).score(
                fresh[0].reshape(1000, -1), fresh[1]
            )
        )
    m = AttentionRegressor(
        float(name),
        optimizer="evidence",
        normalize_y=True,
        n_islands=2,
        alpha=0.1,
        random_state=seed,
    )
    return row | dict(r2=m.fit(X, y).score(*fresh))


def gaussian_process(table, y):
    """scikit-learn's, with a squared exponential kernel and noise, as fitted by its
    evidence.
    """
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel(1.0, (1e-4, 1e4)) * RBF(3.0, (1e-2, 1e3)) + WhiteKernel(
        0.5, (1e-4, 1e2)
    )
    return GaussianProcessRegressor(
        kernel, normalize_y=True, random_state=0, n_restarts_optimizer=2
    ).fit(table, y)


ODD = [*product(("1", "inf"), (False, True)), ("Gaussian process", False)]


def run_afford(P, H):
    "What `expected_seconds` says of a fit, and what it takes, on the clock."
    rng = np.random.default_rng(0)
    X = rng.standard_normal((P, 4, 3))
    y = X.mean(1)[:, 0] + 0.1 * rng.standard_normal(P)
    m = AttentionRegressor(H, random_state=0)
    began = time.perf_counter()
    expected = m.expected_seconds(X, y)
    pilot = time.perf_counter() - began
    began = time.perf_counter()
    m.fit(X, y)
    return dict(
        P=P,
        heads=H,
        expected=expected,
        pilot=pilot,
        seconds=time.perf_counter() - began,
    )


def run_cost(P, H):
    "Processor seconds of a fit on one thread, by sequences and heads."
    rng = np.random.default_rng(0)
    X = rng.standard_normal((P, 4, 3))
    y = X.mean(1)[:, 0] + 0.1 * rng.standard_normal(P)
    start = time.process_time()
    with parallel(1):
        m = AttentionRegressor(H, random_state=0).fit(X, y)
    seconds = time.process_time() - start
    return dict(P=P, heads=H, latents=m.layer_.dim(), seconds=seconds)


def prior_data(seed, heads, P, Q, s, d, D=1, alpha=0.01):
    """P + Q sequences of normal tokens, targets from the layer with so many heads and
    noise.
    """
    rng = np.random.default_rng([seed, P, s, d])
    X = rng.standard_normal((P + Q, s, d)) / d**0.5
    f = AttentionRegressor(
        heads,
        n_particles=512 if heads == np.inf else 2,
        n_islands=4 if heads == np.inf else 1,
        random_state=seed,
    ).sample_y(X, D, random_state=seed)
    return (
        X[:P],
        f[:P] + alpha**0.5 * rng.standard_normal((P, D)),
        X[P:],
        f[P:] + alpha**0.5 * rng.standard_normal((Q, D)),
    )


def run_heads(seed, truth, heads):
    X, y, *fresh = prior_data(seed, truth, 16, 100, 4, 3)
    fresh[1] = fresh[1][:, 0]
    model = AttentionRegressor(heads, random_state=seed, **FAIR).fit(X, y[:, 0])
    return dict(seed=seed, truth=truth, heads=heads) | test_row(model, *fresh)


def run_calibration(seed, heads):
    X, y, x, target = prior_data(10_000 + seed, heads, 6, 1, 3, 2, alpha=0.1)
    law = (
        AttentionRegressor(heads, alpha=0.1, random_state=seed, **ROUGH)
        .fit(X, y[:, 0])
        .predictive(x)
    )
    return dict(
        seed=seed,
        heads=heads,
        rank=law.cdf(target[:, 0])[0],
        error=(law.mean() - target[:, 0])[0],
        variance=law.var()[0],
    )


def run_width(seed, D, widths, draws=2**14):
    """Log evidence, and posterior mean weight of a token, at finite width and in the
    limit, from the same draws of the prior.
    """
    X, y, *_ = prior_data(seed, 1, 4, 1, 3, 2, D=D, alpha=0.1)
    rng = np.random.default_rng(seed)
    N, *T = (rng.standard_normal((4, draws)) for _ in range(3))
    z = np.concatenate(
        [np.concatenate([N, *T]), np.concatenate([N, *(-t for t in T)])], axis=1
    )  # mirrored: what is of order n^(-1/2) cancels
    rows = []
    for n in (np.inf, *widths):
        layer = training_layer(stacked(X), AttentionSpec(), n)
        view, latents = layer.view(stacked(X), leading=True), z[: layer.dim()]
        ℓ, _ = Likelihood(layer, view, y, 0.1)(latents)
        w = np.exp(ℓ - ℓ.max())
        A = np.concatenate(
            [
                attend(layer, view, layer.split(latents[:, j : j + 4096]))[0, 0]
                for j in range(0, 2 * draws, 4096)
            ],
            axis=1,
        )
        rows.append(
            dict(
                seed=seed,
                outputs=D,
                n=n,
                evidence=np.log(w.mean()) + ℓ.max(),
                weight=(A[0] @ w) / w.sum(),
            )
        )
    return rows


def run_trust(seed, P, D, s, d, H, particles, moves):
    X, y, *_ = prior_data(seed, H, P, 1, s, d, D=D)
    m = AttentionRegressor(
        H, n_particles=particles, n_moves=moves, random_state=seed
    ).fit(X, y)
    return dict(
        seed=seed,
        P=P,
        D=D,
        s=s,
        d=d,
        heads=H,
        latents=m.layer_.dim(),
        particles=particles,
        moves=moves,
        evidence=m.log_marginal_likelihood_value_,
        spread=m.log_evidences_.std(ddof=1),
        ancestors=m.ancestors_.min(),
    )


SIZES = [
    (16, 1, 4, 4, 1),
    (32, 1, 4, 4, 1),
    (64, 1, 4, 4, 1),
    (32, 1, 4, 8, 1),
    (32, 1, 4, 8, 2),
    (32, 2, 4, 8, 1),
    (60, 1, 8, 8, 1),
]
EIGHT = (60, 1, 8, 8, 8)  # eight heads: fewer data sets, they take minutes
TRIED = [*product(SIZES, ((64, 1), (256, 2))), (SIZES[-2], (256, 6))]


def trust_runs(seeds):
    "Sizes, settings, seeds."
    yield from ((size, how, seed) for (size, how), seed in product(TRIED, range(seeds)))
    yield from (
        (EIGHT, (256, moves), seed)
        for moves, seed in product((2,), range(min(seeds, 1)))
    )


# --- real data


def digits(size):
    "scikit-learn's handwritten digits as patches; is the digit even (1) or odd (−1)?"
    from sklearn.datasets import load_digits

    data = load_digits()
    return (
        patches(data.images / 16, size, query_scale=1.0),
        data.data / 16,
        2.0 * (data.target % 2 == 0) - 1,
    )


def diabetes():
    "One token per feature; progression of the disease after a year."
    from sklearn.datasets import load_diabetes

    data = load_diabetes()
    X = data.data / data.data.std(0)
    return embed_features(X), X, (data.target - data.target.mean()) / data.target.std()


def text():
    """Contexts of 2 to 8 words: is the next word an article (1) or not (−1)? For other
    models: the mean vector and the last.
    """
    stored = json.loads((DATA / "learning_text.json").read_text())
    vectors = {w: np.array(v) for w, v in stored["vectors"].items()}
    X = [
        np.array([[*vectors[w], 0.0] for w in context])
        for context in stored["contexts"]
    ]
    for x in X:
        x[-1, -1] = 1.0  # the word that asks
    table = np.array([np.concatenate([x.mean(0), x[-1]]) for x in X])
    return X, table, np.array(stored["next"], dtype=float)


TASKS = {
    "diabetes, features": diabetes,
    "text, words": text,
    "digits, rows": lambda: digits((1, 8)),
    "digits, patches": lambda: digits(2),
}

TRAIN = {
    "diabetes, features": 100,
    "text, words": 120,
    "digits, rows": 40,
    "digits, patches": 40,
}


def split(task, seed, test=200):
    "Tokens, table and targets of the training examples and of the test examples."
    X, table, y = TASKS[task]()
    train = TRAIN[task]
    k = np.random.default_rng([seed, len(task)]).permutation(len(y))[: train + test]
    some = lambda a, k: [a[i] for i in k] if isinstance(a, list) else a[k]
    halves = k[:train], k[train:]
    return [(some(X, k), table[k], y[k]) for k in halves]


TUNED = dict(
    optimizer="evidence",
    normalize_y=True,
    alpha=0.5,
    n_particles=128,
    n_islands=2,
    n_moves=1,
)
OURS = {
    "1 head": dict(heads=1),
    "infinitely many": dict(heads=np.inf, n_islands=2),
    "linear scale": dict(heads=np.inf, scaling="linear"),
}

CROSS_VALIDATED = (
    "infinitely many, cross-validated"  # by the rule of kernel ridge regression
)


def cross_validated(seed, X, y):
    """Infinitely many heads whose scores and noise are chosen on a grid, as kernel
    ridge regression's are.
    """
    from sklearn.model_selection import GridSearchCV

    model = AttentionRegressor(
        np.inf, normalize_y=True, n_particles=32, n_islands=1, random_state=seed
    )  # a few draws for the choice
    grid = dict(alpha=10.0 ** np.arange(-3, 2), var_qk=10.0 ** np.arange(-2, 3))
    best = GridSearchCV(model, grid, cv=5).fit(X, y).best_params_
    return AttentionRegressor(
        np.inf,
        normalize_y=True,
        n_particles=128,
        n_islands=2,
        random_state=seed,
        **best,
    ).fit(X, y)


def scores(y, mean, std):
    "R², mean log density, share of signs that are right."
    log = -0.5 * ((y - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    return dict(
        r2=1 - ((y - mean) ** 2).sum() / ((y - y.mean()) ** 2).sum(),
        logpdf=np.mean(log),
        signs=np.mean(np.sign(mean) == np.sign(y)),
    )


def run_real(seed, task, name):
    (X, table, y), (x, fresh, target) = split(task, seed)
    row = dict(seed=seed, task=task, model=name)
    if name in OURS or name == CROSS_VALIDATED:
        m = (
            cross_validated(seed, X, y)
            if name == CROSS_VALIDATED
            else AttentionRegressor(**TUNED | OURS[name], random_state=seed).fit(X, y)
        )
        law = m.predictive(x)
        found = scores(target, law.mean(), law.std()) | dict(
            logpdf=law.logpdf(target).mean()
        )
        spread = np.ptp(m.log_evidences_) if len(m.log_evidences_) > 1 else 0.0
        return (
            row
            | found
            | dict(
                evidence=m.log_marginal_likelihood_value_,
                spread=spread,
                ancestors=m.ancestors_.min(),
                var_qk=m.var_qk_,
                var_vo=m.var_vo_,
                alpha=m.alpha_,
            )
        )
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.model_selection import GridSearchCV

    if name == "Gaussian process":
        m = gaussian_process(table, y)
        return (
            row
            | scores(target, *m.predict(fresh, return_std=True))
            | dict(evidence=m.log_marginal_likelihood_value_)
        )
    grid = dict(alpha=10.0 ** np.arange(-3, 2), gamma=10.0 ** np.arange(-4, 1))
    m = GridSearchCV(KernelRidge(kernel="rbf"), grid, cv=5).fit(table, y - y.mean())
    mean = m.predict(fresh) + y.mean()
    std = np.std(m.predict(table) + y.mean() - y)
    return row | scores(target, mean, std) | dict(logpdf=np.nan)


def run_longer(seed, task, H, moves):
    """The model of `real` as tuned, explored again by more moves: is it the model or
    the sampler?
    """
    (X, _, y), (x, _, target) = split(task, seed)
    tuned = stored_row("real", seed=seed, task=task, model="1 head")
    dials = {k: float(tuned[k]) for k in ("var_qk", "var_vo", "alpha")}
    m = AttentionRegressor(
        H, **dials, normalize_y=True, n_moves=moves, random_state=seed + 100
    ).fit(X, y)
    law = m.predictive(x)
    return (
        dict(seed=seed, task=task, heads=H, moves=moves)
        | scores(target, law.mean(), law.std())
        | dict(
            logpdf=law.logpdf(target).mean(),
            evidence=m.log_marginal_likelihood_value_,
            spread=np.ptp(m.log_evidences_),
            ancestors=m.ancestors_.min(),
        )
    )


def stored_row(name, **keys):
    t = pd.read_csv(DATA / f"learning_{name}.csv")
    for k, v in keys.items():
        t = t[t[k] == v]
    return t.iloc[0]


def make_text(contexts=600, d=8):
    """Contexts from Python's documentation (pydoc_data.topics), and word vectors from
    which words stand side by side there.
    """
    import re
    from collections import Counter
    from pydoc_data import topics

    words = re.findall(
        r"[a-z]+|[.,;:()]",
        " ".join(v for _, v in sorted(topics.topics.items())).lower(),
    )
    known = [w for w, n in Counter(words).most_common(1500) if n > 5]
    index = {w: i for i, w in enumerate(known)}
    beside = np.zeros((len(known),) * 2)
    for a, b in zip(words, words[1:]):
        if a in index and b in index:
            beside[index[a], index[b]] += 1
    both = np.concatenate([beside, beside.T], axis=1) + 0.1
    ratio = np.log(both * both.sum() / both.sum(1, keepdims=True) / both.sum(0))
    U, S, _ = np.linalg.svd(np.maximum(ratio, 0), full_matrices=False)
    V = U[:, :d] * np.sqrt(S[:d])
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    rng = np.random.default_rng(0)
    rows, answers = [], []
    for k in rng.permutation(np.arange(10, len(words))):
        wanted = 1 if len(answers) % 2 == 0 else -1
        context = words[k - rng.integers(2, 9) : k]
        article = words[k] in ("the", "a", "an")
        if (
            all(w in index for w in context)
            and words[k].isalpha()
            and article == (wanted == 1)
        ):
            rows.append(context)
            answers.append(wanted)
        if len(rows) == contexts:
            break
    used = sorted({w for row in rows for w in row})
    vectors = {w: [round(float(x), 4) for x in V[index[w]]] for w in used}
    (DATA / "learning_text.json").write_text(
        json.dumps(dict(contexts=rows, next=answers, vectors=vectors)) + "\n"
    )


OTHER = ["Gaussian process", CROSS_VALIDATED, "kernel ridge"]
TABLES = {
    "recall": lambda seeds: [
        run_recall(seed, *m) for seed, m in product(range(seeds), models())
    ],
    "average": lambda seeds: [
        run_average(seed, *m)
        for seed, m in product(
            range(seeds),
            [
                *((k, o) for k, o in models() if k in ("1", "4", "inf", "1/n")),
                ("1, long", dict(heads=1, mask=OTHERS) | FAIR | dict(n_moves=10)),
            ],
        )
    ],
    "odd": lambda seeds: [
        run_odd(seed, P, *m) for seed, P, m in product(range(seeds), (16, 64, 256), ODD)
    ],
    "afford": lambda seeds: [
        run_afford(P, H) for P, H in product((100, 300, 1000, 3000), (1, np.inf))
    ],
    "cost": lambda seeds: [
        run_cost(P, H) for P, H in product((50, 100, 200), (1, 2, 4, np.inf))
    ],
    "heads": lambda seeds: [
        run_heads(seed, *Hs)
        for seed, Hs in product(range(seeds), product((1, 2, 8, np.inf), repeat=2))
    ],
    "calibration": lambda seeds: [
        run_calibration(seed, H) for seed, H in product(range(320), (1, 2, 8))
    ],
    "width": lambda seeds: sum(
        (
            run_width(seed, D, (16, 64, 256, 1024))
            for seed, D in product(range(seeds), (1, 4, 16))
        ),
        [],
    ),
    "trust": lambda seeds: [
        run_trust(seed, *size, *how) for size, how, seed in trust_runs(seeds)
    ],
    "real": lambda seeds: [
        run_real(seed, task, m)
        for task, seed, m in product(TASKS, range(seeds), [*OURS, *OTHER])
    ],
    "longer": lambda seeds: [
        run_longer(seed, *m)
        for seed, m in product(range(min(seeds, 10)), product(TASKS, (1,), (2,)))
    ],
}

FITS = (16, 1, 4, 4, 1), (32, 1, 4, 8, 2), (32, 2, 4, 8, 1), (60, 1, 8, 8, 1), EIGHT
MANY = (500, "evidence"), (1000, "evidence"), (1000, None), (2000, None), (4000, None)


def time_fit(P, D, s, d, H):
    """Processor seconds of a fit on one thread: other work on the machine hardly
    changes them.
    """
    X, y, *_ = prior_data(0, H, P, 1, s, d, D=D)
    start = time.process_time()
    with parallel(1):
        AttentionRegressor(H, random_state=0).fit(X, y)
    return dict(
        section="learning",
        case=f"P = {P}, D = {D}, s = {s}, d = {d}, H = {H}",
        value=time.process_time() - start,
    )


def time_infinite(P, optimizer, s=8, d=8):
    """Infinitely many heads on P sequences whose targets one fixed head makes:
    processor seconds of fit and of 100 predictions, largest memory in bytes of this
    (fresh) process with two threads.
    """
    from resource import RUSAGE_SELF, getrusage

    rng = np.random.default_rng(0)
    X = rng.standard_normal((P + 100, s, d)) / d**0.5
    A = np.exp(2 * X[:, -1:] @ X.mT)
    y = ((A / A.sum(-1, keepdims=True)) @ X)[:, 0] @ rng.standard_normal(
        d
    ) + 0.2 * rng.standard_normal(P + 100)
    start = time.process_time()
    with parallel(2):
        m = AttentionRegressor(
            np.inf, optimizer=optimizer, normalize_y=True, alpha=0.1, random_state=0
        ).fit(X[:P], y[:P])
    fitted = time.process_time()
    m.predict(X[P:])
    return dict(
        P=P,
        optimizer=optimizer,
        fit=fitted - start,
        predict=time.process_time() - fitted,
        memory=1024 * getrusage(RUSAGE_SELF).ru_maxrss,
    )


def speed():
    "Finitely many heads, then infinitely many, each of these in a process of its own."
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    rows = [time_fit(*case) for case in FITS]
    infinite = []
    for case in MANY:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
            infinite.append(fresh.submit(time_infinite, *case).result())
    store("benchmarks_learning", rows=rows, infinite=infinite)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="+", choices=[*TABLES, "speed", "text"])
    parser.add_argument("--seeds", type=int, default=12)
    options = parser.parse_args()
    warnings.simplefilter(
        "ignore", RuntimeWarning
    )  # rough posteriors are in the tables: fewest ancestors, spread
    for name in options.tables:
        if name == "speed":
            speed()
        elif name == "text":
            make_text()
        else:
            pd.DataFrame(TABLES[name](options.seeds)).to_csv(
                DATA / f"learning_{name}.csv", index=False, float_format="%.8g"
            )
        print(name, time.strftime("%H:%M:%S"), flush=True)


if __name__ == "__main__":
    main()
