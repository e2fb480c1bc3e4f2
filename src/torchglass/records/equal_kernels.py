"""Which kernels are equal but for the names of their buffers: the twelve equal layers of a model share one."""

from __future__ import annotations

from collections.abc import Mapping

from .kernels import FusedKernel
from .loops import Buffer, Const, Load, Scalar, Store


def canonical(kernel: FusedKernel, buffers: Mapping[str, Buffer]) -> tuple[object, tuple[str, ...]]:
    """A key that equal kernels share, and the kernel's buffers in the order the key names them."""
    names: dict[str, int] = {}

    def number(buffer: str) -> tuple[int, str]:
        return names.setdefault(buffer, len(names)), buffers[buffer].dtype

    loops = []
    for loop in kernel.loops:
        body: list[object] = []
        for op in loop.body:
            if isinstance(op, Load):
                body.append(("load", op.result, number(op.access.buffer), op.access.strides, op.access.offset,
                             op.access.indirect, op.dtype, op.mask, repr(op.other)))  # fmt: skip
            elif isinstance(op, Store):
                base = None if op.base is None else number(op.base)
                body.append(("store", number(op.access.buffer), op.access.strides, op.access.offset,
                             op.access.indirect, op.arg, base, op.add))  # fmt: skip
            elif isinstance(op, Scalar):
                body.append(("scalar", op.result, number(op.buffer), op.position, op.dtype))
            elif isinstance(op, Const):
                body.append(("const", op.result, repr(op.value), op.dtype))
            else:
                body.append(op)
        loops.append((loop.dims, loop.reduced, tuple(body)))
    local = tuple(sorted(names[b] for b in kernel.local))
    inplace = tuple((names[written], names[read]) for written, read in kernel.inplace)
    return (kernel.dims, kernel.inner, kernel.strided, tuple(loops), local, inplace), tuple(names)
