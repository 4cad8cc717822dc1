"""What a report measures of the first layer, and at which sizes."""

import numpy as np
import pytest
from conftest import nightly
from report_cases import small

from infattn_nb import Attention, Block, Norm, Rotary, SelfAttention, Tokens
from infattn_nb import Transformer, from_config, limit_error
from infattn_nb.initialisation.measured import default_size, first_layer
from infattn_nb.initialisation.rules import scaled
from infattn_nb.nonlinearities import identity

pytestmark = pytest.mark.xdist_group("report")  # its fixtures are made once


@pytest.mark.slow
@pytest.mark.power("kurtosis of the first layer: a tenth")
@pytest.mark.parametrize(
    "change",
    nightly(
        [dict(var_q=3.0), dict(heads=8, head_width=8), dict(var_q=36.0)],
        dict(var_q=3.0),
        dict(var_q=36.0),
    ),
    ids=str,
)
def test_the_first_layer_is_what_good_enough_says(change, seed=0):
    "By its own draws; a layer of other scores or other heads is not."
    t = Transformer.uniform(
        np.eye(3), layers=2, heads=4, var_q=9.0, var_k=4.0, mask="causal"
    )
    t = scaled(t, 1.0, 0.5)
    said = lambda **change: (
        limit_error(
            Attention(
                Tokens(3, identity, np.eye(3)),
                **dict(heads=4, head_width=16, var_q=9.0) | change,
            ),
            64,
            draws=2**16,
            rng=seed,
        ).numbers
    )
    x = first_layer(t, 64, np.random.SeedSequence(seed + 1))

    def off(numbers, *names):
        return max(abs(np.log(x[name] / numbers[name])) for name in names)

    kurtosis = "kurtosis", "limit kurtosis"
    assert x["tokens"] == 3
    assert off(said(), *kurtosis) < 0.08
    tails = "beyond 6 sd", "limit beyond 6 sd"
    assert off(said(), *tails) < 0.5  # ten and six standard errors
    assert off(said(**change), *kurtosis) > 0.12


def test_other_layers_are_passed_over():
    cov = np.eye(3)

    def alone(t, width=24):
        return first_layer(t, width, np.random.SeedSequence(0))

    def of(width=24, **fields):
        return alone(
            Transformer(cov, blocks=[Block(SelfAttention(4, **fields))]), width
        )

    assert of() is not None
    assert of(groups=4) is not None
    assert of(head_width=6) is not None
    assert of(mask="causal") is not None
    for fields in (
        dict(rotary=Rotary()),
        dict(qk_norm=Norm()),
        dict(softcap=3.0),
        dict(clip=3.0),
        dict(bias=cov),
        dict(groups=2),
        dict(head_width=8),
        dict(width=np.inf),
    ):
        assert of(**fields) is None, fields
    later = Transformer(cov, blocks=[Block(None), Block(SelfAttention(4))])
    assert alone(later) == of()
    assert alone(Transformer(cov, blocks=[Block(None)])) is None
    assert alone(Transformer.uniform(np.eye(20), heads=2, layers=1), 48)["tokens"] == 16


def test_sizes_follow_from_the_work():
    big, many = (from_config("llama-like", 128), from_config("gpt2", 16))
    assert default_size(big, 4096) == 4
    assert 40 <= default_size(many, 768) <= 96
    assert default_size(small(), 48) == 96
