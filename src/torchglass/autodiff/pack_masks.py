"""Keeps the random masks that backward needs as one byte per element.

Dropout draws zeros and ones in the tensor's own type, and eager keeps them so: four bytes for each. ``pack`` puts
``ne(mask, 0)`` and the cast back between the draw and its readers, and lets the cut decide; ``unpack`` takes both out
again where backward keeps nothing of it. The numbers are zeros and ones either way::

    bernoulli -> mul(x, bernoulli)          becomes        bernoulli -> ne -> _to_copy -> mul(x, _to_copy)
"""

from __future__ import annotations

import torch

from .ops import CALL, Op, operands, substitute

aten = torch.ops.aten
NAME = "narrow_masks"

ZERO_OR_ONE = frozenset({aten.bernoulli.default, aten.bernoulli.p, aten.bernoulli.Tensor})

PackedMasks = dict[Op, tuple[Op, Op]]
"""draw -> (the mask in bytes, the mask as it was drawn)"""


def pack(ops: list[Op], ends: list[Op]) -> tuple[list[Op], PackedMasks]:
    """The ops with a narrow mask behind each draw of zeros and ones that is not returned itself."""
    returned = set(ends)
    made: PackedMasks = {}
    result: list[Op] = []

    def swap(op: Op) -> Op:
        return made[op][1] if op in made else op

    for op in ops:
        if op.kind is CALL and any(read in made for read in operands(op)):
            op.args = substitute(op.args, swap)
        result.append(op)
        if op.kind is CALL and op.target in ZERO_OR_ONE and op not in returned and op.val.element_size() > 1:
            made[op] = _pair(op)
            result += made[op]
    return result, made


def _pair(draw: Op) -> tuple[Op, Op]:
    mask = Op(CALL, aten.ne.Scalar, (draw, 0), None, aten.ne.Scalar(draw.val, 0))
    wide = Op(CALL, aten._to_copy.default, (mask,), {"dtype": draw.val.dtype}, draw.val)
    for op, suffix in ((mask, "mask"), (wide, "drawn")):
        op.captured, op.origin, op.region = draw.captured, draw.origin, draw.region
        op.name = f"{draw.captured or 'random'}_{suffix}"
    return mask, wide


def unpack(ops: list[Op], made: PackedMasks, saved: list[Op]) -> list[Op]:
    """``ops`` without the pairs whose mask is not saved."""
    gone = {pair[1]: draw for draw, pair in made.items() if pair[0] not in saved}
    if not gone:
        return ops
    masks = {made[draw][0] for draw in gone.values()}
    for op in ops:
        if op.kind is CALL and any(read in gone for read in operands(op)):
            op.args = substitute(op.args, lambda read: gone.get(read, read))
    return [op for op in ops if op not in gone and op not in masks]
