"""Write what follows from the table of public names in `infattn_nb/__init__.py`: its block for
editors and mypy, and the last cell of each page that makes a room, its `__all__`.
`--check` writes nothing and exits with 1 if anything is out of date."""
import json
import re
import sys
from pathlib import Path
from textwrap import wrap

ROOT = Path(__file__).parent.parent
DOOR = ROOT/"infattn_nb/__init__.py"
MARK = "if TYPE_CHECKING:"

def public_names(source):
    "The table: room -> public names."
    table = re.search(r"^PUBLIC = (\{.*?^\})", source, flags=re.M | re.S)
    return {room: names.split() for room, names in eval(table[1]).items()}

def door(source):
    "The source of the front door with its block for editors."
    head, _, _ = source.partition(MARK)
    lines = [f"{MARK} # written by tools/front_door.py, for editors and mypy"]
    for room, names in public_names(source).items():
        lines += [f"    from .{room} import {name} as {name}" for name in names]
    return head + "\n".join(lines) + "\n"

def last_cell(names):
    "The cell that tells a room what it offers to everybody."
    listed = wrap(", ".join(f'"{name}"' for name in names), 76)
    body = listed[0] if len(listed) == 1 else "\n           ".join(listed)
    source = f"#| exporti\n#| hide\n__all__ = [{body if listed else ''}]"
    return dict(cell_type="code", execution_count=None, id="public", metadata={}, outputs=[],
                source=source.splitlines(keepends=True))

def with_public(nb, public):
    "A page with its last cell; None if it makes no room."
    code = "\n".join("".join(c["source"]) for c in nb["cells"] if c["cell_type"] == "code")
    room = re.search(r"^#\| default_exp (\S+)", code, flags=re.M)
    if not room:
        return None
    cells = [c for c in nb["cells"] if c["id"] != "public"]
    return nb | dict(cells=[*cells, last_cell(public.get(room[1], []))])

def wanted():
    "Files and what they should hold."
    source = DOOR.read_text(encoding="utf-8")
    yield DOOR, door(source)
    for path in sorted((ROOT/"nbs").glob("*.ipynb")):
        nb = with_public(json.loads(path.read_text(encoding="utf-8")), public_names(source))
        if nb:
            yield path, json.dumps(nb, indent=1, ensure_ascii=False, sort_keys=True) + "\n"

if __name__ == "__main__":
    stale = [(path, text) for path, text in wanted() if path.read_text(encoding="utf-8") != text]
    for path, text in stale:
        print(path.relative_to(ROOT))
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
    sys.exit(bool(stale) and "--check" in sys.argv)
