"""Every wrong argument is answered in one sentence that names it. Two cases differ in
the line that rejects them, or in the kind of value.
"""

import ast
import inspect
import math
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from public import PUBLIC
from scipy import stats

from infattn_nb import *
from infattn_nb import from_config
from infattn_nb.convergence import *
from infattn_nb.huggingface import coordinate_check, next_tokens, rate_transfer, widened
from infattn_nb.netsor import *
from infattn_nb.nonlinearities import *
from infattn_nb.numerics import *
from infattn_nb.numerics import checks
from infattn_nb.numerics.linalg import narrow
from infattn_nb.numerics.quadrature import gauss, normal_nodes
from infattn_nb.paper import *
from infattn_nb.theory import *
from infattn_nb.theory.pseudo_lipschitz import attack
from infattn_nb.theory.score_clt import VarianceGamma
from infattn_nb.transformer import Experts

pytestmark = [
    pytest.mark.xdist_group("bad_input"),
    pytest.mark.filterwarnings("ignore::infattn_nb.netsor.nodes.AssumptionWarning"),
]  # a thousand tests of a millisecond
T = Tokens(3, relu)
A = Attention(T, heads=2)
LOW = Attention(T, heads=2, head_width=4)
LAW = A.law(8)
NAN, INF = np.nan, np.inf

