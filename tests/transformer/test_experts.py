"Mixtures of experts: gates, and both passes against weights that are written out."

from dataclasses import replace
from functools import lru_cache
from unittest.mock import patch

import numpy as np
import pytest
from conftest import nightly
from scipy.optimize import approx_fprime
from scipy.stats import ks_2samp

from infattn_nb import Block, FeedForward, Transformer
from infattn_nb.transformer import Experts, embedding_cov
from infattn_nb.transformer.experts import GATES, Routing, k_largest
from infattn_nb.transformer.parts import Cotangent

G = embedding_cov([0, 1, 0, 2], 1.0, 0.3)
MLP = FeedForward(2, "relu", var_1=2.0, var_2=1.5, var_b1=0.2, var_b2=0.3)
SMOOTH = FeedForward(2, "tanh", var_1=2.0, var_2=1.5, var_b2=0.3)  # not homogeneous
GRADIENTS = "r", "br", "1", "b1", "2", "b2"
FAN_INS = np.array([24, 1, 24, 1, 48, 1])


def network(gate, skip):
    own = SMOOTH if gate == "input" else MLP
    mixture = Experts(4, 2, own, gate=gate, var_r=1.5, var_br=0.4)
    block = Block(None, mixture, norm_placement="pre", skip_scale=skip)
    return Transformer(G, [block] * 2, random_embeddings=True, final_norm=True)


def values(g):
    "What is compared of a draw of gradients: sizes in both blocks, and Gram entries."
    there = [name for name in GRADIENTS if name in g.squared_unit_norms]
    sizes = [g.squared_unit_norms[name] for name in there]
    grams = [g.gram[:, 0, 0, 0], g.gram[:, 0, 0, 1], g.gram[:, 0, 3, 3]]
    grams += [g.inner[:, 0, 0, 0], g.inner[:, 0, 0, 1], g.inner[:, 0, 1, 0]]
    forward = [g.chain.gram[:, 1, 0, 1], g.chain.gram[:, 1, 0, 2]]
    return np.column_stack([*sizes, *grams, *forward])


@lru_cache
def written_out(gate, skip, size, n=24):
    "The same numbers by torch, where all weights are drawn."
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(size)
    start = np.linalg.cholesky(G + 1e-14 * np.eye(4))

    def drawn(sd, *shape):
        return torch.tensor(sd * rng.standard_normal(shape), requires_grad=True)

    def weights(z, top):
        if gate == "chosen":
            return torch.softmax(top.values, -1)
        if gate == "softmax":
            return torch.softmax(z, -1).gather(1, top.indices)
        if gate == "two maxima":
            first = top.values[:, :1]
            rest = z.scatter(1, top.indices[:, :1], -torch.inf)
            of_two = []
            for m, seen in ((first, z), (top.values[:, 1:], rest)):
                near = (m - seen) / torch.maximum(z.abs(), m) <= 0.02
                of_two.append(1 / torch.where(near, (seen - m).exp(), 0).sum(-1))
            return torch.stack(of_two, 1)
        if gate in ("sigmoids", "input"):
            return torch.sigmoid(top.values)
        return torch.sigmoid(top.values) / torch.sigmoid(top.values).sum(-1)[:, None]

    def mixture(u):
        W, b = drawn((1.5 / n) ** 0.5, n, 4), drawn(0.4**0.5, 4)
        z = u @ W + b
        top = z.topk(2, -1)
        g = torch.zeros_like(z).scatter(1, top.indices, weights(z, top))
        used = [W, b]
        y = 0
        for e in range(4):
            W1, b1 = drawn((2 / n) ** 0.5, n, 2 * n), drawn(0.2**0.5, 2 * n)
            W2, b2 = drawn((1.5 / (2 * n)) ** 0.5, 2 * n, n), drawn(0.3**0.5, n)
            if gate == "input":
                here = (g[:, [e]] > 0) * (torch.tanh(g[:, [e]] * u @ W1) @ W2 + b2)
                y, b1.grad = y + here, torch.zeros_like(b1)
            else:
                y = y + g[:, [e]] * (torch.relu(u @ W1 + b1) @ W2 + b2)
            used += [W1, b1, W2, b2]
        return y, used

    def norm(x):
        return torch.nn.functional.layer_norm(x, (n,), eps=1e-5)

    found = []
    for _ in range(size):
        embedded = torch.tensor(start @ rng.standard_normal((4, n)), requires_grad=True)
        x, blocks, streams = embedded, [], []
        for _ in range(2):
            y, used = mixture(norm(x))
            x = skip * x + y
            blocks.append(used)
            streams.append((x @ x.mT).detach().numpy() / n)
        head = torch.tensor(rng.standard_normal(n) / n**0.5)
        (norm(x).mean(0) @ head).backward()
        d = embedded.grad.numpy()
        squares = np.array([[float((W.grad**2).sum()) for W in b] for b in blocks])
        experts = squares[:, 2:].reshape(2, 4, 4).sum(1)
        sizes = np.concatenate([squares[:, :2], experts], axis=1) / FAN_INS
        gram, inner = d @ d.T, d @ embedded.detach().numpy().T
        grams = *gram[0, :2], gram[3, 3], *inner[0, :2], inner[1, 0]
        sizes = sizes[:, [0, 1, 2, 4, 5]] if gate == "input" else sizes
        found.append([*sizes.T.ravel(), *grams, *streams[0][0, 1:3]])
    return np.array(found)


