"""The stored figures are small: a palette of at most 256 colours."""

import base64
import io

from every import on_every_page
from PIL import Image
from run_pages import NBS, figures, read


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
