"""Models that were read, as programs: what is left out is said."""

import warnings

import pytest

from infattn_nb import from_config

SMALL = dict(
    model_type="gpt2", n_embd=32, n_head=2, n_layer=1, vocab_size=11, n_positions=8
)


def said_of(**entries):
    "What `program` warns of."
    net = from_config(SMALL | entries, [1, 2, 3])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net.program(readout="lm")
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    "entries",
    [{}, dict(attn_pdrop=0.0), dict(classifier_dropout=0.1), dict(dtype="float32")],
)
def test_nothing_is_said_where_nothing_is_left_out(entries):
    assert said_of(**entries) == []


def test_one_warning_says_what_is_left_out():
    (message,) = said_of(resid_pdrop=0.1, attn_pdrop=0.2, torch_dtype="bfloat16")
    assert "without dropout (attn_pdrop, resid_pdrop) and bfloat16" in message
