"""Is what is read what is drawn? Tables that no initialisation draws, matrices that
depend on one another, parts that the scale of an initialisation hides, factors of sums,
and what cannot be read: each beside fresh modules of torch, or with its sentence.
"""

import math
import warnings

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="torch is the other side of these comparisons; pip install torch"
)
transformers = pytest.importorskip(
    "transformers",
    reason="the families come from transformers; pip install transformers",
)

from infattn_nb import Rotary, from_config, from_torch, init_table, initialise
from infattn_nb.huggingface import families
from infattn_nb.numerics import checks

pytestmark = [pytest.mark.xdist_group("torch"), pytest.mark.filterwarnings("ignore")]
torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
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


def cosines(gram):
    "Mean over pairs of different tokens, after each block but the last norm."
    d = np.sqrt(np.einsum("nlii->nli", gram))
    C = gram / (d[..., :, None] * d[..., None, :])
    return C[..., *np.triu_indices(gram.shape[-1], 1)].mean(-1)[:, : L + 1]


def theirs(make, seeds=200):
    found = []
    for seed in range(seeds):
        module = make(seed)
        with torch.no_grad():
            module(torch.tensor([TEXT]))
        x = torch.stack(module.seen)[:, 0].double()
        found.append((x @ x.mT / n).numpy())
    return cosines(np.array(found))


def apart(a, b):
    "Means of two samples, in standard errors: the largest of all columns."
    error = np.sqrt(a.var(0) / len(a) + b.var(0) / len(b))
    return (abs(a.mean(0) - b.mean(0)) / error.clip(1e-9)).max()


# Tables


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


@pytest.mark.power("mean cosines 8 standard errors of 200 networks apart, each block")
@pytest.mark.parametrize("name", LAWS)
def test_fresh_modules_have_the_cosines_of_the_chain(name):
    t = described(name, Own(**LAWS[name]))
    real = theirs(lambda seed: Own(seed, **LAWS[name]))
    assert apart(real, cosines(t.chain(size=2000, rng=1).gram)) < 6
    fixed = isinstance(t.random_embeddings, np.ndarray)
    assert fixed == (name in ("buffer", "frozen"))
    broken = {
        "buffer": lambda t: _drawn_positions(t),
        "frozen": lambda t: _drawn_positions(t),
        "scaled": lambda t: t.embedded(1 / n),
        "learned": lambda t: t.embedded(4.0),
        "biases": lambda t: t.altered(lambda a: dict(var_bv=0.0, var_bo=0.0)),
    }.get(name, lambda t: t.altered(None, None, lambda b: dict(branch_scale=0.05)))
    assert apart(real, cosines(broken(t).chain(size=2000, rng=1).gram)) > 8


def _drawn_positions(t):
    "As a reading by sizes alone has it: another row for each position."
    from dataclasses import replace

    known = np.diag(np.diag(t.cov - t.random_embeddings))
    return replace(t, cov=t.random_embeddings + known, random_embeddings=True, mean=0.0)


@pytest.mark.parametrize("kind", ("buffer", "frozen", "smooth"))
def test_tables_that_nothing_draws_stay_as_they_are(kind):
    module = Own(positions=kind)
    before = module.wpe.clone()
    t = read(module)
    initialise(t, module, 1)
    assert torch.equal(before, module.wpe)
    rows = init_table(t).set_index("parameter")
    assert rows.loc["wpe", "where"] == "given"
    assert np.isnan(rows.loc["wpe", "std"])
    assert (rows["where"] == "init").sum() == len(rows) - 1
    with pytest.raises(ValueError, match="cannot rescale a given table"):
        init_table(t.embedded(2.0))


def test_positions_of_several_texts_start_again():
    module = Own(positions="buffer")
    t = read(module, tokens=[[1, 2], [3, 4, 5]])
    P = sines(3).double().numpy()
    known = t.cov + np.outer(t.mean, t.mean) - t.random_embeddings
    rows = P[[0, 1, 0, 1, 2]]
    np.testing.assert_allclose(known, rows @ rows.T / n, atol=1e-6)


def shared_mean(W):
    W += 0.3 * W[0].clone()


