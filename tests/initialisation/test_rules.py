"""Each initialisation rule by hand, for every kind of block."""

from dataclasses import replace

import numpy as np
import pytest
from scan_cases import SMALL, WORDS

from infattn_nb import Block, FeedForward, Norm, Rotary, SelfAttention, Transformer
from infattn_nb import from_config, scan
from infattn_nb.initialisation import with_rule
from infattn_nb.initialisation.rules import PUBLISHED_RULES, follows, scaled
from infattn_nb.initialisation.rules import score_scale_of, strength_of
from infattn_nb.nonlinearities import relu, silu


def first(t):
    return t.blocks[0], t.blocks[0].attention, t.blocks[0].feedforward


SIXTEEN = Transformer.uniform(
    np.eye(5), layers=16, heads=4, ff=4, activation=relu, final_norm=True, var_q=2.0
)
CAUSAL = Transformer.uniform(
    np.eye(5), layers=16, heads=4, ff=4, activation=relu, mask="causal"
)


def test_gpt2_by_hand():
    block, a, f = first(with_rule(SIXTEEN, "GPT-2"))
    assert (a.var_o, f.var_2, a.var_q, a.var_v, f.var_1) == (1 / 32, 1 / 32, 2, 1, 1)
    assert (block.norm_placement, block.branch_scale) == ("pre", 1.0)
    alone = Transformer.uniform(np.eye(3), layers=16, heads=4, ff=0)
    # one sum in a block
    assert with_rule(alone, "GPT-2").blocks[3].attention.var_o == 1 / 16


def test_tfixup_by_hand():
    for t, gain in ((SIXTEEN, 0.67 / 2), (CAUSAL, 12**-0.5)):
        ruled = with_rule(t, "T-Fixup")
        block, a, f = first(ruled)
        assert (block.norm_placement, ruled.last_norm, ruled.first_norm) == (
            None,
            None,
            None,
        )
        np.testing.assert_allclose(
            [a.var_q, a.var_k, a.var_v, a.var_o], [1, 1, gain**2, gain**2]
        )
        np.testing.assert_allclose([f.var_1, f.var_2], [0.4 * gain**2, 1.6 * gain**2])
        np.testing.assert_allclose(ruled.cov, np.eye(5) / 12)


def test_deepnorm_by_hand():
    ruled = with_rule(replace(SIXTEEN, cov=9 * np.eye(5)), "DeepNorm")
    block, a, f = first(ruled)
    np.testing.assert_allclose(ruled.cov, np.eye(5))
    assert (block.norm_placement, block.branch_scale, ruled.last_norm) == (
        "post",
        1.0,
        None,
    )
    np.testing.assert_allclose(block.skip_scale, 2.378414230005442)
    β2 = 0.08838834764831845  # (8·16)^(−1/2)
    np.testing.assert_allclose(
        [a.var_q, a.var_k, a.var_v, a.var_o, f.var_1, f.var_2],
        [1, 1, β2, β2, 0.4 * β2, 1.6 * β2],
    )


def test_depth_mup_by_hand():
    for t, width, m in (
        (SIXTEEN, None, 64),
        (SIXTEEN, 256, 64),
        (SIXTEEN, 1024, 256),
        (replace(SIXTEEN, width=512), None, 128),
    ):
        block, a, f = first(with_rule(t, "Depth-µP", width=width))
        np.testing.assert_allclose(
            [block.branch_scale, a.score_scale], [1 / 4, (64 / m) ** 0.5]
        )
        assert (a.var_q, a.var_o, f.var_2) == (2.0, 1.0, 1.0)


def test_deepscale_by_hand():
    ruled = with_rule(SIXTEEN, "DeepScaleLM")
    r = 0.0
    for block in ruled.blocks:
        a, f = block.attention, block.feedforward
        np.testing.assert_allclose(
            [block.skip_scale**2, block.branch_scale**2], [15 / 16, 1 / 16]
        )
        np.testing.assert_allclose(a.var_v * a.var_o, 1 / (r + (1 - r) / 5))
        np.testing.assert_allclose(
            [a.var_q, a.var_k, f.var_1, f.var_2], [1, 1, 2**-0.5, 4 * 2**-0.5]
        )  # their numbers for ReLU and four units
        r = 15 / 16 * r + 1 / 16
        r = (
            15 / 16 * r
            + 1 / 16 * (np.sqrt(1 - r * r) + r * (np.pi - np.arccos(r))) / np.pi
        )
    larger = Transformer.uniform(7 * np.eye(3), layers=4, heads=2)
    np.testing.assert_allclose(np.diag(with_rule(larger, "DeepScaleLM").cov), 1)


