"Encoders with decoders beside transformers: outputs, laws and gradients."

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from conftest import nightly
from model_families import LATENTS
from model_families import config as config_of_latents
from two_texts import FLIPS, KINDS, SOURCE, TARGET, config, grams, model
from with_transformers import TORCH, torch, transformers

from infattn_nb import Block, FeedForward, SelfAttention, Transformer
from infattn_nb import from_config, from_torch, initialise, report
from infattn_nb.huggingface import init_table
from infattn_nb.huggingface.config import Config
from infattn_nb.initialisation import with_rule
from infattn_nb.initialisation.head_loss import head_loss
from infattn_nb.transformer import Norm

pytestmark = TORCH
OTHERS = [kind for kind in KINDS if kind not in ("t5", "bart")]


@pytest.mark.parametrize("kind", nightly(KINDS, *OTHERS))
def test_a_module_runs_like_its_config(kind):
    "With default entries, and with others; `initialise` compares both outputs."
    for more in ({}, FLIPS[kind]):
        c = config(kind, **more)
        net = from_config(c, (SOURCE, TARGET))
        assert initialise(net, model(c), 0) is not None
        from_config(type(c)(), (SOURCE, TARGET))


def changed(change, is_cross=True):
    "Blocks of a config, of which some are changed."
    blocks = Config.blocks

    def other(self, texts):
        found = blocks(self, texts)
        if not self.has_two_texts:
            return found
        return [change(b) if (b.looks_at is not None) == is_cross else b for b in found]

    return other


BROKEN = dict(
    t5=dict(
        unnormed_source=(lambda b: replace(b, closing_norm=False), False),
        bias_in_cross_attention=(
            lambda b: replace(
                b, attention=replace(b.attention, bias=np.eye(len(b.rows))[::-1])
            ),
            True,
        ),
        scaled_scores=(
            lambda b: replace(b, attention=replace(b.attention, score_scale=1.0)),
            False,
        ),
    ),
    mbart=dict(
        unnormed_source=(lambda b: replace(b, closing_norm=False), False),
        normed_source=(lambda b: replace(b, norm_placement="post"), True),
    ),
)


@pytest.mark.parametrize(
    "kind, name", [(kind, name) for kind, of in BROKEN.items() for name in of]
)
def test_broken_variants_are_rejected(kind, name, monkeypatch):
    c = config(kind)
    net = from_config(c, (SOURCE, TARGET))
    module = model(c)
    monkeypatch.setattr(Config, "blocks", changed(*BROKEN[kind][name]))
    with pytest.raises(ValueError, match="that run like its config"):
        initialise(net, module, 0)


def apart(ours, theirs):
    "Largest distance of means and of mean squares, in standard errors."
    pairs = [(ours, theirs), (ours**2, theirs**2)]
    found = []
    for a, b in pairs:
        error = np.sqrt(a.var(0) / len(a) + b.var(0) / len(b))
        far = abs(a.mean(0) - b.mean(0))
        found.append(np.where(far < 1e-4, 0.0, far / error.clip(1e-12)).max())
    return max(found)


def law(c, source=SOURCE, target=TARGET):
    return from_config(c, (source, target)).chain(None, 3000, 0).gram[:, -1]


@pytest.mark.power("Gram entries 16 standard errors of 200 modules apart")
@pytest.mark.parametrize(
    "kind, flipped", nightly([(kind, f) for kind in KINDS for f in (False, True)])
)
@pytest.mark.slow
def test_fresh_modules_have_the_law_of_the_chain(kind, flipped):
    "Entries within and between both texts, with default entries and with others."
    c = config(kind, **FLIPS[kind] if flipped else {})
    real = grams(c, 200)
    assert apart(law(c), real) < 6
    assert apart(law(c, source=[5, 6, 10, 7, 8]), real) > 8  # no word twice
    net = from_config(c, (SOURCE, TARGET)).altered(lambda a: dict(var_v=0.0))
    assert apart(net.chain(None, 3000, 0).gram[:, -1], real) > 10  # no attention


def test_a_few_fresh_modules_have_the_law_of_the_chain():
    c = config("t5", num_decoder_layers=1)
    real = grams(c, 60)
    assert apart(law(c), real) < 6
    assert apart(law(c, source=[5, 6, 10, 7, 8]), real) > 10


# Gradients beside torch's autograd, at small widths

S, T = 3, 4
IS_SOURCE = np.arange(S + T) < S


