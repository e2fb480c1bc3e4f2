"""The decorator that fills the table of opcode handlers and checks it.

A handler is ``f(machine, frame, instruction)``. Registration fails at import when a name is unknown to every supported
Python or is taken already, so a typo cannot hide.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable

from ....bytecode import PAIRS
from ..frame import HANDLERS, OpHandler

# Instructions without a handler, by what becomes of them. A name in neither table breaks the graph too.
NEVER_REACHED = {
    "EXTENDED_ARG": "decoding joins it with the instruction that follows",
    **dict.fromkeys(PAIRS, "decoding gives the two instructions that it stands for"),
    "INTERPRETER_EXIT": "only CPython's entry trampoline has it",
    "RESERVED": "no instruction",
    "ENTER_EXECUTOR": "the specializer writes it, and code objects show what it replaced",
    "EXIT_INIT_CHECK": "only CPython's own call trampoline has it",
}
BREAKS_THE_GRAPH = {
    "PRINT_EXPR": "the interactive prompt",
    "IMPORT_STAR": "only modules have it",
    "ASYNC_GEN_WRAP": "async generators",
}

Version = tuple[int, int]
REGISTERED: list[tuple[str, tuple[Version, Version]]] = []  # for all versions, whichever runs
ALWAYS: tuple[Version, Version] = ((3, 11), (3, 14))


def handler(*names: str, versions: tuple[Version, Version] = ALWAYS) -> Callable[[OpHandler], OpHandler]:
    """Register a handler for opcodes ``names`` of the Python versions ``versions[0] <= v < versions[1]``."""
    here = sys.version_info[:2]

    def register(function: OpHandler) -> OpHandler:
        REGISTERED.extend((name, versions) for name in names)
        if not versions[0] <= here < versions[1]:
            return function
        for name in names:
            if name not in dis.opmap:
                raise ValueError(f"{name}: no opcode of Python {here[0]}.{here[1]}; state its versions")
            if name in HANDLERS:
                raise ValueError(f"{name}: already handled by {HANDLERS[name].__qualname__}")
            HANDLERS[name] = function
        return function

    return register


BEFORE_312: tuple[Version, Version] = ((3, 11), (3, 12))
BEFORE_313: tuple[Version, Version] = ((3, 11), (3, 13))
SINCE_312: tuple[Version, Version] = ((3, 12), (3, 14))
SINCE_313: tuple[Version, Version] = ((3, 13), (3, 14))