def p_values(gate, skip, size, rng=0):
    ours = values(network(gate, skip).gradients(24, 4 * size, rng, readout="mean"))
    torchs = written_out(gate, skip, size)
    return np.array([ks_2samp(*pair).pvalue for pair in zip(ours.T, torchs.T)])


@pytest.mark.torch
@pytest.mark.parametrize(
    "gate, skip",
    nightly(
        [("softmax", 0.2), ("chosen", 1), ("sigmoid", 1), ("input", 0.2)],
        ("sigmoid", 1),
        ("chosen", 1),
        ("input", 0.2),
    ),
)
def test_both_passes_are_torchs(gate, skip):
    "Twenty numbers of a network of two blocks, whose output is normalised."
    assert p_values(gate, skip, 400).min() > 1e-8


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("skip", [1.0, 0.2])
@pytest.mark.parametrize("gate", GATES)
def test_both_passes_are_torchs_in_many_networks(gate, skip):
    assert p_values(gate, skip, 3000, 1).min() > 1e-8


@pytest.mark.parametrize("gate", GATES)
def test_gates_of_random_logits(gate):
    "Weights by sorting, and slopes by differences."
    rng = np.random.default_rng(0)
    Z = 2 * rng.standard_normal((1000, 6))
    two = gate == "two maxima"
    Z[:10, 1] = 1.01 * Z[:10, 0]  # some logits are near one another
    k = 2 if two else 3
    chosen = k_largest(Z, k)
    ordered = np.sort(Z, axis=1)
    assert (chosen == (Z >= ordered[:, [6 - k]])).all()
    g = GATES[gate].weights(Z, chosen)
    if two:
        for z, row in zip(Z, g):
            order = np.argsort(-z)
            for i, among in ((order[0], order), (order[1], order[1:])):
                near = [j for j in among if z[i] - z[j] <= 0.02 * max(abs(z[j]), z[i])]
                share = np.exp(z[i]) / np.exp(z[near]).sum()
                np.testing.assert_allclose(row[i], share, rtol=1e-12)
        assert ((g > 0) & (g < 1)).any(1).sum() > 5
    raw = 1 / (1 + np.exp(-Z)) if gate == "sigmoid" else np.exp(Z)
    whole = raw if gate == "softmax" else np.where(chosen, raw, 0)
    raw = raw if "sigm" not in gate and gate != "input" else 1 / (1 + np.exp(-Z))
    size = 1.0 if gate in ("sigmoids", "input") else whole.sum(1, keepdims=True)
    exact = np.where(chosen, raw / size, 0)
    if not two:
        np.testing.assert_allclose(g, exact, atol=1e-15, rtol=1e-12)
    dg = np.where(chosen, rng.standard_normal(Z.shape), 0)
    dz = GATES[gate].pull(Z, g, dg)
    for z, kept, up, down in zip(Z[:20], chosen, dg, dz):
        slope = approx_fprime(z, lambda z: up @ GATES[gate].weights(z, kept), 1e-7)
        np.testing.assert_allclose(down, slope, atol=1e-6)