LINE = Program()
(LINE_X,) = LINE.inputs([[1.0]])
NET = Program()
(NET_X,) = NET.inputs([[1.0]])
NET_W = NET.matrix("W")
NET_F = NET.readout("R") @ tanh(NET_W @ NET_X)
NET_P = NET.score(NET_W @ NET_X, NET.matrix() @ NET_X)
NET_Y = NET.readout() @ NET.attend(NET_P, NET_X)
LINE_F = LINE.readout() @ LINE_X
fit = partial(train, NET, [NET_F], [1.0], width=8, steps=2, rng=0, verbose=False)
ONE = fit()
CASES = [
    (lambda: NET.readout(var=-1.0), ValueError, "`var`"),
    (lambda: NET.readouts[0] @ LINE_X, ValueError, "same program"),
    (lambda: NET.readouts[0] @ 3, TypeError, "must be vectors of a program"),
    (lambda: NET.matrix() @ NET_F, ValueError, "`f1` must end the network"),
    (lambda: NET.inputs([[1.0]], rows=-1), ValueError, "`rows`"),
    (
        lambda: Nonlinearity(np.tanh, derivative=3),
        TypeError,
        "`derivative` must be a function",
    ),
    (
        lambda: Nonlinearity(np.tanh, derivative=(np.cos, np.sin)),
        ValueError,
        "`derivative` must be 1 functions",
    ),
    (lambda: Nonlinearity(np.tanh, derivative=np.mean), ValueError, "`derivative`"),
    (lambda: gradients(3, NET_F), TypeError, "`program`"),
    (lambda: gradients(NET, []), ValueError, "`outputs` must contain at least one"),
    (lambda: gradients(NET, LINE_F, 8), ValueError, "same program"),
    (
        lambda: gradients(NET, NET_X, 8),
        TypeError,
        "`outputs` must be outputs of readouts",
    ),
    (lambda: gradients(NET, NET_Y), ValueError, "tangent kernel stays random"),
    (lambda: gradients(NET, NET_F, 8).inner(LINE_X), ValueError, "same program"),
    (lambda: train(3, NET_F, 1.0, width=8), TypeError, "`program`"),
    (lambda: train(NET, [LINE_F], [1.0], width=8), ValueError, "same program"),
    (
        lambda: train(NET, [NET_X], [1.0], width=8),
        TypeError,
        "`outputs` must be outputs of readouts",
    ),
    (
        lambda: train(NET, [NET_F], [1.0, 2.0], width=8),
        ValueError,
        "`y` must have shape (1,), got (2,)",
    ),
    (
        lambda: train(NET, [NET_F], [2.0], width=8, loss="logistic"),
        ValueError,
        "`y` must be 0 or 1",
    ),
    (
        lambda: train(NET, [[NET_F, NET_F]], [2], width=8, loss="softmax"),
        ValueError,
        "`y` must be 1 labels 0 … 1",
    ),
    (lambda: fit(width=INF), ValueError, "finite"),
    (lambda: fit(width=10**13), ValueError, "processor seconds, which takes about"),
    (lambda: fit(steps=-1), ValueError, "`steps`"),
    (
        lambda: fit(learning_rate=1e9, steps=30),
        ValueError,
        "`learning_rate` must keep the losses of",
    ),
    (lambda: fit(batches="all"), ValueError, "`batches` must be 'shared' or 'own'"),
    (
        lambda: fit(matrices=["V"]),
        ValueError,
        "`matrices` must name matrices on which the outputs depend",
    ),
    (
        lambda: fit(matrices=[]),
        ValueError,
        "`matrices` must contain at least one trained matrix",
    ),
    (
        lambda: fit(matrices=3),
        ValueError,
        "`matrices` must contain at least one trained matrix",
    ),
    (
        lambda: fit(rate_factors={"V": 1.0}),
        ValueError,
        "`rate_factors` must name matrices on which the outputs depend",
    ),
    (
        lambda: fit(rate_factors={"R": 2.0}, matrices=["W"]),
        ValueError,
        "`rate_factors` must name matrices that are trained, got 'R'",
    ),
    (lambda: fit(optimizer="adam", dense=False), ValueError, "entry by entry"),
    (lambda: fit(nesterov=True), ValueError, "`nesterov` must come with a momentum"),
    (lambda: fit(schedule=lambda t: NAN), ValueError, "`schedule(0)`"),
    (
        lambda: fit(parametrization="mup"),
        ValueError,
        "`base_width` must be passed with",
    ),
    (lambda: widened("gpt2", [[1, 2]], 64, heads="taller"), ValueError, "`heads`"),
    (lambda: rate_transfer("gpt2", [[1, 2]], [], [0.1]), ValueError, "`widths`"),
    (lambda: coordinate_check("gpt2", [[1, 2]], [64]), ValueError, "`widths`"),
    (lambda: Program().parameter(var=-1.0), ValueError, "`var`"),
    (lambda: LINE.rotate(LINE_X, np.ones((7, 2))), ValueError, "`angles`"),
    (lambda: LINE.logits(LINE_X, LINE_X, cap=-1.0), ValueError, "`cap`"),
    (lambda: weights_of(7, 7), ValueError, "`net` must be read from a model"),
    (
        lambda: weights_of(from_config("gpt2", [3, 4]), 7),
        TypeError,
        "`module` must be a module of torch",
    ),
    (
        lambda: next_tokens(Transformer.uniform(np.eye(2), layers=1, heads=1)),
        ValueError,
        "`net` must be read from a model",
    ),
    (lambda: fit(watch=[NET_X]), TypeError, "`watch` must be outputs and scores"),
    (lambda: fit(watch=[LINE_F]), ValueError, "same program"),
    (lambda: fit(watch=[3]), TypeError, "`watch` must be outputs and scores"),
    (lambda: fit(init={"W": np.eye(3)}), ValueError, "`init` must have shape (8, 8)"),
    (lambda: fit(init={"V": np.eye(3)}), ValueError, "`init` must name matrices"),
    (
        lambda: fit(init=ONE, width=16),
        ValueError,
        "`init` must be a run of the same program and width",
    ),
    (lambda: ONE.values(LINE_X), ValueError, "same program"),
    (lambda: ONE.values(NET_X, "middle"), ValueError, "`when`"),
    (lambda: ONE.change(NET_P), TypeError, "`h`"),
    (lambda: ONE.tangent(outputs=[NET_X]), TypeError, "`outputs`"),
    (lambda: ONE.weights(LINE.matrix()), ValueError, "`W`"),
    (
        lambda: Transformer.uniform(np.eye(2), layers=1, heads=1).program(
            readout="middle"
        ),
        ValueError,
        "`readout`",
    ),
    (
        lambda: Transformer(
            np.eye(2), [Block(SelfAttention(1, rotary=Rotary()))]
        ).program(),
        ValueError,
        "`width` must be finite for rotary positions",
    ),
    (lambda: Attention(T, var_q=-1.0), ValueError, "`var_q`"),
    (
        lambda: Attention(T, heads=3, var_o=[1.0, 2.0]),
        ValueError,
        "`var_o` must have shape (3,)",
    ),
    (
        lambda: Attention(T, heads=INF, var_o=[1.0, 2.0]),
        ValueError,
        "`var_o` must be one number",
    ),
    (
        lambda: Attention(T, heads=2, var_o=[1.0, 2.0]).infinite_heads(),
        ValueError,
        "`var_o` must be one number",
    ),
    (
        lambda: Transformer(
            np.eye(2), [Block(SelfAttention(2, var_o=[1.0, 2.0]))]
        ).gradients(),
        ValueError,
        "`var_o` must be one number",
    ),
    (lambda: Attention(T, head_width="half"), TypeError, "or 'full' or None"),
    (
        lambda: Attention(T, heads=3, head_width=None).law(7),
        ValueError,
        "`width` must be a multiple of heads = 3, got 7",
    ),
    (lambda: Attention(T, mask=np.ones((3, 3))), TypeError, "`mask` must be boolean"),
    (lambda: Attention(T, mask=np.ones((2, 2), bool)), ValueError, "(3, 3)"),
    (
        lambda: Attention(T, mask=np.diag([True, False, True])),
        ValueError,
        "empty row 1",
    ),
    (
        lambda: Attention(T, weights=lambda x: x.sum(-1)),
        ValueError,
        "`weights` must return shape (2, 3, 3)",
    ),
    (lambda: Tokens(0, relu), ValueError, "`seq_len`"),
    (lambda: CommonTokens(0, relu), ValueError, "`seq_len`"),
    (lambda: CommonTokens(3, 7), TypeError, "`activation` must be a function"),
    (lambda: Tokens(3, 7), TypeError, "`activation` must be a function"),
    (lambda: Tokens(2, relu, [[1, 2], [2, 1]]), ValueError, "positive semidefinite"),
    (lambda: Tokens(2, relu, [[1, 0.5], [0, 1]]), ValueError, "symmetric"),
    (lambda: Tokens(2, relu, [[1, NAN], [NAN, 1]]), ValueError, "finite"),
    (lambda: Tokens(2, relu, np.eye(3)), ValueError, "(2, 2)"),
    (lambda: Tokens(2, relu, [1, 1]), ValueError, "square"),
    (lambda: Tokens(2, relu, [["a", "b"], ["c", "d"]]), TypeError, "real numbers"),
    (lambda: checks.cov(np.diag([1, -1e-10])), ValueError, "smallest eigenvalue"),
    (lambda: A.law(0), ValueError, "`width`"),
    (lambda: LOW.law(9), ValueError, "heads·head_width = 8"),
    (lambda: LOW.scores(9), ValueError, "heads·head_width = 8"),
    (lambda: simulate_dense(LOW, 9), ValueError, "heads·head_width = 8"),
    (lambda: simulate_dense(A, INF), ValueError, "finite"),
    (lambda: T.gram(0, 3), ValueError, "`width`"),
    (lambda: LAW.rvs(-1), ValueError, "`size`"),
    (lambda: LAW.covariances(None), TypeError, "`size`"),
    (
        lambda: LAW.rvs(2, rng=np.random.Generator(np.random.PCG64(_NoSpawn()))),
        TypeError,
        "spawn",
    ),
    (lambda: LAW.marginal(3), ValueError, "`i`"),
    (lambda: LAW.cov(draws=1), ValueError, "`draws`"),
    (lambda: LAW.logpdf([1.0, 2.0]), ValueError, "`y` must have shape (..., 3)"),
    (lambda: LAW.logpdf(["a"] * 3), TypeError, "`y` must hold real numbers"),
    (
        lambda: HierarchicalGaussian.constant(np.ones((2, 2))).logpdf([0, 0]),
        ValueError,
        "`law` must have a density",
    ),
    (lambda: LAW.conditional(np.ones((2, 3))), ValueError, "`S`"),
    (
        lambda: HierarchicalGaussian.constant([[1, 2], [2, 1]]),
        ValueError,
        "positive semidefinite",
    ),
    (
        lambda: HierarchicalGaussian(lambda n, g: np.ones((n, 2)), 2).rvs(3),
        ValueError,
        "`sample(3, rng)`",
    ),
    (lambda: ScaleMixture([1.0, -1.0]), ValueError, "`variances`"),
    (lambda: clip(0.0), ValueError, "`C`"),
    (lambda: leaky_relu(NAN), ValueError, "`slope`"),
    (lambda: identity.dual(np.ones(3)), ValueError, "`cov`"),
    (lambda: kl_divergence(1, LAW.marginal(0, 16)), TypeError, "`p`"),
    (lambda: total_variation(LAW, LAW), TypeError, "`p`"),
    (lambda: paired_kl(LAW, 8), TypeError, "`layer`"),
    (lambda: paired_kl(Attention(T, var_v=0.0), 8), ValueError, "density"),
    (lambda: kde_kl([1.0, 1.0], [1.0, 2.0]), ValueError, "`samples_p`"),
    (lambda: sweep("fig9"), ValueError, "'fig9'"),
    (lambda: sweep("fig1b", trials=0), ValueError, "`trials`"),
    (lambda: reproduce(only=3), TypeError, "`only`"),
    (lambda: Attention(T, var_q=1e300, var_k=1e300), ValueError, "overflow"),
    (
        lambda: Attention(T, weights=lambda x: np.full(x.shape, NAN)),
        ValueError,
        "finite",
    ),
    (
        lambda: Nonlinearity(lambda x: np.where(abs(x) > 4, NAN, x)).dual(np.eye(2)),
        ValueError,
        "`fn`",
    ),
    (
        lambda: HierarchicalGaussian(lambda n, g: np.full((n, 1, 1), NAN), 1).rvs(2),
        ValueError,
        "`sample(2, rng)`",
    ),
    (lambda: HierarchicalGaussian.constant(np.ones((3, 1, 1))), ValueError, "`cov`"),
    (
        lambda: ScaleMixture([1.0, 2.0]).var(return_error=True),
        ValueError,
        "`return_error`",
    ),
    (lambda: reproduce(only="fig9"), ValueError, "'fig9'"),
]

P = Program()
H1, H2 = P.inputs(np.eye(2))
W, V = P.matrix("W"), P.matrix("V")
X, SCORE = tanh(W @ H1), P.score(W @ H1, V @ H2)
(OTHER,) = Program().inputs([[1.0]])
with warnings.catch_warnings():
    warnings.simplefilter("ignore", AssumptionWarning)
    LIM = limit(P, 64)
