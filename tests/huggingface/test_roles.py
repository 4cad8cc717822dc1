"""Modules of one's own, read by the names of their tensors: small rebuildings, in our
own words, of how known repositories lay out theirs; checked by running, and against
chains of the law.
"""

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="torch is the other side of these comparisons; pip install torch"
)

from conftest import least_p

from infattn_nb import (
    Norm,
    Rotary,
    Transformer,
    embedding_cov,
    from_config,
    from_torch,
    init_table,
    initialise,
    report,
    train,
    weights_of,
)
from infattn_nb.huggingface import next_tokens
from infattn_nb.huggingface.weights import departures

pytestmark = [pytest.mark.xdist_group("torch"), pytest.mark.filterwarnings("ignore")]
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
    """Complex numbers of neighbouring coordinates, as llama2.c, lingua and torchtitan
    have them.
    """
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
    """Attention and MLP are layers of their own, each with its norm in front of it, in
    one list.
    """

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


@pytest.mark.parametrize("name", SHAPES)
def test_read_and_verified(name):
    "Shapes and variances, names in the table, a draw that is written and read again."
    module = drawn(name)
    t = read(name, module)
    assert (t.width, len(t.blocks), t.blocks[0].attention.heads) == (n, L, H)
    assert isinstance(t.last_norm, Norm)
    assert abs(t.blocks[0].attention.var_o / (n * 0.0225) - 1) < 0.25
    assert t.blocks[0].attention.groups == (2 if "wq" in str(SHAPES[name][1]) else None)
    table = init_table(t)
    assert (table["times"] == 1).all()
    named = dict(module.named_parameters())
    for row in table["parameter"]:
        assert any(
            row.partition("[")[0].replace("*", str(k)) in named for k in range(2 * L)
        ), row
    before = {k: p.clone() for k, p in named.items()}
    from infattn_nb.initialisation.rules import scaled

    initialise(scaled(t, 2.0, 1.0), module, 0)
    o = next(
        k
        for k in named
        if k.endswith(
            ("to_out.weight", "attn.c_proj.weight", "wo.weight", "attn.proj.weight")
        )
    )
    assert not torch.equal(before[o], named[o])
    assert abs(named[o].std().item() / 0.3 - 1) < 0.15
    read(name, module)


WRONG = {
    "nanoGPT": dict(mask=None),
    "minGPT": dict(norm_placement="post"),
    "llama2.c": dict(rotary=None),
    "torchtitan": dict(rotary=Rotary(100.0)),
    "timm": dict(mask="causal"),
    "x-transformers": dict(parallel=True),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_wrong_description_is_not_accepted(name):
    with pytest.raises(
        ValueError, match="must run like its description, got an output of block 0"
    ) as e:
        read(name, drawn(name), **WRONG[name])
    assert len(str(e.value).splitlines()) == 1
    read(name, drawn(name), verify=False, **WRONG[name])


@pytest.mark.power(
    "distribution functions .25 apart: Gram entries after the last block"
)
@pytest.mark.parametrize("name", SHAPES)
def test_draws_follow_the_law(name):
    """Two hundred modules beside the chain; without the embeddings' own size, or with
    branches twice as strong, they are not of that law.
    """
    from infattn_nb.initialisation.rules import scaled

    module = drawn(name)
    t = read(name, module)
    theirs, ids, upper = [], torch.arange(1, S + 1)[None], np.triu_indices(S)
    for seed in range(200):
        initialise(t, module, seed)
        with torch.no_grad():
            if name == "timm":
                x = module.blocks(
                    torch.randn(1, S, n, generator=torch.Generator().manual_seed(seed))
                )
            else:
                module(ids)
                x = module.x
        theirs.append((x[0] @ x[0].T / n).double().numpy()[upper])
    from dataclasses import replace

    compared = lambda t: (
        replace(t, final_norm=False).chain(size=2000, rng=1).gram[:, -1][:, *upper]
    )
    assert least_p(np.array(theirs), compared(t)) > 1e-6
    assert least_p(np.array(theirs), compared(scaled(t, 2.0, 1.0))) < 1e-6


def test_rejected_in_one_sentence():
    module = drawn("nanoGPT")
    cases = [
        (
            dict(roles=GPT | dict(o="transformer.h.*.attn.c_prj")),
            "name tensors of the module for 'o'",
        ),
        (dict(roles=GPT | dict(w="transformer.wte")), "have keys made of the letters"),
        (dict(roles={}), "`roles` must"),
        (
            dict(roles={k: v for k, v in GPT.items() if k != "o"}),
            "name each matrix once, got none for o",
        ),
        (dict(activation=None), "`activation` must be given"),
        (dict(heads=5), "divide|heads"),
        (dict(roles=GPT | dict(o="transformer.h.0.*.c_proj")), "."),
        (dict(roles=None), "`roles` must be given"),
    ]
    for change, text in cases:
        with pytest.raises((TypeError, ValueError), match=text) as e:
            from_torch(
                module,
                texts=S,
                **dict(roles=GPT, activation="gelu", mask="causal") | change,
            )
        assert len(str(e.value).splitlines()) == 1, e.value
    module.transformer.h[1].attn.c_proj.weight.data[0, 0] = np.nan
    with pytest.raises(
        ValueError,
        match="NaN or ∞ in transformer.h.*.attn.c_proj of block 1; initialise it",
    ):
        read("nanoGPT", module)


def test_matrices_that_stand_on_the_left_are_seen_by_their_shape():
    "Conv1D's (in, out): the same module, its tensors transposed."

    class Left(nn.Module):
        def __init__(self, W):
            super().__init__()
            self.weight = nn.Parameter(W.T.contiguous())

        def forward(self, x):
            return x @ self.weight

    module = drawn("nanoGPT")
    for block in module.transformer.h:
        for part, names in (
            (block.attn, ("c_attn", "c_proj")),
            (block.mlp, ("c_fc", "c_proj")),
        ):
            for name in names:
                setattr(part, name, Left(getattr(part, name).weight.data))
    t = read("nanoGPT", module)
    assert {x.layout for x in t.source.family.layouts[0] if x.roles[0] in "qo12"} == {
        "in"
    }
    assert t.blocks[0].feedforward.units == 4
    initialise(t, module, 0)


@pytest.mark.parametrize("name", SHAPES)
def test_a_wrong_description_is_not_written(name):
    """Read without being run, as something else: parallel, causal or not, without
    positions. The weights stay what they were, bit for bit.
    """
    module = drawn(name)
    before = {k: p.clone() for k, p in module.state_dict().items()}
    t = read(name, module, verify=False, **WRONG[name])
    with pytest.raises(
        ValueError,
        match=(
            "`module` must run like the network that is written into it, got an output "
            "of block 0"
        ),
    ) as e:
        initialise(t, module, 0)
    assert len(str(e.value).splitlines()) == 1
    assert all(torch.equal(p, before[k]) for k, p in module.state_dict().items())
    initialise(t, module, 0, verify=False)
    assert not all(torch.equal(p, before[k]) for k, p in module.state_dict().items())


class Skips(NanoGPT):
    "Its stream is multiplied past the branches, which no tensor can do."

    class Block(NanoGPT.Block):
        def forward(self, x):
            x = 1.5 * x + self.attn.c_proj(
                attend(
                    *(heads(z, H) for z in self.attn.c_attn(self.ln_1(x)).split(n, -1))
                )
            )
            return 1.5 * x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x))))


