"""Numbers of the prose stand in a cell of their page, and denials are asked."""

import re

from run_pages import name
from written import NBS, PAGES, read

NUMBER = re.compile(r"(?<![\w.])(?:\d+(?:,\d{3})*)?\.?\d+(?:e[-+−]?\d+)?")
DECIMAL = re.compile(r"(?<![\w.§])(\d*\.\d+)(?![\w.]|-\d)")
NOT_PROSE = re.compile(
    r"```.*?```|\$\$.*?\$\$|`[^`]*`|\]\([^)]*\)|\[@[^\]]*\]|\$[^$]*\$", re.S
)
SECTIONS_AND_VERSIONS = {"2.1", "2.2", "5.1", "1.9", "3.11"}
FROM_PAGE = {"index": "convergence/regimes"}  # its table of layers
FROM_TESTS = {"reference/ours"}  # powers, each next to its test


def numbers(page):
    "All numbers in code and outputs of a page."
    found = set()
    for cell in read(page)["cells"]:
        if cell["cell_type"] == "code":
            texts = ["".join(cell["source"]), *outputs(cell)]
            found |= {x for t in texts for x in NUMBER.findall(t)}
    return {float(x.replace(",", "").replace("−", "-")) for x in found}


def outputs(cell):
    for out in cell.get("outputs", []):
        yield "".join(out.get("text", []))
        for kind, data in out.get("data", {}).items():
            if kind.startswith("text/"):
                yield "".join(data)


def rounds_to(x, text):
    "Is this decimal the number x, or x in percent, rounded?"
    near = 0.5000001 * 10.0 ** -len(text.split(".")[1])
    return any(abs(y - float(text)) <= near for y in (x, 100 * x, x / 100))


def strangers(page):
    "Decimals of the prose that no cell of the page knows."
    known = numbers(page)
    if other := FROM_PAGE.get(name(page)):
        known |= numbers(NBS / f"{other}.ipynb")
    prose = [
        NOT_PROSE.sub(" ", "".join(cell["source"]))
        for cell in read(page)["cells"]
        if cell["cell_type"] == "markdown"
    ]
    said = {d for text in prose for d in DECIMAL.findall(text)} - SECTIONS_AND_VERSIONS
    return {d for d in said if not any(rounds_to(x, d) for x in known)}


def test_decimals_of_the_prose_stand_in_a_cell():
    found = {name(p): strangers(p) for p in PAGES if name(p) not in FROM_TESTS}
    assert {page: few for page, few in found.items() if few} == {}
    assert rounds_to(0.2067, ".207")
    assert not rounds_to(0.2067, ".22")


DENIALS = {
    "Training at infinite width with MLPs": "a program, trained at infinite",
    "Thousands of correlated tokens": "O8",
    "Theorems for unbounded functions": "the paper's theorem for unbounded functions",
    "Proofs for several attention layers": "O11",
    "Proofs for weights that are not Gaussian": "O5",
    "Posteriors for noise that is not Gaussian": "the posterior of classes",
    "Latent attention with infinitely": "latent attention with infinitely many heads",
    "Other mixtures of experts": "a mixture of another kind",
    "Several pairs of texts": "several pairs of texts",
    "GPUs and automatic differentiation": None,
}


def test_what_is_denied_is_asked_or_has_a_statement():
    "Each denial of scope is a cell that runs and is rejected, or a numbered result."
    page = read(NBS / "scope.ipynb")
    said = "\n".join(t for cell in page["cells"] for t in outputs(cell))
    text = "\n".join("".join(c["source"]) for c in page["cells"])
    bullets = re.findall(r"^- \*\*(.+?)[.,]?\*\*", text, re.M)
    results = "".join(
        "".join(c["source"]) for c in read(NBS / "reference/ours.ipynb")["cells"]
    )
    for bullet in bullets:
        (place,) = (v for k, v in DENIALS.items() if bullet.startswith(k))
        if place is None:
            continue
        if place.startswith("O"):
            assert f"({place})" in text
            assert f"| {place} |" in results
        else:
            assert re.search(f"{place}.* — (rejected|answered, with)", said)
    assert len(bullets) == len(DENIALS)