TWO = Attention(Tokens(2, identity), heads=2)
PREDICTED = Mixture(
    np.zeros((3, 2)), np.ones((3, 2)), np.full(3, 1 / 3)
)  # of two values
G, SQUARES = ScaleMixture([0.5, 1.5]), ExchangeableScores(np.eye(2), [1.0])
MASKED = np.ma.masked_array(np.eye(3), mask=np.eye(3))
NODES = [(np.array([1.0, 2.0]), np.array([0.5, 0.5]))] * 2


def normals(n, g):
    return g.normal(size=n)


TABLE = sweep("fig2a", trials=1, samples=32)

CASES += [
    # numbers and arrays
    (lambda: relu.dual(np.eye(2) * 1j), TypeError, "`cov` must hold real numbers"),
    (
        lambda: relu.dual(np.eye(2, dtype=object)),
        TypeError,
        "`cov` must hold real numbers",
    ),
    (
        lambda: relu.dual(np.eye(2, dtype=bool)),
        TypeError,
        "`cov` must hold real numbers",
    ),
    (lambda: relu.dual(MASKED), ValueError, "`cov` must not have masked entries"),
    (lambda: relu.dual(np.eye(2) * 1e308), ValueError, "beyond 1e150"),
    (lambda: relu.dual([[1.0, 2.0], [2.0]]), ValueError, "different lengths"),
    (lambda: checks.real("a", "x"), TypeError, "`x` must hold real numbers"),
    (lambda: checks.cov([[1, INF], [INF, 1]]), ValueError, "finite"),
    # functions
    (lambda: Nonlinearity("tanh"), TypeError, "`fn` must be a function"),
    (
        lambda: Nonlinearity(lambda x: x.sum()),
        ValueError,
        "`fn` must return shape (7,)",
    ),
    (lambda: Nonlinearity(lambda x: x * 1j), TypeError, "return real numbers"),
    (lambda: Nonlinearity(math.tanh), ValueError, "vectorise it"),
    (lambda: Nonlinearity(np.tanh, arity=2), ValueError, "correct `arity`"),
    (lambda: softmax([]), ValueError, "`x` must have a finite largest score"),
    (lambda: softmax("abc"), TypeError, "`x` must hold real numbers"),
    (lambda: softmax(MASKED), ValueError, "`x` must not have masked entries"),
    (
        lambda: softmax([1.0, 2.0], axis=3),
        ValueError,
        "`axis` must be an axis 0…0, got 3",
    ),
    (lambda: softmax_weight(3, 5), ValueError, "`j` must be an output 0…2"),
    (lambda: softmax_weight(2.5), TypeError, "`seq_len` must be an integer"),
    (lambda: growth(np.tanh), TypeError, "`activation` must be a Nonlinearity"),
    (lambda: growth(Nonlinearity(np.tanh)), TypeError, "`constant`"),
    (lambda: product(relu, 5), TypeError, "must be a Nonlinearity"),
    (lambda: compose(relu), ValueError, "one inner function per argument"),
    (lambda: compose(np.tanh, relu), TypeError, "must be a Nonlinearity"),
    (lambda: break_pseudo_lipschitz(np.tanh), ValueError, "`order` must be given"),
    (lambda: break_pseudo_lipschitz(relu, size=0), ValueError, "`size`"),
    (lambda: attack(np.sum, 0), ValueError, "`dim`"),
    # randomness, sizes, who computes
    (lambda: seed_sequence([1, 2]), TypeError, "`rng`"),
    (lambda: checks.shape(True), TypeError, "`size`"),
    (lambda: LAW.rvs(10**18), ValueError, "`size` must be at most"),
    (lambda: G.rvs(2, scale="wide"), TypeError, "`scale`"),
    (lambda: draw(5, 10), TypeError, "`sample` must be a function"),
    (
        lambda: draw(lambda n, g: g.normal(), 10),
        ValueError,
        "`sample(10, rng)` must return an array of 10 samples",
    ),
    (lambda: draw(lambda n, g: g.normal(size=3), 10), ValueError, "got shape (3,)"),
    (
        lambda: parallel("threads").__enter__(),
        TypeError,
        "`workers` must be an integer, an Executor or None",
    ),
    (lambda: parallel(ThreadPoolExecutor).__enter__(), TypeError, "`workers`"),
    (lambda: parallel(0).__enter__(), ValueError, "`workers` must be at least 1"),
    (lambda: fold(normals, np.sum, 0), ValueError, "`size`"),
    (lambda: LAW.fold("mean", 3), TypeError, "`statistic`"),
    # laws
    (lambda: psd_factor(np.ones((2, 3))), ValueError, "`S` must have shape"),
    (lambda: ScaleMixture(5.0), ValueError, "`variances` must have shape (any,)"),
    (lambda: ScaleMixture(None), TypeError, "`variances` must hold real numbers"),
    (
        lambda: ScaleMixture(MASKED[0]),
        ValueError,
        "`variances` must not have masked entries",
    ),
    (lambda: G.pdf("a"), TypeError, "argument of pdf"),
    (lambda: G.moment(1.5), ValueError, "integer"),
    (lambda: G.interval(2.0), ValueError, "between 0 and 1"),
    (lambda: gauss(5), TypeError, "iterable"),
    (lambda: mixture_of_heads([], 2), ValueError, "`nodes`"),
    (lambda: HierarchicalGaussian(5, 2), TypeError, "`sample`"),
    (
        lambda: HierarchicalGaussian(
            normals, 2, direct=lambda n, rng: np.ones((2, n))
        ).rvs(3),
        ValueError,
        "shape (3, 2)",
    ),
    (
        lambda: HierarchicalGaussian(
            normals, 1, direct=lambda n, rng: np.full((n, 1), NAN)
        ).rvs(3),
        ValueError,
        "correct the sampler",
    ),
    (
        lambda: HierarchicalGaussian(lambda n, g: np.full((n, 1, 1), 1j), 1).rvs(2),
        TypeError,
        "sample(2, rng)",
    ),
    (lambda: LAW.conditional(np.eye(2)), ValueError, "`S` must be (3, 3)"),
    (lambda: LAW.plot(i=9), ValueError, "`i`"),
    # layers
    (lambda: wishart_factor(np.eye(2)[..., None], -1, None, (3,)), ValueError, "`df`"),
    (lambda: narrow(5), TypeError, "len()"),
    (lambda: normal_nodes(5, np.ones(2)), TypeError, "not callable"),
    (
        lambda: Tokens(2, times),
        ValueError,
        "`activation` must be a function of one argument",
    ),
    (lambda: Tokens(3, relu, MASKED), ValueError, "masked"),
    (lambda: T.tv_error(np.array([3])), TypeError, "`width`"),
    (lambda: A.law(1e300).rvs(1), ValueError, "`width` must be at most 1e10"),
    (lambda: Attention(T, mask=5), TypeError, "`mask` must be boolean"),
    (
        lambda: Attention(T, bias=np.eye(3) * 1j),
        TypeError,
        "`bias` must hold real numbers",
    ),
    (lambda: Attention(T, bias=MASKED), ValueError, "masked"),
    (
        lambda: Attention(T, weights=lambda x: x * 1j),
        TypeError,
        "`weights` must return real numbers",
    ),
    (lambda: TWO.infinite_heads(draws=0), ValueError, "`draws`"),
    # programs
    (lambda: P.inputs([[1, 2], [2, 1]]), ValueError, "positive semidefinite"),
    (lambda: P.inputs(np.eye(2), mean=[1, 2, 3]), ValueError, "`mean`"),
    (lambda: P.matrix(var=-1), ValueError, "`var`"),
    (lambda: W @ np.eye(2), TypeError, "`W @ h`"),
    (lambda: H1 + 1, TypeError, "`summands`"),
    (lambda: H1 * NAN, ValueError, "`factor` must be in (-∞, ∞)"),
    (lambda: H1 * H2, TypeError, "times(g, h)"),
    (lambda: P.nonlin(np.tanh), ValueError, "contain at least one vector"),
    (lambda: P.nonlin(np.sum, H1), ValueError, "`fn`"),
    (lambda: P.nonlin(np.tanh, H1, scores=5), TypeError, "`scores` must be a list"),
    (lambda: tanh(H1, H2), ValueError, "must get 1 argument,"),
    (lambda: step(H1), ValueError, "`step`"),
    (lambda: P.score(H1, 5), TypeError, "query and key"),
    (lambda: P.score(H1, H2, scaling="cube"), ValueError, "`scaling`"),
    (lambda: P.attend([SCORE], [H1, H2]), ValueError, "one score per value"),
    (lambda: P.attend([SCORE], [H1], weights=5), TypeError, "`weights`"),
    (lambda: P.attend(5, 5), TypeError, "`scores` must be a list"),
    (lambda: P.name(OTHER), ValueError, "this program"),
    (lambda: P.describe(5), TypeError, "`node` must be a Vector, got int"),
    (lambda: P.past(5), TypeError, "`nodes`"),
    (lambda: mlp(P, [H1], layers=-1), ValueError, "`layers`"),
    (lambda: mlp(P, [5]), TypeError, "`X` must be vectors of a program"),
    (lambda: rnn(P, [H1], var_w="a"), TypeError, "`var`"),
    (lambda: lstm(P, [OTHER]), ValueError, "same program"),
    (lambda: conv1d(P, [H1], kernel=2), ValueError, "`kernel`"),
    (lambda: attention(P, [H1], heads=0), ValueError, "`heads`"),
    (lambda: limit(5), TypeError, "`program`"),
    (lambda: LIM.mean(OTHER), ValueError, "same program"),
    (lambda: LIM.cov([]), ValueError, "`vectors` must contain at least one"),
    (lambda: LIM.second_moment(H1, 5), TypeError, "vectors"),
    (lambda: LIM.score_cov([H1]), TypeError, "`scores`"),
    (lambda: LIM.rvs([H1], -1), ValueError, "`size`"),
    (lambda: LIM.law([X]), ValueError, "Gaussian given the scores"),
    (lambda: LIM.paths("a"), TypeError, "`size`"),
    (lambda: simulate(5, H1, 4), TypeError, "`program`"),
    (lambda: gram(P, [H1, P.matrix(rows=0.5) @ H2], 4), ValueError, "same length"),
    (lambda: ProgramTokens(P, [5]), TypeError, "vectors of a program"),
    # the proof, regimes, rates, robustness
    (lambda: variance_gamma(2.5), ValueError, "`width`"),
    (lambda: score_gram(P, [H1], 4), TypeError, "`scores`"),
    (lambda: ExchangeableScores(np.eye(3), [1.0]), ValueError, "gram`"),
    (lambda: ExchangeableScores(-np.eye(2), [1.0]), ValueError, "gram`"),
    (lambda: ExchangeableScores(P, [1.0], draws=0), ValueError, "`draws`"),
    (lambda: SQUARES.simulate(4, -1, 0), ValueError, "`size`"),
    (lambda: averages(5, np.tanh, H1, 4), TypeError, "`program`"),
    (lambda: curves(5, np.tanh, H1, [[0.0]], 4), TypeError, "`program`"),
    (lambda: gaussian_mean(np.tanh, -1.0), ValueError, "`v`"),
    (lambda: gaussian_mean(np.tanh, []), ValueError, "none"),
    (lambda: positions(5), TypeError, "`layer`"),
    (lambda: equicorrelated(3, "a"), TypeError, "`ρ`"),
    (lambda: distance_bias(3, "a"), TypeError, "`slope`"),
    (lambda: cumulants(np.eye(4), [1.0]), ValueError, "two rows per score"),
    (lambda: quadratic_form(3), ValueError, "`c`"),
    (lambda: first_order(Attention(T), [0.0], step=0.0), ValueError, "`step`"),
    (lambda: explicit_seconds("fig2a", trials="a"), TypeError, "`trials`"),
    (lambda: split(5, np.tanh, np.tanh, np.tanh, 4), TypeError, "`layer`"),
    (
        lambda: split(Attention(T, heads=INF), np.tanh, np.tanh, np.tanh, 4),
        ValueError,
        "finitely many heads",
    ),
    (lambda: tied_scores(5), TypeError, "`layer`"),
    (lambda: tied_law(TWO, 2.5), ValueError, "`width`"),
    (lambda: gaussian_limits(TWO, i=9), ValueError, "`i`"),
    (lambda: gaussian_distances(5), TypeError, "`layer`"),
    (lambda: tail_probability(G, -1), ValueError, "`k`"),
    (lambda: importance_tail(TWO, NAN), ValueError, "`t`"),
    (lambda: kl_constant(LOW), ValueError, "head_width='full'"),
    (lambda: scaled_difference(TWO, 0, [0.0]), ValueError, "`width`"),
    (lambda: noise_floor(G, 0), ValueError, "`samples`"),
    (lambda: smoothed(5, 100), TypeError, "`law`"),
    (lambda: sparse(2), ValueError, "`p`"),
    (lambda: student(2), ValueError, "`df`"),
    (lambda: simulate_weights(TWO, 5, 4), TypeError, "`entries`"),
    (
        lambda: simulate_weights(TWO, lambda rng, shape: np.ones(3), 4),
        ValueError,
        "`entries` must return",
    ),
    (lambda: cross_mask(2.5, 2), TypeError, "`queries`"),
    (lambda: Transformer.uniform(np.eye(3)[:2]), ValueError, "`cov` must be square"),
    (
        lambda: Transformer.uniform(np.eye(3), heads=2).chain(7),
        ValueError,
        "multiple of heads",
    ),
    (
        lambda: Transformer.uniform(np.eye(3), heads=2).gradients(9),
        ValueError,
        "multiple of heads",
    ),
    (lambda: Transformer.uniform(np.eye(3)).gradients(0), ValueError, "`width`"),
    (
        lambda: Transformer.uniform(np.eye(3)).gradients(texts=[0, 0, 1]),
        ValueError,
        "`texts` must not attend to each other",
    ),
    (lambda: scan(np.eye(3)), TypeError, "`transformer` must"),
    (
        lambda: scan(Transformer.uniform(np.eye(3)), residual=[]),
        ValueError,
        "`residual` must hold at least one",
    ),
    (
        lambda: scan(Transformer.uniform(np.eye(3)), residual=[0.0]),
        ValueError,
        "`residual`",
    ),
    (
        lambda: scan(Transformer(np.eye(3), blocks=[Block(), Block(None)]), layers=[3]),
        ValueError,
        "`layers` must be multiples of 2",
    ),
    (
        lambda: scan(Transformer.uniform(np.eye(3)), width=13),
        ValueError,
        "multiple of heads",
    ),
    (lambda: Thresholds(min_entropy=-0.1), ValueError, "`min_entropy`"),
    (lambda: with_rule(np.eye(3), "GPT-2"), TypeError, "`transformer` must"),
    (lambda: with_rule(Transformer.uniform(np.eye(3)), "GPT-3"), ValueError, "`rule`"),
    (lambda: embedding_cov([]), ValueError, "`texts`"),
    (lambda: text_labels([[]]), ValueError, "`texts`"),
    (lambda: Norm("batch"), ValueError, "`kind`"),
    (lambda: Rotary(0.0), ValueError, "`base`"),
    (lambda: SelfAttention(4, groups=3), ValueError, "`groups` must divide heads = 4"),
    (lambda: SelfAttention(0), ValueError, "`heads`"),
    (lambda: SelfAttention(head_width="full"), ValueError, "be a number or None in a"),
    (lambda: SelfAttention(scaling="linear"), ValueError, "pass score_scale=1/√m"),
    (
        lambda: Attention(
            Tokens(2, identity, 1e-150 * np.eye(2)), heads=2, var_o=[1e-150, 3e-150]
        ).law(),
        ValueError,
        "choose another unit",
    ),
    (lambda: SelfAttention(rotary=1e4), TypeError, "`rotary` must be a Rotary"),
    (lambda: FeedForward(0), ValueError, "`units`"),
    (
        lambda: Experts(2, 3),
        ValueError,
        "`chosen` must be at most the 2 experts, got 3; choose fewer",
    ),
    (lambda: Experts(0), ValueError, "`experts` must be at least 1"),
    (lambda: Experts(mlp=None), TypeError, "`mlp` must be a FeedForward"),
    (lambda: Experts(gate="top"), ValueError, "`gate` must be 'chosen' or 'softmax'"),
    (lambda: Experts(var_r=-1.0), ValueError, "`var_r`"),
    (
        lambda: FeedForward(activation=3),
        TypeError,
        "`activation` must be a function, got 3",
    ),
    (lambda: Block(None, None), ValueError, "`attention`"),
    (lambda: Block(3), TypeError, "`attention` must be a SelfAttention"),
    (lambda: Block(norm="rms"), TypeError, "`norm` must be a Norm"),
    (
        lambda: Block(norm_placement="output", parallel=True),
        ValueError,
        "`norm_placement` must be 'pre', 'post' or None in a parallel block",
    ),
    (lambda: Transformer(np.eye(3), blocks=[]), TypeError, "`blocks`"),
    (lambda: Transformer(np.eye(3), [Block()], heads=3), TypeError, "heads"),
    (lambda: report(3), TypeError, "`transformer`"),
    (
        lambda: Transformer(
            np.eye(3), blocks=[Block(SelfAttention(2, rotary=Rotary()))]
        ).chain(6),
        ValueError,
        "`rotary`",
    ),
    (lambda: Transformer.uniform(np.eye(2), texts=[0]), ValueError, "`texts`"),
    (
        lambda: Transformer.uniform(
            np.eye(2), texts=[0, 1], mask=~np.eye(2, dtype=bool)
        ),
        ValueError,
        "token of its own text",
    ),
    (
        lambda: Transformer.uniform(np.eye(2), layers=1).chain(12, 1, 0).between(0, 1),
        ValueError,
        "`j`",
    ),
    (
        lambda: (
            Transformer.uniform(np.eye(2), layers=1)
            .chain(12, 1, 0)
            .kernel_of_texts("first")
        ),
        ValueError,
        "`readout`",
    ),
    (lambda: from_config(3, 4), TypeError, "`config`"),
    (lambda: from_config("no.json", 4), ValueError, "`config` must be a file"),
    (lambda: from_config(__file__, 4), ValueError, "`config` must be JSON"),
    (lambda: from_config(dict(model_type="t5"), 4), ValueError, "model_type"),
    (
        lambda: from_config(
            dict(model_type="gpt2", n_embd="48", n_head=3, n_layer=2), 4
        ),
        ValueError,
        "n_embd",
    ),
    # distances, experiments
    (lambda: hellinger(G, 5), TypeError, "`q`"),
    (lambda: wasserstein("a", G), TypeError, "`p`"),
    (
        lambda: total_variation(ScaleMixture([0.0, 1.0]), G),
        ValueError,
        "`p` must have a density",
    ),
    (lambda: kde([1.0, 1.0], [0.0]), ValueError, "`samples`"),
    (
        lambda: kde_kl([1.0, 2.0], np.ma.masked_array([1.0, 2.0, 3.0], [0, 0, 1])),
        ValueError,
        "masked",
    ),
    (lambda: kde_trials(5), TypeError, "`p` must be a law"),
    (lambda: kde_trials(G, trials=0), ValueError, "`trials`"),
    (lambda: paper_layer(heads=0), ValueError, "`heads`"),
    (lambda: figure_1a(5), ValueError, "`data` must be a table"),
    (lambda: figure_heads({}), ValueError, "`data` must be a table"),
    (lambda: figure_2b(trials=0), ValueError, "`trials`"),
    (lambda: figure_1b(rng="a"), TypeError, "`rng`"),
    (lambda: figure_2a(samples=1), ValueError, "`samples`"),
    (lambda: figure_3a([]), ValueError, "`data`"),
    (lambda: figure_3b(trials=2.0), TypeError, "`trials`"),
    (lambda: figure_relu_a("table"), ValueError, "`data`"),
    (lambda: figure_relu_b(trials=0), ValueError, "`trials`"),
    (lambda: write_table({"a": 1}, "t.csv"), ValueError, "`data`"),
    (lambda: read_table("missing.csv"), FileNotFoundError, "missing.csv"),
    (lambda: explicit_seconds("fig9"), ValueError, "'fig9'"),
    (lambda: sweep("fig2a", trials=10**12), ValueError, "at most"),
    (lambda: sweep("fig2a", rng=10**5000), ValueError, "at most"),
    (lambda: figure_1a(TABLE), ValueError, "pass the table of this figure"),
    (lambda: figure_2a(TABLE, trials=3), TypeError, "`data` must be None"),
    (
        lambda: write_table(TABLE | {"x": TABLE["x"][:3]}, "t.csv"),
        ValueError,
        "columns of one length",
    ),
    (lambda: read_table(__file__), ValueError, "`path` must be a table"),
    (lambda: read_table("/dev/null"), ValueError, "`path` must be a table"),
    (lambda: fold(G, np.sum, 10), TypeError, "must return an array"),
    (lambda: psd_factor(np.eye(2) * 1j), TypeError, "`S`"),
    (lambda: psd_factor(MASKED), ValueError, "masked"),
    (lambda: Attention(T, var_v=0.0).law().plot(), ValueError, "variance 0"),
]

