"""Chains of Gram matrices against real transformers: torch's encoder layers, and the
families of Hugging Face. Nothing is downloaded. The longer half is marked `slow`:
`pytest tests/external/test_torch.py -m slow`.
"""

import json
import warnings
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from conftest import nightly
from scipy.stats import ks_2samp
from with_torch import TORCH, torch
from wrong_calls import rejects

from infattn_nb import Block, FeedForward, Norm, Transformer, from_config, from_torch
from infattn_nb.huggingface import init_table
from infattn_nb.huggingface.module import read_module
from infattn_nb.nonlinearities import gelu, gelu_tanh, relu
from infattn_nb.transformer import embedding_cov

pytestmark = [*TORCH]  # torch warns of its own affairs
S, SEEDS = 4, 2000


def shape(t):
    "What the blocks of a uniform network have in common."
    assert len(set(map(repr, t.blocks))) == 1
    block = t.blocks[0]
    return (
        block.attention.heads,
        block.norm_placement,
        block.norm,
        block.feedforward.activation,
        block.feedforward.units,
        len(t.blocks),
        t.final_norm,
        block.attention.mask,
    )


def variance(t, name):
    "Of a matrix of the first block."
    block = t.blocks[0]
    return getattr(block.attention if name[-1] in "qkvo" else block.feedforward, name)


def embeddings(n, seed=1):
    "Tokens with a mean over their coordinates, the last one a repetition."
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((S, n)) + 0.3 * rng.standard_normal((S, 1))
    X[-1] = X[1]
    return X


def blocks(n, H, L, norm, act, rms=False):
    "Encoder layers without dropout, in training mode: torch's Python code."
    make = lambda: torch.nn.TransformerEncoderLayer(
        n,
        H,
        4 * n,
        dropout=0.0,
        activation=act,
        batch_first=True,
        norm_first=norm == "pre",
        dtype=torch.float64,
    )
    layers = torch.nn.ModuleList(make() for _ in range(L))
    for l in layers if rms else ():
        l.norm1, l.norm2 = (torch.nn.RMSNorm(n, dtype=torch.float64) for _ in range(2))
    return layers


def weights(parameters, init, b, rng):
    "b draws of all parameters: N(0, 1/fan-in), or uniform as torch's own."
    for name, p in parameters.items():
        shape, matrix = (b, *p.shape), p.ndim == 2
        if "norm" in name:
            w = np.full(shape, float(name.endswith("weight")))
        elif init == "gaussian":
            w = (
                rng.standard_normal(shape) / np.sqrt(p.shape[-1])
                if matrix
                else np.zeros(shape)
            )
        elif "self_attn" in name and not matrix:
            w = np.zeros(shape)
        else:
            fan = (
                p.shape[-1]
                if matrix
                else parameters[name.replace("bias", "weight")].shape[-1]
            )
            w = rng.uniform(-1, 1, shape) * (
                (6 / sum(p.shape)) ** 0.5 if "in_proj" in name else fan**-0.5
            )
        yield name, torch.from_numpy(w)


# Xavier over the stacked (3n, n) matrix; U(±fan^−½)
DEFAULT = dict(var_q=0.5, var_k=0.5, var_v=0.5, var_o=1 / 3, var_1=1 / 3, var_2=1 / 3)


class Walk(torch.nn.Module):
    "Stream, entropies and centred scores, block after block."

    def __init__(self, layers, mask):
        super().__init__()
        self.layers, self.mask = (
            layers,
            torch.triu(torch.full((S, S), -torch.inf, dtype=torch.float64), 1)
            if mask is True
            else None
            if mask is False
            else mask,
        )

    def forward(self, x):
        xs, entropy, last = [x], [], []
        for l in self.layers:
            z = l.norm1(x) if l.norm_first else x
            A = l.self_attn(
                z,
                z,
                z,
                attn_mask=self.mask,
                need_weights=True,
                average_attn_weights=False,
            )[1]
            x = l(x, src_mask=self.mask)
            (
                xs.append(x),
                entropy.append(torch.special.entr(A).sum(-1)),
                last.append(A[..., -1, 1:].log() - A[..., -1, :1].log()),
            )
        return torch.stack(xs, 1), torch.stack(entropy, 1), torch.stack(last, 1)


