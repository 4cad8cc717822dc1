"""The experiments on training: long runs, one table each.

    python benchmarks/training.py recall digits speed [--seeds 12]

writes nbs/data/training_<name>.csv (speed: nbs/data/benchmarks_training.json), from
which the page on training is made. `digits` needs scikit-learn; `speed` measures torch
beside us where it is installed. Each row depends on its seed alone; a test recomputes
some. No clock times in the tables.
"""

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import product

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
import pandas as pd
from learning import FAIR, OTHERS, digits
from numpy.random import SeedSequence, default_rng
from stored import DATA, store

from infattn_nb import AttentionDescent, AttentionRegressor
from infattn_nb.learning import make_recall

LONG = dict(mask=OTHERS, n_networks=16, momentum=0.9, max_iter=6_000, tol=0.0)


def small(heads, size, seed, networks=16, d=5):
    "A start whose values are small: products B as ever, ζ times a number."
    rng = default_rng([seed, 77])
    return rng.standard_normal((networks, heads, d, d)), size * rng.standard_normal(
        (networks, heads, d, 1)
    )


def variants(seed):
    "Name → (sequences, model) of the recall experiments."
    for H in (1, 2, 4, 16):
        yield f"descent, H = {H}", (16, AttentionDescent(H, random_state=seed, **LONG))
    yield "descent, H = ∞", (16, AttentionDescent(np.inf, random_state=seed, **LONG))
    for m in (4, 16):
        yield (
            f"descent, m = {m}",
            (16, AttentionDescent(head_width=m, random_state=seed, **LONG)),
        )
    yield (
        "small values at the start",
        (16, AttentionDescent(init=small(1, 0.001, seed), **LONG)),
    )
    for λ in (0.001, 0.01):
        yield (
            f"decay {λ}",
            (16, AttentionDescent(weight_decay=λ, random_state=seed, **LONG)),
        )
    for T in (0.01, 0.1):
        yield (
            f"noise T = λ = {T}",
            (
                16,
                AttentionDescent(
                    weight_decay=T,
                    temperature=T,
                    random_state=seed,
                    **LONG | dict(max_iter=60_000),
                ),
            ),
        )
    for P in (64, 256):
        yield (
            f"descent, {P} sequences",
            (P, AttentionDescent(random_state=seed, **LONG)),
        )
    yield (
        "small values, 64 sequences",
        (64, AttentionDescent(init=small(1, 0.001, seed), **LONG)),
    )
    yield (
        "posterior, H = 1",
        (16, AttentionRegressor(mask=OTHERS, random_state=seed, **FAIR)),
    )
    yield (
        "posterior, H = ∞",
        (16, AttentionRegressor(np.inf, mask=OTHERS, random_state=seed)),
    )


def run_recall(seed, name):
    """Examples of associative recall, 400 fresh ones: the networks one by one, and
    their mean.
    """
    P, model = dict(variants(seed))[name]
    X, y, _ = make_recall(P, SeedSequence([seed, 0]))
    fresh, target, answer = make_recall(400, SeedSequence([seed, 1]))
    model.fit(X, y)
    row = dict(
        seed=seed,
        model=name,
        weight=model.attention(fresh)[np.arange(400), answer].mean(),
        rmse=((model.predict(fresh) - target) ** 2).mean() ** 0.5,
    )
    if isinstance(model, AttentionRegressor):
        return row
    each = ((model.values(fresh) - target) ** 2).mean(1) ** 0.5
    least = np.argmin(model.loss_[:, -1])  # chosen without looking at the fresh ones
    return row | dict(
        single=each.mean(),
        chosen=each[least],
        training=(2 * model.loss_[:, -1].mean() / P) ** 0.5,
    )


DIGIT = {
    "descent, H = 1": dict(heads=1),
    "descent, H = 4": dict(heads=4),
    "descent, H = 16": dict(heads=16),
    "descent, H = ∞": dict(heads=np.inf),
    "linearised, H = 4": dict(heads=4, linearized=True),
    "descent, m = 16, H = 4": dict(heads=4, head_width=16),
}


