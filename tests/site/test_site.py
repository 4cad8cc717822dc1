"""The sources of the site, as Quarto receives them: pre-processed by nbdev, read by
pandoc. What comes out of it: site/test_browser.py.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from functools import lru_cache
from itertools import chain, combinations
from pathlib import Path

import api_pages
import pypandoc
import pytest
import run_pages
import yaml
from conftest import copy_project
from every import on_every_page
from written import CFG, NBS, PAGES, ROOT

from infattn_nb._modidx import d as modidx

pytestmark = pytest.mark.xdist_group("site")  # its fixtures are made once
SITE = yaml.safe_load((ROOT / "_quarto.yml").read_text(encoding="utf-8"))
HOST, BLOB = (
    CFG["doc_host"] + CFG["doc_baseurl"] + "/",
    CFG["git_url"] + f"/blob/{CFG['branch']}/",
)
REF = re.compile(r"(eq|fig|sec|tbl)-")
HOMES = defaultdict(list)  # name -> modules that define it
for module, names in modidx["syms"].items():
    for path in names:
        HOMES[path.removeprefix(f"{module}.")].append(module)


def stored(page):
    "The cells of a page as they are stored."
    return json.loads((NBS / f"{page}.ipynb").read_text(encoding="utf-8"))["cells"]


PROCESS = """import gc
from nbdev.quarto import refresh_quarto_yml
from nbdev.serve import proc_nbs
refresh_quarto_yml()
proc_nbs(n_workers=0)
gc.freeze() # at the end each page's shell collects garbage among all objects"""


@pytest.fixture(scope="session")
def project(tmp_path_factory):
    "A copy of the project with the pre-processed pages in _proc."
    here = tmp_path_factory.mktemp("site")
    copy_project(ROOT, here, "nbs", "infattn_nb")
    run = subprocess.run(
        [sys.executable, "-c", PROCESS], cwd=here, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-800:]
    assert "Warning" not in run.stderr, run.stderr[-800:]
    return here


@pytest.fixture(scope="session")
def site(project):
    "`attention/spec` -> Page"
    pages = {
        name: Page(project / "_proc" / f"{name}.ipynb", name)
        for name in map(run_pages.name, PAGES)
    }
    assert len({p.html for p in pages.values()}) == len(pages), (
        "two notebooks would write the same page"
    )
    return pages


class Page:
    "One pre-processed notebook: markdown, pandoc's tree, figures."

    def __init__(self, path, name):
        self.cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        self.front = yaml.safe_load("".join(self.cells[0]["source"]).strip().strip("-"))
        self.html = (Path(name).parent / self.front["output-file"]).as_posix()
        self.figures = [
            o
            for c in self.cells
            if c["cell_type"] == "code"
            if (o := options(c)) and "label" in o
        ]
        self.markdown = "\n\n".join(filter(None, map(_markdown, self.cells[1:])))
        self.parsed = pandoc(self.markdown, "json")
        self.tree = json.loads(self.parsed)["blocks"]
        self.nodes = list(walk(self.tree))

    def of(self, *kinds):
        return [n["c"] for n in self.nodes if n["t"] in kinds]

    @property
    def targets(self):
        "Everything on the page that can be pointed at."
        ids = [c[1][0] for c in self.of("Header")] + [
            c[0][0]
            for c in self.of(
                "Div", "Span", "Figure", "Table", "CodeBlock", "Link", "Image"
            )
        ]
        return (
            Counter(i for i in ids if i)
            + Counter(self.equations)
            + Counter(f["label"] for f in self.figures)
        )

    @property
    def equations(self):
        return re.findall(r"^\$\$ \{#(eq-[\w-]+)\}$", self.markdown, flags=re.M)


