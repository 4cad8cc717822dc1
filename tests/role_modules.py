"""Cases and helpers of several test files."""

from with_torch import torch

from infattn_nb import Rotary, from_torch

nn, F = torch.nn, torch.nn.functional
n, H, L, S, V = 32, 4, 3, 6, 40


def heads(x, h):
    return x.unflatten(-1, (h, -1)).transpose(1, 2)


def attend(q, k, v, causal=True):
    return (
        F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        .transpose(1, 2)
        .flatten(2)
    )


class RMS(nn.Module):
    def __init__(self, n, eps=1e-5):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(n))

    def forward(self, x):
        return (
            self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        )


def turn_neighbours(x, base=1e4):
    "Complex numbers of neighbouring coordinates, as llama2.c has them."
    m, s = x.shape[-1], x.shape[-2]
    θ = base ** (-torch.arange(0, m, 2, dtype=torch.float64) / m)
    z = torch.view_as_complex(
        x.double().unflatten(-1, (-1, 2)).contiguous()
    ) * torch.exp(1j * torch.arange(s)[:, None] * θ)
    return torch.view_as_real(z).flatten(-2).to(x.dtype)


class Sub(nn.Module):
    "Named parts."

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


def linear(i, o, bias=False):
    return nn.Linear(i, o, bias=bias)


class NanoGPT(nn.Module):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(n), nn.LayerNorm(n)
            self.attn, self.mlp = (
                Sub(c_attn=linear(n, 3 * n, True), c_proj=linear(n, n, True), n_head=H),
                Sub(c_fc=linear(n, 4 * n, True), c_proj=linear(4 * n, n, True)),
            )

        def forward(self, x):
            x = x + self.attn.c_proj(
                attend(
                    *(heads(z, H) for z in self.attn.c_attn(self.ln_1(x)).split(n, -1))
                )
            )
            return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x))))

    def __init__(self):
        super().__init__()
        self.transformer = nn.ModuleDict(
            dict(
                wte=nn.Embedding(V, n),
                wpe=nn.Embedding(32, n),
                h=nn.ModuleList(self.Block() for _ in range(L)),
                ln_f=nn.LayerNorm(n),
            )
        )
        self.lm_head = linear(n, V)

    def forward(self, ids):
        t = self.transformer
        x = t.wte(ids) + t.wpe(torch.arange(ids.shape[1]))
        for block in t.h:
            x = block(x)
        self.x = x
        return self.lm_head(t.ln_f(x))


class MinGPT(NanoGPT):
    "Queries, keys and values apart, and positions as one parameter."

    class Block(NanoGPT.Block):
        def __init__(self):
            super().__init__()
            self.attn = Sub(
                key=linear(n, n, True),
                query=linear(n, n, True),
                value=linear(n, n, True),
                proj=linear(n, n, True),
                n_head=H,
            )
            self.mlp = nn.Sequential(
                linear(n, 4 * n, True),
                nn.GELU(),
                linear(4 * n, n, True),
                nn.Dropout(0.1),
            )

        def forward(self, x):
            u = self.ln_1(x)
            x = x + self.attn.proj(
                attend(
                    *(
                        heads(f(u), H)
                        for f in (self.attn.query, self.attn.key, self.attn.value)
                    )
                )
            )
            return x + self.mlp(self.ln_2(x))

    def __init__(self):
        super().__init__()
        self.transformer.wpe = nn.Embedding(32, n)


