"""Joint densities far out: the estimate of `logpdf` against references that share no
line with it.

    python benchmarks/joint.py [--seeds 200] [--minutes 2] [--tokens 2 4 8]
        [--heads 1 2 8] [--again] [--anew]

writes nbs/data/joint.csv (the rows that it lacks; --again: more seeds for rows of
fewer, the reference as it stands; --anew: all), one row for each number of tokens,
heads and distance r: the point is y = r σ (1, …, 1, −1, …, −1), σ the standard
deviation of one output, the tokens are independent, σ_Q² = 4. The reference is, where
it exists,

quadrature    s = 2: the density of a mean of H independent vectors by Fourier inversion
through its saddle point, of one or two heads by sums over both scores; values
one head or two: the mean over the values of the tokens, given which the rows are
independent, each row's density by solving for one score; tilts         the more heads,
the better: 2^24 draws of one head, weighted as y wants them; y is a sum of such heads;
particles     1,024 on each of 16 islands, and shorter steps of the noise.
"""

import argparse
import os
import time
import warnings
from itertools import product
from pathlib import Path
from unittest.mock import patch

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
import pandas as pd
from numpy.random import SeedSequence, default_rng
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp, softmax

from infattn_nb import Attention, Tokens
from infattn_nb.attention import joint as far_out
from infattn_nb.nonlinearities import identity
from infattn_nb.numerics.smc import pool

DATA = Path(__file__).parent.parent / "nbs/data"
TAU = 2.0  # standard deviation of a score


def layer(s, H):
    return Attention(Tokens(s, identity, cov=np.eye(s)), heads=H, var_q=TAU**2)


