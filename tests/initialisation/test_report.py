"""A report says what chain and gradients say, in sentences, pictures and one file; the
file is whole, the same from run to run, and needs nothing else.
"""

import json
import pickle
import zlib
import re
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from conftest import nightly
from report_cases import TINY, WORDS, small

from infattn_nb import Block, FeedForward, SelfAttention, Transformer, from_config
from infattn_nb import report as draw_report
from infattn_nb.huggingface.config import READY
from infattn_nb.initialisation import Report, Thresholds
from infattn_nb.initialisation.diagnosis import drawn
from infattn_nb.initialisation.panels import PANELS
from infattn_nb.initialisation.quantities import QUANTITIES
from infattn_nb.initialisation.report import enough_width, file_of
from infattn_nb.numerics import parallel
from infattn_nb.transformer import Chain, Experts, embedding_cov

pytestmark = pytest.mark.xdist_group("report")  # its fixtures are made once
HERE = Path(__file__).parents[1]


def by_hand(t, g):
    "Cosines and shares of the entropy of some networks."
    d = np.sqrt(np.einsum("blii->bli", g.chain.gram))
    cosine = g.chain.gram / (d[..., None] * d[..., None, :])
    upper = np.triu_indices(len(t.cov), 1)
    share = g.chain.entropy[..., 1:] / np.log(np.arange(2, len(t.cov) + 1))
    return cosine[..., *upper].mean(-1), share.mean((-2, -1))


def test_numbers_are_those_of_gradients(report):
    "The same networks, drawn again from the same streams, and summed up by loops."
    t, seeds = small(var_q=9.0), np.random.SeedSequence(5).spawn(4)
    for seen, n, seed in (
        (report.measured.finite, 48, seeds[0]),
        (report.measured.limit, np.inf, seeds[1]),
    ):
        parts = [
            t.gradients(n, 4, child, readout=np.eye(6) / 6, count_readout=False)
            for child in seed.spawn(3)
        ]
        cosines, shares = (
            np.concatenate(x) for x in zip(*(by_hand(t, g) for g in parts))
        )
        np.testing.assert_allclose(seen.cosine, cosines, rtol=1e-10)
        np.testing.assert_allclose(seen.entropy, shares, rtol=1e-10)
        fan_in = dict(dict.fromkeys("qkvo1", 48)) | {"2": 4 * 48}  # of both records
        for name, squares in seen.squared_norms.items():
            units = np.concatenate([g.squared_unit_norms[name] for g in parts])
            np.testing.assert_allclose(squares, fan_in.get(name, 1) * units, rtol=1e-12)
            if n == 48:
                raw = np.concatenate([g.squared_weight_norms[name] for g in parts])
                np.testing.assert_allclose(squares, raw, rtol=1e-12)
        np.testing.assert_allclose(
            seen.tangent, sum(x.sum(-1) for x in seen.squared_norms.values())
        )
    again = draw_report(t, 48, 12, 5, relative=True).measured.finite
    first = np.random.SeedSequence(5).spawn(4)[0].spawn(3)[0]
    g = t.gradients(48, 4, first, readout=np.eye(6) / 6)
    for name, squares in again.squared_norms.items():
        np.testing.assert_allclose(squares[:4], g.squared_norms[name], rtol=1e-12)


def test_the_table_is_made_of_them(report):
    finite, table = report.measured.finite, report.table
    assert list(table.index) == [1, 2, 3]
    np.testing.assert_allclose(table["cosine"], finite.cosine[:, 1:].mean(0))
    np.testing.assert_allclose(
        np.log(table["queries, .grad"]), np.log(finite.squared_norms["q"]).mean(0) / 2
    )
    logs = np.log(sum(finite.squared_norms.values()))
    np.testing.assert_allclose(table["spread"], logs.std(0, ddof=1))
    last = report.spreads.iloc[-1]
    at, far = (np.log(x.tangent).var(ddof=1) for x in (finite, report.measured.limit))
    np.testing.assert_allclose(
        last,
        [at**0.5, far**0.5, far / at, last["±"], max(1, 48 * (at - far) / 0.05**2)],
    )
    np.testing.assert_allclose(report.share.value, far / at)


