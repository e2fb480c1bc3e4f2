"""What `bytecode` decodes, with the instructions of 3.13 that stand for two as these two.

Those on two variables have room for the first 16 variables only, and for no cells: whoever changes the variables must
not keep them. A comparison apart from the truth of its result is what older versions have.
"""

from __future__ import annotations

from typing import Any

from bytecode import Bytecode, Compare, Instr

from .decode import COMPARES_TRUTH, PAIRS


def split_pairs(body: Bytecode) -> Bytecode:
    """``body`` itself, its instructions as ``decode`` numbers them."""
    body[:] = [half for item in body for half in _halves(item)]
    return body


def _halves(item: Any) -> list[Any]:
    if not isinstance(item, Instr):
        return [item]
    argument: Any = item.arg
    if item.name in PAIRS:
        return [Instr(name, arg, location=item.location) for name, arg in zip(PAIRS[item.name], argument)]
    if item.name == "COMPARE_OP" and argument & COMPARES_TRUTH:
        plain = Instr(item.name, Compare(argument & ~COMPARES_TRUTH), location=item.location)
        return [plain, Instr("TO_BOOL", location=item.location)]
    return [item]
