"""Losses over widths and learning rates: each is that of one run, whatever else is
asked for; what diverges is infinite and what was not reached is NaN.
"""

import numpy as np
import pytest
from conftest import nightly

from wrong_calls import rejects

from infattn_nb import from_config, train
from infattn_nb.huggingface import CoordinateCheck, RateTransfer, coordinate_check
from infattn_nb.huggingface import next_tokens, rate_transfer, transfer, widened

CONFIG = dict(
    model_type="gpt2",
    n_embd=32,
    n_head=2,
    n_layer=1,
    n_positions=16,
    vocab_size=8,
    initializer_range=0.2,
)
TEXT = [[3, 1, 4, 1, 5, 2, 6, 5, 3, 5, 7, 2]]


def found(widths=(32, 64), rates=(0.01, 0.03), **how):
    how = dict(steps=4, verbose=False) | how
    return rate_transfer(CONFIG, TEXT, widths, rates, **how)


def run_of(net, adapters=None, **how):
    "A run of `train` as `rate_transfer` and `coordinate_check` make them."
    program, logits = net.program(readout="lm", adapters=adapters)
    common = dict(loss="softmax", reduction="mean", verbose=False, size=2)
    common |= dict(parametrization="standard") | how
    if adapters:
        B = {x: net.width / 16 for x in program.adapters if ".lora_B" in x.name}
        common |= dict(matrices="adapters", rate_factors=B)
    return train(program, logits, next_tokens(net), width=int(net.width), **common)


def test_at_the_own_width_it_is_the_model_itself():
    "One cell, by hand, with the same seed."
    cell = found([32], [0.01], rng=3)
    (seed,) = np.random.SeedSequence(3).spawn(1)
    how = dict(steps=4, rng=seed, learning_rate=0.01, optimizer="adamw")
    run = run_of(from_config(CONFIG, TEXT), **how)
    np.testing.assert_array_equal(cell.loss[0, 0], run.loss[:, -1])
    np.testing.assert_array_equal(cell.start[0], run.loss[:, 0])


def test_rates_start_from_the_same_networks_and_widths_are_sorted():
    both = found([64, 32, 64], [0.03, 0.01])
    assert both.widths == [32, 64]
    assert both.learning_rates == [0.01, 0.03]
    assert both.loss.shape == (2, 2, 2)
    alone = found([32, 64], [0.03])
    np.testing.assert_array_equal(alone.loss[:, 0], both.loss[:, 1])
    np.testing.assert_array_equal(alone.start, both.start)
    assert (both.start[0] != both.start[1]).all()


def test_a_rate_at_which_all_diverge_is_infinite():
    wild = found([32], [0.01, 1e6], optimizer="sgd")
    assert np.isinf(wild.loss[0, 1]).all()
    assert np.isfinite(wild.loss[0, 0]).all()
    assert wild.best.tolist() == [0.01]
    assert wild.as_good.tolist() == [[True, False]]
    numbers = wild.numbers()
    assert numbers["loss"][0][1] == [None, None]
    assert numbers["optimizer"] == "sgd"


def test_what_is_as_good_goes_by_the_errors_of_differences():
    "Networks differ by much, rates by little, and always in the same direction."
    of_networks = np.array([1.0, 5.0, 9.0])
    loss = np.array([of_networks, of_networks + 0.1, of_networks + [0.1, -0.1, 0.05]])
    record = transfer.RateTransfer(
        [8], [1.0, 2.0, 3.0], loss[None], loss[None, 0], False, {}
    )
    assert record.best.tolist() == [1.0]
    assert record.as_good.tolist() == [[True, False, True]]
    assert (record.error[0] > 2).all()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (dict(rates="0.1"), "`learning_rates` must be a list of numbers"),
        (dict(rates=[0.0]), "`learning_rates` must be in (0, ∞)"),
        (dict(widths=[40]), "`width` must be a multiple of 16"),
        (dict(widths=[16 * 10**6]), "`widths` must"),
    ],
)
def test_bad_input_is_rejected(how, said):
    rejects(lambda: found(**how), said)


LLAMA = dict(
    model_type="llama",
    hidden_size=32,
    num_attention_heads=4,
    num_hidden_layers=1,
    intermediate_size=64,
    vocab_size=10,
    initializer_range=0.05,
)


