"""One instruction of the dialect of ``canonical.py``, and how code grows by one.

Its jumps and its handler are indices of the list that it is in, so that code is rewritten by setting a field.
"""

from __future__ import annotations

from typing import Any


class Ins:
    """One canonical instruction.

    ``nxt`` and ``to`` are indices of the fall-through and the jump target (-1: none), ``eh`` the index of the
    exception handler (-1: none), ``depth`` the stack depth the handler keeps, ``pos`` the source position.
    """

    __slots__ = ("arg", "depth", "eh", "index", "jump_if", "lasti", "nxt", "offset", "op", "pos", "to")

    def __init__(self, index: int, offset: int, op: str, arg: Any, pos: Any) -> None:
        self.index = index
        self.offset = offset
        self.op = op
        self.arg = arg
        self.pos = pos
        self.nxt = index + 1
        self.to = -1
        self.jump_if = False
        self.eh = -1
        self.depth = 0
        self.lasti = False

    @property
    def region(self) -> tuple[int, int, bool]:
        """What protects it: ``eh``, ``depth`` and ``lasti`` together."""
        return self.eh, self.depth, self.lasti

    @region.setter
    def region(self, region: tuple[int, int, bool]) -> None:
        self.eh, self.depth, self.lasti = region

    def drop(self) -> None:
        """From now on it does nothing."""
        self.op, self.arg, self.to = "NOP", None, -1

    def __repr__(self) -> str:
        jump = (
            f" -> {self.to}{' if ' + str(self.jump_if) if self.op.startswith('BRANCH') else ''}" if self.to >= 0 else ""
        )
        handler = f" !{self.eh}" if self.eh >= 0 else ""
        return f"{self.index} {self.op} {self.arg!r}{jump}{handler}"


def append(code: list[Ins], op: str, arg: Any, like: Ins) -> Ins:
    """A new instruction at the end of ``code``, protected as ``like`` is; where it goes on is for the caller to set."""
    ins = Ins(len(code), like.offset, op, arg, None)
    ins.region = like.region
    code.append(ins)
    return ins
