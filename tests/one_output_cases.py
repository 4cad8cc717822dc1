"""Laws of one output and their exact logarithms, by quadrature in extended precision
that shares no code with the package.
"""

from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, roots_genlaguerre
from scipy.stats import gamma

from infattn_nb import Attention, Tokens

GAUSS = np.polynomial.legendre.leggauss(16)


def log_sum(terms):
    terms = np.asarray(terms, np.longdouble)
    top = terms.max()
    return float(top + np.log(np.exp(terms - top).sum())) if top > -np.inf else top


def panels(ends):
    "Nodes and weights on panels with the given ends."
    ends = np.unique(np.asarray(ends, np.longdouble))
    half = np.diff(ends) / 2
    nodes = (ends[1:] + ends[:-1])[:, None] / 2 + half[:, None] * GAUSS[0]
    return nodes.ravel(), (half[:, None] * GAUSS[1]).ravel()


def two_tokens(K, row, variance, bias):
    """Variances v and log-weights of one head's output: a difference of two scores is
    one normal, and v a square, by expm1, plus a constant.
    """
    first, both, second = (Fraction(float(K[j])) for j in ((0, 0), (0, 1), (1, 1)))
    D = first + second - 2 * both
    τ = np.sqrt(np.longdouble(variance * K[row, row]) * np.longdouble(float(D)))
    shift = np.longdouble(bias[row, 0] - bias[row, 1])
    rest = np.longdouble(float((first * second - both * both) / D))
    best = (second - both) / D  # the weight with the smallest variance
    inside = 0 < best < 1
    odds = np.longdouble(float(best / (1 - best))) if inside else 1
    middle = (np.log(odds) - shift) / τ if inside else np.longdouble(0)
    steps = np.concatenate([np.arange(0, 10, 0.2), np.arange(10, 60, 1.5)])
    steps = np.concatenate([-steps, steps])
    near = 10 ** np.arange(-30, 1, 0.4) / τ
    ends = [-shift / τ + steps / τ - middle, np.arange(-44, 44, 0.3) - middle]
    t, w = panels(np.concatenate([*ends, -near, near, [0]]))
    far = np.abs(t + middle) > 44
    t, w = t[~far], w[~far]
    d = shift + τ * (middle + t)
    share = 1 / (1 + np.exp(np.minimum(-d, 11000)))
    off = share - np.longdouble(float(best))
    if inside:
        near = np.where(np.abs(τ * t) < 1, t, 0)
        exact = -share * np.longdouble(float(1 - best)) * np.expm1(-τ * near)
        off = np.where(near == 0, off, exact)
    v = np.longdouble(float(D)) * off**2 + rest
    z = middle + t
    return v, np.log(w) - z * z / 2 - np.log(2 * np.pi) / 2


def log_terms(name, y, v):
    if name == "logpdf":
        return -y * y / (2 * v) - np.log(2 * np.pi * v) / 2
    return log_ndtr((-y / np.sqrt(v)).astype(float))


def of_one_head(name, y, v, log_w):
    return log_sum(log_terms(name, y, v) + log_w)


