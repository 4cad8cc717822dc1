"""Tables that are stored because they take minutes, or a library that nobody needs
otherwise.

    python tools/tables.py live

what the live figures of the site do not compute themselves, where it is missing in
nbs/data (ten minutes for all);

    python tools/tables.py scan

"Which initialisation?": nbs/data/initialisation.csv in relative units of gradients,
initialisation_grad.csv of twelve blocks in units of .grad, and
initialisation_lengths.csv (some twenty minutes);

    python tools/tables.py peers [name …]

known models in both units of gradients, nbs/data/known_models.csv: all of them, or
those named (a quarter of an hour on one core);

    python tools/tables.py families [name …]

the other side of tests/huggingface/test_families.py, tests/data/families (torch and
transformers);

    python tools/tables.py models [name …]

which model types of transformers are read, nbs/data/models.csv: all of them, or those
named (torch and transformers; some minutes for all).

    python tools/tables.py types

which default configs of model types in common use are read, nbs/data/types.csv
(transformers; a second);

    python tools/tables.py training [law width rates warm decay load]

"Train your model at every finite width": nbs/data/train_your_model.json, all parts or
some (some twenty minutes on one core; `law` takes torch and transformers);

    python tools/tables.py adapters [powers rules grid ranks kernels text]

"Fine-tuning with adapters": nbs/data/fine_tuning.json, all parts or some (half an
hour on one core);

    python tools/tables.py trained

the other side of tests/laws/test_trained_models.py, tests/data/trained_models.npz
(torch and transformers; ten minutes).

The tests compute some of their rows again.
"""

import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
from scipy.special import entr
from scipy.stats import norm, sem

from infattn_nb import Program, Transformer, from_config, from_torch, scan, train
from infattn_nb.attention.layer import Attention
from infattn_nb.attention.tokens import Tokens
from infattn_nb.convergence.distances import kl_divergence, paired_kl
from infattn_nb.convergence.rates import first_order
from infattn_nb.huggingface.families import FAMILIES as READ_FAMILIES
from infattn_nb.huggingface import next_tokens, rate_transfer, weights_of, widened
from infattn_nb.initialisation import Thresholds
from infattn_nb.initialisation.diagnosis import GRADIENTS, diagnose, joined, readout_cov
from infattn_nb.initialisation.quantities import WIDTH, judge
from infattn_nb.initialisation.rules import scaled
from infattn_nb.nonlinearities import identity, tanh
from infattn_nb.numerics import parallel
from infattn_nb.numerics.quadrature import gauss, jacobi
from infattn_nb.transformer import Adapters, embedding_cov
from infattn_nb.transformer.adapters import Factor

ROOT = Path(__file__).parent.parent

# Live figures: limit laws, kurtoses, tails and first corrections, in a few numbers
# each. Ten Gauss nodes carry a law much further than a line can show. Everything else
# is drawn in the browser (`nbs/live`); the tests compare both with the library.

TAUS = (*np.arange(0, 3, 0.25), *np.arange(3.0, 11))  # score standard deviations
HEADS = (1, 2, 4, 8, 16, 32, 64)
TOKENS = (2, 4, 8, 16)
NODES = 10


def short(x):  # numbers
    "Six digits each, as lists for JSON."
    return [float(f"{v:.6g}") for v in np.ravel(x)]


def layer_at(
    τ,  # score standard deviation
    heads,  # H
    tokens,  # s
):  # Attention
    "The layer on independent unit tokens."
    return Attention(Tokens(tokens, identity, np.eye(tokens)), heads, var_q=τ**2)


def few_nodes(law):  # ScaleMixture -> (v, w) of a Gauss rule in log v
    "Nodes and weights that carry a law as far as a drawn line can show."
    v = law.v
    w = law.w
    if v.size > NODES:
        x, w = (a[0] for a in gauss(jacobi(np.log(v)[None], w[None], NODES)))
        v = np.exp(x[w > 1e-14])
        w = w[w > 1e-14]
    return dict(v=short(v), w=short(w / w.sum()))


def law_entry(
    τ,  # score standard deviation
    heads,  # H
    tokens,  # s
):  # dict: nodes v and weights w, kurtosis, tail ratio at 6 sd
    "One law as the live figures use it."
    law = layer_at(float(τ), heads, tokens).law().marginal(0)
    ratio = law.sf(6 * law.std()) / norm.sf(6)
    numbers = dict(zip(("kurtosis", "ratio"), short([law.kurtosis(), ratio])))
    return few_nodes(law) | numbers


def laws_table():  # dict for data/kernel.json
    "All laws of the random-kernel machine and of the map."
    laws = {
        f"{s},{H}": [law_entry(τ, H, s) for τ in TAUS] for s in TOKENS for H in HEADS
    }
    return dict(tau=short(TAUS), heads=HEADS, tokens=TOKENS, laws=laws)


FINITE = 16, 64, 256  # widths


def finite_entry(τ, heads, tokens):  # [{v, w} for each width]
    "The laws of three finite widths as the machine uses them."
    layer = layer_at(float(τ), heads, tokens)
    return [few_nodes(layer.law(n).marginal(0, draws=2**16)) for n in FINITE]


def finite_table():  # dict for data/finite.json
    "Laws of finite width: few tokens, few heads."
    laws = {
        f"{s},{H}": [finite_entry(τ, H, s) for τ in TAUS]
        for s in TOKENS[:2]
        for H in HEADS[:4]
    }
    return dict(widths=FINITE, laws=laws)


POINTS = np.linspace(0, 7, 29)  # y in standard deviations
CORRECTED = {2: TAUS[2::3], 4: (0.5, 1.0, 2.0, 3.0, 5.0, 8.0)}  # where f₁ is stored


def correction_entry(τ, heads, tokens):  # f₁ at POINTS
    "The first-order correction to one density."
    layer = layer_at(float(τ), heads, tokens)
    return short(first_order(layer, POINTS * layer.law().marginal(0).std()))