R = Program()
(B,) = R.inputs([[1.0]])
BOUNDED = tanh(B)
SEEN = Attention(ProgramTokens(R, [BOUNDED]))  # tokens of a program
HEARD = Attention(
    ProgramTokens(
        R,
        [
            R.nonlin(
                softmax_weight(2),
                B,
                scores=[R.score(R.matrix() @ BOUNDED, R.matrix() @ BOUNDED)],
            )
        ],
    )
)  # they depend on random scores
CASES += [
    # a function that mixes what it must keep apart
    (
        lambda: Attention(T, weights=partial(softmax, axis=1)),
        ValueError,
        "`weights` must act on the last axis",
    ),
    (
        lambda: Nonlinearity(lambda h: h - h.mean()),
        ValueError,
        "`fn` must act on each coordinate in the same way",
    ),
    (lambda: Tokens(2, np.sort), ValueError, "`activation` must act on each coord"),
    (lambda: tanh(), TypeError, "`tanh` must get as many arrays"),
    (lambda: tanh(np.ones(2), np.ones(2)), TypeError, "`tanh` must get as many arrays"),
    # tokens of a program
    (
        lambda: paired_kl(HEARD, 8),
        ValueError,
        "`layer` must have tokens whose Gram matrix",
    ),
    (
        lambda: paired_kl(TWO, 8, limit=HEARD),
        ValueError,
        "`limit` must have tokens whose Gram matrix",
    ),
    (
        lambda: scaled_difference(HEARD, 8, [0.0]),
        ValueError,
        "`layer` must have tokens whose Gram matrix",
    ),
    (lambda: fluctuations(SEEN.tokens), ValueError, "`tokens` must be Tokens"),
    (lambda: fluctuations(5), ValueError, "`tokens` must be Tokens"),
    (lambda: first_order(SEEN, [0.0]), ValueError, "`tokens` must be Tokens"),
    (lambda: kl_constant(SEEN), ValueError, "`tokens` must be Tokens"),
    (
        lambda: simulate_weights(SEEN, gaussian, 4),
        ValueError,
        "`layer` must have tokens",
    ),
    # which output, which vector
    (lambda: attention_mlp(np.eye(2), texts=[[0, 2]]), ValueError, "0…1"),
    (lambda: attention_mlp(np.eye(2), texts=[[0], [0, 1]]), ValueError, "`texts`"),
    (lambda: trained_limit(np.eye(2), [1.0, 2.0]), ValueError, "`y`"),
    (lambda: trained_limit([[0.0]], [1.0]), ValueError, "positive diagonal"),
    (lambda: trained_limit(np.eye(2), [1.0], activation=relu), ValueError, "twice"),
    (lambda: averaged_constant(0.5, 1.0, 1.0), ValueError, "`order`"),
    # numbers
    # masked, complex and out of range
    (
        lambda: P.inputs(np.eye(2), mean=np.ma.masked_array([1.0, 999.0], [0, 1])),
        ValueError,
        "`mean` must not have masked entries",
    ),
    (lambda: P.inputs(np.eye(2), mean=1j), TypeError, "`mean` must hold real numbers"),
    (
        lambda: Attention(T, var_q=np.ma.masked),
        ValueError,
        "`var_q` must not have masked entries",
    ),
    (lambda: attack(5, 1), TypeError, "`ratio` must be a function"),
    (lambda: attack(np.sum, 1), ValueError, "`ratio(points)` must have shape"),
    (lambda: attack(lambda z: z[0] * 1j, 1), TypeError, "ratio(points)"),
    (
        lambda: break_pseudo_lipschitz(5, 1, 1),
        TypeError,
        "`activation` must be a function",
    ),
    (
        lambda: break_pseudo_lipschitz(np.sum, 1, 1),
        ValueError,
        "`activation(x)` must have shape",
    ),
    (
        lambda: break_pseudo_lipschitz(lambda x: NAN * x, 1, 1),
        ValueError,
        "`activation` must be defined for all finite arguments",
    ),
    (
        lambda: break_pseudo_lipschitz(np.sqrt, 1, 1),
        ValueError,
        "`activation` must be defined for all finite arguments",
    ),
    # what writes into a program, and what follows it along its paths
    (lambda: mlp(P, None), TypeError, "`X` must be a list"),
    (lambda: LIM.given([1.0, 2.0]), ValueError, "`scores` must have shape (any, "),
    (lambda: LIM.given([[1.0], [2j]]), TypeError, "`scores` must hold real numbers"),
    (lambda: LIM.paths(3).mean([]), ValueError, "`vectors` must contain at least one"),
    (lambda: LIM.paths(3).cov([]), ValueError, "`vectors` must contain at least one"),
    # samples of odd scales, laws of scipy
    (
        lambda: kde([1.0, 2.0, 3.0], [NAN]),
        ValueError,
        "`grid` must hold numbers in (-∞, ∞)",
    ),
    (
        lambda: kde_trials(G, stats.norm),
        TypeError,
        "`q` must be a law with `rvs(size, rng)`",
    ),
    (
        lambda: kl_divergence(stats.gamma, G),
        ValueError,
        "`p` must be one law with all its parameters",
    ),
    (lambda: hellinger(stats.norm([0.0, 1.0]), G), ValueError, "`p` must be one law"),
    (lambda: kl_divergence(G, stats.norm(scale=-1)), ValueError, "`q` must be one law"),
    (
        lambda: total_variation(stats.norm(scale=NAN), G),
        ValueError,
        "`p` must be one law",
    ),
]

