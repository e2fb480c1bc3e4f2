"""The checker of loop programs: raises LoopError naming loop and operation, or returns None.

It holds: values are defined once and before use; operators exist and have their number of arguments; dtypes are known;
comparisons yield bool; accesses have one stride per dimension and name known buffers; a value stored is one that the
reduction has finished; a kept store never moves along a reduced dimension; addresses of affine accesses with known
sizes stay inside their buffer.
"""

from __future__ import annotations

from collections.abc import Mapping

from .loops import (
    BOOL_OPS,
    OPS,
    REDUCTIONS,
    Access,
    Buffer,
    Compute,
    Const,
    Index,
    Load,
    Loop,
    LoopGraph,
    Reduce,
    Store,
)

DTYPES = frozenset({"float32", "float64", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"})


class LoopError(ValueError):
    """A loop program that breaks the rules of the IR."""


def check_graph(graph: LoopGraph) -> None:
    """Check every loop, and that every buffer is written before it is read."""
    written = set(graph.inputs) | set(graph.constants)
    for node in graph.nodes:
        for name in node.reads:
            if name not in written:
                raise LoopError(f"{graph.name}: {node.name} reads {name} before anything wrote it")
        if isinstance(node, Loop):
            check_loop(node, graph.buffers)
        written.update(node.writes)


def check_loop(loop: Loop, buffers: Mapping[str, Buffer]) -> None:
    """Check one loop against the buffers it may touch."""
    if len(loop.dims) != len(loop.reduced):
        raise LoopError(f"{loop.name}: {len(loop.dims)} dimensions but {len(loop.reduced)} reduction flags")
    dtypes: dict[str, str] = {}
    partial: set[str] = set()  # values that still vary along reduced dimensions
    for op in loop.body:
        where = f"{loop.name}: `{op}`"
        _check_operands(op, dtypes, where)
        if isinstance(op, (Load, Store)):
            _check_access(op.access, loop, buffers, where, masked=isinstance(op, Load) and op.mask is not None)
        if isinstance(op, Store):
            _check_store(op, loop, partial, where)
            continue
        if op.result in dtypes:
            raise LoopError(f"{where} defines {op.result} a second time")
        if op.dtype not in DTYPES:
            raise LoopError(f"{where} has unknown dtype {op.dtype}")
        if _varies(op, loop, partial):
            partial.add(op.result)
        dtypes[op.result] = op.dtype
    if loop.is_reduction and not any(isinstance(op, Reduce) for op in loop.body):
        raise LoopError(f"{loop.name}: has reduced dimensions but no reduce")


def _check_operands(op: object, dtypes: Mapping[str, str], where: str) -> None:
    for arg in operands(op):
        if arg not in dtypes:
            raise LoopError(f"{where} uses {arg}, which is not defined before it")
    if isinstance(op, Compute):
        if op.op not in OPS:
            raise LoopError(f"{where}: no operator {op.op}")
        if len(op.args) != OPS[op.op]:
            raise LoopError(f"{where}: {op.op} takes {OPS[op.op]} arguments, not {len(op.args)}")
        if (op.op in BOOL_OPS) and op.dtype != "bool":
            raise LoopError(f"{where}: {op.op} yields bool, not {op.dtype}")
    if isinstance(op, Reduce) and op.kind not in REDUCTIONS:
        raise LoopError(f"{where}: no reduction {op.kind}")


def _check_access(access: Access, loop: Loop, buffers: Mapping[str, Buffer], where: str, masked: bool) -> None:
    if access.buffer not in buffers:
        raise LoopError(f"{where}: no buffer {access.buffer}")
    if len(access.strides) != len(loop.dims):
        raise LoopError(f"{where}: {len(access.strides)} strides over {len(loop.dims)} dimensions")
    buffer = buffers[access.buffer]
    known = (*loop.dims, *access.strides, access.offset, *buffer.shape, *buffer.strides)
    if masked or access.indirect or buffer.role != "temp" or not all(isinstance(v, int) for v in known):
        return
    if 0 in loop.dims or 0 in buffer.shape:
        return
    spans = [(d - 1) * s for d, s in zip(loop.dims, access.strides)]
    low = access.offset + sum(s for s in spans if s < 0)
    high = access.offset + sum(s for s in spans if s > 0)
    last = sum((d - 1) * s for d, s in zip(buffer.shape, buffer.strides))
    if low < 0 or high > last:
        raise LoopError(f"{where}: addresses {low}..{high} leave {access.buffer} (0..{last})")


def _check_store(op: Store, loop: Loop, partial: set[str], where: str) -> None:
    if loop.is_reduction:
        if op.arg in partial:
            raise LoopError(f"{where} stores {op.arg} before its reduction has finished")
        if any(r and d != 1 and s != 0 for d, r, s in zip(loop.dims, loop.reduced, op.access.strides)):
            raise LoopError(f"{where} moves along a reduced dimension")


def _varies(op: object, loop: Loop, partial: set[str]) -> bool:
    if isinstance(op, Reduce):
        return False
    if isinstance(op, Load):
        strides = op.access.strides
    elif isinstance(op, Index):
        strides = op.strides
    else:
        return any(a in partial for a in operands(op))
    moved = any(r and d != 1 and s != 0 for d, r, s in zip(loop.dims, loop.reduced, strides))
    return moved or any(a in partial for a in operands(op))


def operands(op: object) -> tuple[str, ...]:
    """The values an operation uses."""
    if isinstance(op, Compute):
        return op.args
    if isinstance(op, (Reduce, Store)):
        extra = tuple(v for v, _ in op.access.indirect) if isinstance(op, Store) else ()
        return (op.arg, *extra)
    if isinstance(op, Load):
        return tuple(v for v, _ in op.access.indirect) + ((op.mask,) if op.mask else ())
    assert isinstance(op, (Const, Index))
    return ()
