"""Torch's side of the comparison of gradients, by automatic differentiation in float64;
nothing is downloaded.

python tests/torch_gradients.py [file]

draws networks of each case of `gradient_cases`, and of some of them again with fresh
copies of the transposed matrices in the backward pass ("gradient independence"), and
writes their statistics, to three digits, to `file` (default:
tests/data/gradients.npz). Needs torch and transformers, not infattn_nb; a minute.
"""

import os
import sys
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np
import torch
from gradient_cases import CASES, INDEPENDENT, S, case, embeddings, informative
from gradient_cases import readout_cov, statistics

SIZE, SIZE_INDEPENDENT, B = 1600, 6000, 100
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
phi = {
    "gelu": torch.nn.functional.gelu,
    "relu": torch.relu,
    "tanh": torch.tanh,
    "silu": torch.nn.functional.silu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
}


class Twice(torch.autograd.Function):
    "x W in the forward pass, dy W′ᵀ with another W′ in the backward pass."

    @staticmethod
    def forward(x, W, other):
        return x @ W

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        x, W, other = ctx.saved_tensors
        return dy @ other.mT, x.mT @ dy, None


def norm(x, kind, eps):
    if kind == "layer":
        x = x - x.mean(-1, keepdim=True)
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)


def turned(Q, base=1e4, share=1.0):
    d = int(Q.shape[-1] * share + 1e-9)
    angle = torch.arange(S)[:, None] * base ** (-torch.arange(0, d, 2) / d)
    c, s, x, y = angle.cos(), angle.sin(), Q[..., : d // 2], Q[..., d // 2 : d]
    return torch.cat([c * x - s * y, c * y + s * x, Q[..., d:]], -1)


class Network:
    "b explicit networks side by side."

    def __init__(self, c, b, rng, independent):
        self.c, self.b, self.rng = c, b, rng
        self.independent, self.weights = independent, {}

    def normal(self, *shape):
        return torch.from_numpy(self.rng.standard_normal((self.b, *shape)))

    def times(self, x, name, layer, fan_out, var):
        "x W for a new W; the weights remember θ's factor."
        W = (
            var**0.5 * x.shape[-1] ** -0.5 * self.normal(x.shape[-1], fan_out)
        ).requires_grad_()
        self.weights[name, layer] = W, var / x.shape[-1]
        return (
            Twice.apply(x, W, W.detach().std() * self.normal(*W.shape[1:]))
            if self.independent
            else x @ W
        )

    def biased(self, x, name, layer, var):
        if not var:
            return x
        w = (var**0.5 * self.normal(1, x.shape[-1])).requires_grad_()
        self.weights[name, layer] = w, var
        return x + w

    def attention(self, u, l):
        none = "groups head_width rotary qk_norm joint_norm softcap clip mask bias"
        one = "score_scale var_q var_k var_v var_o"
        a = dict.fromkeys(none.split()) | dict.fromkeys(one.split(), 1.0)
        a |= self.c["attention"]
        H, n = a["heads"], u.shape[-1]
        m, G = a["head_width"] or n // H, a["groups"] or H
        split = lambda x, h: x.reshape(self.b, S, h, m).transpose(1, 2)
        normed = lambda x: norm(x, a["qk_norm"], 1e-5) if a["qk_norm"] else x

        def part(name, h):
            x = self.times(u, name, l, h * m, a[f"var_{name}"])
            if name == "v":
                return split(x, h)
            return split(normed(x), h) if a["joint_norm"] else normed(split(x, h))

        Q, K, V = part("q", H), part("k", G), part("v", G)
        if a["clip"]:
            Q, K, V = (x.clamp(-a["clip"], a["clip"]) for x in (Q, K, V))
        if a["rotary"]:
            Q, K = (turned(x, **a["rotary"]) for x in (Q, K))
        K, V = (x.repeat_interleave(H // G, 1) for x in (K, V))
        P = a["score_scale"] * Q @ K.mT / m**0.5
        if a["softcap"]:
            P = a["softcap"] * torch.tanh(P / a["softcap"])
        if a["bias"] is not None:
            P = P + torch.from_numpy(a["bias"])
        if a["mask"] == "causal":
            P = P.masked_fill(torch.ones(S, S).triu(1).bool(), -torch.inf)
        O = (P.softmax(-1) @ V).transpose(1, 2).reshape(self.b, S, H * m)
        return self.times(O, "o", l, n, a["var_o"])

    def mlp(self, u, l):
        f = (
            dict(gated=False, var_1=1.0, var_2=1.0, var_3=1.0, var_b1=0.0, var_b2=0.0)
            | self.c["ff"]
        )
        n = u.shape[-1]
        k = round(f["units"] * n)
        unit = phi[f["activation"]](
            self.biased(self.times(u, "1", l, k, f["var_1"]), "b1", l, f["var_b1"])
        )
        if f["gated"]:
            unit = unit * self.times(u, "3", l, k, f["var_3"])
        return self.biased(
            self.times(unit, "2", l, n, f["var_2"]), "b2", l, f["var_b2"]
        )

    def run(self, x):
        c = self.c
        streams = [x]
        branches = [self.attention] + [self.mlp] * (c["ff"] is not None)
        for l in range(c["layers"]):
            for together in [branches] if c["parallel"] else [[f] for f in branches]:
                u = (
                    norm(x, c["kind"], c["eps"])
                    if c["norm_placement"] in ("pre", "sandwich")
                    else x
                )
                y = sum(f(u, l) for f in together)
                if c["norm_placement"] in ("output", "sandwich"):
                    y = norm(y, c["kind"], c["eps"])
                x = c["skip"] * x + c["branch"] * y
                if c["norm_placement"] == "post":
                    x = norm(x, c["kind"], c["eps"])
            x.retain_grad()
            streams.append(x)
        return streams, norm(x, c["kind"], c["eps"]) if c["final"] else x


def readout(c, b, rng):
    λ, U = np.linalg.eigh(readout_cov(c["readout"]))
    return torch.from_numpy(
        (U * np.sqrt(np.maximum(λ, 0)))
        @ rng.standard_normal((b, S, c["n"]))
        / c["n"] ** 0.5
    )


def explicit(c, b, rng, independent=False):
    net = Network(c, b, rng, independent)
    x = torch.from_numpy(embeddings(c["n"])).expand(b, -1, -1).clone().requires_grad_()
    streams, out = net.run(x)
    (readout(c, b, rng) * out).sum().backward()
    norms = {}
    for (name, _), (W, scale) in net.weights.items():
        norms.setdefault(name, []).append(scale * (W.grad**2).sum((1, 2)))
    return streams, {k: torch.stack(v, 1) for k, v in norms.items()}


WHOLE = slice(None)


def fused(W, n):
    "Queries, keys and values in one tensor."
    return {x: (W, slice(i * n, (i + 1) * n)) for i, x in enumerate("qkv")}


def module_of(c):
    "The module, and name -> [(parameter, slice of rows)] per layer."
    import transformers

    n, a, f = c["n"], c["attention"], c["ff"]
    k = round(f["units"] * n)
    if c["module"] == "gpt2":
        shape = dict(n_embd=n, n_layer=c["layers"], n_head=a["heads"], n_inner=k)
        tokens = dict(vocab_size=S, n_positions=S, bos_token_id=0, eos_token_id=0)
        dropout = {f"{x}_pdrop": 0.0 for x in ("resid", "embd", "attn")}
        how = shape | tokens | dropout | dict(attn_implementation="eager")
        m = transformers.GPT2Model(transformers.GPT2Config(**how))
        parts = [
            fused(b.attn.c_attn.weight, n)
            | {
                "o": (b.attn.c_proj.weight, WHOLE),
                "1": (b.mlp.c_fc.weight, WHOLE),
                "2": (b.mlp.c_proj.weight, WHOLE),
            }
            for b in m.h
        ]
        m.wpe.weight.data.zero_()
        return m, m.h, parts, 1, lambda x: m(inputs_embeds=x).last_hidden_state
    if c["module"] == "llama":
        shape = dict(hidden_size=n, intermediate_size=k, num_hidden_layers=c["layers"])
        heads = dict(num_attention_heads=a["heads"], num_key_value_heads=a["groups"])
        how = shape | heads | dict(vocab_size=S, max_position_embeddings=S)
        how |= dict(rms_norm_eps=c["eps"], attn_implementation="eager")
        m = transformers.LlamaModel(transformers.LlamaConfig(**how))
        units = {"1": "gate_proj", "3": "up_proj", "2": "down_proj"}
        parts = [
            {x: (getattr(b.self_attn, f"{x}_proj").weight, WHOLE) for x in "qkvo"}
            | {x: (getattr(b.mlp, name).weight, WHOLE) for x, name in units.items()}
            for b in m.layers
        ]
        return m, m.layers, parts, 0, lambda x: m(inputs_embeds=x).last_hidden_state
    layers = torch.nn.ModuleList(
        torch.nn.TransformerEncoderLayer(
            n,
            a["heads"],
            k,
            dropout=0.0,
            activation=f["activation"],
            batch_first=True,
            norm_first=c["norm_placement"] == "pre",
        )
        for _ in range(c["layers"])
    ).train()
    parts = [
        fused(b.self_attn.in_proj_weight, n)
        | {"o": (b.self_attn.out_proj.weight, WHOLE)}
        | {"1": (b.linear1.weight, WHOLE), "2": (b.linear2.weight, WHOLE)}
        for b in layers
    ]

    def call(x):
        for b in layers:
            x = b(x)
        return x

    return layers, layers, parts, 0, call


def real(c, size, rng):
    "The same of a module: matrices N(0, σ²/fan-in), biases zero."
    module, blocks, parts, out, call = module_of(c)
    module.to(torch.float64)
    kept = []
    for block in blocks:
        block.register_forward_hook(
            lambda m, i, o: kept.append(o[0] if isinstance(o, tuple) else o)
        )
    for p in module.parameters():
        if p.ndim == 1 and not (p == 1).all():
            p.data.zero_()
    var = {
        k[4:]: v for k, v in (c["attention"] | c["ff"]).items() if k.startswith("var_")
    }
    streams, norms = [], []
    for _ in range(size):
        for part in parts:
            for name, (p, rows) in part.items():
                W = p.data[:, rows] if out else p.data[rows]
                W.copy_(
                    torch.from_numpy(rng.standard_normal(tuple(W.shape)))
                    * (var.get(name, 1.0) / W.shape[1 - out]) ** 0.5
                )
        kept.clear()
        module.zero_grad()
        x = torch.from_numpy(embeddings(c["n"]))[None].requires_grad_()
        y = call(x)
        for z in kept:
            z.retain_grad()
        (readout(c, 1, rng) * y).sum().backward()
        streams.append([(z.detach()[0], z.grad[0]) for z in (x, *kept)])
        grad = lambda p, rows: p.grad[:, rows] if out else p.grad[rows]
        norms.append(
            [
                {
                    name: var.get(name, 1.0)
                    / (p.shape[1 - out])
                    * (grad(p, rows) ** 2).sum()
                    for name, (p, rows) in part.items()
                }
                for part in parts
            ]
        )
    X, dX = (
        torch.stack([torch.stack([z[i] for z in s]) for s in streams]) for i in (0, 1)
    )
    return (
        X,
        dX,
        {
            name: torch.tensor([[layer[name] for layer in n] for n in norms])
            for name in parts[0]
        },
    )


def measured(X, dX, norms):
    "Statistics of networks from streams and gradients, (size, L + 1, s, n)."
    K = X[:, 1] @ X[:, 1].mT
    cosine = K[:, 0, -1] / torch.sqrt(K[:, 0, 0] * K[:, -1, -1])
    return statistics(
        (dX @ dX.mT).numpy(),
        (dX @ X.mT).numpy(),
        {k: v.numpy() for k, v in norms.items()},
        cosine.numpy(),
    )


def rounded(x, bits=10):
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 2**bits) / 2**bits, exponent).astype(np.float32)


def packed(x):
    "Sorted numbers as small differences of their bits."
    return np.diff(np.sort(x).view(np.int32), prepend=np.int32(0))


def sample(name, independent):
    size = SIZE_INDEPENDENT if independent else SIZE
    c, rng = (
        case(name),
        np.random.default_rng([list(CASES).index(name), independent, 7]),
    )
    if c["module"] and not independent:
        return measured(*real(c, size, rng))
    parts = []
    for _ in range(size // B):
        streams, norms = explicit(c, B, rng, independent)
        parts.append(
            (
                torch.stack(streams, 1).detach(),
                torch.stack([x.grad for x in streams], 1),
                norms,
            )
        )
    X, dX = (torch.cat([p[i] for p in parts]) for i in (0, 1))
    return measured(
        X, dX, {k: torch.cat([p[2][k] for p in parts]) for k in parts[0][2]}
    )


if __name__ == "__main__":
    table = {}
    for name in CASES:
        for independent in (False, True)[: 1 + (name in INDEPENDENT)]:
            start = time.process_time()
            said = name + " (independent)" * independent
            for key, value in sample(name, independent).items():
                if not independent or informative(key):
                    table[f"{said}: {key}"] = packed(rounded(value))
            print(f"{said}: {time.process_time() - start:.1f} s", flush=True)
    usual = Path(__file__).parent / "data" / "gradients.npz"
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else usual
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, **table)