@pytest.mark.power("mean square of 10⁶ entries: half a per cent")
def test_xavier_is_what_a_program_draws(rng=0):
    "Fan-in × mean square of matrices drawn as T-Fixup's and DeepNorm's programs do."
    n, u, L = 512, 4, 16
    draw = np.random.default_rng(rng).normal
    gain = dict([("T-Fixup", 0.67 * L**-0.25), ("DeepNorm", (8 * L) ** -0.25)])
    for rule, g in gain.items():
        _, a, f = first(with_rule(SIXTEEN, rule))
        for fan_in, fan_out, var in (
            (n, n, a.var_v),
            (n, u * n, f.var_1),
            (u * n, n, f.var_2),
        ):
            W = g * draw(0, np.sqrt(2 / (fan_in + fan_out)), (fan_out, fan_in))
            assert abs(fan_in * np.mean(W**2) / var - 1) < 6 * np.sqrt(2 / W.size)


def test_strength_and_scores_by_hand():
    assert strength_of(SIXTEEN) == 1
    assert np.isclose(score_scale_of(SIXTEEN), np.sqrt(2))
    np.testing.assert_allclose(strength_of(with_rule(SIXTEEN, "GPT-2")), 32**-0.5)
    np.testing.assert_allclose(
        strength_of(with_rule(SIXTEEN, "T-Fixup")), 0.335**2 * 0.8**0.5
    )
    np.testing.assert_allclose(strength_of(scaled(SIXTEEN, 0.3, 5.0)), 0.3)
    np.testing.assert_allclose(
        score_scale_of(scaled(SIXTEEN, 0.3, 5.0)), 5 * np.sqrt(2)
    )
    assert np.isnan(score_scale_of(Transformer(np.eye(3), blocks=[Block(None)] * 2)))
    assert strength_of(Transformer.uniform(np.eye(3), heads=1, var_o=0.0)) == 0


LLAMA = Transformer(
    WORDS,
    blocks=[
        Block(
            SelfAttention(4, groups=2, head_width=8, rotary=Rotary(), mask="causal"),
            FeedForward(2.0, silu, gated=True),
            norm=Norm("rms"),
        )
    ]
    * 4,
    final_norm=True,
    first_norm=Norm(),
    width=32,
)
PARALLEL = Transformer(
    WORDS,
    blocks=[
        Block(SelfAttention(2, qk_norm=Norm()), FeedForward(), parallel=True),
        Block(None, FeedForward()),
    ]
    * 2,
    mean=0.3,
)


@pytest.mark.parametrize("rule", PUBLISHED_RULES)
@pytest.mark.parametrize("t", (LLAMA, PARALLEL), ids=("llama", "parallel"))
def test_rules_apply_to_every_kind_of_block(rule, t):
    ruled = with_rule(t, rule)
    assert ruled.width == t.width
    assert len(ruled.blocks) == 4
    for before, after in zip(t.blocks, ruled.blocks):
        for part in ("attention", "feedforward"):
            assert (getattr(before, part) is None) == (getattr(after, part) is None)
    assert np.isfinite(ruled.gradients(np.inf, 2, 0).tangent).all()
    if ruled.blocks[0].attention.groups and rule in ("T-Fixup", "DeepNorm"):
        assert np.isclose(ruled.blocks[0].attention.var_k, 4 / 3)  # n in, n/2 out


def test_a_rule_that_the_network_follows_already_is_said():
    gpt2 = from_config("gpt2", 3)
    found = scan(gpt2, residual=[1], scores=[1], rules=["GPT-2"], size=2, rng=0)
    assert "the row GPT-2 applies them twice" in repr(found)
    assert "the row" not in repr(
        scan(SMALL, residual=[1], scores=[1], rules=["GPT-2"], size=2, rng=0)
    )
    for rule in ("GPT-2", "Depth-µP"):
        assert follows(with_rule(SIXTEEN, rule), rule)
        assert not follows(SIXTEEN, rule)
    for rule in ("T-Fixup", "DeepNorm", "DeepScaleLM"):  # twice is once
        assert not follows(with_rule(SIXTEEN, rule), rule)