def of_heads(name, y, v, log_w, heads):
    """By the moment generating function on two rays from its saddle point, which bend
    to the right: f(y) = ∫ exp(H log E exp(s²v/2H) − sy) ds/2πi, and another factor 1/s
    for a tail. NaN if two angles give two values: a rare large v makes the integrand
    grow along rays that bend too far, and oscillate along others.
    """
    v = v.astype(float)
    log_w = log_w.astype(float)

    def slope(s):
        ω = s * s * v / (2 * heads) + log_w
        w = np.exp(ω - ω.max())
        return s * (w @ v) / w.sum()

    low, high = 0.0, 1.0
    while slope(high) < y:
        high *= 2
    for _ in range(60):
        mid = (low + high) / 2
        low, high = (mid, high) if slope(mid) < y else (low, mid)
    θ = high
    ω = θ * θ * v / (2 * heads) + log_w
    log_m = log_sum(ω)
    ω = ω - log_m
    kept = ω > -60
    w, v = np.exp(ω[kept]), v[kept]
    width = 1 / np.sqrt(w @ v)
    length = min(width / 2, 8 / (θ * v[w > 1e-17].max()))

    def along(angle):
        "The integral over π, and the largest term relative to the saddle point's."
        ray = np.exp(1j * angle)
        reach = 12 * width + 45 / (y * np.cos(angle))
        t, dt = panels(np.arange(0, reach + length, length))
        t, dt = t.astype(float), dt.astype(float)
        total, largest = 0.0, 0.0
        for k in range(0, len(t), 256):
            s = θ + ray * t[k : k + 256]
            z = (s * s - θ * θ)[:, None] * v / (2 * heads)
            m = (np.exp(z) @ w) ** heads * np.exp((θ - s) * y)
            largest = max(largest, np.abs(m).max())
            m = m / s if name == "logsf" else m
            total += ((ray * m).imag * dt[k : k + 256]).sum()
            if largest > 10 or np.abs(m).max() < 1e-25:
                break
        return total / np.pi, largest

    found = [along(steps / 32 * np.pi) for steps in (11.5, 12.5, 13.5, 14.5, 15.25)]
    found = [total for total, largest in found if largest < 10 and total > 0]
    if len(found) < 2 or abs(found[0] / found[1] - 1) > 1e-11:
        return np.nan
    return heads * log_m - θ * y + np.log(found[0])


def of_two_heads(name, y, v, log_w):
    "All pairs of nodes."
    v, log_w = v.astype(float), log_w.astype(float)

    def pairs(v, log_w, v1, log_w1):
        parts = []
        for k in range(0, len(v), 256):
            pair = (v[k : k + 256, None] + v1) / 2
            terms = log_terms(name, y, pair) + log_w[k : k + 256, None] + log_w1
            parts.append(log_sum(terms.ravel()))
        return log_sum(parts)

    best = np.clip(y * y, v / 2, (v + v.max()) / 2) if name == "logpdf" else v.max() + v
    most = log_terms(name, y, best) + log_w  # no pair with this node has a larger term
    kept = most > pairs(v[::20], log_w[::20], v[::20], log_w[::20]) - 50
    v, log_w = v[kept], log_w[kept]
    return pairs(v, log_w, v, log_w)


def narrow(K, row, variance, bias, m):
    """A head of m columns: given χ²/m, which multiplies the variance of the score, one
    integral; a second χ²/m multiplies v.
    """
    x, w_x = roots_genlaguerre(40, m / 2 - 1)
    t, w_t = panels(np.linspace(-9, 9, 19))
    log_g = np.log(w_t) - t * t / 2 - np.log(2 * np.pi) / 2
    D = K[0, 0] + K[1, 1] - 2 * K[0, 1]
    τ = np.sqrt(variance * K[row, row] * D * 2 * x / m)
    share = 1 / (1 + np.exp(-(bias[row, 0] - bias[row, 1] + np.multiply.outer(τ, t))))
    rest = 1 - share
    v = share**2 * K[0, 0] + rest**2 * K[1, 1] + 2 * share * rest * K[0, 1]
    log_w = np.log(w_x / w_x.sum())[:, None] + log_g
    log_c, w_c = panels(np.linspace(-9, 3, 9))
    log_c, w_c = log_c.astype(float), w_c.astype(float)
    of_c = gamma.logpdf(np.exp(log_c), m / 2, scale=2 / m) + log_c + np.log(w_c)
    v = np.multiply.outer(np.exp(log_c), v.astype(float).ravel())
    return v.ravel(), np.add.outer(of_c, log_w.astype(float).ravel()).ravel()


def one_token(n):
    "One token at width n: v is a product of two χ²/n."
    log_c, w_c = panels(np.linspace(-12, 3.5, 17))
    log_c, w_c = log_c.astype(float), w_c.astype(float)
    of_c = gamma.logpdf(np.exp(log_c), n / 2, scale=2 / n) + log_c + np.log(w_c)
    return np.exp(np.add.outer(log_c, log_c)).ravel(), np.add.outer(of_c, of_c).ravel()


