"""What `bytecode` decodes, with 3.13's instructions on two variables as the two that they stand for.

Their arguments have room for the first 16 variables only, and for no cells: whoever changes the variables must not keep
them.
"""

from __future__ import annotations

from typing import Any

from bytecode import Bytecode, Instr

from .decode import PAIRS


def split_pairs(body: Bytecode) -> Bytecode:
    """``body`` itself, its instructions as ``decode`` numbers them."""
    body[:] = [half for item in body for half in _halves(item)]
    return body


def _halves(item: Any) -> list[Any]:
    if not isinstance(item, Instr) or item.name not in PAIRS:
        return [item]
    arguments: Any = item.arg
    return [Instr(name, arg, location=item.location) for name, arg in zip(PAIRS[item.name], arguments)]
