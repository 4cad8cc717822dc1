# %% gr-imports
from dataclasses import dataclass
from functools import partial

import numpy as np

from infattn_nb.numerics import checks
from infattn_nb.numerics.sampling import draw, pieces
from infattn_nb.transformers.blocks import positions_of
from infattn_nb.transformers.residual_gradients import normed, random_readout
from infattn_nb.transformers.residual_gradients import through_norm, through_step
from infattn_nb.transformers.transformer import Chain, chain_parts, run, width_of

# %% gr-walk
def walk_back(t, run, n, cov, rng):
    """From the readout to the embeddings.

    Parameters
    ----------
    t : Transformer
        The network.
    run : Run
        b samples of it, with all that was kept.
    n : float
        Width.
    cov : ndarray, (s, s)
        Covariance of the readout.
    rng : numpy.random.Generator
        Source of random numbers.

    Yields
    ------
    Gradient, Stream, dict
        After each block, from the last to the embeddings; and the sizes of the
        gradients in the block that was just passed (empty at the start).
    """
    x = run.streams[-1]
    positions = positions_of(len(t.cov), t.texts)
    g = random_readout(x, cov, rng)
    if t.last_norm:
        D = t.last_norm.factor(x)
        g = through_norm(g, normed(x, D, t.last_norm.kind), D, t.last_norm.kind)
    yield g, x, {}
    for block, record in zip(reversed(t.stack), reversed(run.records)):
        sizes = {}
        for branches, step in zip(reversed(block.sums), reversed(record.steps)):
            more, g = through_step(step, g, block, branches, positions, rng)
            sizes |= more
        yield g, record.steps[0].x, sizes

# %% gr-class
@dataclass(frozen=True, eq=False)
class Gradients:
    r"""What `Transformer.gradients` draws: arrays with leading axes `size`.

    The loss is $\sum_i\langle r_i, x^i\rangle$ with a random readout r; $X_l$ is the
    stream after l blocks, before a final norm.

    Parameters
    ----------
    chain : Chain
        The way there of the same networks.
    gram : ndarray, (..., L + 1, s, s)
        dX_l dX_lᵀ.
    inner : ndarray, (..., L + 1, s, s)
        dX_l X_lᵀ.
    norms : dict
        "q", "k", "v", "o", "1", "2", "3", "b1", "b2" -> (..., L): θ = ‖∂loss/∂w‖² of
        the matrices (and biases) W = σw/√fan-in with w standard normal; NaN where a
        block has none.
    weight_norms : dict
        The same of ‖∂loss/∂W‖²: infinite where the fan-in is.
    tangent : ndarray, (...) or (..., k, k)
        Sum of all θ; between k texts, the matrix of inner products of the gradients.
    """
    chain: object
    gram: np.ndarray
    inner: np.ndarray
    norms: dict
    weight_norms: dict
    tangent: np.ndarray

    @property
    def cosine(self):
        "Cosines between the gradients of tokens, (..., L + 1, s, s); 0 if one is zero."
        d = np.sqrt(np.diagonal(self.gram, axis1=-2, axis2=-1))
        lengths = d[..., :, None]*d[..., None, :]
        blank = np.zeros(lengths.shape)
        return np.divide(self.gram, lengths, out=blank, where=lengths > 0)

    def __repr__(self):
        *size, points, s, _ = self.gram.shape
        squares = np.einsum("...lii->...l", self.gram).reshape(-1, points).mean(0)
        lines = [f"Gradients: {tuple(size)} networks, {points - 1} blocks, {s} tokens",
                 f"  gram, inner {self.gram.shape}: ‖dX‖² {_ends(squares)}"]
        for name, θ in list(self.norms.items())[:5]:
            mean = θ.reshape(-1, points - 1).mean(0)
            lines.append(f"  norms[{name!r}] {θ.shape}: {_ends(mean)}")
        lines.append(f"  tangent {self.tangent.shape}: {self.tangent.mean():.4g}")
        return "\n".join(lines)

    def plot(self, ax=None):
        """Mean θ of every matrix, block by block, on a logarithmic scale.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        matplotlib.axes.Axes
            The picture.
        """
        import matplotlib.pyplot as plt # late: it takes time
        if ax is None:
            _, ax = plt.subplots()
        for name, θ in self.norms.items():
            mean = θ.reshape(-1, θ.shape[-1]).mean(0)
            ax.semilogy(np.arange(1, len(mean) + 1), mean, "o-", ms=3, label=name)
        ax.set(xlabel="block", ylabel="θ")
        ax.legend(title="matrix", ncols=2)
        return ax