def test_the_kernel_beside_them():
    t = small(var_q=9.0)
    m, c = (
        draw_report(t, np.inf, 4, 3).measured,
        t.kernel(rng=np.random.SeedSequence(3).spawn(4)[2]),
    )
    np.testing.assert_allclose(m.cosine, c.cosine[:, *np.triu_indices(6, 1)].mean(-1))
    np.testing.assert_allclose(
        m.entropy, (c.entropy[:, 0, 1:] / np.log(np.arange(2, 7))).mean(-1)
    )


@pytest.mark.slow
@pytest.mark.power("an extrapolated width wrong by a factor of three")
def test_the_width_that_would_be_enough():
    "There, finite width adds the standard deviation that was asked for."
    t = small(var_q=2.0)
    near = draw_report(t, 24, 300, 0, thresholds=Thresholds(max_width_spread=0.2))
    n = 2 * int(near.spreads["enough width"].iloc[-1] / 2)
    there = draw_report(t, n, 300, 1).measured
    at, far = (np.log(x.tangent).var(ddof=1) for x in (there.finite, there.limit))
    assert 40 < n
    assert 1 / 3 < (at - far) / 0.2**2 < 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:this report takes")  # on a machine that is busy
@pytest.mark.power(
    "means 1.9 standard deviations apart, nightly 1.6, of every number at every block"
)
@pytest.mark.parametrize("size", nightly([24, 48], 48))
def test_gpt2_small_of_torch(size):
    """24 networks of Hugging Face's GPT-2 small (tests/torch_report.py), within their
    spread; a network with other variances is not.
    """
    stored = np.load(HERE / "data" / "report.npz")
    words = [f"t{k}" for k in range(16)]
    t = from_config("gpt2", words)

    def furthest(seen):
        ours = {
            "cosine": seen.cosine,
            "entropy": seen.entropy,
            "squares": np.log(
                np.stack(
                    [seen.squared_norms[k] for k in ("q", "k", "v", "o", "1", "2")],
                    axis=1,
                )
            ),
        }
        off = []
        for name, x in ours.items():
            y = (
                np.log(stored[name].astype(float))
                if name == "squares"
                else stored[name].astype(float)
            )
            sd = np.maximum(np.sqrt((x.var(0, ddof=1) + y.var(0, ddof=1)) / 2), 1e-5)
            off.append(
                abs(x.mean(0) - y.mean(0)).ravel()
                / sd.ravel()
                / np.sqrt(1 / len(x) + 1 / len(y))
            )
        return np.concatenate(off).max()

    read_as_stored = dict(relative=True, rng=0, readout="last")
    assert furthest(draw_report(t, size=size, **read_as_stored).measured.finite) < 6.5
    other = from_config(dict(READY["gpt2"], initializer_range=0.03), words)
    assert furthest(draw_report(other, size=8, **read_as_stored).measured.finite) > 20


# Verdicts


def verdict(name, t, width=np.inf, **options):
    found = draw_report(t, width, 8, 0, thresholds=Thresholds(**options)).verdicts
    return next((v for v in found if v.name == name), None)


@pytest.mark.long
def test_tokens_that_are_alike():
    found = verdict("cosine", Transformer.uniform(np.ones((3, 3)), layers=2))
    start = "tokens are alike after every block: the mean cosine is 1"
    assert found.text.startswith(start)
    assert found.text.endswith("1.00 before the first (alike: above 0.9)")
    assert not found.advice
    deep = Transformer.uniform(np.eye(6), layers=12, heads=2, norm_placement="post")
    r = draw_report(deep, np.inf, 8, 0)
    found = next(v for v in r.verdicts if v.name == "cosine")
    cosine = r.measured.finite.cosine.mean(0)
    first, last = np.flatnonzero(cosine > 0.9)[[0, -1]]
    assert found.mark == "!"
    assert f"after blocks {first}–{last}:" in found.text
    assert f"after block {np.argmax(cosine[1:]) + 1} and " in found.text
    assert verdict("cosine", deep, max_cosine=1.0).mark == "✓"
    assert verdict("cosine", Transformer.uniform([[1.0]], layers=2)).mark == "·"


