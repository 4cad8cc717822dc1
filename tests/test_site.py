"""The sources of the site, as Quarto receives them: pre-processed by nbdev, read by
pandoc. What comes out of it: test_browser.py.
"""

import configparser
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from functools import lru_cache
from pathlib import Path

import api_pages
import pypandoc
import pytest
import yaml
from conftest import copy_project

from infattn_nb._modidx import d as modidx

pytestmark = pytest.mark.xdist_group("site")  # its fixtures are made once

ROOT = Path(__file__).parent.parent
NBS = ROOT / "nbs"
PAGES = sorted(p.name for p in NBS.glob("*.ipynb"))
SITE = yaml.safe_load((ROOT / "_quarto.yml").read_text(encoding="utf-8"))
_parser = configparser.ConfigParser(delimiters=["="])
_parser.read(ROOT / "settings.ini", encoding="utf-8")
CFG = _parser["DEFAULT"]
HOST, BLOB = (
    CFG["doc_host"] + CFG["doc_baseurl"] + "/",
    CFG["git_url"] + f"/blob/{CFG['branch']}/",
)
REF = re.compile(r"(eq|fig|sec|tbl)-")
HOMES = defaultdict(list)  # name -> modules that define it
for module, names in modidx["syms"].items():
    for path in names:
        HOMES[path.removeprefix(f"{module}.")].append(module)
each = pytest.mark.parametrize("name", PAGES, ids=lambda n: n.removesuffix(".ipynb"))


