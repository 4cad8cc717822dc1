"""What the figures must show, read off the stored tables of the full protocol."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import nightly
from scipy.stats import kstest, norm, ttest_ind

from infattn_nb import CommonTokens, Nonlinearity, kl_divergence, paired_kl
from infattn_nb.convergence import kde, kde_kl
from infattn_nb.convergence.distances import kl_of_variances, paired_variances
from infattn_nb.nonlinearities import clip, relu
from infattn_nb.numerics import psd_factor
from infattn_nb.numerics.quadrature import line
from infattn_nb.paper import figures, paper_layer, read_table, sweep
from infattn_nb.paper.figures import GRID, HEAD_WIDTH, HEADS, LOW_RANK_HEADS, PLANS
from infattn_nb.paper.figures import STUDIES, WIDTHS, jobs_of
from infattn_nb.paper.tables import matching_rows

DATA = Path(__file__).parents[2] / "nbs/data"
table = lambda name: read_table(DATA / f"{name}.csv")
column = lambda data, **where: matching_rows(data, **where)[1]


def test_names_and_counts():
    assert (
        list(PLANS) == "fig1a fig1b fig2a fig2b fig3a fig3b relu_a relu_b heads".split()
    )
    assert [PLANS[name].study.samples for name in PLANS] == [50_000] * 6 + [
        100_000
    ] * 2 + [50_000]
    for name in PLANS:  # every trial of every cell is there
        data, cells = (
            table(name),
            {(c["n"], c["heads"]) for c in PLANS[name].study.cells},
        )
        assert set(zip(data["n"], data["heads"])) == cells
        if (data["trial"] >= 0).any():
            assert len(data["y"]) == 10 * len(
                np.unique(
                    [
                        f"{p} {n} {h}"
                        for p, n, h in zip(data["panel"], data["n"], data["heads"])
                    ]
                )
            )


@pytest.mark.power("slopes outside −2.05…−1.85; a floor 10 standard errors off")
@pytest.mark.parametrize(
    "name, points",
    [
        ("fig1b", [(n, 2) for n in WIDTHS]),
        ("relu_b", [(n, 2) for n in WIDTHS]),
        ("fig3b", [(HEAD_WIDTH * H, H) for H in LOW_RANK_HEADS]),
    ],
)
def test_divergences_decay_and_the_estimate_has_a_floor(name, points):
    data = table(name)
    law = np.array([column(data, panel="law", n=n, heads=H) for n, H in points])
    kde = np.array([column(data, panel="kde", n=n, heads=H) for n, H in points])
    se = law.std(1, ddof=1) / 10**0.5
    assert (np.diff(law.mean(1)) < -10 * np.hypot(se[1:], se[:-1])).all()
    # of n or of H: both grow by 4
    slope = np.log(law[-1].mean() / law[-2].mean()) / np.log(4)
    # −2, up to corrections of relative order 1/n or 1/H at the last but one point
    assert -2.05 < slope < -1.85
    assert kde[0].mean() > kde[-1].mean()
    assert kde[-1].mean() > 20 * law[-1].mean()
    floor = column(data, panel="kde", n=np.inf, heads=points[-1][1])
    assert (
        abs(kde[-1].mean() - floor.mean())
        < 10 * np.hypot(kde[-1].std(ddof=1), floor.std(ddof=1)) / 10**0.5
    )


@pytest.mark.parametrize("name, heads", [("fig1a", 2), ("relu_a", 2)])
@pytest.mark.long
def test_densities_come_down_to_the_limit(name, heads):
    data = table(name)
    far = np.abs(GRID) > 2.5
    f = [column(data, panel="law", n=n, heads=heads) for n in (*WIDTHS, np.inf)]
    for wide, narrow in zip(f[1:], f):
        assert (narrow[far] > wide[far]).all()
        assert narrow[GRID == 0] > wide[GRID == 0]  # heavier tails, higher peak
    limit = PLANS[name].study.cells[-1]
    options = {k: v for k, v in limit.items() if k not in ("n", "heads")}
    np.testing.assert_allclose(
        f[-1], paper_layer(heads, **options).law().marginal(0).pdf(GRID), rtol=1e-6
    )


@pytest.mark.parametrize("H", LOW_RANK_HEADS)
def test_low_rank_stays_close_to_its_limit(H):
    """Within a few hundredths of the peak, closer with more heads, with heavier tails;
    the estimate agrees with the law within its noise and smoothing.
    """
    data = table("fig3a")
    law, limit = (
        column(data, panel="law", n=n, heads=H) for n in (HEAD_WIDTH * H, np.inf)
    )
    assert np.abs(law - limit).max() < 0.05 / H**0.9 * limit.max()
    assert (law[np.abs(GRID) > 2.5] > limit[np.abs(GRID) > 2.5]).all()
    for n, f in ((HEAD_WIDTH * H, law), (np.inf, limit)):
        y, estimate, spread = matching_rows(data, panel="estimate", n=n, heads=H)
        # bandwidth²; smoothing adds h² f''/2
        h2 = 50_000**-0.4 * np.trapezoid(y * y * f, y)
        smoothed = f + h2 / 2 * np.gradient(np.gradient(f, y), y)
        inner = np.abs(y) < 1.5
        assert (np.abs(estimate - smoothed) < 10 * spread / 10**0.5 + h2**2)[
            inner
        ].all()


def test_one_head_is_more_peaked_than_many():
    data = table("fig2b")
    peak = lambda panel, H: column(data, panel=panel, heads=H)[GRID == 0][0]
    assert peak("limit", 1) > peak("limit", 256) > peak("gaussian", 256)
    assert peak("estimate", 1) > peak("estimate", 256)


def test_heads_follow_the_asymptote():
    "Slope −2, constant (3/16) CV⁴ = κ²/48, up to O(1/H)."
    data = table("heads")
    one = paper_layer(1).law().marginal(0)
    D = np.array([column(data, panel="law", heads=H)[0] for H in HEADS])
    H = np.array(HEADS)
    assert (np.abs(D * H**2 / (one.kurtosis() ** 2 / 48) - 1) < 0.5 / H).all()
    assert D[3] == pytest.approx(
        kl_divergence(paper_layer(8).law().marginal(0), norm(scale=one.std())), rel=1e-6
    )
    kde = np.array([column(data, panel="kde", heads=h) for h in HEADS])
    assert kde[0].mean() > kde[-1].mean() > 1000 * D[-1]


@pytest.mark.long
def test_smallest_run():
    "32 samples, one trial: figures of each kind still draw."
    for name in ("fig3a", "relu_b", "heads"):
        data, fig = PLANS[name].figure(trials=1, samples=32)
        assert len(fig.axes) >= 1
        assert set(data["trial"]) <= {-1, 0}


@pytest.mark.power("30 % of the divergence")
def test_any_seed():
    "fig3b at the first point, other seeds: the same within errors."
    stored = column(table("fig3b"), panel="law", n=64, heads=1)
    fresh = [
        sweep(
            "fig3b", trials=2, samples=20_000, rng=k, keep=lambda cell: cell["n"] == 64
        )
        for k in (1, 2)
    ]
    for data in fresh:
        _, D, error = matching_rows(data, panel="law", n=64)
        assert (
            np.abs(D - stored.mean())
            < 10 * np.hypot(error, stored.std(ddof=1) / 10**0.5)
        ).all()


def explicit_panels(cell, samples, rng):
    """One trial of figure 1 or its ReLU relative as they once were: every number from
    draws of its own, every coordinate drawn.
    """
    n, layer = (
        cell["n"],
        paper_layer(cell["heads"], cell.get("activation", clip(100.0))),
    )
    if layer.tokens.activation == relu:
        layer = replace(
            layer,
            tokens=CommonTokens(
                4, Nonlinearity(plain_relu, closed_form=relu.closed_form)
            ),
        )
    y, z = (
        law.marginal(0, draws=16).rvs(samples, g)
        for law, g in zip((layer.law(n), layer.law()), rng.spawn(2))
    )
    density = layer.law(n).marginal(0, draws=samples, rng=rng).pdf(GRID[160::40])
    return (
        kde_kl(y, z),
        paired_kl(layer, n, draws=samples, rng=rng)[0],
        *density,
        *kde(y, GRID[160::40]),
    )


def plain_relu(x):
    return np.maximum(x, 0.0)


def shared_panels(cell, job):  # the same numbers from the study's shared draws
    (panels,) = job.run()
    density, divergence = panels["density"], panels["divergence"]
    return (
        divergence["kde"][2],
        divergence["law"][2],
        *density["law"][2][160::40],
        *density["estimate"][2][160::40],
    )


def both_streams(study, n, trials, samples, seed):
    study, wanted = STUDIES[study], lambda cell: cell["n"] == n
    jobs = jobs_of(study, trials, samples, seed, keep=wanted)
    new = [shared_panels(job.cells[0], job) for job in jobs]
    old = [
        explicit_panels(jobs[0].cells[0], samples, g)
        for g in np.random.default_rng(seed).spawn(trials)
    ]
    return ttest_ind(new, old, equal_var=False).pvalue


@pytest.mark.power(
    "means of 16 trials of 1000 samples: a divergence 21 % off, or a law whose "
    "tokens all have the same length"
)
@pytest.mark.parametrize(
    "study, n",
    [
        ("fig1", 256),
        ("relu", 16),
        *(
            pytest.param(*x, marks=pytest.mark.slow)
            for x in (("fig1", 16), ("relu", 256))
        ),
    ],
)
@pytest.mark.long
def test_shared_draws_agree_with_draws_of_their_own(study, n):
    assert both_streams(study, n, 16, 1000, 0).min() > 1e-6


@pytest.mark.power(
    "it must reject: tokens without the length of h⁰; heads of a hundred times the "
    "width"
)
@pytest.mark.parametrize(
    "wrong", nightly(["_factor_of_sums", "paired_variances"], "paired_variances")
)
@pytest.mark.long
def test_wrong_draws_are_seen(wrong, monkeypatch):
    broken = {
        "_factor_of_sums": lambda sums, n, rng: np.repeat(
            psd_factor(sums[n] / n)[:, :, None, None], 3, axis=-2
        ),
        "paired_variances": lambda layer, L, m, rng: paired_variances(
            layer, L, 100 * m, rng
        ),
    }
    monkeypatch.setattr(figures, wrong, broken[wrong])
    assert both_streams("relu", 16, 16, 1000, 0).min() < 1e-6


@pytest.mark.long
def test_the_nodes_of_a_limit_are_its_law():
    "Sampling them changes no probability by more than 1e-11."
    for H in (1, 2, 256):
        law = paper_layer(H).law().marginal(0)
        y = np.linspace(-12, 12, 2401)
        f, error = law.pdf(y, return_error=True)
        assert np.trapezoid(error, y) < 1e-11
        assert abs(law.weights.sum() - 1) < 1e-12


@pytest.mark.power("distribution functions .02 apart")
def test_samples_node_by_node():
    law = paper_layer(2).law().marginal(0)
    assert (
        kstest(figures._rvs(law, 20_000, np.random.default_rng(0)), law.cdf).pvalue
        > 1e-7
    )


def test_a_divergence_needs_few_points():
    "Variances far from zero: 21 points see what 67 do; near zero they do not."
    rng = np.random.default_rng(0)
    u, change = rng.uniform(0.2, 1, 6400), 0.1 * rng.standard_normal(6400)
    for power, enough in ((1, True), (12, False)):
        v = u**power * np.stack([1 + change, 1 - change, np.ones(6400)])
        few, many = (
            kl_of_variances(v, *line(np.sqrt(v[2].mean()), **options))[0]
            for options in (dict(a=1.0), {})
        )
        assert (abs(few / many - 1) < 1e-6) == enough


@pytest.mark.slow
def test_drawing_needs_neither_seaborn_nor_pyplot():
    code = (
        "import sys, infattn_nb.paper.command; "
        "print(*{'seaborn', 'pandas', 'matplotlib.pyplot'} & set(sys.modules))"
    )
    assert not subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()