def _ends(x):
    return f"{x[0]:.3g} … {x[-1]:.3g}"

# %% gr-gradients
def gradients(t, width=None, size=1, rng=None, executor=None, *, readout="last",
              texts=None):
    """Exact draws of the gradients of a random transformer.

    Parameters
    ----------
    t : Transformer
        The network.
    width : float, optional
        n, at least 2s + 1, or ∞; None is the width that `t` remembers, or ∞.
    size : int or tuple of int, default 1
        Networks.
    rng : None, int, SeedSequence or Generator
        Seed.
    executor : concurrent.futures.Executor, optional
        Who computes; None = threads.
    readout : "last", "mean" or ndarray (s, s), default "last"
        Columns of r are independent N(0, readout/n): one random vector for the last
        token of each text, or for the mean of its tokens, or any covariance.
    texts : sequence, (s,), optional
        A label per token, for tangent kernels between texts; None = those of `t`.

    Returns
    -------
    Gradients
        Gram matrices, norms, tangent kernels, and the forward chain.

    Raises
    ------
    ValueError, TypeError
        In one sentence, for a width, a readout or texts that cannot be.
    """
    n = width_of(t, width)
    s = len(t.cov)
    if n < 2*s + 1:
        checks.refuse("width", f"be at least 2s + 1 = {2*s + 1} for gradients",
                      f"{n:g}", "take fewer tokens, or width=np.inf")
    labels = _checked_texts(t, texts)
    cov = _checked_readout(readout, s, labels)
    names = _names(t)
    sample = partial(_draw_gradients, t, n, cov, labels, names)
    forward, mean, _, entropy, E, inner, Θ, *sizes = draw(sample, size, rng, executor)
    chain = Chain(forward, mean, entropy, texts=t.texts)
    norms = {}
    weight_norms = {}
    for name, x in zip(names, sizes):
        norms[name] = _per_block(t, _variance, name)*x
        weight_norms[name] = _times_fan_in(_per_block(t, partial(_fan_in, n), name), x)
    return Gradients(chain, E, inner, norms, weight_norms, Θ)

# %% gr-draw
#| code-fold: true
_KEPT = 2**21 # numbers held at a time: sixteen megabytes