def test_rows_that_look_at_one_token():
    sharp = Transformer.uniform(np.eye(8), layers=2, heads=2, var_q=1e4)
    assert verdict("entropy", sharp).mark == "!"
    assert "concentrated: below 0.25" in verdict("entropy", sharp).text
    assert verdict("entropy", sharp, min_entropy=0.0).mark == "✓"
    even = Transformer.uniform(np.eye(8), layers=2, heads=2, var_q=0.25)
    found = verdict("even", even)
    assert found.mark == "·"  # as known models
    assert "nearly uniform in every block" in found.text
    assert "Llama 0.71 < " in found.text
    asked = verdict("even", even, max_entropy=0.3)
    assert asked.mark == "!"  # beyond a threshold of one's own
    assert "Llama" not in asked.text
    assert verdict("even", even, max_entropy=1.0) is None


def test_gradients_are_compared_where_there_are_two():
    "Of a matrix in a single block nothing fades; names of one matrix are singular."
    attention = Block(SelfAttention(2), None)
    assert (
        verdict("depth", Transformer(np.eye(4), blocks=[attention, Block(None)])).text
        == "no matrix is in two blocks, so gradients cannot be compared between blocks"
    )
    said = verdict(
        "depth", Transformer(np.eye(4), blocks=[attention, Block(None), Block(None)])
    ).text
    number = r"[0-9.]+ \([\d.–]+ by seed\)"
    assert re.search(rf"of MLP (in|out) is at most {number} times", said)
    dead = Transformer.uniform(np.eye(4), layers=2, heads=2, ff=0, var_v=0.0, var_o=0.0)
    assert {verdict(name, dead).mark for name in ("dead", "spread")} == {"!"}
    assert verdict("depth", dead).mark == "·"
    assert "nan" not in repr(draw_report(dead, np.inf, 4, 0))


@pytest.mark.slow
def test_gradients_that_fade_and_starve():
    deep = Transformer.uniform(np.eye(8), layers=12, heads=8, ff=0, var_q=0.1)
    for name, mark, fine in (
        ("depth", "·", dict(max_gradient_ratio=1e9)),
        ("queries", "!", dict(min_query_gradient=0.0)),
    ):  # known models fade as much
        assert verdict(name, deep).mark == mark
        assert verdict(name, deep, **fine).mark == "✓"
    assert "uneven: above 10" in verdict("depth", deep).text
    assert "too small: below 0.1" in verdict("queries", deep).text


@pytest.mark.long
def test_networks_that_differ():
    wild = Transformer.uniform(
        np.eye(4), layers=6, heads=1, var_q=25.0, norm_placement="post"
    )
    assert verdict("spread", wild, max_spread=0.01).mark == "!"
    assert verdict("spread", wild, max_spread=9.0).mark == "✓"
    narrow = small()
    assert verdict("width", narrow, 32).mark == "!"
    assert verdict("width", narrow, 32, max_width_spread=9.0).mark == "✓"
    assert verdict("width", narrow).mark == "·"
    assert "less than 0.1" in verdict("width", narrow, 32, max_width_spread=0.1).text


def test_enough_width_by_hand():
    assert enough_width(100, 0.5, 0.25, 0.5) == 100
    assert enough_width(100, 0.2, 0.25, 0.5) == 1