def equal_rows(W):
    W[V // 2 :] = W[0].clone()


def low_rank(W):
    W.copy_(W[:, :3] @ W[:3])


@pytest.mark.parametrize(
    "spoil, text",
    [
        (shared_mean, "different rows have cosines of"),
        (equal_rows, "different rows have cosines of"),
        (low_rank, "squares of inner products"),
    ],
)
def test_words_that_are_no_draws_are_rejected_with_the_way_on(spoil, text):
    module = Own()
    read(module)
    with torch.no_grad():
        spoil(module.wte.weight)
    with pytest.raises(ValueError, match=text) as e:
        read(module)
    assert "pass what enters the first block as `embeddings`" in str(e.value)
    assert len(str(e.value).splitlines()) == 1
    X = module.wte.weight.detach()[TEXT]
    given = from_torch(
        module, X, roles=ROLES, heads=H, activation="gelu", mask="causal"
    )
    np.testing.assert_allclose(given.embeddings, X.numpy(), atol=1e-7)


@pytest.mark.parametrize("flag", (False, True))
def test_distilbert_by_its_config_and_as_a_module(flag):
    c = transformers.DistilBertConfig(
        vocab_size=99,
        dim=64,
        n_layers=2,
        n_heads=4,
        hidden_dim=128,
        max_position_embeddings=64,
        sinusoidal_pos_embds=flag,
    )
    torch.manual_seed(0)
    t = from_config(c, TEXT)
    module = transformers.DistilBertModel(c).eval()
    u = from_torch(module, texts=TEXT)
    assert t.source.fixed == u.source.fixed == (("position",) if flag else ())
    np.testing.assert_allclose(t.cov, u.cov, atol=2e-3)
    module_before = module.embeddings.position_embeddings.weight.clone()
    initialise(t, module, 0)
    after = module.embeddings.position_embeddings.weight
    assert torch.equal(module_before, after) == flag


# Matrices


def rand_for_randn(block):
    block.up.weight.copy_(torch.rand_like(block.up.weight))


def identities(block):
    for part in (block.v, block.o):
        part.weight.copy_(torch.eye(n))


def mimetic(block):
    block.v.weight.add_(0.4 * torch.eye(n))


def tied_keys(block):
    block.k.weight.copy_(block.q.weight)


def output_of_values(block):
    block.o.weight.copy_(block.v.weight.T)


def near_tied(block):
    block.k.weight.mul_(0.9).add_(0.4 * block.q.weight)


def down_of_up(block):
    block.down.weight.copy_(block.up.weight.T)


def shared_rows(block):
    block.q.weight.add_(0.5 * block.q.weight[:1].clone())


def low_rank_values(block):
    block.v.weight.copy_(block.v.weight[:, :4] @ block.q.weight[:4])


WRONG = {
    rand_for_randn: r"matrix '1' in block 0 \(h\.\*\.up\).* their mean is 0\.8",
    identities: r"matrix 'v' in block 0 \(h\.\*\.v\).*the mean of the diagonal is",
    mimetic: r"the mean of the diagonal is \d\.",
    tied_keys: r"matrices 'q' and 'k' in block 0 \(h\.\*\.q, h\.\*\.k\).*of 1, where",
    output_of_values: "matrices 'v' and 'o' in block 0 .*correlation of 1, where",
    near_tied: r"matrices 'q' and 'k' in block 0 .*correlation of 0\.[34]",
    down_of_up: "matrices '1' and '2' in block 0 .*correlation of 1, where",
    shared_rows: "different rows have cosines of",
    low_rank_values: "squares of inner products",
}


@pytest.mark.parametrize("spoil", WRONG, ids=lambda f: f.__name__)
def test_matrices_that_are_no_draws_get_a_warning(spoil):
    "It names the tensor, the statistic and its size, and what chance allows for."
    module = Own()
    with torch.no_grad():
        for block in module.h:
            spoil(block)
    with pytest.warns(UserWarning, match=WRONG[spoil]):
        read(module)


def test_blocks_that_are_correlated_get_a_warning():
    module = Own()
    with torch.no_grad():
        module.h[1].down.weight.mul_(0.5).add_(0.8 * module.h[0].down.weight)
    with pytest.warns(
        UserWarning, match="matrices '2' in blocks 0 and 1 .*correlation"
    ):
        read(module)


@pytest.mark.power("every warning has a chance of less than 1e-7 in these 60 modules")
def test_draws_get_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(60):
            read(Own(seed, positions="learned"), verify=False)


# What the scale of an initialisation hides

HIDDEN = {
    "rotary": (dict(rotary=10.0), dict(rotary=Rotary(10.0))),
    "cap of 50": (dict(cap=50.0), dict(softcap=50.0)),
    "cap of 5": (dict(cap=5.0), dict(softcap=5.0)),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_parts_that_small_scores_hide_are_seen(name):
    "At a standard deviation of .02 neither changes an output by its rounding."
    own, right = HIDDEN[name]
    module = Own(σ=0.02, **own)
    before = {k: x.clone() for k, x in module.state_dict().items()}
    t = read(module, **right)
    with pytest.raises(ValueError, match="must run like its description"):
        read(module)
    with pytest.raises(ValueError, match="must run like its description"):
        read(Own(σ=0.02), **right)
    after = module.state_dict()
    assert all(torch.equal(x, after[k]) for k, x in before.items())
    assert t.blocks[0].attention.var_q < 0.1


@pytest.mark.parametrize("zero", ("q", "o", "down"))
def test_behind_zeros_is_seen_too(zero):
    "A matrix that starts at zero, in a module that has positions nobody describes."
    module = Own(rotary=10.0)
    with torch.no_grad():
        for block in module.h:
            getattr(block, zero).weight.zero_()
    read(module, rotary=Rotary(10.0))
    with pytest.raises(ValueError, match="must run like its description"):
        read(module)


def test_rezero_that_starts_at_zero():
    module = Own(alpha=0.0)
    t = read(module, roles=dict(branch_scale="h.*.alpha"))
    assert all(b.branch_scale == 0 for b in t.blocks)
    initialise(t, module, 0)
    assert all(float(block.alpha) == 0 for block in module.h)
    hidden = Own(alpha=0.0, rotary=10.0)
    with pytest.raises(ValueError, match="must run like its description"):
        read(hidden, roles=dict(branch_scale="h.*.alpha"))


def test_verification_of_gpt2_small_takes_three_passes():
    module = transformers.GPT2Model(transformers.GPT2Config()).eval()
    passes = []
    module.register_forward_hook(lambda *_: passes.append(1))
    from_torch(module, texts=16)
    assert len(passes) <= 3


def test_entries_of_a_module_are_converted_once(monkeypatch):
    config = transformers.GPT2Config(n_layer=2, n_embd=192, n_head=3, vocab_size=512)
    module = transformers.GPT2Model(config).eval()
    converted = []

    def counting(x, *args, **kwargs):
        converted.append(np.size(x))
        return real(x, *args, **kwargs)

    real = checks.real
    monkeypatch.setattr(checks, "real", counting)
    from_torch(module, texts=16)
    every = sum(p.numel() for p in module.parameters())
    assert every < sum(converted) < 2 * every


# Ways on


def test_factors_are_written_back():
    for name in ("rezero", "layer_scale"):
        module = Own(**LAWS[name])
        t = described(name, module)
        wider = t.altered(None, None, lambda b: dict(branch_scale=2 * b.branch_scale))
        initialise(wider, module, 0)
        held = module.h[0].alpha if name == "rezero" else module.h[0].gamma_2
        value = next(iter(LAWS[name].values()))
        assert torch.allclose(held, torch.tensor(value))
        assert abs(module.h[0].o.weight.std() / 0.4 - 1) < 0.1
    with pytest.raises(ValueError, match="one number for 'branch_scale'"):
        uneven = Own(gamma=0.3)
        uneven.h[0].gamma_1.data[3] = 1.0
        described("layer_scale", uneven)


def test_biases_of_attention_are_read_and_written():
    """As torch draws them, uniform; with positions that turn; scaled with the matrices;
    those that have a mean stay.
    """
    module = Own(rotary=10.0, bias=True, bias_size=0.3)
    t = read(module, rotary=Rotary(10.0))
    a = t.blocks[0].attention
    for k in "qkvo":
        assert 0.03 < a.variance(f"b{k}") < 0.25
    larger = t.altered(
        lambda a: dict(score_scale=4.0), None, lambda b: dict(branch_scale=2.0)
    )
    initialise(larger, module, 0)
    for k, factor in dict(q=2.0, k=2.0, v=1.0, o=2.0).items():
        drawn = getattr(module.h[0], k).bias.std()
        assert 0.4 < drawn / (factor * a.variance(f"b{k}") ** 0.5) < 1.8
    plain = Own(bias=True)
    for block in plain.h:
        for k in "qkvo":
            nn.Linear.reset_parameters(getattr(block, k))
    assert abs(read(plain).blocks[0].attention.var_bv - 1 / (3 * n)) < 0.008
    for block in plain.h:
        block.v.bias.data.fill_(0.2)
    kept = read(plain)
    assert kept.source.given == ("bv",)
    initialise(kept, plain, 1)
    assert (plain.h[0].v.bias == 0.2).all()
    p = read(plain, verify=False)
    with pytest.raises(ValueError, match="biases that are draws in a program"):
        p.program()


def test_arguments_that_there_are_not():
    module = Own()
    with pytest.raises(TypeError, match="`branch_scal` must be one of .*did you mean"):
        read(module, branch_scal=0.3)
    with pytest.raises(ValueError, match="not be zero in every entry"):
        from_torch(module, np.zeros((4, n)), roles=ROLES, heads=H, activation="gelu")
    with pytest.raises(TypeError, match="`roles` must be given, got branch_scale"):
        from_torch(module, texts=4, branch_scale=0.3)


# What cannot be read

SMALL = dict(
    hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
)
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
    "a spectrogram": (lambda: made("ASTModel", **SMALL), "as ViT"),
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
        "no part `encoder_attn` in its block",
    ),
    "torch's two stacks": (
        lambda: nn.Transformer(32, 2, 1, 1, 64).eval(),
        "one stack of blocks, got attention outside",
    ),
    "pixels": (
        lambda: made("CLIPVisionModel", **SMALL, image_size=32, patch_size=16),
        "embeddings of a supported kind, got embeddings.patch",
    ),
    "T5's encoder": (encoder_of_t5, "scores without learned biases"),
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


@pytest.mark.parametrize("name", SAID)
def test_one_sentence_says_why(name):
    make, text = SAID[name]
    with pytest.raises((ValueError, TypeError), match=text) as e:
        from_torch(make(), texts=4)
    assert len(str(e.value).splitlines()) == 1


@pytest.mark.parametrize("name", ("sounds", "pixels", "patches alone", "other names"))
def test_blocks_are_read_where_their_front_is_not(name):
    "With what enters the first block: each block runs as it is read, alone if need be."
    X = np.random.default_rng(0).standard_normal((5, 32))
    t = from_torch(SAID[name][0](), X)
    assert t.blocks[0].attention.mask is None
    assert t.width == 32


LONG = {
    "gpt2": (dict(n_embd=32, n_layer=1, n_head=2, n_positions=8), 8),
    "bert": (dict(**SMALL, max_position_embeddings=8), 8),
    "roberta": (dict(**SMALL, max_position_embeddings=8, pad_token_id=1), 6),
    "distilbert": (
        dict(dim=32, n_layers=1, n_heads=2, hidden_dim=64, max_position_embeddings=8),
        8,
    ),
    "opt": (
        dict(
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            ffn_dim=64,
            word_embed_proj_dim=32,
            max_position_embeddings=8,
        ),
        8,
    ),
}


@pytest.mark.parametrize("kind", LONG)
def test_texts_are_no_longer_than_positions(kind):
    "By config and as a module, at the number of tokens at which the module ends."
    own, most = LONG[kind]
    c = transformers.AutoConfig.for_model(kind, vocab_size=50, **own)
    module = transformers.AutoModel.from_config(c).eval()
    module(input_ids=torch.full((1, most), 5))
    with pytest.raises((IndexError, RuntimeError)):
        module(input_ids=torch.full((1, most + 1), 5))
    for source in (from_config, None):
        call = source or (lambda m, k: from_torch(m, texts=k))
        given = c if source else module
        assert len(call(given, most).cov) == most
        with pytest.raises(ValueError, match=f"{most}"):
            call(given, most + 1)


def test_names_that_are_near_no_family():
    with pytest.raises(ValueError, match="have a model_type among") as e:
        from_config(dict(model_type="gpt5", hidden_size=64), 4)
    assert "t5" not in str(e.value).replace("gpt5", "")
    roformer = transformers.RoFormerConfig().to_dict()
    with pytest.raises(ValueError, match="(bert|electra) has the most similar entries"):
        from_config(roformer, 4)


def test_the_part_that_was_read_is_named():
    c = transformers.LlavaConfig(
        text_config=transformers.LlamaConfig(**SMALL, vocab_size=50)
    )
    assert "read from text_config, a llama" in " ".join(repr(from_config(c, 4)).split())


# A family by the file alone


@pytest.fixture
def lines(monkeypatch):
    "A section that is like Gemma, under another name."
    section = dict(like="gemma", prefix="body.")
    monkeypatch.setitem(families.FAMILIES_TOML["family"], "emerald", section)
    made_of = families.Family.of_section(**families._section("emerald"))
    monkeypatch.setitem(families.FAMILIES, "emerald", made_of)
    monkeypatch.setattr(families, "MODELS", [*families.MODELS, "emerald"])
    monkeypatch.setattr("infattn_nb.huggingface.config.MODELS", families.MODELS)


def test_a_family_by_the_file_alone(lines):
    "Gains that are one plus their weight, the scale of words, the meaning of gelu."
    own = dict(
        **SMALL, head_dim=16, num_key_value_heads=1, hidden_act="gelu", vocab_size=50
    )
    as_gemma, as_other = (
        from_config(dict(model_type=kind, **own), TEXT) for kind in ("gemma", "emerald")
    )
    assert repr(as_gemma) == repr(as_other)
    np.testing.assert_array_equal(as_gemma.cov, as_other.cov)
    a, b = init_table(as_gemma), init_table(as_other)
    np.testing.assert_array_equal(a[["mean", "std"]], b[["mean", "std"]])
    gains = b[b["parameter"].str.contains("norm")]
    assert (gains["mean"] == 0).all()
    assert b["parameter"].str.startswith("body.").all()
