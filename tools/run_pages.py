"""Run the pages whose code or data have changed since their outputs were stored, or those named, and store fresh outputs.

    python tools/run_pages.py [page …]"""
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from hashlib import sha256
from pathlib import Path

from shrink_figures import shrink

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT/"nbs").glob("*.ipynb"))
EXECUTED = ROOT/"tests/executed.json" # page -> digest of the code and data whose outputs it stores

def cells(path, kind=None):
    for c in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if kind in (None, c["cell_type"]): yield c, "".join(c["source"])

def makes_a_room(path): return any(source.startswith("#| default_exp") for _, source in cells(path, "code"))

CODED = [p for p in PAGES if makes_a_room(p)]

def code_of(path): return "\n".join(source for _, source in cells(path, "code"))

def data_of(path):
    "The stored tables that a page reads; a name in braces may be any."
    names = re.findall(r'"(data/[^"]+)"', code_of(path))
    return sorted({file for name in names for file in path.parent.glob(re.sub(r"{.*?}", "*", name))})

def digest(path):
    "Of what the stored outputs of a page come from: its code, and the tables that it reads."
    parts = [code_of(path).encode(), *(file.read_bytes() for file in data_of(path))]
    return sha256(b"".join(parts)).hexdigest()[:16]

def execute(path):
    "Store fresh outputs in a page: `exec_nb`, few colours, `nbdev_clean`."
    tool = Path(sys.executable).with_name
    one_thread = os.environ | dict(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
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