KINDS = {
    "one token": Transformer.uniform([[1.0]], layers=2),
    "one block": Transformer.uniform(np.eye(3), layers=1, ff=0),
    "several texts": Transformer.uniform(
        np.eye(4), layers=2, heads=1, texts=[0, 0, 1, 1]
    ),
    "no attention": Transformer(np.eye(3), blocks=[Block(None, FeedForward())] * 2),
    "silent": Transformer.uniform(np.eye(3), layers=2, var_o=0.0, var_2=0.0),
}


def report_of_kind(name):
    t = KINDS[name]
    for width in (24, np.inf):
        found = draw_report(t, width, 4, 0)
        known = width < np.inf and t.blocks[0].attention is not None
        names = [v.name for v in found.verdicts]
        assert len(set(names)) == len(names)
        assert ("limit" in names) == known
        assert ("stream" in names) == (len(t.blocks) > 1)
        quiet = {"dead", "even"}  # are silent where they hold
        assert {q.name for q in QUANTITIES} - quiet <= {*names, *found.crossed}
        assert len(repr(found).splitlines()) <= 20
    assert len(found.table) == len(t.blocks)
    assert len(found.spreads)
    return found


@pytest.mark.parametrize("name", KINDS)
def test_networks_of_every_kind_have_one(name):
    report_of_kind(name)


@pytest.mark.parametrize("name", nightly(KINDS, *set(KINDS) - {"no attention"}))
def test_networks_of_every_kind_are_drawn(name):
    plt.close(report_of_kind(name).plot())


def test_heads_that_turn_keep_their_width():
    "As many angles as pairs of coordinates: at infinite width they are as they were."
    net = from_config(dict(READY["pythia-like"], num_hidden_layers=2), 5)
    m = draw_report(net, None, 4, 0).measured.limit
    own = [block.attention.head_width for block in net.blocks]
    assert own == [None, None]
    assert m.cosine.shape == (4, 3)
    blocks = [
        replace(b, attention=replace(b.attention, head_width=64)) for b in net.blocks
    ]
    kept = Transformer(
        net.cov, blocks=blocks, final_norm=net.final_norm, random_embeddings=True
    )
    seed = np.random.SeedSequence(0).spawn(4)[1]
    np.testing.assert_allclose(
        m.tangent, drawn(kept, np.inf, 4, seed, at=net.width).tangent
    )


# Files


@pytest.mark.long
def test_tables_of_the_page_are_those_of_the_report(report, page):
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', page, flags=re.S)
    cells = {name: re.findall("<td>(.*?)</td>", row) for name, row in rows}
    assert len(cells) == 3 + len(report.spreads)
    np.testing.assert_allclose(
        [float(x) for x in cells["2"]], report.table.loc[2], rtol=5e-3
    )


@pytest.fixture(scope="module")
def again():
    "The same report, from other workers."
    with parallel(3):
        return draw_report(
            small(var_q=9.0), 48, 12, 5, labels=WORDS, title="a <small> one"
        )


@pytest.mark.slow
def test_same_seed_same_bytes(again, page):
    "Twelve pictures and all the words."
    assert file_of(again, "html").decode() == page
    other = draw_report(small(var_q=9.0), 48, 12, 6)
    assert (
        other.measured.finite.cosine[:, 1:] != again.measured.finite.cosine[:, 1:]
    ).all()


# The command


def test_equal_words_share_an_embedding():
    net = from_config(json.loads(TINY), WORDS)
    assert net.cov[0, 4] == net.cov[1, 5] == 0.02**2
    assert net.cov[0, 1] == 0


def test_built_in_shapes_are_the_real_ones():
    files = {
        "gpt2": "gpt2",
        "bert-base": "bert-base-uncased",
        "llama-like": "Llama-2-7b-hf",
        "pythia-like": "pythia-160m",
    }
    assert set(files) == set(READY)
    for name, file in files.items():
        assert repr(from_config(name, 3)) == repr(
            from_config(HERE / "data" / "configs" / f"{file}.json", 3)
        )


# Plots


