"""Operations that fail for some values, as factorizations do, where the program catches that: the graph ends there.

    try:
        factor = torch.linalg.cholesky(k)
    except torch.linalg.LinAlgError:
        factor = torch.linalg.cholesky(k + jitter)

Run by Python, the operation raises within the user's ``try``, after what came before it has happened once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ..interp.frame import Frame
    from ..interp.machine import Machine

_LINALG = (
    "cholesky", "eig", "eigh", "eigvals", "eigvalsh", "inv", "ldl_factor", "lstsq", "lu_factor", "lu_solve", "pinv",
    "solve", "svd", "svdvals", "tensorinv", "tensorsolve", "cond", "matrix_rank",
)  # fmt: skip
_NAMES = ("cholesky", "cholesky_inverse", "inverse", "logdet", "lu", "pinverse", "svd")
FAILING: frozenset[Any] = frozenset(
    [getattr(torch.linalg, name) for name in _LINALG] + [getattr(torch, name) for name in _NAMES] + list(_NAMES)
)
# What an ``except`` clause does before it compares types goes on; these end the search for that comparison.
_NO_CLAUSE = ("POP_TOP", "STORE", "RERAISE", "RETURN", "JUMP", "POP_JUMP", "WITH_EXCEPT_START")


def may_fail(target: Any) -> bool:
    """Whether the operation raises for some values of its operands."""
    try:
        return target in FAILING
    except TypeError:
        return False


def is_caught(m: Machine) -> bool:
    """Whether one of the functions that run has an ``except`` around the place where it is."""
    return any(_catches(frame) for frame in m.frames)


def in_graph(m: Machine) -> bool:
    """Whether the graph has such an operation."""
    return any(n.op in ("call_function", "call_method") and may_fail(n.target) for n in m.builder.graph.nodes)


def _catches(frame: Frame) -> bool:
    at, seen = frame.instruction().index, set[int]()
    while True:
        entry = next((e for e in frame.exceptions if e.start <= at < e.end), None)
        if entry is None or entry.target in seen:
            return False
        at = entry.target  # what a ``with`` or ``finally`` lets through comes to the block around that
        if _is_except(frame, at):
            return True
        seen.add(at)


def _is_except(frame: Frame, start: int) -> bool:
    """Whether the handler at ``start`` has ``except`` clauses: it is none of a ``with`` or ``finally``."""
    if frame.instructions[start].opname != "PUSH_EXC_INFO":
        return False
    for i in frame.instructions[start + 1 :]:
        if i.opname in ("CHECK_EXC_MATCH", "CHECK_EG_MATCH"):
            return True
        if i.opname.startswith(_NO_CLAUSE):
            return i.opname == "POP_TOP" and i.index == start + 1  # ``except:`` without a type
    return False
