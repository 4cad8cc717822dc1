"""Cases and helpers of several test files."""

import numpy as np

from infattn_nb import Program
from infattn_nb.netsor import attention, conv1d, lstm, mlp, rnn
from infattn_nb.nonlinearities import clip, erf, relu, tanh

Σ = np.array([[1.0, 0.5, 0.2], [0.5, 1.0, -0.3], [0.2, -0.3, 1.0]])


def crosswise(p):
    R, S = p.matrix("R"), p.matrix("S")
    x, z = (clip(2.0)(h) for h in p.inputs([[1.0, 0.8], [0.8, 1.0]]))
    p1, p2 = p.score(R @ x, S @ z), p.score(S @ x, R @ z)
    v, w = (p.matrix() @ h for h in (x, z))
    return [p.attend([p1, p2], [v, w]), v + w]


def dying(p):
    "ReLU vectors that are zero altogether with high probability, and their products."
    W, (h, b) = p.matrix(), p.inputs(np.eye(2))
    x = relu(h - 2 * b)
    return [W @ x, W @ relu(W @ x), W @ relu(-b)]


def repeated(p):
    W, (h,) = p.matrix(var=2.0), p.inputs([[1.0]])
    return [W @ tanh(h), W @ tanh(h + 0 * h), W @ erf(W @ tanh(h))]


def tall(p):
    "Rectangular matrices forward and backward, tied."
    A, B, (h,) = p.matrix(rows=3), p.matrix(rows=1), p.inputs([[1.0]], mean=0.5)
    x = tanh(A @ h)
    return [B @ x, B @ tanh(A @ relu(B @ x))]


def mlp_then_attention(p):
    return attention(
        p,
        [
            clip(1.0)(g)
            for g in mlp(p, p.inputs(Σ), 2, activation=tanh, var_w=2.0, var_b=0.1)
        ],
        heads=2,
        var_q=3.0,
    )


PROGRAMS = {
    "MLP": (5, lambda p: mlp(p, p.inputs(Σ), 3, activation=relu, var_w=2.0, var_b=0.1)),
    "recurrent, 4 steps": (4, lambda p: rnn(p, p.inputs(np.ones((4, 4))), var_w=2.0)),
    "LSTM": (3, lambda p: lstm(p, p.inputs(Σ), var_w=4.0)),
    "convolution": (4, lambda p: conv1d(p, conv1d(p, p.inputs(Σ)), activation=tanh)),
    "attention after an MLP": (6, mlp_then_attention),
    "low-rank heads": (
        6,
        lambda p: attention(p, [relu(h) for h in p.inputs(Σ)], heads=2, low_rank=True),
    ),
    "linear causal attention": (
        4,
        lambda p: attention(p, p.inputs(Σ), scaling="linear", mask="causal"),
    ),
    "crosswise scores": (4, crosswise),
    "repeated inputs": (3, repeated),
    "dying ReLU": (3, dying),
    "rectangular": (2, tall),
    "width one": (
        1,
        lambda p: mlp(p, p.inputs(Σ), 3, activation=relu, var_w=2.0, var_b=0.1),
    ),
    "width one, attention": (1, mlp_then_attention),
    "width two, recurrent": (2, lambda p: rnn(p, p.inputs(np.ones((4, 4))), var_w=2.0)),
}


def program(build):
    p = Program()
    return p, build(p)
