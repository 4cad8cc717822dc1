"""Blocks, front and positions of a module become one network."""

import numpy as np
import pytest
from drawn_modules import SAID, SMALL, TEXT, Own, read
from with_transformers import TORCH, torch, transformers

from infattn_nb import from_config, from_torch

pytestmark = TORCH


@pytest.mark.parametrize("name", ("sounds", "patches alone", "other names"))
def test_blocks_are_read_where_their_front_is_not(name):
    "With what enters the first block: each block runs as it is read, alone if need be."
    X = np.random.default_rng(0).standard_normal((5, 32))
    t = from_torch(SAID[name][0](), X)
    assert t.blocks[0].attention.mask is None
    assert t.width == 32


LONG = {
    "gpt2": (dict(n_embd=32, n_layer=1, n_head=2, n_positions=8), 8),
    "bert": (dict(**SMALL, max_position_embeddings=8), 8),
    "roberta": (dict(**SMALL, max_position_embeddings=8, pad_token_id=1), 6),
    "distilbert": (
        dict(dim=32, n_layers=1, n_heads=2, hidden_dim=64, max_position_embeddings=8),
        8,
    ),
    "opt": (
        dict(
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            ffn_dim=64,
            word_embed_proj_dim=32,
            max_position_embeddings=8,
        ),
        8,
    ),
}


@pytest.mark.parametrize("kind", LONG)
def test_texts_are_no_longer_than_positions(kind):
    "By config and as a module, at the number of tokens at which the module ends."
    own, most = LONG[kind]
    c = transformers.AutoConfig.for_model(kind, vocab_size=50, **own)
    module = transformers.AutoModel.from_config(c).eval()
    module(input_ids=torch.full((1, most), 5))
    with pytest.raises((IndexError, RuntimeError)):
        module(input_ids=torch.full((1, most + 1), 5))
    for source in (from_config, None):
        call = source or (lambda m, k: from_torch(m, texts=k))
        given = c if source else module
        assert len(call(given, most).cov) == most
        with pytest.raises(ValueError, match=f"{most}"):
            call(given, most + 1)


def test_words_alone_where_there_are_no_positions():
    "The mean square of the entries, where both tokens are one word, and else 0."
    module = Own()
    size = float(module.wte.weight.detach().double().square().mean())
    alike = np.equal.outer(TEXT, TEXT)
    np.testing.assert_allclose(read(module).cov, size * alike, rtol=1e-5)
