"""Where a graph ends before its function does: why, and what goes on after it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from types import CodeType

from .origin import Origin


@dataclass(frozen=True)
class GraphBreak:
    """Why the graph ended, where in the user's code, and what to change."""

    reason: str
    origin: Origin
    hint: str = ""
    raises: bool = False  # the user's program raises here: nothing is wrong with the capture


@dataclass(frozen=True)
class Resume:
    """A continuation: the user's own bytecode entered at an instruction.

    ``name`` as it appears in the entry code and as folder name; ``key`` tells the continuations of one function apart,
    whether the function itself goes on there or another of its continuations;
    ``code`` is the assembled code object, whose ``parameters`` are the values on the stack (``stack_0``, ...) followed
    by the live locals. ``varying`` are the parameters that get what a breaking operation gave, or numbers made of it.
    """

    name: str
    key: Hashable
    code: CodeType
    parameters: tuple[str, ...]
    line: int
    plain: bool = False
    varying: tuple[str, ...] = ()
