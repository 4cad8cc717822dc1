"""Modules of one's own, read by the names of their tensors: small rebuildings, in our
own words, of how known repositories lay out theirs; checked by running, and against
chains of the law.
"""

import numpy as np
import pytest
from conftest import departures, least_p, nightly
from role_modules import GPT, SHAPES, WRONG, F, H, L, S, V, drawn, n, nn, read
from with_torch import TORCH, torch
from wrong_calls import rejects

from infattn_nb import Norm, from_config, from_torch, initialise, train, weights_of
from infattn_nb.huggingface import init_table, next_tokens

pytestmark = TORCH


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


@pytest.mark.power(
    "distribution functions .25 apart: Gram entries after the last block"
)
@pytest.mark.parametrize("name", nightly(SHAPES, *{*SHAPES} - {"timm"}))
@pytest.mark.long
def test_draws_follow_the_law(name):
    """Two hundred modules beside the chain; without the embeddings' own size, or with
    branches twice as strong, they are not of that law.
    """
    from infattn_nb.initialisation.rules import scaled

    module = drawn(name)
    t = read(name, module)
    theirs, ids, upper = [], torch.arange(1, S + 1)[None], np.triu_indices(S)
    for seed in range(200):
        initialise(t, module, seed, verify=not seed)
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
        replace(t, final_norm=False).chain(size=1000, rng=1).gram[:, -1][:, *upper]
    )
    assert least_p(np.array(theirs), compared(t)) > 1e-6
    assert least_p(np.array(theirs), compared(scaled(t, 2.0, 1.0))) < 1e-6


def test_rejected_in_one_sentence():
    module = drawn("nanoGPT")
    no_o = {k: v for k, v in GPT.items() if k != "o"}
    how = dict(roles=GPT, texts=S, activation="gelu", mask="causal")
    for change, text in [
        (dict(roles=GPT | dict(o="transformer.h.*.attn.c_prj")), "the module for 'o'"),
        (dict(roles=GPT | dict(w="transformer.wte")), "have keys made of the letters"),
        (dict(roles=no_o), "name each matrix once, got none for o"),
        (dict(activation=None), "`activation` must be given"),
        (dict(roles=None), "`roles` must be given"),
    ]:
        rejects(lambda: from_torch(module, **how | change), text)
    module.transformer.h[1].attn.c_proj.weight.data[0, 0] = np.nan
    said = "NaN or ∞ in transformer.h.*.attn.c_proj of block 1; initialise it"
    rejects(lambda: read("nanoGPT", module), said)


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


# Wrong initialisations of modules of one's own, in our words: what each should be is a
# network; the report names what is not

DEPTH = (2 * L) ** -0.5


@pytest.mark.long
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
        (config | dict(n_layer=2), "have 3 blocks, as the module has, got 2"),
        (config | dict(n_head=2), "have heads 4, as the module has, got 2"),
        (
            config | dict(n_inner=n),
            f"have fan-in of 2 {4 * n}, as the module has, got {n}",
        ),
        (3, "must be a path, a dict"),
    ):
        with pytest.raises((TypeError, ValueError), match=text) as e:
            read("nanoGPT", module, promised=wrong)
        assert len(str(e.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["nanoGPT", "llama2.c"])
@pytest.mark.long
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
