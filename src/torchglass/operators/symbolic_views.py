"""The sizes and strides of what views show of symbolic sizes (``symbolic_shapes``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..aten.strides import lies_channels_last, runs, strides_of_view
from ..records.size_environment import SizeEnvironment
from ..records.sizes import Size, divides, hint, product, symbol_name, symbols, value
from ..records.symbolic_ints import SizesUnfit, size_of, sizes_of
from .symbolic_shapes import Layout, Sizes, shows

aten = torch.ops.aten


@shows(aten.detach.default, aten.alias.default)
def _itself(environment: SizeEnvironment, x: Layout) -> Layout:
    return x


@shows(aten.transpose.int)
def _transpose(environment: SizeEnvironment, x: Layout, one: int, other: int) -> Layout | None:
    order = list(range(len(x.sizes)))
    order[one], order[other] = order[other], order[one]
    return _permute(environment, x, order)


@shows(aten.t.default)
def _t(environment: SizeEnvironment, x: Layout) -> Layout | None:
    return _permute(environment, x, range(len(x.sizes))[::-1])


@shows(aten.permute.default)
def _permute(environment: SizeEnvironment, x: Layout, order: Sequence[int]) -> Layout:
    return Layout(tuple(x.sizes[d] for d in order), tuple(x.strides[d] for d in order), x.offset)


@shows(aten.view_as_real.default)
def _view_as_real(environment: SizeEnvironment, x: Layout) -> Layout:
    return Layout((*x.sizes, 2), (*(stride * 2 for stride in x.strides), 1), x.offset * 2)


@shows(aten.view_as_complex.default)
def _view_as_complex(environment: SizeEnvironment, x: Layout) -> Layout | None:
    steps = (*x.strides[:-1], x.offset)
    if x.sizes[-1] != 2 or x.strides[-1] != 1 or not all(divides(2, step) for step in steps):
        return None
    return Layout(x.sizes[:-1], tuple(stride // 2 for stride in x.strides[:-1]), x.offset // 2)


@shows(aten.unsqueeze.default)
def _unsqueeze(environment: SizeEnvironment, x: Layout, dim: int) -> Layout:
    dim %= len(x.sizes) + 1
    stride = x.sizes[dim] * x.strides[dim] if dim < len(x.sizes) else 1
    sizes = (*x.sizes[:dim], 1, *x.sizes[dim:])
    return Layout(sizes, (*x.strides[:dim], stride, *x.strides[dim:]), x.offset)


@shows(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
def _squeeze(environment: SizeEnvironment, x: Layout, dims: Any = None) -> Layout:
    """Which sizes are 1 is assumed: PyTorch's C++ takes symbolic ones for others, and asks nothing."""
    rank = max(len(x.sizes), 1)
    asked = {dim % rank for dim in ([dims] if isinstance(dims, int) else range(rank) if dims is None else dims)}
    kept = [n for n, size in enumerate(x.sizes) if n not in asked or not environment.decide(size, "==", 1)]
    return Layout(tuple(x.sizes[n] for n in kept), tuple(x.strides[n] for n in kept), x.offset)


@shows(aten.squeeze_.default, aten.squeeze_.dim, aten.squeeze_.dims)
def _squeeze_in_place(environment: SizeEnvironment, x: Layout, dims: Any = None) -> Layout:
    """PyTorch's C++ reads symbolic sizes of the tensor as numbers, which ends the process."""
    raise SizesUnfit("`squeeze_` takes sizes as numbers")


@shows(aten.select.int)
def _select(environment: SizeEnvironment, x: Layout, dim: int, index: Size) -> Layout | None:
    dim %= len(x.sizes)
    size, why = x.sizes[dim], "an index"
    place = index if environment.expect(index, ">=", 0, why) else size + index
    if not (environment.expect(place, ">=", 0, why) and environment.expect(place, "<", size, why)):
        return None
    sizes, strides = (*x.sizes[:dim], *x.sizes[dim + 1 :]), (*x.strides[:dim], *x.strides[dim + 1 :])
    return Layout(sizes, strides, x.offset + x.strides[dim] * place)


