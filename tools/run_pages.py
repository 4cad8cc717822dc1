"""Run the pages whose code or tables have changed since their outputs were stored, or
those named, and store fresh outputs, their figures in few colours. Whether outputs are
still those of the package is tested by `pytest -m slow tests/site/test_notebooks.py`,
which runs every page again.

    python tools/run_pages.py [page …]
"""

import ast
import base64
import io
import json
import os
import re
import subprocess
import sys
import tokenize
from concurrent.futures import ThreadPoolExecutor, as_completed
from hashlib import sha256
from pathlib import Path

import numpy as np
from panels import CHUNK
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from written import NBS, PAGES, ROOT, read, text, written

EXECUTED = (
    ROOT / "tests/executed.json"
)  # page -> digest of what its outputs are made of


def cells(path, kind=None):
    for c in read(path)["cells"]:
        if kind in (None, c["cell_type"]):
            yield c, text(c)


def name(path):
    "A page as one names it: `attention/spec`."
    return path.relative_to(NBS).with_suffix("").as_posix()


def makes_a_module(path):
    return any(source.startswith("#| default_exp") for _, source in cells(path, "code"))


CODED = [p for p in PAGES if makes_a_module(p)]


def data_of(path):
    "The stored tables that a page reads; a name in braces may be any."
    code = "\n".join(source for _, source in cells(path, "code"))
    found = set()
    for name in re.findall(r'"((?:\.\./)*data/[^"]+)"', code):
        found.update(path.parent.glob(re.sub(r"{.*?}", "*", name)))
    return sorted(found)


def plain(source):
    """Code as Python reads it, without comments, docstrings and empty lines; what is
    not Python as it is.
    """
    try:
        tree = ast.parse(source)
        tokens = [*tokenize.generate_tokens(io.StringIO(source).readline)]
    except (SyntaxError, tokenize.TokenError):
        return source
    lines = source.splitlines()
    for token in tokens:
        row, column = token.start
        if token.type == tokenize.COMMENT:
            lines[row - 1] = lines[row - 1][:column]
    defined = (ast.FunctionDef, ast.ClassDef)
    for node in ast.walk(tree):
        if isinstance(node, defined) and ast.get_docstring(node):
            for row in range(node.body[0].lineno, node.body[0].end_lineno + 1):
                lines[row - 1] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip())


def digest(path):
    "Of what a page makes its outputs from: its own code, and the tables that it reads."
    parts = (
        "\n".join(plain(source) for _, source in cells(path, "code")).encode(),
        *(file.read_bytes() for file in data_of(path)),
    )
    return sha256(b"".join(parts)).hexdigest()[:16]


# Figures: a palette of at most 256 colours, no thinner picture


def small(png):
    """The same picture in 256 colours, each the most frequent of those that it stands
    for: white, black and the lines stay what they are.
    """
    image = Image.open(io.BytesIO(png))
    if image.mode == "P":
        return png
    colours = image.convert("RGB")
    found = colours.quantize(
        256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
    )
    pixels = np.asarray(colours).reshape(-1, 3).astype(int) @ (1 << 16, 1 << 8, 1)
    pairs, counts = np.unique(
        np.asarray(found).ravel().astype(int) * (1 << 24) + pixels, return_counts=True
    )
    pairs = pairs[np.argsort(counts, kind="stable")]
    palette = np.zeros((256, 3), np.uint8)
    for k, shift in enumerate((16, 8, 0)):
        # of two for one place the last stays: the most frequent
        palette[pairs >> 24, k] = pairs >> shift & 255
    found.putpalette(palette.tobytes())
    places = PngInfo()  # of the panels: tools/panels.py
    if CHUNK in image.info:
        places.add_text(CHUNK, image.info[CHUNK])
    out = io.BytesIO()
    found.save(out, "png", optimize=True, pnginfo=places)
    return out.getvalue()


def figures(nb):
    "Label of the cell, and the bundle that holds the picture."
    for c in nb["cells"]:
        for o in c.get("outputs", []):
            if "image/png" in o.get("data", {}):
                yield (re.search(r"label: ([\w-]+)|$", text(c))[1], o["data"])


def shrink(path):
    nb = read(path)
    for _, data in figures(nb):
        png = base64.b64decode("".join(data["image/png"]))
        data["image/png"] = base64.b64encode(small(png)).decode()
    path.write_text(written(nb), encoding="utf-8")


def execute(path):
    "Store fresh outputs in a page: lettered panels, few colours, `nbdev_clean`."
    tool = Path(sys.executable).with_name
    slow = "scan", "report", "run"  # the clock decides whether they warn
    quiet = ",".join(f"ignore:this {what} takes" for what in slow)
    one_thread = os.environ | dict(
        OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTHONWARNINGS=quiet
    )
    subprocess.run(
        [sys.executable, Path(__file__).with_name("panels.py"), path.name],
        cwd=path.parent,
        env=one_thread,
        check=True,
    )
    shrink(path)
    subprocess.run(
        [tool("nbdev_clean"), "--fname", path.name], cwd=path.parent, check=True
    )
    return path


if __name__ == "__main__":
    known = json.loads(EXECUTED.read_text()) if EXECUTED.exists() else {}
    known = {name(p): known.get(name(p)) for p in PAGES}
    named = [argument.removesuffix(".ipynb") for argument in sys.argv[1:]]
    if unknown := set(named) - set(known):
        sys.exit(f"no such page in nbs: {' '.join(sorted(unknown))}")
    todo = [
        p
        for p in PAGES
        if name(p) in named or (not named and known[name(p)] != digest(p))
    ]
    failed = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = {pool.submit(execute, p): p for p in todo}
        for run in as_completed(runs):
            page = runs[run]
            if run.exception():
                failed.append(name(page))
                continue
            known[name(page)] = digest(page)
            EXECUTED.write_text(json.dumps(known, indent=1) + "\n")
            print(name(page), flush=True)
    if failed:
        sys.exit(f"stopped by an error: {' '.join(sorted(failed))}")
