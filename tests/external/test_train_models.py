"""Real transformers, trained: losses and all weights are those of torch's autograd and
optimizers, from the same start, step by step.

Families and their small shapes are those of model_families.py. Modules of transformers
take norms, softmax and angles in single precision: here torch computes all of it in
double precision, so that both sides agree to rounding.
"""

from functools import partial

import numpy as np
import pytest
from conftest import nightly
from model_families import BODIES, FAMILIES, LATENTS, MIXTURES, config, model
from model_flags import ENCODERS, in_double
from two_texts import FLIPS, KINDS, SOUND, SOURCE, encoded
from two_texts import config as config_of_pair
from two_texts import model as model_of_pair
from with_transformers import TORCH, torch, transformers
from wrong_calls import rejects

from infattn_nb import from_config, from_torch, train, weights_of
from infattn_nb.huggingface import next_tokens

pytestmark = TORCH
STEPS = 20
TEXTS = [[3, 4, 4, 5, 6, 7], [9, 10, 3, 3, 12]]
LAST = [1.0, -1.0]  # targets where one number is read for each text
SMALL = dict(hidden_size=16, intermediate_size=24, num_attention_heads=2)
FEW = SMALL | dict(num_key_value_heads=1)
SHAPES = dict(
    gpt2=SMALL | dict(n_embd=16, n_head=2),
    opt=SMALL | dict(ffn_dim=24, word_embed_proj_dim=16),
    bert=SMALL,
    mpnet=SMALL,
    gpt_neox=SMALL,
    llama=FEW,
    qwen3=FEW | dict(head_dim=8),
    olmo2=FEW,
    gemma2=FEW | dict(head_dim=8),
    phi=FEW,
    falcon=SMALL,
    bloom=dict(hidden_size=16, n_head=2),
    vit=SMALL,
    mixtral=FEW,
    qwen3_moe=FEW | dict(head_dim=8, moe_intermediate_size=12),
    olmoe=FEW,
    gpt_oss=FEW | dict(head_dim=8),
    qwen2_moe=FEW | dict(moe_intermediate_size=12, shared_expert_intermediate_size=8),
    glm4_moe=FEW | dict(head_dim=8, moe_intermediate_size=12),
    ernie4_5_moe=FEW | dict(moe_intermediate_size=12),
    dbrx=SMALL | dict(d_model=16, n_heads=2),
    llama4_text=FEW | dict(head_dim=8, intermediate_size_mlp=20),
)
NIGHTLY = "mpnet", "qwen2_moe", "glm4_moe", "ernie4_5_moe", "dbrx", "llama4_text"
DROPOUT = "attention_dropout hidden_dropout attn_pdrop embd_pdrop resid_pdrop".split()


def module(kind, head=True, **more):
    "A small model in double precision, biases and gains no longer what they start as."
    torch.manual_seed(0)
    if kind in KINDS:
        found = model_of_pair(config_of_pair(kind, **more)).double()
    else:
        c = config(kind, **more | {name: 0.0 for name in DROPOUT})
        kinds = transformers.AutoModelForCausalLM, transformers.AutoModel
        found = kinds[not head].from_config(c).double().eval()
    for part in found.modules():  # BLOOM's own has eight digits of √(2/π)
        if hasattr(part, "gelu_impl"):
            part.gelu_impl = torch.nn.GELU(approximate="tanh")
    with torch.no_grad():
        for name, x in found.named_parameters():
            if not x.requires_grad:  # corrections of a choice
                continue
            x.add_(0.1 * torch.randn_like(x))
            x.is_vector = x.ndim < 2 or name.endswith("bias")  # of all experts
    return found


def trained_by_torch(model, loss, optimizer, steps=STEPS, clip=None, schedule=None):
    "Losses before each step and in the end."
    losses = []
    rates = [group["lr"] for group in optimizer.param_groups]
    weights = [x for group in optimizer.param_groups for x in group["params"]]
    for t in range(steps):
        value = loss()
        losses.append(value.item())
        optimizer.zero_grad()
        value.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(weights, clip)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * (1.0 if schedule is None else schedule(t))
        optimizer.step()
    return np.array([*losses, loss().item()])


