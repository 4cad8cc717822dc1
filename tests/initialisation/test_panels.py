"""Panels draw the numbers that were measured."""

import re
from html.parser import HTMLParser

import matplotlib.pyplot as plt
import numpy as np
import pytest
from report_cases import small

from infattn_nb.initialisation.panels import PANELS, Entropies


pytestmark = pytest.mark.xdist_group("report")  # its fixtures are made once


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


def test_both_thresholds_of_attention_are_drawn(report, silent):
    _, ax = plt.subplots()
    report.panels[PANELS.index(Entropies)].draw(ax)
    dotted = [x.get_ydata()[0] for x in ax.lines if x.get_linestyle() == ":"]
    assert dotted == [report.thresholds.min_entropy, report.thresholds.max_entropy]


# A report as one HTML page


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


@pytest.mark.long
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
