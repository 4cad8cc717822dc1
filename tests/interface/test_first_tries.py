"""What a new user types first: one sentence that names the remedy, and a function φ in
every form, wherever one is taken.
"""

from fractions import Fraction

import numpy as np
import pytest

from infattn_nb import FeedForward, Program, Tokens, Transformer, netsor, simulate
from infattn_nb.nonlinearities import ACTIVATIONS, NAMED, Nonlinearity, gelu_tanh, named
from infattn_nb.nonlinearities import tanh
from infattn_nb.theory import averages, break_pseudo_lipschitz, compose, gaussian_mean
from infattn_nb.theory import growth, product

P = Program()
X1 = P.inputs(np.eye(2))[0]


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