def small(place, kind, biases):
    "An encoder of two blocks and a decoder of one layer."
    var = dict(var_bq=0.3, var_bk=0.2, var_bv=0.4, var_bo=0.3) if biases else {}
    heads = partial(SelfAttention, 2, var_q=1.5, var_k=1.2, var_o=0.8, **var)
    units = FeedForward(2, var_1=1.2, var_b1=0.2 * biases, var_b2=0.1 * biases)
    block = partial(Block, norm_placement=place, norm=Norm(kind))
    pre = place == "pre"
    cov = np.eye(S + T) + 0.3
    cov[2, 5] = cov[5, 2] = 0.9
    return Transformer(
        cov,
        [
            block(heads(), units, rows=IS_SOURCE),
            block(heads(), units, rows=IS_SOURCE, closing_norm=pre),
            block(heads(mask="causal"), None, rows=~IS_SOURCE),
            block(heads(), units, rows=~IS_SOURCE, looks_at=IS_SOURCE),
        ],
        texts=[0] * S + [1] * T,
        final_norm=pre,
        random_embeddings=True,
    )


def drawn_by_torch(t, n, count, rng):
    "Gram matrices of tokens and of gradients, and ‖.grad‖² by block and matrix."
    tensor = partial(torch.tensor, dtype=torch.float64)

    def normed(norm, x):
        c = x - x.mean(-1, keepdim=True) if norm.centres else x
        return c / torch.sqrt((c * c).mean(-1, keepdim=True) + norm.eps)

    def weights(branch):
        found = {}
        for k in branch.matrices:
            fan = int(branch.fan_in(k, n))
            out = 2 * n if k.endswith("1") else n
            z = rng.standard_normal((count, 1 if k[0] == "b" else fan, out))
            found[k] = tensor(z * np.sqrt(branch.variance(k) / fan)).requires_grad_()
        return found

    def attended(a, u, memory, W):
        def of(k, x):
            y = x @ W[k] + W.get(f"b{k}", 0.0)
            return y.reshape(count, x.shape[1], a.heads, -1).swapaxes(1, 2)

        Q, K, V = of("q", u), of("k", memory), of("v", memory)
        P = Q @ K.mT / np.sqrt(n / a.heads)
        if a.mask is not None:
            P = P.masked_fill(~torch.ones(P.shape[-2:]).tril().bool(), -np.inf)
        y = (torch.softmax(P, -1) @ V).swapaxes(1, 2).reshape(count, -1, n)
        return y @ W["o"] + W.get("bo", 0.0)

    def fed(f, u, W):
        h = torch.nn.functional.gelu(u @ W["1"] + W.get("b1", 0.0))
        return h @ W["2"] + W.get("b2", 0.0)

    z = rng.standard_normal((count, S + T, n))
    x = tensor(np.linalg.cholesky(t.cov) @ z).requires_grad_()
    streams, held = [x], []
    for block in t.blocks:
        norm = partial(normed, block.norm)
        pre = block.norm_placement == "pre"
        rows = tensor(block.rows).bool()
        own = x[:, rows]
        for branch in block.branches:
            W = weights(branch)
            held.append((len(streams) - 1, W))
            u = norm(own) if pre else own
            if branch is block.attention:
                there = block.looks_at
                memory = u if there is None else x[:, tensor(there).bool()]
                own = own + attended(branch, u, memory, W)
            else:
                own = own + fed(branch, u, W)
            own = own if pre else norm(own)
        own = norm(own) if block.closing_norm else own
        x = torch.cat([own, x[:, S:]] if block.rows[0] else [x[:, :S], own], 1)
        x.retain_grad()
        streams.append(x)
    last = normed(t.blocks[-1].norm, x) if t.final_norm else x
    r = tensor(rng.standard_normal((count, n)) / np.sqrt(n))
    (last[:, -1] * r).sum().backward()
    gram = np.stack([(x @ x.mT / n).detach() for x in streams[:-1]], 1)
    back = np.stack([x.grad @ x.grad.mT for x in streams], 1)
    sizes = {
        (l, k): (w.grad**2).sum((1, 2)).numpy() for l, W in held for k, w in W.items()
    }
    return gram, back, sizes


@pytest.mark.power("every second moment of gradients 10 standard errors apart")
@pytest.mark.parametrize(
    "place, kind, biases, n",
    [
        ("post", "layer", True, 8),
        pytest.param("pre", "rms", False, 16, marks=pytest.mark.slow),
        pytest.param("pre", "layer", True, 8, marks=pytest.mark.slow),
    ],
)
def test_gradients_of_both_texts_beside_torch(place, kind, biases, n):
    t = small(place, kind, biases)
    g = t.gradients(n, 1500, 0)
    gram, back, sizes = drawn_by_torch(t, n, 1500, np.random.default_rng(1))
    assert apart(g.chain.gram[:, :-1], gram) < 6
    assert apart(g.gram, back) < 6
    for (l, k), squares in sizes.items():
        assert apart(g.squared_weight_norms[k][:, l], squares) < 6
    cut = replace(t, blocks=[*t.blocks[:-1], replace(t.blocks[-1], looks_at=None)])
    assert apart(cut.gradients(n, 1500, 0).gram, back) > 10  # without a source


# Reports and sentences


