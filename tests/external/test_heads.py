"""The head of a language model is a tensor like the others: measured, compared with the
intended initialisation, listed, written, trained, and part of the loss at the start.
"""

import numpy as np
import pytest
from conftest import departures
from with_transformers import TORCH, torch, transformers

from infattn_nb import from_config, from_torch, initialise, report
from infattn_nb.huggingface import init_table
from infattn_nb.initialisation.head_loss import head_loss

pytestmark = TORCH
WORDS = 85
SHAPE = dict(
    vocab_size=WORDS,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=96,
    bos_token_id=0,
    eos_token_id=0,
    pad_token_id=None,
)
TEXT = [5, 17, 3, 40]


def llama(std=None, kind="llama", **more):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **SHAPE | more)
    m = transformers.AutoModelForCausalLM.from_config(config).eval()
    if std is not None:
        m.lm_head.weight.data.normal_(0, std) if std else m.lm_head.weight.data.zero_()
    return m


def loss_of(t, words=None):
    return head_loss(t, t.width, words, np.random.SeedSequence(0))


def mean_loss(logits):
    "Over the words that are not in the text."
    logs = torch.log_softmax(logits.double(), -1).detach().numpy()
    return -logs[:, [w for w in range(WORDS) if w not in TEXT]].mean()


@pytest.mark.parametrize("std", [1.0, 0.0])
def test_an_untied_head_is_measured(std):
    m = llama(std)
    t = from_torch(m, texts=[TEXT])
    torch_loss = mean_loss(m(input_ids=torch.tensor([TEXT])).logits[0])
    found = loss_of(t)
    assert not found.tied
    np.testing.assert_allclose(found.std, std, atol=0.05)
    np.testing.assert_allclose(found.value, torch_loss, rtol=0.3 if std else 1e-6)
    ((name, factor),) = departures(t)
    assert name == "lm_head"
    np.testing.assert_allclose(factor, std / 0.02, rtol=0.05)
    row = init_table(t).set_index("parameter").loc["lm_head.weight"]
    np.testing.assert_allclose(row["std"], std, rtol=0.05)
    rows = init_table(from_config(m.config, [TEXT])).set_index("parameter")
    assert rows.loc["lm_head.weight", "std"] == 0.02
    other = llama()
    initialise(t, other, 0)
    np.testing.assert_allclose(other.lm_head.weight.std().item(), std, atol=0.05)
    p, _ = t.program(readout="lm")
    (head,) = [x for x in p.parameters if x.name == "lm_head"]
    np.testing.assert_allclose(np.sqrt(head.var), std, atol=0.05)
    assert departures(from_torch(llama(), texts=4)) == []


def test_the_intended_head_is_that_of_promised():
    t = from_torch(llama(1.0), texts=[TEXT], promised=from_torch(llama(1.0), texts=4))
    assert not departures(t)
    mine = llama().config.to_dict() | dict(initializer_range=0.04)
    found = dict(departures(from_torch(llama(1.0), texts=4, promised=mine)))
    np.testing.assert_allclose(found["lm_head"], 25, rtol=0.05)
    named = from_torch(llama(1.0), texts=[TEXT], config=True)
    assert named.source.head.std == 0.02


def test_heads_that_are_no_draws():
    m = llama()
    m.lm_head.weight.data[3] *= 1e3
    with pytest.warns(UserWarning, match="entries of its head"):
        from_torch(m, texts=4)
    m.lm_head.weight.data[3] = np.nan
    with pytest.raises(ValueError, match=r"NaN or ∞ in lm_head"):
        from_torch(m, texts=4)


def test_biases_of_a_head():
    m = llama(kind="phi")
    spike = m.lm_head.bias.data
    spike[7] = 20.0
    t = from_torch(m, texts=[TEXT])
    torch_loss = mean_loss(m(input_ids=torch.tensor([TEXT])).logits[0])
    np.testing.assert_allclose(loss_of(t).value, torch_loss, rtol=0.01)
    assert "biases of size" in loss_of(t).said
    assert ("lm_head.bias", np.inf) in departures(t)
    with pytest.raises(ValueError, match=r"lm_head\.bias; set it to zero"):
        t.program(readout="lm")
    spike.normal_(0, 2.0)
    t = from_torch(m, texts=[TEXT])
    torch_loss = mean_loss(m(input_ids=torch.tensor([TEXT])).logits[0])
    np.testing.assert_allclose(loss_of(t).value, torch_loss, rtol=0.02)
    p, _ = t.program(readout="lm")
    (bias,) = [x for x in p.parameters if x.name == "lm_head.bias"]
    np.testing.assert_allclose(bias.var, 4, rtol=0.5)


