"""Notebooks, modules and stored outputs are in sync."""

import json
import re
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from conftest import copy_project
from every import on_every_page
from execnb.nbio import read_nb
from execnb.shell import CaptureShell
from fastcore.xtras import working_directory
from nbdev.clean import clean_nb
from run_pages import CODED, EXECUTED, NBS, PAGES, ROOT, cells, digest, name

each = pytest.mark.parametrize("path", PAGES, ids=name)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    "A copy of the project, exported once more."
    root = tmp_path_factory.mktemp("copy")
    copy_project(ROOT, root, "nbs", "infattn_nb", "tools", without=["data"])
    subprocess.run(
        [Path(sys.executable).with_name("nbdev_export")],
        cwd=root,
        check=True,
        capture_output=True,
    )
    return root


def test_modules_are_the_notebooks(copy):
    for module in (ROOT / "infattn_nb").rglob("*.py"):
        assert (copy / module.relative_to(ROOT)).read_text() == module.read_text(), (
            module
        )


def module_of(path):
    "The module that a page makes."
    return re.search(
        r"^#\| default_exp (\S+)",
        "\n".join(source for _, source in cells(path, "code")),
        flags=re.M,
    )[1]


ACROSS = {"laws", "interface", "external", "site"}  # tests of several parts


def test_a_page_makes_the_module_of_its_name():
    "And every module has its page."
    for path in CODED:
        assert module_of(path) == name(path).replace("/", ".")
    modules = [
        p.relative_to(ROOT / "infattn_nb").with_suffix("").as_posix()
        for p in (ROOT / "infattn_nb").rglob("[a-z]*.py")
    ]
    assert sorted(modules) == sorted(map(name, CODED))


def test_a_test_has_the_name_of_what_it_tests():
    "A module or a page; what cuts across parts stands in four folders of its own."
    tests = ROOT / "tests"
    for path in tests.rglob("test_*.py"):
        folder = path.parent.relative_to(tests).as_posix()
        if folder not in ACROSS:
            page = NBS / folder / f"{path.stem.removeprefix('test_')}.ipynb"
            assert page.exists(), path


ALONE = {  # modules without a test file of their own, and why
    "__main__": "starts the commands, which are tested as commands",
    "_lazy": "imports on demand: tests/interface/test_names.py looks from outside",
}


def test_every_module_has_its_test_file():
    """Every test file in a folder of a subpackage tests its module or page (above);
    here the other direction.
    """
    tests = {
        path.relative_to(ROOT / "tests").as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
    }
    modules = [name(path) for path in CODED]
    wanted = {m: str(Path(m).with_name(f"test_{Path(m).name}.py")) for m in modules}
    missing = {m for m, file in wanted.items() if file not in tests}
    assert missing == set(ALONE) & set(modules)


@on_every_page
def test_clean(page):
    nb = read_nb(NBS / f"{page}.ipynb")
    before = json.dumps(nb)
    clean_nb(nb, allowed_cell_metadata_keys=["code-fold"])
    assert json.dumps(nb) == before


@on_every_page
def test_every_name_comes_from_somewhere(page):
    "Hidden cells, too, use only what some cell makes."
    import written
    from fastcore import test

    lost = written.lost(written.read(NBS / f"{page}.ipynb"))
    assert set(lost) <= set(test.__all__), lost


def printed(outputs):
    "What a reader sees of the outputs: texts, and a mark for each picture."
    for o in outputs:
        data = o.get("data", {})
        if o["output_type"] == "stream":
            yield "".join(o["text"])
        elif "image/png" in data:
            yield "<picture>"
        elif "text/markdown" in data:
            yield "".join(data["text/markdown"])
        elif "text/plain" in data:
            yield "".join(data["text/plain"])


NUMBER = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")


@on_every_page
def test_outputs_were_stored_by_this_code(page):
    """The page has been executed since its own code and tables last changed; a sentence
    of documentation is no change. The slow test below runs it again.
    """
    known = json.loads(EXECUTED.read_text())[page]
    assert known == digest(NBS / f"{page}.ipynb"), "run `python tools/run_pages.py`"


@pytest.mark.slow
@each
def test_stored_outputs_are_fresh(path):
    "Run every cell again: the same texts, numbers equal up to the last digit shown."
    nb, shell = read_nb(path), CaptureShell(path)
    plt.close("all")  # what another test left open would be shown here
    pd.reset_option("^display")  # and what another page has set
    with working_directory(path.parent):
        for (cell, source), c in zip(cells(path), nb.cells):
            if c.cell_type != "code" or not source or "#| eval: false" in source:
                continue
            new, old = (
                "".join(printed(shell.run(source))),
                "".join(printed(cell["outputs"])),
            )
            assert not shell.exc, f"{path.stem}: {source[:80]} raises {shell.exc}"
            assert NUMBER.sub("#", new) == NUMBER.sub("#", old), (
                f"{path.stem}: {source[:80]}"
            )
            if "expected_seconds" in source:  # the clock's own
                continue
            for a, b in zip(NUMBER.findall(new), NUMBER.findall(old)):
                assert abs(float(a) - float(b)) <= 1.1 * unit(b), f"{a} was {b}"


def unit(number):
    "One unit of the last digit shown."
    mantissa, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def test_imports_stand_alone():
    "The docs build runs cells with imports by themselves."
    for path in CODED:
        for _, source in cells(path, "code"):
            lines = [
                line
                for line in source.splitlines()
                if line.strip() and not line.startswith("#")
            ]
            imports = [
                line
                for line in lines
                if re.match(r" *(import|from) |if TYPE_CHECKING:", line)
            ]
            if not any(re.match(r"(import|from) ", line) for line in lines):
                continue  # late imports of a function
            assert len(imports) in (0, len(lines)), f"{path.stem}: {source[:80]}"


def shown(cell, source):
    "The lines of code and of plain output that a reader sees."
    if "#| hide" in source:
        return
    if "#| echo: false" not in source:
        yield from (line for line in source.splitlines() if not line.startswith("#|"))
    for o in cell["outputs"]:
        data = o.get("data", {})
        if not {"text/html", "text/markdown", "image/png"} & set(data):
            yield from "".join(o.get("text", data.get("text/plain", ""))).splitlines()


@on_every_page
def test_lines_fit_the_page(page):
    "88 characters stand beside both margins of the site."
    long = [
        line
        for c, source in cells(NBS / f"{page}.ipynb", "code")
        for line in shown(c, source)
        if len(line) > 88
    ]
    assert not long, f"{len(long)} lines, e.g. {max(long, key=len)}"
