"""Which statements call functions in C: what a vector of them costs more, or does not exist for."""

from __future__ import annotations

from ...records.loops import HALF, compute_dtype
from ..c_ops import calls_function
from ..statements import Accumulate, Call, Let, Read, Stmt, Write


def calls(stmt: Stmt, unpacking: bool = True) -> bool:
    """Whether a statement calls a function; ``unpacking`` of half precision counts as one."""
    match stmt:
        case Let():
            return calls_function(stmt.op, stmt.dtype, stmt.operand)
        case Read():
            converts = compute_dtype(stmt.stored) != stmt.dtype
            casts = converts and calls_function("cast", stmt.dtype, compute_dtype(stmt.stored))
            return casts or (unpacking and stmt.stored in HALF)
        case Write():
            return stmt.stored in HALF
        case Accumulate():
            return stmt.kind == "logaddexp"
        case _:
            return isinstance(stmt, Call)
