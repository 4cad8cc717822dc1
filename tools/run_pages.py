"""Run the pages whose outputs may have changed since they were stored, or those named, and store fresh outputs, their figures in few colours.
They may if a page's own code has changed, a table that it reads, or a definition of the package that it uses, however far below.

    python tools/run_pages.py [page …]"""
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
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT/"nbs").glob("*.ipynb"))
EXECUTED = ROOT/"tests/executed.json" # page -> digest of the code and data whose outputs it stores

def read(path): return json.loads(path.read_text(encoding="utf-8"))

def cells(path, kind=None):
    for c in read(path)["cells"]:
        if kind in (None, c["cell_type"]): yield c, "".join(c["source"])

def makes_a_room(path): return any(source.startswith("#| default_exp") for _, source in cells(path, "code"))

CODED = [p for p in PAGES if makes_a_room(p)]

def code_of(path): return "\n".join(source for _, source in cells(path, "code"))

def data_of(path):
    "The stored tables that a page reads; a name in braces may be any."
    names = re.findall(r'"(data/[^"]+)"', code_of(path))
    return sorted({file for name in names for file in path.parent.glob(re.sub(r"{.*?}", "*", name))})

def without_comments(source):
    "Code as Python reads it: no comments, no empty lines."
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT: lines[token.start[0] - 1] = lines[token.start[0] - 1][:token.start[1]]
    return "\n".join(line.rstrip() for line in lines if line.strip())

def statements_of(source):
    "The statements of a piece of code, each with its text. What is not Python is one text."
    try:
        bare = without_comments(source)
        found = ast.parse(bare).body
    except (SyntaxError, tokenize.TokenError): return [(ast.parse("None").body[0], source)]
    lines = bare.splitlines()
    first = lambda tree: min(node.lineno for node in (tree, *getattr(tree, "decorator_list", [])))
    return [(tree, "\n".join(lines[first(tree) - 1:tree.end_lineno])) for tree in found]

def module_path(module, package):
    path = package.parent/module.replace(".", "/")
    if module == "infattn_nb": return path/"__init__.pyi" # the front door says there where its names are
    return path/"__init__.py" if path.is_dir() else path.with_suffix(".py")

def imports(tree, module):
    "Names that a statement brings from the package: (name here, module, name there; None for a module)."
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            above = module.split(".")[:-node.level] if node.level else []
            there = ".".join([*above, node.module] if node.module else above)
            for alias in node.names:
                if there.split(".")[0] == "infattn_nb": yield alias.asname or alias.name, there, alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "infattn_nb": yield alias.asname or alias.name, alias.name, None

def defined(tree):
    "The names that a statement gives."
    if isinstance(tree, (ast.FunctionDef, ast.ClassDef)): return [tree.name]
    if isinstance(tree, (ast.Assign, ast.AnnAssign)): return [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return []

def uses(tree, module, brought):
    "What of the package a statement names, as (module, name)."
    inside = {name: there for name, *there in imports(tree, module)}
    brought = brought | inside
    for node in ast.walk(tree):
        if isinstance(node, ast.Name): yield tuple(brought.get(node.id, (module, node.id)))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in brought:
            there, name = brought[node.value.id]
            yield f"{there}.{name}" if name else there, node.attr
    yield from map(tuple, inside.values())

@cache
def room(module, package):
    "A module: (text, uses) of its statements by the names that they define, None for those of none; and what it imports."
    own, brought, others = {None: []}, {}, []
    for tree, text in statements_of(module_path(module, package).read_text(encoding="utf-8")):
        if not isinstance(tree, (ast.Import, ast.ImportFrom)): others.append((tree, text))
        else: brought |= {name: there for name, *there in imports(tree, f"{module}.__init__" if module == "infattn_nb" else module)}
    for tree, text in others:
        for name in defined(tree) or [None]:
            own.setdefault(name, []).append((text, list(uses(tree, module, brought))))
    return own, brought

def upstream(trees, package):
    "The statements of the package that some statements use, and those that these use, and so on, as texts; and the files beside a room that they read."
    brought = {name: there for tree in trees for name, *there in imports(tree, "")}
    todo = {place for tree in trees for place in uses(tree, "", brought)}
    seen, found = set(), set()
    while todo:
        module, name = place = todo.pop()
        if place in seen or not module or not (path := module_path(module, package)).exists(): continue
        seen.add(place)
        own, theirs = room(module, package)
        if name in theirs: todo.add(tuple(theirs[name]))
        elif name not in own and path.name == "__init__.py": todo.add(("infattn_nb", name)) # a wing that passes names on
        for text, names in own.get(name, []) + (own[None] if name in own else []):
            found.add(text)
            found.update((path.parent/file).read_text(encoding="utf-8") for file in re.findall(r'"(\w+\.(?:html|toml))"', text)) # what it reads
            todo.update(names)
    return sorted(found)

def digest(path, package=ROOT/"infattn_nb"):
    "Of what the stored outputs of a page come from: its code, the tables that it reads, and all that it uses of the package."
    own = [pair for _, source in cells(path, "code") for pair in statements_of(source)]
    texts = [text for _, text in own] + upstream([tree for tree, _ in own], package)
    parts = "\n".join(texts).encode(), *(file.read_bytes() for file in data_of(path))
    return sha256(b"".join(parts)).hexdigest()[:16]

# Figures: a palette of at most 256 colours, no thinner picture

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

def shrink(path):
    nb = read(path)
    for _, data in figures(nb): data["image/png"] = base64.b64encode(small(base64.b64decode("".join(data["image/png"])))).decode()
    path.write_text(json.dumps(nb, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")

def execute(path):
    "Store fresh outputs in a page: `exec_nb`, few colours, `nbdev_clean`."
    tool = Path(sys.executable).with_name
    quiet = "ignore:this scan takes about,ignore:this report takes about" # as the clock decides
    one_thread = os.environ | dict(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTHONWARNINGS=quiet)
    subprocess.run([tool("exec_nb"), path.name, "--dest", path.name, "--exc_stop"], cwd=path.parent, env=one_thread, check=True)
    shrink(path)
    subprocess.run([tool("nbdev_clean"), "--fname", path.name], cwd=path.parent, check=True)
    return path

if __name__ == "__main__":
    known = json.loads(EXECUTED.read_text()) if EXECUTED.exists() else {}
    known = {p.name: known.get(p.name) for p in PAGES}
    named = [Path(name).stem + ".ipynb" for name in sys.argv[1:]]
    if unknown := set(named) - set(known):
        sys.exit(f"no such page in nbs: {' '.join(sorted(unknown))}")
    todo = [p for p in PAGES if p.name in named or (not named and known[p.name] != digest(p))]
    failed = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = {pool.submit(execute, p): p for p in todo}
        for run in as_completed(runs):
            page = runs[run]
            if run.exception():
                failed.append(page.name)
                continue
            known[page.name] = digest(page)
            EXECUTED.write_text(json.dumps(known, indent=1) + "\n")
            print(page.name, flush=True)
    if failed:
        sys.exit(f"stopped by an error: {' '.join(sorted(failed))}")
