"""Every choice that a config of transformers offers, from the fields of its class, and
the loss of the model that it makes beside the loss of the program that is read from it.
"""

import dataclasses
import itertools
import types
import typing
import warnings
from contextlib import contextmanager

import numpy as np
from model_families import BODIES, config, stream_of_body
from with_transformers import torch, transformers

from infattn_nb import from_config, train, weights_of
from infattn_nb.huggingface import next_tokens

TEXTS = [[3, 4, 4, 5, 6], [7, 3, 8]]
# Of outputs, caches and precision, not of the model
OUTSIDE = {"output_hidden_states", "return_dict", "use_cache", "is_encoder_decoder"}
ROPES = dict(
    linear=dict(factor=3.0),
    llama3=dict(
        factor=4.0,
        low_freq_factor=1.0,
        high_freq_factor=3.0,
        original_max_position_embeddings=16,
    ),
    dynamic=dict(factor=3.0),
    yarn=dict(factor=3.0, original_max_position_embeddings=16),
    longrope=dict(original_max_position_embeddings=16, factor=2.0),
    long=dict(rope_type="longrope", original_max_position_embeddings=2, factor=2.0),
    truncated=dict(
        rope_type="yarn",
        factor=4.0,
        beta_fast=2.0,
        mscale=0.7,
        mscale_all_dim=0.4,
        truncate=False,
        original_max_position_embeddings=16,
    ),
    proportional=dict(factor=3.0),
)


@contextmanager
def in_double():
    "Whatever a module asks for in single precision is in double precision."
    kept = torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float, _ = kept
        torch.set_default_dtype(kept[-1])


def kinds_of(annotation):
    "The types of which an annotation is a union."
    if isinstance(annotation, str):  # names that its module did not import
        return {bool} & {dict(bool=bool).get(x.strip()) for x in annotation.split("|")}
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return set().union(*map(kinds_of, typing.get_args(annotation)))
    return {annotation}


def choices(kind):
    "Changes {entry: value} of one entry each."
    given = config(kind)
    for field in dataclasses.fields(type(given)):
        name = field.name
        there = kinds_of(field.type)
        if name in OUTSIDE:
            continue
        if bool in there:
            yield {name: not getattr(given, name)}
        elif "act" in name.split("_") or "activation" in name:
            for phi in transformers.activations.ACT2FN:
                if phi != getattr(given, name):
                    yield {name: phi}
        elif name == "rope_parameters":
            base = dict(getattr(given, name) or {})
            for rope, more in ROPES.items():
                if "rope_theta" in base:  # otherwise a dict for each kind of layer
                    more = dict(rope_type=rope) | more
                    if more["rope_type"] == "longrope":
                        heads = given.num_attention_heads
                        m = (
                            getattr(given, "head_dim", None)
                            or given.hidden_size // heads
                        )
                        k = int(m * base.get("partial_rotary_factor", 1.0)) // 2
                        more |= dict(
                            short_factor=[1 + 0.1 * i for i in range(k)],
                            long_factor=[2 + 0.3 * i for i in range(k)],
                        )
                    yield {name: base | more}
        elif name == "layer_types":
            layers = given.num_hidden_layers
            for one in ("full_attention", "sliding_attention", "linear_attention"):
                yield {name: [one] * layers}
        for option in itertools.chain(
            *(
                typing.get_args(x)
                for x in there
                if typing.get_origin(x) is typing.Literal
            )
        ):
            if option != getattr(given, name):
                yield {name: option}


def flags(kind):
    "The changes of true or false."
    return [x for x in choices(kind) if isinstance(next(iter(x.values())), bool)]


def pairs(kind):
    "Two of the flags at once."
    return [a | b for a, b in itertools.combinations(flags(kind), 2)]


class NotMade(Exception):
    "The library makes or runs no such model."


