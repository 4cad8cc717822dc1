"Several texts, frozen tables, factors and norms without tensors."

import numpy as np
import pytest
from with_transformers import TORCH, torch, transformers

from infattn_nb import from_config, from_torch, initialise

pytestmark = TORCH


def gpt2(**more):
    shape = dict(n_embd=16, n_layer=1, n_head=2, n_positions=8, vocab_size=20)
    torch.manual_seed(0)
    return transformers.GPT2Model(transformers.GPT2Config(**shape | more)).eval()


def test_each_text_has_its_own_positions():
    t = from_torch(gpt2(), texts=[[1, 2, 3, 4, 5], [6, 7, 8, 9, 1]])
    assert len(t.cov) == 10
    with pytest.raises(ValueError, match="at most 8 tokens"):
        from_torch(gpt2(), texts=9)


def test_a_table_that_is_not_trained_is_kept():
    m = gpt2()
    m.wpe.weight.requires_grad_(False)
    before = m.wpe.weight.clone()
    for net in (from_config(m.config, 4), from_torch(m, texts=4)):
        words = m.wte.weight.detach().clone()
        initialise(net, m, 0)
        assert torch.equal(before, m.wpe.weight)
        assert not torch.equal(words, m.wte.weight)
    # frozen as a whole: an initialisation all the same
    whole = gpt2().requires_grad_(False)
    before = whole.wpe.weight.clone()
    initialise(from_config(whole.config, 4), whole, 0)
    assert not torch.equal(before, whole.wpe.weight)


class Block(torch.nn.Module):
    "Pre-norm attention and MLP, with factors of the branches, and norms without gains."

    def __init__(self, n=32, scale=0.3):
        super().__init__()
        self.norm1, self.norm2 = (
            torch.nn.LayerNorm(n, elementwise_affine=False) for _ in range(2)
        )
        self.qkv = torch.nn.Linear(n, 3 * n, bias=False)
        self.out = torch.nn.Linear(n, n, bias=False)
        self.up = torch.nn.Linear(n, 2 * n, bias=False)
        self.down = torch.nn.Linear(2 * n, n, bias=False)
        self.gamma1, self.gamma2 = (
            torch.nn.Parameter(torch.full((n,), scale)) for _ in range(2)
        )

    def forward(self, x, skip=1.0):
        q, k, v = (
            self.qkv(self.norm1(x))
            .reshape(*x.shape[:2], 3, 4, -1)
            .permute(2, 0, 3, 1, 4)
        )
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = skip * x + self.gamma1 * self.out(y.transpose(1, 2).reshape(x.shape))
        y = torch.nn.functional.relu(self.up(self.norm2(x)))
        return skip * x + self.gamma2 * self.down(y)


class Model(torch.nn.Module):
    "Blocks with a scalar for the stream each, as in nanoGPT's speedrun."

    def __init__(self, scale=0.3):
        super().__init__()
        self.words = torch.nn.Embedding(20, 32)
        self.blocks = torch.nn.ModuleList(Block(scale=scale) for _ in range(2))
        self.skips = torch.nn.Parameter(torch.tensor([0.9, 0.7]))
        self.end = torch.nn.LayerNorm(32)

    def forward(self, ids):
        x = self.words(ids)
        for block, skip in zip(self.blocks, self.skips, strict=True):
            x = block(x, skip)
        return self.end(x)


ROLES = {
    "word": "words",
    "qkv": "blocks.*.qkv",
    "o": "blocks.*.out",
    "1": "blocks.*.up",
    "2": "blocks.*.down",
    "norm": ["blocks.*.norm1", "blocks.*.norm2"],
    "final_norm": "end",
    "branch_scale": ["blocks.*.gamma1", "blocks.*.gamma2"],
    "skip_scale": "skips",
}


def test_factors_and_norms_of_custom_modules():
    "Verified by running: LayerScale, a scalar for each block, norms without tensors."
    torch.manual_seed(0)
    how = dict(heads=4, activation="relu", mask="causal", texts=5)
    m = Model().eval()
    t = from_torch(m, roles=ROLES, **how)
    np.testing.assert_allclose([b.branch_scale for b in t.blocks], 0.3, rtol=1e-6)
    np.testing.assert_allclose([b.skip_scale for b in t.blocks], [0.9, 0.7], rtol=1e-6)
    initialise(t, m, 0)
    np.testing.assert_allclose(m.skips.detach(), [0.9, 0.7], rtol=1e-6)
    wrong = {k: x for k, x in ROLES.items() if k != "skip_scale"}
    with pytest.raises(ValueError, match="run like its description"):
        from_torch(m, roles=wrong, **how)


def test_the_message_states_the_factor_that_would_do():
    torch.manual_seed(0)
    m = Model().eval()
    m.skips.data.fill_(1.0)
    some = {k: x for k, x in ROLES.items() if k not in ("skip_scale", "branch_scale")}
    how = dict(heads=4, activation="relu", mask="causal", texts=5)
    with pytest.raises(
        ValueError, match=r"agrees if it is read with branch_scale=0.3;"
    ):
        from_torch(m, roles=some, **how)
    t = from_torch(m, roles=some, branch_scale=0.3, **how)
    np.testing.assert_allclose(t.blocks[0].branch_scale, 0.3)