def run_digits(seed, name, train=200, test=400):
    """Ten digits from patches of two by two pixels, softmax: share of right answers of
    the networks one by one and together.
    """
    from sklearn.datasets import load_digits

    X, _, _ = digits(2)
    labels = load_digits().target
    k = default_rng([seed, 5]).permutation(len(labels))
    a, b = k[:train], k[train : train + test]
    model = AttentionDescent(
        loss="softmax",
        momentum=0.9,
        max_iter=1_000,
        n_networks=8,
        random_state=seed,
        **DIGIT[name],
    ).fit(X[a], labels[a])
    each = (model.values(X[b]).argmax(2) == labels[b]).mean(1)
    p = model.predict_proba(X[b])
    return dict(
        seed=seed,
        model=name,
        single=each.mean(),
        together=model.score(X[b], labels[b]),
        logp=np.log(p[np.arange(test), labels[b]]).mean(),
    )


# --- speed

SIZE = dict(P=200, s=16, d=16, heads=4, networks=64, steps=1_000)


def ours(width, steps=SIZE["steps"], networks=SIZE["networks"]):
    "Processor seconds of all networks and steps."
    X, y = speed_data()
    model = AttentionDescent(
        SIZE["heads"],
        head_width=width,
        learning_rate=1e-5,
        max_iter=steps,
        tol=0.0,
        n_networks=networks,
        random_state=0,
    )
    begun = time.process_time()
    model.fit(X, y)
    return time.process_time() - begun


def speed_data():
    rng = default_rng(0)
    return rng.standard_normal((SIZE["P"], SIZE["s"], SIZE["d"])), rng.standard_normal(
        SIZE["P"]
    )


def torch_step(m):
    """A function that trains one explicit network of width m for some steps, as one
    writes it in torch: a batched layer, autograd, SGD.
    """
    import torch

    torch.set_num_threads(1)
    X, y = (torch.tensor(x, dtype=torch.float32) for x in speed_data())
    H, d = SIZE["heads"], SIZE["d"]
    weights = [
        torch.nn.Parameter(torch.randn(shape))
        for shape in [(d, H * m)] * 3 + [(H * m, 1)]
    ]
    descent = torch.optim.SGD(weights, lr=1e-5)

    def train(steps):
        for _ in range(steps):
            Q = (X[:, -1:] @ weights[0]).unflatten(2, (H, m)).transpose(1, 2)
            K, V = ((X @ W).unflatten(2, (H, m)).transpose(1, 2) for W in weights[1:3])
            O = torch.nn.functional.scaled_dot_product_attention(
                Q, K, V
            )  # its scale is 1/√m
            f = (O.transpose(1, 2).flatten(2) @ weights[3])[:, 0, 0] / (H * m) ** 0.5
            loss = 0.5 * ((f - y) ** 2).sum()
            descent.zero_grad()
            loss.backward()
            descent.step()

    return train


def explicit_seconds(m, steps=10):
    "Processor seconds of one step of one network."
    train = torch_step(m)
    train(2)
    begun = time.process_time()
    train(steps)
    return (time.process_time() - begun) / steps


def speed():
    """Processor seconds of one step of one network, ours and torch's; single precision
    there, double here.
    """
    rows = []
    each = SIZE["steps"] * SIZE["networks"]
    for m in (np.inf, 1024.0, 16.0):
        total = ours(m)
        rows.append(
            dict(
                section="training",
                case=f"m = {m:g}".replace("inf", "∞"),
                value=total,
                each=total / each,
            )
        )
    for m in (16, 1024):
        rows.append(
            dict(section="training, torch", case=f"m = {m}", each=explicit_seconds(m))
        )
    store("benchmarks_training", size=SIZE, rows=rows)


# --- all


def stored_row(name, **where):
    t = pd.read_csv(DATA / f"training_{name}.csv")
    return t.loc[np.logical_and.reduce([t[k] == v for k, v in where.items()])].iloc[0]


def table(run, names, seeds):
    "One row for each seed and name, on all processors."
    jobs = list(product(range(seeds), names))
    with ProcessPoolExecutor() as pool:
        return pd.DataFrame(list(pool.map(run, *zip(*jobs), chunksize=1)))


TABLES = {
    "recall": lambda seeds: table(run_recall, list(dict(variants(0))), seeds),
    "digits": lambda seeds: table(run_digits, list(DIGIT), min(seeds, 5)),
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="+", choices=[*TABLES, "speed"])
    parser.add_argument("--seeds", type=int, default=12)
    options = parser.parse_args()
    for name in options.tables:
        if name == "speed":
            speed()
        else:
            TABLES[name](options.seeds).to_csv(
                DATA / f"training_{name}.csv", index=False, float_format="%.8g"
            )
        print(name, time.strftime("%H:%M:%S"), flush=True)


if __name__ == "__main__":
    main()
