"""The sizes of what operators of linear algebra give (``symbolic_shapes``)."""

from __future__ import annotations

import torch

from .symbolic_shapes import Layout, Sizes, broadcast, gives

aten = torch.ops.aten


@gives(aten.linalg_solve_triangular.default)
def _solve_triangular(a: Layout, b: Layout, *, left: bool = True, **kwargs: bool) -> list[Sizes] | None:
    batch = broadcast(a._replace(sizes=a.sizes[:-2]), b._replace(sizes=b.sizes[:-2]))
    solved = b.sizes[-2 if left else -1]
    if batch is None or a.sizes[-2:] != (solved, solved):
        return None
    return [(*batch[0], *b.sizes[-2:])]
