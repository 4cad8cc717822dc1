"""What the search of the site looks through: `search.json`, from the pages as they are
written. Sections are documents, and so are boxed statements, figures, numbered
equations and public names, each under its own name.

    python tools/search_index.py FOLDER

Quarto runs it after rendering (`_quarto.yml`) and names the folder of the site in
QUARTO_PROJECT_OUTPUT_DIR. `nbs/live/search.js` reads the index.
"""

import ast
import json
import os
import re
import sys
from pathlib import Path

import yaml
from api_pages import pages as api_pages
from written import NBS, PAGES, PUBLIC, ROOT, is_visible, read, text

# What is written, in words

SIGNS = dict(
    zip(
        """sqrt infty to cdot times pm approx le ge ll gg sim propto top sum int partial
        langle rangle dots varnothing star circ odot alpha beta gamma Gamma delta Delta
        epsilon varepsilon zeta eta theta Theta kappa lambda Lambda mu nu xi pi Pi rho
        sigma Sigma tau phi varphi Phi chi psi Psi omega Omega ell log exp max min cos
        tanh""".split(),
        """√ ∞ → · × ± ≈ ≤ ≥ ≪ ≫ ~ ∝ ᵀ ∑ ∫ ∂ ⟨ ⟩ … ∅ ⋆ ∘ ⊙ α β γ Γ δ Δ ε ε ζ η θ Θ κ λ Λ
        µ ν ξ π Π ρ σ Σ τ φ φ Φ χ ψ Ψ ω Ω ℓ log exp max min cos tanh""".split(),
        strict=True,
    )
)


def formula(tex):
    "A formula without its commands: `1/√n`."
    tex = re.sub(r"\\[dt]?frac *\{([^{}]*)\} *\{([^{}]*)\}", r"\1/\2", tex)
    tex = re.sub(r"\\[dt]?frac *(\w) *(\w)", r"\1/\2", tex)
    tex = re.sub(r"\\([a-zA-Z]+)", lambda m: SIGNS.get(m[1], ""), tex)
    tex = re.sub(r"[\\{}$&~]", "", tex).replace("^2", "²").replace("√ ", "√")
    return " ".join(tex.split())


def cited(match):
    "Sakai 2025; what stands on a page is only referred to."
    names = re.findall(r"@([a-z]+)(\d+)", match[0])
    return ", ".join(f"{name.capitalize()} {year}" for name, year in names)


DISPLAYED = re.compile(r"\$\$(.*?)\$\$[.,]? *(?:\{#(eq-[\w-]+)\})?", flags=re.S)


def words(markdown):
    "Markdown as one reads it, in a line."
    said = re.sub(r"^(```|~~~).*?^\1", " ", markdown, flags=re.S | re.M)
    said = re.sub(r"^:::.*$|<!--.*?-->|^\|?[ :|-]+\|$", "", said, flags=re.M | re.S)
    said = DISPLAYED.sub(" ", said)
    said = re.sub(r"\$([^$]*)\$", lambda m: formula(m[1]), said)
    said = re.sub(r"\{[#.][^}]*\}|</?[a-z][^>]*>", "", said)
    said = re.sub(r"!?\[((?!@)[^]]*)\]\([^)]*\)", r"\1", said)
    said = re.sub(r"\[-?@[^]]*\]|(?<!\w)@[\w-]+\w", cited, said)
    said = re.sub(r"^-{3,}$", "", said, flags=re.M)
    said = re.sub(r"^ *(#+|>|[-*]|\d+\.) |[*`|\\]", " ", said, flags=re.M)
    return " ".join(said.split())


def heading(line):
    "Text and address of a line of a heading."
    said = words(line.lstrip("#"))
    given = re.search(r"\{#([\w.-]+)", line)
    return said, given[1] if given else re.sub(r"[^\w -]", "", said.lower()).replace(
        " ", "-"
    )


# Documents: where, under which name, and what they say


def sections(markdown):
    """Pairs of the heading of a section and its text; the first has no heading. A title
    of a callout is none: its address is not on the page.
    """
    fenced, parts, before = False, [["", ""]], ""
    for line in markdown.splitlines():
        fenced ^= line.startswith(("```", "~~~"))
        if line.startswith("## ") and not fenced and ".callout" not in before:
            parts.append([line, ""])
        elif not re.match(r"# ", line) or fenced:
            parts[-1][1] += line + "\n"
        before = line
    return parts


def every(number):
    "The numbers of `10–15`, `2 and 3` or `18`."
    if found := re.fullmatch(r"(\d+)–(\d+)", number):
        return range(int(found[1]), int(found[2]) + 1)
    return re.findall(r"\d+", number)


def statements(markdown):
    "Address, name and text of each boxed statement."
    box = r"^::: *\{#([\w-]+) [^}]*\.statement.*?\} *\n(.*?)^:::"
    for address, said in re.findall(box, markdown, flags=re.M | re.S):
        name = words(re.search(r"\*\*(.*?)\*\*|$", said)[1] or "").rstrip(".")
        several = re.match(r"(\w+?)s (\d+(?:–| and )\d+)$", name)
        items = [f"{several[1]} {k}" for k in every(several[2])] if several else [name]
        own = [re.search(rf"\*\*{x}\.\*\*(.*)|$", said)[1] or said for x in items]
        for item, part in zip(items, own):
            yield address, item, words(part)


