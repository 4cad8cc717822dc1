"Mixtures of experts, trained: beside torch from one start, and what is refused."

import numpy as np
import pytest

from infattn_nb import Block, FeedForward, Program, Transformer, train
from infattn_nb.transformer import Experts, embedding_cov
from infattn_nb.transformer.as_program import ExpertGate
from infattn_nb.transformer.experts import GATES, k_largest

N, M, K, STEPS, RATE, TARGET = 12, 5, 2, 20, 0.2, 8.0
G = embedding_cov([0, 1, 0, 2], 1.0, 0.3)
MLP = FeedForward(1, "relu", var_1=2.0, var_2=1.5)


def network(gate):
    block = Block(None, Experts(M, K, MLP, gate=gate, var_r=2.0), "pre")
    return Transformer(G, [block] * 2, final_norm=True)


def started(gate, rng):
    "Program, outputs, and arrays of all weights: by node, and by name for torch."
    p, outputs = network(gate).program(readout="mean")
    by_node, by_name = {}, {}
    for h in p.nodes:
        W = getattr(h, "W", None)
        kind = type(h).__name__
        if W is not None and W not in by_node:
            r, c = (
                (1 if W in p.readouts else int(W.rows * N)),
                int(h.args[0].length * N),
            )
            by_node[W] = np.sqrt(W.var / c) * rng.standard_normal((r, c))
            by_name["r" if W in p.readouts else W.name] = by_node[W]
        elif kind in ("Input", "Parameter"):
            rows = (1.4 if kind == "Parameter" else 1.0) * rng.standard_normal((h.k, N))
            by_node |= dict(zip(h, rows))
            by_name[h.name if kind == "Parameter" else "X"] = rows
    return p, outputs, by_node, by_name


def run(gate, seed=1, **how):
    p, outputs, by_node, by_name = started(gate, np.random.default_rng(seed))
    options = dict(width=N, steps=STEPS, learning_rate=RATE, parametrization="standard")
    options |= dict(init=by_node, size=1, rng=0, verbose=False, watch=p.routers[1])
    return train(p, outputs, [TARGET], **options | how), by_name


def in_torch(gate, init):
    "Losses, logits and weights of the same descent."
    torch = pytest.importorskip("torch")
    W = {k: torch.tensor(x, requires_grad=k != "X") for k, x in init.items()}
    losses, logits = [], []
    for _ in range(STEPS + 1):
        x, seen = W["X"], []
        for l in (1, 2):
            u = torch.nn.functional.layer_norm(x, (N,), eps=1e-5)
            z = u @ W[f"router{l}"].mT / N**0.5
            top = z.topk(K, -1)
            if gate == "chosen":
                g = torch.softmax(top.values, -1)
            elif gate == "softmax":
                g = torch.softmax(z, -1).gather(1, top.indices)
            else:
                g = torch.sigmoid(top.values)
                g = g / g.sum(-1, keepdim=True)
            g = torch.zeros_like(z).scatter(1, top.indices, g)
            for e in range(M):
                h = torch.relu(u @ W[f"W{l}.1.{e + 1}"].mT)
                x = x + g[:, [e]] * (h @ W[f"W{l}.2.{e + 1}"].mT)
            seen.append(z.detach().numpy().copy())
        x = torch.nn.functional.layer_norm(x, (N,), eps=1e-5)
        f = x.mean(0) @ W["r"][0]
        loss = (f - TARGET) ** 2 / 2
        losses.append(float(loss.detach()))
        logits.append(seen)
        trained = [w for k, w in W.items() if k != "X"]
        for w, d in zip(trained, torch.autograd.grad(loss, trained)):
            with torch.no_grad():
                w -= RATE * d
    return np.array(losses), np.array(logits)


def changes(logits):
    "Number of chosen sets that differ from the step before, (steps, tokens, M)."
    chosen = k_largest(logits, K)
    return (chosen[1:] != chosen[:-1]).any(-1).sum()


@pytest.mark.torch
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("gate", GATES)
def test_twenty_steps_are_torchs(gate, dense):
    "Losses and logits, in a run in which chosen sets change."
    ran, init = run(gate, dense=dense)
    losses, logits = in_torch(gate, init)
    assert abs(losses[-1] - losses[0]) > 0.1
    assert changes(logits[:, 1]) > 0
    np.testing.assert_allclose(ran.loss[0], losses, rtol=0, atol=1e-8)
    ours = ran.watched[0].reshape(STEPS + 1, 4, M)
    np.testing.assert_allclose(ours, logits[:, 1], rtol=0, atol=1e-8)


@pytest.mark.torch
def test_a_router_that_is_not_trained_is_seen():
    ran, init = run("chosen", rate_factors={"router1": 0.0, "router2": 0.0})
    losses, _ = in_torch("chosen", init)
    assert abs(ran.loss[0] - losses).max() > 1e-4


def test_ties_stop_the_run():
    gate = ExpertGate("chosen", 2)
    with pytest.raises(ValueError, match="must not tie, got two that differ"):
        gate(np.array([[1.0, 0.5, 0.5 + 1e-11, 0.0]]))
    gate(np.array([[1.0, 1.0, 0.5, 0.0]]))  # a tie within the chosen is harmless
    p, outputs, by_node, _ = started("chosen", np.random.default_rng(0))
    equal = np.ones(N)
    routers = {h for h in p.nodes if type(h).__name__ == "Parameter"}
    init = by_node | {x: equal for h in routers for x in h}
    with pytest.raises(ValueError, match="must not tie"):
        train(p, outputs, [1.0], width=N, init=init, size=1, rng=0, verbose=False)


def test_rows_of_a_route():
    "Row i averages the i-th rows."
    p = Program()
    X = p.inputs(G)
    A, B = p.matrix() @ X, p.matrix() @ X
    P = p.scores(X, p.parameter(0.0, 1.0, size=2))
    Y = p.route(P, [A, B])
    assert Y.k == 4
    with pytest.raises(ValueError, match="be 2 stacks of 4 vectors"):
        p.route(P, [A])
    with pytest.raises(ValueError, match="neither a shared expert nor biases"):
        mixture = Experts(4, 2, MLP, shared=MLP)
        Transformer(G, [Block(None, mixture)]).program()