def groups(weights, decay):
    "As people do: weight decay for matrices and tables, none for vectors."
    weights = list(weights)
    return [
        dict(params=[x for x in weights if not is_vector(x)], weight_decay=decay),
        dict(params=[x for x in weights if is_vector(x)], weight_decay=0.0),
    ]


def is_vector(x):
    return getattr(x, "is_vector", x.ndim < 2)


def warm(t):
    "A warm-up, and a decay after it."
    return min(1.0, (t + 1) / 5) * (1 - t / 40)


RULES = dict(
    sgd=(
        partial(torch.optim.SGD, lr=0.03, momentum=0.8, nesterov=True),
        dict(optimizer="sgd", learning_rate=0.03, momentum=0.8, nesterov=True),
        dict(decay=0.02, clip=1.0),
    ),
    adam=(
        partial(torch.optim.Adam, lr=0.01, betas=(0.8, 0.95), eps=1e-6),
        dict(optimizer="adam", learning_rate=0.01, betas=(0.8, 0.95), eps=1e-6),
        dict(decay=0.02),
    ),
    adamw=(
        partial(torch.optim.AdamW, lr=0.01),
        dict(optimizer="adamw", learning_rate=0.01),
        dict(decay=0.2, clip=1.0, schedule=warm),
    ),
)


def next_word(model):
    "The mean cross-entropy of the next word in all texts."
    logits = [model(torch.tensor([text])).logits[0, :-1] for text in TEXTS]
    words = torch.tensor([word for text in TEXTS for word in text[1:]])
    return torch.nn.functional.cross_entropy(torch.cat(logits), words)


class OfWords:
    "A language model: logits for each position."

    def __init__(self, kind):
        self.model = module(kind, **SHAPES.get(kind, {}))
        self.net = from_config(self.model.config, TEXTS)
        self.readout = "lm"
        self.targets = next_tokens(self.net)
        self.loss = dict(loss="softmax", reduction="mean")
        self.init = weights_of(self.net, self.model, readout="lm")

    def weights(self):
        return self.model.parameters()

    def value(self):
        return next_word(self.model)

    def after(self):
        return weights_of(self.net, self.model, readout="lm")


class OfTexts:
    "A number for each text or image, read by a vector that is trained, too."

    def __init__(self, kind, readout="mean"):
        self.model = module(kind, head=False, **SHAPES.get(kind, {}))
        self.texts = [[0, 1, 2, 3], [4, 5, 6, 7]] if kind == "vit" else TEXTS
        self.net = from_config(self.model.config, self.texts)
        self.readout = readout
        self.targets = LAST
        self.loss = dict(loss="squared")
        rng = np.random.default_rng(0)
        self.row = torch.tensor(
            rng.standard_normal((1, int(self.net.width))), requires_grad=True
        )
        self.images = rng.standard_normal((2, 1, 8, 8))
        self.init = self.after()
        if kind == "vit":
            each = self.images.reshape(2, 1, 2, 4, 2, 4).transpose(0, 2, 4, 1, 3, 5)
            self.init["pixels"] = each.reshape(8, 16)

    def weights(self):
        named = self.model.named_parameters()
        return [x for name, x in named if not name.startswith("pooler")] + [self.row]

    def value(self):
        if "pixels" in self.init:
            hidden = self.model(pixel_values=torch.tensor(self.images))[0]
        else:
            hidden = [self.model(torch.tensor([text]))[0][0] for text in TEXTS]
        place = {"last": lambda h: h[-1], "first": lambda h: h[0]}
        read = place.get(self.readout, lambda h: h.mean(0))
        f = torch.stack([read(h) for h in hidden]) @ self.row[0]
        return 0.5 * ((f - torch.tensor(LAST)) ** 2).sum()

    def after(self):
        found = weights_of(self.net, self.model)
        return found | {"R1": self.row.detach().numpy().copy()}


