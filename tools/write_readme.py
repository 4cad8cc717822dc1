"""README.md is nbs/index.ipynb: `python tools/write_readme.py` writes it."""
import configparser
import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
_parser = configparser.ConfigParser(delimiters=["="])
_parser.read(ROOT/"settings.ini", encoding="utf-8")
CFG = _parser["DEFAULT"]
BLOB = CFG["git_url"] + f"/blob/{CFG['branch']}/" # what lies beside the README needs no host

def readme():
    "The notebook as GitHub markdown: hidden cells dropped, the one figure as an image, links relative to the root."
    cells = json.loads((ROOT/"nbs/index.ipynb").read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(filter(None, map(_markdown, cells))) + "\n"

def _markdown(cell):
    source = "".join(cell["source"])
    source = source.replace("](api/index.qmd)", "](30_classes.ipynb)") # the API reference is made with the site
    if cell["cell_type"] == "markdown": return re.sub(r"\]\((\w+\.ipynb)", r"](nbs/\1", source).replace(f"]({BLOB}", "](")
    if "#| hide" in source: return ""
    if "images/limit.png" in source:
        caption, alt = (re.search(rf'#\| {key}: "(.*)"', source)[1] for key in ("fig-cap", "fig-alt"))
        return f"![{alt}](nbs/images/limit.png)\n\n*{caption}*"
    text = "".join("".join(o["text"]) for o in cell["outputs"])
    return f"```python\n{source}\n```\n\n```\n{text.rstrip()}\n```"

if __name__ == "__main__": (ROOT/"README.md").write_text(readme(), encoding="utf-8")
