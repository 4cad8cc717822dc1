"""A report says what chain and gradients say, in sentences, pictures and one file; the
file is whole, the same from run to run, and needs nothing else.
"""

import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from conftest import nightly
from scipy.stats import ks_2samp

from infattn_nb import (
    Attention,
    AttentionRegressor,
    Block,
    Chain,
    FeedForward,
    Norm,
    Report,
    Rotary,
    SelfAttention,
    Thresholds,
    Tokens,
    Transformer,
    embedding_cov,
    from_config,
    limit_error,
    make_recall,
    parallel,
    report as draw_report,
)
from infattn_nb.huggingface.config import READY
from infattn_nb.initialisation import infattn_report
from infattn_nb.initialisation import html as html_module
from infattn_nb.initialisation import report as report_module
from infattn_nb.initialisation.diagnosis import drawn, living_norms
from infattn_nb.initialisation.head_loss import expected_loss, head_loss
from infattn_nb.initialisation.html import of_few_colours, picture_of
from infattn_nb.initialisation.measured import default_size, first_layer
from infattn_nb.initialisation.panels import PANELS, Focused, six_panels
from infattn_nb.initialisation.quantities import QUANTITIES
from infattn_nb.initialisation.report import (
    DETAILS,
    blocks_said,
    enough_width,
    file_of,
    rounded,
)
from infattn_nb.initialisation.report_command import report_of
from infattn_nb.initialisation.rules import scaled
from infattn_nb.nonlinearities import identity

pytestmark = pytest.mark.xdist_group("report")  # its fixtures are made once
HERE = Path(__file__).parents[1]
COMMAND = Path(sys.executable).with_name("infattn_report")
WORDS = "to be or not to be".split()


def small(**options):
    return Transformer.uniform(
        embedding_cov(WORDS, 1.0, 0.3),
        layers=3,
        heads=2,
        mask="causal",
        final_norm=True,
        **options,
    )


@pytest.fixture(scope="module")
def report():
    return draw_report(small(var_q=9.0), 48, 12, 5, labels=WORDS, title="a <small> one")


@pytest.fixture(scope="module")
def page(report):
    return file_of(report, "html").decode()


@pytest.fixture(scope="module")
def sheets(report):
    return {kind: file_of(report, kind) for kind in ("png", "pdf")}


# Numbers


def by_hand(t, g):
    "Cosines, shares of the entropy and typical norms of some networks, token by token."
    s, L = len(t.cov), len(t.blocks)
    cosines, shares = np.zeros((len(g.gram), L + 1)), np.zeros((len(g.gram), L))
    for b, K in enumerate(g.chain.gram):
        for l in range(L + 1):
            cosines[b, l] = np.mean(
                [
                    K[l, i, j] / np.sqrt(K[l, i, i] * K[l, j, j])
                    for i in range(s)
                    for j in range(i)
                ]
            )
        for l in range(L):
            shares[b, l] = np.mean(
                [
                    g.chain.entropy[b, l, h, i] / np.log(i + 1)
                    for h in range(t.most_heads)
                    for i in range(1, s)
                ]
            )
    return cosines, shares


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
        for name, θ in seen.squared_norms.items():
            np.testing.assert_array_equal(
                θ, np.concatenate([g.squared_norms[name] for g in parts])
            )
        np.testing.assert_allclose(
            seen.tangent, np.concatenate([g.tangent for g in parts])
        )