def three_tokens(variance):
    "Three independent tokens of unit variance: two normals."
    near = np.concatenate([np.arange(0, 10, 0.5), np.arange(10, 45, 5.0)])
    lines = np.concatenate([near, -near]) / np.sqrt(variance)
    reach = 14.0
    t, w = panels(np.concatenate([lines, np.arange(-reach, reach + 1, 1.0)]))
    t, w = t[np.abs(t) < reach].astype(float), w[np.abs(t) < reach].astype(float)
    log_g = np.log(w) - t * t / 2 - np.log(2 * np.pi) / 2
    e = np.array([[1, -1, 0], [1, 1, -2]]) / np.sqrt([[2], [6]])
    scores = np.sqrt(variance) * (t[:, None, None] * e[0] + t[None, :, None] * e[1])
    a = np.exp(scores - scores.max(-1, keepdims=True))
    a /= a.sum(-1, keepdims=True)
    return (a**2).sum(-1).ravel(), np.add.outer(log_g, log_g).ravel()


class Case(NamedTuple):
    "A law, a point in standard deviations, and what the point is about."

    kind: str
    layer: Attention
    row: int
    y: float
    name: str
    exact: float
    width: float = np.inf


def covariance(rng):
    "A covariance of two tokens: any, opposite, parallel up to scale, or nearly so."
    sd = 10 ** rng.uniform(-1, 1, 2)
    kind = rng.integers(5)
    if kind == 0:  # exactly opposite: powers of two
        sd = 2.0 ** rng.integers(-2, 3, 2)
        return np.outer([sd[0], -sd[1]], [sd[0], -sd[1]])
    ρ = rng.uniform(-0.95, 0.95)
    if kind == 1:
        ρ = rng.choice([-1, 1]) * (1 - 10 ** rng.uniform(-7, -1))
    K = np.array([[1, ρ], [ρ, 1]]) * np.outer(sd, sd)
    return (K + K.T) / 2


def masked(K, row, rng):
    "The two tokens among three; the row does not attend to the third."
    at = np.sort(rng.choice(3, 2, replace=False))
    big = np.diag(rng.uniform(0.5, 2, 3))
    big[np.ix_(at, at)] = K
    mask = np.ones((3, 3), dtype=bool)
    other = 3 - at.sum()
    mask[at[row], other] = False
    return big, mask, at


def case(rng):
    "One law and one point, both at random."
    K = covariance(rng)
    row = int(rng.integers(2))
    variance = 10 ** rng.uniform(-2, 2.5)
    bias = rng.choice([0, 1]) * rng.normal(0, 2, (2, 2))
    heads = int(rng.choice([1, 1, 1, 1, 2, 3, 8]))
    options = dict(heads=heads, var_q=variance)
    i = row
    if rng.random() < 0.25:
        big, mask, at = masked(K, row, rng)
        shift = np.zeros((3, 3))
        shift[np.ix_(at, at)] = bias
        tokens = Tokens(3, "identity", cov=big)
        layer = Attention(tokens, mask=mask, bias=shift, **options)
        i = int(at[row])
    else:
        layer = Attention(Tokens(2, "identity", cov=K), bias=bias, **options)
    v, log_w = two_tokens(K, row, variance, bias)
    sd = float(np.sqrt((np.exp(log_w) * v).sum()))
    name = str(rng.choice(["logpdf", "logsf"]))
    peak = heads == 1 and name == "logpdf" and rng.random() < 0.4
    near = peak or (heads > 1 and rng.random() < 0.05)
    y = sd * (10 ** rng.uniform(-14, 0) if near else rng.uniform(0, 40))
    if heads == 1:
        exact = of_one_head(name, y, v, log_w)
    else:
        exact = of_heads(name, y, v, log_w, heads) if heads > 2 and y > sd else np.nan
        if np.isnan(exact):
            layer = replace(layer, heads=2)
            exact = of_two_heads(name, y, v, log_w)
    kind = "peak" if peak else f"{min(heads, 2)} heads"
    return Case(kind, layer, i, y, name, exact)