def _draw_gradients(t, n, cov, labels, names, size, rng):
    "Any number of networks, in pieces whose records fit into the cache."
    parts = None
    for k, b in pieces(size, max(1, _KEPT//_numbers(t, n))):
        some = _some_gradients(t, n, cov, labels, names, b, rng)
        if parts is None:
            parts = [np.empty((size, *x.shape[1:])) for x in some]
        for part, x in zip(parts, some):
            part[k:k + b] = x
    return tuple(parts)

def _numbers(t, n):
    "How many numbers the records of a network hold, roughly."
    s = len(t.cov)
    total = 1.
    for block in t.stack:
        heads, units = block.attention, block.feedforward
        if heads is not None:
            m = heads.width_of_heads(n)
            coordinates = 0 if m == np.inf else 3*min(m, 2*s)
            total += heads.heads*s*(4*s + coordinates)
        if units is not None:
            total += s*(2*units.units*n if n < np.inf else 8*s)
    return int(total)

def _some_gradients(t, n, cov, labels, names, b, rng):
    "b networks there and back: what a chain holds, E, dX Xᵀ, Θ, sizes by name."
    there = run(t, n, 0, b, rng, "all")
    shots = list(walk_back(t, there, n, cov, rng))[::-1]
    E = np.stack([g.gram() for g, _, _ in shots], axis=1)
    inner = np.stack([g.inner(x) for g, x, _ in shots], axis=1)
    per_block = [sizes for _, _, sizes in shots[:-1]]
    Θ = 0.
    for block, sizes in zip(t.stack, per_block):
        Θ = Θ + sum(_variance(block, name)*x for name, x in sizes.items())
    totals = [_totals(per_block, name, b) for name in names]
    parts = chain_parts(t, there.streams[0], there.records)
    return [*parts, E, inner, _of_texts(Θ, labels), *totals]

def _totals(per_block, name, b):
    "‖∂loss/∂W‖²/fan-in of a matrix in each block, (b, L)."
    absent = np.full((b, 1, 1), np.nan)
    sizes = [block.get(name, absent).sum((-2, -1)) for block in per_block]
    return np.stack(sizes, axis=1)

def _of_texts(Θ, labels):
    "Sums over the tokens of each pair of texts."
    if labels is None:
        return Θ.sum((-2, -1))
    member = np.equal.outer(np.arange(labels.max() + 1), labels).astype(float)
    return member @ Θ @ member.T

# %% gr-matrices
#| code-fold: true
def _names(t):
    "Of all matrices and biases that get a gradient, in order."
    heads = any(block.attention for block in t.stack)
    units = [block.feedforward for block in t.stack if block.feedforward]
    names = ["q", "k", "v", "o"] if heads else []
    names += ["1", "2"] if units else []
    names += ["3"] if any(f.gated for f in units) else []
    names += ["b1"] if any(f.var_b1 for f in units) else []
    return names + (["b2"] if any(f.var_b2 for f in units) else [])

def _variance(block, name):
    "fan-in × variance of an entry; NaN where there is no such matrix."
    branch = block.attention if name in "qkvo" else block.feedforward
    return getattr(branch, f"var_{name}", np.nan)

def _fan_in(n, block, name):
    "Of a matrix; a bias has one."
    a, f = block.attention, block.feedforward
    if (a if name in "qkvo" else f) is None:
        return np.nan
    if name == "o":
        return a.heads*a.width_of_heads(n)
    if name == "2":
        return f.units*n
    return 1. if name.startswith("b") else n

def _per_block(t, what, name):
    return np.array([what(block, name) for block in t.stack], dtype=float)

def _times_fan_in(fan_in, x):
    "fan-in × x: infinite with the fan-in, but 0 where x is."
    y = np.zeros(x.shape)
    return np.multiply(fan_in, x, out=y, where=x != 0)

# %% gr-check
#| code-fold: true
def _checked_readout(readout, s, labels):
    "Covariance of the readout over the tokens."
    if not isinstance(readout, str):
        cov = checks.cov(readout, "readout", single=True)
        if len(cov) != s:
            checks.refuse("readout", f"have shape ({s}, {s})", cov.shape,
                          "one row per token")
        return cov
    checks.choice(readout, "readout", ("last", "mean"))
    labels = np.zeros(s, int) if labels is None else labels
    weights = np.zeros(s)
    for text in range(labels.max() + 1):
        tokens = np.flatnonzero(labels == text)
        if readout == "last":
            weights[tokens[-1]] = 1
        else:
            weights[tokens] = 1/len(tokens)
    return np.outer(weights, weights)

def _checked_texts(t, texts):
    "Labels 0, 1, … of texts that do not see each other."
    if texts is None:
        return t.texts
    s = len(t.cov)
    labels = list(texts)
    if len(labels) != s:
        checks.refuse("texts", f"hold one label per token, {s}", len(labels),
                      "pass e.g. text_labels(texts)")
    number = {label: k for k, label in enumerate(dict.fromkeys(labels))}
    labels = np.array([number[label] for label in labels])
    apart = ~np.equal.outer(labels, labels)
    for block in t.stack:
        if block.attention is not None:
            allowed = block.attention.allowed(s, t.texts)
            if apart.any() and (allowed is None or (allowed & apart).any()):
                checks.refuse("texts", "not see each other", "a mask that lets them",
                              "pass `texts` to the Transformer")
    return labels