def point(s, H, r):
    return r * layer(s, H).law().marginal().std() * np.repeat([1.0, -1.0], s // 2)


# --- two tokens: quadrature


def two_tokens(nodes=121, width=8.0):
    """Covariances of one head (S₁₁, S₂₂, S₁₂) and their weights, by the trapezoidal
    rule for both differences of scores.
    """
    g, step = np.linspace(-width, width, nodes, retstep=True)
    p = 1 / (1 + np.exp(-TAU * np.sqrt(2) * g))
    w = np.exp(-g * g / 2) * step / np.sqrt(2 * np.pi)
    p, q = np.meshgrid(p, p)
    return np.stack(
        [p * p + (1 - p) ** 2, q * q + (1 - q) ** 2, p * q + (1 - p) * (1 - q)]
    ).reshape(3, -1), np.outer(w, w).ravel()


def by_sums(y, H):
    "log f for one head or two."
    S, w = two_tokens(1601 if H == 1 else 97)

    def log_normal(a, b, c):
        with np.errstate(all="ignore"):  # where both rows look at one token
            det = a * b - c * c
            log_f = (
                -(y[0] ** 2 * b - 2 * y[0] * y[1] * c + y[1] ** 2 * a) / det / 2
                - np.log(det) / 2
                - np.log(2 * np.pi)
            )
        return np.where(np.isfinite(log_f), log_f, -np.inf)

    with np.errstate(divide="ignore"):
        log_w = np.log(w)
    if H == 1:
        return logsumexp(log_w + log_normal(*S))
    return logsumexp(
        [
            log_w[k] + logsumexp(log_w + log_normal(*((S + S[:, k, None]) / 2)))
            for k in range(len(w))
            if w[k] > 1e-30
        ]
    )


def by_fourier(y, H, reach=11.0, points=140):
    """log f of a mean of H vectors: E exp(θᵀSθ/2) on a plane through the saddle point
    of E exp(θᵀSθ/2)^H exp(−θᵀy).
    """
    S, w = two_tokens(81)
    keep = w > 1e-20
    S, w = S[:, keep], w[keep]

    def log_mean(θ):  # (2, N), complex
        square = θ[0] ** 2, θ[1] ** 2, 2 * θ[0] * θ[1]
        parts = [
            np.exp(sum(x[k : k + 256, None] * v for x, v in zip(square, S)) / 2 / H) @ w
            for k in range(0, θ.shape[1], 256)
        ]
        return H * np.log(np.concatenate(parts))

    c = np.abs(y).max()
    θ = np.array([1.0, -1.0]) * c
    for _ in range(200):  # θ with E_θ[S] θ = y, by damped iteration
        e = w * np.exp(
            (S[0] * θ[0] ** 2 + S[1] * θ[1] ** 2 + 2 * S[2] * θ[0] * θ[1]) / 2 / H
        )
        m = S @ e / e.sum()
        θ = 0.5 * θ + 0.5 * np.linalg.solve([[m[0], m[2]], [m[2], m[1]]], y)
    t, step = np.linspace(-reach, reach, points, retstep=True)
    u = np.stack(np.meshgrid(t, t)).reshape(2, -1)
    z = θ[:, None] + 1j * u
    ratio = log_mean(z) - log_mean(θ[:, None].astype(complex))
    integral = np.exp(ratio - 1j * (y @ u)).sum().real * step**2 / (2 * np.pi) ** 2
    return float(
        log_mean(θ[:, None].astype(complex))[0].real - θ @ y + np.log(integral)
    )


# --- one head or two: the values of the tokens first

OVER = np.array(
    [0.25, 0.5, 1.0]
)  # how far the values are beyond what y needs, in units of 3/far


def draw_far(far, H, size, rng):
    "A large value of each head (size, H), whose mean is beyond `far`, as it must be."
    beyond = far + rng.choice(OVER, size) / far * rng.gamma(3, 1.0, size)
    if H == 1:
        return beyond[:, None]
    first = far + rng.standard_normal(size)
    return np.stack([first, far + beyond - first], axis=1)


def log_far(z, far):  # a large value of each head [(...), …]
    "The log density of these."
    x = (sum(z) - len(z) * far)[..., None]
    scaled = np.maximum(x, 1e-300) * far / OVER
    log_f = (
        logsumexp(2 * np.log(scaled) - scaled + np.log(far / OVER), axis=-1)
        - gammaln(3)
        - np.log(len(OVER))
    )
    log_f = np.where(x[..., 0] > 0, log_f, -np.inf)
    return (
        log_f if len(z) == 1 else log_f - (z[0] - far) ** 2 / 2 - np.log(2 * np.pi) / 2
    )


def log_ratio(z, far):  # values (n, H, s)
    "log N(z)/q(z): in each head any two tokens, equally likely, are the large ones."
    n, H, s = z.shape
    log_normal = -z * z / 2 - np.log(2 * np.pi) / 2

    def over_normal(z, log_normal):
        heads = [
            (x[:, :, None] if H == 2 and a == 0 else x[:, None] if H == 2 else x)
            for a, x in enumerate(z.swapaxes(0, 1))
        ]
        base = [
            (x[:, :, None] if H == 2 and a == 0 else x[:, None] if H == 2 else x)
            for a, x in enumerate(log_normal.swapaxes(0, 1))
        ]
        return (log_far(heads, far) - sum(base)).reshape(n, -1)  # (n, s) or (n, s²)

    up, down = over_normal(z, log_normal), over_normal(-z, log_normal)
    k = np.stack(np.unravel_index(np.arange(s**H), (s,) * H))
    apart = (k[:, :, None] != k[:, None]).all(0)
    top_up, top_down = up.max(1, keepdims=True), down.max(1, keepdims=True)
    both = ((np.exp(up - top_up) @ apart) * np.exp(down - top_down)).sum(1)
    return H * np.log(s * (s - 1)) - np.log(both) - top_up[:, 0] - top_down[:, 0]


def by_values(y, H, size, rng, inner=256):
    """log f, its standard error, effective draws. Given the values z (H, s) of the
    tokens y_i is Σ_a softmax(g_ai)·z_a/√H with independent rows, and the density of
    each is a mean over all its scores but one, for which the equation is solved. Of
    each head the values of two tokens, any two, are drawn far out, where y wants them;
    4,096 at a time, each time from a new child of the seed.
    """
    s = len(y)
    far = np.abs(y).max() / np.sqrt(H)
    parts = []
    for child in rng.spawn(size // 2**12):
        z = child.standard_normal((2**12, H, s))
        pairs = np.argsort(child.random(z.shape), -1)
        np.put_along_axis(
            z, pairs[..., :1], draw_far(far, H, 2**12, child)[..., None], -1
        )
        np.put_along_axis(
            z, pairs[..., 1:2], -draw_far(far, H, 2**12, child)[..., None], -1
        )
        with np.errstate(all="ignore"):
            log_w = log_ratio(z, far)
        for i in range(s):
            log_w += np.concatenate(
                [
                    row_density(z[k : k + 64], y[i], inner, child)
                    for k in range(0, len(z), 64)
                ]
            )
        parts.append(log_w)
    log_w = np.concatenate(parts)
    w = np.exp(log_w - log_w.max())
    effective = w.sum() ** 2 / (w @ w)
    return (
        logsumexp(log_w) - np.log(len(w)),
        np.sqrt(1 / effective - 1 / len(w)),
        effective,
    )


def row_density(z, y, inner, rng):  # z (n, H, s)
    "log of an unbiased estimate of the density of one output, given the values: (n,)."
    n, H, s = z.shape
    g = TAU * rng.standard_normal((n, inner, H, s))
    a = np.exp(g[..., 1:, :])
    t = np.sqrt(H) * y - ((a * z[:, None, 1:]).sum(-1) / a.sum(-1)).sum(
        -1
    )  # what is left to the first head
    j = z[:, 0].argmax(-1) if y > 0 else z[:, 0].argmin(-1)
    solved = z[np.arange(n), 0, j][:, None]
    e = np.exp(g[:, :, 0])
    e[np.arange(n), :, j] = 0.0
    right = (e * (t[..., None] - z[:, None, 0])).sum(-1)
    with np.errstate(all="ignore"):
        score = np.log(right / (solved - t))
        slope = np.abs(e.sum(-1) / right + 1 / (solved - t)) * np.sqrt(H)
        log_f = (
            np.log(slope) - (score / TAU) ** 2 / 2 - np.log(TAU * np.sqrt(2 * np.pi))
        )
        return logsumexp(np.where(np.isnan(log_f), -np.inf, log_f), axis=1) - np.log(
            inner
        )


# --- many heads: each of them tilted towards y

SHIFTS = np.array(
    [0.0, 0.5, 1.0, 1.5, 2.0]
)  # of the scores that y wants large, in standard deviations


def draw_heads(s, size, rng):
    """S (size, s, s) of one head and log p/q, drawn where y = c (1, …, 1, −1, …, −1)
    wants it: the scores of one token are larger in the upper rows, those of another in
    the lower rows; any two tokens, equally likely.
    """
    upper = np.arange(s) < s // 2
    pairs = np.array([(j, k) for j in range(s) for k in range(s) if j != k])
    shift = rng.choice(SHIFTS, size)
    N = rng.standard_normal((size, s, s))
    rows = np.where(upper, *pairs[rng.integers(len(pairs), size=size)].T[..., None])
    N[np.arange(size)[:, None], np.arange(s), rows] += shift[:, None]
    large = N[:, upper].sum(1)[:, pairs[:, 0]] + N[:, ~upper].sum(1)[:, pairs[:, 1]]
    log_q = logsumexp(
        [logsumexp(c * large, axis=1) - s * c * c / 2 for c in SHIFTS], axis=0
    ) - np.log(len(SHIFTS) * len(pairs))
    A = softmax(TAU * N, axis=-1)
    return A @ A.mT, -log_q


def by_tilts(y, H, rng, size=2**17, times=128):
    """log f, its standard error. y is a sum of independent y_a/√H, so f(y) = M(θ)^H
    exp(−θᵀy) f_θ(y): in f_θ each head is tilted by exp(θᵀS_aθ/2H), whose mean is M.
    Given tilted heads y is N(Sθ, S), where S is their mean; and θ is such that E_θ[S] θ
    is y.
    """

    def tilted(c, S, log_w):
        θ = c * np.sign(y)
        log_w = log_w + np.einsum("i,nij,j->n", θ, S, θ) / 2 / H
        return θ, log_w, np.exp(log_w - log_w.max())

    def beyond(c, S, log_w):
        θ, _, w = tilted(c, S, log_w)
        return θ @ (w @ (S @ θ)) / w.sum() - θ @ y

    c = brentq(beyond, 1e-3, 100.0, args=draw_heads(len(y), size, rng))
    log_M, log_f = [], []
    for child in rng.spawn(times):
        S, log_w = draw_heads(len(y), size, child)
        θ, log_w, w = tilted(c, S, log_w)
        S = S[child.choice(size, (size // 16, H), p=w / w.sum())].mean(1)
        off = y - S @ θ
        square = (off * np.linalg.solve(S, off[..., None])[..., 0]).sum(1)
        log_normal = -(square + np.linalg.slogdet(2 * np.pi * S)[1]) / 2
        log_M.append(logsumexp(log_w) - np.log(size))
        log_f.append(logsumexp(log_normal) - np.log(len(S)))
    (a, a_error, _), (b, b_error, _) = pool(log_M), pool(log_f)
    return H * a - θ @ y + b, np.hypot(H * a_error, b_error)


# --- many more particles


def by_particles(y, H, islands=16):
    """log f and its standard error, from islands four times as large that take smaller
    steps.
    """
    target = far_out.observed(layer(len(y), H), y)
    first, *seeds = SeedSequence(77).spawn(islands + 1)
    with patch.multiple(far_out, PARTICLES=1024, KEPT_WEIGHTS=0.95, MOST_LEVELS=400):
        _, path = far_out.approach(target, first)
        return pool([far_out.approach(target, seed, path)[0] for seed in seeds])[:2]


def reference(s, H, r):
    "The value, its error, and where they are from."
    y = point(s, H, r)
    if s == 2:
        return by_fourier(y, H) if H > 2 else by_sums(y, H), 0.0, "quadrature"
    if H == 1 or H == 2 and s == 4:
        value, error, effective = by_values(y, H, 2**17, default_rng(2))
        if effective > 1000:
            return value, error, "values"
    if H > 1:
        value, error = by_tilts(y, H, default_rng(2))
        if error < 0.1:
            return value, error, "tilts"
    return *by_particles(y, H), "particles"


# --- the estimate under many seeds


def estimates(s, H, r, seeds, minutes):
    "(value, error) of the default under these seeds, as many as fit; seconds of each."
    law = layer(s, H).law()
    y = point(s, H, r)
    found, began = [], time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            if len(found) > 1 and time.perf_counter() - began > 60 * minutes:
                break
            found.append(law.logpdf(y, rng=seed, return_error=True))
    return np.array(found), (time.perf_counter() - began) / len(found)


def row(s, H, r, seeds, minutes, stored=None):
    value, own, source = (
        reference(s, H, r)
        if stored is None
        else (stored["exact"], stored["exact_error"], stored["source"])
    )
    found, seconds = estimates(
        s, H, r, range(stored["seeds"] if stored else 0, seeds), minutes
    )
    fresh = summary(found, value, own) | dict(
        s=s,
        heads=H,
        r=r,
        source=source,
        exact=value,
        exact_error=own,
        value=found[0, 0],
        seconds=seconds,
    )
    return joined(stored, fresh) if stored else fresh


def summary(found, value, own):
    """Of those seeds whose error is finite; the others (`lost`) have said that they do
    not know.
    """
    known = found[np.isfinite(found[:, 1])]
    if not len(known):
        return dict(
            seeds=len(found),
            lost=len(found),
            error=0.0,
            most=0.0,
            worst=0.0,
            bias=0.0,
            spread=0.0,
        )
    off = (known[:, 0] - value) / np.hypot(known[:, 1], own)
    return dict(
        seeds=len(found),
        lost=len(found) - len(known),
        error=known[:, 1].mean(),
        most=known[:, 1].max(),
        worst=np.abs(off).max(),
        bias=(known[:, 0] - value).mean(),
        spread=known[:, 0].std(),
    )


def joined(a, b):
    "One row of the seeds of two."
    weights = np.array([row["seeds"] - row["lost"] for row in (a, b)])

    def mean(x, y):
        return np.average([x, y], weights=weights)

    bias = mean(a["bias"], b["bias"])
    spread = np.sqrt(
        mean(*(row["spread"] ** 2 + (row["bias"] - bias) ** 2 for row in (a, b)))
    )
    return {
        **b,
        "value": a["value"],
        "bias": bias,
        "spread": spread,
        **{k: a[k] + b[k] for k in ("seeds", "lost")},
        **{k: mean(a[k], b[k]) for k in ("error", "seconds")},
        **{k: max(a[k], b[k]) for k in ("most", "worst")},
    }


KEYS = ["s", "heads", "r"]
COLUMNS = [
    *KEYS,
    "source",
    "exact",
    "exact_error",
    "seeds",
    "lost",
    "value",
    "error",
    "most",
    "worst",
    "bias",
    "spread",
    "seconds",
]
CASES = [*product((2, 4, 8), (1, 2, 8), (4, 6, 8, 12))]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument(
        "--minutes", type=float, default=2.0, help="for the seeds of each row, at most"
    )
    parser.add_argument(
        "--tokens", type=int, nargs="*", default=[2, 4, 8], help="only these rows"
    )
    parser.add_argument(
        "--heads", type=int, nargs="*", default=[1, 2, 8], help="only these rows"
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="more seeds for rows of fewer, their references as they stand",
    )
    parser.add_argument(
        "--anew", action="store_true", help="all rows, also their references"
    )
    options = parser.parse_args()
    file = DATA / "joint.csv"
    for case in CASES:
        if case[0] not in options.tokens or case[1] not in options.heads:
            continue
        found = (
            pd.read_csv(file).set_index(KEYS).to_dict("index") if file.exists() else {}
        )
        stored = None if options.anew else found.get(case)
        if stored and not (options.again and stored["seeds"] < options.seeds):
            continue
        fresh = row(*case, options.seeds, options.minutes, stored)
        rows = (
            pd.read_csv(file).to_dict("records") if file.exists() else []
        )  # others may write, too
        rows = [r for r in rows if tuple(r[k] for k in KEYS) != case] + [fresh]
        print(
            {
                k: v if isinstance(v, str) else round(float(v), 4)
                for k, v in fresh.items()
            },
            flush=True,
        )
        pd.DataFrame(rows)[COLUMNS].sort_values(KEYS).to_csv(
            file, index=False, float_format="%.6g"
        )


if __name__ == "__main__":
    main()
