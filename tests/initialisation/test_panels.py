"""Panels draw the numbers that were measured."""

import numpy as np
import pytest
from report_cases import small


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