@shows(aten.slice.Tensor)
def _slice(
    environment: SizeEnvironment, x: Layout, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Layout | None:
    dim %= len(x.sizes)
    size = x.sizes[dim]
    first, last = (_place(environment, size, place, default) for place, default in ((start, 0), (end, size)))
    if first is None or last is None or not environment.expect(first, "<=", last, "a slice"):
        return None
    length = (last - first + step - 1) // step
    sizes = (*x.sizes[:dim], length, *x.sizes[dim + 1 :])
    strides = (*x.strides[:dim], x.strides[dim] * step, *x.strides[dim + 1 :])
    return Layout(sizes, strides, x.offset + x.strides[dim] * first)


@shows(aten.unfold.default)
def _unfold(environment: SizeEnvironment, x: Layout, dim: int, size: Size, step: Size) -> Layout | None:
    if not x.sizes:
        return None
    dim %= len(x.sizes)
    rest, why = x.sizes[dim] - size, "a window"
    if not environment.expect(size, ">=", 0, why):  # which PyTorch's C++ does not ask of a tensor of symbolic sizes
        raise RuntimeError(f"size is {size} but must be >= 0")
    if not (environment.expect(rest, ">=", 0, why) and environment.expect(step, ">", 0, why)):
        return None
    sizes = (*x.sizes[:dim], rest // step + 1, *x.sizes[dim + 1 :], size)
    strides = (*x.strides[:dim], x.strides[dim] * step, *x.strides[dim + 1 :], x.strides[dim])
    return Layout(sizes, strides, x.offset)


def _place(environment: SizeEnvironment, size: Size, place: Size | None, default: Size) -> Size | None:
    """Where a slice begins or ends: none, counted from the end, or beyond it. None where that is not known."""
    if place is None or (isinstance(place, int) and place >= _FAR):
        return default if place is None else size
    if not environment.expect(place, ">=", 0, "a slice"):
        place = place + size
        return place if environment.decide(place, ">=", 0, "a slice") else 0
    return place if environment.expect(place, "<=", size, "a slice") else size


_FAR = (1 << 63) - 1


@shows(aten.expand.default)
def _expand(environment: SizeEnvironment, x: Layout, sizes: list[Size], *, implicit: bool = False) -> Layout | None:
    new = len(sizes) - len(x.sizes)
    wanted: list[Size] = []
    strides: list[Size] = []
    for place, size in enumerate(sizes):
        had = x.sizes[place - new] if place >= new else 1
        if size == -1 or size == had:
            wanted.append(had)
            strides.append(x.strides[place - new] if place >= new else 0)
        elif had == 1:
            wanted.append(size)
            strides.append(0)
        else:
            return None
    return Layout(tuple(wanted), tuple(strides), x.offset)


@shows(aten.view.default, aten._unsafe_view.default)
def _view(environment: SizeEnvironment, x: Layout, sizes: list[Size]) -> Layout | None:
    total = product(x.sizes)
    if -1 in sizes:
        rest = product(size for size in sizes if size != -1)
        if environment.proved(rest, ">", 0) is not True or not environment.decide(total % rest, "==", 0, "a view"):
            return None
        sizes = [total // rest if size == -1 else size for size in sizes]
    if total == 0 or not environment.decide(product(sizes), "==", total, "a view"):
        return None
    known, wanted, steps = (tuple(map(environment.canonical, values)) for values in (x.sizes, sizes, x.strides))
    x = x._replace(sizes=known, strides=steps)
    strides = _view_strides(environment, x, wanted)
    if strides is None:
        return None
    shown = Layout(wanted, strides, x.offset)
    if len(wanted) in (4, 5) and environment.operator:  # of a gradient's views no program sees the layout
        _keep_ones_apart(environment, x, shown)
    return shown


def _keep_ones_apart(environment: SizeEnvironment, x: Layout, shown: Layout) -> None:
    """Strides of dimensions of one element do not follow from those of others, and by them convolutions and norms take
    images for channels last or not. A size at which they would take them for something else is assumed not to be 1.
    """
    names = symbols((*x.sizes, *x.strides, *shown.sizes, *shown.strides))
    now = {name: hint(size_of(environment.named(name))) for name in names}
    for size in shown.sizes:
        name = symbol_name(size)
        if name is None or environment.is_by_data(size) or environment.proved(size, "!=", 1) is True:
            continue
        sizes, strides, wanted, follow = (
            tuple(value(one, {**now, name: 1}) for one in part)
            for part in (x.sizes, x.strides, shown.sizes, shown.strides)
        )
        made = strides_of_view(sizes, strides, wanted)
        if made is not None and lies_channels_last(wanted, made) != lies_channels_last(wanted, follow):
            environment.settle(size, "!=", 1)


def settle_view(environment: SizeEnvironment, x: torch.Tensor, sizes: Sequence[Any]) -> bool:
    """Assume what makes these sizes a view of ``x`` where they are one now and programs see it: strides are no copy's.
    Whether there was something to assume. ``reshape`` takes what is not proved for a copy.
    """
    had, steps, wanted = sizes_of(x.shape), sizes_of(x.stride()), sizes_of(sizes)
    now = tuple(map(hint, wanted))
    made = strides_of_view(tuple(map(hint, had)), tuple(map(hint, steps)), now)
    copied = torch.empty(now, device="meta").stride()
    if made is None or 0 in now or all(size == 1 or a == b for size, a, b in zip(now, made, copied)):
        return False
    if any(map(environment.is_by_data, (*had, *steps, *wanted))):
        return False  # what they are now is an estimate
    before = len(environment.assumed)
    left = list(wanted)
    for dims in runs(tuple(map(hint, had)), tuple(map(hint, steps))):
        run: Size = 1
        for dim in reversed(dims):
            if hint(had[dim]) != 1:
                environment.decide(steps[dim], "==", run * steps[dims[-1]], "a view")
            run = run * had[dim]
        filled: Size = 1
        while left and (hint(filled) < hint(run) or hint(left[-1]) == 1):
            filled = filled * left.pop()
        environment.decide(run, "==", filled, "a view")
    return len(environment.assumed) > before


def _view_strides(environment: SizeEnvironment, x: Layout, sizes: Sequence[Size]) -> Sizes | None:
    """The strides of a tensor's memory seen in other sizes of the same product; None where it must be copied, or it is
    not known. Dimensions that lie as one are filled by new ones from the innermost on.
    """
    elements = ((product(x.sizes[dim] for dim in dims), x.strides[dims[-1]]) for dims in runs(x.sizes, x.strides))
    strides: list[Size] = []
    waiting = ((run, step) for run, step in elements if run != 1)
    left, step = next(waiting, (1, 1))
    filled: Size = 1
    for size in reversed(list(sizes)):
        if filled == left and size != 1:
            left, step = next(waiting, (1, 1))
            filled = 1
        strides.insert(0, step * filled)
        filled = filled * size
        if environment.proved(left % filled, "==", 0) is not True:
            return None
    return tuple(strides)
