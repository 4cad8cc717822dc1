"""`python -m infattn_nb figures …` and `… report …`: the commands, where their scripts are not on the PATH."""
import sys
from importlib import import_module

COMMANDS = {"figures": "paper.command", "report": "initialisation.report_command"}

if __name__ == "__main__": # fastcore reads the command line only for what a script itself calls
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in COMMANDS:
        sys.exit(f"usage: python -m infattn_nb {{{','.join(COMMANDS)}}} …")
    sys.argv[:2] = [f"python -m infattn_nb {name}"]
    command = getattr(import_module(f"infattn_nb.{COMMANDS[name]}"), f"infattn_{name}")
    sys.exit(command())