def of_head(n, tied, optimizer="sgd", size=8, **how):
    "Standard deviation of the head at the start, and logits of each step, under µP."
    config = LLAMA | dict(tie_word_embeddings=tied)
    net = widened(config, [[3, 1, 4, 1, 5, 9, 2, 6]], n)
    how = dict(parametrization="mup", base_width=32, steps=0, learning_rate=0.01) | how
    found = run_of(net, size=size, rng=0, optimizer=optimizer, **how)
    name = "model.embed_tokens" if tied else "lm_head"
    return np.std(found.weights(name, "start")), np.asarray(found.outputs)


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_keeps_its_size_under_mup(tied):
    "Logits are divided by n, so their size at the start falls like the root of n."
    (narrow, z), (wide, far) = of_head(32, tied), of_head(512, tied)
    np.testing.assert_allclose(narrow, 0.05, rtol=0.1)
    np.testing.assert_allclose(wide, 0.05, rtol=0.04)
    if not tied:  # sums of n products, divided by n
        ratio = np.sqrt((z**2).mean() / (far**2).mean())
        np.testing.assert_allclose(ratio, 4, rtol=0.4)
        plain, _ = of_head(512, tied, parametrization="standard", base_width=None)
        np.testing.assert_allclose(plain, 0.05 / 4, rtol=0.04)  # fan-in × variance


@pytest.mark.long
@pytest.mark.parametrize(
    ("optimizer", "rate"), dict(sgd=1, adam=0.01, muon=0.02).items()
)
def test_an_untied_head_moves_its_logits_alike_at_every_width(optimizer, rate):
    moved = []
    for n in (32, 256):
        _, z = of_head(n, False, optimizer, 16, steps=3, learning_rate=rate)
        moved.append([np.abs(z[:, k] - z[:, 0]).mean() for k in (1, 3)])
    ratio = np.array(moved[1]) / moved[0]
    assert (0.65 < ratio).all() and (ratio < 1.5).all(), ratio


def record(loss, widths=(64, 128), rates=(0.1, 0.2, 0.4)):
    "A RateTransfer with given losses (widths, rates, networks)."
    loss = np.asarray(loss, float)
    start = np.full((len(widths), loss.shape[-1]), 3.0)
    return RateTransfer(list(widths), list(rates), loss, start, False, {})


def test_verdicts_state_the_answer():
    good, bad, worse = [1.0, 1.01], [2.0, 2.01], [3.0, 3.01]
    same = record([[bad, good, worse]] * 2).verdict
    assert same == (
        "the rate 0.2 is as good as the best one at every width from 64 to 128, so "
        "take it at 128"
    )
    moved = record([[worse, bad, good], [bad, good, worse]]).verdict
    assert "the rate does not transfer; take 0.2 at 128" in moved
    assert "the best rate at 64 is at the end of the grid, so add larger rates" in moved
    low = record([[good, bad, worse]] * 2).verdict
    assert "64, 128 is at the end of the grid, so add smaller rates" in low
    assert (
        "one learning rate does not show" in record([[good]] * 2, rates=[0.1]).verdict
    )
    assert "errors are unknown" in record([[[2], [1], [3]]] * 2).verdict
    lost = record(np.full((2, 3, 2), np.inf)).verdict
    assert lost.startswith("every network diverged")
    half = record([[bad, good, worse], np.full((3, 2), np.inf)]).verdict
    assert "at 128 every rate diverged" in half and "nan" not in half


def test_the_rate_at_another_width():
    "The common rate, also beyond the grid; otherwise only that of a trained width."
    good, bad, worse = [1.0, 1.01], [2.0, 2.01], [3.0, 3.01]
    same = record([[bad, good, worse]] * 2)
    assert [same.rate_at(n) for n in (64, 100, 4096)] == [0.2] * 3
    moved = record([[worse, bad, good], [bad, good, worse]])
    assert [moved.rate_at(n) for n in (64, 128)] == [0.4, 0.2]
    lost = record([[bad, good, worse], np.full((3, 2), np.inf)])
    single = record([[good]] * 2, rates=[0.1])
    for found, n in ((moved, 256), (moved, 96), (lost, 128), (single, 32)):
        with pytest.raises(ValueError, match="no rate is known to transfer"):
            found.rate_at(n)
    assert (
        "smaller rates" not in record([[good, [np.nan] * 2, [np.nan] * 2]] * 2).verdict
    )