P2 = Program()
U1, U2 = P2.inputs(np.eye(2))
S1 = P2.score(P2.matrix() @ tanh(U1), P2.matrix() @ tanh(U2))
Y = P2.nonlin(times, P2.matrix() @ tanh(U1), scores=[S1])


def four_rows(n, size, g):
    return np.broadcast_to(np.eye(4), (size, 4, 4))


DEAD = Attention(T, var_v=0.0)
CASES += [
    # one direction per score
    (
        lambda: ExchangeableScores(np.eye(2), [1.0, 2.0]),
        ValueError,
        "one entry per score (1)",
    ),
    (
        lambda: ExchangeableScores(P2, [1.0, 2.0], [S1]),
        ValueError,
        "one entry per score (1)",
    ),
    (
        lambda: ExchangeableScores(four_rows, [1.0]).simulate(4, 9, 0),
        ValueError,
        "two rows per entry of `c`",
    ),
    (
        lambda: ExchangeableScores(four_rows, [1.0]).rvs(4, 9, 0),
        ValueError,
        "two rows per entry of `c`",
    ),
    (
        lambda: ExchangeableScores(four_rows, [1.0]).second_moment(4),
        ValueError,
        "two rows per entry of `c`",
    ),
    (lambda: SQUARES.rvs(np.array([4, 8])), TypeError, "`width`"),
    # the law of one score
    (lambda: variance_gamma(4).pdf("a"), TypeError, "`argument of pdf`"),
    (lambda: variance_gamma(4).cf("a"), TypeError, "`argument of cf`"),
    (lambda: VarianceGamma("a"), TypeError, "`n`"),
    # averages and curves
    *(
        (lambda h=h, f=f: f(h), ValueError, "`h` must contain at least one")
        for h in ([], ())
        for f in (
            lambda h: averages(P2, np.tanh, h, 4),
            lambda h: conditional_average(P2, np.tanh, h, [[0.0]]),
        )
    ),
    (lambda: conditional_average(5, np.tanh, Y, [[0.0]]), TypeError, "`program`"),
    (
        lambda: curves(
            P2, np.tanh, Y, np.ma.masked_array([[0.0], [1.0]], [[0], [1]]), 4
        ),
        ValueError,
        "`at` must not have masked",
    ),
    (lambda: gaussian_mean(np.log, [1.0]), ValueError, "finite"),
    (lambda: gaussian_mean(np.cosh, [1e300]), ValueError, "`psi` must be finite"),
    (lambda: gaussian_mean(5, [1.0]), TypeError, "function"),
    (
        lambda: split(TWO, np.tanh, np.log, np.cos, 4, draws=64),
        ValueError,
        "`f` must be finite, and `df`",
    ),
    # regimes and rates
    (lambda: gaussian_limits(DEAD), ValueError, "positive variance"),
    (
        lambda: gaussian_distances(DEAD, return_error=True),
        ValueError,
        "positive variance",
    ),
    (
        lambda: tail_probability(stats.norm(), 3, return_error=True),
        TypeError,
        "`law` must be a ScaleMixture",
    ),
    (
        lambda: Mixture(np.zeros((1, 2)), np.ones((1, 2)), np.ones(1)).pdf("a"),
        TypeError,
        "`y` must hold real numbers",
    ),
    (
        lambda: PREDICTED.cdf([0.0, 1.0, 2.0]),
        ValueError,
        "`y` must be a number or have shape (2,)",
    ),
    (
        lambda: PREDICTED.sf([[0.0], [1.0]]),
        ValueError,
        "`y` must be a number or have shape (2,)",
    ),
    (
        lambda: PREDICTED.ppf([0.1, 0.2, 0.3]),
        ValueError,
        "`q` must be a number or have shape (2,)",
    ),
    (lambda: PREDICTED.ppf(1.5), ValueError, "`q` must hold numbers in [0, 1]"),
    (lambda: PREDICTED.interval(1.0), ValueError, "`confidence`"),
    (lambda: PREDICTED.rvs(-1), ValueError, "`size`"),
    (lambda: limit_error(5, 64), TypeError, "`layer` must be an Attention"),
    (lambda: limit_error(TWO, 0), ValueError, "`width`"),
    *(
        (lambda step=step, f=f: f(step), error, "`step`")
        for step, error in ((0.3, ValueError), ("a", TypeError))
        for f in (
            lambda step: fluctuations(T, step),
            lambda step: first_order(TWO, [1.0], step=step),
            lambda step: kl_constant(TWO, step=step),
        )
    ),
    (
        lambda: AttentionDescent(loss="logistic").fit(
            np.ones((4, 2, 2)), [1, None] * 2
        ),
        ValueError,
        "Unknown label type",
    ),
    (
        lambda: (
            AttentionDescent(max_iter=1, n_networks=1)
            .fit(np.ones((4, 2, 2)), np.arange(4.0))
            .predictive(np.ones((4, 2, 2)))
        ),
        ValueError,
        "`noise` must be given where `temperature` is 0",
    ),
    (lambda: simulate(LINE, [LINE_X], 1e20), ValueError, "got 1e+20, which takes"),
    (
        lambda: limit(LINE).mean(
            LINE.nonlin(lambda h: np.ma.masked_less(h, 0), LINE_X)
        ),
        ValueError,
        "`fn` must return a plain array, got a masked array",
    ),
    *(
        (
            lambda f=f: f(lambda h: np.exp(h * h)),
            ValueError,
            "`fn` must have a second moment",
        )
        for f in (
            lambda fn: Nonlinearity(fn).dual(np.eye(2)),
            lambda fn: limit(LINE).second_moment(
                LINE.nonlin(Nonlinearity(fn, order=1, constant=1.0), LINE_X),
                LINE.nonlin(np.tanh, LINE_X),
            ),
        )
    ),
]


