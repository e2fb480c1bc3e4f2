"""Computes once, while compiling, what depends on numbers alone: positions, masks, frequencies.

Input: a trace's ops. Output: the ops in which the last call of such a chain is a constant that the graph holds, and
which calls became constants. ``x[:, arange(4) + 1]`` reads a constant ``[1, 2, 3, 4]`` instead of adding in each call.

Only chains that start at factories (``arange``, ``full``) are folded: a tensor that the graph holds already may belong
to the user, who may write to it. Factories themselves stay: a loop makes their values faster than it reads them. So do
large results, which would be text in the generated files, and what is returned, which must be new in each call.
"""

from __future__ import annotations

import torch

from ..records.size_places import has_sizes
from ..records.symbolic_ints import has_symbols
from ..torch_compat import below_autograd, without_dispatch_modes
from .ops import CALL, CONSTANT, Op, is_random, must_stay, operands, substitute, view_root
from .recompute import family

LARGEST = 256  # elements

Change = tuple[Op, Op]


def fold(ops: list[Op], own: set[Op]) -> tuple[list[Op], list[Change]]:
    """``own`` are ops whose memory is handed out; see the module's docstring."""
    known = _known(ops)
    wanted = _frontier(ops, known, own)
    values: dict[Op, torch.Tensor] = {}
    changes: dict[Op, Op] = {}
    for op in wanted:
        value = _value(op, values)
        if value is not None and _same_facts(value, op.val):
            constant = Op(CONSTANT, value, val=op.val)
            constant.captured, constant.origin, constant.backward = op.captured, op.origin, op.backward
            changes[op] = constant
    if not changes:
        return ops, []
    return _replaced(ops, changes), list(changes.items())


def value_of(op: Op, ops: list[Op], largest: int = LARGEST) -> torch.Tensor | None:
    """What one of ``ops`` gives, if its value follows from numbers alone, at most ``largest`` of them; else None."""
    if op not in _known(ops, largest):
        return None
    with without_dispatch_modes():  # they make fake tensors
        return _value(op, {})


def _known(ops: list[Op], largest: int = LARGEST) -> set[Op]:
    """Ops whose value follows from numbers alone."""
    known: set[Op] = set()
    for op in ops:
        if op.kind is not CALL or not isinstance(op.val, torch.Tensor) or op.is_item or is_random(op) or must_stay(op):
            continue
        if has_symbols(op.val) or has_sizes((op.args, op.kwargs)):
            continue
        reads = operands(op)
        if reads:
            if all(read in known for read in reads) and op.target.namespace == "aten" and op.val.numel() <= largest:
                known.add(op)
        elif family(op).name == "creation" and "empty" not in op.target.name():
            known.add(op)
    return known


def _frontier(ops: list[Op], known: set[Op], own: set[Op]) -> list[Op]:
    """Known calls, factories left out, that something else than a known call reads."""
    read_outside = {read for op in ops if op not in known for read in operands(op)}
    return [
        op
        for op in ops
        if op in known
        and op in read_outside
        and family(op).name not in ("creation", "view")
        and view_root(op) not in own
    ]


def _value(op: Op, values: dict[Op, torch.Tensor]) -> torch.Tensor | None:
    """Run the chain that ends in ``op``; None where it does not run."""
    waiting = [op]
    try:
        with below_autograd(), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            while waiting:
                current = waiting[-1]
                missing = [read for read in operands(current) if read not in values]
                if missing:
                    waiting.extend(missing)
                    continue
                waiting.pop()
                args = substitute(current.args, values.__getitem__)
                kwargs = {name: substitute(arg, values.__getitem__) for name, arg in current.kwargs.items()}
                values[current] = current.target(*args, **kwargs)
    except Exception:  # what it complains about, it will complain about when it runs
        return None
    return values[op]


def _same_facts(value: torch.Tensor, expected: torch.Tensor) -> bool:
    return (value.shape, value.stride(), value.dtype, value.device) == (
        expected.shape,
        expected.stride(),
        expected.dtype,
        expected.device,
    )


def _replaced(ops: list[Op], changes: dict[Op, Op]) -> list[Op]:
    def swap(op: Op) -> Op:
        return changes.get(op, op)

    for op in ops:
        if op.kind is CALL and any(read in changes for read in operands(op)):
            op.args = substitute(op.args, swap)
            op.kwargs = {name: substitute(arg, swap) for name, arg in op.kwargs.items()}
    return [swap(op) for op in ops]