class OfPair(OfWords):
    "An encoder with a decoder: logits for each position of the target."

    target = [4, 6, 9, 6, 3]  # without a token of padding

    def __init__(self, kind, **more):
        self.model = module(kind, **more)
        self.net = from_config(self.model.config, (SOURCE, self.target))
        self.readout = "lm"
        self.targets = next_tokens(self.net)
        self.loss = dict(loss="softmax", reduction="mean")
        self.tokens = np.random.default_rng(0).standard_normal((1, len(SOURCE), 16))
        self.init = weights_of(self.net, self.model, readout="lm")
        if kind in SOUND:  # these tokens stand for what convolutions return
            self.init["tokens"] = self.tokens[0]

    def weights(self):
        named = self.model.named_parameters()
        return [x for name, x in named if x.requires_grad and "conv" not in name]

    def after(self):
        frozen = [
            name for name, x in self.model.named_parameters() if not x.requires_grad
        ]
        found = weights_of(self.net, self.model, readout="lm")
        return {name: x for name, x in found.items() if f"{name}.weight" not in frozen}

    def value(self):
        given = dict(decoder_input_ids=torch.tensor([self.target]))
        if self.model.config.model_type in SOUND:
            tokens = torch.tensor(self.tokens)
            given["encoder_outputs"] = (encoded(self.model, tokens),)
        else:  # with two tokens of padding
            pad = [self.model.config.pad_token_id] * 2
            given["input_ids"] = torch.tensor([SOURCE + pad])
            given["attention_mask"] = torch.tensor([[1] * len(SOURCE) + [0, 0]])
        logits = self.model(**given).logits[0, :-1]
        words = torch.tensor(self.target[1:])
        return torch.nn.functional.cross_entropy(logits, words)


def case(kind):
    if kind in KINDS:
        return OfPair(kind, **FLIPS[kind] if kind in FLIPPED else {})
    return OfTexts(kind) if kind in ENCODERS else OfWords(kind)


FLIPPED = "t5", "mbart", "speech_to_text"  # gated MLP, scaled embeddings, no scale


def ours(case, steps=STEPS, **how):
    program, outputs = case.net.program(readout=case.readout)
    watch = program.routing()
    common = dict(parametrization="standard", verbose=False, size=1, watch=watch)
    return train(
        program,
        outputs,
        case.targets,
        width=case.net.width,
        steps=steps,
        **common | case.loss | dict(init=case.init) | how,
    )


def apart(run, losses, weights):
    "The largest differences of losses and of weights."
    of_weights = {k: abs(run.weights(k)[0] - x).max() for k, x in weights.items()}
    return abs(run.loss[0] - losses).max(), max(of_weights.values())


# bodies behind given tokens, and programs with flags: tests/external/test_flags.py
ELSEWHERE = {*BODIES, "clip_text_model"}


@pytest.mark.parametrize("kind", sorted({*FAMILIES, *KINDS, *LATENTS} - ELSEWHERE))
def test_every_family_starts_as_torch_does(kind):
    "The loss at the start, of all families that are read."
    with in_double():
        if kind in KINDS:
            one = OfPair(kind)
        else:
            one = OfTexts(kind) if kind in ENCODERS else OfWords(kind)
        found = ours(one, 0, learning_rate=0.1).loss[0, 0]
        assert found == pytest.approx(one.value().item(), rel=1e-9)


CASES = [(kind, rule) for kind in [*SHAPES, *KINDS, *LATENTS] for rule in RULES]
CASES += [
    (kind, "adam" if kind == "esm" else "adamw")  # under AdamW ESM's losses grow
    for kind in sorted({*FAMILIES} - {*SHAPES} - ELSEWHERE)
]
DAILY = {
    (kind, list(RULES)[i % 3]) for i, kind in enumerate(SHAPES) if kind not in NIGHTLY
}
DAILY |= {("gpt2", rule) for rule in RULES} | {("llama", "adamw")}
DAILY -= {("qwen3_moe", "adam"), ("opt", "adam"), ("falcon", "sgd")}
DAILY |= {("t5", "sgd"), ("mbart", "adam"), ("whisper", "adamw")}
DAILY |= {("deepseek_v3", "adam")}
ROUTED = *MIXTURES, "deepseek_v2", "deepseek_v3"


