"""The expected first loss of a head, by hand and by torch."""

import json

import numpy as np
import pytest
from report_cases import TINY, small

from infattn_nb import from_config
from infattn_nb import report as draw_report
from infattn_nb.initialisation.head_loss import _mean_shifted, _products, expected_loss
from infattn_nb.initialisation.head_loss import head_loss

pytestmark = pytest.mark.xdist_group("report")  # its fixtures are made once


def test_the_expected_loss_by_hand():
    assert np.isclose(expected_loss(50257, 0.0), np.log(50257), atol=1e-6)
    assert np.isclose(expected_loss(50257, 0.55), np.log(50257) + 0.15125, atol=1e-4)
    assert np.isclose(expected_loss(1, 2.0), 0.0, atol=1e-6)  # of one word: its logit
    large = np.log(np.exp(30.0) + 99)  # one word stands above all others
    assert np.isclose(expected_loss(100, 0.0, 30.0), large, atol=1e-6)
    assert np.isclose(expected_loss(2, 1.0), _two_words(1.0), atol=1e-6)


def _two_words(sd):
    "E log(e^x + e^y) of two independent normals, by Gauss and Hermite."
    x, w = np.polynomial.hermite_e.hermegauss(80)
    w = w / w.sum()
    return w @ np.logaddexp(sd * x[:, None], sd * x) @ w


def test_heads_that_are_not_known_are_passed_over():
    seed = np.random.SeedSequence(0)
    tiny = dict(json.loads(TINY), vocab_size=50)

    def loss(config=tiny, width=64, words=None):
        return head_loss(from_config(config, 4), width, words, seed)

    assert loss().words == 50
    assert loss(words=99).words == 99
    assert loss(json.loads(TINY)) is None
    assert loss(width=np.inf) is None
    assert loss(tiny | dict(logit_scale=0.5)) == loss()  # GPT-2 does not read it
    cohere = dict(model_type="cohere", hidden_size=64, num_hidden_layers=2)
    cohere |= dict(num_attention_heads=2, intermediate_size=64, vocab_size=50)
    assert np.isclose(2 * loss(cohere).sd, loss(cohere | dict(logit_scale=0.125)).sd)
    bert = dict(model_type="bert", hidden_size=64, num_hidden_layers=2)
    bert |= dict(num_attention_heads=2, intermediate_size=64, vocab_size=50)
    assert loss(bert) is None
    assert head_loss(small(), 48, 50, seed) is None
    r = draw_report(from_config(tiny, 4), size=4, rng=0)
    (said,) = [v.text for v in r.verdicts if v.name == "loss"]
    start = f"the loss starts at {r.loss.value:.4g}, which is log 50 = 3.912"
    assert said.startswith(start)


@pytest.mark.slow
@pytest.mark.power("five standard errors of the mean loss: a hundredth of it")
@pytest.mark.parametrize("std", [0.02, 0.125, 0.3])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_the_first_loss_is_that_of_torch(kind, std):
    "A tied head and one of its own: the mean loss of words that are not in the text."
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    common = dict(vocab_size=60, initializer_range=std, bos_token_id=0, eos_token_id=0)
    if kind == "gpt2":
        config = transformers.GPT2Config(
            n_positions=16, n_embd=64, n_layer=2, n_head=4, **common
        )
    else:
        config = transformers.LlamaConfig(
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=96,
            tie_word_embeddings=False,
            **common,
        )
    text = [5, 17, 3, 40]
    losses = []
    for k in range(150):
        torch.manual_seed(k)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([text])).logits[0].double()
        logs = torch.log_softmax(logits, -1).numpy()
        others = [w for w in range(60) if w not in text]
        losses.append(-logs[:, others].mean())
    losses = np.array(losses)
    t = from_config(config, text)
    found = head_loss(t, 64, None, np.random.SeedSequence(0))
    assert found.tied == (kind == "gpt2")
    error = losses.std(ddof=1) / np.sqrt(len(losses))
    assert abs(losses.mean() - found.value) < 5 * error + 0.01 * found.added
    assert abs(losses.mean() - np.log(60)) > 5 * error or std == 0.02


def test_a_file_that_does_not_say_whether_its_head_is_tied():
    "Families differ in that: Llama's head is its own, Gemma's the words."
    for kind, tied in dict(gpt2=True, llama=False, gemma=True, gpt_neox=False).items():
        config = dict(model_type=kind, vocab_size=60, num_hidden_layers=2)
        config |= dict(hidden_size=64, num_attention_heads=4, intermediate_size=96)
        t = from_config(config, 4)
        assert head_loss(t, t.width, None, np.random.SeedSequence(0)).tied == tied
        said = from_config(config | dict(tie_word_embeddings=not tied), 4)
        other = head_loss(said, t.width, None, np.random.SeedSequence(0))
        assert other.tied == (not tied)
    for name, words in {"gpt2": 50257, "pythia-like": 50304}.items():
        t = from_config(name, 2)
        assert head_loss(t, t.width, None, np.random.SeedSequence(0)).words == words


def test_many_biases_are_averaged_on_a_grid():
    "As one by one, up to the square of the grid's step."
    bias = np.random.default_rng(0).uniform(-1, 1, 1000)
    u = np.linspace(-5, 5, 401)
    values = np.cos(u)
    found = _mean_shifted(u, values, bias)
    exact = np.mean([np.interp(u + b, u, values) for b in bias], axis=0)
    np.testing.assert_allclose(found, exact, atol=(2 / 256) ** 2)


@pytest.mark.power("a third of the error with the spread of an unrelated word")
@pytest.mark.parametrize("of_any_length", [False, True])
def test_the_own_word_of_a_tied_head_varies_less(of_any_length):
    "Explicit tied heads: the state contains the row of its own word."
    n, V, a, std, size = 64, 85, 0.95, 0.1, 3000
    rng = np.random.default_rng(0)
    rows = std * rng.standard_normal((size, V, n))
    rms = lambda x: np.sqrt((x * x).mean(-1, keepdims=True))
    x = rows[:, 0] / (std if of_any_length else rms(rows[:, 0]))
    x = a * x + np.sqrt(1 - a * a) * rng.standard_normal((size, n))
    z = np.einsum("bvn,bn->bv", rows, x / rms(x))
    losses = np.log(np.exp(z).sum(1)) - z[:, 1:].mean(1)
    own, own_sd = n * std * _products(np.array([a]), n, of_any_length)
    found = expected_loss(V, std * np.sqrt(n), own, own_sd=own_sd)
    error = losses.std() / np.sqrt(size)
    assert abs(found - losses.mean()) < 0.005 + 5 * error < 0.05
    plain = expected_loss(V, std * np.sqrt(n), n * std * a)
    assert abs(found - losses.mean()) < abs(plain - losses.mean()) / 2
    np.testing.assert_allclose(own, z[:, 0].mean(), rtol=0.02)
    np.testing.assert_allclose(own_sd, z[:, 0].std(), rtol=0.1)
