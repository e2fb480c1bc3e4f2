"""The group of one loop, and one group of two: what is legal (``legality``) and pays (a ``policy``), or Refused.

``merged([max], [exp])`` of a softmax over (512, 128) is one group over (512, 128) with rows [512], inner [128].
"""

from __future__ import annotations

from ..records.loops import Loop
from ..records.sizes import Size
from .align import drop_ones
from .groups import Group
from .legality import Refused, Rows, check_flow, join, roles
from .policy import Policy


def single(loop: Loop, position: int, device: str, policy: Policy) -> Group:
    """The group of one loop."""
    slim = drop_ones(loop)
    inner = roles([slim], slim.dims, policy.carries)
    return Group([slim], [position], slim.dims, 1 << position, 0, position, inner, [loop.name], device)


def merged(first: Group, second: Group, policy: Policy) -> Group:
    """One group of both, ``first``'s loops before ``second``'s; Refused with the reason where they stay apart."""
    left, right, dims = join(first, second)
    ordered = sorted(zip(first.positions + second.positions, left + right), key=lambda p: p[0])
    loops = [loop for _, loop in ordered]
    inner, strided = _rows(loops, dims, policy)
    return Group(
        loops, [p for p, _ in ordered], dims, first.members | second.members, first.ancestors | second.ancestors,
        max(first.last, second.last), inner, first.names + second.names, first.device, strided,
    )  # fmt: skip


def _rows(loops: list[Loop], dims: tuple[Size, ...], policy: Policy) -> tuple[Rows | None, bool]:
    """Which dimensions make a row, and whether rows lie across memory; Refused where neither is legal and pays."""
    try:
        inner = roles(loops, dims, policy.carries)
        check_flow(loops, inner)
        policy.check_rows(loops, dims, inner)
        return inner, False
    except Refused:
        inner = policy.other_rows(loops, dims)
        if inner is None:
            raise
    check_flow(loops, inner)
    return inner, True
