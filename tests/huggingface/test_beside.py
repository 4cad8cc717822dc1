"""A module of one's own runs beside its description."""

import pytest
from conftest import departures
from role_modules import SHAPES, F, H, L, NanoGPT, S, attend, drawn, heads, n, read
from with_torch import TORCH, torch

from infattn_nb import Rotary, Transformer, initialise, report
from infattn_nb.huggingface import init_table
from infattn_nb.transformer import embedding_cov

pytestmark = TORCH


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
    "A factor past the branches: a module that has it gets no warning."
    import warnings
    from dataclasses import replace

    t = read("nanoGPT", drawn("nanoGPT"))
    t = replace(t, blocks=[replace(b, skip_scale=1.5) for b in t.blocks])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        initialise(t, Skips().eval(), 0)
    with pytest.warns(UserWarning, match="can apply skip_scale = 1.5"):
        initialise(t, drawn("nanoGPT"), 0)


DEPTH = (2 * L) ** -0.5


def should(text=S, **more):
    "Fan-in × variance one, embeddings too; over 2L in front of the sums."
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
    "1/√fan-in times a factor; `fan`: down over the other side's root."
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
@pytest.mark.long
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
