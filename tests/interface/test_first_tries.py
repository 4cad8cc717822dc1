"""What a new user types first: one sentence that names the remedy, and a function φ in
every form, wherever one is taken.
"""

import re
from fractions import Fraction

import numpy as np
import pytest

from infattn_nb import (
    Attention,
    FeedForward,
    Program,
    Tokens,
    Transformer,
    netsor,
    simulate,
    train,
)
from infattn_nb.distributions import mixture_of_heads
from infattn_nb.learning import embed_features, patches
from infattn_nb.nonlinearities import (
    ACTIVATIONS,
    NAMED,
    Nonlinearity,
    gelu_tanh,
    named,
    relu,
    softmax,
    tanh,
)
from infattn_nb.numerics import parallel
from infattn_nb.paper import figure_1a
from infattn_nb.theory import (
    averages,
    break_pseudo_lipschitz,
    compose,
    gaussian_mean,
    growth,
    product,
)

INF, NAN = np.inf, np.nan
ONE_LINE = re.compile(r"[^\n]+")

P = Program()
X1, X2 = P.inputs(np.eye(2))
W, R = P.matrix(), P.readout()
S = P.score(W @ X1, X2)
LAYER = Attention(Tokens(3, relu, cov=np.eye(3)))
NET = Transformer.uniform(np.eye(4), 0.3, 2, heads=2)


def trained():
    p = Program()
    f = [p.readout() @ relu(p.matrix() @ v) for v in p.inputs(np.eye(2))]
    return train(p, f, [1, -1], width=4, steps=2, rng=0, verbose=False)


class Client:
    "Of dask.distributed, as far as it matters."

    def get_executor(self):
        return None


def within(workers):
    with parallel(workers):
        pass