def test_what_a_module_does_that_no_tensor_can(recwarn):
    """A factor past the branches: a module that has it gets no warning, one that has it
    not does.
    """
    import warnings
    from dataclasses import replace

    t = read("nanoGPT", drawn("nanoGPT"))
    t = replace(t, blocks=[replace(b, skip_scale=1.5) for b in t.blocks])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        initialise(t, Skips().eval(), 0)
    with pytest.warns(UserWarning, match="can apply skip_scale = 1.5"):
        initialise(t, drawn("nanoGPT"), 0)


# Wrong initialisations of modules of one's own, in our words: what each should be is a
# network; the report names what is not

DEPTH = (2 * L) ** -0.5


def should(text=S, **more):
    """Fan-in × variance one, embeddings of variance one, in front of the residual sums
    over 2L.
    """
    return Transformer.uniform(
        embedding_cov(range(text)),
        layers=L,
        heads=H,
        activation="silu",
        mask="causal",
        kind="rms",
        **dict(var_o=1 / (2 * L), var_2=1 / (2 * L)) | more,
    )


def lingua(module, o=DEPTH, down=DEPTH, first=1.0, others=1.0, fan=False):
    """1/√fan-in, each times a factor; `fan`: down over the square root of the other
    side.
    """
    for name, p in module.named_parameters():
        if p.ndim < 2:
            continue
        if "tok_emb" in name or "output" in name:
            p.data.normal_(0, 1)
        else:
            out, into = p.shape
            p.data.normal_(
                0,
                (out if fan and "w2" in name else into) ** -0.5
                * (
                    o
                    if "wo" in name
                    else down
                    if "w2" in name
                    else first
                    if "w1" in name or "w3" in name
                    else others
                ),
            )
    return module


def gated(name):  # as wide as W₁ … W₃ of these modules, keys and values of two heads
    from dataclasses import replace

    t = should()
    return replace(
        t,
        blocks=[
            replace(
                b,
                attention=replace(b.attention, groups=2, rotary=Rotary()),
                feedforward=replace(b.feedforward, units=2, gated=True, var_3=1.0),
            )
            for b in t.blocks
        ],
    )


