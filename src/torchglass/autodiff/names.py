"""Readable names for a trace's ops, after the captured node each comes from.

Input: the ops that remain, in order. Output: ``op.name`` set. The last forward op of a captured node ``linear`` is
called ``linear``, those that prepare it ``linear_t``, ``linear_view``; what differentiates it ``linear_grad_mm``. A
call with several results is ``layer_norm_results``, its items ``layer_norm``, ``layer_norm_results_1``, ...
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import torch

from ..records.literals import is_name
from ..torch_compat import OpOverload
from .ops import CALL, CONSTANT, INPUT, TANGENT, Op

_SILENT = re.compile(r"^_+|_default$|\W")


def assign(ops: Sequence[Op], gradients: Iterable[tuple[str, Op]]) -> None:
    """Name ``ops``. ``gradients`` pairs the name of an input with the op of its gradient, named ``grad_<input>``."""
    last = {op.captured: op for op in ops if op.kind is CALL and not op.backward and not op.is_item}
    wanted: dict[Op, str] = {}
    for name, op in gradients:
        if op.kind is CALL and op.backward:
            wanted.setdefault(op, f"grad_{name}")
    taken: set[str] = set()
    for op in ops:
        op.name = _unique(wanted.get(op) or _candidate(op, last), taken)


def _candidate(op: Op, last: dict[str, Op]) -> str:
    if op.kind in (INPUT, TANGENT):
        return str(op.target)
    if op.name:
        return op.name
    if op.kind is CONSTANT:
        return f"{op.captured}_constant" if op.captured else "constant"
    if op.is_item:
        source, index = op.args[0], op.args[1]
        whole = source.name.removesuffix("_results")
        return whole if index == 0 and whole != source.name else f"{source.name}_{index}"
    said = op.target._schema.name.split("::")[-1] if isinstance(op.target, OpOverload) else op.target.__name__
    short = _SILENT.sub("", said)
    if op.backward:
        short = short.removesuffix("_backward").removeprefix("native_")
        name = "_".join(part for part in (op.captured, "grad", short if short not in op.captured else "") if part)
    elif op.captured and last.get(op.captured) is op:
        name = op.captured
    else:
        name = f"{op.captured}_{short}" if op.captured and op.captured != short else short
    return name if isinstance(op.val, torch.Tensor) else f"{name}_results"


def _unique(candidate: str, taken: set[str]) -> str:
    """An identifier like ``candidate`` that is not taken; numbered if need be."""
    name = candidate if is_name(candidate) else re.sub(r"\W", "_", candidate, flags=re.ASCII)
    name = name if is_name(name) else f"v_{name}"
    if name in taken:
        number = 1
        while f"{name}_{number}" in taken:
            number += 1
        name = f"{name}_{number}"
    taken.add(name)
    return name