class Routed:
    "The experts that the routers of a module choose, call by call."

    def __init__(self, model):
        self.seen = {}
        self.ffn = getattr(model.config, "ffn_config", None)
        for name, part in model.named_modules():
            if name.endswith((".gate", ".router")):
                part.register_forward_hook(self.note)

    def note(self, part, args, out):
        if isinstance(out, torch.Tensor):  # DBRX: logits alone
            out = out, None, out.topk(self.ffn.moe_top_k).indices
        if len(out) == 2:  # Llama 4: weights that are zero for the others
            chosen = out[0] > 0
        else:
            nobody = torch.zeros(out[0].shape, dtype=torch.bool)
            chosen = nobody.scatter(1, out[2], True)
        self.seen.setdefault(part, []).append(chosen.numpy())

    def choices(self):
        "For each router, boolean (steps, tokens, experts)."
        each = (np.concatenate(x) for x in self.seen.values())
        return [x.reshape(-1, sum(map(len, TEXTS)), x.shape[-1]) for x in each]


def changes(choices):
    "Number of chosen sets that differ from those of the step before."
    return (choices[1:] != choices[:-1]).any(-1).sum()


@pytest.mark.parametrize(
    ("kind", "rule"), nightly(CASES, *(x for x in CASES if x not in DAILY))
)
@pytest.mark.long
def test_twenty_steps_are_those_of_torch(kind, rule):
    """Embeddings, positions, gains, biases and matrices, with momentum, decay, clipping
    and a schedule. In mixtures of experts, chosen sets change on the way.
    """
    torchs, how, beside = RULES[rule]
    with in_double():
        one = case(kind)
        routed = Routed(one.model)
        optimizer = torchs(groups(one.weights(), beside["decay"]))
        more = {k: beside.get(k) for k in ("clip", "schedule")}
        losses = trained_by_torch(one.model, one.value, optimizer, **more)
        run = ours(
            one,
            weight_decay=beside["decay"],
            clip_norm=more["clip"],
            schedule=more["schedule"],
            **how,
        )
        theirs = routed.choices()
        off = apart(run, losses, one.after())
    assert losses[-1] < losses[0]
    assert max(off) < 1e-8
    blocks = [l for l, b in enumerate(one.net.blocks) if hasattr(b.feedforward, "mlp")]
    assert len(theirs) == len(blocks) == (2 if kind in ROUTED else 0)
    for block, chosen in zip(blocks, theirs, strict=True):
        np.testing.assert_array_equal(run.choices(block)[0], chosen)
        assert changes(chosen) > 0  # 9 … 62 of 220


BROKEN = dict(
    bias=lambda names: dict(
        matrices=[x for x in names if x != "transformer.h.0.mlp.c_fc.bias"]
    ),
    gain=lambda names: dict(
        weight_decay={x: 0.2 for x in names if x == "transformer.ln_f" or "ln" not in x}
    ),
    eps=lambda names: dict(eps=2e-8),
    beta=lambda names: dict(betas=(0.9, 0.9991)),
    rate=lambda names: dict(rate_factors={"transformer.wpe": 1.001}),
)


def test_broken_variants_are_rejected():
    "A bias that is not trained, a decay of a gain, another ε, β₂ or rate."
    torchs, how, beside = RULES["adamw"]
    with in_double():
        one = case("gpt2")
        optimizer = torchs(groups(one.weights(), beside["decay"]))
        losses = trained_by_torch(one.model, one.value, optimizer)
        after = one.after()
        for fault in BROKEN.values():
            more = dict(weight_decay=beside["decay"]) | fault(list(one.init))
            assert max(apart(ours(one, **how | more), losses, after)) > 3e-8
        fine = ours(one, weight_decay=beside["decay"], **how)
        assert max(apart(fine, losses, after)) < 1e-8


