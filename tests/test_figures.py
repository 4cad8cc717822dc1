"""The stored figures are small: a palette of at most 256 colours, no thinner picture. Run this file as a script to shrink those in the notebooks."""
import base64
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

PAGES = sorted((Path(__file__).parent.parent/"nbs").glob("*.ipynb"))

def small(png):
    "The same picture in 256 colours, each the most frequent of those that it stands for: white, black and the lines stay what they are."
    image = Image.open(io.BytesIO(png))
    if image.mode == "P": return png
    image = image.convert("RGB")
    found = image.quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    pixels = np.asarray(image).reshape(-1, 3).astype(int) @ (1 << 16, 1 << 8, 1)
    pairs, counts = np.unique(np.asarray(found).ravel().astype(int)*(1 << 24) + pixels, return_counts=True)
    pairs = pairs[np.argsort(counts, kind="stable")]
    palette = np.zeros((256, 3), np.uint8)
    for k, shift in enumerate((16, 8, 0)): palette[pairs >> 24, k] = pairs >> shift & 255 # of two for one place the last stays: the most frequent
    found.putpalette(palette.tobytes())
    out = io.BytesIO()
    found.save(out, "png", optimize=True)
    return out.getvalue()

def figures(nb):
    "Label of the cell, and the bundle that holds the picture."
    for c in nb["cells"]:
        for o in c.get("outputs", []):
            if "image/png" in o.get("data", {}): yield re.search(r"label: ([\w-]+)|$", "".join(c["source"]))[1], o["data"]

def read(path): return json.loads(path.read_text(encoding="utf-8"))

def test_shrinking_keeps_the_colours_that_count():
    rng = np.random.default_rng(0)
    pixels = np.full((200, 300, 3), 255, np.uint8)
    pixels[50:60], pixels[:, 70] = (31, 96, 121), 0
    pixels[100:140] = rng.integers(256, size=(40, 300, 3)) # 12,000 colours that do not
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "png")
    png = small(out.getvalue())
    again = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    plain = np.r_[0:100, 140:200]
    assert (again[plain] == pixels[plain]).all() and abs(again.astype(int) - pixels).max() < 100
    assert len(png) < .7*len(out.getvalue()) and small(png) == png == small(out.getvalue())

@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_stored_figures_are_small(path):
    for label, data in figures(read(path)):
        png = base64.b64decode("".join(data["image/png"]))
        assert Image.open(io.BytesIO(png)).mode == "P", f"{label}: run `python tests/test_figures.py`"
        assert len(png) < 80e3, f"{label} has {len(png)/1e3:.0f} kB: fewer points, or fewer panels"

def shrink(path):
    nb = read(path)
    for _, data in figures(nb): data["image/png"] = base64.b64encode(small(base64.b64decode("".join(data["image/png"])))).decode()
    path.write_text(json.dumps(nb, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")

if __name__ == "__main__":
    for path in PAGES: shrink(path)
