"""What a reader types into the search box, and the pages that must be among the first
three: `nbs/live/search.js` over the prose of the notebooks. Wants Node. The index
that Quarto writes, which it reads on the site, is looked at in test_browser.py.
"""

import json
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.xdist_group("search")  # the index is made once

ROOT = Path(__file__).parent.parent
NODE = shutil.which("node")
# asked of the rendered index (test_browser.py) -> pages, one of which must be among the
# first two
STUDENT = {
    "rank collapse": "transformer gradients",
    "temperature": "training regimes",
    "1/sqrt(d)": "regimes attention",
    "tensor programs": "netsor",
    "central limit theorem": "clt",
    "what is a hierarchical Gaussian": "hierarchical",
    "why is attention not Gaussian": "essay index regimes",
    "proof of the theorem": "proof theorem",
    "infinitely many heads": "regimes experiments attention",
    "neural tangent kernel": "gradients gpt2",
    "induction heads": "circuits",
    "heavy tails": "regimes attention hierarchical",
    "Lemma 18": "proof paper_map",
    "kurtosis": "hierarchical regimes",
    "random energy model": "length",
}
ENGINEER = {
    "install": "index",
    "cite": "index ours",
    "GPT-2": "gpt2 your_model",
    "Hugging Face config": "your_model report recipes",
    "causal mask": "robustness attention recipes",
    "prediction intervals": "recipes learning",
    "tail probability": "recipes regimes",
    "how wide is wide enough": "recipes regimes finite rates",
    "PyTorch MultiheadAttention": "recipes regimes",
    "better initialisation": "which_initialisation your_model scan",
    "report": "report",
    "rotary positions": "blocks",
    "RMSNorm": "transformer blocks",
    "mup": "which_initialisation",
    "figures of the paper": "experiments",
}
QUERIES = {  # -> pages, one of which must be found
    "NTK": "gradients gpt2",
    "tangent kernel": "gradients gpt2",
    "gradient norm": "gradients gpt2",
    "vanishing gradient": "gradients gpt2",
    "GPT-2 gradients": "gpt2",
    "density at a point": "hierarchical attention",
    "Netsor definition": "netsor",
    "kurtosis": "hierarchical",
    "pdf": "hierarchical",
    "muP": "which_initialisation rules",
    "µP": "which_initialisation rules",
    "sample at width 512": "attention",
    "eight heads causal mask": "attention robustness",
    "causal mask": "robustness attention",
    "Lemma 18": "proof paper_map",
    "what is wrong with Lemma 18": "proof paper_map",
    "proof of the score CLT": "clt",
    "central limit theorem": "clt",
    "Assumption 1": "netsor",
    "finite width": "finite attention essay",
    "tail probability": "recipes regimes",
    "how fast convergence": "rates",
    "random energy model": "length",
    "long sequences phases": "length",
    "rotary positions": "blocks",
    "RMSNorm": "transformer blocks",
    "Hugging Face config": "transformer recipes report",
    "posterior attention": "learning",
    "is the limit good enough": "regimes recipes",
    "rank collapse": "gradients transformer",
    "notation": "notation",
    "prediction intervals": "recipes learning",
}


def crumbs(contents, above=()):
    for item in contents:
        if isinstance(item, str):
            yield item, [*above]
        else:
            yield from crumbs(item.get("contents", []), (*above, item.get("section")))


@lru_cache
def documents():
    "The prose of the pages in sections, as the site's index has it."
    found = []
    for name, above in crumbs(
        yaml.safe_load((ROOT / "_quarto.yml").read_text(encoding="utf-8"))["website"][
            "sidebar"
        ]["contents"]
    ):
        cells = json.loads((ROOT / "nbs" / name).read_text(encoding="utf-8"))["cells"]
        prose = "\n\n".join(
            "".join(c["source"]) for c in cells if c["cell_type"] == "markdown"
        )
        page, title = (
            re.sub(r"^\d+_", "", name).replace("ipynb", "html"),
            re.match("# (.+)", prose)[1],
        )
        for k, part in enumerate(re.split(r"^## ", prose, flags=re.M)):
            heading, _, text = part.partition("\n") if k else ("", "", part)
            section, anchor = re.fullmatch(
                r"(.*?)\s*(?:\{#([\w-]+)\})?", heading
            ).groups()
            found.append(
                dict(
                    href=f"{page}#{anchor}" if anchor else page,
                    title=title,
                    section=section,
                    text=text,
                    crumbs=str([*above, title]),
                )
            )
    return found


SCRIPT = """
import {Words} from "SEARCH";
const index = new Words();
let input = "";
for await (const chunk of process.stdin) input += chunk;
const {documents, queries} = JSON.parse(input);
for (const item of documents) index.add(item);
const found = queries.map(query => index.search(query).map(({item}) => item));
console.log(JSON.stringify(found));
"""


def searched(queries, items):
    script = SCRIPT.replace("SEARCH", (ROOT / "nbs/live/search.js").as_uri())
    run = subprocess.run(
        [NODE, "--input-type=module", "-e", script],
        input=json.dumps(dict(documents=items, queries=queries)),
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def answers():
    if not NODE:
        pytest.skip("Node is not installed")
    return dict(zip(QUERIES, searched([*QUERIES], documents()), strict=True))


def pages(found):
    return list(dict.fromkeys(re.sub(r"\.html.*", "", item["href"]) for item in found))


@pytest.mark.parametrize("query", QUERIES)
def test_found_among_the_first_three(answers, query):
    assert {*pages(answers[query])[:3]} & {*QUERIES[query].split()}, pages(
        answers[query]
    )[:6]


def test_under_the_hood_is_last(answers):
    "Of the first answers hardly any is a page for contributors."
    below = {
        re.sub(r"^\d+_|\.ipynb$", "", name)
        for name, above in crumbs(
            yaml.safe_load((ROOT / "_quarto.yml").read_text(encoding="utf-8"))[
                "website"
            ]["sidebar"]["contents"]
        )
        if "Under the hood" in above
    }
    assert not [query for query, found in answers.items() if pages(found)[0] in below]


def test_words_in_any_order_prose_before_code():
    if not NODE:
        pytest.skip("Node is not installed")
    items = [
        dict(
            href="a.html",
            title="Apes",
            section="",
            text="a kernel that is tangent to nothing",
            crumbs="",
            code="",
        ),
        dict(
            href="b.html",
            title="Bees",
            section="",
            text="nothing",
            crumbs="",
            code="tangent kernel",
        ),
        dict(
            href="c.html",
            title="Cats",
            section="",
            text="tangents only",
            crumbs="",
            code="",
        ),
        dict(
            href="d.html",
            title="Dogs",
            section="",
            text="the kernel of a tangent",
            crumbs="['Under the hood']",
            code="",
        ),
    ]
    both, idle, nothing = searched(["tangent kernel", "the of", "zebra"], items)
    assert pages(both) == ["a", "d"]
    assert nothing == []
    assert pages(idle)
    assert "kernel that is tangent" in both[0]["text"]
