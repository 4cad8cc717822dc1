"""Torch's side of the comparison of training in tests/learning/test_descent.py.

A torch.nn.MultiheadAttention without biases, read at one position, trained by
torch's autograd and SGD in double precision.
"""

import numpy as np
import torch

CASES = {
    "plain": dict(lr=0.02),
    "momentum": dict(lr=0.01, momentum=0.8),
    "decay": dict(lr=0.02, momentum=0.5, weight_decay=0.1),
}
STEPS, P, S, E, H = 100, 6, 5, 8, 2


def problem():
    rng = np.random.default_rng(0)
    return rng.standard_normal((P, S, E)), rng.standard_normal((P, E))


def module():
    torch.manual_seed(0)
    return torch.nn.MultiheadAttention(
        E, H, bias=False, batch_first=True, dtype=torch.float64
    )


def run(case):
    "Losses, outputs and averaged attention in the end."
    attention = module()
    X, y = map(torch.tensor, problem())
    descent = torch.optim.SGD(attention.parameters(), **CASES[case])
    losses = []
    for t in range(STEPS + 1):
        f = attention(X[:, -1:], X, X)[0][:, 0]
        loss = 0.5 * ((f - y) ** 2).sum()
        losses.append(loss.item())
        if t < STEPS:
            descent.zero_grad()
            loss.backward()
            descent.step()
    f, A = attention(X[:, -1:], X, X)
    return np.array(losses), f[:, 0].detach().numpy(), A[:, 0].detach().numpy()