def map_table():  # dict for data/map.json
    "What the map of regimes knows beyond the laws."
    cells = [
        (s, H, τ) for s, taus in CORRECTED.items() for H in HEADS[:4] for τ in taus
    ]
    f1 = {f"{s},{H},{τ:g}": correction_entry(τ, H, s) for s, H, τ in cells}
    stored = "2 and 4 tokens, up to 8 heads, and some scales"
    widths = (4, 8, 16, 32, 64, 256, 1024)
    return dict(y=short(POINTS), widths=widths, stored=stored, f1=f1)


def mlp_limit():  # float
    r"$\mathbb{E}\cos(y)$ for the MLP $y = W^2\tanh(W^1x)$ on a unit token."
    return float(np.exp(-tanh.dual([[1.0]])[0, 0] / 2))


JUDGED = dict(
    tau=(0.3, 0.5, 1.0, 2.0, 4.0),
    heads=HEADS[:6],
    tokens=TOKENS,
    width=(64, 256, 768, 1024, 4096),
    kind=("n × n", "n/H"),
)


def tail_ratio(law):
    "How much likelier than a Gaussian an output is beyond six standard deviations."
    return law.sf(6 * law.std()) / norm.sf(6)


def judge_entry(τ, heads, tokens, width, kind):  # [divergence, kurtosis, tail ratio]
    "How far a finite layer is from its limit."
    limit = layer_at(τ, heads, tokens)
    m = None if kind == "n × n" else width // heads
    layer = replace(limit, head_width=m)
    D, _ = paired_kl(layer, width, 0, draws=2**14, rng=0, limit=limit)
    law = layer.law(width).marginal(0, draws=2**16)
    return short([max(D, 0.0), law.kurtosis(), tail_ratio(law)])


def limit_entry(τ, heads, tokens):  # [divergence from Gaussian, kurtosis, tail ratio]
    "How far the limit is from the Gaussian of its variance."
    law = layer_at(τ, heads, tokens).law().marginal(0)
    gaussian = norm(scale=law.std())
    return short([kl_divergence(law, gaussian), law.kurtosis(), tail_ratio(law)])


def judge_table():  # dict for data/judge.json
    "Everything that the calculator says."
    J = JUDGED
    cells = [(τ, H, s) for τ in J["tau"] for H in J["heads"] for s in J["tokens"]]
    limits = {f"{τ:g},{H},{s}": limit_entry(τ, H, s) for τ, H, s in cells}
    widths = {
        f"{τ:g},{H},{s},{n},{k}": judge_entry(τ, H, s, n, k)
        for τ, H, s in cells
        for n in J["width"]
        for k in J["kind"]
    }
    return J | dict(limits=limits, widths=widths)


TABLES = {
    "kernel.json": laws_table,
    "map.json": map_table,
    "finite.json": finite_table,
    "judge.json": judge_table,
    "theorem.json": lambda: dict(mlp=mlp_limit()),
}

# "Which initialisation?": an encoder and a decoder of 12, 48, 96 blocks over a grid of
# scales, and five rules; the same at 64 and 256 tokens.

PATH = ROOT / "nbs/data/initialisation.csv"
GRAD_PATH = PATH.with_name("initialisation_grad.csv")
LENGTHS_PATH = PATH.with_name("initialisation_lengths.csv")
LAYERS = [12, 48, 96]
RESIDUAL = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2]
SCORES = [0.1, 0.2, 0.5, 1, 2, 5, 10]
MASKS = {"encoder": None, "decoder": "causal"}
WIDE = 768  # determines fan-ins, on which .grad depends
DEPTHS = {64: [12, 48], 256: [12]}  # at which each length is computed


def network(kind, tokens):
    "An encoder or a decoder of so many different tokens."
    return Transformer.uniform(
        embedding_cov(range(tokens)), mask=MASKS[kind], final_norm=True, width=WIDE
    )


NETWORKS = {kind: network(kind, 16) for kind in MASKS}


def scan_rows(
    kind, residual=RESIDUAL, scores=SCORES, layers=LAYERS, relative=True, **options
):
    "The rows of an encoder, or of a decoder, with gradients in one of the two units."
    found = scan(
        NETWORKS[kind],
        residual=residual,
        scores=scores,
        layers=layers,
        width=np.inf,
        size=16,
        rng=0,
        relative=relative,
        **options,
    )
    return found.table.assign(network=kind)


def lengths_table(kind, tokens, **options):
    """Unscaled blocks, GPT-2's residual scale with three scales of scores, and the
    rules, at another length, 4 networks each.
    """
    parts = []
    for L in DEPTHS[tokens]:
        for residual, scores, rules in (
            (1, [1], {}),
            ((2 * L) ** -0.5, [0.5, 1, 2], dict(rules=())),
        ):
            found = scan(
                network(kind, tokens),
                residual=residual,
                scores=scores,
                layers=L,
                width=np.inf,
                size=4,
                rng=0,
                relative=True,
                **rules,
                **options,
            )
            parts.append(found.table.assign(network=kind, tokens=tokens))
    return pd.concat(parts)


# Known models at their own initialisation and width, and two changes of it, judged with
# gradients in both units. Both are computed from the same networks.

MODELS = {  # name -> config, number of networks at each width
    "GPT-2": ("gpt2", 96),
    "BERT": ("bert-base-uncased", 96),
    "Llama": ("Llama-2-7b-hf", 48),
    "Pythia": ("pythia-160m", 96),
    "Qwen": ("Qwen2.5-0.5B", 96),
}
CHANGES = {  # of the initialisation
    "as in the library": lambda t: t,
    "embeddings of sd 1": lambda t: t.embedded(1 / t.source.sizes["word"]),
    "queries and keys × 4": lambda t: scaled(t, 1.0, 16.0),
    "output matrices × 0.1": lambda t: scaled(t, 0.1, 1.0),
}
FOLDER = ROOT / "tests/data/families"
KNOWN_PATH = PATH.with_name("known_models.csv")


def in_both_units(t, n, size):  # relative? -> Diagnosis
    "The record of the same networks in both units of gradients."
    parts = {False: [], True: []}
    for seed in np.random.SeedSequence(size).spawn(size):
        g = t.gradients(n, 1, seed, readout=readout_cov(t, "all"))
        for relative, found in parts.items():
            found.append(diagnose(t, g, t.width, relative=relative))
    return {relative: joined(found) for relative, found in parts.items()}


