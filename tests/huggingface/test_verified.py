"A description that a module does not follow is not accepted."

import pytest
from role_modules import SHAPES, WRONG, drawn
from role_modules import read as read_by_roles
from with_transformers import TORCH, transformers

from infattn_nb import from_torch

pytestmark = TORCH


@pytest.mark.parametrize("name", SHAPES)
def test_a_wrong_description_is_not_accepted(name):
    with pytest.raises(
        ValueError, match="must run like its description, got an output of block 0"
    ) as e:
        read_by_roles(name, drawn(name), **WRONG[name])
    assert len(str(e.value).splitlines()) == 1
    read_by_roles(name, drawn(name), verify=False, **WRONG[name])


@pytest.mark.slow
def test_verification_of_gpt2_small_takes_three_passes():
    module = transformers.GPT2Model(transformers.GPT2Config()).eval()
    passes = []
    module.register_forward_hook(lambda *_: passes.append(1))
    from_torch(module, texts=16)
    assert len(passes) <= 3
