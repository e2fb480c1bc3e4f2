"""Operations that fail for some values, as factorizations do, where the program catches that: the graph ends there.

    try:
        factor = torch.linalg.cholesky(k)
    except torch.linalg.LinAlgError:
        factor = torch.linalg.cholesky(k + jitter)

Run by Python, the operation raises within the user's ``try``, after what came before it has happened once.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from ... import torch_compat
from ...bytecode import protection
from ..errors import OutOfOrder
from ..graph.builder import GraphBuilder
from ..protocol import Frame, Machine
from ..values.effects_log import EffectsLog

_LINALG = (
    "cholesky", "eig", "eigh", "eigvals", "eigvalsh", "inv", "ldl_factor", "lstsq", "lu_factor", "lu_solve", "pinv",
    "solve", "svd", "svdvals", "tensorinv", "tensorsolve", "cond", "matrix_rank",
)  # fmt: skip
_NAMES = ("cholesky", "cholesky_inverse", "inverse", "logdet", "lu", "pinverse", "svd")
FAILING: frozenset[Any] = frozenset(
    [getattr(torch.linalg, name) for name in _LINALG] + [getattr(torch, name) for name in _NAMES] + list(_NAMES)
)
_OPERATORS = (torch_compat.OpOverload, torch_compat.OpOverloadPacket, torch_compat.HigherOrderOperator)
# What refuses floats that are no probabilities or deviations, and what takes any whole numbers.
_LOOKING = frozenset({"multinomial", "bernoulli", "binomial", "poisson", "normal"})
_ELEMENTWISE = frozenset(
    {"add", "iadd", "sub", "isub", "mul", "imul", "neg", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor"}
    | {"invert", "to", "float", "double", "half", "bfloat16", "int", "long", "bool", "clone", "detach", "copy", "where"}
    | {"view", "zero", "fill", "batch_norm", "sum", "mean", "any", "all", "logical_not", "masked_fill", "getattr"}
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
    return any(
        n.op in ("call_function", "call_method") and may_fail(n.target) for n in m.state(GraphBuilder).graph.nodes
    )


def refuse_unfit(m: Machine) -> None:
    """Where a graph fails, Python runs the call from the start, and makes the deferred calls that come before. One that
    has written to its inputs cannot be run twice. Raises OutOfOrder; ``fullgraph`` has the inputs copied instead.
    """
    if would_lose_effects(m) and not m.fullgraph:
        raise OutOfOrder("a call that leaves a trace, before an operation that may fail, in a graph that writes")


def would_lose_effects(m: Machine) -> bool:
    """Whether the graph may fail after writing to its inputs, while calls wait for it."""
    waits = bool(m.state(EffectsLog).calls) and m.state(GraphBuilder).writes_inputs()
    return waits and any(map(_looks_at_data, m.state(GraphBuilder).graph.nodes))


def _looks_at_data(node: torch.fx.Node) -> bool:
    """Whether an operation may fail on what its operands hold: whole numbers may say where to read."""
    if node.op not in ("call_function", "call_method") or not node.all_input_nodes:
        return False
    name = str(getattr(node.target, "__name__", node.target)).strip("_")
    held = [n.meta.get("example_value") for n in node.all_input_nodes]
    whole = any(isinstance(t, torch.Tensor) and not (t.is_floating_point() or t.is_complex()) for t in held)
    custom = isinstance(node.target, _OPERATORS)
    return may_fail(node.target) or name in _LOOKING or ((whole or custom) and name not in _ELEMENTWISE)


def _catches(frame: Frame) -> bool:
    at, seen = frame.instruction().index, set[int]()
    while True:
        entry = protection(frame.code, at)
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