def known_rows(name, change):
    "The judged numbers of a model, and whether they cross their thresholds."
    config, size = MODELS[name]
    size = size if change == "as in the library" else 16
    t = CHANGES[change](from_config(FOLDER.parent / f"configs/{config}.json", 16))
    at = in_both_units(t, t.width, size)
    far = in_both_units(t, np.inf, size)
    for relative, finite in at.items():
        m = SimpleNamespace(width=t.width, finite=finite, limit=far[relative])
        for x in (*judge(finite, Thresholds()), *judge(m, Thresholds(), (WIDTH,))):
            yield dict(
                model=name,
                change=change,
                networks=size,
                gradients=GRADIENTS[relative],
                quantity=x.quantity.name,
                number=x.value,
                crossed=x.is_crossed,
            )


def write(rows, path):
    rows.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")
    print(path.name, rows.shape)


# Hugging Face's models at random initialisation: models of each configuration in
# tests/data/families/configs.json, at their own initialisation and with every matrix
# N(0, .15²), read one text; Gram matrices after every block, with the entropies of all
# rows of weights, are stored, rounded to sixteenths of their standard deviation (the
# test rounds its own in the same way). Nothing is downloaded.

TEXT, SD = [3, 1, 1, 1, 5], 0.15
SEEDS = dict(
    llama=1000, mistral=1000, qwen2=1000
)  # where heads share keys: that takes more to see; 500 of the others


def new_model(config, seed):
    "A model of a config, freshly initialised, that returns its weights of attention."
    import torch
    import transformers

    torch.manual_seed(seed)
    c = transformers.AutoConfig.for_model(**config)
    c._attn_implementation = "eager"
    return transformers.AutoModel.from_config(c).eval()


def image(config):
    "Orthogonal patches of pixels ±1; the text's equal tokens are equal patches."
    import torch

    p, side = config["patch_size"], config["image_size"] // config["patch_size"]
    H = np.array([[1.0]])
    while len(H) < p * p:
        H = np.block([[H, H], [H, -H]])
    patches = H[TEXT[: side * side]].reshape(side, side, p, p)
    return torch.tensor(
        patches.transpose(0, 2, 1, 3).reshape(1, 1, side * p, side * p),
        dtype=torch.float32,
    )


def statistics(config, model):
    "Upper triangles of the Gram matrices and entropies, in one row."
    import torch

    x = (
        dict(pixel_values=image(config))
        if config["model_type"] == "vit"
        else dict(input_ids=torch.tensor([TEXT]))
    )
    with torch.no_grad():
        y = model(**x, output_hidden_states=True, output_attentions=True)
    X = torch.stack(y.hidden_states)[:, 0].double().numpy()
    A = torch.stack(y.attentions)[:, 0].double().numpy()
    gram = X @ X.swapaxes(-1, -2) / X.shape[-1]
    upper = np.triu_indices(X.shape[1])
    return np.concatenate(
        [gram[:, upper[0], upper[1]].ravel(), entr(A).sum(-1)[..., -1].ravel()]
    )


def gaussian(model, seed):
    "Every matrix N(0, SD²)."
    import torch

    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        if p.squeeze().ndim > 1 or p.ndim > 1:
            p.data.normal_(0, SD, generator=generator)
    return model


def family_table(config):
    "Of both initialisations: mean, step, rounded values."
    seeds = range(SEEDS.get(config["model_type"], 500))
    model = new_model(config, 0)
    own = np.array([statistics(config, new_model(config, seed)) for seed in seeds])
    normal = np.array([statistics(config, gaussian(model, seed)) for seed in seeds])
    packed = {}
    for name, x in dict(own=own, gaussian=normal).items():
        mean, step = x.mean(0), np.maximum(x.std(0), 1e-12) / 16
        steps = np.clip(np.rint((x - mean) / step), -127, 127)
        packed |= {
            f"{name}_mean": mean,
            f"{name}_step": step,
            name: steps.astype(np.int8),
        }
    return packed


# Model types of transformers: one small module of each, every matrix N(0, SD²), read
# and verified by running. Of a type that sees or hears, too, it is the part that reads
# text. A type counts if its embeddings are read with its blocks. Nothing is downloaded.

SMALL = (
    dict.fromkeys(
        (
            "hidden_size n_embd d_model dim embed_dim embedding_size "
            "word_embed_proj_dim projection_dim"
        ).split(),
        64,
    )
    | dict.fromkeys(
        (
            "intermediate_size n_inner ffn_dim hidden_dim ffn_hidden_size "
            "encoder_ffn_dim decoder_ffn_dim d_ff"
        ).split(),
        96,
    )
    | dict.fromkeys(
        (
            "num_hidden_layers n_layer n_layers num_layers encoder_layers "
            "decoder_layers"
        ).split(),
        2,
    )
    | dict.fromkeys(
        (
            "num_attention_heads n_head n_heads num_heads encoder_attention_heads "
            "decoder_attention_heads"
        ).split(),
        4,
    )
    | dict(
        num_key_value_heads=2,
        num_kv_heads=2,
        head_dim=16,
        vocab_size=128,
        max_position_embeddings=64,
        n_positions=64,
        image_size=32,
        patch_size=8,
        rotary_dim=4,
        num_experts=4,
        num_experts_per_tok=2,
        num_local_experts=4,
        n_routed_experts=4,
    )
)
LARGEST = 3e7  # parameters


