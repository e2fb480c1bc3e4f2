"""The sizes of what operators of linear algebra give (``symbolic_shapes``)."""

from __future__ import annotations

import torch

from ..process.tables import enters
from ..torch_compat import ON_SYMBOLS
from .symbolic_shapes import Layout, Sizes, broadcast, gives

aten = torch.ops.aten


@gives(aten.linalg_solve_triangular.default)
def _solve_triangular(a: Layout, b: Layout, *, left: bool = True, **kwargs: bool) -> list[Sizes] | None:
    batch = broadcast(a._replace(sizes=a.sizes[:-2]), b._replace(sizes=b.sizes[:-2]))
    solved = b.sizes[-2 if left else -1]
    if batch is None or a.sizes[-2:] != (solved, solved):
        return None
    return [(*batch[0], *b.sizes[-2:])]


@enters(ON_SYMBOLS)(torch.kron, torch.Tensor.kron)
def kron(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Each element of one beside each of the other, in every dimension."""
    rank = max(input.dim(), other.dim())
    one, two = (x[(None,) * (rank - x.dim())] for x in (input, other))
    for dim in range(rank):
        one, two = one.unsqueeze(2 * dim + 1), two.unsqueeze(2 * dim)
    product: torch.Tensor = one * two
    return product.reshape([a * b for a, b in zip(product.shape[::2], product.shape[1::2])])