def real(n, H, L, norm, act, mask, init, size=SEEDS, seed=0, b=25, rms=False, mean=0.0):
    "Statistics of `size` real networks: {name: (size, …)}."
    walk, rng, X = (
        Walk(blocks(n, H, L, norm, act, rms), mask).train(),
        np.random.default_rng(seed),
        torch.from_numpy(embeddings(n) + mean)[None],
    )
    run = torch.func.vmap(lambda p: torch.func.functional_call(walk, p, (X,)))
    with torch.no_grad():
        parts = [
            run(dict(weights(dict(walk.named_parameters()), init, b, rng)))
            for _ in range(size // b)
        ]
    x, entropy, last = (torch.cat(p)[:, 0].numpy() for p in zip(*parts))
    return statistics(x @ x.mT / n, entropy, last, x[..., 0])


def statistics(gram, entropy, last, unit):
    d = np.sqrt(np.diagonal(gram, axis1=-2, axis2=-1))
    cosine = gram / (d[..., None] * d[..., None, :])
    upper = np.triu_indices(gram.shape[-1])
    return dict(
        gram=gram[..., *upper],
        cosine=cosine[..., *upper],
        entropy=entropy,
        scores=last,
        unit=unit,
    )


def ours(t, n, size, seed=0):
    c = t.chain(n, size, seed, coords=1, scores=True)
    return statistics(
        c.gram,
        c.entropy,
        c.scores[..., -1, 1:] - c.scores[..., -1, :1],
        c.units[..., 0],
    )


def agree(a, b, level=1e-6):
    """Every statistic has one law: Kolmogorov–Smirnov, the level divided by how many
    are compared. Returns the distance that would be seen.
    """
    # a single precision's worth of ties for what is constant
    flat = lambda x: x.reshape(len(x), -1).T.round(9)
    pairs = [
        (name, k, *xy)
        for name in a
        for k, xy in enumerate(zip(flat(a[name]), flat(b[name]), strict=True))
        if np.ptp(np.concatenate(xy)) > 1e-6
    ]
    for name, k, x, y in pairs:
        assert ks_2samp(x, y).pvalue > level / len(pairs), (name, k)
    N, M = len(pairs[0][2]), len(pairs[0][3])
    return np.sqrt(-np.log(level / len(pairs) / 2) / 2 * (1 / N + 1 / M))


CASES = [("pre", "gelu", False, "gaussian", 64, 4, 2)]
MORE = [
    ("post", "relu", True, "gaussian", 64, 2, 2),
    ("pre", "relu", True, "default", 64, 8, 2),
    ("post", "gelu", False, "default", 64, 4, 3),
    ("pre", "gelu", True, "gaussian", 128, 8, 4),
    ("post", "gelu", False, "gaussian", 128, 4, 2),
    ("pre", "relu", False, "gaussian", 64, 2, 4),
    ("post", "relu", False, "default", 128, 8, 3),
    ("post", "gelu", True, "gaussian", 64, 8, 3),
    ("pre", "gelu", False, "default", 128, 2, 2),
]


@pytest.mark.power(
    "distribution functions .09 apart, means .15 standard deviations apart, of every "
    "Gram entry, cosine, entropy, score and unit at every layer"
)
@pytest.mark.parametrize(
    "case",
    CASES + [pytest.param(c, marks=pytest.mark.slow) for c in MORE],
    ids=lambda c: "-".join(map(str, c)),
)
@pytest.mark.long
def test_encoder_layers(case):
    """Two thousand real networks each. Uniform weights are exact to the second moment
    only: what they add is below what is seen.
    """
    norm, act, causal, init, n, H, L = case
    X = embeddings(n)
    options = (
        DEFAULT | dict(var_b1=1 / 3 / n, var_b2=1 / 3 / (4 * n))
        if init == "default"
        else {}
    )
    t = Transformer.uniform(
        np.cov(X, bias=True),
        X.mean(1),
        L,
        heads=H,
        norm_placement=norm,
        activation=dict(gelu=gelu, relu=relu)[act],
        mask="causal" if causal else None,
        embeddings=X,
        **options,
    )
    assert agree(real(*case[4:], *case[:4]), ours(t, n, 10_000)) < 0.09


@pytest.mark.power(
    "distribution functions .2 apart: the limit is not mistaken for width 64"
)
@pytest.mark.long
def test_width_is_seen():
    "The same comparison rejects the limit: the power is real."
    norm, act, causal, init, n, H, L = CASES[0]
    X = embeddings(n)
    t = Transformer.uniform(np.cov(X, bias=True), X.mean(1), L, heads=H, embeddings=X)
    with pytest.raises(AssertionError):
        agree(real(n, H, L, norm, act, causal, init, 500), ours(t, np.inf, 4000))


# What used to be read wrongly, without a word

HALF = torch.tensor(
    [
        [False, True, True, False],
        [False, False, True, True],
        [True, False, False, True],
        [False] * 4,
    ]
)  # True: may not attend
SHIFT = torch.tensor(
    [
        [0.0, 1.0, -torch.inf, -1.0],
        [2.0, 0.0, 0.0, -torch.inf],
        [-torch.inf, 1.0, 0.0, 1.0],
        [1.0, 0.0, -2.0, 0.0],
    ],
    dtype=torch.float64,
)
WRONG = {
    "an RMSNorm": dict(rms=True, mean=1.0),
    "a boolean mask": dict(mask=HALF),
    "a mask of floats": dict(mask=SHIFT),
}


def own(name, norm, n=64, H=4, L=2):
    "The encoder, and the ensemble read from it at the variances that torch promises."
    what = WRONG[name]
    encoder = torch.nn.TransformerEncoder(
        blocks(n, H, 1, norm, "relu", what.get("rms", False))[0],
        L,
        enable_nested_tensor=False,
    )
    t = from_torch(
        encoder, embeddings(n) + what.get("mean", 0.0), attn_mask=what.get("mask")
    )
    units = dict(var_1=1 / 3, var_2=1 / 3, var_b1=1 / 3 / n, var_b2=1 / 3 / (4 * n))
    heads = {f"var_{k}": DEFAULT[f"var_{k}"] for k in "qkvo"}
    return t.altered(lambda a: heads, lambda f: units)


@pytest.mark.power(
    "distribution functions .13 apart, of every Gram entry, cosine, entropy, score "
    "and unit at every layer"
)
@pytest.mark.parametrize(
    "name, norm",
    nightly(
        list(product(WRONG, ("pre", "post"))),
        ("an RMSNorm", "post"),
        ("an RMSNorm", "pre"),
        ("a boolean mask", "pre"),
        ("a mask of floats", "pre"),
        ("a mask of floats", "post"),
    ),
)
@pytest.mark.long
def test_norms_and_masks_of_torch(name, norm):
    """A module with nn.RMSNorm on tokens that have a mean, and attn_mask in torch's
    conventions, give torch's own statistics; read the other way, not.
    """
    what = dict(mask=False) | WRONG[name]
    theirs = real(64, 4, 2, norm, "relu", init="default", size=1000, **what)
    t = own(name, norm)
    assert agree(theirs, ours(t, None, 6000)) < 0.13

    def other(b):
        a = b.attention
        return replace(
            b,
            norm=Norm("layer", b.norm.eps),
            attention=replace(
                a,
                mask=None if a.mask is None else ~a.mask | np.eye(S, dtype=bool),
                bias=None if a.bias is None else -a.bias,
            ),
        )

    with pytest.raises(AssertionError):
        agree(theirs, ours(replace(t, blocks=[other(b) for b in t.blocks]), None, 6000))


def test_masks_are_distinguished():
    "Torch's mask in place of ours is rejected; both allow what both allow."
    layer, X = (
        torch.nn.TransformerEncoderLayer(16, 2, 32),
        np.random.default_rng(0).standard_normal((S, 16)),
    )
    with pytest.raises(TypeError, match="pass torch's masks as attn_mask="):
        from_torch(layer, X, mask=HALF)
    both = from_torch(layer, X, attn_mask=HALF, mask="causal").blocks[0].attention.mask
    np.testing.assert_array_equal(both, ~HALF.numpy() & np.tri(S, dtype=bool))
    with pytest.raises(ValueError, match="`attn_mask` must have shape"):
        from_torch(layer, X, attn_mask=HALF[None].expand(2, S, S))
    with pytest.raises(ValueError, match="NaN"):
        from_torch(layer, X, attn_mask=SHIFT * torch.nan)


def test_lists_of_layers_and_random_embeddings():
    "A list, ModuleList or Sequential; labels have variance one."
    layers = [torch.nn.TransformerEncoderLayer(16, 2, 32).eval() for _ in range(3)]
    X = torch.randn(S, 16)
    known = list(map(repr, from_torch(torch.nn.ModuleList(layers), X).blocks))
    assert len(known) == 3
    for module in (layers, tuple(layers), torch.nn.Sequential(*layers)):
        assert list(map(repr, from_torch(module, X).blocks)) == known
    t = from_torch(layers, texts="a b a")
    np.testing.assert_array_equal(t.cov, [[1, 0, 1], [0, 1, 0], [1, 0, 1]])
    assert t.random_embeddings
    assert "measured on one draw" in " ".join(repr(t).split())
    for given in (dict(), dict(embeddings=X, texts=3)):
        with pytest.raises(ValueError, match="or `texts` in its place"):
            from_torch(layers, **given)
    with pytest.raises(ValueError, match="`config` must be False"):
        from_torch(layers, texts=3, config=True)


def test_variances_of_the_config():
    "config=True takes initializer_range; otherwise what one draw has."
    model = gpt2(n_embd=48, n_head=3, n_layer=2)
    exact, measured = (from_torch(model, texts=TEXT, config=c) for c in (True, False))
    own = from_config(model.config, TEXT)
    assert repr(exact) == repr(own)
    assert variance(exact, "var_q") == 48 * 0.02**2 != variance(measured, "var_q")
    np.testing.assert_array_equal(exact.cov, own.cov)
    words, positions = (
        p.detach().double().square().mean().item()
        for p in (model.wte.weight, model.wpe.weight)
    )
    np.testing.assert_allclose(
        measured.cov, embedding_cov(TEXT, words, positions), rtol=1e-6
    )
    assert (init_table(exact)["times"] == 1).all()
    assert 0 < abs(init_table(measured)["times"] - 1).max() < 0.1


@pytest.mark.long
def test_weights_that_are_no_draw_are_noticed():
    "A spike, a column that has grown; and never a fresh module."
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(20):
            torch.manual_seed(seed)
            from_torch(
                [torch.nn.TransformerEncoderLayer(32, 2, 64).eval() for _ in range(2)],
                texts=3,
            )
            from_torch(gpt2(n_embd=48, n_head=3, n_layer=2), texts=3)
    for spoil in (
        lambda W: W[3, 5].fill_(3.0),
        lambda W: W[:, 2].mul_(8),
        lambda W: W[1].mul_(8),
    ):
        layer = torch.nn.TransformerEncoderLayer(32, 2, 64).eval()
        with torch.no_grad():
            spoil(layer.linear1.weight)
        with pytest.warns(UserWarning, match="not independent draws of one law"):
            from_torch(layer, texts=3)


def test_tensors_of_every_kind():
    "A tensor with gradients is an array; a module without storage is one sentence."
    assert len(Transformer(torch.eye(6, requires_grad=True), blocks=[Block()]).cov) == 6
    with pytest.raises(
        ValueError, match="hold numbers, got tensors on the meta device"
    ):
        from_torch(torch.nn.TransformerEncoderLayer(16, 2, 32, device="meta"), texts=3)
    for act, phi in (
        (torch.nn.functional.gelu, gelu),
        (torch.nn.GELU(approximate="tanh"), gelu_tanh),
        (torch.relu, relu),
        (torch.nn.ReLU(), relu),
    ):
        assert FeedForward(activation=act).activation is phi


@pytest.mark.parametrize("norm", ("pre", "post"))
def test_read_encoder_layer(norm):
    "What torch's documentation promises, up to the noise of one draw."
    n = 192
    layer = torch.nn.TransformerEncoderLayer(
        n, 3, 2 * n, norm_first=norm == "pre", activation="gelu", layer_norm_eps=1e-6
    ).eval()
    X = torch.randn(S, n)
    t = from_torch(layer, X)
    assert (t.width, *shape(t)) == (
        n,
        3,
        norm,
        Norm("layer", 1e-6),
        gelu,
        2,
        1,
        False,
        None,
    )
    for name, value in DEFAULT.items():
        # relative standard error √.8/n
        assert abs(variance(t, name) / value - 1) < 10 / n, name
    for name, value in dict(var_b1=1 / 3 / n, var_b2=1 / 6 / n).items():
        assert abs(variance(t, name) / value - 1) < 8 * np.sqrt(0.8 / n), name
    y = t.chain(size=2, coords=1)  # at the module's width
    assert y.gram.shape == (2, 2, S, S)
    assert abs(y.gram[0, 0] - t.embeddings @ t.embeddings.T / n).max() < 1e-9
    layer.norm1, layer.norm2 = torch.nn.RMSNorm(n), torch.nn.RMSNorm(n, eps=None)
    t = from_torch(layer, X)
    assert t.blocks[0].norm == Norm("rms", np.finfo("float32").eps)
    two = from_torch(layer, [X, X[:2]], mask="causal")
    np.testing.assert_array_equal(two.texts, [0, 0, 0, 0, 1, 1])


def test_read_encoder():
    "Copies of one block are noticed; blocks of different scales stay different."
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
    with pytest.warns(UserWarning, match="copies of one another"):
        read_module(torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    encoder = torch.nn.TransformerEncoder(
        layer, 3, torch.nn.LayerNorm(64), enable_nested_tensor=False
    )
    with torch.no_grad():
        for k, l in enumerate(encoder.layers):
            torch.nn.init.normal_(l.linear1.weight, std=(k + 1) / 8)
            torch.nn.init.uniform_(l.linear2.bias, -0.09, 0.09)  # no copies
    spec = read_module(encoder)
    assert spec["final_norm"]
    assert len(spec["blocks"]) == 3
    np.testing.assert_allclose(
        [b.feedforward.var_1 for b in spec["blocks"]], [1, 4, 9], rtol=0.2
    )


def test_dropout_is_noticed():
    "A module left in training mode, and the zeros that dropout leaves in embeddings."
    layer, X = torch.nn.TransformerEncoderLayer(64, 2, 32), torch.randn(S, 64)
    with pytest.warns(UserWarning, match="training mode with dropout 0.1"):
        from_torch(layer, X)
    with pytest.warns(UserWarning, match="as dropout leaves them"):
        from_torch(layer.eval(), torch.nn.functional.dropout(X, 0.2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_torch(layer.eval(), X)


def test_rejected_modules():
    "One sentence for whatever a chain cannot follow."
    make = lambda **k: torch.nn.TransformerEncoderLayer(16, 2, 32, **k)
    gained, two_eps, odd = make(), make(), make()
    gained.norm1.weight.data.mul_(2)
    two_eps.norm2.eps = 1e-3
    odd.activation = torch.nn.Softplus()
    for module, text in [
        (torch.nn.TransformerDecoderLayer(16, 2), "`module` must be"),
        (gained, "gain 1"),
        (two_eps, "one eps"),
        (odd, "use one of relu"),
    ]:
        rejects(lambda: from_torch(module, np.ones((2, 16))), text)
    rejects(lambda: from_torch(make(), np.ones((2, 15))), "have shape (s, 16)")


# Hugging Face

TEXT = [3, 1, 4, 1, 5, 9, 2, 6]  # token 1 twice


def gpt2(**options):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=16, bos_token_id=0, eos_token_id=0, n_positions=len(TEXT), **options
    )
    config._attn_implementation = "eager"
    return transformers.GPT2Model(config).eval()


CONFIGS = json.loads(
    (Path(__file__).parents[1] / "data" / "families" / "configs.json").read_text(
        encoding="utf-8"
    )
)


def test_scores_of_each_layer_and_two_biases(transformers):
    """GPT-2 may divide the scores by the number of the layer; a mask of floats is added
    to ALiBi; biases that MPT may have are looked at.
    """
    assert [
        b.attention.score_scale
        for b in read_module(
            gpt2(n_embd=48, n_head=3, n_layer=2, scale_attn_by_inverse_layer_idx=True)
        )["blocks"]
    ] == [1, 0.5]
    model = transformers.AutoModel.from_config(
        transformers.AutoConfig.for_model(**CONFIGS["mpt"])
    ).eval()
    shift = torch.arange(16.0).reshape(4, 4)
    plain, both = (
        from_torch(model, texts=4, attn_mask=mask).blocks[0].attention.bias
        for mask in (None, shift)
    )
    np.testing.assert_array_equal(both, plain + shift.numpy())
    model.blocks[0].ffn.up_proj.bias = torch.nn.Parameter(
        torch.ones(model.blocks[0].ffn.up_proj.out_features)
    )
    first, second = (b.feedforward for b in read_module(model, 4)["blocks"][:2])
    assert repr(first.activation) == f"{second.activation}(x + 1)"


def test_what_a_new_release_may_add(transformers):
    "An unknown number is named and left out, or rejected if it acts."
    model = transformers.LlamaModel(
        transformers.LlamaConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=16,
            vocab_size=8,
        )
    ).eval()
    plain = read_module(model)
    model.layers[1].self_attn.cache_version = 3
    with pytest.warns(
        UserWarning, match="an unknown number `cache_version` = 3 in its attention"
    ):
        again = read_module(model)
    assert list(map(repr, again["blocks"])) == list(map(repr, plain["blocks"]))
    model.layers[1].self_attn.value_multiplier = 3.0
    with pytest.raises(
        ValueError, match="no number `value_multiplier` in its attention"
    ):
        read_module(model)
