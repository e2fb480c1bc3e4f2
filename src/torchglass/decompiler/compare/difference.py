"""The one way in which a comparison says that two codes are not the same program, or not known to be."""

from __future__ import annotations

from types import CodeType
from typing import Any

from ...bytecode.ins import Ins


class Differs(Exception):
    """What tells two codes apart; with ``ins``, the place in the first of them."""

    def __init__(self, how: str, ins: Ins | None = None) -> None:
        super().__init__(how if ins is None else f"{ins.offset}: {ins.op} {shown(ins.arg)} {how}")


def other_instruction(x: Ins, y: Ins) -> Differs:
    return Differs(f"and {y.op} {shown(y.arg)}", x)


def shown(value: Any) -> str:
    text = f"the code of {value.co_name}" if isinstance(value, CodeType) else repr(value)
    return text if len(text) < 60 else text[:57] + "..."