class _NoSpawn(np.random.bit_generator.ISeedSequence):
    def generate_state(self, n_words, dtype=np.uint32):
        return np.arange(n_words, dtype=dtype)


@pytest.mark.parametrize(
    "call, error, fragment",
    CASES,
    ids=[f"{k}: {fragment}" for k, (_, _, fragment) in enumerate(CASES)],
)
@pytest.mark.long
def test_one_clear_sentence(call, error, fragment, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error) as e:
        call()
    message = str(e.value)
    assert fragment in message, message
    assert "\n" not in message, message
    assert len(message) < 320, message


# -- what looks odd but is fine
# -----------------------------------------------------------------------------------

COV = np.array([[1.0, 0.5], [0.5, 2.0]])
ODD = {
    "list": lambda a: a.tolist(),
    "tuple": lambda a: (
        tuple(map(tuple, a.tolist())) if a.ndim == 2 else tuple(a.tolist())
    ),
    "float32": np.float32,
    "float16": np.float16,
    "pandas": lambda a: (
        pd.DataFrame(a) if a.ndim == 2 else pd.Series(a, index=range(7, 7 + len(a)))
    ),
    "masked array without a masked entry": np.ma.masked_array,
    "Fortran order": np.asfortranarray,
    "not contiguous": lambda a: (
        np.repeat(np.repeat(a, 2, 0), 2, -1)[::2, ::2]
        if a.ndim == 2
        else np.repeat(a, 2)[::2]
    ),
    "read-only": lambda a: _read_only(a.copy()),
    "byte-swapped": lambda a: a.astype(">f8"),
}
TAKES = {
    "dual": (COV, relu.dual),
    "checks.cov": (COV, checks.cov),
    "psd_factor": (COV, psd_factor),
    "Tokens": (COV, lambda a: Tokens(2, tanh, a).kernel()),
    "Gaussian": (COV, lambda a: HierarchicalGaussian.constant(a).rvs(3, 0)),
    "conditional": (COV, lambda a: TWO.law().conditional(a).logpdf([0.0, 1.0])),
    "bias": (COV, lambda a: Attention(Tokens(2, relu), bias=a).law(4).rvs(3, 0)),
    "inputs": (
        COV,
        lambda a: (lambda p: simulate(p, p.inputs(a), 4, size=3, rng=0))(Program()),
    ),
    "ExchangeableScores": (
        np.diag([0.5, 2.0]),
        lambda a: ExchangeableScores(a, [1.0]).squares_moment(4),
    ),
    "softmax": (COV, softmax),
    "softmax of a vector": (np.array([0.5, 2.0, 1.0]), softmax),
    "variances": (np.array([0.5, 2.0, 1.0]), lambda v: ScaleMixture(v).pdf([0.0, 1.0])),
    "weights": (
        np.array([0.5, 0.25, 0.25]),
        lambda w: ScaleMixture([1.0, 2.0, 3.0], w).pdf([0.0, 1.0]),
    ),
    "pdf": (np.array([0.5, 2.0, 1.0]), G.pdf),
    "ppf": (np.array([0.5, 0.25, 1.0]), G.ppf),
    "cf": (np.array([0.5, 0.25, 1.0]), G.cf),
    "kde": (np.array([0.5, 0.25, 1.0]), lambda x: kde(x, [0.0, 1.0])),
    "kde_kl": (np.array([0.5, 0.25, 1.0]), lambda x: kde_kl(x, [0.5, 0.25, 2.0])),
}


