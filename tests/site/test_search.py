"""What a reader types into the search box, and the pages that must be among the first
three: `nbs/live/search.js` over the prose of the notebooks. Wants Node. The index
that Quarto writes, which it reads on the site, is looked at in site/test_browser.py.
"""

import json
import re
import shutil
import subprocess
from functools import lru_cache

import pytest
import yaml
from written import ROOT

pytestmark = pytest.mark.xdist_group("search")  # the index is made once

NODE = shutil.which("node")
# asked of the rendered index (site/test_browser.py) -> pages, one of which must be
# among the first two
STUDENT = {
    "rank collapse": "transformer/network transformer/gradients",
    "temperature": "convergence/regimes",
    "softmax temperature": "convergence/regimes",
    "signal propagation": "transformer/network",
    "what is tau": "reference/notation",
    "train any network": "training/any_network",
    "1/sqrt(d)": "convergence/regimes attention/layer",
    "tensor programs": "netsor/program",
    "central limit theorem": "theory/score_clt",
    "what is a hierarchical Gaussian": "distributions/hierarchical",
    "why is attention not Gaussian": "essay index convergence/regimes",
    "proof of the theorem": "theory/proof theory/theorem",
    "infinitely many heads": "convergence/regimes paper/figures attention/layer",
    "neural tangent kernel": "transformer/gradients initialisation/gpt2",
    "induction heads": "learning/circuits",
    "heavy tails": "convergence/regimes attention/layer distributions/hierarchical",
    "Lemma 18": "theory/proof reference/paper_map",
    "kurtosis": "distributions/hierarchical convergence/regimes",
    "random energy model": "convergence/long_sequences",
}
ENGINEER = {
    "install": "index",
    "cite": "index reference/ours",
    "GPT-2": "initialisation/gpt2 initialisation/your_model",
    "Hugging Face config": "initialisation/your_model initialisation/report recipes",
    "causal mask": "convergence/robustness attention/layer recipes",
    "prediction intervals": "recipes learning/regressor",
    "tail probability": "recipes convergence/regimes",
    "how wide is wide enough": "recipes convergence/regimes convergence/rates",
    "PyTorch MultiheadAttention": "recipes convergence/regimes",
    "better initialisation": "initialisation/which_initialisation initialisation/scan",
    "report": "initialisation/report",
    "rotary positions": "transformer/block",
    "RMSNorm": "transformer/network transformer/block",
    "mup": "training/optimizers training/train_your_model",
    "figures of the paper": "paper/figures",
    "positional encoding": "transformer/block",
    "LoRA": "scope",
    "license": "index",
    "API": "api/index",
    "learning rate transfer": "training/train_your_model theory/what_follows",
    "AdamW": "training/train_your_model training/optimizers",
}
QUERIES = {  # -> pages, one of which must be found
    "NTK": "transformer/gradients initialisation/gpt2",
    "tangent kernel": "transformer/gradients initialisation/gpt2",
    "gradient norm": "transformer/gradients initialisation/gpt2",
    "vanishing gradient": "transformer/gradients initialisation/gpt2",
    "GPT-2 gradients": "initialisation/gpt2",
    "density at a point": "distributions/hierarchical attention/layer",
    "Netsor definition": "netsor/program",
    "kurtosis": "distributions/hierarchical",
    "pdf": "distributions/hierarchical",
    "muP": "training/optimizers training/train_your_model",
    "µP": "training/optimizers training/train_your_model",
    "sample at width 512": "attention/layer",
    "eight heads causal mask": "attention/layer convergence/robustness",
    "causal mask": "convergence/robustness attention/layer",
    "Lemma 18": "theory/proof reference/paper_map",
    "what is wrong with Lemma 18": "theory/proof reference/paper_map",
    "proof of the score CLT": "theory/score_clt",
    "central limit theorem": "theory/score_clt",
    "Assumption 1": "netsor/program",
    "finite width": "netsor/finite_width attention/layer essay",
    "tail probability": "recipes convergence/regimes",
    "how fast convergence": "convergence/rates",
    "random energy model": "convergence/long_sequences",
    "long sequences phases": "convergence/long_sequences",
    "rotary positions": "transformer/block",
    "RMSNorm": "transformer/network transformer/block",
    "Hugging Face config": "transformer/network recipes initialisation/report",
    "posterior attention": "learning/regressor",
    "is the limit good enough": "convergence/regimes recipes",
    "rank collapse": "transformer/gradients transformer/network",
    "notation": "reference/notation",
    "prediction intervals": "recipes learning/regressor",
    "softmax temperature": "convergence/regimes",
    "signal propagation": "transformer/network",
    "positional encoding": "transformer/block",
    "LoRA": "scope",
    "license": "index",
    "what is tau": "reference/notation",
    "train any network": "training/any_network",
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
        page, title = (name.replace("ipynb", "html"), re.match("# (.+)", prose)[1])
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
        name.removesuffix(".ipynb")
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
