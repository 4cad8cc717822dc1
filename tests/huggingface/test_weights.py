"`initialise` on Hugging Face's models, against the chain of the network."

import json
import warnings
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from conftest import least_p, nightly
from scipy.special import entr
from with_transformers import TORCH, torch, transformers
from wrong_calls import rejects

from infattn_nb import from_config, from_torch, initialise
from infattn_nb.huggingface import init_table
from infattn_nb.huggingface.config import FAMILIES
from infattn_nb.initialisation import with_rule
from infattn_nb.initialisation.rules import scaled

pytestmark = [*TORCH]  # torch warns of its own affairs
FOLDER = Path(__file__).parents[1] / "data" / "families"
CONFIGS = json.loads((FOLDER / "configs.json").read_text(encoding="utf-8"))
CONFIGS["gemma"] = CONFIGS["llama"] | dict(
    model_type="gemma", rms_norm_eps=1e-6, pad_token_id=0
)
CONFIGS["roberta"] = CONFIGS["bert"] | dict(
    model_type="roberta", max_position_embeddings=16, pad_token_id=0
)
TEXT = [3, 1, 1, 1, 5]


def cell(t):
    "A cell of a scan: branches, scores and embeddings, each times a number."
    return scaled(t, 0.4, 4.0, 0.5)


NETWORKS = {"GPT-2's rule": lambda t: with_rule(t, "GPT-2"), "a scanned cell": cell}
CASES = [*product(CONFIGS, NETWORKS)]
DAILY = {("gpt2", "GPT-2's rule"), ("olmo2", "a scanned cell")}


def config_of(name):
    return CONFIGS[name] | dict(initializer_range=0.15)


def own(name):
    return from_config(config_of(name), TEXT[:4] if name == "vit" else TEXT)


def model_of(name, cls="AutoModel"):
    c = transformers.AutoConfig.for_model(**config_of(name))
    c._attn_implementation = "eager"
    return getattr(transformers, cls).from_config(c).eval()


def image():
    "Orthogonal patches of pixels ±1; equal tokens are equal patches."
    H = np.array([[1.0]])
    while len(H) < 16:
        H = np.block([[H, H], [H, -H]])
    return torch.tensor(
        H[TEXT[:4]].reshape(2, 2, 4, 4).transpose(0, 2, 1, 3).reshape(1, 1, 8, 8),
        dtype=torch.float32,
    )


def seen_in(name, model):
    "Gram matrices and entropies of a real model."
    x = (
        dict(pixel_values=image())
        if name == "vit"
        else dict(input_ids=torch.tensor([TEXT]))
    )
    with torch.no_grad():
        y = model(**x, output_hidden_states=True, output_attentions=True)
    X, A = (
        torch.stack(z)[:, 0].double().numpy() for z in (y.hidden_states, y.attentions)
    )
    return X @ X.mT / X.shape[-1], entr(A).sum(-1)


def numbers(gram, entropy):
    "Gram entries, cosines, entropies, and how those of two heads go together."
    d = np.sqrt(np.einsum("blii->bli", gram))
    cosine = gram / (d[..., None] * d[..., None, :])
    s = gram.shape[-1]
    parts = [
        gram[..., *np.triu_indices(s)],
        cosine[..., *np.triu_indices(s, 1)],
        entropy[..., 1:],
        entropy[..., -1].mean(2),
        entropy[:, :, 0, -1] - entropy[:, :, -1, -1],
    ]
    return np.concatenate([x.reshape(len(x), -1) for x in parts], axis=1)


def chain_of(name, t, size=1000):
    # Hugging Face lists ViT's stream before the last norm
    y = (replace(t, final_norm=False) if name == "vit" else t).chain(size=size, rng=1)
    return numbers(y.gram, y.entropy)


def drawn(name, t, seeds=200):
    model = model_of(name)
    return numbers(
        *map(
            np.stack,
            zip(
                *(
                    seen_in(name, initialise(t, model, seed, verify=not seed))
                    for seed in range(seeds)
                )
            ),
        )
    )


def p_value(theirs, ours):
    # the rest is constant but for rounding to single precision
    moves = theirs.std(0) > 1e-5 * abs(theirs.mean(0))
    # capped scores pile up at a few values, which single precision rounds
    step = theirs[:, moves].std(0) / 50
    return least_p(*(np.rint(x[:, moves] / step) for x in (theirs, ours)))