@pytest.mark.parametrize("n", [24, np.inf])
def test_a_weight_of_the_input_of_relu_units_is_one_of_their_output(n):
    "ReLU without biases is homogeneous; both passes agree for each seed."
    mlp = FeedForward(2, "relu", var_1=2.0, var_2=1.5)
    found = []
    for gate in ("input", "sigmoids"):
        block = Block(None, Experts(4, 2, mlp, gate=gate, var_r=1.5))
        net = Transformer(G, [block] * 2, random_embeddings=True, final_norm=True)
        g = net.gradients(n, 20, 3, readout="mean")
        sizes = [g.squared_unit_norms[name] for name in ("r", "1", "2")]
        of_tokens = [x.reshape(20, -1) for x in (g.gram, g.inner, g.chain.gram)]
        found.append(np.column_stack([*sizes, *of_tokens]))
    np.testing.assert_allclose(*found, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("n", [64, np.inf])
def test_the_router_passes_on_the_slope_along_the_logits(gate, n):
    "The trace of T is the derivative of the loss if all logits grow alike."
    mixture = Experts(5, 2, FeedForward(1, "relu"), gate=gate)
    rng = np.random.default_rng(1)
    R = rng.standard_normal((3, 4, 4))
    C, S = rng.standard_normal((2, 3, 4, 4))
    dY = Cotangent(C, C @ C.mT, R, R @ R.mT, n, np.arange(4))
    record = mixture.forward(R, n, rng, keep="all")
    sent = mixture.fresh(record, dY, rng)
    seen = {}

    def pull(Z, g, dg):
        seen["dg"] = dg
        return kept.pull(Z, g, dg)

    kept = GATES[gate]
    with patch.dict(GATES, {gate: kept._replace(pull=pull)}):
        _, pulls = mixture.backward(record, sent, S, dY)
    chosen = record.g > 0
    ε = 1e-6
    up, down = (kept.weights((1 + x) * record.Z, chosen) for x in (ε, -ε))
    slope = (seen["dg"] * (up - down)).sum((1, 2)) / (2 * ε)
    np.testing.assert_allclose(np.einsum("bii->b", pulls[-1].inner), slope, atol=1e-7)
    np.testing.assert_allclose((seen["dg"] != 0).sum(-1), 2)


@pytest.mark.power("logits 2.5 % larger")
def test_the_pull_of_a_router_has_the_variance_of_its_logits(size=20_000):
    "E z² = var_r (|x|² + bias²): a bias is the weight of one more coordinate."
    mixture = Experts(4, 2, FeedForward(1, "relu"), var_r=2.5, var_br=0.9)
    rng = np.random.default_rng(0)
    R = np.broadcast_to(np.eye(1), (size, 1, 1))
    dY = Cotangent(R, R, R, R, np.inf, np.arange(1))
    record = mixture.forward(R, np.inf, rng, keep="all")
    _, pulls = mixture.backward(record, mixture.fresh(record, dY, rng), R, dY)
    squares = (record.Z**2).ravel()
    exact = 2.5 * (1 + pulls[-1].bias ** 2)
    assert abs(squares.mean() - exact) < 6 * squares.std() / np.sqrt(squares.size)


@pytest.mark.slow
@pytest.mark.power("units of tokens that did not choose the expert")
@pytest.mark.parametrize("gate", ["chosen", "input"])
def test_experts_compute_the_units_of_their_tokens_only(gate):
    """One network at a time; among thousands, some token chooses each expert. Products
    of the gradient of a token with tokens of other experts are not zero.
    """
    mixture = Experts(4, 1, FeedForward(1, "relu", var_1=2.0), gate=gate)
    block = Block(None, mixture, norm_placement=None, skip_scale=0.3)
    alike = embedding_cov([0, 1, 0, 2], 1.0, 3.0)
    net = Transformer(alike, [block] * 2, random_embeddings=True)
    alone = [net.gradients(6, 1, seed, readout="mean") for seed in range(900)]
    many = net.gradients(6, 8000, 0, readout="mean")
    for value in (
        lambda g: g.chain.gram[:, 1, 0, 1],
        lambda g: g.gram[:, 0, 0, 0],
        lambda g: g.inner[:, 0, 0, 1],
        lambda g: g.inner[:, 0, 3, 1],
        lambda g: g.squared_unit_norms["1"][:, 0],
        lambda g: g.squared_unit_norms["r"][:, 0],
    ):
        one = np.concatenate([value(g) for g in alone])
        assert ks_2samp(one, value(many)).pvalue > 1e-8


@pytest.mark.power("gradients of a weight that is constant")
def test_one_expert_is_an_mlp():
    block = Block(None, MLP, norm_placement=None)
    net = Transformer(G, [block], random_embeddings=True)
    mixture = replace(block, feedforward=Experts(1, 1, MLP, var_br=1.0))
    a = net.gradients(8, 4000, 0)
    b = replace(net, blocks=[mixture]).gradients(8, 4000, 1)
    for name in ("1", "b1", "2", "b2"):
        pair = (g.squared_unit_norms[name][:, 0] for g in (a, b))
        assert ks_2samp(*pair).pvalue > 1e-8
    assert (b.squared_unit_norms["r"] == 0).all()


def test_load():
    "Shares of choices, and entropies of the routers."
    block = Block(None, Experts(4, 2, MLP, var_r=1e-12))
    net = Transformer(G, [block, Block(None, MLP)], random_embeddings=True)
    chain = net.chain(np.inf, 200, 0)
    assert chain.load.shape == (200, 2, 4)
    np.testing.assert_allclose(chain.load[:, 0].sum(-1), 1)
    assert chain.load[:, 0].max() <= 0.5
    assert np.isnan(chain.load[:, 1]).all()
    np.testing.assert_allclose(chain.router_entropy[:, 0], np.log(4), rtol=1e-9)
    assert "largest share" in repr(chain)


def test_alike_tokens_meet_at_one_expert():
    "Of two tokens and two experts, by the angle: 1 − arccos(c)/π."
    for c in (0.0, 0.6, 0.95):
        R = np.linalg.cholesky([[1, c], [c, 1]])
        R = np.broadcast_to(R, (20_000, 2, 2))
        _, g = Experts(2, 1, MLP).route(R, np.random.default_rng(3))
        shared = (g[:, 0] * g[:, 1]).sum(-1) > 0
        p = 1 - np.arccos(c) / np.pi
        assert abs(shared.mean() - p) < 6 * np.sqrt(p * (1 - p) / 20_000)


def test_what_needs_an_mlp_refuses_a_mixture():
    net = network("chosen", 1.0)
    with pytest.raises(ValueError, match="`feedforward` must be an MLP for a determin"):
        net.kernel()


def shared_network(gated):
    mixture = Experts(
        3, 1, MLP, gate="softmax", shared=MLP, shared_gate=gated, var_sr=3.0
    )
    block = Block(None, mixture, norm_placement="pre", skip_scale=0.5)
    return Transformer(G, [block], random_embeddings=True)


@pytest.mark.parametrize("gated", [False, True])
def test_the_gradient_of_a_shared_expert(gated):
    "At width 24, typical sizes differ from those of the limit by less than e^½."
    net = shared_network(gated)
    assert ("sr" in net.matrices) == gated
    at = net.gradients(24, 400, 0, readout="mean")
    far = net.gradients(np.inf, 400, 0, readout="mean")
    for name in ("s1", "s2", "sb1", "sb2", "1", "r", *["sr"] * gated):
        a, b = (np.log(g.squared_unit_norms[name][:, 0]) for g in (at, far))
        assert np.isfinite(a).all()
        error = np.sqrt(a.var() / 400 + b.var() / 400)
        assert abs(a.mean() - b.mean()) < 6 * error + 0.5


@lru_cache
def shared_written_out(gated, size, n=24):
    "Sizes of gradients and a Gram entry of dX, where all weights are drawn."
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(size)
    start = np.linalg.cholesky(G + 1e-14 * np.eye(4))

    def drawn(sd, *shape):
        return torch.tensor(sd * rng.standard_normal(shape), requires_grad=True)

    def expert(u):
        W = [drawn((2 / n) ** 0.5, n, 2 * n), drawn(0.2**0.5, 2 * n)]
        W += [drawn((1.5 / (2 * n)) ** 0.5, 2 * n, n), drawn(0.3**0.5, n)]
        return torch.relu(u @ W[0] + W[1]) @ W[2] + W[3], W

    found = []
    for _ in range(size):
        x = torch.tensor(start @ rng.standard_normal((4, n)), requires_grad=True)
        u = torch.nn.functional.layer_norm(x, (n,), eps=1e-5)
        R, r = drawn(n**-0.5, n, 3), drawn((3.0 / n) ** 0.5, n, 1)
        z = u @ R
        top = z.topk(1, -1)
        g = torch.softmax(z, -1).gather(1, top.indices)
        g = torch.zeros_like(z).scatter(1, top.indices, g)
        y = sum(g[:, [e]] * expert(u)[0] for e in range(3))
        own, W = expert(u)
        y = y + (torch.sigmoid(u @ r) * own if gated else own)
        head = torch.tensor(rng.standard_normal(n) / n**0.5)
        ((0.5 * x + y).mean(0) @ head).backward()
        sizes = [float((w.grad**2).sum()) / f for w, f in zip(W, (n, 1, 2 * n, 1))]
        sizes += [float((R.grad**2).sum()) / n]
        sizes += [float((r.grad**2).sum()) / n] if gated else []
        d = x.grad.numpy()
        found.append([*sizes, d[0] @ d[0], d[0] @ d[1]])
    return np.array(found)


@pytest.mark.torch
@pytest.mark.power("distribution functions a fifth apart")
@pytest.mark.parametrize("gated", [False, True])
def test_a_shared_expert_is_torchs(gated):
    "Sizes of its gradients, of both routers, and the gradient of the tokens."
    g = shared_network(gated).gradients(24, 2000, 0, readout="mean")
    names = ["s1", "sb1", "s2", "sb2", "r", *["sr"] * gated]
    ours = [g.squared_unit_norms[name][:, 0] for name in names]
    ours += [g.gram[:, 0, 0, 0], g.gram[:, 0, 0, 1]]
    for mine, theirs in zip(ours, shared_written_out(gated, 400).T, strict=True):
        assert ks_2samp(mine, theirs).pvalue > 1e-8


def router_of(kind, **more):
    "A small router of a module, which returns weights and numbers of experts."
    transformers = pytest.importorskip("transformers")
    modeling = getattr(transformers.models, kind)
    modeling = getattr(modeling, f"modeling_{kind}")
    made = {
        "qwen2_moe": ("Qwen2MoeConfig", "Qwen2MoeTopKRouter"),
        "glm4_moe": ("Glm4MoeConfig", "Glm4MoeTopkRouter"),
        "ernie4_5_moe": ("Ernie4_5_MoeConfig", "Ernie4_5_MoeTopKRouter"),
        "dbrx": ("DbrxConfig", "DbrxFFN"),
        "llama4": ("Llama4TextConfig", "Llama4Router"),
    }[kind]
    size = "d_model" if kind == "dbrx" else "hidden_size"
    config = getattr(transformers, made[0])(**{size: 12}, **more)
    return getattr(modeling, made[1])(config)


CORRECTION = np.linspace(0.3, -0.3, 12)[[3, 5, 0, 7, 9, 1, 11, 2, 10, 4, 8, 6]]
GROUPED = dict(n_group=4, topk_group=2, n_routed_experts=12, num_experts_per_tok=3)
OF_DBRX = dict(moe_num_experts=12, moe_top_k=3, ffn_hidden_size=4)
ROUTERS = [  # module, its entries, our routing, and a wrong one
    ("qwen2_moe", dict(num_experts=12, num_experts_per_tok=3),
     Routing("softmax", 3), Routing("chosen", 3)),
    ("qwen2_moe", dict(num_experts=12, num_experts_per_tok=3, norm_topk_prob=True),
     Routing("chosen", 3), Routing("softmax", 3)),
    ("glm4_moe", GROUPED | dict(routed_scaling_factor=1.7),
     Routing("sigmoid", 3, 1.0, 1.7, 4, 2, 2, CORRECTION),
     Routing("sigmoid", 3, 1.0, 1.7, 4, 2, 1, CORRECTION)),
    ("glm4_moe", GROUPED | dict(norm_topk_prob=False),
     Routing("sigmoids", 3, 1.0, 1.0, 4, 2, 2, CORRECTION),
     Routing("sigmoids", 3, 1.0, 1.0, 4, 2, 2)),
    ("ernie4_5_moe", dict(moe_num_experts=12, moe_k=3),
     Routing("chosen", 3, correction=CORRECTION), Routing("chosen", 3)),
    ("dbrx", dict(ffn_config=OF_DBRX | dict(moe_normalize_expert_weights=2.5)),
     Routing("chosen", 3, 2.5), Routing("chosen", 3)),
    ("dbrx", dict(ffn_config=OF_DBRX | dict(moe_normalize_expert_weights=None)),
     Routing("softmax", 3), Routing("chosen", 3)),
    ("llama4", dict(num_local_experts=12, num_experts_per_tok=3),
     Routing("input", 3), Routing("sigmoid", 3)),
]  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("kind, more, ours, wrong", ROUTERS)
def test_choices_are_those_of_modules(kind, more, ours, wrong):
    "1,000 random logits: groups, corrections, p-norms, factors; and all slopes."
    torch = pytest.importorskip("torch")
    router = router_of(kind, **more).double()
    Z = 2 * np.random.default_rng(0).standard_normal((1000, 12))
    z = torch.tensor(Z, requires_grad=True)
    with torch.no_grad():
        for name, x in [*router.named_parameters(), *router.named_buffers()]:
            if "correction" in name:
                x.copy_(torch.tensor(CORRECTION))
            elif name in ("weight", "layer.weight"):
                x.copy_(torch.eye(12))
    with (
        patch.object(torch, "float", torch.float64),
        patch.object(torch, "float32", torch.float64),
        patch.object(torch.Tensor, "float", torch.Tensor.double),
    ):
        if kind == "llama4":
            theirs = router(z)[0]
        elif kind == "dbrx":
            weights, which = router.route_tokens_to_experts(z)
        else:
            _, weights, which = router(z)
    if kind != "llama4":
        theirs = torch.zeros_like(z).scatter(1, which, weights)
    g = ours.weights(Z)
    np.testing.assert_allclose(g, theirs.detach().numpy(), rtol=0, atol=1e-12)
    assert abs(wrong.weights(Z) - g).max() > 0.01
    dg = np.random.default_rng(1).standard_normal(Z.shape)
    slopes = torch.autograd.grad((theirs * torch.tensor(dg)).sum(), z)[0].numpy()
    dz = ours.pull(Z, g, np.where(g > 0, dg, 0.0))
    np.testing.assert_allclose(dz, slopes, rtol=0, atol=1e-12)


def test_margins_are_the_least_changes_of_a_choice():
    "Along one random direction, the choice changes no earlier."
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((2000, 12))
    for of in (Routing("chosen", 3), Routing("sigmoid", 3, groups=4, chosen_groups=2)):
        step = rng.uniform(-0.2, 0.2, Z.shape)
        moved = (of.choice(Z) != of.choice(Z + step)).any(1)
        size = 2 * abs(step).max(1) * of.best_of_group
        assert moved.sum() > 100
        assert (of.margins(Z)[moved] <= size[moved]).all()