def small_config(cls, deep=0):
    "A config of a class, and of its parts, with few and small layers."
    from transformers import PretrainedConfig

    own = cls()
    given = own.to_dict()
    whole = {
        k: v for k, v in given.items() if isinstance(v, int) and not isinstance(v, bool)
    }
    change = {
        k: v
        for k, v in SMALL.items()
        if k in whole
        or (k in ("head_dim", "vocab_size") and k in given and given[k] is None)
    }
    change |= {
        k: i
        for i, k in enumerate(("pad_token_id", "bos_token_id", "eos_token_id"))
        if not 0 <= whole.get(k, 0) < SMALL["vocab_size"]
    }
    if (
        any(
            word in cls.model_type
            for word in ("vl", "glm4v", "glm_ocr", "glm_image", "omni")
        )
        and "rope_parameters" in given
    ):  # sections of a head of 16
        change["rope_parameters"] = (given["rope_parameters"] or {}) | dict(
            mrope_section=[2, 3, 3]
        )
    if "attention_types" in given:  # of every layer
        change["attention_types"] = [[["global", "local"], SMALL["num_layers"] // 2]]
    if cls.model_type == "esm":
        change["pad_token_id"] = 0
    if cls.model_type == "nemotron":  # its library does not make its default
        change["num_key_value_heads"] = SMALL["num_attention_heads"]
    parts = {k: getattr(own, k, None) for k in given} if deep < 3 else {}
    return cls(
        **change
        | {
            k: small_config(type(x), deep + 1).to_dict()
            for k, x in parts.items()
            if isinstance(x, PretrainedConfig)
        }
    )


def class_of(config):
    """What makes a module of a config: its class under AutoModel, or the first of its
    own library file.
    """
    import importlib

    import transformers

    if type(config) in transformers.AutoModel._model_mapping:
        return transformers.AutoModel.from_config
    name = type(config).__module__.replace(".configuration_", ".modeling_")
    made = [
        x
        for x in vars(importlib.import_module(name)).values()
        if isinstance(x, type)
        and issubclass(x, transformers.PreTrainedModel)
        and x.config_class is type(config)
    ]
    return next(
        (
            x
            for x in sorted(
                made, key=lambda x: (not x.__name__.endswith("Model"), len(x.__name__))
            )
            if "PreTrained" not in x.__name__
        ),
        None,
    )


def small_module(kind):
    "A module of a model type; a sentence if there is none."
    import torch
    import transformers

    config = small_config(transformers.CONFIG_MAPPING[kind])
    config._attn_implementation = "eager"
    make = class_of(config)
    if make is None:
        return "no class makes one"
    with torch.device("meta"):
        count = sum(p.numel() for p in make(config).parameters())
    if count > LARGEST:
        return f"{count:.0e} parameters, as small as its config lets it be made"
    torch.manual_seed(0)
    module = make(config).eval()
    for name, p in module.named_parameters():
        if p.ndim > 1 and not name.endswith("bias"):  # one for each expert
            p.data.normal_(0, SD)
    return module


def model_row(kind):
    "Is it read? The family, the module, or why not."
    try:
        module = small_module(kind)
    except Exception as e:  # of a library
        return dict(
            model_type=kind, family="", module="", why=f"not made: {type(e).__name__}"
        )
    if isinstance(module, str):
        return dict(model_type=kind, family="", module="", why=module)
    try:
        t = from_torch(module, texts=8)
    except Exception as e:
        return dict(
            model_type=kind,
            family="",
            module=type(module).__name__,
            why=" ".join(str(e).split())[:100],
        )
    whole = dict(
        model_type=kind, family=t.source.kind, module=type(module).__name__, why=""
    )
    return (
        whole
        if t.source.sizes or t.source.family.before
        else whole | dict(family="", why="its embeddings are not read")
    )


# Model types in common use, and what becomes of their default configs

COMMON = """
bert roberta xlm-roberta distilbert electra albert deberta deberta-v2 mpnet
camembert modernbert longformer big_bird nomic_bert gpt2 gpt_neo gpt_neox gptj opt
bloom falcon mpt codegen starcoder2 llama llama4_text mistral mistral3 ministral
mixtral qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next gemma gemma2 gemma3_text
gemma3n_text phi phi3 phimoe deepseek_v2 deepseek_v3 gpt_oss glm glm4 glm4_moe olmo
olmo2 olmo3 olmoe smollm3 granite granitemoe cohere cohere2 stablelm persimmon
nemotron exaone4 ernie4_5 ernie4_5_moe hunyuan_v1_dense minimax dbrx jetmoe arctic
seed_oss t5 mt5 bart mbart pegasus marian m2m_100 whisper speech_to_text blenderbot
vit deit beit dinov2 dinov3_vit siglip_vision_model clip_vision_model
clip_text_model swin vit_mae hubert wav2vec2 audio-spectrogram-transformer esm mamba
mamba2 rwkv jamba zamba2 bamba falcon_h1 lfm2
""".split()


def type_row(kind):
    "Is the default config of a model type read? If not, the sentence that refuses it."
    import transformers

    config = dict(model_type=kind)
    if kind in transformers.CONFIG_MAPPING:  # others are of other libraries
        config = transformers.AutoConfig.for_model(kind)
    try:
        pair = kind in READ_FAMILIES and READ_FAMILIES[kind].encoder
        from_config(config, (4, 3) if pair else 4)
    except ValueError as error:
        said = " ".join(str(error).split())
        why = said.partition("; ")[2] if "is the nearest" in said else said
        return dict(model_type=kind, read="", why=why)
    return dict(model_type=kind, read="yes", why="")


# "Train your model at every finite width": a GPT-2 of two blocks that learns a sentence
# letter by letter. Seeds are fixed; numbers are stored to six digits.

SENTENCE = "in the beginning the weights were random and void"
LETTERS = sorted(set(SENTENCE))
IDS = [LETTERS.index(x) for x in SENTENCE]
TRAINING = ROOT / "nbs/data/train_your_model.json"


def letter_model(n, layers=2):
    "A config of width n, heads of width 16."
    return dict(
        model_type="gpt2",
        n_embd=n,
        n_head=n // 16,
        n_layer=layers,
        n_positions=32,
        vocab_size=len(LETTERS),
        initializer_range=0.6 / n**0.5,
    )


LAW = dict(n=32, networks=200, steps=8, rate=0.1, momentum=0.9, at=(0, 2, 8), tokens=16)
LEARNS = dict(loss="softmax", reduction="mean", verbose=False)


def torch_law():  # losses and weights of attention, (networks, at)
    "Fresh networks of torch, trained by its autograd and its SGD."
    import torch
    import transformers

    config = transformers.GPT2Config(
        **letter_model(LAW["n"], 1), resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    )
    config._attn_implementation = "eager"
    ids = torch.tensor([IDS[: LAW["tokens"]]])
    rows = []
    for seed in range(LAW["networks"]):
        torch.manual_seed(seed)
        model = transformers.GPT2LMHeadModel(config).train()
        descent = torch.optim.SGD(
            model.parameters(), lr=LAW["rate"], momentum=LAW["momentum"]
        )
        row = []
        for _ in range(LAW["steps"] + 1):
            y = model(ids, output_attentions=True)
            loss = torch.nn.functional.cross_entropy(y.logits[0, :-1], ids[0, 1:])
            row.append([loss.item(), y.attentions[0][0, 0, -1, -1].item()])
            descent.zero_grad()
            loss.backward()
            descent.step()
        rows.append(np.array(row)[list(LAW["at"])])
    return np.array(rows).transpose(2, 0, 1)


def law_part():
    loss, weight = torch_law()
    return LAW | dict(loss=rounded(loss), weight=rounded(weight))


def rounded(x):
    "Six digits, None for what is not finite."
    if np.ndim(x):
        return [rounded(y) for y in x]
    return None if x is None or not np.isfinite(x) else float(f"{x:.6g}")


WIDER = [  # optimizer, parametrization, heads, widths and networks
    ("sgd", "mup", "more", {64: 8, 256: 4, 1024: 2, 4096: 1}),
    ("sgd", "mup", "wider", {64: 8, 256: 4, 1024: 2, 4096: 1, 16384: 1}),
    ("adamw", "mup", "more", {64: 8, 256: 4, 1024: 2, 2048: 1}),
    ("adamw", "standard", "more", {64: 8, 256: 4, 1024: 2}),
    ("sgd", "standard", "more", {64: 8, 256: 4, 1024: 2}),
]
WIDER_HOW = dict(
    sgd=dict(learning_rate=0.05, momentum=0.9), adamw=dict(learning_rate=0.003)
)
WIDER_STEPS = 8


def wider_row(optimizer, parametrization, heads, n, size):
    "Losses, and by how much things move from the start to the end."
    net = widened(letter_model(64, 1), [IDS[:16]], n, heads=heads)
    program, logits = net.program(readout="lm")
    mup = dict(base_width=64) if parametrization == "mup" else {}
    run = train(
        program,
        logits,
        next_tokens(net),
        width=n,
        steps=WIDER_STEPS,
        size=size,
        rng=0,
        optimizer=optimizer,
        parametrization=parametrization,
        watch=program.attention(),
        **LEARNS | WIDER_HOW[optimizer] | mup,
    )
    Q = program.heads[0, 0].scores[0].args[0]
    out = next(W for W in program.matrices if W.name.endswith("mlp.c_proj"))
    hidden = next(g.args[0] for g in program.products.values() if g.W is out)
    A = run.attention(0)
    words = [run.weights("transformer.wte", when) for when in ("start", "end")]
    moved = np.linalg.norm(words[1] - words[0], axis=(1, 2))
    found = dict(
        loss=run.loss,
        attention=abs(A[:, -1] - A[:, 0]).sum(-1).reshape(size, -1).mean(1) / 2,
        queries=run.change(Q).reshape(size, -1).mean(1),
        hidden=run.change(hidden).reshape(size, -1).mean(1),
        embeddings=moved / np.linalg.norm(words[0], axis=(1, 2)),
    )
    errors = {k: rounded(sem(x)) for k, x in found.items()} if size > 1 else {}
    return dict(
        optimizer=optimizer,
        parametrization=parametrization,
        heads=heads,
        width=n,
        networks=size,
        **{k: rounded(x.mean(0)) for k, x in found.items()},
        errors=errors,
    )


def width_part():
    return [
        wider_row(*kind, n, size)
        for *kind, widths in WIDER
        for n, size in widths.items()
    ]


RATE_TEXT = [IDS[:32]]
RATE_WIDTHS = 32, 64, 128, 256
RATES = {  # of each optimizer and parametrization, in steps of a factor of √10
    ("adamw", "standard"): np.logspace(-3.5, -1.5, 5),
    ("adamw", "ntk"): np.logspace(-2, 0, 5),
    ("adamw", "mup"): np.logspace(-3, -1, 5),
    ("sgd", "standard"): np.logspace(-2.5, -0.5, 5),
    ("sgd", "ntk"): np.logspace(-1, 1, 5),
    ("sgd", "mup"): np.logspace(-2, 0, 5),
    ("muon", "standard"): np.logspace(-2.5, -0.5, 5),
    ("muon", "ntk"): np.logspace(-2, 0, 5),
    ("muon", "mup"): np.logspace(-2, 0, 5),
}
RATES_HOW = dict(steps=10, size=3, rng=0, verbose=False)


def rates_row(optimizer, parametrization, widths=RATE_WIDTHS, rates=None, **more):
    "Losses after some steps, over widths and rates."
    momentum = {} if optimizer == "adamw" else dict(momentum=0.9)
    rates = RATES[optimizer, parametrization] if rates is None else rates
    found = rate_transfer(
        letter_model(32),
        RATE_TEXT,
        widths,
        [float(f"{x:.3g}") for x in rates],
        optimizer=optimizer,
        parametrization=parametrization,
        **RATES_HOW | momentum | more,
    ).numbers()
    return found | dict(loss=rounded(found["loss"]), start=rounded(found["start"]))


def rates_part():
    rows = []
    for kind in RATES:
        rows.append(rates_row(*kind))
        print(*kind, flush=True)
    return rows


def warm_up(t):
    "Linear, over six steps."
    return min(1.0, (t + 1) / 6)


def warm_part():
    "The same of AdamW with a warm-up, at larger rates."
    rates = np.logspace(-2.5, 0, 6)
    return [
        rates_row("adamw", kind, (32, 256), rates, schedule=schedule, steps=12, size=4)
        | dict(warm_up=schedule is not None)
        for kind in ("standard", "mup")
        for schedule in (None, warm_up)
    ]


DECAY = 5.0  # λ: ηλ times the number of steps is about one at the best rates


def decay_part():
    "Forty steps of AdamW: no decay, the rate's own, and independent decay."
    rows = []
    for kind, independent in (("standard", 0), ("mup", 0), ("mup", 1), (None, None)):
        for n in (32, 128):
            λ = DECAY if kind else 0.0
            decay = λ
            if independent:
                net = widened(letter_model(32), RATE_TEXT, n)
                program, _ = net.program(readout="lm")
                tables = [b for b in program.parameters if b.decays]
                decay = {W.name: λ * n / 32 for W in program.matrices}
                decay |= {b.name: λ for b in tables}
            rows.append(
                rates_row(
                    "adamw",
                    kind or "mup",
                    (n,),
                    np.logspace(-3, -1, 5),
                    steps=40,
                    weight_decay=decay,
                    **dict(base_width=32) if kind != "standard" else {},
                )
                | dict(width=n, decay=λ, independent=bool(independent))
            )
    return rows


MIXTURE = dict(  # eight experts, of which each letter chooses two
    model_type="olmoe",
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    intermediate_size=16,
    num_experts=8,
    num_experts_per_tok=2,
    max_position_embeddings=32,
    vocab_size=len(LETTERS),
    initializer_range=0.6 / 32**0.5,
)
LOADS = {32: 16, 128: 8}  # networks of each width


def load_row(n, size, trained):
    "Shares of the letters of the busiest expert, step by step, in each block."
    texts = [IDS[:24], IDS[24:48]]
    net = widened(MIXTURE, texts, n)
    program, logits = net.program(readout="lm")
    routers = [b.name for b in program.parameters if b.name.endswith("mlp.gate")]
    run = train(
        program,
        logits,
        next_tokens(net),
        width=n,
        steps=20,
        size=size,
        rng=0,
        optimizer="adamw",
        learning_rate=0.01,
        parametrization="mup",
        base_width=32,
        watch=program.routing(),
        rate_factors={} if trained else dict.fromkeys(routers, 0.0),
        **LEARNS,
    )
    shares = np.stack([run.choices(l).mean(2) for l in (0, 1)], axis=2)
    chosen = np.stack([run.choices(l) for l in (0, 1)], axis=2)
    return dict(
        width=n,
        routers=trained,
        busiest=rounded(shares.max(-1)),  # networks, steps, blocks
        unused=rounded((shares == 0).mean(-1)),
        changed=rounded((chosen[:, -1] != chosen[:, 0]).any(-1).mean((0, 2))),
        loss=rounded(run.loss.mean(0)),
    )


def load_part():
    kinds = [(n, size, trained) for n, size in LOADS.items() for trained in (1, 0)]
    return [load_row(n, size, bool(trained)) for n, size, trained in kinds]


PARTS = dict(
    law=law_part,
    width=width_part,
    rates=rates_part,
    warm=warm_part,
    decay=decay_part,
    load=load_part,
)

# Models of three families, trained by torch for a few steps from fresh weights: losses
# and one weight of attention, for tests/laws.

TRAINED = ROOT / "tests/data/trained_models.npz"


def trained_by_torch(kind, n, networks):
    "Losses and a weight of attention at some steps, (networks, numbers)."
    import torch
    import transformers
    from trained_models import AT, STEPS, TOKENS, config, rule

    entries = config(kind, n)
    settings = transformers.AutoConfig.for_model(entries.pop("model_type"), **entries)
    settings._attn_implementation = "eager"
    ids = torch.tensor([TOKENS])
    name, rate, momentum = rule(kind)
    makes = dict(sgd=torch.optim.SGD, adam=torch.optim.Adam, adamw=torch.optim.AdamW)
    more = dict(momentum=momentum) if name == "sgd" else {}
    more |= dict(weight_decay=0.0) if name == "adamw" else {}
    rows = []
    for seed in range(networks):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(settings).train()
        descent = makes[name](model.parameters(), lr=rate, **more)
        row = []
        for _ in range(STEPS + 1):
            y = model(ids, output_attentions=True)
            loss = torch.nn.functional.cross_entropy(y.logits[0, :-1], ids[0, 1:])
            row.append([loss.item(), y.attentions[0][0, 0, -1, -1].item()])
            descent.zero_grad()
            loss.backward()
            descent.step()
        rows.append(np.array(row)[list(AT)].T.ravel())
    return np.array(rows, dtype=np.float32)


def write_trained(networks=2000):
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sys.path.insert(0, str(ROOT / "tests"))
    from trained_models import KINDS, WIDTHS

    found = {}
    for kind in KINDS:
        for n in WIDTHS:
            found[f"{kind},{n}"] = trained_by_torch(kind, n, int(networks))
            print(kind, n, flush=True)
    np.savez_compressed(TRAINED, **found)


# Adapters of the queries and values of one layer, trained alone, at several widths.

ADAPTED = ROOT / "nbs/data/fine_tuning.json"
ADAPTER_WIDTHS = 64, 256, 1024, 4096, 16384
TEXTS_OF, EACH = 8, 4  # texts, and tokens in each
TOKENS_X = np.random.default_rng(0).standard_normal((TEXTS_OF * EACH, 16))
NEW, OLD = np.random.default_rng(5).standard_normal((2, TEXTS_OF))  # targets
RULES = {  # powers of n in the rates of A and B, which are .02 at width 64
    "constant rates": (0.0, 0.0),
    "both n^-1/2": (-0.5, -0.5),
    "A n^-1, B constant": (-1.0, 0.0),
    "A n^-1, B n^-1/2": (-1.0, -0.5),
}


def adapted_layer(n, zero="B", rank=8, alpha=8.0, stabilised=False):
    "The paper's layer with adapters, a nonlinearity and a readout of each last token."
    about = Adapters(rank, alpha, starts_at_zero=zero, rank_stabilised=stabilised)
    p = Program()
    X = p.inputs(TOKENS_X @ TOKENS_X.T / 16)
    seen = {}

    def product(letter):
        A, B = (
            p.parameter(
                0.0,
                about.variance_of(which, columns),
                size=rank,
                uniform=True,
                name=f"{letter}.{which}",
            )
            for which, columns in (("A", n), ("B", rank))
        )
        p.adapters += [A, B]
        seen[f"{letter}.A x"] = p.scores(X, A)
        added = p.attend(p.scores(X, A), B, Factor(about.factor * n**0.5))
        return p.matrix(letter) @ X + added

    Q, K, V = product("q"), p.matrix("k") @ X, product("v")
    same = np.kron(np.eye(TEXTS_OF), np.ones((EACH, EACH))) > 0
    seen["scores"] = p.scores(Q, K)
    h = tanh(p.attend(seen["scores"], V, mask=same))
    seen |= {"values": V, "hidden units": h}
    last = np.arange(EACH - 1, TEXTS_OF * EACH, EACH)
    return p, p.readout("R") @ h[last], seen


def adapted_run(n, rates, steps, optimizer="adam", size=8, trained=False, **about):
    "A run at rates of A and B, and the things that are watched."
    p, f, seen = adapted_layer(n, **about)
    common = dict(width=n, verbose=False, size=size, rng=1)
    init = None
    if trained:
        init = train(p, f, OLD, steps=40, matrices=["q", "k", "v", "R"], **common)
    factors = {x.name: rates["AB".index(x.name[-1])] for x in p.adapters}
    run = train(
        p,
        f,
        NEW,
        steps=steps,
        optimizer=optimizer,
        learning_rate=1.0,
        rate_factors=factors,
        parametrization="standard",
        matrices="adapters",
        init=init,
        **common,
    )
    return run, seen


def changes_of(run, seen):
    "Root mean square changes of what is watched, {name: (networks,)}."
    found = {}
    for name, h in seen.items():
        moved = run.values(h) - run.values(h, "start")
        size = np.sqrt((moved**2).mean(axis=tuple(range(1, moved.ndim))))
        found[name] = size * run._learner.plan.n**0.5 if name[1:] == ".A x" else size
    return found


def powers_part():
    "The changes in ten steps at small rates that are the same at all widths."
    rows = []
    for optimizer, rate in (("adam", 1e-5), ("sgd", 1e-4)):
        for zero in "BA":
            for n in ADAPTER_WIDTHS:
                run, seen = adapted_run(n, (rate, rate), 10, optimizer, zero=zero)
                moved = changes_of(run, seen)
                moved["output"] = np.abs(run.outputs[:, -1] - run.outputs[:, 0]).mean(1)
                rows.append(
                    dict(optimizer=optimizer, zero=zero, width=n)
                    | {k: short(x) for k, x in moved.items()}
                )
    return rows


def rules_part():
    "Losses in a hundred steps of Adam, and changes, for four rules of the rates."
    rows = []
    cases = [(zero, trained) for trained in (False, True) for zero in "BA"]
    for zero, trained in cases[:3]:
        for name, powers in RULES.items():
            for n in ADAPTER_WIDTHS[:4] if trained else ADAPTER_WIDTHS:
                rates = [0.02 * (n / 64) ** x for x in powers]
                about = dict(zero=zero, rule=name, width=n, trained=trained)
                try:
                    run, seen = adapted_run(n, rates, 100, zero=zero, trained=trained)
                except ValueError:  # more than half diverge
                    rows.append(about | dict(loss=None))
                    continue
                moved = {k: short(x) for k, x in changes_of(run, seen).items()}
                loss = {t: short(run.loss[:, t]) for t in (0, 10, 30, 100)}
                rows.append(about | dict(loss=loss) | moved)
    return rows


def finite(x):
    "A number of six digits, None for infinity."
    return None if np.isinf(x) else short(x)[0]


def ranks_part(n=256, steps=20):
    "Losses of ranks and rates, for α/r and α/√r."
    rows = []
    grids = dict(adam=np.logspace(-4, -0.5, 8), sgd=np.logspace(-3, 2, 11))
    for optimizer, grid in grids.items():
        for stabilised in (False, True):
            for rank in (1, 4, 16, 64):
                losses = []
                for rate in grid:
                    about = dict(rank=rank, stabilised=stabilised, size=4)
                    try:
                        run, _ = adapted_run(n, (rate, rate), steps, optimizer, **about)
                        losses.append(np.where(run.diverged, np.inf, run.loss[:, -1]))
                    except ValueError:
                        losses.append(np.full(4, np.inf))
                means = np.exp(np.log(losses).mean(1))
                rows.append(
                    dict(optimizer=optimizer, stabilised=stabilised, rank=rank)
                    | dict(rates=short(grid))
                    | dict(loss=[finite(x) for x in means])
                    | dict(losses=[[finite(x) for x in row] for row in losses])
                )
    return rows


def kernels_part(size=200):
    "Tangent kernels of many networks, of adapters alone or of all weights."
    rows = []
    for n in ADAPTER_WIDTHS[:4]:
        p, f, _ = adapted_layer(n)
        for which in ("adapters", None):
            how = dict(width=n, steps=0, size=size, rng=1, verbose=False)
            run = train(p, f, NEW, matrices=which, learning_rate=1.0, **how)
            Θ = run.tangent("start")[:, 0, 0]
            rows.append(dict(width=n, which=which or "all", kernel=short(Θ)))
    return rows


RATIOS = tuple(2.0 ** np.arange(-2, 7))  # the rate of B over that of A


def rates_of_A(n):
    "Rates of A at width n, in factors of two."
    steps = np.log2(n / 64)
    return 0.02 * 2.0 ** np.arange(-steps - 4, 3)


def grid_part(steps=30):
    "Losses in thirty steps of Adam over widths, rates of A and ratios of rates."
    rows = []
    for n in ADAPTER_WIDTHS[:4]:
        rates = rates_of_A(n)
        for ratio in RATIOS:
            losses = []
            for rate in rates:
                try:
                    run, _ = adapted_run(n, (rate, ratio * rate), steps)
                    loss = np.where(run.diverged, np.inf, run.loss[:, -1])
                except ValueError:  # more than half diverge
                    loss = np.full(8, np.inf)
                losses.append([x if np.isfinite(x) else None for x in short(loss)])
            about = dict(width=n, ratio=float(ratio), rates=short(rates))
            rows.append(about | dict(loss=losses))
    return rows


ANOTHER = "she was born in the desert on a dim morning"  # the same letters
TEXT_WIDTHS, TEXT_NETWORKS = (64, 128, 256, 512), 4


def text_model(n):
    "A config of width n with four heads."
    return letter_model(n) | dict(n_head=4, n_positions=64)


def trained_on_text(n, seed, steps=200):
    "A GPT-2 of torch that was trained on a sentence by Adam, and its last loss."
    import torch
    import transformers

    torch.manual_seed(seed)
    config = transformers.GPT2Config(**text_model(n), resid_pdrop=0, embd_pdrop=0)
    config.attn_pdrop, config._attn_implementation = 0, "eager"
    model = transformers.GPT2LMHeadModel(config)
    matrices = [p for name, p in model.named_parameters() if "h." in name]
    others = [p for name, p in model.named_parameters() if "h." not in name]
    rate = 0.003  # of matrices at width 64; those of embeddings do not fall with n
    groups = [dict(params=matrices, lr=rate * 64 / n), dict(params=others, lr=rate)]
    descent = torch.optim.Adam(groups)
    ids = torch.tensor([IDS])
    for _ in range(steps + 1):
        loss = torch.nn.functional.cross_entropy(model(ids).logits[0, :-1], ids[0, 1:])
        descent.zero_grad()
        loss.backward()
        descent.step()
    return model.double(), loss.item()


def text_part():
    "Adapters of a GPT-2 that was trained on one sentence learn another."
    rows = []
    ids = [LETTERS.index(x) for x in ANOTHER]
    adapters = dict(rank=8, alpha=8, on=("q", "v"))
    for n in TEXT_WIDTHS:
        net = from_config(text_model(n), [ids])
        bases = [trained_on_text(n, seed) for seed in range(TEXT_NETWORKS)]
        for name, powers in RULES.items():
            rates = dict(zip("AB", (0.02 * (n / 64) ** x for x in powers)))
            runs = []
            for seed, (model, _) in enumerate(bases):
                program, logits = net.program(readout="lm", adapters=adapters)
                runs.append(
                    train(
                        program,
                        logits,
                        next_tokens(net),
                        width=n,
                        steps=100,
                        size=1,
                        rng=seed,
                        init=weights_of(net, model, readout="lm"),
                        optimizer="adam",
                        learning_rate=1.0,
                        rate_factors={
                            x.name: rates["A" if "lora_A" in x.name else "B"]
                            for x in program.adapters
                        },
                        parametrization="standard",
                        matrices="adapters",
                        watch=program.attention(),
                        **LEARNS,
                    )
                )
            A = [run.attention(0)[0] for run in runs]
            moved = [abs(x[-1] - x[0]).sum(-1).mean() / 2 for x in A]
            loss = {t: short([r.loss[0, t] for r in runs]) for t in (0, 10, 30, 100)}
            rows.append(
                dict(rule=name, width=n, base=short([x for _, x in bases]))
                | dict(loss=loss, attention=short(moved))
            )
    return rows


ADAPTER_PARTS = dict(
    kernels=kernels_part,
    powers=powers_part,
    rules=rules_part,
    grid=grid_part,
    ranks=ranks_part,
    text=text_part,
)


# What is written


def write_parts(path, makers, parts):
    "Some parts of a file, or all; each is stored when it is done."
    warnings.simplefilter("ignore")
    stored = json.loads(path.read_text()) if path.exists() else {}
    for part in parts or makers:
        stored[part] = makers[part]()
        text = json.dumps(stored, separators=(",", ":"), ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")
        print(part, flush=True)


def write_adapters(*parts):
    write_parts(ADAPTED, ADAPTER_PARTS, parts)


def write_training(*parts):
    write_parts(TRAINING, PARTS, parts)


def write_live():
    for name, make in TABLES.items():
        if not (ROOT / "nbs/data" / name).exists():
            (ROOT / "nbs/data" / name).write_text(
                json.dumps(make(), separators=(",", ":")) + "\n", encoding="utf-8"
            )


def write_scan():
    with parallel(2):
        write(pd.concat([scan_rows(kind, verbose=True) for kind in MASKS]), PATH)
        how = dict(relative=False, layers=LAYERS[:1], verbose=True)
        write(pd.concat([scan_rows(kind, **how) for kind in MASKS]), GRAD_PATH)
        write(
            pd.concat(
                [lengths_table(kind, s, verbose=True) for s in DEPTHS for kind in MASKS]
            ),
            LENGTHS_PATH,
        )


def write_peers(*names):
    found = [pd.read_csv(KNOWN_PATH)] if names else []
    for name in names or MODELS:
        if names:
            found[0] = found[0][found[0]["model"] != name]
        for change in CHANGES:
            found.append(pd.DataFrame(known_rows(name, change)))
            print(name, change, flush=True)
    write(pd.concat(found), KNOWN_PATH)


def write_families(*names):
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    configs = json.loads((FOLDER / "configs.json").read_text(encoding="utf-8"))
    for name in names or configs:
        np.savez_compressed(FOLDER / f"{name}.npz", **family_table(configs[name]))
        print(name, (FOLDER / f"{name}.npz").stat().st_size, flush=True)


def write_models(*kinds):
    import torch
    import transformers
    from tqdm import tqdm

    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    rows = [
        model_row(kind)
        for kind in tqdm(kinds or sorted(transformers.CONFIG_MAPPING), disable=None)
    ]
    found = pd.DataFrame(rows).assign(release=transformers.__version__)
    path = ROOT / "nbs/data/models.csv"
    if kinds:
        stored = pd.read_csv(path, keep_default_na=False)
        others = stored[~stored["model_type"].isin(kinds)]
        found = pd.concat([others, found]).sort_values("model_type")
    write(found, path)


def write_types():
    import transformers

    transformers.logging.set_verbosity_error()
    found = pd.DataFrame(map(type_row, COMMON))
    write(found, ROOT / "nbs/data/types.csv")


if __name__ == "__main__":
    dict(
        types=write_types,
        live=write_live,
        scan=write_scan,
        peers=write_peers,
        families=write_families,
        models=write_models,
        training=write_training,
        adapters=write_adapters,
        trained=write_trained,
    )[sys.argv[1]](*sys.argv[2:])