def pandoc(text, to, *args, source="markdown"):
    run = subprocess.run(
        [
            pypandoc.get_pandoc_path(),
            "-f",
            source,
            "-t",
            to,
            "--fail-if-warnings",
            *args,
        ],
        input=text,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def walk(x):
    if isinstance(x, dict) and "t" in x:
        yield x
    for y in x.values() if isinstance(x, dict) else x if isinstance(x, list) else ():
        yield from walk(y)


def words(x):
    "The text of a piece of the tree, without displayed formulas."
    return "".join(
        {
            "Str": lambda c: c,
            "Space": lambda c: " ",
            "SoftBreak": lambda c: " ",
            "Math": lambda c: c[1] if c[0]["t"] == "InlineMath" else "",
            "Code": lambda c: c[1],
        }.get(n["t"], lambda c: "")(n.get("c"))
        for n in walk(x)
    )


def options(cell):
    "The `#| key: value` lines of a code cell."
    lines = re.findall(r"^#\|\s*([\w-]+:.*)$", "".join(cell["source"]), flags=re.M)
    return yaml.safe_load("\n".join(lines)) if lines else {}


def _markdown(cell):
    "Text cells, and the documentation that nbdev has put in."
    if cell["cell_type"] == "markdown":
        return "".join(cell["source"])
    return "\n\n".join(
        "".join(o["data"]["text/markdown"])
        for o in cell.get("outputs", [])
        if "text/markdown" in o.get("data", {})
    )


@lru_cache
def reference():
    return api_pages.pages()


@lru_cache
def bibliography():
    return re.findall(
        r"^@\w+\{([\w-]+),",
        (NBS / "references.bib").read_text(encoding="utf-8"),
        flags=re.M,
    )


# The opening


@on_every_page
def test_opens_with_title_and_claim(page):
    """nbdev turns the first cell into metadata: it holds the title and the claim, and
    whatever else stood there would be lost.
    """
    cells = stored(page)
    assert re.fullmatch(r"# \S.*\n\n> \S.*", "".join(cells[0]["source"])), (
        "the first cell is `# Title`, an empty line, `> claim`, nothing else"
    )
    assert cells[1]["cell_type"] == "markdown", (
        "after title and claim a cell of text says what the page is about"
    )


# Names and definitions


@on_every_page
def test_a_linked_name_has_one_home(page, site):
    "Of two modules that define a name nbdev links the last."
    for word in re.findall(
        rf"\[`([\w.]+)(?:\(\))?`\]\({re.escape(HOST)}[\w/]+\.html#", site[page].markdown
    ):
        assert len(HOMES[word]) == 1, f"`{word}` is defined in {', '.join(HOMES[word])}"


# Mathematics


def test_equations_parse(site):
    "In one run of pandoc, which names a formula that it cannot read."
    empty = json.loads(pandoc("", "json"))
    formulas = [
        {"t": "Para", "c": [n for n in p.nodes if n["t"] == "Math"]}
        for p in site.values()
    ]
    assert (
        pandoc(
            json.dumps(empty | dict(blocks=formulas)), "html", "--mathml", source="json"
        ).count("<math")
        > 2000
    )
    broken = {
        "t": "Para",
        "c": [{"t": "Math", "c": [{"t": "InlineMath"}, r"\frac{1}{"]}],
    }
    with pytest.raises(AssertionError, match=r"\\frac\{1"):
        pandoc(
            json.dumps(empty | dict(blocks=[*formulas, broken])),
            "html",
            "--mathml",
            source="json",
        )


@on_every_page
def test_no_stray_markup(page, site):
    """A dollar, a star, a fence or a brace left in the text is mathematics or a block
    that was not recognised; an address is a link inside a link, which nbdev makes
    where a name in backticks has one of its own.
    """
    text = [n["c"] for n in site[page].nodes if n["t"] == "Str"]
    ids = [i for s in text for i in re.findall(r"^\{#(eq-[\w-]+)\}$", s)]
    assert ids == site[page].equations, (
        "an equation's name stands as `$$ {#eq-name}` on its last line"
    )
    bad = [
        s
        for s in text
        if re.search(r"\$|:::|\{[#.]|\?@|\*|\]\(http", s) and not s.startswith("{#eq-")
    ]
    assert not bad, bad


@on_every_page
def test_formulas_read_the_same_everywhere(page, site):
    "No macros and no numbering: Jupyter, GitHub, MathJax."
    for kind, formula in site[page].of("Math"):
        assert not re.search(
            r"\\(label|eqref|tag|def|newcommand|require)\b", formula
        ), formula
    for c in site[page].cells:
        source = "".join(c["source"])
        if c["cell_type"] == "markdown":
            assert not re.search(r"^[ \t]+\$\$|\$\$\S.*\$\$$", source, flags=re.M), (
                "`$$` stands alone at the beginning of its line"
            )


@on_every_page
def test_lists_are_meant(page, site):
    "`(i)` at the beginning of a line makes a list; write `*(i)*`."
    for (start, style, _), items in site[page].of("OrderedList"):
        assert style["t"] in ("Decimal", "DefaultStyle"), words(items)[:80]


# References


@on_every_page
def test_targets_are_unique(page, site):
    twice = [t for t, k in site[page].targets.items() if k > 1]
    assert not twice, twice


def test_figure_and_section_names_are_unique_over_all_pages(site):
    names = Counter(
        t for p in site.values() for t in p.targets if re.match("(fig|sec)-", t)
    )
    assert not [t for t, k in names.items() if k > 1]


@on_every_page
def test_references_and_citations(page, site):
    for cite in site[page].of("Cite"):
        for key in (c["citationId"] for c in cite[0]):
            assert (
                site[page].targets[key] == 1
                if REF.match(key)
                else key in bibliography()
            ), f"@{key}"


def test_bibliography():
    assert len(bibliography()) == len(set(bibliography()))
    pandoc(
        "---\nnocite: '@*'\n---\n",
        "html",
        "--citeproc",
        f"--bibliography={NBS / 'references.bib'}",
    )


@on_every_page
def test_links_and_images(page, site):
    by_html = {p.html: p for p in site.values()}
    folder = Path(page).parent
    for _, text, (url, _) in site[page].of("Link"):
        assert words(text).strip() or [n for n in walk(text) if n["t"] == "Image"], (
            f"link to {url} without text"
        )
        file, _, anchor = url.partition("#")
        if file.startswith(BLOB):
            assert (ROOT / file.removeprefix(BLOB)).exists(), url
        elif file.startswith(HOST):
            other = by_html[file.removeprefix(HOST)]
            assert (
                not anchor
                or other.targets[anchor] == 1
                or other.targets[anchor.partition(".")[0]] == 1
            ), url
        elif re.match(r"https?://", file):
            assert re.fullmatch(r"https?://[\w.-]+\.\w+(/\S*)?", file), url
        elif not file or file.endswith(".ipynb"):
            other = os.path.normpath(folder / file.removesuffix(".ipynb"))
            target = site[other if file else page]
            assert not anchor or target.targets[anchor] == 1, url
        elif file.removeprefix("../").startswith("api/"):
            entry = reference()[file.rpartition("/")[2]]
            assert not anchor or f"{{#{anchor}}}" in entry, url
        else:
            assert (NBS / folder / file).exists(), url
    for _, alt, (url, _) in site[page].of("Image"):
        assert len(words(alt)) > 3, url
        assert re.match("https?://", url) or (NBS / folder / url).exists(), url


@on_every_page
def test_documented_functions_say_what_they_do(page, site):
    for c in site[page].cells:
        if c["cell_type"] != "code" or "show_doc" not in "".join(c["source"]):
            continue
        doc = _markdown(c)
        assert re.search(r"^\*\S", doc, flags=re.M), f"{c['source']} needs a docstring"
        assert "Call self as a function" not in doc, f"{c['source']} needs a docstring"
        assert ":Annotated" not in doc
    for _, code in site[page].of("CodeBlock"):
        assert "](http" not in code, (
            f"a name in backticks becomes a link in {code[:200]}"
        )


@on_every_page
def test_paragraphs_are_short(page, site):
    "Six lines at most; roughly, a command of TeX is one character."
    for paragraph in site[page].of("Para"):
        text = re.sub(r"\\[a-zA-Z]+", "x", re.sub(r"[{}^_]", "", words(paragraph)))
        assert len(text) < 620, text[:100]


# Figures and outputs


@on_every_page
def test_figures_have_caption_and_alt(page, site):
    for c in site[page].cells:
        for o in c.get("outputs", []):
            if not any(k.startswith("image/") for k in o.get("data", {})):
                continue
            figure = options(c)
            assert figure.get("label", "").startswith("fig-"), "".join(c["source"])[:80]
            assert len(figure["fig-cap"]) > 20
            assert len(figure["fig-alt"]) > 20
            assert set(k for k in o["data"] if k.startswith("image/")) == {"image/png"}
    drawn = [
        c
        for c in site[page].cells
        if any("image/png" in o.get("data", {}) for o in c.get("outputs", []))
    ]
    labels = [f["label"] for f in site[page].figures]
    assert labels == [options(c)["label"] for c in drawn], (
        "a caption without its picture"
    )
    assert len(labels) == len(set(labels)), "a caption without its picture"


@on_every_page
def test_outputs_are_fit_to_print(page):
    for c in stored(page):
        for o in c.get("outputs", []):
            assert o.get("name") != "stderr"
            assert o["output_type"] != "error" or "raises-exception" in c[
                "metadata"
            ].get("tags", [])
            text = "".join(o.get("text", o.get("data", {}).get("text/plain", "")))
            assert not re.search(
                r"/(work|tmp|home|root|usr|Users)/|Traceback|Warning:| at 0x", text
            ), text


# Reading order and accessibility


@on_every_page
def test_headings_do_not_jump(page, site):
    "No level is left out; titles of callouts are not headings."
    callouts = {
        id(n)
        for d in site[page].nodes
        if d["t"] == "Div" and any(c.startswith("callout") for c in d["c"][0][1])
        for n in walk(d)
    }
    level = 1
    for n in site[page].nodes:
        if n["t"] != "Header" or id(n) in callouts:
            continue
        assert 2 <= n["c"][0] <= level + 1, words(n)
        level = n["c"][0]


@on_every_page
def test_tables_have_headers(page, site):
    for table in site[page].of("Table"):
        for _, cells in table[3][1]:
            assert all(words(cell).strip() for cell in cells), words(table)[:80]


def in_order(menu):
    "The pages of a menu in reading order."
    for item in menu["contents"]:
        if isinstance(item, str):
            yield item
        elif isinstance(item.get("contents"), list):
            yield from in_order(item)


def test_every_page_stands_once_in_a_menu():
    reading, code = map(list, map(in_order, SITE["website"]["sidebar"]))
    assert len(reading) < 105
    assert sorted(reading + code) == sorted(f"{run_pages.name(p)}.ipynb" for p in PAGES)


# Publishing


def test_workflows():
    tests, docs = (
        yaml.safe_load(
            (ROOT / f".github/workflows/{name}.yml").read_text(encoding="utf-8")
        )["jobs"]
        for name in ("test", "docs")
    )
    assert tests["test"]["strategy"]["matrix"]["python"][0] == CFG["min_python"]
    assert tests["test"]["steps"][-1]["run"].startswith(".ci/run")
    quarto = next(
        step["with"]["version"]
        for step in docs["build"]["steps"]
        if "quarto" in step.get("uses", "")
    )
    assert f"quarto-cli>={quarto.rpartition('.')[0]}," in CFG["docs_requirements"]
    # the browser looks at every page
    assert any("-m site" in step.get("run", "") for step in docs["build"]["steps"])


MARKS = "slow", "site", "long", "torch", "rendered"


def selections(text):
    "The expressions after `pytest -m` in a script or a workflow."
    quoted = re.findall(r"""pytest (?:-\w+ )*-m (?:"([^"]+)"|(\w+))""", text)
    return [a or b for a, b in quoted]


def test_every_test_is_selected_by_a_job_that_has_what_it_needs():
    """All combinations of marks: by each push, or by night if it is slow. The README's
    command has no torch; .ci/run ends with an error unless what follows has it.
    """
    ci = (ROOT / ".ci/run").read_text()
    nightly, site = (
        (ROOT / f".github/workflows/{name}.yml").read_text()
        for name in ("nightly", "docs")
    )
    pinned = re.search(
        r"torch_requirements = (.*)", (ROOT / "settings.ini").read_text()
    )
    assert all("==" in name for name in pinned[1].split())
    _, beside = ci.split("python -c 'import torch, transformers'\n")
    quick = re.search(r"-m '(.*?)'", (ROOT / "pyproject.toml").read_text())[1]
    daily = {"": [quick, *selections(beside)], "torch": selections(beside)}
    assert "[dev,dask,torch]" in nightly
    for marks in map(
        set, chain.from_iterable(combinations(MARKS, k) for k in range(len(MARKS) + 1))
    ):
        if "rendered" in marks:
            marks.add("site")  # by its folder
        known = {mark: mark in marks for mark in MARKS}
        some = daily["torch" if "torch" in marks else ""]
        if "rendered" in marks:
            some = [*some, *selections(site)]
        jobs = selections(nightly) if "slow" in marks else some
        assert any(eval(job, {}, known) for job in jobs), marks
