"""The checker of loop programs: raises LoopError naming loop and operation, or returns None.

It holds: values are defined once and before use; operators exist and have their number of arguments; dtypes are known
and agree: both sides of an addition, what is chosen between, a number stored and its buffer; comparisons yield bool,
masks and conditions are bool, computed addresses are integers; accesses have one stride per dimension and name known
buffers; a loop writes only temporary buffers, none that it reads, and each buffer is written by one node; a value
stored is one that the reduction has finished; a scan counts its line point by point and what follows it in the loop
needs nothing else of the point; a kept store never moves along a reduced dimension; addresses stay inside their buffer
(inputs may be views into more memory than their shape says) as far as sizes tell, and so do results; a store at
computed addresses goes onto a buffer in the same memory, and its loop does nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .loops import (
    BOOL_OPS,
    OPS,
    REDUCTIONS,
    SCANS,
    Access,
    Buffer,
    Compute,
    Const,
    Index,
    Load,
    Loop,
    LoopGraph,
    Reduce,
    Scalar,
    Scan,
    Store,
    View,
    compute_dtype,
)
from .size_relations import proved
from .sizes import Size, hint, is_known

ANY_OPERANDS = frozenset({"cast", "philox"})
FLOAT_OPS = frozenset({
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "sigmoid", "floor", "ceil", "trunc",
    "round", "ndtr", "lgamma", "pow", "atan2", "copysign", "hypot", "nextafter",
})  # fmt: skip
DTYPES = frozenset({"float32", "float64", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"})


class LoopError(ValueError):
    """A loop program that breaks the rules of the IR."""


@dataclass(frozen=True)
class _Where:
    """What a message begins with: made for every operation, written for those that are wrong."""

    loop: str
    op: object

    def __str__(self) -> str:
        return f"{self.loop}: `{self.op}`"


def check_graph(graph: LoopGraph) -> None:
    """Check every loop, that buffers are written once and before they are read, and that results lie inside theirs."""
    written = set(graph.inputs) | set(graph.constants)
    for node in graph.nodes:
        for name in node.reads:
            if name not in written:
                raise LoopError(f"{graph.name}: {node.name} reads {name} before anything wrote it")
        if isinstance(node, Loop):
            check_loop(node, graph.buffers)
        for name in node.writes:
            if name in written:
                raise LoopError(f"{graph.name}: {node.name} writes {name} a second time")
        written.update(node.writes)
    for result in graph.outputs:
        if isinstance(result, View):
            _check_result(graph, result, written)


def _check_result(graph: LoopGraph, result: View, written: set[str]) -> None:
    where = f"{graph.name}: the result {result}"
    if result.buffer not in graph.buffers or result.buffer not in written:
        raise LoopError(f"{where} was never written")
    if len(result.shape) != len(result.strides):
        raise LoopError(f"{where}: {len(result.strides)} strides over {len(result.shape)} dimensions")
    _check_range(result.shape, Access(result.buffer, result.strides, result.offset), graph.buffers, where)


def check_loop(loop: Loop, buffers: Mapping[str, Buffer]) -> None:
    """Check one loop against the buffers it may touch."""
    if len(loop.dims) != len(loop.reduced):
        raise LoopError(f"{loop.name}: {len(loop.dims)} dimensions but {len(loop.reduced)} reduction flags")
    dtypes: dict[str, str] = {}
    partial: set[str] = set()  # values that still vary along reduced dimensions
    most = _bounds(loop)
    for op in loop.body:
        where = _Where(loop.name, op)
        _check_operands(op, dtypes, where)
        if isinstance(op, (Load, Store)):
            masked = isinstance(op, Load) and op.mask is not None
            _check_access(op.access, loop, buffers, where, masked, most)
        if isinstance(op, Scalar) and getattr(buffers.get(op.buffer), "role", None) != "numbers":
            raise LoopError(f"{where}: {op.buffer} are no numbers")
        if isinstance(op, Store):
            _check_store(op, loop, partial, where)
            _check_scatter(op, loop, buffers, where)
            _check_stored(op, loop, dtypes, buffers, where)
            continue
        if op.result in dtypes:
            raise LoopError(f"{where} defines {op.result} a second time")
        if op.dtype not in DTYPES:
            raise LoopError(f"{where} has unknown dtype {op.dtype}")
        _check_dtypes(op, dtypes, where)
        if loop.is_reduction and _varies(op, loop, partial):
            partial.add(op.result)
        dtypes[op.result] = op.dtype
    if loop.is_scan:
        _check_scans(loop)
    if loop.is_reduction and not any(isinstance(op, Reduce) for op in loop.body):
        raise LoopError(f"{loop.name}: has reduced dimensions but no reduce")
    if not loop.stores:
        raise LoopError(f"{loop.name}: stores nothing")


def _check_scans(loop: Loop) -> None:
    """Whether lines are counted point by point, and what follows a scan needs it alone: it runs apart from the rest."""
    if loop.is_reduction:
        raise LoopError(f"{loop.name}: scans and reduces")
    scans = [op for op in loop.body if isinstance(op, Scan)]
    for op in scans:
        where = _Where(loop.name, op)
        step: Size = 1
        if len(op.strides) != len(loop.dims):
            raise LoopError(f"{where}: {len(op.strides)} strides over {len(loop.dims)} dimensions")
        moved = [(s, d) for s, d in zip(op.strides, loop.dims) if s != 0]
        for stride, size in sorted(moved, key=lambda m: (hint(m[0]), hint(m[1]))):
            if proved(stride, "!=", step):
                raise LoopError(f"{where}: points of a line are not counted one by one")
            step = step * size
        if not moved or op.strides != scans[0].strides:
            raise LoopError(f"{where}: {'runs along nothing' if not moved else 'another line than the scan before'}")
    _check_after_scans(loop)


def _check_after_scans(loop: Loop) -> None:
    late: set[str] = set()  # what scans made, and what is computed from it
    plain: set[str] = set()
    for op in loop.body:
        used = set(operands(op))
        if not isinstance(op, Store) and (isinstance(op, Scan) or used & late):
            if isinstance(op, Scan) and used & late:
                raise LoopError(f"{loop.name}: `{op}` scans what a scan made")
            late.add(op.result)
        elif isinstance(op, Const):
            plain.add(op.result)
        if used & late and not used <= late | plain:
            raise LoopError(f"{loop.name}: `{op}` needs more than the scan and numbers")


def _check_dtypes(op: object, dtypes: Mapping[str, str], where: object) -> None:
    """Whether the operands of an operation that defines a value are of the dtypes it takes."""
    if isinstance(op, Load):
        if op.mask is not None and dtypes[op.mask] != "bool":
            raise LoopError(f"{where}: the mask is {dtypes[op.mask]}, not bool")
        _check_places(op.access, dtypes, where)
    elif isinstance(op, Index):
        if op.dtype not in ("int64", "int32"):
            raise LoopError(f"{where}: counters are int64 or int32")
    elif isinstance(op, (Reduce, Scan)):
        if dtypes[op.arg] != op.dtype:
            verb = "reduces" if isinstance(op, Reduce) else "scans"
            raise LoopError(f"{where} {verb} {dtypes[op.arg]} to {op.dtype}")
    elif isinstance(op, Compute) and op.op not in ANY_OPERANDS:
        given = [dtypes[a] for a in op.args]
        if op.op == "where" and given.pop(0) != "bool":
            raise LoopError(f"{where}: the condition is {dtypes[op.args[0]]}, not bool")
        wanted = given[0] if op.op in BOOL_OPS else op.dtype
        if any(dtype != wanted for dtype in given):
            raise LoopError(f"{where} mixes {', '.join(given)}")
        if op.op in FLOAT_OPS and "float" not in wanted:
            raise LoopError(f"{where}: {op.op} of {wanted}")


def _check_places(access: Access, dtypes: Mapping[str, str], where: object) -> None:
    for value, _ in access.indirect:
        if dtypes[value] not in ("int64", "int32"):
            raise LoopError(f"{where}: the address {value} is {dtypes[value]}")


def _check_stored(
    op: Store, loop: Loop, dtypes: Mapping[str, str], buffers: Mapping[str, Buffer], where: object
) -> None:
    buffer = buffers[op.access.buffer]
    if buffer.role != "temp" or buffer.name in loop.reads:
        raise LoopError(f"{where} writes {'what it reads' if buffer.role == 'temp' else f'the {buffer.role}'}")
    if dtypes[op.arg] != compute_dtype(buffer.dtype):
        raise LoopError(f"{where} stores {dtypes[op.arg]} in {buffer.dtype}")
    _check_places(op.access, dtypes, where)


def _check_operands(op: object, dtypes: Mapping[str, str], where: object) -> None:
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
    if isinstance(op, Scan) and op.kind not in SCANS:
        raise LoopError(f"{where}: no scan {op.kind}")


def _bounds(loop: Loop) -> dict[str, int]:
    """The largest value of each computed place that is kept within 0 and a number."""
    numbers = {op.result: op.value for op in loop.body if isinstance(op, Const)}
    kept = [op for op in loop.body if isinstance(op, Compute) and op.op == "bound" and len(op.args) == OPS["bound"]]
    return {op.result: int(numbers[op.args[1]]) - 1 for op in kept if op.args[1] in numbers}


def _check_access(
    access: Access, loop: Loop, buffers: Mapping[str, Buffer], where: object, masked: bool, most: Mapping[str, int]
) -> None:
    if access.buffer not in buffers:
        raise LoopError(f"{where}: no buffer {access.buffer}")
    if len(access.strides) != len(loop.dims):
        raise LoopError(f"{where}: {len(access.strides)} strides over {len(loop.dims)} dimensions")
    if not masked and all(v in most for v, _ in access.indirect):
        dims = (*loop.dims, *(most[v] + 1 for v, _ in access.indirect))
        strides = (*access.strides, *(s for _, s in access.indirect))
        _check_range(dims, Access(access.buffer, strides, access.offset), buffers, where)


def _check_range(dims: tuple[Size, ...], access: Access, buffers: Mapping[str, Buffer], where: object) -> None:
    buffer = buffers[access.buffer]
    if buffer.role != "temp" or 0 in dims:
        return
    if 0 in buffer.shape:
        raise LoopError(f"{where}: {access.buffer} has no elements")
    low = high = access.offset
    for size, stride in zip(dims, access.strides):
        if is_known(stride) and stride < 0:
            low = low + size * stride - stride
        elif stride != 0:
            high = high + size * stride - stride
    last = buffer.extent - 1
    if proved(low, "<", 0) or proved(high, ">", last):
        raise LoopError(f"{where}: addresses {low}..{high} leave {access.buffer} (0..{last})")


def _check_scatter(op: Store, loop: Loop, buffers: Mapping[str, Buffer], where: object) -> None:
    """A store at computed addresses: onto a buffer that lies where its own does, and nothing else is done with them."""
    if op.base is None:
        if op.access.indirect or op.add:
            raise LoopError(f"{where} writes some elements onto nothing")
        return
    old, new = buffers.get(op.base), buffers[op.access.buffer]
    if old is None or old.alias_of != (new.name, 0) or old.dtype != new.dtype or old.numel != new.numel:
        raise LoopError(f"{where}: {op.base} is not the same memory as {new.name}")
    if loop.is_reduction or len(loop.stores) != 1 or {old.name, new.name} & {o.access.buffer for o in loop.loads}:
        raise LoopError(f"{where}: a loop that writes some elements does nothing else")


def _check_store(op: Store, loop: Loop, partial: set[str], where: object) -> None:
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
    if isinstance(op, (Reduce, Scan, Store)):
        extra = tuple(v for v, _ in op.access.indirect) if isinstance(op, Store) else ()
        return (op.arg, *extra)
    if isinstance(op, Load):
        return tuple(v for v, _ in op.access.indirect) + ((op.mask,) if op.mask else ())
    assert isinstance(op, (Const, Index, Scalar))
    return ()