def test_the_table_is_made_of_them(report):
    finite, table = report.measured.finite, report.table
    assert list(table.index) == [1, 2, 3]
    np.testing.assert_allclose(table["cosine"], finite.cosine[:, 1:].mean(0))
    np.testing.assert_allclose(
        np.log(table["queries"]), np.log(finite.squared_norms["q"]).mean(0) / 2
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


@pytest.mark.power("means 1.6 standard deviations apart, of every number")
def test_the_chain_alone_says_the_same():
    "Other networks, drawn by `chain`, which knows nothing of gradients."
    t = small(var_q=4.0)
    seen, c = draw_report(t, 32, 60, 0).measured.finite, t.chain(32, 60, 1)
    alike, pairs = c.cosine, np.triu_indices(6, 1)
    for ours, theirs in zip(seen.cosine[:, 1:].T, alike[:, 1:][..., *pairs].mean(-1).T):
        assert ks_2samp(ours, theirs).pvalue > 1e-7
    share = (c.entropy[..., 1:] / np.log(np.arange(2, 7))).mean((-2, -1))
    for ours, theirs in zip(seen.entropy.T, share.T):
        assert ks_2samp(ours, theirs).pvalue > 1e-7
    assert (
        ks_2samp(seen.cosine[:, -1], alike[:, 1][..., *pairs].mean(-1)).pvalue < 1e-7
    )  # the wrong block is seen


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
    """At the width that is said, finite width adds the standard deviation that was
    asked for.
    """
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

    read_as_stored = dict(rng=0, readout="last")
    assert furthest(draw_report(t, size=size, **read_as_stored).measured.finite) < 6.5
    other = from_config(dict(READY["gpt2"], initializer_range=0.03), words)
    assert furthest(draw_report(other, size=8, **read_as_stored).measured.finite) > 20


# Verdicts


def verdict(name, t, width=np.inf, **options):
    found = draw_report(t, width, 8, 0, thresholds=Thresholds(**options)).verdicts
    return next((v for v in found if v.name == name), None)


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
    assert re.search(rf"MLP (in|out) receives at most {number} times", said)
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


def test_blocks_are_said_as_one_says_them():
    said = {
        "block 2": [0, 1, 0],
        "blocks 2–3": [0, 1, 1],
        "every block": [1, 1, 1],
        "2 of 4 blocks": [1, 0, 0, 1],
    }
    for words, which in said.items():
        assert blocks_said(np.array(which, bool)) == words
    assert [rounded(x) for x in (7, 149, 6858.6, 1.402e8, np.inf)] == [
        "7",
        "150",
        "6,900",
        "140,000,000",
        "∞",
    ]
    assert enough_width(100, 0.5, 0.25, 0.5) == 100
    assert enough_width(100, 0.2, 0.25, 0.5) == 1


@pytest.mark.slow
@pytest.mark.power("kurtosis of the first layer: a tenth")
@pytest.mark.parametrize(
    "change",
    nightly(
        [dict(var_q=3.0), dict(heads=8, head_width=8), dict(var_q=36.0)],
        dict(var_q=3.0),
        dict(var_q=36.0),
    ),
    ids=str,
)
def test_the_first_layer_is_what_good_enough_says(change, seed=0):
    "By its own draws; a layer of other scores or other heads is not."
    t = Transformer.uniform(
        np.eye(3), layers=2, heads=4, var_q=9.0, var_k=4.0, mask="causal"
    )
    t = scaled(t, 1.0, 0.5)
    said = lambda **change: (
        limit_error(
            Attention(
                Tokens(3, identity, np.eye(3)),
                **dict(heads=4, head_width=16, var_q=9.0) | change,
            ),
            64,
            draws=2**16,
            rng=seed,
        ).numbers
    )
    x = first_layer(t, 64, np.random.SeedSequence(seed + 1))

    def off(numbers, *names):
        return max(abs(np.log(x[name] / numbers[name])) for name in names)

    kurtosis = "kurtosis", "limit kurtosis"
    assert x["tokens"] == 3
    assert off(said(), *kurtosis) < 0.08
    tails = "beyond 6 sd", "limit beyond 6 sd"
    assert off(said(), *tails) < 0.5  # ten and six standard errors
    assert off(said(**change), *kurtosis) > 0.12


def test_other_layers_are_passed_over():
    cov = np.eye(3)

    def alone(t, width=24):
        return first_layer(t, width, np.random.SeedSequence(0))

    def of(width=24, **fields):
        return alone(
            Transformer(cov, blocks=[Block(SelfAttention(4, **fields))]), width
        )

    assert of() is not None
    assert of(groups=4) is not None
    assert of(head_width=6) is not None
    assert of(mask="causal") is not None
    for fields in (
        dict(rotary=Rotary()),
        dict(qk_norm=Norm()),
        dict(softcap=3.0),
        dict(bias=cov),
        dict(groups=2),
        dict(head_width=8),
        dict(width=np.inf),
    ):
        assert of(**fields) is None, fields
    later = Transformer(cov, blocks=[Block(None), Block(SelfAttention(4))])
    assert alone(later) == of()
    assert alone(Transformer(cov, blocks=[Block(None)])) is None
    assert alone(Transformer.uniform(np.eye(20), heads=2, layers=1), 48)["tokens"] == 16


def test_it_prints_in_twenty_lines(report):
    lines = repr(report).splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 88
    assert lines[0].startswith(
        "Report of a <small> one: 3 blocks, 6 tokens, width 48, 12 networks"
    )
    for v in report.verdicts:
        assert v.mark in "✓!·"
        assert re.search(r"\d", v.text)


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
    np.testing.assert_allclose(m.tangent, drawn(kept, np.inf, 4, seed).tangent)


def test_sizes_follow_from_the_work():
    big, many = (from_config("llama-like", 128), from_config("gpt2", 16))
    assert default_size(big, 4096) == 4
    assert 40 <= default_size(many, 768) <= 96
    assert default_size(small(), 48) == 96


@pytest.mark.slow
def test_a_seed_is_written_down():
    "What is drawn from a Generator, or from no seed, can be drawn again."
    for rng in (
        None,
        np.random.default_rng(3),
        np.random.SeedSequence(4, spawn_key=(2,)),
        7,
    ):
        first = draw_report(small(), 32, 4, rng)
        seed = eval(
            re.search(r"rng=(.*)\)$", first.call)[1],
            {"SeedSequence": np.random.SeedSequence},
        )
        np.testing.assert_array_equal(
            first.measured.finite.cosine,
            draw_report(small(), 32, 4, seed).measured.finite.cosine,
        )
    assert (
        "max_cosine=0.5"
        in draw_report(small(), 32, 4, 0, thresholds=Thresholds(max_cosine=0.5)).call
    )
    assert "width=32, size=4, readout='all'" in first.call
    without = draw_report(small(), 32, 4, 0, thresholds=Thresholds(max_cosine=None))
    assert "thresholds=Thresholds(max_cosine=None)" in without.call
    assert not any(v.name == "cosine" for v in without.verdicts)
    plt.close(without.plot())


# Files


class Reader(HTMLParser):
    "Open tags, links, pictures and texts."

    def __init__(self):
        super().__init__()
        self.open, self.links, self.alts, self.text = [], [], [], ""

    def handle_starttag(self, tag, attributes):
        self.links += [v for k, v in attributes if k in ("src", "href", "srcset")]
        if tag == "img":
            self.alts.append(dict(attributes)["alt"])
        if tag not in ("meta", "img", "source"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_html_is_whole_and_needs_nothing(report, page):
    reader = Reader()
    reader.feed(page)
    assert not reader.open
    assert len(reader.links) == len(PANELS) == 6
    assert len(page) < 300_000
    assert all(x.startswith("data:image/png;base64,") for x in reader.links)
    written = re.sub('base64,[^"]*', "", page)
    for word in ("http", "<script", "url(", "@import", "<link"):
        assert word not in written
    assert len(set(reader.alts)) == 6
    assert min(map(len, reader.alts)) > 20
    for said in [v.text[1:] for v in report.verdicts] + [
        report.call,
        "a <small> one",
        "to be or not to be",
        "numpy",
    ]:
        assert said in reader.text
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page
    assert "<small>" not in page


def test_actions_come_first_and_details_are_folded(report, monkeypatch):
    """Before the first picture: sentences, those that ask for something at the top.
    Tables, words and what asks for nothing open at a click.
    """
    starved = replace(
        report,
        thresholds=replace(report.thresholds, min_query_gradient=10.0),
        advice=dict(queries="queries × 2 would suffice"),
    )
    monkeypatch.setattr(html_module, "picture_of", lambda panel: "<img>")
    page = file_of(starved, "html").decode()
    top, _, rest = page.partition('<section class="panels">')
    titles = re.findall(r'<li class="(\w+)"><b>(\w+):', top)
    assert titles[0] == ("crossed", "queries")
    assert "queries × 2 would suffice" in top
    assert "<details" not in top
    assert [name for _, name in titles] == [
        v.name for v in starved.verdicts if v.name not in DETAILS
    ]
    still = re.sub(r"<details>.*?</details>", "", rest, flags=re.S)
    assert not any(f"<{tag}" in still for tag in ("table", "dl", "li", "pre"))
    assert still.count("<figure>") == 6
    assert rest.count("<details><summary>") == 5
    assert re.findall(r'<li class="\w+"><b>(\w+):', rest) == [
        v.name for v in starved.details
    ]


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
def test_same_seed_same_sheets(again, sheets):
    for kind, sheet in sheets.items():
        assert file_of(again, kind) == sheet


@pytest.mark.slow
def test_same_seed_same_bytes(again, page):
    "Twelve pictures and all the words."
    assert file_of(again, "html").decode() == page
    other = draw_report(small(var_q=9.0), 48, 12, 6)
    assert (
        other.measured.finite.cosine[:, 1:] != again.measured.finite.cosine[:, 1:]
    ).all()


@pytest.mark.slow
def test_files_have_no_clock(page, sheets):
    assert b"CreationDate" not in sheets["pdf"]
    assert b"Software" not in sheets["png"]
    assert time.strftime("%Y-%m") not in page


def test_a_file_is_written_whole_or_not_at_all(report, tmp_path, monkeypatch):
    path = tmp_path / "report.png"
    path.write_text("old")
    monkeypatch.setattr(
        "infattn_nb.initialisation.report.file_of", lambda report, kind: kind.encode()
    )  # drawing is what takes time
    fsync = os.fsync
    monkeypatch.setattr(
        os,
        "fsync",
        lambda file: (_ for _ in ()).throw(OSError(28, "No space left on device")),
    )
    with pytest.raises(OSError, match=r"report.png cannot be written \(No space"):
        report.save(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.setattr(os, "fsync", fsync)
    assert report.save(path) == path
    assert path.read_bytes() == b"png"


BAD_PLACES = [
    ("report.doc", "end in .html or .pdf or .png"),
    ("report", "end in"),
    ("nowhere/report.html", "No such file"),
    ("/dev/null/r.html", "Not a directory"),
    ("r\0.html", "null"),
    ("folder.html", "a folder has that name"),
]


@pytest.mark.parametrize("path, fragment", BAD_PLACES)
def test_places_that_cannot_be_written(path, fragment, report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(ValueError, match="`path` must") as e:
        report.save(path)
    assert fragment in str(e.value)
    assert "\n" not in str(e.value)
    assert [p.name for p in tmp_path.iterdir()] == ["folder.html"]


MATHEMATICS = ["$_$", "$$", "$x_{$", "$5$", "a", "$"]


@pytest.mark.slow
def test_dollars_are_no_mathematics():
    r = replace(
        draw_report(small(), 32, 4, 0, labels=MATHEMATICS, title="$_$"),
        call="infattn_report gpt2 --text '$_$'",
    )
    fig = six_panels(r.panels, f"{r.title} {r.call}", ["$_$", r.call])
    fig.canvas.draw()
    pattern = fig.axes[PANELS.index(Focused)]
    assert (
        {label.get_text() for label in pattern.get_xticklabels()}
        == {label.get_text() for label in pattern.get_yticklabels()}
        == set(MATHEMATICS)
    )
    for text in (
        *pattern.get_xticklabels(),
        *pattern.get_yticklabels(),
        *fig.findobj(lambda x: "$_$" in getattr(x, "get_text", str)()),
    ):
        assert not text.get_parse_math()
    assert "<img" in picture_of(Focused(r.measured, r.thresholds, r.labels))
    plt.close("all")


@pytest.mark.parametrize("quiet", (True, False))
def test_letters_that_no_font_has_are_named_in_a_line(
    quiet, tmp_path, monkeypatch, capfd
):
    def one_panel(panels, title, lines):
        fig, ax = plt.subplots()
        panels[PANELS.index(Focused)].draw(ax)
        return fig

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report_module, "six_panels", one_panel)
    (tmp_path / "config.json").write_text(TINY)
    infattn_report.__wrapped__(
        "config.json", text="日本 語 a", size="4", out="a.png", quiet=quiet
    )
    assert capfd.readouterr().err == (
        ""
        if quiet
        else "infattn_report: letters that the font of the pictures lacks "
        "show as boxes: 日 本 語\n"
    )


# The command

REJECTED = [
    (dict(config="nowhere.json"), "`config` must be a file that can be read"),
    (dict(config="text.json"), "`config` must be JSON"),
    (dict(config="t5.json"), "have one stack of blocks, got model_type 't5'"),
    (dict(config="half.json"), "`config['n_head']` must divide the width 64, got 12"),
    (dict(out="report.txt"), "`out` must end in"),
    (dict(out="nowhere/report.html"), "`out` must be in a folder"),
    (dict(tokens=0), "`tokens`"),
    (dict(tokens=3, text="a b"), "`tokens` must be omitted"),
    (dict(text=" "), "`text` must hold words"),
    (dict(width=0), "`width`"),
    (dict(width=25), "multiple of heads"),
    (dict(size=3), "`size`"),
    (dict(seed=-1), "`seed` must be at least 0"),
]


@pytest.mark.parametrize("options, fragment", REJECTED)
def test_the_command_rejects_in_one_sentence(options, fragment, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in dict(
        text="to be",
        t5='{"model_type": "t5"}',
        half='{"model_type": "gpt2", "n_embd": 64, "n_layer": 2}',
    ).items():
        (tmp_path / f"{name}.json").write_text(text)
    before = set(tmp_path.iterdir())
    with pytest.raises(SystemExit) as e:
        infattn_report.__wrapped__(**dict(config="gpt2", quiet=True) | options)
    assert str(e.value).startswith("infattn_report: ")
    assert fragment in str(e.value)
    assert "\n" not in str(e.value)
    assert len(str(e.value)) < 320
    assert set(tmp_path.iterdir()) == before


TINY = '{"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2}'


def run_here(monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", [str(COMMAND), *options])
    with pytest.raises(SystemExit) as e:
        runpy.run_path(str(COMMAND), run_name="__main__")
    return e.value.code


@pytest.mark.slow
def test_the_command_writes_the_same_bytes_without_torch(tmp_path, monkeypatch, capfd):
    """One sheet in a process of its own, then in this one; and the words of a page,
    without its pictures.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(TINY)
    options = ["config.json", "--text", " ".join(WORDS), "--size", "4", "--seed", "3"]
    code = (
        f"import runpy, sys; "
        f"sys.argv = {['infattn_report', *options, '--quiet', '--out', 'a.png']!r}\n"
        f"try: runpy.run_path({str(COMMAND)!r}, run_name='__main__')\n"
        "finally: assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert capfd.readouterr().out == ""
    assert not run_here(monkeypatch, *options, "--out", "b.png")
    assert capfd.readouterr().out.splitlines()[-1] == "b.png"
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    monkeypatch.setattr(html_module, "picture_of", lambda panel: "<img>")
    assert not run_here(monkeypatch, *options, "--out", "c.html")
    page = (tmp_path / "c.html").read_text()
    assert (
        "infattn_report config.json --text &#x27;to be or not to be&#x27; --size 4 "
        "--seed 3" in page
    )
    assert "gpt2 (config.json), before training" in page
    assert "n_embd" in page


def test_the_command_says_what_it_wrote(tmp_path, monkeypatch):
    "The call in a report makes that report."
    (tmp_path / "config.json").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    first = report_of("config.json", tokens=5, size=4)
    assert first.call == "infattn_report config.json --tokens 5 --size 4 --seed 0"
    assert first.labels == ("t1", "t2", "t3", "t4", "t5")
    assert json.loads(first.source)["n_embd"] == 64
    np.testing.assert_array_equal(
        first.measured.finite.cosine,
        report_of("config.json", tokens=5, size=4, seed=0).measured.finite.cosine,
    )


def test_images_have_a_class_token_more():
    found = report_of(
        str(HERE / "data" / "configs" / "vit-base-patch16-224.json"),
        tokens=3,
        size=4,
        width=96,
    )
    assert found.labels == ("1", "2", "3", "4")
    assert found.title.endswith("(vit-base-patch16-224.json)")


def test_equal_words_share_an_embedding():
    net = from_config(json.loads(TINY), WORDS)
    assert net.cov[0, 4] == net.cov[1, 5] == 0.02**2
    assert net.cov[0, 1] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [signal.SIGINT, signal.SIGKILL], ids=["control-c", "killed"]
)
def test_interrupted_it_leaves_nothing(how, tmp_path):
    code = (
        "import signal, sys; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from infattn_nb.initialisation import infattn_report as f; "
        "from infattn_nb.initialisation import diagnosis as r; d = r.diagnose\n"
        "def seen(*a): open('begun', 'w').close(); return d(*a)\nr.diagnose = seen; "
        "f.__wrapped__('gpt2', size=64, quiet=True)"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(6000):
        if (tmp_path / "begun").exists():
            break
        time.sleep(0.01)
    run.send_signal(how)
    out, error = run.communicate(timeout=60)
    assert run.returncode
    assert [p.name for p in tmp_path.iterdir()] == ["begun"]
    assert not out
    if how == signal.SIGINT:
        assert error == "infattn_report: interrupted; nothing was written\n"


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


@pytest.fixture
def silent(monkeypatch):
    "A picture that shows itself would stop a script."
    monkeypatch.setattr(plt, "show", lambda *a, **k: pytest.fail("plt.show was called"))
    yield
    plt.close("all")


def plots():
    t = small(var_q=4.0)
    c, g = t.chain(32, 5, 0, scores=True), t.gradients(32, 5, 0)
    X, y, _ = make_recall(8, rng=3)
    m = AttentionRegressor(n_islands=2, n_particles=32, n_moves=4, random_state=0).fit(
        X, y
    )
    return {
        "cosine": c.plot,
        "entropy": lambda ax=None: c.plot(ax, "entropy", beside=t.kernel(64)),
        "attention": lambda ax=None: c.plot(
            ax, "attention", labels=WORDS, block=1, head=1
        ),
        "norms": g.plot,
        "stream": lambda ax=None: g.plot(
            ax, "stream", beside=t.gradients(np.inf, 4, 0)
        ),
        "fit": m.plot,
        "fit attention": lambda ax=None: m.plot_attention(X[:3], ax, labels="abcdé"),
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the posterior is rough")
def test_plots_draw_on_the_given_axes(silent):
    for name, plot in plots().items():
        number = len(plt.get_fignums())
        _, ax = plt.subplots()
        assert plot(ax) is ax, name
        assert len(plt.get_fignums()) == number + 1, name
        own = plot()
        assert len(plt.get_fignums()) == number + 2, name
        assert own is not ax, name
        assert own.get_xlabel(), name
        assert not own.spines["top"].get_visible(), name  # the package's style
        assert ax.spines["top"].get_visible(), name  # and the caller's


def test_what_is_drawn_is_the_chain(silent):
    t = small(var_q=4.0)
    c = t.chain(32, 70, 0, scores=True)
    ax = c.plot(beside=t.kernel(64, 1))
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


def test_what_is_drawn_are_the_gradients(silent):
    t = small(var_q=4.0)
    g, far = t.gradients(32, 6, 0), t.gradients(np.inf, 6, 0)
    ax = g.plot(matrices=["q", "1"], beside=far)
    np.testing.assert_allclose(
        [x.get_ydata() for x in ax.lines],
        [
            g.squared_norms["q"].mean(0),
            far.squared_norms["q"].mean(0),
            g.squared_norms["1"].mean(0),
            far.squared_norms["1"].mean(0),
        ],
    )
    assert ax.get_yscale() == "log"
    assert [x.get_text() for x in ax.get_legend().get_texts()] == ["q", "1"]
    np.testing.assert_allclose(
        g.plot(what="stream").lines[0].get_ydata(),
        np.trace(g.gram, axis1=-2, axis2=-1).mean(0),
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


def rejects_in_one_sentence(cases):
    "Each call raises an error of one short line that holds its fragment."
    for call, fragment in cases:
        with pytest.raises((ValueError, TypeError)) as e:
            call()
        said = str(e.value)
        assert fragment in said, said
        assert "\n" not in said, said
        assert len(said) < 320, said


@pytest.mark.filterwarnings("ignore:the posterior is rough")
def test_plots_reject_in_one_sentence(silent):
    t = small()
    c, g = t.chain(32, 2, 0), t.gradients(32, 2, 0)
    kept = t.chain(32, 2, 0, scores=True)
    prior = AttentionRegressor()
    cases = [
        (lambda: c.plot(5), "`ax` must be Axes"),
        (lambda: c.plot(what="norms"), "`what` must be"),
        (lambda: c.plot(what="attention"), "`scores` must be kept"),
        (lambda: c.plot(beside=g), "`beside` must be a Chain"),
        (
            lambda: c.plot(beside=Transformer.uniform(np.eye(2), layers=2).kernel(16)),
            "as many blocks",
        ),
        (lambda: kept.plot(what="attention", labels=["a"]), "one label per token, 6"),
        (lambda: kept.plot(what="attention", labels=5), "`labels` must be a list"),
        (lambda: kept.plot(what="attention", head=2), "`head`"),
        (lambda: kept.plot(what="attention", network=2), "`network`"),
        (lambda: kept.plot(what="attention", block=3), "`block`"),
        (lambda: g.plot(what="cosine"), "`what`"),
        (lambda: g.plot(matrices="qx"), "`matrices` must be"),
        (lambda: g.plot(beside=c), "`beside` must be Gradients"),
        (lambda: prior.plot(), "`X` must be given"),
        (lambda: prior.plot(X=np.ones((2, 2, 2))), "`y` must be given"),
        (lambda: prior.plot(X=np.ones((2, 2, 2)), y=[1.0, 2.0, 3.0]), "`y` must be"),
        (lambda: prior.plot(X=np.ones((2, 2, 2)), y=[1.0, 2.0], level=1.0), "`level`"),
        (
            lambda: Transformer.uniform([[1.0]], layers=1).chain().plot(),
            "no two tokens",
        ),
    ]
    rejects_in_one_sentence(cases)
    with pytest.raises(AttributeError, match="`scores` must be kept"):
        c.weights  # a property


def test_a_report_rejects_in_one_sentence():
    t = small()
    cases = [
        (lambda: draw_report(t, 32, 3), "`size`"),
        (lambda: draw_report(t, 32, 4, "x"), "`rng`"),
        (lambda: draw_report(t, 32, 4, readout="first"), "`readout`"),
        (lambda: draw_report(t, 32, 4, labels=["a"]), "one label per token"),
        (lambda: draw_report(t, 32, 4, title=5), "`title`"),
        (
            lambda: draw_report(t, 32, 4, thresholds=Thresholds(max_cosine=2)),
            "`max_cosine` must be in [-1, 1]",
        ),
        (
            lambda: draw_report(t, 32, 4, thresholds=Thresholds(min_entropy=-1)),
            "`min_entropy`",
        ),
        (
            lambda: draw_report(t, 32, 4, thresholds=Thresholds(max_entropy="a")),
            "`max_entropy`",
        ),
        (
            lambda: draw_report(
                t, 32, 4, thresholds=Thresholds(max_gradient_ratio=0.5)
            ),
            "`max_gradient_ratio`",
        ),
        (
            lambda: draw_report(t, 32, 4, thresholds=Thresholds(min_query_gradient=-1)),
            "`min_query_gradient`",
        ),
        (
            lambda: draw_report(t, 32, 4, thresholds=Thresholds(max_spread=np.nan)),
            "`max_spread`",
        ),
        (
            lambda: draw_report(t, 32, 4, thresholds=Thresholds(max_width_spread=0)),
            "`max_width_spread`",
        ),
    ]
    rejects_in_one_sentence(cases)


def test_results_are_what_they_say(report):
    assert isinstance(report, Report)
    assert isinstance(small().chain(8), Chain)
    with pytest.raises(AttributeError):
        report.width = 5
    fig = report.plot()
    assert len(fig.axes) == 6
    assert [ax.get_title() for ax in fig.axes] == [p.title for p in PANELS]
    plt.close(fig)


@pytest.mark.slow
def test_the_command_says_threads_when_it_runs_not_when_it_is_imported():
    """Importing it sets nothing and loads no NumPy, which reads the number of threads
    once; running it does both, in this order.
    """
    code = """import os, sys
os.environ.pop("OMP_NUM_THREADS", None)
from infattn_nb.initialisation.report_command import infattn_report
assert "OMP_NUM_THREADS" not in os.environ and "numpy" not in sys.modules
try: infattn_report.__wrapped__("nowhere.json")
except SystemExit: assert os.environ["OMP_NUM_THREADS"] == "1"
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_the_time_that_is_said_before(monkeypatch):
    """GPT-2, 64 tokens, sixteen networks: processor time, which does not depend on who
    else computes; draws, and advice for the thresholds that are crossed, lie in the
    range, and the range is not arbitrarily wide.
    """
    from infattn_nb.initialisation import report as module
    from infattn_nb.initialisation import diagnosis

    monkeypatch.setattr(diagnosis, "perf_counter", time.process_time)
    took = {}

    def timed(name):
        work = getattr(module, name)

        def run(*args, **options):
            start = time.process_time()
            found = work(*args, **options)
            took[name] = time.process_time() - start
            return found

        monkeypatch.setattr(module, name, run)

    timed("measure"), timed("advice_of")
    t = from_config("gpt2", 64)
    t.gradients(size=1, rng=0)  # what is imported and kept
    with pytest.warns(UserWarning, match="this report takes between .*: ") as seen:
        r = draw_report(t, size=16, rng=0)
    said = next(str(x.message) for x in seen if "takes between" in str(x.message))
    low, high = map(
        float, re.search(r"between ([\d.]+) and ([\d.]+) seconds", said).groups()
    )
    assert any(v.advice for v in r.verdicts)
    assert low < sum(took.values()) < high, (said, took)
    assert high < 7 * low


# The loss of the head


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
    assert loss(tiny | dict(logit_scale=0.5)) is None
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


def test_shades_of_weights_keep_their_hue():
    "Rows of weights are drawn in shades of one colour, of which a page keeps enough."
    from io import BytesIO

    from matplotlib import rcParams
    from matplotlib.colors import to_rgb
    from PIL import Image

    colour = np.array(to_rgb(rcParams["axes.prop_cycle"].by_key()["color"][0]))
    ramp = 1 - np.linspace(0, 1, 200)[None, :, None] * (1 - colour)
    given = np.rint(255 * np.repeat(ramp, 4, axis=0)).astype(np.uint8)
    held = BytesIO()
    Image.fromarray(given).save(held, "png")
    few = Image.open(BytesIO(of_few_colours(held.getvalue()))).convert("RGB")
    step = 0.05 * 255  # from shade to shade
    assert abs(np.asarray(few).astype(int) - given).max() <= step


def test_the_readout_is_named():
    t = small()
    for readout, said in {
        "all": "a loss at every token",
        "last": "a loss at the last token",
        "mean": "a loss on the mean of the tokens",
    }.items():
        printed = repr(draw_report(t, 32, 4, 0, readout=readout))
        assert f"4 networks, {said}" in " ".join(printed.split())
    given = draw_report(t, 32, 4, 0, readout=np.eye(6))
    assert "a loss with the given readout covariance" in " ".join(repr(given).split())


def test_a_page_of_many_lines_is_small():
    "Ninety-six networks of many blocks: the largest pictures that there are."
    t = Transformer.uniform(np.eye(3), layers=24, heads=2, final_norm=True)
    page = file_of(draw_report(t, 32, 96, 0), "html")
    assert len(page) < 300_000


def test_living_norms_are_drawn():
    t = Transformer.uniform(np.eye(3), layers=3, heads=2, var_q=0.0)
    r = draw_report(t, 32, 4, 0)
    assert np.isnan(living_norms(r.measured.finite)["k"]).all()
    assert np.isnan(r.table["queries, keys/values"]).all()
    plt.close(r.plot())