THREE_AXES = np.ones((2, 3, 3), bool)
TRIES = {
    "heads=-inf": (lambda: Attention(Tokens(3, relu), heads=-INF), "`heads` must be"),
    "a mask of three axes": (
        lambda: Attention(Tokens(3, relu), mask=THREE_AXES),
        r"`mask` must be \(3, 3\), got \(2, 3, 3\)",
    ),
    "a mask of a block": (
        lambda: Transformer.uniform(np.eye(3), 0.0, 1, mask=THREE_AXES),
        r"`mask` must be \(3, 3\), got \(2, 3, 3\)",
    ),
    "a name that is none": (
        lambda: Tokens(3, "rleu"),
        "`activation` must.*or a function, got 'rleu'; did you mean 'relu'",
    ),
    "np.tanh(vector)": (lambda: np.tanh(X1), r"write tanh\(h\) with"),
    "np.exp(vector)": (lambda: np.exp(X1), r"write program.nonlin\(np.exp, h\)"),
    "np.exp(score)": (lambda: np.exp(S), "scores are read by program.attend"),
    "softmax(vector)": (lambda: softmax(X1), r"program.attend\(scores, values\)"),
    "softmax of a list": (lambda: softmax([X1, X2]), "program.attend"),
    "tanh of a list": (lambda: tanh([X1, X2]), r"write \[tanh\(h\) for h in …\]"),
    "vector - 1": (lambda: X1 - 1, "add a constant inside a function"),
    "1 - vector": (lambda: 1 - X1, "add a constant inside a function"),
    "vector + 1": (lambda: X1 + np.float64(1), "add a constant inside a function"),
    "1 + vector": (lambda: np.float64(1) + X1, "add a constant inside a function"),
    "array + vector": (lambda: np.ones(2) + X1, "add a constant inside a function"),
    "vector squared": (lambda: X1**2, r"program.nonlin\(lambda x: x\*\*2, h\)"),
    "vector * vector": (
        lambda: X1 * X2,
        r"`factor` must.*got `u1\[1\]`.*`times\(g, h\)`",
    ),
    "vector / vector": (lambda: X1 / X2, r"`times\(g, h\)`"),
    "1 / vector": (lambda: 1 / X1, r"program.nonlin\(lambda x: 1/x, h\)"),
    "abs(vector)": (lambda: abs(X1), r"write absolute\(h\)"),
    "vector > 0": (lambda: X1 > 0, "compare inside a continuous function"),
    "vector @ vector": (lambda: X1 @ X2, r"program.score\(q, k\)"),
    "vector @ matrix": (lambda: X1 @ W, "a matrix stands on the left"),
    "array @ vector": (lambda: np.ones((2, 2)) @ X1, r"program.matrix\(\) @ h"),
    "matrix * vector": (lambda: W * X1, "a matrix multiplies vectors, W @ h"),
    "vector * matrix": (lambda: X1 * W, "write W1 @ h"),
    "2 * matrix": (lambda: 2 * W, r"2\*\(W @ h\)"),
    "matrix + matrix": (lambda: W + W, r"V @ h"),
    "matrix @ matrix": (lambda: W @ P.matrix("V"), r"W1 @ \(V @ h\)"),
    "matrix @ list": (lambda: W @ [X1, X2], r"write \[W1 @ h for h in …\]"),
    "array @ matrix": (lambda: np.eye(2) @ W, "a matrix multiplies vectors"),
    "score + 1": (lambda: S + 1, r"program.nonlin\(φ, h, scores=\[p\]\)"),
    "2 * score": (lambda: np.float64(2) * S, "scores are read by"),
    "a keyword of a block": (
        lambda: Transformer.uniform(np.eye(4), 0.0, 2, rotary=True),
        r"write SelfAttention\(rotary=…\) in a Block",
    ),
    "a keyword like another": (
        lambda: Transformer.uniform(np.eye(4), 0.0, 2, head=2),
        "`head` must be an option of Transformer.uniform.*did you mean 'heads'",
    ),
    "a keyword of nobody": (
        lambda: Transformer.uniform(np.eye(4), 0.0, 2, colour=2),
        "`colour` must be an option of Transformer.uniform.*choose among final_norm",
    ),
    "an option of a law": (
        lambda: mixture_of_heads([([1.0], [1.0])], singlar=True),
        "did you mean 'singular'",
    ),
    "an option of a figure": (lambda: figure_1a(sample=9), "did you mean 'samples'"),
    "an option of a search": (
        lambda: break_pseudo_lipschitz(tanh, seed=0),
        "choose among size, rng",
    ),
    "readout=17": (
        lambda: NET.gradients(8, 2, readout=17),
        r"`readout` must be 'last', 'mean' or a covariance \(4, 4\), got 17",
    ),
    "linear(x, 3)": (lambda: P.linear(X1, 3), r"write 3\*h, or program.linear\(\(3"),
    "linear()": (lambda: P.linear(), "`terms` must be pairs"),
    "law.plot(2)": (lambda: LAYER.law().plot(2), "`ax` must be Axes, got int"),
    "program.draw(2)": (lambda: P.draw(2), "`ax` must be Axes, got int"),
    "training.plot(2)": (lambda: trained().plot(2), "`ax` must be Axes, got int"),
    "a pair too short": (
        lambda: mixture_of_heads([(1.0,)]),
        r"`nodes` must be a list of pairs \(u, w\), got \(1.0,\) in it",
    ),
    "no pair": (lambda: mixture_of_heads([1.0]), "`nodes` must be a list of pairs"),
    "no list": (lambda: mixture_of_heads(3), "`nodes` must be a list of pairs"),
    "matrix(7)": (lambda: P.matrix(7), "`name` must be a str, got int"),
    "readout(7)": (lambda: P.readout(7), "`name` must be a str, got int"),
    "matrix(rows=π)": (lambda: P.matrix(rows=np.pi), "`rows` must be a positive frac"),
    "inputs(rows=e)": (lambda: P.inputs(np.eye(2), rows=np.e), "`rows` must be a pos"),
    "a missing feature": (
        lambda: embed_features([[NAN, 1.0]]),
        "`X` must hold numbers.*got nan; pass a table",
    ),
    "a missing pixel": (
        lambda: patches(np.full((1, 4, 4), NAN), 2),
        "`images` must hold numbers.*got nan",
    ),
    "a client of dask": (lambda: within(Client()), r"pass client.get_executor\(\)"),
}


@pytest.mark.parametrize("case", TRIES)
def test_one_sentence_names_the_remedy(case):
    attempt, says = TRIES[case]
    with pytest.raises((TypeError, ValueError), match=says) as error:
        attempt()
    assert ONE_LINE.fullmatch(str(error.value))


