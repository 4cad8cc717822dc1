"""The stored figures are small: a palette of at most 256 colours."""

import base64
import io

import numpy as np
from every import on_every_page
from PIL import Image
from run_pages import NBS, figures, read, small


def test_shrinking_keeps_the_colours_that_count():
    rng = np.random.default_rng(0)
    pixels = np.full((200, 300, 3), 255, np.uint8)
    pixels[50:60], pixels[:, 70] = (31, 96, 121), 0
    pixels[100:140] = rng.integers(256, size=(40, 300, 3))  # 12,000 colours that do not
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "png")
    png = small(out.getvalue())
    again = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    plain = np.r_[0:100, 140:200]
    assert (again[plain] == pixels[plain]).all()
    assert abs(again.astype(int) - pixels).max() < 100
    assert len(png) < 0.7 * len(out.getvalue())
    assert small(png) == png == small(out.getvalue())


@on_every_page
def test_stored_figures_are_small(page):
    for label, data in figures(read(NBS / f"{page}.ipynb")):
        png = base64.b64decode("".join(data["image/png"]))
        assert Image.open(io.BytesIO(png)).mode == "P", (
            f"{label}: run `python tools/run_pages.py`"
        )
        assert len(png) < 80e3, (
            f"{label} has {len(png) / 1e3:.0f} kB: fewer points, or fewer panels"
        )
