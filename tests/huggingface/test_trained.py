"""Models that were read, as programs: what is left out is said."""

import warnings

import numpy as np
import pytest

from infattn_nb import from_config, from_torch, train
from infattn_nb.huggingface import next_tokens

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


IDS = [1, 2, 3, 4, 5]


def ended_badly(ids=IDS, readout="lm", y=None, **how):
    "A run of a small model with something wrong."
    net = from_config(SMALL, [ids])
    program, logits = net.program(readout=readout)
    common = dict(width=32, steps=5, size=2, learning_rate=0.1, verbose=False)
    train(
        program,
        logits,
        next_tokens(net) if y is None else y,
        loss="softmax",
        **common | how,
    )


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (dict(ids=[1] * 9), r"`config\['n_positions'\]` must allow for a text of 9"),
        (dict(ids=[1, 11]), r"`texts` must contain token ids in \[0, 11\)"),
        (dict(ids=[1, -1]), r"`texts` must contain token ids in \[0, 11\)"),
        (dict(ids=[1]), "`texts` must have at least two tokens"),
        (dict(y=[1, 2, 3, 11]), "`y` must be 4 labels 0 … 10, got 1 … 11"),
        (dict(schedule=lambda t: np.nan), r"`schedule\(0\)` must be in .* got nan"),
        (
            dict(schedule=lambda t: np.nan if t == 3 else 1.0),
            r"`schedule\(3\)` must be in .* got nan",
        ),
        (dict(schedule=0.5), "`schedule` must be"),
        (dict(optimizer="tiger"), "`optimizer` must be 'sgd' or 'adam' or"),
        (dict(optimizer="adam", size=10**7), "`width` must fit into .* GiB"),
        (dict(optimizer="adam", dense=False), "`dense` must be True or None"),
        (
            dict(init={"transformer.wte": np.zeros((3, 32))}),
            r"`init` must have shape \(11, 32\)",
        ),
        (dict(init={"wte": np.zeros((11, 32))}), "`init` must name matrices"),
        (
            dict(init={"transformer.wte": np.full((11, 32), np.nan)}),
            "`init` must hold numbers in",
        ),
        (dict(parametrization="mup"), "`base_width` must be passed with"),
        (dict(readout="middle"), "`readout` must be"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(how, said):
    with pytest.raises((ValueError, TypeError), match=said) as caught:
        ended_badly(**how)
    assert "\n" not in str(caught.value)


def test_a_module_that_is_not_read_is_said_so():
    torch = pytest.importorskip("torch")
    with pytest.raises((ValueError, TypeError), match="`module` must") as caught:
        from_torch(torch.nn.LSTM(4, 4), texts=4)
    assert "\n" not in str(caught.value)