WRONG_DRAWS = {
    "q, k, v and o all over the depth factor (lingua)": (
        "llama2.c",
        dict(others=DEPTH),
        dict(wq=DEPTH, wk=DEPTH, wv=DEPTH),
    ),
    "w1 and w3 over it, too (torchtitan)": (
        "torchtitan",
        dict(first=DEPTH),
        dict(w1=DEPTH, w3=DEPTH),
    ),
    "the factor on w3 and not on w2 (llama2.c)": (
        "llama2.c",
        dict(down=1.0, first=DEPTH),
        dict(w1=DEPTH, w2=1 / DEPTH, w3=DEPTH),
    ),
    "no factor": (
        "torchtitan",
        dict(o=1.0, down=1.0),
        dict(wo=1 / DEPTH, w2=1 / DEPTH),
    ),
    "fan-in of the other side": ("torchtitan", dict(fan=True), dict(w2=2**0.5)),
}


@pytest.mark.parametrize("case", WRONG_DRAWS)
def test_a_module_of_ones_own_against_what_it_should_be(case):
    name, wrong, true = WRONG_DRAWS[case]
    torch.manual_seed(0)
    module = lingua(SHAPES[name][0]().eval(), **wrong)
    t = read(name, module, promised=gated(name))
    found = dict(departures(t))
    assert len(found) == len(true), found
    for k, factor in true.items():
        path, said = next((path, x) for path, x in found.items() if path.endswith(k))
        assert abs(said - factor) < 0.06 * factor
        assert any(
            row.endswith(f"{k}.weight") and abs(times - said) < 0.06 * said
            for row, times in init_table(t)[["parameter", "times"]].itertuples(
                index=False
            )
        )
    said = " ".join(repr(report(t, size=4, rng=0)).split()).partition("! ")[2]
    assert said.startswith(
        "the module differs from the intended initialisation in its standard "
        "deviations:"
    )
    assert all(f"{k}" in said.partition("! ")[0] for k in true)
    assert not departures(
        read(name, lingua(SHAPES[name][0]().eval()), promised=gated(name))
    )
    assert not departures(read(name, module))


def test_a_config_as_a_promise():
    """nanoGPT, promised GPT-2's config: drawn so, and without its factor in front of
    the sums; a family against another config than its own.
    """
    config = dict(model_type="gpt2", n_embd=n, n_layer=L, n_head=H, vocab_size=V)
    module = drawn("nanoGPT")
    from_torch(
        module, texts=S, roles=GPT, activation="gelu", mask="causal", promised=config
    )
    for key, p in module.named_parameters():
        if p.ndim > 1:
            p.data.normal_(0, 0.02 * (DEPTH if key.endswith("c_proj.weight") else 1))
    assert not departures(read("nanoGPT", module, promised=config))
    assert not departures(read("nanoGPT", module, promised=from_config(config, S)))
    for block in module.transformer.h:
        block.attn.c_proj.weight.data.normal_(0, 0.02)
    ((name, factor),) = departures(read("nanoGPT", module, promised=config))
    assert name == "transformer.h.*.attn.c_proj"
    assert abs(factor * DEPTH - 1) < 0.06
    halved = from_config(config, S)
    from infattn_nb.initialisation.rules import scaled

    (
        module.transformer.wte.weight.data.normal_(0, 0.2),
        module.transformer.wpe.weight.data.normal_(0, 0.2),
    )
    assert {
        name
        for name, _ in departures(
            read("nanoGPT", module, promised=scaled(halved, DEPTH**-1, 1.0, 10.0))
        )
    } == {"transformer.h.*.mlp.c_proj"}
    for wrong, text in (
        (config | dict(n_layer=2), "have 3 blocks, as the module, got 2"),
        (config | dict(n_head=2), "have heads 4, as the module, got 2"),
        (config | dict(n_inner=n), f"have fan-in of 2 {4 * n}, as the module, got {n}"),
        (3, "must be a path, a dict"),
    ):
        with pytest.raises((TypeError, ValueError), match=text) as e:
            read("nanoGPT", module, promised=wrong)
        assert len(str(e.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["nanoGPT", "llama2.c"])
def test_a_module_by_roles_is_trained_as_torch_trains_it(name):
    """Losses of five steps of SGD, from the module's own weights: a head of its
    own, grouped queries, positions that turn.
    """
    module = drawn(name).double()
    ids = [3, 1, 4, 1, 5, 9]
    _, roles, shape = SHAPES[name]
    net = from_torch(module, texts=[ids], roles=roles, **shape)
    program, logits = net.program(readout="lm")
    assert logits.shape == (5, V)
    run = train(
        program,
        logits,
        next_tokens(net),
        width=n,
        size=1,
        steps=5,
        init=weights_of(net, module, readout="lm"),
        learning_rate=0.05,
        loss="softmax",
        reduction="mean",
        parametrization="standard",
        verbose=False,
    )
    descent = torch.optim.SGD(module.parameters(), lr=0.05)
    losses = []
    for _ in range(6):
        loss = F.cross_entropy(
            module(torch.tensor([ids]))[0, :-1], torch.tensor(ids[1:])
        )
        losses.append(loss.item())
        descent.zero_grad()
        loss.backward()
        descent.step()
    np.testing.assert_allclose(run.loss[0], losses, rtol=1e-5)
    assert losses[-1] < 0.9 * losses[0]
