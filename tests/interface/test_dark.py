"""Every public plot can be read on a dark page: what is drawn stands out from what is
behind it.
"""

import inspect
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.collections import Collection, QuadMesh
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from public import PUBLIC
from results import (
    TRANSFORMER,
    X,
    chain,
    circuits,
    descent,
    law,
    program,
    regressor,
    slopes,
    training,
)

from infattn_nb import Attention, Tokens, limit_error, report, scan
from infattn_nb.huggingface import CoordinateCheck, RateTransfer
from infattn_nb.nonlinearities import gelu
from infattn_nb.paper import read_table

DATA = Path(__file__).parents[2] / "nbs/data"
LEAST = 3  # of graphical objects, and of large text (WCAG 2.1)
PLOTS = {
    "HierarchicalGaussian.plot": lambda: law().plot(),
    "LimitErrorResult.plot": lambda: limit_error(
        Attention(Tokens(3, gelu, cov=np.eye(3))), 256, draws=2**14
    ).plot(),
    "Program.draw": lambda: program().draw(),
    "Training.plot": lambda: training().plot(),
    "RateTransfer.plot": lambda: RateTransfer(
        [32, 64], [0.1, 1.0], np.ones((2, 2, 3)), np.ones((2, 3)), False, {}
    ).plot(),
    "CoordinateCheck.plot": lambda: CoordinateCheck(
        [8, 16], [1], ["logits"], np.ones((2, 1, 1, 2)), dict(parametrization="mup")
    ).plot(),
    "Chain.plot": lambda: [
        chain().plot(beside=chain(np.inf)),
        chain().plot(what="entropy", beside=chain(np.inf)),
        chain(scores=True).plot(what="attention"),
    ],
    "Gradients.plot": lambda: [
        slopes().plot(beside=slopes(np.inf)),
        slopes().plot(what="stream"),
    ],
    "AttentionDescent.plot": lambda: [descent().plot(), descent(heads=np.inf).plot()],
    "CircuitDescent.plot": lambda: [circuits().plot()],
    "AttentionRegressor.plot": lambda: regressor().plot(),
    "AttentionRegressor.plot_attention": lambda: regressor().plot_attention(X[:4]),
    "Scan.plot": lambda: scan(
        TRANSFORMER, scores=(0.5, 1, 2), residual=(0.5, 1), size=2, rng=0
    ).plot(),
    "Report.plot": lambda: report(TRANSFORMER, size=4, rng=0).plot(),
}


def stored(name):
    "The figure of the paper, from the table that the page stores."
    table = name.removeprefix("figure_").replace("1", "fig1")
    table = table.replace("2", "fig2").replace("3", "fig3")
    table = table.replace("_", "") if table[0] == "f" else table
    return PUBLIC[name](read_table(DATA / f"{table}.csv"))[1]


FIGURES = [name for name in PUBLIC if name.startswith("figure_")]
PLOTS |= {name: partial(stored, name) for name in FIGURES}


def luminance(colour):
    "Of a colour, as WCAG defines it."
    c = np.array(to_rgb(colour))
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def visible(colours):
    "Those of some colours that are drawn at all."
    return [c for c in colours if not (isinstance(c, str) and c == "none")]


def colours_of(artist):
    "What an artist is drawn in: one of these must stand out."
    if isinstance(artist, Text):
        return [artist.get_color()] if artist.get_text().strip() else []
    if isinstance(artist, Line2D):
        if not len(artist.get_xdata()):
            return []
        line = [artist.get_color()] if artist.get_linestyle() != "None" else []
        marks = [artist.get_markerfacecolor(), artist.get_markeredgecolor()]
        return line or (marks if artist.get_marker() not in ("None", "", " ") else [])
    if isinstance(artist, QuadMesh):
        return []
    if isinstance(artist, Collection):
        edges = artist.get_edgecolor()
        return [*edges[:1], *artist.get_facecolor()[:1]]
    if isinstance(artist, Patch):
        face, edge = artist.get_facecolor(), artist.get_edgecolor()
        return [c for c in (face, edge) if to_rgba(c)[3]]
    return []


def behind(artist, figure):
    "The ground: the box of a text, the axes, or the figure."
    if isinstance(artist, Text) and artist.get_bbox_patch() is not None:
        return artist.get_bbox_patch().get_facecolor()
    axes = artist.axes
    inside = axes is not None and axes.axison and not isinstance(artist, Text)
    return axes.get_facecolor() if inside else figure.get_facecolor()


def faint(figure):
    "[(artist, contrast), …] of what does not stand out."
    figure.canvas.draw()
    grounds = [figure.patch, *(ax.patch for ax in figure.axes)]
    frames = [
        f for x in figure.findobj(plt.matplotlib.legend.Legend) for f in [x.legendPatch]
    ]
    grids = [
        g for ax in figure.axes for g in (*ax.get_xgridlines(), *ax.get_ygridlines())
    ]
    boxes = [t.get_bbox_patch() for t in figure.findobj(Text)]
    skipped = {id(x) for x in (*grounds, *frames, *grids, *boxes)}
    found = []
    for artist in figure.findobj(lambda x: x.get_visible() and id(x) not in skipped):
        colours = visible(colours_of(artist))
        if not colours:
            continue
        best = max(contrast(c, behind(artist, figure)) for c in colours)
        if best < LEAST:
            found.append((artist, round(best, 2)))
    return found


def figures_of(drawn):
    "The figures of axes, of arrays of them, or of a figure."
    if isinstance(drawn, (list, np.ndarray)):
        return {figure for x in drawn for figure in figures_of(x)}
    return {getattr(drawn, "figure", drawn)}


@pytest.mark.parametrize("name", PLOTS)
@pytest.mark.slow
def test_what_is_drawn_stands_out_on_a_dark_page(name):
    with plt.style.context("dark_background"):
        for figure in figures_of(PLOTS[name]()):
            assert not faint(figure)
    plt.close("all")


def test_black_on_black_is_seen():
    with plt.style.context("dark_background"):
        figure, ax = plt.subplots()
        ax.plot([0, 1], color="black")
        ax.text(0, 0, "a word", color="0.2")
        ax.axvline(0.5, color="w")
        assert [type(x).__name__ for x, _ in faint(figure)] == ["Line2D", "Text"]
    plt.close("all")


def test_every_public_plot_is_looked_at():
    methods = {
        f"{name}.{method}"
        for name, kind in PUBLIC.items()
        if inspect.isclass(kind)
        for method in vars(kind)
        if method == "draw" or method.startswith("plot")
    }
    assert methods <= set(PLOTS)
    assert len(FIGURES) == 9