def test_what_is_drawn_is_the_chain(silent):
    t = small(var_q=4.0)
    c = t.chain(32, 70, 0, scores=True)
    ax = c.plot(beside=t.kernel(64, 1), beside_label="many heads")
    assert ax.get_legend().get_texts()[-1].get_text() == "many heads"
    thin, bold, dashed = ax.collections[0].get_segments(), *ax.lines
    alike = c.cosine[..., *np.triu_indices(6, 1)].mean(-1)
    assert len(thin) == 60  # of seventy
    np.testing.assert_allclose([x[:, 1] for x in thin], alike[:60])
    np.testing.assert_allclose(bold.get_ydata(), alike.mean(0))
    np.testing.assert_allclose(
        dashed.get_ydata(), t.kernel(64, 1).cosine[:, *np.triu_indices(6, 1)].mean(-1)
    )
    np.testing.assert_allclose(
        c.plot(what="entropy").lines[0].get_ydata(), c.entropy.mean((0, 2, 3))
    )
    ax = c.plot(what="attention", labels=WORDS, network=7, block=2, head=1)
    drawn = np.asarray(ax.images[0].get_array().filled(0))
    np.testing.assert_allclose(drawn.sum(1), 1)
    entropy = -(drawn * np.log(np.where(drawn > 0, drawn, 1))).sum(1)
    np.testing.assert_allclose(entropy, c.entropy[7, 2, 1], atol=1e-12)
    assert (
        [x.get_text() for x in ax.get_xticklabels()]
        == WORDS
        == [x.get_text() for x in ax.get_yticklabels()]
    )


def test_several_texts_are_compared_each_with_itself(silent):
    t = Transformer.uniform(
        embedding_cov([WORDS, WORDS]), layers=2, heads=2, texts=[0] * 6 + [1] * 6
    )
    c = t.chain(16, 3, 0)
    both = [c.between(i, i).cosine[..., *np.triu_indices(6, 1)] for i in (0, 1)]
    np.testing.assert_allclose(
        c.plot().lines[0].get_ydata(), np.concatenate(both, axis=-1).mean((0, 2))
    )


@pytest.mark.long
def test_results_are_what_they_say(report):
    assert isinstance(report, Report)
    assert isinstance(small().chain(8), Chain)
    with pytest.raises(AttributeError):
        report.width = 5
    fig = report.plot()
    assert len(fig.axes) == 6
    assert [ax.get_title() for ax in fig.axes] == [p.title for p in PANELS]
    plt.close(fig)


# The loss of the head


def test_a_report_on_a_mixture_of_experts():
    "There is no deterministic limit of many heads beside it."
    mixture = Experts(4, 2, FeedForward(1, "relu"))
    block = Block(SelfAttention(heads=2), mixture)
    net = Transformer(np.eye(3), [block] * 2, random_embeddings=True)
    found = draw_report(net, width=16, size=4, rng=0)
    assert "the blocks contribute" in repr(found)
    assert found.table["cosine, many heads"].isna().all()
    found.plot()


def test_a_report_saved_before_there_were_experts(tmp_path):
    "Of the commit before; three tokens, two blocks of Llama and 20 networks."
    stored = (HERE / "data" / "report_before_experts.pkl.z").read_bytes()
    old = pickle.loads(zlib.decompress(stored))
    assert "experts" not in vars(old.measured.finite)
    assert old.measured.finite.experts is None
    entries = dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1)
    entries |= dict(num_hidden_layers=2, intermediate_size=64, vocab_size=9)
    new = draw_report(
        from_config(dict(model_type="llama") | entries, 3), size=20, rng=0
    )
    assert old.table.index.equals(new.table.index)
    assert old.table.columns.equals(new.table.columns)
    assert old.numbers().keys() == new.numbers().keys()
    assert [x.name for x in old.verdicts] == [x.name for x in new.verdicts]
    assert len(old.details) == len(new.details)
    assert len(old.save(tmp_path / "old.html").read_bytes()) > 10_000