def made(kind, change):
    "A model in double precision whose biases and gains are not those of the start."
    kept = "layerdrop", "token_dropout"
    more = {x: 0.0 for x in vars(config(kind)) if "drop" in x and x not in kept}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            c = config(kind, **more | change)
            causal = kind not in ENCODERS
            auto = (
                transformers.AutoModelForCausalLM if causal else transformers.AutoModel
            )
            torch.manual_seed(0)
            m = auto.from_config(c, attn_implementation="eager").double().eval()
            with torch.no_grad():
                for x in filter(lambda x: x.requires_grad, m.parameters()):
                    x.add_(0.1 * torch.randn_like(x))
            for part in m.modules():  # BLOOM's own has eight digits of √(2/π)
                if hasattr(part, "gelu_impl"):
                    part.gelu_impl = torch.nn.GELU(approximate="tanh")
            return m, value(m)
    except Exception as error:
        raise NotMade(f"{type(error).__name__}: {error}") from error


ENCODERS = set(
    """bert roberta xlm-roberta camembert electra distilbert vit
megatron-bert xlm-roberta-xl roberta-prelayernorm nomic_bert
clip_text_model esm modernbert mpnet""".split()
) | set(BODIES)
ROW = np.random.default_rng(0).standard_normal((1, 48))
IMAGES = np.random.default_rng(1).standard_normal((2, 1, 8, 8))


def tokens(s, n):
    "Tokens that stand before a body, always the same."
    return np.random.default_rng(2).standard_normal((s, n))


def value(m):
    "The loss of the next word, or of the mean output read by a vector."
    with torch.no_grad():
        if m.config.model_type in BODIES:
            f = stream_of_body(m, tokens)[-1].mean(0) @ ROW[0]
            return 0.5 * float(f) ** 2
        if m.config.model_type == "vit":
            hidden = m(pixel_values=torch.tensor(IMAGES), return_dict=True)[0]
            f = hidden.mean(1) @ torch.tensor(ROW[0])
        elif m.config.model_type in ENCODERS:
            rows = [m(torch.tensor([x]), return_dict=True)[0][0] for x in TEXTS]
            f = torch.stack([x.mean(0) for x in rows]) @ torch.tensor(ROW[0])
        else:
            rows = [
                m(torch.tensor([x]), return_dict=True).logits[0, :-1] for x in TEXTS
            ]
            words = torch.tensor([w for x in TEXTS for w in x[1:]])
            return torch.nn.functional.cross_entropy(torch.cat(rows), words).item()
        return 0.5 * (f**2).sum().item()


def read(m):
    "The loss of the program, and the number of its entries that m holds, too."
    kind = m.config.model_type
    texts = [[0, 1, 2, 3], [4, 5, 6, 7]] if kind == "vit" else TEXTS
    if kind in BODIES:
        texts = len(stream_of_body(m, tokens)[0])
    net = from_config(m.config, texts)
    how = "mean" if kind in ENCODERS else "lm"
    program, outputs = net.program(readout=how)
    init = weights_of(net, m, readout=how)
    names = set(init)
    if how == "mean":
        init |= {"R1": ROW}
        loss = dict(loss="squared")
        targets = np.zeros(len(outputs))
    else:
        loss = dict(loss="softmax", reduction="mean")
        targets = next_tokens(net)
    if kind in BODIES:
        init["tokens"] = tokens(texts, 48)
    if kind == "vit":
        each = IMAGES.reshape(2, 1, 2, 4, 2, 4).transpose(0, 2, 4, 1, 3, 5)
        init["pixels"] = each.reshape(8, 16)
    run = train(
        program,
        outputs,
        targets,
        width=net.width,
        steps=0,
        size=1,
        init=init,
        verbose=False,
        parametrization="standard",
        learning_rate=0.1,
        **loss,
    )
    return run.loss[0, 0], names


def outcome(kind, change):
    "What becomes of a change: (word, details)."
    try:
        m, wanted = made(kind, change)
    except NotMade as error:
        return "not made", str(error)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found, _ = read(m)
        except (ValueError, TypeError) as error:
            return "refused", str(error)
    return ("exact" if abs(found - wanted) < 1e-8 * max(1, abs(wanted)) else "WRONG"), (
        f"{found} for {wanted}"
    )
