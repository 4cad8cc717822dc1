"""What the live figures of the site do not compute themselves: limit laws, kurtoses, tails and first corrections,
in a few numbers each. Ten Gauss nodes carry a law much further than a line can show. Everything else is drawn in
the browser (`nbs/live`); the tests compare both with the library.

    python tools/live_tables.py

writes the tables that are missing in `nbs/data` (some ten minutes for all)."""
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.stats import norm

from infattn_nb.convergence.divergence import kl_divergence, paired_kl
from infattn_nb.convergence.rates import first_order
from infattn_nb.layer.attention import Attention
from infattn_nb.layer.tokens import Tokens
from infattn_nb.numerics.nonlinearities import identity, tanh
from infattn_nb.numerics.quadrature import gauss, jacobi

TAUS = (*np.arange(0, 3, .25), *np.arange(3., 11)) # score standard deviations
HEADS = (1, 2, 4, 8, 16, 32, 64)
TOKENS = (2, 4, 8, 16)
NODES = 10

def short(x): # numbers
    "Six digits each, as lists for JSON."
    return [float(f"{v:.6g}") for v in np.ravel(x)]

def layer_at(τ, # score standard deviation
             heads, # H
             tokens, # s
            ): # Attention
    "The layer on independent unit tokens."
    return Attention(Tokens(tokens, identity, np.eye(tokens)), heads, var_q=τ**2)

def few_nodes(law): # ScaleMixture -> (v, w) of a Gauss rule in log v
    "Nodes and weights that carry a law as far as a drawn line can show."
    v = law.v
    w = law.w
    if v.size > NODES:
        x, w = (a[0] for a in gauss(jacobi(np.log(v)[None], w[None], NODES)))
        v = np.exp(x[w > 1e-14])
        w = w[w > 1e-14]
    return dict(v=short(v), w=short(w/w.sum()))

def law_entry(τ, # score standard deviation
              heads, # H
              tokens, # s
             ): # dict: nodes v and weights w, kurtosis, tail ratio at 6 sd
    "One law as the live figures use it."
    law = layer_at(float(τ), heads, tokens).law().marginal(0)
    ratio = law.sf(6*law.std())/norm.sf(6)
    numbers = dict(zip(("kurtosis", "ratio"), short([law.kurtosis(), ratio])))
    return few_nodes(law) | numbers

def laws_table(): # dict for data/kernel.json
    "All laws of the random-kernel machine and of the map."
    laws = {f"{s},{H}": [law_entry(τ, H, s) for τ in TAUS]
            for s in TOKENS for H in HEADS}
    return dict(tau=short(TAUS), heads=HEADS, tokens=TOKENS, laws=laws)

FINITE = 16, 64, 256 # widths

def finite_entry(τ, heads, tokens): # [{v, w} for each width]
    "The laws of three finite widths as the machine uses them."
    layer = layer_at(float(τ), heads, tokens)
    return [few_nodes(layer.law(n).marginal(0, draws=2**16)) for n in FINITE]

def finite_table(): # dict for data/finite.json
    "Laws of finite width: few tokens, few heads."
    laws = {f"{s},{H}": [finite_entry(τ, H, s) for τ in TAUS]
            for s in TOKENS[:2] for H in HEADS[:4]}
    return dict(widths=FINITE, laws=laws)

POINTS = np.linspace(0, 7, 29) # y in standard deviations
CORRECTED = {2: TAUS[2::3], 4: (.5, 1., 2., 3., 5., 8.)} # where f₁ is stored

def correction_entry(τ, heads, tokens): # f₁ at POINTS
    "The first-order correction to one density."
    layer = layer_at(float(τ), heads, tokens)
    return short(first_order(layer, POINTS*layer.law().marginal(0).std()))

def map_table(): # dict for data/map.json
    "What the map of regimes knows beyond the laws."
    cells = [(s, H, τ) for s, taus in CORRECTED.items()
             for H in HEADS[:4] for τ in taus]
    f1 = {f"{s},{H},{τ:g}": correction_entry(τ, H, s) for s, H, τ in cells}
    stored = "2 and 4 tokens, up to 8 heads, and some scales"
    widths = (4, 8, 16, 32, 64, 256, 1024)
    return dict(y=short(POINTS), widths=widths, stored=stored, f1=f1)

def perceptron_limit(): # float
    r"$\mathbb{E}\cos(y)$ for the perceptron $y = W^2\tanh(W^1x)$ on a unit token."
    return float(np.exp(-tanh.dual([[1.]])[0, 0]/2))

JUDGED = dict(tau=(.3, .5, 1., 2., 4.), heads=HEADS[:6], tokens=TOKENS,
              width=(64, 256, 768, 1024, 4096), kind=("n × n", "n/H"))

def tail_ratio(law):
    "How much likelier than a Gaussian an output is beyond six standard deviations."
    return law.sf(6*law.std())/norm.sf(6)

def judge_entry(τ, heads, tokens, width, kind): # [divergence, kurtosis, tail ratio]
    "How far a finite layer is from its limit."
    limit = layer_at(τ, heads, tokens)
    m = None if kind == "n × n" else width//heads
    layer = replace(limit, head_width=m)
    D, _ = paired_kl(layer, width, draws=2**14, rng=0, limit=limit)
    law = layer.law(width).marginal(0, draws=2**16)
    return short([max(D, 0.), law.kurtosis(), tail_ratio(law)])

def limit_entry(τ, heads, tokens): # [divergence from Gaussian, kurtosis, tail ratio]
    "How far the limit is from the Gaussian of its variance."
    law = layer_at(τ, heads, tokens).law().marginal(0)
    gaussian = norm(scale=law.std())
    return short([kl_divergence(law, gaussian), law.kurtosis(), tail_ratio(law)])

def judge_table(): # dict for data/judge.json
    "Everything that the calculator says."
    J = JUDGED
    cells = [(τ, H, s) for τ in J["tau"] for H in J["heads"] for s in J["tokens"]]
    limits = {f"{τ:g},{H},{s}": limit_entry(τ, H, s) for τ, H, s in cells}
    widths = {f"{τ:g},{H},{s},{n},{k}": judge_entry(τ, H, s, n, k)
              for τ, H, s in cells for n in J["width"] for k in J["kind"]}
    return J | dict(limits=limits, widths=widths)

TABLES = {"kernel.json": laws_table, "map.json": map_table, "finite.json": finite_table,
          "judge.json": judge_table,
          "theorem.json": lambda: dict(perceptron=perceptron_limit())}

if __name__ == "__main__":
    folder = Path(__file__).parent.parent/"nbs/data"
    for name, table in TABLES.items():
        if not (folder/name).exists():
            text = json.dumps(table(), separators=(",", ":")) + "\n"
            (folder/name).write_text(text, encoding="utf-8")