BASE = 4  # the base width of µP: four times as narrow as these models


def mup_groups(model, rate, sgd):
    "Groups of torch's optimizers as people set them by hand for µP, from Table 3."
    m = 16 / BASE
    groups = []
    for name, x in model.named_parameters():
        table = any(word in name for word in ("wte", "wpe", "embed", "lm_head"))
        hidden = x.ndim == 2 and not table
        of_heads = "q_norm" in name or "k_norm" in name
        power = (0 if hidden else 1) if sgd else (-1 if hidden else 0)
        groups.append(dict(params=[x], lr=rate * m ** (0 if of_heads else power)))
    return groups


MUP_RULES = dict(
    sgd=(torch.optim.SGD, 0.02, dict(momentum=0.8)),
    adam=(torch.optim.Adam, 0.005, {}),
    adamw=(torch.optim.AdamW, 0.005, dict(weight_decay=0.0)),
)


def mup_run(kind, rule, **more):
    "Differences of losses and weights, by torch with groups and by `train`."
    torchs, rate, how = MUP_RULES[rule]
    one = case(kind)
    plain = one.value

    def value():  # logits times base/n
        logits = [one.model(torch.tensor([x])).logits[0, :-1] for x in TEXTS]
        words = torch.tensor([word for x in TEXTS for word in x[1:]])
        return torch.nn.functional.cross_entropy(torch.cat(logits) * BASE / 16, words)

    assert plain().item() != value().item()
    optimizer = torchs(mup_groups(one.model, rate, rule == "sgd"), **how)
    losses = trained_by_torch(one.model, value, optimizer)
    mup = dict(parametrization="mup", base_width=BASE) | more
    momentum = {k: x for k, x in how.items() if k == "momentum"}
    run = ours(one, optimizer=rule, learning_rate=rate, **momentum | mup)
    return losses, apart(run, losses, one.after())


@pytest.mark.parametrize("kind", nightly(["gpt2", "llama", "qwen3"], "llama", "qwen3"))
@pytest.mark.parametrize("rule", MUP_RULES)
@pytest.mark.long
def test_mup_is_that_of_groups_set_by_hand(kind, rule):
    "Tied and untied heads, gains of heads: rates, logits and all weights."
    with in_double():
        losses, off = mup_run(kind, rule)
    assert losses[-1] < losses[0]
    assert max(off) < 1e-8


def test_another_base_width_or_rate_is_rejected():
    with in_double():
        for fault in (
            dict(base_width=5),
            dict(parametrization="standard", base_width=None),
            dict(rate_factors={"transformer.ln_f": 1.001}),
        ):
            _, off = mup_run("gpt2", "adam", **fault)
            assert max(off) > 1e-6


@pytest.mark.parametrize("kind", ["gpt2", "llama", "gemma2", "bloom", "gpt_oss"])
def test_attention_of_every_step_is_that_of_torch(kind):
    "Weights of all heads, in each block and text, before each step and in the end."
    with in_double():
        one = case(kind)
        one.model.set_attn_implementation("eager")
        seen = []

        def value():
            found = [
                one.model(torch.tensor([x]), output_attentions=True) for x in TEXTS
            ]
            seen.append([[a[0].detach().numpy() for a in y.attentions] for y in found])
            logits = torch.cat([y.logits[0, :-1] for y in found])
            words = torch.tensor([word for text in TEXTS for word in text[1:]])
            return torch.nn.functional.cross_entropy(logits, words)

        start = one.init
        optimizer = torch.optim.SGD(one.model.parameters(), lr=0.3)
        trained_by_torch(one.model, value, optimizer, steps=4)
        program, logits = one.net.program(readout="lm")
        run = train(
            program,
            logits,
            one.targets,
            width=one.net.width,
            steps=4,
            size=1,
            init=start,
            learning_rate=0.3,
            watch=program.attention(),
            parametrization="standard",
            verbose=False,
            **one.loss,
        )
    for block in range(2):
        for text in range(2):
            ours = run.attention(block, text)[0]
            theirs = np.array([step[text][block] for step in seen])
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, atol=1e-9)
            assert abs(theirs[-1] - theirs[0]).max() > 1e-3  # it moves
            assert abs(ours[1:] - theirs[:-1]).max() > 1e-5  # a step late is seen


