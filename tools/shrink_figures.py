"""The stored figures are small: a palette of at most 256 colours, no thinner picture. `python tools/shrink_figures.py` shrinks those in the notebooks."""
import base64
import io
import json
import re
from pathlib import Path

import numpy as np
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

def shrink(path):
    nb = read(path)
    for _, data in figures(nb): data["image/png"] = base64.b64encode(small(base64.b64decode("".join(data["image/png"])))).decode()
    path.write_text(json.dumps(nb, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")

if __name__ == "__main__":
    for path in PAGES: shrink(path)
