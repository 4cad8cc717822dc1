"""What somebody with a model meets: one meaning of a text, names and near misses,
errors with a reason and before any work, scans and reports that say what to
multiply.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from config_cases import LLAMA

from infattn_nb import Transformer, from_config, report, scan
from infattn_nb.huggingface import init_table
from infattn_nb.huggingface.config import FAMILIES, MODELS
from infattn_nb.huggingface.weights import handles_of
from infattn_nb.initialisation import Scan, with_rule
from infattn_nb.initialisation.diagnosis import depth_ratio, drawn
from infattn_nb.initialisation.quantities import PEERS, WIDTH, Thresholds, quantity
from infattn_nb.initialisation.rules import scaled

HUB = Path(__file__).parents[1] / "data" / "configs"
SMALL = dict(model_type="gpt2", n_embd=64, n_layer=3, n_head=4)

# A text with more tokens than half of the width


@pytest.fixture(scope="module")
def long():
    return report(from_config(SMALL, 40), size=4, rng=0)


@pytest.mark.long
def test_long_texts_are_reported(long):
    "Gradients, too, are those of width 64."
    assert not np.allclose(long.measured.finite.tangent, long.measured.limit.tangent)
    assert not np.allclose(long.measured.finite.cosine, long.measured.limit.cosine)
    assert [name for name in long.spreads.index if "Θ" in name or "θ" in name]


# Advice

DEEP = from_config(SMALL | dict(n_layer=6), 6)
COLLAPSED = DEEP.altered(lambda a: dict(score_scale=1500.0))


@pytest.fixture(scope="module")
def reported():
    return report(COLLAPSED, size=8, rng=0)


def test_advice_is_the_mildest_factor_that_is_enough(reported):
    "Tried again: it is enough, and the milder factor before it is not."
    assert "entropy" in reported.advice
    assert {v.name for v in reported.verdicts if v.advice} == set(reported.advice)
    sentence = reported.advice["entropy"]
    times = float(sentence.partition("× ")[2].partition(" would")[0]) ** 2
    factors = np.array([1, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01])
    k = int(np.argmin(abs(factors - times)))
    least = [
        quantity("entropy").value(
            drawn(
                scaled(COLLAPSED, 1.0, f),
                np.inf,
                4,
                np.random.SeedSequence(3),
                gradients=False,
            )
        )
        for f in factors[k - 1 : k + 1]
    ]
    assert "the q and k of c_attn" in sentence
    assert abs(factors[k] - times) < 0.03 * times
    assert least[1] > 0.2
    assert least[0] < least[1]
    assert least[0] < 0.3


def test_advice_that_does_not_exist_is_not_given():
    "No factor helps tokens that are alike before the first block."
    same = report(
        Transformer.uniform(np.ones((4, 4)) + 1e-9 * np.eye(4), layers=2, heads=2),
        32,
        4,
        0,
    )
    assert "cosine" not in same.advice
    alike = {v.name: v for v in same.verdicts}["cosine"]
    assert alike.mark == "!"
    assert not alike.advice


def test_which_end_gets_more():
    "Early blocks where the stream grows; late ones where branches get stronger."
    grows = Transformer.uniform(1e-4 * np.eye(4), layers=8, heads=2)
    even = Transformer.uniform(np.eye(4), layers=8, heads=2)
    scales = 0.02 * 2.0 ** np.arange(8)
    blocks = [replace(b, branch_scale=x) for b, x in zip(even.blocks, scales)]
    strict = Thresholds(max_gradient_ratio=1.5)
    for t, end in ((grows, "early"), (replace(even, blocks=blocks), "late")):
        found = report(t, 32, 6, 0, thresholds=strict)
        said = {v.name: v for v in found.verdicts}["depth"].text
        θ = found.measured.finite.squared_norms
        worst = max(θ, key=lambda k: depth_ratio(θ[k]))
        first, last = θ[worst].mean(0)[[0, -1]]
        assert f"larger in the {end} blocks" in said
        assert (first > last) == (end == "early")


PEER_CONFIGS = {
    "GPT-2": "gpt2",
    "BERT": "bert-base-uncased",
    "Pythia": "pythia-160m",
    "Qwen": "Qwen2.5-0.5B",
}


@pytest.mark.slow
@pytest.mark.power(
    "a factor 1.5 of the ratio across depth and of the distance to even rows, a factor "
    "2 of the spread that width adds"
)
@pytest.mark.parametrize("name", PEER_CONFIGS)
def test_known_models_are_drawn_again(name):
    t = from_config(HUB / f"{PEER_CONFIGS[name]}.json", 16)
    finite, limit = (
        drawn(t, n, size, np.random.SeedSequence(size))
        for n, size in ((t.width, 20), (np.inf, 40))
    )
    both = SimpleNamespace(width=t.width, finite=finite, limit=limit)
    depth = quantity("depth").value(finite)
    assert 1 / 1.5 < depth / PEERS["depth"][name] < 1.5
    assert 0.4 < WIDTH.value(both) / PEERS["width"][name] < 2.2
    even = quantity("even").value(finite)
    assert 1 / 1.5 < (1 - even) / (1 - PEERS["even"][name]) < 1.5


def test_raw_gradients_stand_beside():
    ".grad is the variance-one gradient over the entries' deviation."
    t = from_config(LLAMA, 5)
    found = report(t, size=4, rng=0)
    for k, name in dict(q="queries", o="attention out").items():
        part = t.blocks[0].attention
        over = np.sqrt(part.fan_in(k, 64) / getattr(part, f"var_{k}"))
        np.testing.assert_allclose(
            found.table[f"{name}, .grad"], over * found.table[f"{name}, .grad × sd"]
        )
    g = t.gradients(64, 5, 0)
    np.testing.assert_allclose(
        g.squared_weight_norms["q"],
        g.squared_norms["q"] * 64 / t.blocks[0].attention.var_q,
    )


# Scans


@pytest.fixture(scope="module")
def found():
    return scan(
        from_config(LLAMA, 5),
        residual=[0.3, 1, 3],
        scores=[1, 4],
        embeddings=[1, 20],
        rules=("gpt-2",),
        width=np.inf,
        size=4,
        rng=0,
    )


def test_embeddings_are_an_axis(found):
    grid = found.table.query("rule == ''")
    assert len(grid) == 12
    assert set(grid["embeddings"]) == {1, 20}
    row = grid.iloc[7]
    t = found.network(7)
    own = from_config(LLAMA, 5)
    np.testing.assert_allclose(t.cov, row["embeddings"] ** 2 * own.cov)
    alone = scan(
        t, residual=[1], scores=[1], rules=(), width=np.inf, size=4, rng=0
    ).table.iloc[0]
    np.testing.assert_allclose(alone["score"], row["score"])


def test_network_is_that_of_the_cell(found):
    grid = found.table.query("rule == ''")
    best = grid.loc[grid["score"].idxmin()]
    t = found.network()
    assert (t.blocks[0].branch_scale, t.blocks[0].attention.score_scale) == (
        best["residual"],
        best["scores"],
    )
    assert repr(found.network(best)) == repr(t) == repr(found.network(int(best.name)))
    assert repr(found.network(-1)) == repr(with_rule(from_config(LLAMA, 5), "GPT-2"))
    reported = init_table(t).set_index("parameter")["times"]
    np.testing.assert_allclose(
        reported[
            [
                "model.layers.*.self_attn.o_proj.weight",
                "model.layers.*.self_attn.q_proj.weight",
                "model.embed_tokens.weight",
            ]
        ],
        [best["residual"], best["scores"] ** 0.5, best["embeddings"]],
    )
    with pytest.raises(ValueError, match="a table that was read back"):
        Scan(found.table).network()
    with pytest.raises((ValueError, TypeError), match="`cell`"):
        found.network(99)


# Names of tensors


def test_handles_of_every_family():
    "Names that stand in the family's layout, and none twice."
    shape = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
    shape |= dict(num_key_value_heads=2, intermediate_size=64)
    own = dict.fromkeys([kind for kind in MODELS if "gemma" in kind], dict(head_dim=16))
    own |= dict.fromkeys(["gptj", "codegen"], dict(rotary_dim=8))
    own |= dict(electra=dict(embedding_size=64))
    own |= dict(gpt_neo=dict(attention_types=[[["global"], 2]]))
    for kind in MODELS:
        family = FAMILIES[kind]
        if family.encoder or family.latent:
            continue
        sizes = SMALL if kind == "gpt2" else shape | own.get(kind, {})
        handles = handles_of(from_config(sizes | dict(model_type=kind), 4))
        # tokens that are given have no tensors
        for said in handles[:2] if family.before else handles:
            said = said.replace("the q and k of ", "").replace(",", " and")
            names = [name.strip() for name in said.split(" and ")]
            tensors = [tensor.name for tensor in family.layouts[0]]
            assert all(any(name in x for x in tensors) for name in names)
            assert len(set(names)) == len(names)


# What .grad holds, other widths, JSON


def test_standard_deviations_may_stay():
    "At twice the width a std of .02 is another network than fan-in × variance."
    small, wide = (
        from_config(LLAMA | dict(hidden_size=n, intermediate_size=3 * n), 4)
        for n in (64, 128)
    )
    for name in ("chain", "gradients"):
        a, b, c = (
            getattr(t, name)(128, 3, 0, **more)
            for t, more in ((small, dict(fixed="std")), (wide, {}), (small, {}))
        )
        np.testing.assert_allclose(a.gram, b.gram, rtol=1e-9)
        assert not np.allclose(c.gram, b.gram, rtol=0.1)
    assert "fixed='std'" in report(small, 128, 4, 0, fixed="std").call
    for call, text in (
        (lambda: small.chain(128, fixed="both"), "`fixed`"),
        (
            lambda: Transformer.uniform(np.eye(2)).chain(24, fixed="std"),
            "has no width of its own",
        ),
        (lambda: small.chain(np.inf, fixed="std"), "`width` must be finite"),
    ):
        with pytest.raises(ValueError, match=text):
            call()


def test_a_matrix_that_starts_at_zero_has_numbers():
    "W_O = W_2 = 0 and W_Q = 0 have a gradient."
    base = from_config(SMALL, 5)
    for zero, alive in ((dict(o=0, b2=0), "o2"), (dict(q=0), "qvo12")):
        t = base.altered(
            lambda a: {f"var_{k}": 0.0 for k in zero if hasattr(a, f"var_{k}")},
            lambda f: dict(var_2=0.0) if "o" in zero else {},
        )
        r = report(t, size=4, rng=0)
        for k in alive:
            name = dict(q="queries", v="values", o="attention out") | {
                "1": "MLP in",
                "2": "MLP out",
            }
            assert (r.table[f"{name[k]}, .grad"] > 0).all()
            assert np.isfinite(r.table[f"{name[k]}, .grad"]).all()
        assert not any("all gradients are zero" in v.text for v in r.verdicts)
