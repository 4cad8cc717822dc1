"""Cases and helpers of several test files."""

import math

from with_transformers import torch, transformers

from infattn_nb import from_torch

nn, F = torch.nn, torch.nn.functional
n, H, L, V = 32, 4, 2, 40
TEXT = [3, 4, 4, 5, 6, 7]


def sines(length):
    angle = torch.arange(length)[:, None] / 1e4 ** (torch.arange(0, n, 2) / n)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)


class Block(nn.Module):
    "Pre-norm, queries, keys and values apart; with all that a variant may change."

    def __init__(self, own):
        super().__init__()
        self.own = own
        self.ln_1, self.ln_2 = nn.LayerNorm(n), nn.LayerNorm(n)
        bias = own.get("bias", False)
        for name in "qkvo":
            setattr(self, name, nn.Linear(n, n, bias=bias))
        self.up = nn.Linear(n, 2 * n, bias=False)
        self.down = nn.Linear(2 * n, n, bias=False)
        if "alpha" in own:
            self.alpha = nn.Parameter(torch.tensor(own["alpha"]))
        if "gamma" in own:
            self.gamma_1 = nn.Parameter(torch.full((n,), own["gamma"]))
            self.gamma_2 = nn.Parameter(torch.full((n,), own["gamma"]))

    def forward(self, x):
        u = self.ln_1(x)
        q, k, v = (
            f(u).unflatten(-1, (H, -1)).transpose(1, 2)
            for f in (self.q, self.k, self.v)
        )
        m = n // H
        if "rotary" in self.own:
            angle = torch.arange(x.shape[1])[:, None] * self.own["rotary"] ** (
                -torch.arange(0, m, 2) / m
            )
            c, s = angle.cos(), angle.sin()

            def turn(z):
                a, b = z[..., : m // 2], z[..., m // 2 :]
                return torch.cat([c * a - s * b, c * b + s * a], -1)

            q, k = turn(q), turn(k)
        scores = q @ k.mT / math.sqrt(m)
        if "cap" in self.own:
            scores = self.own["cap"] * torch.tanh(scores / self.own["cap"])
        future = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        A = scores.masked_fill(future, -torch.inf).softmax(-1)
        skip = self.own.get("skip", 1.0)
        x = skip * x + self.factor(1) * self.o((A @ v).transpose(1, 2).flatten(2))
        return skip * x + self.factor(2) * self.down(F.gelu(self.up(self.ln_2(x))))

    def factor(self, branch):
        if "gamma" in self.own:
            return getattr(self, f"gamma_{branch}")
        return getattr(self, "alpha", self.own.get("branch", 1.0))


class Own(nn.Module):
    "A module of one's own: words, positions, blocks, a norm."

    def __init__(self, seed=0, σ=0.2, **own):
        super().__init__()
        torch.manual_seed(seed)
        self.own = own
        self.wte = nn.Embedding(V, n)
        self.h = nn.ModuleList(Block(own) for _ in range(L))
        self.ln_f = nn.LayerNorm(n)
        for name, p in self.named_parameters():
            if p.ndim > 1:
                p.data.normal_(0, σ)
            elif name.endswith("bias") and ".ln" not in name and "ln_f" not in name:
                p.data.normal_(0, own.get("bias_size", 0.0))
        kind = own.get("positions")
        if kind == "buffer":
            self.register_buffer("wpe", sines(16))
        elif kind == "frozen":
            self.wpe = nn.Parameter(sines(16), requires_grad=False)
        elif kind == "learned":
            self.wpe = nn.Parameter(σ * torch.randn(16, n))
        elif kind == "smooth":
            self.wpe = nn.Parameter(0.1 * torch.randn(16, n).cumsum(0))

    def forward(self, ids):
        x = self.own.get("embedding", 1.0) * self.wte(ids)
        if "positions" in self.own:
            x = x + self.wpe[: ids.shape[1]]
        self.seen = [x]
        for block in self.h:
            x = block(x)
            self.seen.append(x)
        return self.ln_f(x)


ROLES = {
    **{name: f"h.*.{name}" for name in "qkvo"},
    "1": "h.*.up",
    "2": "h.*.down",
    "norm": ["h.*.ln_1", "h.*.ln_2"],
    "final_norm": "ln_f",
    "word": "wte",
}


def read(module, tokens=TEXT, roles=(), **more):
    names = ROLES | dict(roles)
    if "positions" in module.own:
        names["position"] = "wpe"
    shape = dict(heads=H, activation="gelu", mask="causal") | more
    return from_torch(module.eval(), texts=tokens, roles=names, **shape)


SMALL = dict(
    hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
)
LAWS = dict(
    buffer=dict(positions="buffer"),
    frozen=dict(positions="frozen"),
    learned=dict(positions="learned"),
    scaled=dict(positions="learned", embedding=math.sqrt(n)),
    rezero=dict(alpha=0.4),
    layer_scale=dict(gamma=0.3),
    branch=dict(branch=0.5, skip=0.8),
    biases=dict(bias=True, bias_size=0.5),
)


def described(name, module):
    more = dict(
        scaled=dict(embedding_scale=math.sqrt(n)),
        rezero=dict(roles=dict(branch_scale="h.*.alpha")),
        layer_scale=dict(roles=dict(branch_scale=["h.*.gamma_1", "h.*.gamma_2"])),
        branch=dict(branch_scale=0.5, skip_scale=0.8),
    )
    return read(module, **more.get(name, {}))


SPOKEN = dict(
    d_model=32,
    encoder_layers=1,
    decoder_layers=1,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
    vocab_size=60,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=1,
)


def made(name, **more):
    config = getattr(transformers, name.removesuffix("Model") + "Config")
    return getattr(transformers, name)(config(**more)).eval()


def encoder_of_t5():
    c = transformers.T5Config(
        d_model=32, num_layers=1, num_heads=2, d_kv=16, d_ff=64, vocab_size=50
    )
    return transformers.T5EncoderModel(c).eval()


SAID = {
    "patches alone": (lambda: made("IJepaModel", **SMALL), "as ViT"),
    "other names": (
        lambda: made("FlavaTextModel", **SMALL, vocab_size=50),
        "embeddings of a supported kind, got embeddings.word_embeddings",
    ),
    "sounds": (
        lambda: made("WhisperModel", **SPOKEN).encoder,
        "embeddings of a supported kind, got conv1.weight",
    ),
    "two stacks": (
        lambda: made("WhisperModel", **SPOKEN),
        "be a pair, source and target, for an encoder with a decoder, got one text",
    ),
    "torch's two stacks": (
        lambda: nn.Transformer(32, 2, 1, 1, 64).eval(),
        "one stack of blocks, got attention outside",
    ),
    "T5's encoder": (encoder_of_t5, "an encoder of torch or of a supported family"),
    "characters": (
        lambda: made(
            "CanineModel",
            **SMALL,
            num_hash_functions=2,
            num_hash_buckets=16,
            local_transformer_stride=8,
        ),
        "one stack of blocks, got attention outside these blocks, initial_char_encoder",
    ),
    "small scores": (
        lambda: made("RoFormerModel", **SMALL, vocab_size=50),
        "must run like its description",
    ),
    "a layer": (
        lambda: nn.MultiheadAttention(32, 2),
        "MultiheadAttention alone; pass the block .*Attention\\(tokens, heads=2\\)",
    ),
}
