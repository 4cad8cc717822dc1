"""Each recipe can be copied alone: it runs in a fresh interpreter."""

import json
import re
import subprocess
import sys

import pytest
import written

NBS = written.NBS


def sections():
    "{heading: code of its cells}"
    nb = json.loads((NBS / "recipes.ipynb").read_text(encoding="utf-8"))
    found, heading = {}, None
    for cell in nb["cells"]:
        source = written.text(cell)
        if cell["cell_type"] == "markdown" and (m := re.match(r"## (.*?) *\{", source)):
            heading = m[1]
            found[heading] = []
        elif cell["cell_type"] == "code" and heading:
            found[heading].append(source)
    return {heading: code for heading, code in found.items() if code}


RECIPES = sections()


@pytest.mark.parametrize("recipe", RECIPES)
def test_names_come_from_the_recipe_itself(recipe):
    code = RECIPES[recipe]
    assert written.from_nowhere(code) == []
    without_imports = [s for s in code if not written.is_import(s)]
    assert written.from_nowhere(without_imports) != []


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_runs_alone(recipe):
    code = "\n\n".join(RECIPES[recipe])
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=NBS, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]


@pytest.mark.slow
def test_the_module_of_a_recipe_is_read():
    "What is shown with torch and transformers, where they are there."
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    page = "".join(
        written.text(cell)
        for cell in json.loads((NBS / "recipes.ipynb").read_text("utf-8"))["cells"]
    )
    section = page[page.index("## Reading a module") :]
    code = re.search(r"```python\n(.*?)```", section, flags=re.S)[1]
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
