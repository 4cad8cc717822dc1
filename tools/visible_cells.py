"""What stands open on a page can be copied: its visible cells run from top to bottom in a fresh interpreter.
Every name that they use comes from a visible cell (read daily, in the syntax tree); `-m slow` runs them.
`python tools/visible_cells.py` writes the missing imports into the pages' visible imports."""
import ast
import builtins
import json
import re
import symtable
import sys
from importlib import import_module
from pathlib import Path
from textwrap import wrap

import infattn_nb

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT/"nbs").glob("*.ipynb"))
UNSEEN = re.compile(r"^#\| *(hide\b|export\b|exporti\b|exportc\b|default_exp|echo: false|include: false|code-fold: true|eval: false)", flags=re.M)
KNOWN = {*dir(builtins), "__name__", "display"} # what every interpreter of notebooks has

# What is visible

def read(path): return json.loads(path.read_text(encoding="utf-8"))
def text(cell): return "".join(cell["source"])
def is_visible(cell): return cell["cell_type"] == "code" and text(cell) != "" and not UNSEEN.search(text(cell))
def visible(nb): return [text(c) for c in nb["cells"] if is_visible(c)]

# Names that a piece of code gives and takes

def scopes(table):
    "A scope and all that it holds."
    yield table
    for child in table.get_children(): yield from scopes(child)

def symbols(source):
    "Every name in every scope, and whether its scope is the outermost one."
    for scope in scopes(symtable.symtable(source, "cell", "exec")):
        for symbol in scope.get_symbols(): yield symbol, scope.get_type() == "module"

def given(source):
    "Names that a cell leaves for the cells below it."
    return {s.get_name() for s, top in symbols(source) if (s.is_assigned() or s.is_imported()) and (top or s.is_declared_global())}

def taken(source):
    "Global names that a cell uses: at once, and when its functions are called."
    now = {s.get_name() for s, top in symbols(source) if top and s.is_referenced()}
    later = {s.get_name() for s, top in symbols(source) if not top and s.is_global() and s.is_referenced()}
    return now, later

def statements(source): return map(ast.unparse, ast.parse(source).body)

def from_nowhere(sources):
    "Names that visible cells use and no visible cell gives: above for code that runs at once, anywhere for what functions call."
    everywhere, known, missing = set().union(KNOWN, *map(given, sources)), set(KNOWN), []
    for statement in (s for source in sources for s in statements(source)):
        now, later = taken(statement)
        own = set() if re.match(r"[^=(]*[-+*/@|]?= ", statement) else given(statement) # x = f(x) asks for an earlier x
        missing += sorted((now - own - known) | (later - everywhere))
        known |= given(statement)
    return list(dict.fromkeys(missing))

# Writing what is missing

def imports(source):
    "name -> (module, name there, name here) for the imports of a cell."
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            for a in node.names: found[a.asname or a.name] = (None, a.name, a.asname)
        elif isinstance(node, ast.ImportFrom):
            for a in node.names: found[a.asname or a.name] = (node.module, a.name, a.asname)
    return found

def is_import(source): return source != "" and all(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.parse(source).body)

def lines(found):
    "Imports as the house writes them: standard library, others, this package; one line each, 88 characters."
    whole = {(name, here) for module, name, here in found.values() if module is None}
    parts = {}
    for module, name, here in found.values():
        if module: parts.setdefault(module, set()).add(name + (f" as {here}" if here else ""))
    def group(module): return 2 if module.startswith("infattn_nb") else 0 if module.split(".")[0] in sys.stdlib_module_names else 1
    groups = [[], [], []]
    for name, here in sorted(whole, key=lambda x: x[0]): groups[group(name)].append(f"import {name}" + (f" as {here}" if here else ""))
    for module, names in sorted(parts.items()):
        head = f"from {module} import "
        ordered = sorted(names, key=lambda n: (n[0].islower() + (not n.isupper() or len(n) == 1), n)) # constants, classes, functions
        groups[group(module)] += [head + part for part in wrap(", ".join(ordered).replace(" as ", "\0as\0"), 88 - len(head))]
    return "\n\n".join("\n".join(line.rstrip(",").replace("\0", " ") for line in g) for g in groups if g)