def test_a_report_names_the_text_of_each_block():
    net = from_config(config("bart"), (SOURCE, TARGET))
    found = report(net, None, 4, 0)
    assert found.texts == ("source",) + 4 * ("target",)
    said = " ".join(v.text for v in found.verdicts)
    assert "all of it through cross-attention" in said
    assert "(source)" in said or "(target)" in said
    assert list(found.table.index)[:2] == ["1 (source)", "2 (target)"]
    assert found.readout == "a loss at every token of the target"


def test_the_source_receives_no_gradient_behind_the_last_cross_attention():
    net = from_config(config("mbart"), (SOURCE, TARGET))
    squares = np.einsum("blii->bli", net.gradients(size=4, rng=0).gram)[..., :5]
    assert (squares[:, -1] == 0).all()
    assert (squares[:, :-1] > 0).any((0, 2)).all()


def fresh(kind):
    "A fresh module, and texts."
    torch.manual_seed(0)
    if kind in KINDS:
        return model(config(kind, d_model=64)), (SOURCE, TARGET)
    auto = transformers.AutoModelForCausalLM
    return auto.from_config(config_of_latents(kind)).eval(), [SOURCE]


def variances(net):
    "By block and matrix."
    return np.array(
        [
            branch.variance(k)
            for block in net.blocks
            for branch in block.branches
            for k in branch.matrices
        ]
    )


@pytest.mark.parametrize(
    "kind", nightly([*KINDS, *LATENTS], *OTHERS, "deepseek_v2", "minicpm3")
)
def test_a_module_is_read_itself(kind):
    "Variances are measured; a matrix of another size is seen."
    module, texts = fresh(kind)
    net = from_torch(module, texts=texts)
    of_config = from_config(module.config, texts)
    there = variances(of_config) > 0
    np.testing.assert_allclose(
        variances(net)[there], variances(of_config)[there], rtol=0.25
    )
    scale = np.diag(of_config.cov).max()
    np.testing.assert_allclose(net.cov, of_config.cov, atol=0.15 * scale)
    exact = from_torch(module, texts=texts, config=True)
    np.testing.assert_array_equal(variances(exact), variances(of_config))
    outs = "o_proj.weight", ".o.weight", "attn.out_proj.weight"
    last = next(x for name, x in module.named_parameters() if name.endswith(outs))
    last.data *= 3
    assert init_table(from_torch(module, texts=texts)).times.max() > 2.5
    last.data *= np.nan
    for verify in (True, False):
        with pytest.raises(ValueError, match="`module` must have"):
            from_torch(module, texts=texts, verify=verify)


def test_a_report_of_latent_attention(tmp_path):
    "Many heads do not make it deterministic; rules that set all variances refuse."
    module, texts = fresh("minicpm3")
    found = report(from_torch(module, texts=texts), None, 4, 0)
    assert found.table["entropy, many heads"].isna().all()
    assert "shared keys" in found.save(tmp_path / "a.html").read_text()
    with pytest.raises(ValueError, match="rules that set all variances"):
        with_rule(from_config(module.config, texts), "DeepNorm")


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["t5", "mt5"])
def test_the_head_has_the_factor_of_its_module(kind, tied):
    "T5 divides what enters a tied head by the root of the width; mT5 does not."
    c = config(kind, tie_word_embeddings=tied)
    module = model(c)
    entered = []
    module.lm_head.register_forward_hook(lambda part, x, y: entered.append(x[0]))
    about = dict(input_ids=torch.tensor([SOURCE]), output_hidden_states=True)
    seen = module(decoder_input_ids=torch.tensor([TARGET]), **about)
    ratio = entered[0] / seen.decoder_hidden_states[-1]
    scale = from_config(c, (SOURCE, TARGET)).source.head.scale
    assert (ratio - scale).abs().max() < 1e-5
    assert (scale == 1) == (kind == "mt5" or not tied)


@pytest.mark.power("t5 without the gain of its last norm, by 28 standard errors")
@pytest.mark.parametrize(
    "kind", nightly(["t5", "mbart", "pegasus"], "mbart", "pegasus")
)
def test_the_loss_at_the_start_is_that_of_modules(kind, count=30):
    "The mean over words in neither text of −log p, beside fresh modules."
    words = np.arange(3, 200)
    rng = np.random.default_rng(0)
    source, target = (rng.choice(x, 6, False) for x in np.split(words[:196], 2))
    c = config(kind, d_model=32, vocab_size=200)
    net = from_config(c, (source.tolist(), target.tolist()))
    rest = np.setdiff1d(words, [*source, *target])
    found = []
    for seed in range(count):
        torch.manual_seed(seed)
        given = dict(decoder_input_ids=torch.tensor(target)[None])
        with torch.no_grad():
            z = model(c)(torch.tensor(source)[None], **given).logits[0]
        found.append((torch.logsumexp(z, -1).mean() - z[:, rest].mean()).item())
    loss = head_loss(net, 32, None, np.random.SeedSequence(0)).value
    assert abs(loss - np.mean(found)) < 6 * np.std(found) / count**0.5 + 0.02
