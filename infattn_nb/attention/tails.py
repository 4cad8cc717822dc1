"""A few Gauss nodes describe the middle of a law of one output. Its tails and peaks are computed from panels that are short where the score matters."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, log_softmax, logsumexp

from ..distributions.scale_mixture import TINIEST, ScaleMixture
from ..numerics.linalg import psd_factor, without_zeros
from ..numerics.quadrature import gauss, jacobi, root_between
from ..numerics.workers import pieces

REACH = 46. # normals beyond are left out: their probability is exp(−1061)
LEAST = 1e-150 # distance from a zero of u, as a change of the scores
RAY_STEP = .3 # panels on the ray of t, as powers of ten
LEAST_OF_HEADS = 1e-20 # the density of several heads is finite

@dataclass(frozen=True, eq=False)
class OneScore:
    r"$u(g)=|\sum_ja_jm_j|^2$ with $a$ the softmax of $b_j+l_jg$."
    slopes: np.ndarray # l (s,)
    bias: np.ndarray # b (s,)
    values: np.ndarray # m (s, k)

    @property
    def span(self):
        "The largest change of a difference of scores with g."
        return np.ptp(self.slopes)

    @cached_property
    def crossings(self):
        "The g at which two scores are equal, and the length on which they change by 1."
        j, k = np.triu_indices(len(self.slopes), 1)
        change = self.slopes[j] - self.slopes[k]
        moving = np.abs(change) > 1e-9*self.span
        at = (self.bias[k] - self.bias[j])[moving]/change[moving]
        return at, 1/np.abs(change[moving])

    def slope(self, g):
        "Half the derivative of u."
        log_a = self.bias + np.multiply.outer(g, self.slopes)
        a = np.exp(log_softmax(log_a, axis=-1))
        x = a @ self.values
        mean = a @ self.slopes
        dx = (a*self.slopes) @ self.values - mean[..., None]*x
        return (x*dx).sum(-1)

    @cached_property
    def lowest(self):
        "The g at which u has its smallest minimum within reach, otherwise 0."
        at, length = self.crossings
        steps = np.arange(-REACH, REACH, .25)
        g = np.unique([steps, *(at[:, None] + np.multiply.outer(length, steps))])
        g = g[np.abs(g) < REACH]
        slope = self.slope(g)
        g, slope = g[slope != 0], slope[slope != 0]
        k = np.flatnonzero((slope[:-1] < 0) & (slope[1:] > 0))
        if not k.size:
            return 0.
        root = root_between(self.slope, (g[k], g[k + 1]))
        found = np.where(root.success, root.x, g[k]) # no success if u is constant
        weights = np.exp(log_softmax(self.bias + np.multiply.outer(found, self.slopes),
                                     axis=1))
        return found[np.argmin(((weights @ self.values)**2).sum(1))]

    @cached_property
    def middle(self):
        "Weights (s,) and output (k,) at the lowest point."
        a = np.exp(log_softmax(self.bias + self.lowest*self.slopes))
        x = a @ self.values
        return a, 0*x if self.singular else x

    @cached_property
    def singular(self):
        "Whether u vanishes at the lowest point."
        if self.values.shape[1] > 1:
            return False
        ends = self.bias + np.multiply.outer([-REACH, REACH], self.slopes)
        x = np.exp(log_softmax(ends, axis=1)) @ self.values
        return bool(x.min() < 0 < x.max())

    def u(self, t):
        "u at the distance t from its lowest point, to full relative accuracy."
        a, x = self.middle
        own = np.where(t > 0, self.slopes.max(), self.slopes.min())
        shift = np.multiply.outer(t, self.slopes) - (t*own)[:, None]
        near = np.abs(t)*self.span < 1
        moved = a*np.expm1(shift)
        with np.errstate(divide="ignore", invalid="ignore"): # far from the lowest point
            close = x + moved @ (self.values - x)/(1 + moved.sum(1))[:, None]
        scores = self.bias + np.multiply.outer(t + self.lowest, self.slopes)
        far = np.exp(log_softmax(scores, axis=1)) @ self.values
        return (np.where(near[:, None], close, far)**2).sum(1)

class Mesh(NamedTuple):
    "Lengths of panels and positions of tilts, relative to the finest rule."
    step: float = 1.
    tilt: float = 0.
    nodes: int = 80

NODES = 20 # of the Gauss–Legendre rule on each panel
MIDDLE = np.arange(0., 8., .2) # ends of panels: changes of a difference of scores
OUTER = np.arange(8., 16., .5)
OUTERMOST = np.arange(16., REACH, 2.)

def panel_ends(score, # OneScore
               step, # length of the panels, relative to the shortest
               least=LEAST, # distance from a zero of u
              ): # ascending distances from the lowest point
    "Ends of panels, short where scores cross and near the lowest point."
    at, length = score.crossings
    around = np.concatenate([MIDDLE*step, OUTER, OUTERMOST])
    around = np.concatenate([-around, around])
    crossing = (at[:, None] + np.multiply.outer(length, around)).ravel()
    normals = np.arange(-REACH, REACH, .5*step)
    t = np.concatenate([crossing, normals, [-REACH, REACH]]) - score.lowest
    if not score.singular:
        least = _least_distance(score)
    near = 10.**np.arange(np.log10(least)/step, .5, .5*step)/score.span
    t = np.concatenate([t[np.abs(t) > near[0]], -near, near])
    g = t + score.lowest
    return np.unique(t[np.abs(g) <= REACH])

def _least_distance(score):
    "A change of scores that hardly changes u at its lowest point."
    lowest, *others = score.u(np.array([0., -1., 1.])/score.span)
    return np.clip(.1*np.sqrt(lowest/max(others)), 1e-12, 1.)

def fine_points(score, # OneScore
                step, # length of the panels, relative to the shortest
                least=LEAST, # distance from a zero of u
               ): # u (N,), logarithms of the weights (N,)
    "Weighted points of u, whose weights may be as small as exp(−1000)."
    ends = panel_ends(score, step, least)
    x, w = np.polynomial.legendre.leggauss(NODES)
    half = np.diff(ends)/2
    t = ((ends[1:] + ends[:-1])/2)[:, None] + np.multiply.outer(half, x)
    log_w = np.log(np.multiply.outer(half, w))
    if score.singular: # the panel across the zero
        outside = ends[1:]*ends[:-1] > 0
        t, log_w = t[outside], log_w[outside]
    t = t.ravel()
    log_w = log_w.ravel() - (t + score.lowest)**2/2 - np.log(2*np.pi)/2
    parts = pieces(len(t), 2**14)
    u = np.concatenate([score.u(t[k:k+b]) for k, b in parts])
    return np.maximum(u, TINIEST), log_w

LOG_TERMS = {"logpdf": lambda y, v: -y*y/(2*v) - np.log(2*np.pi*v)/2,
             "logsf": lambda y, v: log_ndtr(-y/np.sqrt(v))}

def log_mean(name, # "logpdf" or "logsf"
             y, # (Y,), ≥ 0
             v, # variances (N,)
             log_w, # logarithms of their weights (N,)
            ): # (Y,)
    "Logarithm of the mean of the densities or tail probabilities of N(0, v)."
    value = np.empty(len(y))
    with np.errstate(over="ignore", under="ignore"):
        for k, b in pieces(len(y), max(1, 2**18//len(v))):
            terms = LOG_TERMS[name](y[k:k+b, None], v) + log_w
            value[k:k+b] = logsumexp(terms, axis=1)
    return value

class Tilted(NamedTuple):
    "A rule for the mean over heads, with its nodes where a tail needs them."
    v: np.ndarray # (m,)
    log_w: np.ndarray # (m,)

def tilted(u, # (N,)
           log_w, # (N,)
           heads, # H
           κ, # ≥ 0
           nodes=80, # of the rule
          ): # Tilted
    r"The law of $v=\frac1H\sum_au_a$, with nodes for weights times $e^{\kappa Hv}$."
    top = u.max()
    ω = log_w + κ*(u - top)
    total = logsumexp(ω)
    kept = ω > total - 80
    w = np.exp(ω[kept] - total)
    u = u[kept]
    unit = w @ u
    J = _mean([x[None] for x in jacobi(u/unit - 1, w)], heads)
    (x,), (share,) = gauss(J, nodes)
    v = unit*(1 + x[share > 0])
    ω = np.log(share[share > 0]) + heads*total
    return Tilted(v, ω - κ*heads*(v - top))

def _mean(J, heads):
    "Jacobi matrix of the mean of independent variables, by doubling."
    if heads == 1:
        return J
    half = _mean(J, heads//2)
    both = _joined(half, half, .5)
    return _joined(both, J, 1 - 1/heads) if heads % 2 else both

def _joined(J, J1, share):
    "Jacobi matrix of share·x + (1 − share)·x₁."
    x, w = gauss(J)
    x1, w1 = gauss(J1)
    both = share*x[..., None] + (1 - share)*x1[..., None, :]
    weights = w[..., None]*w1[..., None, :]
    return jacobi(both.reshape(len(x), -1), weights.reshape(len(x), -1))

TILTS = 1.25**np.arange(-24, 64) # of e^{κu}, in units of the mean of u

DIRECTION = np.exp(3j*np.pi/8) # of the ray: exp(-sy) and exp(s²v/2) decay along it

@dataclass(frozen=True, eq=False)
class FineLaw:
    "The law of one output whose scores differ by multiples of one normal."
    score: OneScore
    heads: int # H
    mesh: Mesh

    @cached_property
    def points(self):
        "Weighted points of one head's u."
        least = LEAST if self.heads == 1 else LEAST_OF_HEADS
        return fine_points(self.score, self.mesh.step, least)

    @cached_property
    def largest(self):
        "The largest variance."
        return self.points[0].max()

    @cached_property
    def deviation(self):
        "The standard deviation of the output."
        u, log_w = self.points
        return np.sqrt(np.exp(log_w) @ u)

    def evaluate(self, name, y): # "logpdf" or "logsf", y (Y,) ≥ 0
        "Logarithms of densities or of tail probabilities."
        if self.heads == 1:
            return log_mean(name, y, *self.points)
        value = np.empty(len(y))
        near = y < self.deviation
        value[near] = self.near(name, y[near])
        value[~near] = self.far(name, y[~near])
        return value

    @cached_property
    def tilts(self):
        "Tilts κ, and the y at whose tail each is best."
        u, log_w = self.points
        κ = TILTS*1.25**self.mesh.tilt/self.deviation**2
        top = u.max()
        ω = [log_w + k*(u - top) for k in κ]
        v = np.array([np.exp(x - logsumexp(x)) @ u for x in ω])
        return κ, v*np.sqrt(2*κ*self.heads + 1/v)

    @cached_property
    def rules(self):
        "Rules by the number of their tilt, made when they are needed."
        return {}

    def far(self, name, y): # (Y,)
        "Logarithms in the tails, where rules of few nodes are tilted."
        κ, best = self.tilts
        between = np.log(best[1:]*best[:-1])/2
        with np.errstate(divide="ignore"):
            which = np.searchsorted(between, np.log(y))
        value = np.empty(len(y))
        for k in np.unique(which):
            if k not in self.rules:
                self.rules[k] = tilted(*self.points, self.heads, κ[k], self.mesh.nodes)
            value[which == k] = log_mean(name, y[which == k], *self.rules[k])
        return value

    @cached_property
    def ray(self):
        "Points s on a ray, ds, and E exp(s²v/2) there."
        u, log_w = self.points
        kept = log_w > -50
        u = u[kept]
        w = np.exp(log_w[kept])
        first, last = np.log10([.1/self.deviation, self._longest])
        ends = np.r_[0., 10.**np.arange(first, last, RAY_STEP*self.mesh.step)]
        x, half = np.polynomial.legendre.leggauss(NODES)
        t = ((ends[1:] + ends[:-1])[:, None] + np.multiply.outer(np.diff(ends), x))/2
        dt = np.multiply.outer(np.diff(ends)/2, half).ravel()
        t = t.ravel()
        s = t*DIRECTION
        log_m = np.empty(len(s), complex)
        for k, b in pieces(len(s), max(1, 2**17//len(u))):
            z = np.multiply.outer(s[k:k+b]**2/(2*self.heads), u)
            log_m[k:k+b] = np.log(np.einsum("tu,u->t", np.exp(z), w))
        return t, s, dt, np.exp(self.heads*log_m)

    @property
    def _longest(self):
        "The t at which the characteristic function, or what is left of it, vanishes."
        least = max(self.points[0].min(), 1e-30*self.deviation**2)
        return 14/np.sqrt(least)

    def near(self, name, y): # (Y,)
        "Logarithms near zero, by an integral of the characteristic function."
        t, s, dt, m = self.ray
        value = np.empty(len(y))
        for k, b in pieces(len(y), max(1, 2**17//len(t))):
            f = np.exp(-np.multiply.outer(y[k:k+b], s))*m
            if name == "logpdf":
                value[k:k+b] = np.log((f @ (DIRECTION*dt)).imag/np.pi)
            else:
                angle = np.angle(DIRECTION)/np.pi
                value[k:k+b] = np.log(angle + (f @ (dt/t)).imag/np.pi)
        return value

TRIED = np.array([0., 1e-6, 1e-4, 1e-3, .01, .03, .1, .3, .6, 1., 2., 4.]) # deviations
AGREED = 1e-12 # largest difference of logarithms

@dataclass(frozen=True, eq=False)
class Middle:
    "The interval in which a few nodes give the same digits as a fine rule."
    law: ScaleMixture
    fine: FineLaw

    @cached_property
    def ends(self):
        "Smallest and largest |y|; (inf, 0) if the nodes are nowhere sufficient."
        y = TRIED*self.fine.deviation
        agree = np.ones(len(y), dtype=bool)
        for name in LOG_TERMS:
            change = getattr(self.law, f"_{name}_of_nodes")(y) - self.fine.evaluate(name, y)
            agree &= np.abs(change) < AGREED
        start = len(y) - 3 # one standard deviation
        if not agree[start]:
            return np.inf, 0.
        wrong = np.flatnonzero(~agree)
        low = wrong[wrong < start].max(initial=-1) + 1
        high = wrong[wrong > start].min(initial=len(y)) - 1
        return y[low], y[high]

@dataclass(frozen=True, eq=False)
class Tails:
    "Logarithms of densities and tail probabilities beyond the middle of a law."
    fine: FineLaw
    middle: Middle

    @property
    def largest(self):
        "The largest variance."
        return self.fine.largest

    def beyond(self, y):
        "Test which y the nodes of the law do not describe."
        low, high = self.middle.ends
        y = np.abs(y)
        return ((y < low) | (y > high)) & (y < np.inf)

    def evaluate(self, name, y): # "logpdf" or "logsf"
        "Logarithms at y of any sign, (Y,)."
        value = self.fine.evaluate(name, np.abs(y))
        if name == "logpdf":
            return value
        with np.errstate(divide="ignore"):
            return np.where(y < 0, np.log1p(-np.exp(value)), value)

OTHER_MESHES = Mesh(.9, .3, 76), Mesh(.8, .6, 72), Mesh(.85, .45, 68)

def with_tails(law, # a new ScaleMixture of few nodes, with replicates
               score, # OneScore
               heads, # H
              ): # ScaleMixture
    "A law whose tails and peaks are integrals over one score."
    fine = FineLaw(score, heads, Mesh())
    middle = Middle(law, fine)
    law.tails = Tails(fine, middle)
    law.singular = score.singular and heads == 1
    *meshes, last = OTHER_MESHES
    for part, mesh in zip(law.replicates, (*meshes, meshes[0])):
        part.tails = Tails(FineLaw(score, heads, mesh), middle)
    for part in law.coarse:
        part.tails = Tails(FineLaw(score, heads, last), middle)
        part.coarse = () # the nodes are used where they suffice
    return law

def one_score(layer, # Attention with softmax weights
              factor, # of the covariance of a row of the scores (s, 1)
              seen, # tokens to which the row may attend (s,)
              i, # row
             ): # OneScore
    "The scores of a row as functions of one normal; None for too many tokens."
    K = layer.tokens.kernel()[np.ix_(seen, seen)]
    if len(K) > MOST_LINES:
        return None
    bias = np.zeros(len(K)) if layer.bias is None else layer.bias[i, seen]
    values = np.sqrt(layer.output_variance)*_exact_factor(K)
    return OneScore(factor[seen, 0], bias, values)

MOST_LINES = 6 # tokens with different scores

def _exact_factor(K):
    "`psd_factor` without zeros; for two tokens without cancellation."
    if len(K) != 2 or not K[0, 0] > 0:
        return without_zeros(psd_factor(K))
    first, both, second = (Fraction(float(K[j])) for j in ((0, 0), (0, 1), (1, 1)))
    rest = float(second - both*both/first)
    if rest < 4*np.finfo(float).eps*K[1, 1]: # rounding of the covariance
        rest = 0.
    root = np.sqrt(K[0, 0])
    return without_zeros(np.array([[root, 0.], [K[0, 1]/root, np.sqrt(rest)]]))