def _read_only(a):
    a.flags.writeable = False
    return a


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", TAKES)
def test_every_kind_of_array_is_welcome_and_left_as_it_was(name, kind):
    array, call = TAKES[name]
    given = ODD[kind](array)
    before = repr(given)
    np.testing.assert_allclose(call(given), call(array), rtol=1e-12)
    assert repr(given) == before


@pytest.mark.parametrize(
    "value, expected",
    [
        (lambda: softmax([1e308, -1e308]), [1, 0]),
        (lambda: softmax(5.0), 1),
        (lambda: softmax(np.zeros((0, 3))).shape, (0, 3)),
        (lambda: G.pdf([]).shape, (0,)),
        (
            lambda: ScaleMixture([0.0, 1.0]).logsf([1e3, 0.0, -1e3]),
            [-INF, np.log(0.5), 0],
        ),
        (
            lambda: G(loc=1.0, scale=2.0).rvs((2, 3), random_state=0),
            1 + 2 * G.rvs((2, 3), 0),
        ),
        (lambda: np.shape(G(scale=2.0).rvs()), ()),
        (
            lambda: variance_gamma(4)(loc=1.0, scale=2.0).rvs(5, random_state=0),
            1 + 2 * variance_gamma(4).rvs(5, 0),
        ),
        (lambda: G.pdf([[INF, NAN]]), [[0, NAN]]),
        (lambda: G.pdf(1e300), 0),
        (lambda: G.sf(-1e300), 1),
        (lambda: G.ppf([0, 1, 2]), [-INF, INF, NAN]),
        (lambda: G.cf([0.0, 1e200, INF]), [1, 0, 0]),
        (lambda: ScaleMixture([0.0, 0.0]).std(), 0),
        (lambda: G.rvs((2, 0)).shape, (2, 0)),
        (lambda: LAW.rvs(np.array(3)).shape, (3, 3)),
        (lambda: LAW.rvs(np.int32(3)).shape, (3, 3)),
        (lambda: LAW.rvs([]).shape, (3,)),
        (lambda: LAW.rvs((0, 2)).shape, (0, 2, 3)),
        (lambda: LAW.rvs(2, rng=10**40) - LAW.rvs(2, rng=10**40), np.zeros((2, 3))),
        (lambda: LAW.rvs(2, rng=np.array(3)), LAW.rvs(2, rng=3)),
        (lambda: A.law(np.array(8)).rvs(2, 0), LAW.rvs(2, 0)),
        (lambda: A.law(np.float32(8)).rvs(2, 0), LAW.rvs(2, 0)),
        (lambda: TWO.law(1e300).rvs(1, 0).shape, (1, 2)),
        (lambda: T.gram(2, 0).shape, (0, 3, 3)),
        (lambda: A.scores(8, 0).shape, (0, 2, 3, 3)),
        (lambda: simulate_dense(A, 4, 0).shape, (0, 3)),
        (lambda: simulate(P, H1, 4, size=0).shape, (0, 1)),
        (lambda: Attention(T, heads=np.int8(2)).law(8).rvs(2, 0), LAW.rvs(2, 0)),
        (
            lambda: kde([1.0, 2.0, 4.0], [[0.0, 2.0], [1.0, 3.0]]),
            kde([1.0, 2.0, 4.0], [0.0, 2.0, 1.0, 3.0]).reshape(2, 2),
        ),
        (lambda: kde([1.0, 2.0, 4.0], 2.0), kde([1.0, 2.0, 4.0], [2.0])[0]),
        (
            lambda: [
                float(Program().matrix(rows=r).rows)
                for r in (np.int64(2), np.float32(0.5))
            ],
            [2, 0.5],
        ),
        (lambda: Nonlinearity(np.multiply, arity=np.int64(2))(2.0, 3.0), 6),
        (lambda: relu.dual(np.eye(2) * 1e-320)[0, 1], 0),
        (lambda: relu.dual(np.zeros((0, 2, 2))).shape, (0, 2, 2)),
        (lambda: kde([1, 2, 4], []).shape, (0,)),
    ],
)
def test_the_edge_has_an_answer(value, expected):
    np.testing.assert_allclose(value(), expected, rtol=1e-6, atol=1e-12)


