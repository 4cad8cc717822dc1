"Mixtures of experts, trained: beside torch from one start, and what is refused."

import numpy as np
import pytest

from infattn_nb import Block, FeedForward, Program, SelfAttention, Transformer
from infattn_nb import limit, simulate, train
from infattn_nb.nonlinearities import tanh
from infattn_nb.netsor.nodes import AssumptionWarning
from infattn_nb.transformer import Experts, embedding_cov
from infattn_nb.transformer.as_program import ExpertGate, ScoreSoftmax
from infattn_nb.transformer.experts import GATES, Routing, k_largest

N, M, K, STEPS, RATE, TARGET = 12, 5, 2, 20, 0.2, 8.0
G = embedding_cov([0, 1, 0, 2], 1.0, 0.3)
MLP = FeedForward(1, "relu", var_1=2.0, var_2=1.5)
SMOOTH = FeedForward(1, "tanh", var_1=2.0, var_2=1.5)  # not homogeneous


# A router's bias, a shared expert with a gate, sinks beside causal and capped scores
MORE = dict(var_br=0.3, shared=MLP, shared_gate=True, var_sr=3.0)
HEADS = SelfAttention(2, mask="causal", var_sink=0.5, softcap=1.5, var_q=4.0)


def network(gate, whole=False):
    own = SMOOTH if gate == "input" else MLP
    mixture = Experts(M, K, own, gate=gate, var_r=2.0, **MORE if whole else {})
    block = Block(HEADS if whole else None, mixture, "pre")
    return Transformer(G, [block] * 2, final_norm=True)


def started(gate, rng, whole=False):
    "Program, outputs, and arrays of all weights: by node, and by name for torch."
    p, outputs = network(gate, whole).program(readout="mean")
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
        elif kind in ("Input", "Parameter") and h.cov.any():
            sd = 1.4 if kind == "Parameter" else 1.0
            rows = sd * rng.standard_normal((h.k, N if h.length else 1))
            by_node |= dict(zip(h, rows))
            fixed = "X" if h.length else f"bias{1 + ('bias1' in by_name)}"
            by_name[h.name if kind == "Parameter" else fixed] = rows
    return p, outputs, by_node, by_name


def run(gate, seed=1, whole=False, **how):
    p, outputs, by_node, by_name = started(gate, np.random.default_rng(seed), whole)
    options = dict(width=N, steps=STEPS, learning_rate=RATE, parametrization="standard")
    options |= dict(init=by_node, size=1, rng=0, verbose=False, watch=p.routing())
    return train(p, outputs, [TARGET], **options | how), by_name


def attended(torch, u, W, l):
    "Two heads, whose sinks have no cap."
    total = 0
    m = N // 2
    for h in (1, 2):
        q, k, v = (u @ W[f"{name}{l}.{h}"].mT for name in "QKV")
        p = 1.5 * torch.tanh(q @ k.mT / m**0.5 / 1.5)
        p = torch.where(torch.ones(4, 4).tril() > 0, p, -torch.inf)
        sink = W[f"sinks{l}"][h - 1].expand(4, 1)
        a = torch.softmax(torch.cat([p, sink], -1), -1)[:, :4]
        total = total + (a @ v) @ W[f"O{l}.{h}"].mT
    return total


def near(torch, z, others):
    "The weight of the largest of the other logits, in a softmax of those near it."
    top = others.max(-1, keepdim=True)
    size = torch.maximum(z.abs(), top.values)
    kept = others.masked_fill((top.values - z) / size > 0.02, -torch.inf)
    return torch.softmax(kept, -1).gather(1, top.indices), top.indices


def in_torch(gate, init):
    "Losses, logits and weights of the same descent."
    torch = pytest.importorskip("torch")
    fixed = "X", "bias1", "bias2"
    W = {k: torch.tensor(x, requires_grad=k not in fixed) for k, x in init.items()}
    losses, logits = [], []

    def normed(x):
        return torch.nn.functional.layer_norm(x, (N,), eps=1e-5)

    for _ in range(STEPS + 1):
        x, seen = W["X"], []
        for l in (1, 2):
            if "sinks1" in W:
                x = x + attended(torch, normed(x), W, l)
            u = normed(x)
            z = u @ W[f"router{l}"].mT / N**0.5
            z = z + W[f"bias{l}"].mT if "bias1" in W else z
            top = z.topk(K, -1)
            if gate == "chosen":
                g = torch.softmax(top.values, -1)
            elif gate == "softmax":
                g = torch.softmax(z, -1).gather(1, top.indices)
            elif gate == "sigmoid":
                g = torch.sigmoid(top.values)
                g = g / g.sum(-1, keepdim=True)
            elif gate in ("sigmoids", "input"):
                g = torch.sigmoid(top.values)
            else:
                first, at = near(torch, z, z)
                second, _ = near(torch, z, z.scatter(1, at, -torch.inf))
                g = torch.cat([first, second], -1)
            g = torch.zeros_like(z).scatter(1, top.indices, g)
            for e in range(M):
                into, out = (W[f"W{l}.{k}.{e + 1}"].mT for k in "12")
                if gate == "input":
                    x = x + torch.tanh(g[:, [e]] * u @ into) @ out
                else:
                    x = x + g[:, [e]] * (torch.relu(u @ into) @ out)
            if "bias1" in W:
                own = torch.relu(u @ W[f"W{l}.s1"].mT) @ W[f"W{l}.s2"].mT
                x = x + torch.sigmoid(u @ W[f"shared_gate{l}"].mT / N**0.5) * own
            seen.append(z.detach().numpy().copy())
        x = normed(x)
        f = x.mean(0) @ W["r"][0]
        loss = (f - TARGET) ** 2 / 2
        losses.append(float(loss.detach()))
        logits.append(seen)
        trained = [w for k, w in W.items() if k not in fixed]
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
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("gate", GATES)
def test_twenty_steps_are_torchs(gate, whole, dense):
    "Losses and logits, in a run in which chosen sets change."
    ran, init = run(gate, whole=whole, dense=dense)
    losses, logits = in_torch(gate, init)
    assert abs(losses[-1] - losses[0]) > 0.1
    np.testing.assert_allclose(ran.loss[0], losses, rtol=0, atol=1e-8)
    assert changes(logits[:, 1]) > 0
    for l in (0, 1):
        chosen = k_largest(logits[:, l], K)
        np.testing.assert_array_equal(ran.choices(l)[0], chosen)
    ours = ran.watched[0].reshape(STEPS + 1, -1, 4, M)
    ours = ours.reshape(STEPS + 1, 2, -1, 4, M).sum(2)  # with the bias
    np.testing.assert_allclose(ours, logits, rtol=0, atol=1e-8)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["router", "sinks", "shared_gate"])