def test_one_head_is_watched():
    with in_double():
        one = case("gpt2")
    program, logits = one.net.program(readout="lm")
    how = dict(width=16, steps=2, size=2, learning_rate=0.1, verbose=False, rng=0)
    every, single = (
        train(program, logits, one.targets, watch=watch, **how | one.loss)
        for watch in (program.attention(), program.attention(1, 1))
    )
    assert every.attention(1).shape == (2, 3, 2, 11, 11)
    alone = single.attention(1)[:, :, 0]
    np.testing.assert_allclose(alone, every.attention(1)[:, :, 1], rtol=1e-9)
    np.testing.assert_allclose(every.attention(0).sum(-1), 1.0)
    with pytest.raises(ValueError, match="`block` must have heads that were watched"):
        single.attention(0)
    with pytest.raises(ValueError, match="`block` must be one of 2, counted from 0"):
        every.attention(2)


def test_a_module_is_read_itself():
    "From the module, and from its config: the same start."
    with in_double():
        fresh = model("gpt2", **SHAPES["gpt2"]).double()
        net = from_torch(fresh, texts=TEXTS)
        again = weights_of(net, fresh)
        other = weights_of(from_config(fresh.config, TEXTS), fresh)
    assert again.keys() == other.keys()
    for name, x in again.items():
        np.testing.assert_array_equal(x, other[name])
    assert again["transformer.h.1.attn.c_attn.q[1]"].shape == (8, 16)
    assert again["transformer.h.0.ln_1"].shape == (16,)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "gemma2", "mixtral", "gpt_oss"])
def test_weights_start_as_the_module_draws_them(kind):
    "Without `init`: sizes of all weights, and what starts as a constant."
    with in_double():
        fresh = model(kind, **SHAPES[kind] | dict(hidden_size=48, head_dim=24))
        net = from_config(fresh.config, TEXTS)
        theirs = weights_of(net, fresh)
    program, outputs = net.program()
    run = train(program, outputs, LAST, width=net.width, steps=0, size=20, rng=0)
    for name, x in theirs.items():
        ours = run.weights(name)
        if np.ptp(x) == 0:
            assert (ours == x.flat[0]).all()
            continue
        chance = 6 / np.sqrt(2 * x.size) + 6 / np.sqrt(2 * ours.size)
        assert abs(np.log(ours.std() / x.std())) < chance


def test_routers_and_sinks_start_with_the_variance_of_the_config():
    program, _ = from_config(config("gpt_oss"), TEXTS).program()
    found = {b.name: b.var for b in program.parameters}
    for name in ("mlp.router", "mlp.router.bias", "self_attn.sinks"):
        assert found[f"model.layers.1.{name}"] == pytest.approx(0.3**2)


def test_what_cannot_be_trained_is_said():
    with in_double():
        one, llama = case("gpt2"), case("llama")
    net, module = one.net, one.model
    assert weights_of(net, module.transformer).keys() == weights_of(net, module).keys()
    labels = from_config(module.config, "abc")
    outside = from_config(module.config, [1, 24])
    padded = from_config(module.config, [1, 0])
    bert = from_config(config("bert"), TEXTS)
    short = one.init | {"transformer.wte": one.init["transformer.wte"][:3]}
    headless = partial(weights_of, llama.net, llama.model.model, readout="lm")
    rejects(lambda: weights_of(net, llama.model), "wte")
    rejects(headless, "`module` must have 'weight of a head'")
    rejects(lambda: weights_of(labels, module), "`texts` must be token ids")
    rejects(outside.program, "`texts` must contain token ids")
    rejects(padded.program, "`texts` must contain no padding")
    rejects(partial(bert.program, readout="lm"), "`readout` must be 'last' or 'mean'")
    rejects(lambda: ours(one, init=short), "`init` must have shape (24, 16)")