@pytest.mark.power(
    "distribution functions .25 apart: Gram entries, cosines, entropies after every "
    "block"
)
@pytest.mark.parametrize("name, how", nightly(CASES, *(set(CASES) - DAILY)))
@pytest.mark.long
def test_initialise_is_a_draw_of_the_network(name, how):
    """Two hundred seeds of the real model; the family's own initialisation, by the
    same function, is rejected (unless the rule changes nothing).
    """
    t = own(name)
    changed = NETWORKS[how](t)
    ours = chain_of(name, changed)
    assert p_value(drawn(name, changed), ours) > 1e-6
    no_op = how == "GPT-2's rule" and t.blocks[0].norm_placement in (
        "output",
        "sandwich",
    )  # what follows is normalised: the rule changes nothing
    assert (p_value(drawn(name, t), ours) > 1e-6) == no_op


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.long
def test_every_family_has_its_table(name):
    "Table and tensors agree; times is over the family's own."
    t = own(name)
    table = init_table(t).set_index("parameter")
    assert (table["times"] == 1).all()
    assert (table["where"] == "init").all()
    changed = cell(t)
    reported = init_table(changed)
    model = initialise(changed, model_of(name), 0)
    prefix = FAMILIES[name].prefix
    parameters = dict(model.named_parameters())
    for row in reported.itertuples():
        pattern = (
            row.parameter.removeprefix(prefix).partition("[")[0].partition(".view")[0]
        )
        if pattern.startswith("lm_head."):  # of the model with its head
            continue
        cut = row.parameter.removeprefix(prefix).removeprefix(pattern)
        p = parameters[pattern.replace("*", "1")].detach().double()
        x = eval(f"p{cut}").numpy().ravel()
        pad = np.sqrt(
            1
            - (
                "embed" in pattern
                and name in "bert roberta gemma gemma2 gemma3_text phi3 olmo2".split()
            )
            * (p.shape[0] ** -1.0)
        )
        assert abs(x.mean() - row.mean) <= 7 * row.std / np.sqrt(x.size) + 1e-6, row
        assert abs(x.std() - row.std * pad) <= 7 * row.std / np.sqrt(
            2 * x.size
        ) + 1e-6 + 0.1 * row.std * (pad < 1), row
    assert {round(x, 4) for x in reported["times"]} >= {0.4, 0.5}


def test_heads_padding_and_tied_tensors():
    """A head gets the config's own; tied tensors are one; the row of a padding token is
    zero; the seed decides.
    """
    t = cell(own("bert"))
    model = initialise(t, model_of("bert", "AutoModelForMaskedLM"), 3)
    body = model.bert.embeddings.word_embeddings.weight
    assert model.cls.predictions.decoder.weight.data_ptr() == body.data_ptr()
    assert (body[0] == 0).all()
    assert abs(body[1:].std().item() / 0.075 - 1) < 0.1
    dense = model.cls.predictions.transform.dense
    assert abs(dense.weight.std().item() / 0.15 - 1) < 0.05
    assert not dense.bias.any()
    assert (model.cls.predictions.transform.LayerNorm.weight == 1).all()
    alone = initialise(t, model_of("bert"), 3)
    for (name, p), q in zip(
        alone.encoder.named_parameters(), model.bert.encoder.parameters()
    ):
        assert torch.equal(p, q), name
    again, other = (
        initialise(t, model_of("bert"), seed).encoder.layer[0].output.dense.weight
        for seed in (3, 4)
    )
    assert torch.equal(again, alone.encoder.layer[0].output.dense.weight)
    assert not torch.equal(again, other)
    half = initialise(t, model_of("bert").half(), 3)
    assert torch.equal(
        half.encoder.layer[1].intermediate.dense.weight,
        alone.encoder.layer[1].intermediate.dense.weight.half(),
    )


def test_modules_of_torch():
    """An encoder of torch, read and drawn anew: stacked matrices of different sizes,
    biases, and the given embeddings.
    """
    layers = torch.nn.ModuleList(
        torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
        for _ in range(3)
    )
    t = scaled(from_torch(layers, texts=5), 0.5, 4.0)
    table = init_table(t).set_index("parameter")
    assert np.isclose(table.loc["*.self_attn.in_proj_weight[0:32]", "times"], 2)
    assert np.isclose(table.loc["*.self_attn.in_proj_weight[64:96]", "times"], 1)
    before = [p.clone() for p in layers.parameters()]
    initialise(t, layers, 0)
    W, b = layers[2].self_attn.in_proj_weight, layers[2].linear1.bias
    assert abs(W[:32].std().item() / W[64:].std().item() - 2) < 0.3
    assert b.std() > 0
    assert not any(
        torch.equal(p, q) for p, q in zip(before, layers.parameters()) if p.std() > 0
    )
    for module in (torch.nn.Sequential(*layers), list(layers)):
        assert repr(from_torch(module, texts=5)) == repr(from_torch(layers, texts=5))


