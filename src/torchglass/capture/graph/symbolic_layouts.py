"""Which sizes of a tensor from outside are symbols, and the strides that follow from them.

    x of [8, 5, 16], whose second size was another one before:
        sizes    [8, s0, 16]
        strides  [16*s0, 16, 1]                    as a tensor lies whose rows follow one another
        guard    shape (8, None, 16), strides ((16, 1), 16, 1)

A stride that is what lies inside its dimension stays so for other sizes. One that is not, of a slice of something
wider, is a number that is guarded, until it was another one: then it is a symbol of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from ... import torch_compat
from ...aten.sizes import free_strides, nesting
from ...marks.tensors import marked_ranges
from ...records.guards import Stride, TensorMeta
from ...records.size_environment import SizeEnvironment
from ...records.size_sources import is_argument, is_brought
from ...records.sources import Source, StrideOf, tensor_size
from ..protocol import Machine


@dataclass(frozen=True)
class SymbolicLayout:
    """``sizes`` and ``strides`` are ints and SymInts. ``dims`` are those whose sizes are symbols, ``products`` the
    strides as a guard has them.
    """

    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    dims: frozenset[int]
    products: tuple[Stride, ...]

    def meta(self, exact: TensorMeta) -> TensorMeta:
        """What a guard expects of a tensor that now is ``exact``."""
        shape = tuple(None if dim in self.dims else size for dim, size in enumerate(exact.shape))
        return replace(exact, shape=shape, strides=self.products)


def symbolic_layout(m: Machine, real: torch.Tensor, source: Source) -> SymbolicLayout | None:
    """The layout of a tensor with sizes that are known to change; None where there are none, or they cannot be left
    open: of parameters, tensors without elements.
    """
    environment = m.state(SizeEnvironment)
    if not environment.allowed or isinstance(real, torch.nn.Parameter):
        return None
    changed = any(StrideOf(source, dim) in m.changes for dim in range(real.dim())) if m.changes else False
    return layout_with(environment, real, source, _changing(m, environment, real, source), changed)


def layout_with(
    environment: SizeEnvironment, real: torch.Tensor, source: Source, dims: frozenset[int], strides_too: bool = False
) -> SymbolicLayout | None:
    """The layout of a tensor whose sizes in ``dims`` are symbols, and with ``strides_too`` the strides that do not
    follow from sizes; None where they cannot be.
    """
    if not (dims or strides_too) or not real.numel() or not torch_compat.is_plain(real):
        return None
    sizes: list[Any] = list(real.shape)
    for dim in dims:
        sizes[dim] = environment.symbol(tensor_size(source, dim), real.shape[dim])
    strides, products = _strides(real, sizes, dims)
    for dim in free_strides(real.shape, real.stride()) if strides_too else ():
        strides[dim], products[dim] = environment.symbol(StrideOf(source, dim), real.stride(dim)), None
    return SymbolicLayout(tuple(sizes), tuple(strides), dims, tuple(products))


def _changing(m: Machine, environment: SizeEnvironment, real: torch.Tensor, source: Source) -> frozenset[int]:
    """The dimensions whose sizes changed before, or that the program says will."""
    dims = {dim for dim in range(real.dim()) if m.changes and tensor_size(source, dim) in m.changes}
    if environment.all_arguments and is_brought(source, environment.lasting):
        dims.update(dim for dim, size in enumerate(real.shape) if size > 1)
    if not is_argument(source):
        marks = marked_ranges(real)
        dims.update(dim for dim, (declared, _) in marks.items() if declared.changes)
    return frozenset(dim for dim in dims if not environment.is_static(tensor_size(source, dim)))


def _strides(real: torch.Tensor, sizes: list[Any], dims: frozenset[int]) -> tuple[list[Any], list[Stride]]:
    """Each stride as what lies inside its dimension, if it is that, and as a guard has it."""
    strides: list[Any] = list(real.stride())
    products: list[Stride] = list(real.stride())
    for dim, (step, inside) in enumerate(nesting(real.shape, real.stride())):
        lies_so = strides[dim] == step * math.prod(real.shape[other] for other in inside)
        if lies_so or dim in dims:  # of the others a stride of one element says nothing
            strides[dim] = step * math.prod(sizes[other] for other in inside)
            changing = tuple(other for other in inside if other in dims)
            factor = step * math.prod(real.shape[other] for other in inside if other not in dims)
            products[dim] = (factor, *changing) if changing else factor
    return strides, products