def called(source):
    "The names of what is called in some code: f(…), x.f(…), partial(f, …)."
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            callee = (
                [node.func, *node.args[:1]]
                if getattr(node.func, "id", "") == "partial"
                else [node.func]
            )
            yield from (getattr(f, "id", getattr(f, "attr", None)) for f in callee)


def rejected_in(path):
    """What a file of tests calls with wrong arguments: in its table CASES, and in tests
    of what is raised, parameters included.
    """
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        target = getattr(node, "target", None) or next(
            iter(getattr(node, "targets", ())), None
        )
        if getattr(target, "id", "") == "CASES" and path == Path(__file__):
            yield from called(ast.unparse(node.value))
        code = ast.unparse(node) if isinstance(node, ast.FunctionDef) else ""
        if "pytest.raises" in code or "rejects_in_one_sentence" in code:
            yield from called(code)


TABLES = [
    Path(__file__),
    *(
        Path(__file__).parents[1] / f"{topic}.py"
        for topic in (
            "convergence/test_long_sequences",
            "learning/test_regressor",
            "learning/test_sequences",
            "learning/test_descent",
            "transformer/test_network",
            "initialisation/test_report",
            "huggingface/test_weights",
        )
    ),
]


@lru_cache
def rejected():
    return {f for path in TABLES for f in rejected_in(path)}


NOTHING_TO_REJECT = set(
    "AssumptionError AssumptionWarning Limit Training ProgramGradients gaussian "
    "uniform rademacher LimitErrorResult Chain Gradients Scan Report "
    "infattn_figures infattn_report infattn_train families_table RateTransfer "
    "CoordinateCheck".split()
)  # results, errors and plain samplers; the commands stand elsewhere


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - NOTHING_TO_REJECT))
def test_every_public_function_has_its_wrong_inputs(name):
    x = PUBLIC[name]
    assert name in rejected() or not (inspect.isfunction(x) or inspect.isclass(x))


def test_a_layer_cannot_be_changed_behind_its_back():
    cov, bias = 2 * np.eye(3), np.zeros((3, 3))
    layer = Attention(Tokens(3, relu, cov), bias=bias, mask="causal")
    cov[0, 0] = bias[0, 0] = 5.0
    assert layer.tokens.cov[0, 0] == 2
    assert layer.bias[0, 0] == 0
    for array in (layer.tokens.cov, layer.bias, layer.mask):
        with pytest.raises(ValueError):
            array[0, 0] = 0


def test_a_law_that_all_share_cannot_be_changed():
    law = A.law().marginal(0)
    for x in (law, *law.coarse, *law.replicates, poisson_dirichlet_limit(0.5)):
        for array in (x.variances, x.weights, x.v, x.w):
            with pytest.raises(ValueError):
                array[:] = 5


def test_a_mixture_keeps_its_own_numbers():
    v, w = np.array([0.5, 1.5]), np.array([0.5, 0.5])
    law = ScaleMixture(v, w)
    v[:], w[:] = 7, [0, 1]
    assert law.var() == 1
    for array in (law.variances, law.weights, law.v, law.w, ScaleMixture(v).variances):
        with pytest.raises(ValueError):
            array[:] = 5


@pytest.mark.parametrize(
    "write",
    [
        partial(attention, var_o=-1.0),
        partial(mlp, activation=5),
        partial(mlp, var_b=-1.0),
        partial(rnn, activation=np.sum),
        partial(conv1d, var_w="a"),
        partial(lstm, var_u=NAN),
    ],
)
def test_what_is_rejected_leaves_no_trace_in_the_program(write):
    p = Program()
    xs = p.inputs(np.eye(2))
    mlp(p, xs)
    before = repr(p), len(p.matrices)
    with pytest.raises((TypeError, ValueError)):
        write(p, xs)
    assert (repr(p), len(p.matrices)) == before
    assert mlp(p, xs)[0].program is p


def test_input_is_not_modified():
    cov, bias = np.eye(3), np.zeros((3, 3))
    cov.flags.writeable = bias.flags.writeable = False
    Attention(Tokens(3, relu, cov), bias=bias, mask=np.tri(3, dtype=bool)).law(4).rvs(
        10, rng=0
    )


OPTIONS = [
    (dict(only="fig1a,nope"), "'nope'"),
    (dict(only=""), "`only`"),
    (dict(out="/dev/null"), "`out`"),
    (dict(trials=0), "`trials`"),
    (dict(samples=3), "`samples`"),
    (dict(seed=-1), "`seed`"),
    (dict(workers=0), "`workers`"),
]


@pytest.mark.parametrize("options, fragment", OPTIONS)
def test_every_option_of_the_command(options, fragment, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as e:
        infattn_figures.__wrapped__(
            **options
        )  # older fastcore reads sys.argv even then
    said = e.value.code
    assert fragment in said
    assert said.startswith("infattn_figures: ")
    assert "\n" not in said
    assert not list(tmp_path.iterdir())
