"What stands open on a page can be copied and runs."

import subprocess
import sys

import pytest
from every import on_every_page
from run_pages import name
from written import NBS, PAGES, from_nowhere, is_visible, read, text, visible

each = pytest.mark.parametrize("path", PAGES, ids=name)


@on_every_page
def test_every_visible_name_comes_from_a_visible_cell(page):
    missing = from_nowhere(visible(read(NBS / f"{page}.ipynb")))
    assert not missing, (
        f"{missing}: run `python tools/written.py`, or open or fold the cell that "
        f"makes or uses them"
    )


@pytest.mark.slow
@each
def test_visible_cells_run(path, tmp_path):
    "All in one program; a cell that shows an error may raise it."
    cells = [
        (text(c), "raises-exception" in c["metadata"].get("tags", []))
        for c in read(path)["cells"]
        if is_visible(c)
    ]
    program = [
        "import matplotlib",
        "matplotlib.use('agg')",
        "cells = " + repr(cells),
        "here = {'__name__': 'page', 'display': print}",
        "for source, may_raise in cells:",
        "    try: exec(compile(source, 'visible', 'exec'), here)",
        "    except Exception:",
        "        if not may_raise: raise",
    ]
    folder = tmp_path / path.parent.relative_to(NBS)
    folder.mkdir(exist_ok=True)
    (folder / "page.py").write_text("\n".join(program), encoding="utf-8")
    (tmp_path / "data").symlink_to(NBS / "data")
    run = subprocess.run(
        [sys.executable, "page.py"], cwd=folder, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-1500:]