class Llama2c(nn.Module):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm, self.ffn_norm = RMS(n), RMS(n)
            self.attention = Sub(
                wq=linear(n, n),
                wk=linear(n, n // 2),
                wv=linear(n, n // 2),
                wo=linear(n, n),
                n_local_heads=H,
            )
            self.feed_forward = Sub(
                w1=linear(n, 64), w2=linear(64, n), w3=linear(n, 64)
            )

        def forward(self, x):
            a, f, u = self.attention, self.feed_forward, self.attention_norm(x)
            q, k, v = heads(a.wq(u), H), heads(a.wk(u), H // 2), heads(a.wv(u), H // 2)
            q, k = self.turn(q), self.turn(k)
            x = x + a.wo(attend(q, *(z.repeat_interleave(2, 1) for z in (k, v))))
            u = self.ffn_norm(x)
            return x + f.w2(F.silu(f.w1(u)) * f.w3(u))

        turn = staticmethod(turn_neighbours)

    def __init__(self):
        super().__init__()
        self.tok_embeddings, self.layers, self.norm, self.output = (
            nn.Embedding(V, n),
            nn.ModuleList(self.Block() for _ in range(L)),
            RMS(n),
            linear(n, V),
        )

    def forward(self, ids):
        x = self.tok_embeddings(ids)
        for block in self.layers:
            x = block(x)
        self.x = x
        return self.output(self.norm(x))


class Titan(Llama2c):
    "Layers in a dict of names, called by keyword."

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({str(l): self.Block() for l in range(L)})

    def forward(self, ids):
        x = self.tok_embeddings(ids)
        for block in self.layers.values():
            x = block(x=x)
        self.x = x
        return self.output(self.norm(x))


class TimmBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(n, eps=1e-6), nn.LayerNorm(n, eps=1e-6)
        self.attn, self.mlp = (
            Sub(qkv=linear(n, 3 * n, True), proj=linear(n, n, True), num_heads=H),
            Sub(fc1=linear(n, 4 * n, True), act=nn.GELU(), fc2=linear(4 * n, n, True)),
        )

    def forward(self, x):
        q, k, v = (
            z.transpose(1, 2)
            for z in self.attn.qkv(self.norm1(x))
            .unflatten(-1, (3, H, n // H))
            .unbind(2)
        )
        x = x + self.attn.proj(attend(q, k, v, False))
        return x + self.mlp.fc2(self.mlp.act(self.mlp.fc1(self.norm2(x))))


class TimmViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.cls_token, self.pos_embed, self.blocks, self.norm = (
            nn.Parameter(torch.randn(1, 1, n)),
            nn.Parameter(torch.randn(1, 5, n)),
            nn.Sequential(*(TimmBlock() for _ in range(L))),
            nn.LayerNorm(n, eps=1e-6),
        )

    def forward(self, x):
        return self.norm(self.blocks(x))


class XTransformers(nn.Module):
    "Attention and MLP are layers of one list, each with its norm."

    def __init__(self):
        super().__init__()
        self.token_emb, self.final_norm = Sub(emb=nn.Embedding(V, n)), nn.LayerNorm(n)
        attention = lambda: Sub(
            to_q=linear(n, n), to_k=linear(n, n), to_v=linear(n, n), to_out=linear(n, n)
        )
        mlp = lambda: Sub(
            ff=nn.Sequential(
                nn.Sequential(linear(n, 4 * n, True), nn.GELU()),
                nn.Dropout(0.0),
                linear(4 * n, n, True),
            )
        )
        self.layers = nn.ModuleList(
            nn.ModuleList(
                [nn.ModuleList([nn.LayerNorm(n)]), mlp() if l % 2 else attention()]
            )
            for l in range(2 * L)
        )

    def forward(self, ids):
        x = self.token_emb.emb(ids)
        for l, ((norm,), f) in enumerate(self.layers):
            u = norm(x)
            x = x + (
                f.ff(u)
                if l % 2
                else f.to_out(
                    attend(*(heads(g(u), H) for g in (f.to_q, f.to_k, f.to_v)))
                )
            )
        self.x = x
        return self.final_norm(x)


GPT = dict(
    qkv="transformer.h.*.attn.c_attn",
    o="transformer.h.*.attn.c_proj",
    word="transformer.wte",
    position="transformer.wpe",
    norm=["transformer.h.*.ln_1", "transformer.h.*.ln_2"],
    final_norm="transformer.ln_f",
) | {"1": "transformer.h.*.mlp.c_fc", "2": "transformer.h.*.mlp.c_proj"}
LLAMA = dict(
    q="layers.*.attention.wq",
    k="layers.*.attention.wk",
    v="layers.*.attention.wv",
    o="layers.*.attention.wo",
    word="tok_embeddings",
    norm=["layers.*.attention_norm", "layers.*.ffn_norm"],
    final_norm="norm",
) | {k: f"layers.*.feed_forward.w{k}" for k in "123"}
VIT = dict(
    qkv="blocks.*.attn.qkv",
    o="blocks.*.attn.proj",
    norm=["blocks.*.norm1", "blocks.*.norm2"],
    final_norm="norm",
) | {"1": "blocks.*.mlp.fc1", "2": "blocks.*.mlp.fc2"}
X = dict(
    q="layers.*.1.to_q",
    k="layers.*.1.to_k",
    v="layers.*.1.to_v",
    o="layers.*.1.to_out",
    word="token_emb.emb",
    final_norm="final_norm",
    norm="layers.*.0.0",
) | {"1": "layers.*.1.ff.0.0", "2": "layers.*.1.ff.2"}
MIN = GPT | {
    "q": "transformer.h.*.attn.query",
    "k": "transformer.h.*.attn.key",
    "v": "transformer.h.*.attn.value",
    "o": "transformer.h.*.attn.proj",
    "1": "transformer.h.*.mlp.0",
    "2": "transformer.h.*.mlp.2",
}

del MIN["qkv"]

SHAPES = {
    "nanoGPT": (NanoGPT, GPT, dict(activation="gelu", mask="causal")),
    "minGPT": (MinGPT, MIN, dict(activation="gelu", mask="causal")),
    "llama2.c": (
        Llama2c,
        LLAMA,
        dict(activation="silu", mask="causal", rotary=Rotary()),
    ),
    "torchtitan": (
        Titan,
        LLAMA,
        dict(activation="silu", mask="causal", rotary=Rotary()),
    ),
    "timm": (TimmViT, VIT, dict(activation="gelu")),
    "x-transformers": (
        XTransformers,
        X,
        dict(activation="gelu", mask="causal", heads=H),
    ),
}


def drawn(name, seed=0):
    "A module whose matrices are N(0, .15²), its biases zero."
    torch.manual_seed(seed)
    module = SHAPES[name][0]().eval()
    for p in module.parameters():
        if p.ndim > 1:
            p.data.normal_(0, 0.15)
    for key, p in module.named_parameters():
        if key.endswith("bias"):
            p.data.zero_()
    return module


def read(name, module, **more):
    _, roles, shape = SHAPES[name]
    return from_torch(module, texts=S, roles=roles, **shape | more)


WRONG = {
    "nanoGPT": dict(mask=None),
    "minGPT": dict(norm_placement="post"),
    "llama2.c": dict(rotary=None),
    "torchtitan": dict(rotary=Rotary(100.0)),
    "timm": dict(mask="causal"),
    "x-transformers": dict(parallel=True),
}
