"""Store the figures of pages with 64 colours, which look the same and take a quarter of the bytes.

    python tests/pictures.py nbs/*.ipynb

Run it after `exec_nb`. A figure that has been packed before stays as it is.
"""
import base64
import io
import json
import sys
from pathlib import Path

from PIL import Image

def packed(png):
    "A PNG with a palette of 64 colours on white, or the same if that is no smaller."
    image = Image.open(io.BytesIO(png))
    if image.mode == "P": return png
    flat, out = Image.new("RGBA", image.size, "white"), io.BytesIO()
    flat.alpha_composite(image.convert("RGBA"))
    few = flat.convert("RGB").quantize(64, dither=Image.Dither.NONE)
    few.save(out, "png", optimize=True)
    return min(png, out.getvalue(), key=len)

def pack(path):
    nb = json.loads(path.read_text(encoding="utf-8"))
    for cell in nb["cells"]:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" not in data: continue
            png = base64.b64decode("".join(data["image/png"]))
            data["image/png"] = base64.b64encode(packed(png)).decode() + "\n"
    new = json.dumps(nb, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    path.write_text(new, encoding="utf-8")

if __name__ == "__main__":
    for name in sys.argv[1:]: pack(Path(name))