def equations(markdown):
    "Address, name and text of each numbered equation, with what leads to it."
    for found in DISPLAYED.finditer(markdown):
        if found[2]:
            before = words(DISPLAYED.sub(" ", markdown[: found.start()]))[-200:]
            lead = re.split(r"(?<=[.!?:]) (?=[A-Z])", before)[-1]
            yield found[2], "Equation", f"{lead} {formula(found[1])}"


def figure(source):
    "Address, name and text of the figure that a cell draws."
    said = dict(re.findall(r'^#\| *(label|fig-cap): *"?(.*?)"?$', source, flags=re.M))
    if said.get("label", "").startswith("fig-") and "fig-cap" in said:
        caption = words(said["fig-cap"].replace("\\\\", "\\"))
        number = re.match(r"The paper's (Figure \w+(\(\w\))?)\.", caption)
        yield said["label"], number[1] if number else "Figure", caption


def crumbs(contents, above=()):
    "Page -> the titles of the sections of the menu in which it stands."
    for entry in contents:
        if isinstance(entry, str):
            yield entry.removesuffix(".ipynb"), [*above]
        elif isinstance(entry.get("contents"), list):
            yield from crumbs(entry["contents"], (*above, entry["section"]))


MENU = yaml.safe_load((ROOT / "_quarto.yml").read_text(encoding="utf-8"))
PAGES_MENU, CODE_MENU = (menu["contents"] for menu in MENU["website"]["sidebar"])
CRUMBS = dict([*crumbs(PAGES_MENU), *crumbs(CODE_MENU, ["Code"])])


def functions(source, page):
    "Address, name and text of each public function that a cell defines."
    module = page.replace("/", ".")
    for node in ast.parse(source).body:
        if (
            isinstance(node, ast.FunctionDef)
            and PUBLIC.get(node.name, ("", ""))[1] == module
        ):
            yield node.name, node.name, words(ast.get_docstring(node) or "")


def printed(cell):
    "Words that a cell prints, each once."
    said = [
        "".join(output.get("text", output.get("data", {}).get("text/plain", "")))
        for output in cell["outputs"]
    ]
    return " ".join(sorted({*re.findall(r"[A-Za-z]\w{2,}", " ".join(said))})) + "\n"


def of_page(path):
    "The documents of a notebook."
    page = path.relative_to(NBS).with_suffix("").as_posix()
    cells = read(path)["cells"]
    title = next(
        heading(line)[0]
        for cell in cells
        for line in [*text(cell).splitlines(), *re.findall(r"^title: (.*)", text(cell))]
        if line.startswith("# ")
    )
    found = [dict(section="", address="", text="", code="")]
    items = []
    for cell in cells:
        source = text(cell)
        if cell["cell_type"] == "code":
            if is_visible(cell) or "#| exports" in source:
                shown = [x for x in source.splitlines() if not x.startswith("#|")]
                found[-1]["code"] += "\n".join(shown) + "\n"
            found[-1]["code"] += printed(cell)
            items += [("figure", *item) for item in figure(source)]
            if re.search(r"^#\| exports?\b", source, flags=re.M):
                items += [("name", *item) for item in functions(source, page)]
        elif cell["cell_type"] == "markdown":
            for head, body in sections(source):
                if head:
                    name, address = heading(head)
                    found.append(dict(section=name, address=address, text="", code=""))
                found[-1]["text"] += " " + words(body)
            items += [("statement", *item) for item in statements(source)]
            items += [("equation", *item) for item in equations(source)]
    for kind, address, name, said in items:
        found.append(dict(section=name, address=address, text=said, code="", kind=kind))
    return [entry(f"{page}.html", title, CRUMBS.get(page, []), **doc) for doc in found]


def entry(page, title, above, *, section, address, text, code="", kind="section"):
    "A document as Quarto's search box takes it."
    href = f"{page}#{address}" if address else page
    return dict(
        objectID=f"{href} {section}",
        href=href,
        title=title,
        section=section,
        text=" ".join(text.split()),
        code=code,
        crumbs=above,
        kind=kind,
    )


def of_reference(file, markdown):
    "The documents of a page of the API reference: a class and its methods."
    front, _, body = markdown.partition("\n---\n")
    title = re.search(r'^title: "?(.*?)"?$', front, flags=re.M)[1]
    page = f"api/{file.removesuffix('.qmd')}.html"
    for head, said in sections(body):
        name, address = heading(head) if head else ("", "")
        kind = "section" if file == "index.qmd" else "name"
        yield entry(page, title, ["Reference"], section=name, address=address,
                    text=words(re.sub(r"^\[API reference\].*$", "", said, flags=re.M)),
                    kind=kind)  # fmt: skip


def documents():
    "All that can be found, page by page."
    found = [doc for path in PAGES for doc in of_page(path)]
    for file, markdown in api_pages().items():
        found += of_reference(file, markdown)
    return found


if __name__ == "__main__":
    site = sys.argv[1] if len(sys.argv) > 1 else os.environ["QUARTO_PROJECT_OUTPUT_DIR"]
    (Path(site) / "search.json").write_text(
        json.dumps(documents(), ensure_ascii=False), encoding="utf-8"
    )
