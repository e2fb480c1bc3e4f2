"""What is changed of other people's things for the whole process, and how that is undone: docs/limits.md has the table.

    made(uninstall)     # who changes something says how it is put back
    undo_all()          # by tg.reset(everything=True), and at the end of the process

Whoever needs a change again makes it again. What native code changes of types stands in a table there
(csrc/mutations.cpp); what a compile switches for as long as it takes (torch_compat/compiling.py) it puts back itself.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable

from .. import _native

_undo: dict[Callable[[], None], None] = {_native.undo_process_changes: None}  # in the order in which they were made


def made(undo: Callable[[], None]) -> None:
    """``undo`` puts back what was changed; the same one is called once, however often it is made."""
    _undo.setdefault(undo)


def undo_all() -> None:
    """The last one first. Not while another thread compiles or runs what is compiled."""
    for undo in reversed(list(_undo)):
        undo()


atexit.register(undo_all)
