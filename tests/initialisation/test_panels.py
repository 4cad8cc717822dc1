"""Panels draw the numbers that were measured."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from report_cases import TINY, small

from infattn_nb.initialisation import infattn_report
from infattn_nb.initialisation import report as report_module
from infattn_nb.initialisation.panels import PANELS, Focused

pytestmark = pytest.mark.xdist_group("report")  # its fixtures are made once


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
        else "infattn_report: letters that are missing in the font "
        "appear as boxes: 日 本 語\n"
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
