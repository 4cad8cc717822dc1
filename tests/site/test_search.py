"""What a reader types into the search box, and the pages that must be among the first
three: `nbs/live/search.js` over the prose of the notebooks. Wants Node. The index
that Quarto writes, which it reads on the site, is looked at in site/test_browser.py.
"""

import json
import re
import shutil
import subprocess

import pytest
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
    "LoRA": "transformer/fine_tuning transformer/adapters",
    "license": "index",
    "API": "api/index",
    "learning rate transfer": "training/train_your_model theory/what_follows",
    "AdamW": "training/train_your_model training/optimizers",
}
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


def pages(found):
    return list(dict.fromkeys(re.sub(r"\.html.*", "", item["href"]) for item in found))


def test_words_in_any_order_prose_before_code():
    if not NODE:
        pytest.skip("Node is not installed")
    written = [
        ("a.html", "Apes", "a kernel that is tangent to nothing", "", ""),
        ("b.html", "Bees", "nothing", "", "tangent kernel"),
        ("c.html", "Cats", "tangents only", "", ""),
        ("d.html", "Dogs", "the kernel of a tangent", "['Under the hood']", ""),
    ]
    names = "href", "title", "text", "crumbs", "code"
    items = [dict(zip(names, x, strict=True)) | dict(section="") for x in written]
    both, idle, nothing = searched(["tangent kernel", "the of", "zebra"], items)
    assert pages(both) == ["a", "d"]
    assert nothing == []
    assert pages(idle)
    assert "kernel that is tangent" in both[0]["text"]