def origin(name, nb):
    "Where a page has a name from: one of its imports, or the room that it makes."
    sources = [text(c) for c in nb["cells"] if c["cell_type"] == "code" and not text(c).startswith(("!", "%"))]
    for source in sources:
        if found := imports(source).get(name):
            return ("infattn_nb", name, None) if found[0] == f"infattn_nb.{infattn_nb.ROOM_OF.get(name)}" else found
    room = re.search(r"^#\| default_exp (\S+)", "\n".join(sources), flags=re.M)
    made = set().union(*(given(s) for s in sources if re.search(r"^#\| *exports?\b", s, flags=re.M)))
    if not room or name not in made: return None
    return "infattn_nb" if infattn_nb.ROOM_OF.get(name) == room[1] else f"infattn_nb.{room[1]}", name, None

def fold(cell):
    "Close a cell: its output stays, its code is a click away."
    exports = "#| exports\n" if text(cell).startswith("#| exports\n") else ""
    cell["source"] = f"{exports}#| code-fold: true\n{text(cell).removeprefix(exports)}".splitlines(keepends=True)

def without_stale(nb):
    "The page: visible imports of what its room no longer has, or no cell uses, are dropped."
    code = [text(c) for c in nb["cells"] if c["cell_type"] == "code" and not text(c).startswith(("!", "%"))]
    used = set().union(*(set().union(*taken(source)) for source in code))
    for c in nb["cells"]:
        if is_visible(c) and is_import(text(c)):
            found = imports(text(c))
            kept = {name: x for name, x in found.items() if name in used and not is_gone(*x)}
            if kept != found: c["source"] = lines(kept).splitlines(keepends=True)
    return nb

def is_gone(module, name, here):
    "Is it imported from a room of this package that does not have it?"
    if not module or not module.startswith("infattn_nb"): return False
    try: return not hasattr(import_module(module), name)
    except ImportError: return True

def with_folds(nb):
    "The page: cells that use what only folded or hidden cells make are folded too."
    while missing := set(from_nowhere(visible(nb))):
        users = [c for c in nb["cells"] if is_visible(c) and set().union(*taken(text(c))) & missing]
        if not users: return nb
        fold(users[-1])
    return nb

def with_imports(nb):
    "The page: what shows private functions that lean on hidden ones is folded, missing imports stand in the visible imports."
    cells, shown = nb["cells"], set().union(KNOWN, *map(given, visible(nb)))
    sources = [text(c) for c in cells if c["cell_type"] == "code"]
    private = {n for s in sources if re.search(r"^#\| *exports?\b", s, flags=re.M) for n in given(s) if n.startswith("_")} - shown
    for c in cells:
        if is_visible(c) and "#| exports" in text(c) and set().union(*taken(text(c))) & private:
            fold(c)
    wanted = {name: found for name in from_nowhere(visible(nb)) if not name.startswith("_") and (found := origin(name, nb))}
    if not wanted: return nb
    target = next((c for c in cells if is_visible(c) and is_import(text(c))), None)
    if target is None:
        first = next(k for k, c in enumerate(cells) if is_visible(c))
        target = dict(cell_type="code", execution_count=None, id="needs", metadata={}, outputs=[], source=[])
        cells.insert(first, target)
    target["source"] = lines(imports(text(target)) | wanted).splitlines(keepends=True)
    return nb

if __name__ == "__main__":
    for path in PAGES:
        before, nb = path.read_text(encoding="utf-8"), with_imports(with_folds(with_imports(without_stale(read(path)))))
        after = json.dumps(nb, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
        if after != before: path.write_text(after, encoding="utf-8")
        if left := from_nowhere(visible(nb)): print(path.name, left)