@pytest.fixture(scope="session")
def project(tmp_path_factory):
    "A copy of the project with the pre-processed pages in _proc."
    here = tmp_path_factory.mktemp("site")
    copy_project(ROOT, here, "nbs", "infattn_nb")
    code = (
        "from nbdev.quarto import refresh_quarto_yml as r; from nbdev.serve import "
        "proc_nbs as p; r(); p(n_workers=0)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=here, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-800:]
    assert "Warning" not in run.stderr, run.stderr[-800:]
    return here


@pytest.fixture(scope="session")
def site(project):
    "name -> Page"
    pages = {name: Page(project / "_proc" / name) for name in PAGES}
    assert len({p.html for p in pages.values()}) == len(pages), (
        "two notebooks would write the same page"
    )
    return pages


class Page:
    """One pre-processed notebook: its markdown, the syntax tree pandoc makes of it, its
    figures.
    """

    def __init__(self, path):
        self.cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        self.front = yaml.safe_load("".join(self.cells[0]["source"]).strip().strip("-"))
        self.html = self.front["output-file"]
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


@each
def test_opens_with_title_and_claim(name):
    """nbdev turns the first cell into metadata: it holds the title and the claim, and
    whatever else stood there would be lost.
    """
    cells = json.loads((NBS / name).read_text(encoding="utf-8"))["cells"]
    assert re.fullmatch(
        r"# \S.*\n\n> \S.*(\n\n- aliases: \[[\w., ]+\])?", "".join(cells[0]["source"])
    ), (
        "the first cell is `# Title`, an empty line, `> claim`, perhaps addresses "
        "that lead here, nothing else"
    )
    assert cells[2]["cell_type"] == "markdown", (
        "after the path a cell of text says what the page is about"
    )


@each
def test_title_survives(site, name):
    first = "".join(
        json.loads((NBS / name).read_text(encoding="utf-8"))["cells"][0]["source"]
    )
    assert (
        first.partition("\n\n- aliases: ")[0]
        == f"# {site[name].front['title']}\n\n> {site[name].front['description']}"
    )
    assert set(site[name].front) - {"aliases"} == {
        "title",
        "description",
        "output-file",
    }


# Names and definitions


@each
def test_a_linked_name_has_one_home(site, name):
    """nbdev links a name in backticks to a module that defines it; of two it takes the
    one that comes last.
    """
    for word, page in re.findall(
        rf"\[`([\w.]+)(?:\(\))?`\]\({re.escape(HOST)}(\w+)\.html#", site[name].markdown
    ):
        assert len(HOMES[word]) == 1, f"`{word}` is defined in {', '.join(HOMES[word])}"


@each
def test_definitions_stand_in_their_order(project, name):
    """As the site shows them, each linked to its own module; nbdev reverses those of a
    cell.
    """
    page = api_pages.in_order(
        json.loads((project / "_proc" / name).read_text(encoding="utf-8")), name
    )
    shown = [
        (m[1], text)
        for c in page["cells"]
        if (m := api_pages.SHOWN.search("".join(c["source"])))
        and (text := _markdown(c))
    ]
    links = [
        re.search(rf"{re.escape(BLOB)}infattn_nb/([\w/]+)\.py#L(\d+)", text)
        for word, text in shown
        if word in HOMES
    ]
    packages = {link[1].replace("/", ".") for link in links}
    lines = [int(link[2]) for link in links]
    assert len(packages) <= 1
    assert lines == sorted(lines)
    for word, _ in shown:
        assert not packages or f"infattn_nb.{[*packages][0]}" in HOMES[word], word


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


@each
def test_no_stray_markup(site, name):
    """A dollar, a star, a fence or a brace left in the text is mathematics or a block
    that was not recognised; an address is a link inside a link, which nbdev makes
    where a name in backticks has one of its own.
    """
    text = [n["c"] for n in site[name].nodes if n["t"] == "Str"]
    ids = [i for s in text for i in re.findall(r"^\{#(eq-[\w-]+)\}$", s)]
    assert ids == site[name].equations, (
        "an equation's name stands as `$$ {#eq-name}` on its last line"
    )
    bad = [
        s
        for s in text
        if re.search(r"\$|:::|\{[#.]|\?@|\*|\]\(http", s) and not s.startswith("{#eq-")
    ]
    assert not bad, bad


@each
def test_formulas_read_the_same_everywhere(site, name):
    """No macros and no numbering commands: the same source is read by Jupyter, GitHub,
    Colab and MathJax.
    """
    for kind, formula in site[name].of("Math"):
        assert not re.search(
            r"\\(label|eqref|tag|def|newcommand|require)\b", formula
        ), formula
    for c in site[name].cells:
        source = "".join(c["source"])
        if c["cell_type"] == "markdown":
            assert not re.search(r"^[ \t]+\$\$|\$\$\S.*\$\$$", source, flags=re.M), (
                "`$$` stands alone at the beginning of its line"
            )


@each
def test_lists_are_meant(site, name):
    """`(i)` or `B.` at the beginning of a line makes a list of roman numbers or
    letters; write `*(i)*`.
    """
    for (start, style, _), items in site[name].of("OrderedList"):
        assert style["t"] in ("Decimal", "DefaultStyle"), words(items)[:80]


# References


@each
def test_targets_are_unique(site, name):
    twice = [t for t, k in site[name].targets.items() if k > 1]
    assert not twice, twice


@each
def test_no_cell_takes_the_anchor_of_a_definition(name):
    """Quarto gives a code cell's id to its box, and nbdev a lower-case anchor to each
    documented name.
    """
    cells = [
        c
        for c in json.loads((NBS / name).read_text(encoding="utf-8"))["cells"]
        if c["cell_type"] == "code"
    ]
    defined = {
        n.lower()
        for c in cells
        if "#| export" in "".join(c["source"])
        for n in re.findall(r"^(?:class|def) (\w+)", "".join(c["source"]), flags=re.M)
    }
    assert not defined & {c["id"] for c in cells}


def test_figure_and_section_names_are_unique_over_all_pages(site):
    names = Counter(
        t for p in site.values() for t in p.targets if re.match("(fig|sec)-", t)
    )
    assert not [t for t, k in names.items() if k > 1]


@each
def test_references_and_citations(site, name):
    for cite in site[name].of("Cite"):
        for key in (c["citationId"] for c in cite[0]):
            assert (
                site[name].targets[key] == 1
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


@each
def test_links_and_images(site, name):
    by_html = {p.html: p for p in site.values()}
    for _, text, (url, _) in site[name].of("Link"):
        assert words(text).strip() or [n for n in walk(text) if n["t"] == "Image"], (
            f"link to {url} without text"
        )
        file, _, anchor = url.partition("#")
        if file.startswith(BLOB):
            assert (ROOT / file.removeprefix(BLOB)).exists(), url
        elif file.startswith(HOST):
            page = by_html[file.removeprefix(HOST)]
            assert (
                not anchor
                or page.targets[anchor] == 1
                or page.targets[anchor.partition(".")[0]] == 1
            ), url
        elif re.match(r"https?://", file):
            assert re.fullmatch(r"https?://[\w.-]+\.\w+(/\S*)?", file), url
        elif not file or file.endswith(".ipynb"):
            assert not anchor or site[file or name].targets[anchor] == 1, url
        elif file.startswith("api/"):
            assert (
                not anchor or f"{{#{anchor}}}" in reference()[file.removeprefix("api/")]
            ), url
        else:
            assert (NBS / file).exists(), url
    for _, alt, (url, _) in site[name].of("Image"):
        assert len(words(alt)) > 3, url
        assert re.match("https?://", url) or (NBS / url).exists(), url


@each
def test_documented_functions_say_what_they_do(site, name):
    for c in site[name].cells:
        if c["cell_type"] != "code" or "show_doc" not in "".join(c["source"]):
            continue
        doc = _markdown(c)
        assert re.search(r"^\*\S", doc, flags=re.M), f"{c['source']} needs a docstring"
        assert "Call self as a function" not in doc, f"{c['source']} needs a docstring"
        assert ":Annotated" not in doc
    for _, code in site[name].of("CodeBlock"):
        assert "](http" not in code, (
            f"a name in backticks becomes a link in {code[:200]}"
        )


@each
def test_paragraphs_are_short(site, name):
    "Six lines at most; roughly, a command of TeX is one character."
    for paragraph in site[name].of("Para"):
        text = re.sub(r"\\[a-zA-Z]+", "x", re.sub(r"[{}^_]", "", words(paragraph)))
        assert len(text) < 620, text[:100]


# Figures and outputs


@each
def test_figures_have_caption_and_alt(site, name):
    for c in site[name].cells:
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
        for c in site[name].cells
        if any("image/png" in o.get("data", {}) for o in c.get("outputs", []))
    ]
    labels = [f["label"] for f in site[name].figures]
    assert labels == [options(c)["label"] for c in drawn], (
        "a caption without its picture"
    )
    assert len(labels) == len(set(labels)), "a caption without its picture"


@each
def test_options_stand_once(site, name):
    for c in site[name].cells:
        keys = re.findall(r"^#\|\s*([\w-]+):", "".join(c["source"]), flags=re.M)
        assert c["cell_type"] != "code" or len(keys) == len(set(keys)), keys


@each
def test_long_figure_code_is_folded(site, name):
    "Matplotlib does not stand between the text and its picture."
    for c in site[name].cells:
        lines = [
            line
            for line in "".join(c["source"]).splitlines()
            if not line.startswith("#|")
        ]
        o = options(c) if c["cell_type"] == "code" else {}
        if str(o.get("label", "")).startswith("fig-") and len(lines) > 5:
            assert o.get("code-fold") is True or o.get("echo") is False, lines[0]


@each
def test_outputs_are_fit_to_print(name):
    for c in json.loads((NBS / name).read_text(encoding="utf-8"))["cells"]:
        for o in c.get("outputs", []):
            assert o.get("name") != "stderr"
            assert o["output_type"] != "error" or "raises-exception" in c[
                "metadata"
            ].get("tags", [])
            text = "".join(o.get("text", o.get("data", {}).get("text/plain", "")))
            assert not re.search(
                r"/(work|tmp|home|root|usr|Users)/|Traceback|Warning:| at 0x", text
            ), text


def test_size_of_stored_outputs():
    assert (
        sum(
            len(json.dumps(c.get("outputs")))
            for n in PAGES
            for c in json.loads((NBS / n).read_text(encoding="utf-8"))["cells"]
        )
        < 15e6
    )


# Reading order and accessibility


@each
def test_headings_do_not_jump(site, name):
    """Title, sections, documented functions: no level is left out (titles of callouts
    are not headings).
    """
    callouts = {
        id(n)
        for d in site[name].nodes
        if d["t"] == "Div" and any(c.startswith("callout") for c in d["c"][0][1])
        for n in walk(d)
    }
    level = 1
    for n in site[name].nodes:
        if n["t"] != "Header" or id(n) in callouts:
            continue
        assert 2 <= n["c"][0] <= level + 1, words(n)
        level = n["c"][0]


@each
def test_tables_have_headers(site, name):
    for table in site[name].of("Table"):
        for _, cells in table[3][1]:
            assert all(words(cell).strip() for cell in cells), words(table)[:80]


def sidebar(contents=None):
    "The pages in reading order."
    for item in (
        SITE["website"]["sidebar"]["contents"] if contents is None else contents
    ):
        if isinstance(item, str):
            yield item
        else:
            yield from sidebar(
                item.get("contents", [])
            )  # a link to the API reference has none


def test_sidebar_lists_every_page_once():
    assert sorted(sidebar()) == PAGES


def luminance(colour):
    r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return sum(
        w * (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4)
        for w, c in zip((0.2126, 0.7152, 0.0722), (r, g, b))
    )


def contrast(a, b):
    "Ratio of WCAG 2.2, from 1 to 21."
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast(theme):
    "Text reaches 4.5 (AA) on every ground it stands on."
    colour = dict(
        re.findall(
            r"^\$([\w-]+): (#[0-9a-f]{6}) !default;",
            (NBS / f"{theme}.scss").read_text(),
            flags=re.M,
        )
    )
    for ground in ("body-bg", "ground", "code-bg"):
        for text in ("body-color", "link-color", "quiet"):
            assert contrast(colour[text], colour[ground]) >= 4.5, (text, ground)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_quarto_does_not_keep_its_own_greys(theme):
    """Quarto sets these before a theme may: with `!default` ours would be ignored, and
    plain outputs black on dark.
    """
    for name in ("border-color", "text-muted", "pre-color"):
        assert re.search(
            rf"^\${name}: [^!]*;", (NBS / f"{theme}.scss").read_text(), flags=re.M
        ), name


def test_figures_share_the_colours_of_the_page():
    colour = dict(
        re.findall(
            r"^\$([\w-]+): (#[0-9a-f]{6}) !default;",
            (NBS / "light.scss").read_text(),
            flags=re.M,
        )
    )
    style = (ROOT / "infattn_nb/infattn.mplstyle").read_text()
    assert (
        re.search(r"axes.prop_cycle: cycler\('color', \['(\w+)'", style)[1]
        == colour["link-color"][1:]
    )


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
    assert any(
        "-m site" in step.get("run", "") for step in docs["build"]["steps"]
    )  # the browser looks at every page
