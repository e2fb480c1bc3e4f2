"""The sizes of what operators of linear algebra give (``symbolic_shapes``)."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F

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


@gives(aten._trilinear.default)
def _trilinear(
    one: Layout, two: Layout, three: Layout, added1: list[int], added2: list[int], added3: list[int], summed: list[int],
    *args: int,
) -> list[Sizes] | None:  # fmt: skip
    """Of ``F.bilinear``: three tensors, each with some dimensions of one added, are multiplied and summed up."""
    met = broadcast(
        *(
            x._replace(sizes=_unsqueezed(x.sizes, added))
            for x, added in zip((one, two, three), (added1, added2, added3))
        )
    )
    return None if met is None else [tuple(size for dim, size in enumerate(met[0]) if dim not in summed)]


def _unsqueezed(sizes: Sizes, dims: list[int]) -> Sizes:
    left = iter(sizes)
    return tuple(1 if dim in dims else next(left) for dim in range(len(sizes) + len(dims)))


@enters(ON_SYMBOLS)(torch.kron, torch.Tensor.kron)
def kron(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Each element of one beside each of the other, in every dimension."""
    rank = max(input.dim(), other.dim())
    one, two = (x[(None,) * (rank - x.dim())] for x in (input, other))
    for dim in range(rank):
        one, two = one.unsqueeze(2 * dim + 1), two.unsqueeze(2 * dim)
    product: torch.Tensor = one * two
    return product.reshape([a * b for a, b in zip(product.shape[::2], product.shape[1::2])])


@enters(ON_SYMBOLS)(torch.block_diag)
def block_diag(*tensors: torch.Tensor) -> torch.Tensor:
    """Matrices from corner to corner, zeros beside them."""
    if len({x.dtype for x in tensors}) > 1:
        return torch.block_diag(*tensors)
    rows = [torch.atleast_2d(x) for x in tensors]
    ends = list(itertools.accumulate((x.shape[1] for x in rows), initial=0))
    return torch.cat([F.pad(x, (begin, ends[-1] - end)) for x, begin, end in zip(rows, ends, ends[1:])])


@enters(ON_SYMBOLS)(torch.stft)
def stft(input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Of one signal as of a batch of one: C++ squeezes that in place, which takes sizes as numbers."""
    return torch.stft(input[None], *args, **kwargs)[0] if input.dim() == 1 else torch.stft(input, *args, **kwargs)