def test_rejected():
    "One sentence, before anything is written."
    t = own("gpt2")
    for module, text in [
        (model_of("llama"), "of the family that was read, gpt2, got llama"),
        (torch.nn.Linear(3, 3), "have the tensors of gpt2"),
        (gpt2_with(n_embd=48), "have width 96, got 48"),
        (gpt2_with(n_layer=3), "blocks"),
        (gpt2_with(n_inner=96), "of shape"),
        (model_of("gpt2").to("meta"), "meta device"),
    ]:
        before = {k: p.clone() for k, p in module.state_dict().items()}
        rejects(lambda: initialise(t, module, 0), text)
        assert "meta" in text or same_weights(module, before)
    other = replace(t, cov=np.diag([1.0, 2, 3, 4, 5]))
    rejects(lambda: init_table(other), "other inner products of its tokens")
    blocks = from_config(config_of("gpt2"), 3).blocks
    shorter = replace(t, cov=np.eye(3), mean=0.0, blocks=blocks)
    rejects(lambda: init_table(shorter), "as the text that was read, 5, got 3")


def test_what_no_initialisation_can_do_is_said():
    t = with_rule(own("gpt2"), "DeepNorm")
    forward = init_table(t).query("where == 'forward'")
    assert list(forward["parameter"]) == [
        "skip_scale = 1.414",
        "norm_placement = post",
        "last_norm = None",
    ]
    assert np.isclose(forward["times"].iloc[0], 2**0.5)
    with pytest.warns(
        UserWarning,
        match="no initialisation can apply skip_scale = 1.414, norm_placement = post",
    ):
        initialise(t, model_of("gpt2"), 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        initialise(cell(own("gpt2")), model_of("gpt2"), 0)


def gpt2_with(**options):
    small = dict(n_embd=96, n_layer=2, n_head=6, n_inner=192, vocab_size=16)
    return transformers.GPT2Model(transformers.GPT2Config(**small | options))


def layers_with(**options):
    return torch.nn.ModuleList(
        torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, **options).eval()
        for _ in range(2)
    )


@pytest.mark.parametrize(
    "t, module, said",
    [
        (
            lambda: own("gpt2"),
            lambda: gpt2_with(activation_function="relu", scale_attn_weights=False),
            "score_scale = 4, activation = relu",
        ),
        (
            lambda: own("gpt2"),
            lambda: gpt2_with(layer_norm_epsilon=1e-3),
            r"norm = Norm\(eps=0.001\)",
        ),
        (
            lambda: from_torch(layers_with(), texts=5),
            lambda: layers_with(activation="gelu", norm_first=True),
            "norm_placement = pre, activation = gelu",
        ),
        (
            lambda: own("mistral"),
            lambda: transformers.AutoModel.from_config(
                transformers.AutoConfig.for_model(
                    **config_of("mistral") | dict(sliding_window=2)
                )
            ),
            "mask = …",
        ),
    ],
)
def test_a_module_of_another_forward_pass_raises_a_warning(t, module, said):
    with pytest.warns(
        UserWarning, match=f"`module` has {said}, unlike the model that was read"
    ):
        initialise(t(), module(), 0)