def test_nothing_to_learn_and_no_decoder_are_refused():
    with pytest.raises(ValueError, match="must have a loss that can decrease"):
        rate_transfer(dict(CONFIG, vocab_size=1), [[0, 0, 0]], [32], [0.1], steps=1)
    bert = dict(model_type="bert", hidden_size=32, vocab_size=8)
    for ask in (
        lambda: rate_transfer(bert, TEXT, [32], [0.1]),
        lambda: coordinate_check(bert, TEXT),
    ):
        with pytest.raises(ValueError, match="must be a language model"):
            ask()
    with pytest.raises(ValueError, match="`widths` must be at least two numbers"):
        coordinate_check(CONFIG, TEXT, [32])


def test_changes_of_a_check_are_those_of_a_run():
    found = coordinate_check(
        CONFIG, TEXT, [32, 64], optimizer="sgd", size=2, steps=2, rng=3
    )
    seed = np.random.SeedSequence(3).spawn(2)[1]
    how = dict(learning_rate=0.1, parametrization="mup", base_width=32)
    run = run_of(widened(CONFIG, TEXT, 64), steps=2, rng=seed, **how)
    moved = np.abs(run.outputs[:, 1:] - run.outputs[:, :1]).reshape(2, 2, -1).mean(-1)
    np.testing.assert_allclose(found.changes[1, 0], moved.T, rtol=1e-9)
    assert found.table.shape == (2, 6)
    assert found.plot().get_xscale() == "log"


def check_record(power, error=0.01):
    "Logits whose changes grow like n^power."
    rng = np.random.default_rng(0)
    n = np.array([64.0, 256.0])
    sizes = n[:, None, None, None] ** power * (
        1 + error * rng.standard_normal((2, 1, 1, 8))
    )
    return CoordinateCheck(
        [64, 256], [1], ["logits"], sizes, dict(parametrization="standard")
    )


def test_a_check_finds_powers_of_the_width():
    p = check_record(0.5).powers
    assert abs(p["power"][0] - 0.5) < 6 * p["error"][0] < 0.1
    assert "logits like n^" in check_record(0.5).verdict
    assert check_record(0.5).crossed == ["logits"]
    assert check_record(-0.5).crossed == ["logits"]
    assert check_record(0.05).crossed == []
    lost = check_record(0.0)
    lost.changes[0, 0, 0, 0] = np.nan
    assert "diverged" in lost.verdict


@pytest.mark.long
@pytest.mark.parametrize("optimizer", nightly(["sgd", "adamw", "muon"], "sgd", "muon"))
@pytest.mark.parametrize("tied", nightly([True, False], True))
def test_mup_moves_all_widths_alike_and_the_standard_rates_do_not(optimizer, tied):
    sizes = dict(hidden_size=64, intermediate_size=128, initializer_range=0.1)
    config = LLAMA | sizes | dict(tie_word_embeddings=tied)
    texts = [[3, 1, 4, 1, 5, 9, 2, 6]]
    how = dict(optimizer=optimizer, size=16)
    assert not coordinate_check(config, texts, [64, 256], **how).crossed
    plain = coordinate_check(
        config, texts, [64, 256], parametrization="standard", **how
    )
    assert "logits" in plain.crossed


@pytest.mark.power("a ratio for A in the place of B, or of the other width")
def test_adapters_have_two_rates():
    adapters = dict(rank=2, on="c_attn", starts_at_zero=None)
    ratio = lambda n: n / 16
    cell = found([32, 64], [0.01], rng=3, adapters=adapters, rate_ratio=ratio)
    for i, seed in enumerate(np.random.SeedSequence(3).spawn(2)):
        how = dict(steps=4, rng=seed, learning_rate=0.01, optimizer="adamw")
        run = run_of(widened(CONFIG, TEXT, (32, 64)[i]), adapters, **how)
        np.testing.assert_allclose(cell.loss[i, 0], run.loss[:, -1], rtol=1e-12)
    rejects(lambda: found(rate_ratio=2.0), "`rate_ratio` must be passed with adapters")
    rejects(lambda: found(rate_ratio=[1.0, 2.0]), "`rate_ratio` must be a number")
