"""Values whose very bits decide something in backward: computed once, by forward.

Input: the joint trace. Output: the ops that backward must not compute again, since another kernel may round them
otherwise (a vector function and its scalar form, a product that one sum takes in and another does not). Mostly that
is harmless. Where a value is looked for among those that it was selected from it is not::

    v = x.sin().exp(); m = v.amax()      # backward: hit = v == m; grad_v = tangent * hit / hit.sum()

finds nothing in a ``v`` that is one bit off, and divides 0 by 0. So ``v`` is kept, or ``hit`` is, whichever is smaller.
Comparisons with numbers and with what was computed apart are no such case: a bit moves their edge by a bit.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from itertools import combinations
from typing import Any

import torch

from ..torch_compat import OpOverload
from .ops import CALL, INPUT, Op, is_random, is_view, operands

ROLES = {
    # give the numbers that they read, or what every kernel makes of them to the bit
    "move": "neg abs sign sgn relu relu6 hardtanh threshold clamp clamp_min clamp_max where masked_fill nan_to_num "
    "floor ceil round trunc clone copy _to_copy lift_fresh_copy cat stack flip roll repeat triu tril constant_pad_nd "
    "slice_scatter select_scatter",
    # find some of the numbers that they read; a norm or a distance does when it is the largest of all
    "selection": "amax amin max min aminmax median nanmedian mode kthvalue sort topk cummax cummin linalg_vector_norm "
    "norm dist _cdist_forward maximum minimum fmax fmin gather index index_select take take_along_dim scatter_reduce "
    "index_reduce segment_reduce",
    "comparison": "eq ne lt le gt ge",
    # backwards of selections, which compare if an argument says that an extremum was selected
    "search": "_cdist_backward _segment_reduce_backward",
}
"""What an ATen operator, by name without overload, has to do with selecting."""
ROLE_OF = {name: role for role, names in ROLES.items() for name in names.split()}
EXTREMA = (math.inf, "max", "min")


def exact_values(ops: Sequence[Op], read: Iterable[Op], in_forward: Collection[Op]) -> set[Op]:
    """What comparisons and indices decide by, of those that backward does or ``read``s.

    Left out is what follows from constants alone: to keep T5's buckets of distances is 1 % of what its layers keep.
    """
    deciding = [op for op in read if _compares(op) or _makes_places(op)]
    if not deciding:
        return set()
    kept = _varying(ops).intersection(in_forward)
    through = {op for op in ops if _passes(op) or (op.kind is CALL and op not in in_forward)}
    found: set[Op] = set()
    for op in deciding:
        sides = [_sources(side, through, kept) for side in dict.fromkeys(operands(op))]
        if _makes_places(op):
            found.update(*sides)
        for one, other in combinations(sides, 2):
            found.update(v for v in one.keys() & other.keys() if one[v] or other[v])
    return found


def _varying(ops: Sequence[Op]) -> set[Op]:
    """What depends on an input or a random number."""
    found: set[Op] = set()
    for op in ops:
        if op.kind is INPUT or is_random(op) or any(read in found for read in operands(op)):
            found.add(op)
    return found


def _compares(op: Op) -> bool:
    """Whether real numbers of two tensors are compared, here or within a kernel."""
    role = _role(op)
    within = role == "search" and any(arg in EXTREMA for arg in op.args if type(arg) is not Op)
    return within or (role == "comparison" and sum(map(_is_real, operands(op))) == 2)


def _makes_places(op: Op) -> bool:
    """Whether real numbers become integers: places in another tensor, as a rule, where a bit off is another row."""
    casts = op.target is torch.ops.aten._to_copy.default
    return casts and _is_real(op.args[0]) and not _is_real(op) and op.val.dtype is not torch.bool


def _passes(op: Op) -> bool:
    return is_view(op) or _role(op) in ("move", "selection")


def _sources(op: Op, through: Collection[Op], kept: Collection[Op]) -> dict[Op, bool]:
    """The computed values that an op's bits follow from, and whether by way of a selection.

    What forward does not compute is computed in one place anyway: what it reads counts.
    """
    found: dict[Op, bool] = {}
    waiting, seen = [(op, False)], set()
    while waiting:
        step = current, selected = waiting.pop()
        if step in seen or not _is_real(current):
            continue
        seen.add(step)
        if current in through:
            selected = selected or _role(current) == "selection"
            waiting += [(read, selected) for read in operands(_call(current))]
        elif current in kept:
            found[current] = found.get(current, False) or selected
    return found


def _call(op: Op) -> Op:
    """The call that an item is a result of."""
    return op.args[0] if op.is_item else op


def _role(op: Op) -> str:
    """That of a call; an item has its call's."""
    target: Any = _call(op).target
    known = isinstance(target, OpOverload) and target.namespace == "aten"
    return ROLE_OF.get(target._schema.name[6:], "") if known else ""


def _is_real(op: Op) -> bool:
    return isinstance(op.val, torch.Tensor) and (op.val.is_floating_point() or op.val.is_complex())
