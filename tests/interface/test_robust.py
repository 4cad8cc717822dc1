"""What a second attack found: underflow that raises, tiny numbers, hints, pipes,
locales, archives, long chains.
"""

import copy
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib import import_module
from unittest.mock import patch

import numpy as np
import pytest
from numpy.random import default_rng

import infattn_nb
from infattn_nb import (
    Attention,
    AttentionRegressor,
    HierarchicalGaussian,
    Nonlinearity,
    Program,
    ScaleMixture,
    Tokens,
    Transformer,
    limit,
    limit_error,
    simulate,
)
from infattn_nb.attention import simulate_dense
from infattn_nb.learning import fitting
from infattn_nb.learning.sequences import sequences
from infattn_nb.netsor import attention, score_paths
from infattn_nb.netsor.score_paths import Batch
from infattn_nb.nonlinearities import (
    gelu,
    gelu_tanh,
    identity,
    leaky_relu,
    relu,
    silu,
    softplus,
    tanh,
)
from infattn_nb.numerics import linalg as factors
from infattn_nb.numerics.hermite import cross_moment
from infattn_nb.numerics.linalg import lower_times, psd_factor, times_lower
from infattn_nb.theory import compose

FOUR = Attention(Tokens(4, relu), heads=2)
rng = default_rng(0)
X = rng.standard_normal((6, 3, 2))
y = X[:, 0, 0]
SMALL = dict(n_particles=16, n_islands=2, n_moves=1, random_state=0)


@pytest.mark.parametrize("f", [gelu, gelu_tanh, silu, softplus, relu], ids=repr)
def test_functions_at_the_ends_of_the_numbers(f):
    "x Φ(x) is zero at -∞, not nan."
    with np.errstate(all="raise", under="ignore"):
        at = f(np.array([-np.inf, -1e200, np.inf, 1e200, np.nan]))
    np.testing.assert_array_equal(at, [0, 0, np.inf, 1e200, np.nan])
    assert abs(f(np.array([-8.0]))[0]) < 0.01
    assert f(np.array([5.0]))[0] > 4.9


@pytest.mark.long
def test_huge_scores_say_nothing():
    with np.errstate(all="raise", under="ignore"):
        assert Attention(
            Tokens(4, identity), var_q=1e300
        ).law().marginal().std() == pytest.approx(1)


def test_what_floats_cannot_hold_is_rejected():
    with pytest.raises(ValueError, match="`variances` must be zero or above"):
        ScaleMixture([1e-310, 1.0])
    with pytest.raises(ValueError, match="`var_v·var_o` must be 0 or at least"):
        Attention(Tokens(2, identity), var_o=1e-310)
    assert (
        Attention(Tokens(2, identity), var_o=1e-285).law().marginal().pdf(0.0) < 1e144
    )


def bad_sampler(n, g):
    return np.broadcast_to([[1, 0.5], [0, 1]], (n, 2, 2))


