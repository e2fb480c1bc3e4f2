"""Run a script and leave the artifacts of what it compiles in a folder.

python -m torchglass run --dir glass train.py --epochs 1
python -m torchglass run --install train.py        # its torch.compile is ours
"""

from __future__ import annotations

import argparse
import contextlib
import runpy
import sys
from pathlib import Path

from ... import installed
from ...runtime import store, toolchain
from .. import reports
from ..when_loaded import of_torch_compile
from .folders import functions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", default="glass", help="the folder (default: %(default)s)")
    parser.add_argument(
        "--runs", choices=store.RUNS, default="kernels",
        help="what calls run, for breakpoints: wrappers and kernels, ATen graphs, captured graphs, or, after a graph "
        "break, your own lines",
    )  # fmt: skip
    parser.add_argument("--gdb", action="store_true", help="compile kernels so that gdb shows the generated C")
    parser.add_argument("--install", action="store_true", help="the script's torch.compile is ours: tg.install()")
    parser.add_argument("script", help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")


def run(arguments: argparse.Namespace) -> int:
    """The script's exit status. An exception of the script is shown as Python shows it."""
    script = Path(arguments.script)
    if not script.is_file():
        print(f"torchglass run: no such file: {script}", file=sys.stderr)
        return 2
    sys.argv = [str(script), *arguments.arguments]
    sys.path[0] = str(script.parent.absolute())
    try:
        with (
            store.use(arguments.dir, arguments.runs) as used,
            toolchain.debuggable(arguments.gdb),
            of_torch_compile(used.root),
            installed() if arguments.install else contextlib.nullcontext(),
        ):
            # the absolute path, so that a folder tells the user's files apart from run to run
            runpy.run_path(str(script.absolute()), run_name="__main__")
    finally:
        reports.flush()
        for found in functions(arguments.dir):
            print(f"torchglass: {found.summary()}", file=sys.stderr)
    return 0
