"""What operators give of which data say how large it is: their sizes are symbols of their own.

    x.nonzero()        int64 of [u0, 2]        x[x > 0]        float32 of [u1]

Such a symbol is read off the result when the graph runs. Nothing may be assumed of it: what asks (is it 1? are two of
them equal?) ends the graph, as all such operators did before it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..aten.nested import is_mask
from ..process.tables import enters
from ..records.size_environment import SizeEnvironment
from ..records.sizes import Size, at_least, hint, known, product
from ..records.symbolic_ints import has_symbols, lies_contiguous, size_of
from ..torch_compat import FakeTensor, FakeTensorMode, OpOverload, fake_like
from .size_tensor import read_size

aten = torch.ops.aten
Sizes = tuple[Size, ...]
Row = tuple[Sizes, torch.dtype] | tuple[Sizes, torch.dtype, int]
"""A result, and the dimension that is outermost in memory where that is not the first."""
Rule = Callable[..., "list[Row] | None"]

RULES: dict[OpOverload, Rule] = {}
sized_by_data = enters(RULES)
"""Enters the rule of operators: the sizes and dtypes of their results, of a ``_Counter`` and the arguments."""


def answer(environment: SizeEnvironment, mode: FakeTensorMode, func: Any, args: Any, kwargs: Any) -> Any:
    """The result of a call whose sizes data decide; None for any other."""
    rule = RULES.get(func)
    if rule is None or not _all_fake(mode, (*args, *kwargs.values())):
        return None
    rows = rule(_Counter(environment), *args, **kwargs)
    if rows is None:
        return None
    like: torch.Tensor = args[0]
    made = [_made(environment, mode, like, func, *row) for row in rows]
    return made[0] if len(made) == 1 else tuple(made)


def _made(
    environment: SizeEnvironment,
    mode: FakeTensorMode,
    like: torch.Tensor,
    func: OpOverload,
    sizes: Sizes,
    dtype: torch.dtype,
    outermost: int = 0,
) -> torch.Tensor:
    """A new tensor without gaps; that of ``nonzero`` has the first dimension innermost, ``read_size`` one element."""
    order = [*range(len(sizes))] if func is aten.nonzero.default else [*range(len(sizes) - 1, -1, -1)]
    if outermost:
        order = [*(dim for dim in order if dim != outermost), outermost]
    strides: list[Size] = [1] * len(sizes)
    step: Size = int(func is not read_size)
    for dim in order:
        strides[dim] = step
        step = step * sizes[dim]
    shape, steps = (tuple(map(environment.integer, values)) for values in (sizes, strides))
    return fake_like(mode, like, shape, steps, dtype)


def _all_fake(mode: FakeTensorMode, values: Sequence[Any]) -> bool:
    tensors = [one for value in values for one in (value if isinstance(value, (list, tuple)) else (value,))]
    return all(
        type(one) is FakeTensor and one.fake_mode is mode and one.layout is torch.strided
        for one in tensors
        if isinstance(one, torch.Tensor)
    )


REPEATABLE = frozenset(
    found for name in ("eq", "ne", "lt", "le", "gt", "ge", "invert", "and_", "or_", "xor", "logical_not", "logical_and",
    "logical_or", "logical_xor", "bitwise_not", "bitwise_and", "bitwise_or", "isnan", "isfinite", "getitem", "max",
    "min", "amax", "amin", "sum", "argmax", "argmin")
    for owner in (operator, torch, torch.Tensor) if (found := getattr(owner, name, None)) is not None
)  # fmt: skip
"""Functions of which a mask, or a single whole number, is the same whenever it is made of the same."""


def note_content(environment: SizeEnvironment, function: Any, args: Sequence[Any], made: torch.Tensor) -> None:
    """Remember what a mask or a number is made of: ``h[ids == 1] = expert(h[ids == 1])`` chooses as many twice."""
    function = getattr(function, "of_tensors", function)
    if (
        function not in REPEATABLE
        or made.is_inference()
        or not all(isinstance(a, (int, float, torch.Tensor)) for a in args)
    ):
        return
    if made.dtype is torch.bool or (not made.dim() and not made.is_floating_point() and not made.is_complex()):
        parts = (_content(environment, a) if isinstance(a, torch.Tensor) else (type(a), a) for a in args)
        environment.contents[id(made)] = made, made._version, (function, *parts)


def _content(environment: SizeEnvironment, tensor: torch.Tensor) -> Any:
    """What two tensors have in common that are equal for certain; it lasts until somebody writes to it."""
    known = environment.contents.get(id(tensor))
    if known is None or known[0] is not tensor or known[1] != tensor._version:
        known = environment.contents[id(tensor)] = tensor, tensor._version, (id(tensor), tensor._version)
    return known[2]


class _Counter:
    """Makes the sizes of one call."""

    def __init__(self, environment: SizeEnvironment) -> None:
        self.environment = environment

    def within(self, most: Size) -> Size:
        """A size of at most so many."""
        estimate, limit = max(hint(most) // 2, 2), known(most)
        return size_of(self.environment.data_symbol(estimate if limit is None else min(estimate, limit), limit))

    def chosen(self, mask: torch.Tensor) -> Size:
        """How many elements a mask chooses; of one that nothing has written to since, as many as before."""
        return self._once(mask, lambda: self.within(product(_sizes(mask))))

    def _once(self, tensor: torch.Tensor, size: Callable[[], Size]) -> Size:
        """A size that follows from what is in a tensor. A call that is made once more knows what it was."""
        if tensor.is_inference():  # which do not count what is written to them
            return size()
        what = _content(self.environment, tensor)
        known = None if self.environment.again else self.environment.told.get(what)
        if known is None:
            known = self.environment.told[what] = self.environment.integer(size())
        else:
            self.environment.made_by_data.append(known)
        return size_of(known)

    def any(self, estimate: Size, least: int = 0) -> Size:
        """A size of at least so many."""
        return size_of(self.environment.data_symbol(max(hint(estimate), least, 2), None, least))

    def number(self, tensor: torch.Tensor) -> Size:
        """The number in a tensor, which is checked when it is read."""

        def made() -> Size:
            size = size_of(self.environment.data_symbol(2, None))
            self.environment.checked.setdefault(str(size), ([], []))
            return size

        return self._once(tensor, made)


def _sizes(x: torch.Tensor) -> Sizes:
    return tuple(map(size_of, x.shape))


@sized_by_data(aten.nonzero.default)
def _nonzero(count: _Counter, x: torch.Tensor) -> list[Row]:
    size = count.chosen(x) if x.dtype == torch.bool else count.within(product(_sizes(x)))
    return [((size, x.dim()), torch.int64)]


@sized_by_data(read_size)
def _read_size(count: _Counter, number: torch.Tensor, least: Sequence[Any], most: Sequence[Any]) -> list[Row]:
    return [((count.number(number),), torch.uint8)]


@sized_by_data(aten.masked_select.default)
def _masked_select(count: _Counter, x: torch.Tensor, mask: torch.Tensor) -> list[Row] | None:
    if _sizes(x) == _sizes(mask):
        return [((count.chosen(mask),), x.dtype)]
    if has_symbols(x) or has_symbols(mask):
        return None
    return [((count.within(product(torch.broadcast_shapes(x.shape, mask.shape))),), x.dtype)]


@sized_by_data(aten.index.Tensor)
def _index(count: _Counter, x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> list[Row] | None:
    """``x[:, mask]``: the elements that a mask chooses stand where its dimensions stood, or first where other indices
    stand apart from it. Two masks must choose as many, which nobody knows.
    """
    if not lies_contiguous(x):
        return None  # the kernel's result lies as what it walks
    sizes, shapes, places = list(_sizes(x)), [], []
    dim = masks = 0
    for index in indices:
        if index is None:
            dim += 1
        elif not is_mask(index):
            shapes.append(_sizes(index))
            places.append(dim)
            dim += 1
        else:
            if _sizes(index) != tuple(sizes[dim : dim + index.dim()]):
                return None
            masks += 1
            shapes.append((count.chosen(index),) if index.dim() else ())
            places += range(dim, dim + index.dim())
            dim += index.dim()
    if masks != 1 or () in shapes or any(shape != shapes[0] and shape != (1,) for shape in shapes):
        return None
    kept = [n for n in range(len(sizes)) if n not in places]
    together = places == list(range(places[0], places[0] + len(places)))
    begin = places[0] if together else 0
    left = [sizes[n] for n in kept]
    return [((*left[:begin], *shapes[0], *left[begin:]), x.dtype)]


@sized_by_data(aten.repeat_interleave.Tensor)
def _repeat_interleave(count: _Counter, repeats: torch.Tensor, *, output_size: Any = None) -> list[Row]:
    size = count.any(product(_sizes(repeats)) * 2) if output_size is None else size_of(output_size)
    return [((size,), repeats.dtype)]


@sized_by_data(aten.bincount.default)
def _bincount(count: _Counter, x: torch.Tensor, weights: torch.Tensor | None = None, minlength: Any = 0) -> list[Row]:
    dtype = torch.int64
    if weights is not None:
        dtype = torch.float32 if weights.dtype == torch.float32 else torch.float64
    return [((count.any(product(_sizes(x)), known(size_of(minlength)) or 0),), dtype)]


@sized_by_data(aten._unique2.default)
def _unique(
    count: _Counter, x: torch.Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> list[Row]:
    found = count.within(product(_sizes(x)))
    counts: Size = found if return_counts else 0
    return [((found,), x.dtype), (_sizes(x) if return_inverse else (0,), torch.int64), ((counts,), torch.int64)]


@sized_by_data(aten.unique_dim.default)
def _unique_dim(count: _Counter, x: torch.Tensor, dim: int, *args: Any) -> list[Row] | None:
    sizes = _sizes(x)
    dim %= max(len(sizes), 1)
    if not sizes or not all(at_least(size, 1) for n, size in enumerate(sizes) if n != dim):
        return None  # rows of nothing are refused
    found = count.within(sizes[dim])
    rows = *sizes[:dim], found, *sizes[dim + 1 :]
    return [(rows, x.dtype, dim), ((sizes[dim],), torch.int64), ((found,), torch.int64)]


@sized_by_data(aten.unique_consecutive.default)
def _unique_consecutive(
    count: _Counter, x: torch.Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> list[Row] | None:
    if dim is not None:
        return _unique_dim(count, x, dim)
    return _unique(count, x, True, return_inverse, return_counts)