@pytest.mark.parametrize("name", (*CONFIGS, "layers"))
@pytest.mark.long
def test_a_module_of_this_forward_pass_is_not(name):
    t, module = (
        (from_torch(layers_with(), texts=5), layers_with())
        if name == "layers"
        else (own(name), model_of(name))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        initialise(t, module, 0)
        if name != "layers":  # factors in gains of norms, too
            initialise(cell(t), module, 0)


def test_bad_modules_seeds_and_embeddings():
    with torch.inference_mode():
        sealed, model = layers_with(), model_of("gpt2")
        assert from_torch(sealed, texts=5).width == 32
    inside = "`module` must be made outside torch.inference_mode"
    rejects(lambda: from_torch(list(sealed), texts=5), inside)
    rejects(lambda: initialise(own("gpt2"), model, 0), inside)
    for x in ([], np.full((3, 32), np.nan), np.empty((3, 0)), [[[1, 2], [3]]], 3):
        rejects(lambda: from_torch(layers_with(), x), "`embeddings` must")
    rejects(lambda: initialise(own("gpt2"), model_of("gpt2"), "a"), "`rng` must be")


def spoiled(module):
    "The MLP of the second block, times a number that nobody reads."
    mlp = module.layers[1].mlp
    forward = mlp.forward
    mlp.forward = lambda x: 1.7 * forward(x)
    return module


def same_weights(module, before):
    return all(torch.equal(p, before[k]) for k, p in module.state_dict().items())


def test_a_module_is_run_once_it_is_written_or_stays_as_it_was():
    """What runs otherwise keeps its weights, bit for bit; not so with verify=False.
    What memory held before does not matter.
    """
    t = own("llama")
    for module in (
        spoiled(model_of("llama")),
        spoiled(model_of("llama", "AutoModelForCausalLM").model),
    ):
        before = {k: p.clone() for k, p in module.state_dict().items()}
        with pytest.raises(
            ValueError,
            match=(
                "`module` must run like the network that is written into it, got an "
                "output of block 1 that differs by"
            ),
        ) as e:
            initialise(t, module.train(), 0)
        assert len(str(e.value).splitlines()) == 1
        assert "its weights were restored" in str(e.value)
        assert same_weights(module, before)
        assert module.training
        initialise(t, module, 0, verify=False)
        assert not same_weights(module, before)
    module = model_of("llama")
    for p in module.parameters():
        p.data.fill_(np.nan)
    initialise(t, module, 0)
    assert same_weights(module, initialise(t, model_of("llama"), 0).state_dict())
    with pytest.raises(TypeError, match="`verify` must"):
        initialise(t, module, 0, verify=2)


def test_an_interrupted_initialisation_leaves_the_weights(monkeypatch):
    module = model_of("llama")
    before = {k: p.clone() for k, p in module.state_dict().items()}

    def stop(*args, **options):
        raise KeyboardInterrupt

    module.layers[1].forward = stop
    with pytest.raises(KeyboardInterrupt):
        initialise(own("llama"), module, 0)
    del module.layers[1].forward
    assert same_weights(module, before)


GRADIENTS = dict(  # of q, k, v, o, 1, 2
    olmo2=[*(f"self_attn.{k}_proj" for k in "qkvo"), "mlp.gate_proj", "mlp.down_proj"],
    phi=[*(f"self_attn.{k}_proj" for k in "qkv"), "self_attn.dense"]
    + ["mlp.fc1", "mlp.fc2"],
)


def torch_gradients(name, t, seeds):
    "Squared norms of .grad for a random readout, (seeds, matrices, blocks)."
    model, found = model_of(name), []
    for seed in range(seeds):
        initialise(t, model, seed, verify=not seed)
        x = model(input_ids=torch.tensor([TEXT])).last_hidden_state[0, -1]
        model.zero_grad()
        r = torch.from_numpy(
            np.random.default_rng(10**6 + seed).standard_normal(96) / 96**0.5
        ).float()
        (x @ r).backward()
        found.append(
            [
                [
                    block.get_submodule(path).weight.grad.double().square().sum().item()
                    for block in model.layers
                ]
                for path in GRADIENTS[name]
            ]
        )
    return np.array(found)


@pytest.mark.power(
    "distribution functions .25 apart: squared norms of .grad of six matrices in two "
    "blocks"
)
@pytest.mark.parametrize("name", nightly(dict.fromkeys(GRADIENTS), "phi", "olmo2"))
@pytest.mark.long
def test_gradients_of_the_models(name):
    """What backward leaves in .grad of the real models is what the backward pass says;
    that of another scale of scores is not.
    """
    t = scaled(own(name), 1.0, 3.0)
    theirs = torch_gradients(name, t, 150)
    compared = lambda t: np.stack(
        [t.gradients(96, 600, 1).squared_weight_norms[k] for k in "qkvo12"], axis=1
    )
    flat = lambda x: np.log(x.reshape(len(x), -1))
    # with the factor of the scores in the weights, or in gains
    assert least_p(flat(theirs), flat(compared(t))) > 1e-6
    assert least_p(flat(theirs), flat(compared(own(name)))) < 1e-6
