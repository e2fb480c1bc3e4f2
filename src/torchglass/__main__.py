"""``python -m torchglass SUBCOMMAND``: the package from the command line.

A subcommand is a function that adds its arguments and one that runs; ``SUBCOMMANDS`` names the module that has both
(``add_arguments(parser)`` and ``run(arguments) -> int``).  Modules load only when their subcommand is asked for, so
that ``decompile`` works without torch.
"""

from __future__ import annotations

import argparse
import importlib
import sys

#: subcommand → (module with ``add_arguments`` and ``run``, one line of help)
SUBCOMMANDS: dict[str, tuple[str, str]] = {
    "run": ("torchglass.inspector.commands.run", "run a script and leave what it compiles in a folder"),
    "report": ("torchglass.inspector.commands.report", "say what a folder of artifacts holds"),
    "diff": ("torchglass.inspector.commands.diff", "say what changed between two folders"),
    "bench": ("torchglass.inspector.commands.bench", "time a script compiled and as it is"),
    "cache": ("torchglass.cache.command", "say what entries are kept for later processes, and why one was not found"),
    "who-answers": ("torchglass.capture.who_answers", "say what capture does with a call, and where"),
    "decompile": ("torchglass.decompiler.command", "show a function's bytecode as Python source"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand; returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="python -m torchglass", description=__doc__.splitlines()[0])
    choices = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
    wanted = next((a for a in given if not a.startswith("-")), None)
    for name, (module_name, text) in SUBCOMMANDS.items():
        sub = choices.add_parser(name, help=text)
        if name == wanted:
            module = importlib.import_module(module_name)
            sub.description = module.__doc__.splitlines()[0] if module.__doc__ else text
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    parsed = parser.parse_args(given)
    try:
        return int(parsed.run(parsed))
    except BrokenPipeError:  # the reader (head, less) has seen enough
        sys.stderr.close()
        return 0


if __name__ == "__main__":
    sys.exit(main())