@pytest.mark.parametrize(
    "call, words",
    [
        (
            lambda: AttentionRegressor(random_state="a").fit(X, y),
            "`random_state` must be None, an integer",
        ),
        (
            lambda: AttentionRegressor(random_state=-1).fit(X, y),
            "`random_state` must be at least 0",
        ),
        (
            lambda: AttentionRegressor(readout="x").fit(X, y),
            "'mean' or the index of a token",
        ),
        (lambda: AttentionRegressor(readout=1.5).fit(X, y), "an integer or 'mean'"),
        (lambda: AttentionRegressor(readout=9).fit(X, y), "0…2 or 'mean'"),
        (lambda: AttentionRegressor(n_moves="x").fit(X, y), "'auto' or an integer"),
        (lambda: AttentionRegressor(n_moves=1.5).fit(X, y), "an integer or 'auto'"),
        (lambda: AttentionRegressor(optimizer="x").fit(X, y), "'evidence' or None"),
        (
            lambda: AttentionRegressor(normalize_y="yes").fit(X, y),
            "`normalize_y` must be True or False",
        ),
        (
            lambda: AttentionRegressor(verbose=1).fit(X, y),
            "`verbose` must be True or False",
        ),
        (
            lambda: AttentionRegressor().fit(np.ones((10**6, 1, 1)), np.ones(10**6)),
            "`X` must fit into .* GiB of memory, got 1,000,000 sequences",
        ),
        (
            lambda: AttentionRegressor(n_particles=10**9).fit(X, y),
            "`n_particles` must be at most",
        ),
        (lambda: Attention(Tokens(2, relu), mask="x"), "'causal' or a boolean array"),
        (lambda: Attention(Tokens(2, relu), mask=3), "boolean or 'causal'"),
        (
            lambda: Attention(Tokens(2, relu), heads="x"),
            "`heads` must be an integer or np.inf",
        ),
        (
            lambda: FOUR.law().rvs("x"),
            "`size` must be an integer or a tuple of integers",
        ),
        (
            lambda: infattn_nb.attention.simulate_dense(3, 8),
            "`layer` must be an Attention",
        ),
        (lambda: Tokens(2**63, relu), "`seq_len` must be at most"),
        (lambda: FOUR.law(2**63).rvs(2), "`width` must be at most 1e10"),
        (lambda: FOUR.law().marginal().logcdf("a"), "argument of logcdf"),
        (lambda: FOUR.law().marginal().interval("a"), "argument of interval"),
        (lambda: HierarchicalGaussian(bad_sampler, 2).rvs(2), r"S != Sᵀ"),
        (
            lambda: (
                Attention(
                    Tokens(3, relu),
                    var_q=400.0,
                    weights=lambda G: np.where(abs(G) > 9, np.nan, G),
                )
                .law()
                .rvs(4000, rng=0)
            ),
            r"`weights\(scores\)` must be finite",
        ),
    ],
)
def test_errors_name_what_was_given(call, words):
    "The argument's own name, and every kind that is legal."
    with pytest.raises((TypeError, ValueError), match=words):
        call()


def test_whole_floats_are_heads_everywhere():
    p = Program()
    assert len(attention(p, [relu(h) for h in p.inputs(np.eye(2))], 2.0)) == 2
    assert (
        infattn_nb.distributions.mixture_of_heads(
            [([0.5, 1.5], [0.5, 0.5])], heads=2.0
        ).std()
        == infattn_nb.distributions.mixture_of_heads(
            [([0.5, 1.5], [0.5, 0.5])], heads=2
        ).std()
    )
    with pytest.raises(TypeError, match="`heads` must be an integer"):
        attention(p, [relu(h) for h in p.inputs(np.eye(2))], np.inf)


COMMAND = (
    "from infattn_nb.paper.command import infattn_figures as f\n"
    "if __name__ == '__main__': f()\n"
)


