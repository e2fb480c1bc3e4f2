"""3.12 and later run comprehensions inside the function around them; here each becomes one instruction again.

Before: BUILD_LIST 0, SWAP 2, FOR_ITER … LIST_APPEND 2 … around the loop.  After: one COMPREHENSION that takes the
iterator and pushes the result; its argument is where the loop starts.  The loop's instructions stay where they are and
end in UNREACHABLE, so that they can be decompiled on their own.
"""

from __future__ import annotations

from ...bytecode.canonical import VERSION
from ...bytecode.flow import skip
from ...bytecode.ins import Ins

_DISPLAYS = frozenset({"BUILD_LIST", "BUILD_SET", "BUILD_MAP"})


def extract_comprehensions(code: list[Ins]) -> None:
    """Replace every inlined comprehension of ``code``, in place."""
    if VERSION < (3, 12):
        return
    end = -1
    for ins in list(code):
        if ins.op not in _DISPLAYS or ins.arg:
            continue
        swap = code[skip(code, ins.nxt)]
        if swap.op != "SWAP" or swap.arg != 2:
            continue
        head = code[skip(code, swap.nxt)]
        if head.op != "FOR_ITER":
            continue
        if end < 0:
            end = len(code)
            stop = Ins(end, -1, "UNREACHABLE", None, None)
            stop.nxt = -1
            code.append(stop)
        ins.op, ins.arg = "COMPREHENSION", head.index
        ins.nxt = head.to
        head.to = end
