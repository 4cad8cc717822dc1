"""The part of a module that was read, and the nearest family, are named."""

import pytest
from drawn_modules import SMALL
from with_transformers import TORCH, transformers

from infattn_nb import from_config

pytestmark = TORCH


def test_names_that_are_near_no_family():
    with pytest.raises(ValueError, match="have a model_type among") as e:
        from_config(dict(model_type="gpt5", hidden_size=64), 4)
    assert "'t5'" not in str(e.value)
    roformer = transformers.RoFormerConfig().to_dict()
    with pytest.raises(ValueError, match="(bert|electra) has the most similar entries"):
        from_config(roformer, 4)


def test_the_part_that_was_read_is_named():
    c = transformers.LlavaConfig(
        text_config=transformers.LlamaConfig(**SMALL, vocab_size=50)
    )
    assert "read from text_config, a llama" in " ".join(repr(from_config(c, 4)).split())