@pytest.mark.slow
def test_interrupted_commands_say_so(tmp_path):
    "Ctrl-C gave an empty reason and 1."
    (tmp_path / "figures.py").write_text(COMMAND)
    call = [sys.executable, "figures.py", "--only", "fig1a", "--out", "out"]
    run = subprocess.Popen(call, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    for _ in range(600):
        if (tmp_path / "out").exists():
            break
        time.sleep(0.1)
    time.sleep(0.3)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "infattn_figures: interrupted" in said


@pytest.mark.parametrize(
    "call",
    [
        "paper.command infattn_figures --only fig2a --trials 1 --samples 32 --out out",
        pytest.param(
            "initialisation.report_command infattn_report gpt2 --tokens 2 --size 4 "
            "--width 96 --out r.html",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["figures", "report"],
)
@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.slow
def test_nobody_reads(call, buffered, tmp_path):
    """A reader who has gone is no fault of ours, whether it shows at the first line or
    when Python ends.
    """
    module, name, *options = call.split()
    undrawn = (
        "import infattn_nb.paper.command as c; "
        "c.files = lambda data, fig: [('csv', b'')]\n"
    )
    (tmp_path / "run.py").write_text(
        undrawn
        + COMMAND.replace("paper.command", module).replace("infattn_figures", name)
    )
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run(
        [sys.executable, "run.py", *options],
        cwd=tmp_path,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": buffered},
    )
    os.close(writer)
    assert run.returncode == 141
    assert not run.stderr


C_LOCALE = os.environ | dict(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")


@pytest.mark.slow
def test_figures_in_the_c_locale(tmp_path):
    """The last table held a dash that no such terminal knows: the command died after
    its work.
    """
    (tmp_path / "figures.py").write_text(COMMAND)
    call = [
        sys.executable,
        *"figures.py --only heads --trials 1 --samples 32 --out out".split(),
    ]
    run = subprocess.run(call, cwd=tmp_path, env=C_LOCALE, capture_output=True)
    assert run.returncode == 0, run.stderr
    assert b"wall time" in run.stdout, run.stderr


@pytest.mark.parametrize(
    "call",
    [
        lambda: infattn_nb.paper.sweep("fig1a", samples=10**20),
        lambda: infattn_nb.Transformer.uniform(np.eye(2), layers=10**9),
    ],
)
def test_numbers_that_never_end_are_rejected(call):
    with pytest.raises(ValueError, match="`(samples|layers)` must be at most"):
        call()


@pytest.mark.slow
def test_a_report_in_the_c_locale(tmp_path):
    (tmp_path / "report.py").write_text(
        COMMAND.replace("paper.command", "initialisation.report_command").replace(
            "infattn_figures", "infattn_report"
        )
    )
    call = [
        sys.executable,
        *"report.py gpt2 --tokens 2 --size 4 --width 96 --out r.html".split(),
    ]
    run = subprocess.run(call, cwd=tmp_path, env=C_LOCALE, capture_output=True)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "r.html").exists(), run.stderr


@pytest.mark.parametrize("axes", [(), (1,), (3, 2)])
def test_blas_does_what_einsum_did(axes):
    "Products with a constant factor: from so many rows on by BLAS."
    L = psd_factor(np.eye(7) + 0.3).reshape(7, 7, *[1] * len(axes))
    A = rng.standard_normal((5, 7, *axes))
    B = rng.standard_normal((7, 4, *axes))
    for f in (
        partial(times_lower, A, L),
        partial(times_lower, A, L, True),
        partial(lower_times, L, B),
    ):
        with patch.object(factors, "BLAS_ROWS", np.inf):
            slowly = f()
        with patch.object(factors, "BLAS_ROWS", 7):
            np.testing.assert_allclose(f(), slowly, rtol=1e-13, atol=1e-14, strict=True)


def chain(steps, φ=tanh):
    p = Program()
    W, x = p.matrix(), p.inputs(np.eye(1))[0]
    seen = []
    for _ in range(steps):
        seen.append(x := W @ φ(x))
    return p, seen


@pytest.mark.parametrize("φ", [tanh, relu], ids=repr)
def test_closed_forms_in_one_call(φ):
    """A chain that shares a matrix asks for all moments of a step at once: the same but
    for the last digits, in fewer calls.
    """
    p, seen = chain(12, φ)
    with patch.object(Batch, "_foresee", lambda *_: None):
        slowly = limit(p).cov(seen)
    rtol = max(1e-13, 10 * φ.closed_error)
    together = limit(p).cov(seen)
    np.testing.assert_allclose(together, slowly, rtol=rtol, atol=1e-15)


def test_seconds_before_a_fit():
    """Infinitely many heads take some; the ladder of many sequences is foretold from a
    part of them.
    """
    m = AttentionRegressor(np.inf, random_state=0)
    assert m.expected_seconds(X, y) > 0
    Z = rng.standard_normal((600, 3, 2))
    t = Z[:, 0, 0] + 0.1 * rng.standard_normal(600)
    one = AttentionRegressor(random_state=0, alpha=0.1)
    with patch.object(fitting, "PILOT_SEQUENCES", 128):
        few = fitting._rungs(one, sequences(Z), t[:, None])
    with patch.object(fitting, "PILOT_SEQUENCES", 600):
        whole = fitting._rungs(one, sequences(Z), t[:, None])
    assert whole / 2 < few < 2 * whole


def test_a_rough_posterior_is_said_in_the_same_words():
    "So that a search says it once for each setting, and names it."
    with pytest.warns(RuntimeWarning) as said:
        for k in range(2):
            AttentionRegressor(2, alpha=1e-4, **SMALL).fit(X + k, y + k)
    words = {str(w.message) for w in said if "the posterior is rough" in str(w.message)}
    assert len(words) == 1
    assert "AttentionRegressor(alpha=0.0001, heads=2" in words.pop()


def mixed(φs, mean=0.0):
    """An attention layer whose outputs go through several functions, with each other
    and with the inputs.
    """
    p = Program()
    h = p.inputs(np.eye(3) / 2 + 0.5, mean)
    x = [φs[0](u) for u in h]
    Q, K, V, O, W = (p.matrix(name) for name in "QKVOW")
    y = [
        O @ p.attend([p.score(Q @ u, K @ v) for v in x], [V @ v for v in x]) for u in x
    ]
    for u in [
        φs[1](y[0]) + φs[2](y[1]),
        φs[2](y[0] - y[1]),
        p.nonlin(np.cos, h[0]),
        φs[1](h[0]),
        *x[:2],
    ]:
        W @ u
    return p


@pytest.mark.filterwarnings("ignore::infattn_nb.AssumptionWarning")
@pytest.mark.parametrize(
    "φs, mean",
    [
        pytest.param((relu, tanh, gelu), 0.0, marks=pytest.mark.slow),
        ((tanh, relu, softplus), [0.3, -0.2, 0.0]),
    ],
)
def test_series_of_each_function_are_kept(φs, mean):
    """Products of different functions, path by path, as from the whole series of each
    pair: independent ones, correlated ones, ρ = 1.
    """
    seen, now = [], Batch._functions

    def both(self, X, Y, centred):
        found = now(self, X, Y, centred)
        if X.fn != Y.fn:
            (u,), (v,) = X.args, Y.args
            μ, ν = (self.mean(x) for x in (u, v))
            μ = np.zeros((1, 1)) if μ is None else μ
            ν = np.zeros((1, 1)) if ν is None else ν
            c = self.centred(u, v)
            c = np.zeros((1, 1, 1)) if c is None else c
            pairs = np.broadcast_arrays(
                μ[..., :, None],
                ν[..., None, :],
                self.variances(u)[..., :, None],
                self.variances(v)[..., None, :],
                c,
            )
            μ, ν, a, b, c = (x.ravel() for x in pairs)
            nodes = 2**14 if μ.size <= 16 else 2**12
            old = cross_moment(X.fn, Y.fn, (μ, ν), a, b, c, nodes)
            means = self.mean(X)[..., :, None] * self.mean(Y)[..., None, :]
            new = np.zeros(means.shape) if found is None else found
            new = (new + means if centred else new).ravel()
            seen.append((new, old, np.abs(c).max()))
        return found

    with (
        patch.object(Batch, "_functions", both),
        patch.object(score_paths, "CLOSE_NUMBERS", 0),  # four paths in each batch
    ):
        limit(mixed(φs, mean), draws=64)
    assert len(seen) > 5
    assert min(c for *_, c in seen) == 0 < max(c for *_, c in seen)
    for new, old, _ in seen:
        np.testing.assert_allclose(new, old, rtol=0, atol=1e-12)


HUGE = Attention(Tokens(3, relu), heads=10**30)


@pytest.mark.parametrize(
    "call, words",
    [
        (
            lambda: FOUR.law().fold(np.sum, 10**20),
            "`size` must be at most 1,000,000,000,000",
        ),
        (lambda: FOUR.law().cov(10**20), "`draws` must be at most"),
        (lambda: FOUR.law().logpdf([1.0, 2, 3, 4], 10**20), "`draws` must be at most"),
        (
            lambda: FOUR.law().logpdf([1.0, 2, 3, 4], islands=10**12),
            "`islands` must be at most",
        ),
        (lambda: FOUR.infinite_heads(10**12), "`draws` must be at most"),
        (lambda: HUGE.law().rvs(), "`heads` must be fewer than"),
        (lambda: HUGE.law().covariances(2), "`heads` must be fewer than"),
        (lambda: HUGE.law(8).marginal(), "`heads` must be fewer than"),
        (lambda: HUGE.scores(), "`heads` must be fewer than"),
        (lambda: replace(HUGE, heads=10**11).scores(), "`size` must fit into memory"),
        (lambda: simulate_dense(FOUR, 10**7), "`width` must fit into"),
        (lambda: simulate(*one_product(), 10**15), "`width` must fit into"),
        (lambda: simulate(*one_product(), 2**70), "`width` must fit into"),
        (
            lambda: simulate(*one_product(), 64, coords=10**30),
            "`coords` must be at most",
        ),
        (
            lambda: limit(one_product()[0]).rvs(one_product()[1], coords=10**30),
            "`coords` must be at most",
        ),
        (lambda: limit(one_product()[0], draws=10**15), "`draws` must be at most"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
@pytest.mark.long
def test_what_would_never_end_is_rejected(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def one_product():
    p = Program()
    W, x = p.matrix(), p.inputs(np.eye(1))[0]
    return p, [W @ tanh(x)]


@pytest.mark.slow
def test_huge_numbers_that_need_no_draws():
    "The law of one output and E S know any number of heads."
    two = replace(HUGE, tokens=Tokens(2, relu)).law()
    assert two.marginal().kurtosis() < 1e-25
    assert np.isfinite(two.cov(100)).all()


def same_bytes(_):
    "What is computed once and kept, from many threads at once."
    layer = Attention(Tokens(4, relu), heads=3, var_o=1.2345)
    p, y = one_product()
    return b"".join(
        np.asarray(x).tobytes()
        for x in (
            layer.law().marginal().pdf(np.linspace(-3, 3, 9)),
            layer.law().rvs(5000, 7),
            layer.law(16).covariances(100, 3),
            limit(p).cov(y),
        )
    )


@pytest.mark.slow
def test_eight_threads_agree():
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(same_bytes, range(8)))
    assert found == {same_bytes(0)}


def frozen_things():
    "One of each class that is a value."
    p, y = one_product()
    yield from (
        FOUR,
        FOUR.tokens,
        FOUR.law(),
        FOUR.law(8),
        FOUR.law().marginal(),
        FOUR.law().marginal()(1.0, 2.0),
        HierarchicalGaussian.constant(np.eye(2)),
    )
    yield from (
        leaky_relu(0.1),
        compose(tanh, relu),
        Transformer.uniform(np.eye(3), layers=1, heads=1),
        limit_error(FOUR, 256, draws=2**12),
        p,
        limit(p),
    )


@pytest.mark.parametrize("thing", [*frozen_things()], ids=lambda x: type(x).__name__)
def test_copies_are_the_same(thing):
    for again in (
        pickle.loads(pickle.dumps(thing)),
        copy.deepcopy(thing),
        copy.copy(thing),
    ):
        assert type(again) is type(thing)
        assert type(thing).__repr__ is object.__repr__ or repr(again) == repr(thing)
        if isinstance(thing, (Attention, Tokens, Nonlinearity)):
            assert again == thing
            assert hash(again) == hash(thing)
        if hasattr(thing, "rvs") and not isinstance(
            thing, type(limit(one_product()[0]))
        ):
            assert np.array_equal(
                again.rvs(3, 0)
                if isinstance(thing, HierarchicalGaussian)
                else again.rvs(3, rng=0),
                thing.rvs(3, 0)
                if isinstance(thing, HierarchicalGaussian)
                else thing.rvs(3, rng=0),
            )


@pytest.mark.parametrize(
    "made",
    [
        np.float32,
        np.float16,
        np.longdouble,
        int,
        np.asfortranarray,
        lambda x: np.stack([x, x], -1)[..., 0],
    ],
    ids=["float32", "float16", "longdouble", "int", "Fortran", "strided"],
)
@pytest.mark.filterwarnings("ignore:.*lie so far out")
def test_any_array_of_the_same_numbers(made):
    "Kinds and layouts of arrays, read-only too, change nothing."
    K = np.array([[2, 1, 0], [1, 2, 1], [0, 1, 2]])
    given = made(K) if callable(made) and not isinstance(made, type) else K.astype(made)
    given.flags.writeable = False
    layers = [Attention(Tokens(3, relu, C), bias=C) for C in (K.astype(float), given)]
    assert np.array_equal(*(layer.law().rvs(4, 0) for layer in layers))
    y = np.array([1, 0, 1])
    assert layers[0].law().logpdf(y, islands=0, draws=4096) == layers[1].law().logpdf(
        y.astype(np.float32), islands=0, draws=4096
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_nothing_at_all():
    "Empty arrays are answered with empty arrays."
    law = FOUR.law()
    shapes = (
        law.logpdf(np.zeros((0, 4))).shape,
        law.marginal().ppf([]).shape,
        law.rvs((0, 2), 0).shape,
        FOUR.scores(8, 0, 0).shape,
        law.covariances(0).shape,
    )
    assert shapes == ((0,), (0,), (0, 2, 4), (0, 2, 4, 4), (0, 4, 4))


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "Attention(Tokens(4, relu), heads=2).law(64).rvs(10**8, 0)",
        "Attention(Tokens(8, identity, cov=np.eye(8)), heads=8, "
        "var_q=4.).law().logpdf([8.]*4 + [-8.]*4)",
        "with parallel(ProcessPoolExecutor(2)): Attention(Tokens(4, relu), "
        "heads=2).law(64).rvs(10**8, 0)",
    ],
)
def test_interrupts_are_answered(code):
    text = "\n".join(
        [
            "import numpy as np",
            "from concurrent.futures import ProcessPoolExecutor",
            "from infattn_nb import *",
            "from infattn_nb.nonlinearities import identity, relu",
            "print(1, flush=True)",
            code,
        ]
    )
    p = subprocess.Popen(
        [sys.executable, "-c", text],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    p.stdout.readline()
    time.sleep(3)
    os.killpg(p.pid, signal.SIGINT)
    assert "KeyboardInterrupt" in p.communicate(timeout=30)[1]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.long
def test_a_layer_without_a_constant_is_odd():
    """Turn all tokens round: no score changes, every value does; a stored row of the
    table that shows it.
    """
    learning = import_module("learning")
    m = AttentionRegressor(2, **SMALL).fit(X, y)
    np.testing.assert_allclose(m.predict(-X), -m.predict(X), atol=1e-12)
    one = np.concatenate([X, np.ones((6, 3, 1))], axis=2)
    m = AttentionRegressor(2, **SMALL).fit(one, y)
    other = one * [-1, -1, 1]
    assert np.abs(m.predict(other) + m.predict(one)).max() > 0.01
    fresh = learning.run_odd(0, 64, "inf", True)
    stored = learning.pd.read_csv(
        learning.DATA / "learning_odd.csv", dtype=dict(model=str)
    ).query("seed == 0 and P == 64 and model == 'inf' and constant")
    assert len(stored) == 1
    assert stored.r2.item() == pytest.approx(fresh["r2"], abs=1e-4)
