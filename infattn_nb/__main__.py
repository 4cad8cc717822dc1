"""`python -m infattn_nb figures …`, `… report …` and `… train …`: the commands, where their scripts are not on the PATH."""
import sys
from importlib import import_module
from importlib.metadata import version

COMMANDS = {"figures": "paper.command", "report": "initialisation.report_command",
            "train": "huggingface.train_command"}
USAGE = f"usage: python -m infattn_nb {{{','.join(COMMANDS)}}} …"
HELP = f"""{USAGE}

  figures    the paper's figures, as infattn_figures
  report     what a transformer is like before it is trained, as infattn_report
  train      which learning rate is best at which width, as infattn_train

Options of each: python -m infattn_nb report --help"""
TOLD = {"-h": HELP, "--help": HELP, "--version": f"infattn_nb {version('infattn_nb')}"}

if __name__ == "__main__": # fastcore reads the command line only for what a script itself calls
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in TOLD:
        print(TOLD[name])
        sys.exit()
    if name not in COMMANDS:
        sys.exit(USAGE)
    sys.argv[:2] = [f"python -m infattn_nb {name}"]
    command = getattr(import_module(f"infattn_nb.{COMMANDS[name]}"), f"infattn_{name}")
    sys.exit(command())