def test_arithmetic_of_vectors_is_as_before():
    "numpy's numbers on either side, sums that start with zero."
    p = Program()
    x, y = p.inputs(np.eye(2))
    made = [np.float64(2) * x, x * np.float64(2), x / np.float32(2), np.int64(3) * y]
    made += [sum([x, y]), x + y, x - y, -x, np.float64(0) + x, np.subtract(x, y)]
    factors = [(2, 0), (2, 0), (0.5, 0), (0, 3)]
    factors += [(1, 1), (1, 1), (1, -1), (-1, 0), (1, 0), (1, -1)]
    values = simulate(p, [x, y, *made], 50, coords=50, rng=0)[0]
    for value, (a, b) in zip(values[2:], factors, strict=True):
        np.testing.assert_allclose(value, a * values[0] + b * values[1], atol=1e-12)


def test_lengths_are_exact_fractions():
    "Floats that are fractions but for rounding; others are none."
    p = Program()
    fractions = (1 / 3, 0.333333333333, 7 / 997, 77 / 50257, Fraction(1, 123457), 2)
    exact = ("1/3", "1/3", "7/997", "77/50257", "1/123457", "2")
    for rows, expected in zip(fractions, exact, strict=True):
        assert p.matrix(rows=rows).rows == Fraction(expected)
    rng = np.random.default_rng(0)
    for rows in rng.random(200):
        with pytest.raises(ValueError, match="`rows` must be a positive fraction"):
            p.matrix(rows=rows)


# -- φ in every form


def of_program(write):
    "Outputs of a program, whose functions are written by `write`."

    def outputs(phi):
        p = Program()
        x = p.inputs(np.eye(2) + 0.5)
        hs = write(p, x, phi)
        return simulate(p, hs, 7, size=4, rng=0)

    return outputs


TAKES = {
    "Tokens": lambda φ: Tokens(3, φ, cov=np.eye(3) + 0.5).gram(8, 3, rng=0),
    "FeedForward": lambda φ: (
        Transformer.uniform(np.eye(3), activation=φ, layers=1, heads=2)
        .chain(8, 2, rng=0)
        .gram
    ),
    "nonlin": of_program(lambda p, x, φ: [p.nonlin(φ, p.matrix() @ h) for h in x]),
    "mlp": of_program(lambda p, x, φ: netsor.mlp(p, x, layers=2, activation=φ)),
    "rnn": of_program(lambda p, x, φ: netsor.rnn(p, x, activation=φ)),
    "conv1d": of_program(lambda p, x, φ: netsor.conv1d(p, x, activation=φ)),
    "averages": lambda φ: averages(P, φ, X1, 64, size=3, rng=0)[0],
    "gaussian_mean": lambda φ: gaussian_mean(φ, np.array([0.5, 2.0])),
}
KNOWN_ONLY = {  # which need an order and a constant
    "growth": growth,
    "product": lambda φ: product(φ, "tanh")(np.array([0.3, -2.0])),
    "compose": lambda φ: compose("relu", φ)(np.array([0.3, -2.0])),
    "break_pseudo_lipschitz": lambda φ: break_pseudo_lipschitz(φ, size=10**3, rng=0)[0],
}


@pytest.mark.parametrize("name", [*TAKES, *KNOWN_ONLY])
def test_a_function_is_accepted_in_every_form(name):
    of = (TAKES | KNOWN_ONLY)[name]
    forms = ["tanh", "TANH"] if name in KNOWN_ONLY else ["tanh", "TANH", np.tanh]
    for form in forms:
        np.testing.assert_allclose(of(form), of(tanh), rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="did you mean 'tanh'"):
        of("tnah")


def test_functions_and_modules_of_torch():
    torch = pytest.importorskip("torch")
    for form in (torch.tanh, torch.nn.Tanh(), torch.nn.functional.tanh):
        assert named(form) is tanh
        for name in ("Tokens", "nonlin", "growth"):
            of = (TAKES | KNOWN_ONLY)[name]
            np.testing.assert_allclose(of(form), of(tanh), rtol=1e-12)
    assert named(torch.nn.GELU(approximate="tanh")) is gelu_tanh


def test_names_are_those_of_functions():
    for name, φ in NAMED.items():
        assert isinstance(φ, Nonlinearity)
        assert name in ACTIVATIONS or repr(φ) == name
    assert FeedForward(activation="softplus").activation is NAMED["softplus"]


# -- a pool that breaks