class Decoder(torch.nn.Module):
    "Pre-norm blocks of torch, embeddings and a head."

    def __init__(self, tied, std):
        super().__init__()
        n = 64
        self.words = torch.nn.Embedding(WORDS, n)
        layer = torch.nn.TransformerEncoderLayer
        one = dict(norm_first=True, batch_first=True, dropout=0.0)
        self.layers = torch.nn.ModuleList(layer(n, 4, 96, **one) for _ in range(2))
        self.end = torch.nn.LayerNorm(n)
        self.logits = torch.nn.Linear(n, WORDS, bias=False)
        torch.nn.init.normal_(self.logits.weight, 0, std)
        torch.nn.init.normal_(self.words.weight, 0, std)
        if tied:
            self.logits.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(ids.shape[-1])
        for layer in self.layers:
            x = layer(x, src_mask=mask)
        return self.logits(self.end(x))


ROLES = {
    "word": "words",
    "qkv": "layers.*.self_attn.in_proj_weight",
    "o": "layers.*.self_attn.out_proj",
    "1": "layers.*.linear1",
    "2": "layers.*.linear2",
    "norm": ["layers.*.norm1", "layers.*.norm2"],
    "final_norm": "end",
}


@pytest.mark.parametrize("tied", [True, False])
def test_heads_by_roles(tied):
    torch.manual_seed(0)
    m = Decoder(tied, 0.3).eval()
    how = dict(heads=4, activation="relu", mask="causal", texts=[TEXT])
    t = from_torch(m, roles=ROLES | {"head": "logits"}, **how)
    found = loss_of(t)
    assert found.tied == tied
    np.testing.assert_allclose(found.std, 0.3, rtol=0.05)
    torch_loss = mean_loss(m(torch.tensor([TEXT]))[0])
    np.testing.assert_allclose(found.value, torch_loss, rtol=0.2)
    assert ("logits.weight" in set(init_table(t)["parameter"])) == (not tied)
    before = m.logits.weight.detach().clone()
    initialise(t, m, 1)
    assert not torch.equal(before, m.logits.weight)
    r = report(t, size=4, rng=0)
    assert [v.name for v in r.verdicts].count("loss") == 1
    bare = from_torch(m, roles=ROLES, **how)
    assert report(bare, size=4, rng=0).loss is None
    assert report(bare, size=4, rng=0, vocab_size=WORDS).loss.tied
    with pytest.raises(ValueError, match="name a head of shape"):
        from_torch(m, roles=ROLES | {"head": "end"}, **how)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["olmo2", "gemma", "gemma2", "cohere", "granite"])
def test_the_loss_of_heads_with_factors_and_caps(kind):
    more = dict(num_key_value_heads=4, head_dim=16) if "gemma" in kind else {}
    more |= dict(gemma2=dict(final_logit_softcapping=2.0)).get(kind, {})
    more |= dict(cohere=dict(logit_scale=0.3), granite=dict(logits_scaling=0.4)).get(
        kind, {}
    )
    if kind != "gemma":
        more |= dict(num_key_value_heads=4)
    config = transformers.AutoConfig.for_model(
        kind, **SHAPE | more, initializer_range=0.1
    )
    losses = []
    for seed in range(150):
        torch.manual_seed(seed)
        m = transformers.AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            losses.append(mean_loss(m(input_ids=torch.tensor([TEXT])).logits[0]))
    found = loss_of(from_config(config, [TEXT]))
    error = np.std(losses, ddof=1) / np.sqrt(len(losses))
    assert abs(np.mean(losses) - found.value) < 5 * error + 0.01 * found.added
    assert found.added > 20 * error