def test_a_weight_that_is_not_trained_is_seen(name):
    whole = name != "router"
    factors = {f"{name}1": 0.0, f"{name}2": 0.0}
    ran, init = run("chosen", whole=whole, rate_factors=factors)
    losses, _ = in_torch("chosen", init)
    assert abs(ran.loss[0] - losses).max() > 1e-4


def test_ties_stop_the_run():
    gate = ExpertGate(Routing("chosen", 2))
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
    with pytest.raises(ValueError, match="be 3 stacks of 4 vectors"):
        p.route([P, p.scores(X, p.parameter())], [A, B])
    with pytest.raises(TypeError, match="`stacks` must be a list of vectors"):
        p.route(P, 1.0)


def test_routers_that_were_not_watched():
    p, outputs, by_node, _ = started("chosen", np.random.default_rng(0))
    how = dict(width=N, init=by_node, size=1, steps=1, learning_rate=0.1, verbose=False)
    only = train(p, outputs, [1.0], watch=p.routing(1), **how)
    assert only.choices(1).shape == (1, 2, 4, M)
    assert (only.choices(1).sum(-1) == K).all()
    with pytest.raises(ValueError, match="`block` must have a router that was watched"):
        only.choices(0)
    with pytest.raises(TypeError, match="`block` must be an integer"):
        only.choices(None)
    with pytest.raises(ValueError, match="have one, counted from 0: 0, 1"):
        p.routing(2)
    with pytest.raises(ValueError, match="counted from 0: none"):
        Program().routing(0)


def test_scores_that_are_not_divided():
    "They have values at every width, but no limit."
    p = Program()
    X = p.inputs(np.eye(2))
    Y = p.matrix() @ X
    values = [
        simulate(p, [], 16, scores=p.scores(X, Y, scaling), size=3, rng=0)[1]
        for scaling in ("plain", "sqrt", "linear")
    ]
    np.testing.assert_allclose(values[0], 4 * values[1])
    np.testing.assert_allclose(values[0], 16 * values[2])
    p = Program()
    X = p.matrix() @ p.inputs(np.eye(2))
    p.attend(p.scores(X, X, "plain"), X)
    said = "scores of Netsor are divided by √n or n"
    with (
        pytest.warns(AssumptionWarning, match=said),
        pytest.raises(ValueError, match="`width` must be finite.*not divided"),
    ):
        limit(p)
    assert [x.clause for x in p.check(False)] == ["instruction"]


def test_a_sink_without_a_cap():
    "Softmax of c tanh(P/c) and of the last column as it is, with its slope."
    P = np.random.default_rng(0).standard_normal((3, 4)) * 2
    ours = ScoreSoftmax(cap=1.5, sink=True)
    Q = np.concatenate([1.5 * np.tanh(P[:, :3] / 1.5), P[:, 3:]], axis=1)
    weights = np.exp(Q) / np.exp(Q).sum(1, keepdims=True)
    np.testing.assert_allclose(ours(P), weights)
    h = 1e-6
    for j in range(4):
        up = np.eye(4)[j] * h
        change = (ours(P + up) - ours(P - up)) / (2 * h)
        da = np.arange(4.0)
        found = (ours.backward(weights, np.tile(da, (3, 1))) * ours.slope(P))[:, j]
        np.testing.assert_allclose(found, change @ da, atol=1e-8)


@pytest.mark.parametrize("scaling", ["sqrt", "plain"])
@pytest.mark.parametrize(("optimizer", "power"), [("sgd", -0.5), ("adam", 0.0)])
def test_rates_of_routers_under_mup(optimizer, power, scaling):
    """The change of logits by one step of the router alone, with pulls of order one.

    At the start the pull is of order 1/√n, because the readout is of order 1/n. Adam
    does not depend on its size.
    """
    p = Program()
    X = tanh(p.matrix() @ p.inputs(G))
    w = p.parameter(0.0, 1e-4, size=2, name="w")
    p.kinds[w] = dict(sqrt="router over √n", plain="router")[scaling]
    P = p.scores(X, w, scaling)
    f = p.readout() @ p.route(P, [p.matrix() @ X, p.matrix() @ X])
    how = dict(parametrization="mup", base_width=16, matrices=["w"], watch=P, size=40)
    moved = []
    for n in (16, 256):
        z = train(
            p, f, [TARGET] * 4, width=n, steps=1, optimizer=optimizer,
            learning_rate=1e-4, rng=0, verbose=False, **how
        ).watched  # fmt: skip
        moved.append(np.sqrt(((z[:, 1] - z[:, 0]) ** 2).mean()))
    assert abs(np.log(moved[1] / moved[0]) / np.log(16) - power) < 0.2
