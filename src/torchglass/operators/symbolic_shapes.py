"""What operators give on tensors of symbolic sizes, by rules of our own.

PyTorch's meta functions take a millisecond on symbolic sizes, and split sizes where they look at them. Here the result
is found twice: for the sizes as they are (a fake tensor of numbers, which is kept, see ``fake_results``), and by a rule
as sizes in symbols; where the rule's come to other numbers, or there is none, the meta function is asked after all.

    answer(mode, aten.mm.default, (x, w), {})       x of [s0*s1, 16], w of [16, 8]   ->   a fake of [s0*s1, 8]

A rule says the sizes of the results, of a view its whole layout. How a new tensor lies, where the rule does not say it,
follows from its operands if it is computed element by element (``dimension_order``), else from its numbers: strides
that are what lies inside stay so.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ..aten.layouts import ROW_BY_ROW
from ..aten.nested import is_mask, tensors_in
from ..aten.sizes import hint_of, hints, nesting
from ..aten.writes import functional
from ..process.tables import enters
from ..records.size_environment import DecidedByData, SizeEnvironment
from ..records.size_places import symbols_of
from ..records.size_relations import linear
from ..records.sizes import Expr, Size, at_least, hint, product
from ..records.symbolic_ints import environment_of, has_symbols, lies_contiguous, size_of, sizes_of
from ..torch_compat import FakeTensor, FakeTensorMode, OpOverload, fake_like, view_of
from ..torch_compat.fake_results import MOST_KEPT, call_key
from .dimension_order import innermost_first

aten = torch.ops.aten
Sizes = tuple[Size, ...]


class Layout(NamedTuple):
    sizes: Sizes
    strides: Sizes
    offset: Size
    dtype: torch.dtype | None = None  # of an argument


class Numbers(NamedTuple):
    """A result with the sizes as they are."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    nested: list[tuple[int, tuple[int, ...]]]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, result: Any) -> Numbers | None:
        """None of what is no tensor."""
        if not isinstance(result, torch.Tensor):
            return None
        sizes, strides = tuple(result.shape), result.stride()
        return cls(sizes, strides, result.storage_offset(), nesting(sizes, strides), result.dtype, result.device)


_known: dict[Any, tuple[list[Numbers | None], type | None]] = {}
Results = Sequence["Sizes | Layout | None"] | None
"""The sizes of each result, None where there is none; None where it is not known. One whose rows are longer in memory
than what they hold is said as a ``Layout``."""
NewRule = Callable[..., Any]
ViewRule = Callable[..., "Layout | None"]
NEW: dict[OpOverload, NewRule] = {}
VIEWS: dict[OpOverload, ViewRule] = {}


FILLED: set[OpOverload] = set()
"""Operators whose results are never without elements."""
OF_FILLED = frozenset((aten.max.default, aten.min.default))
"""Operators that nothing may be given: it has no largest."""

LIKE: set[OpOverload] = set()
"""Operators whose results lie as their first argument does."""

CONTIGUOUS_FIRST: set[OpOverload] = {aten.roll.default}
"""Operators that take what is contiguous at a size of 1 for that, and at others look how it lies: of their results at a
size of 1 nothing follows for others.
"""

gives = enters(NEW)
"""Enters the rule of operators whose results are new tensors."""
shows = enters(VIEWS)
"""Enters the rule of operators whose result shows the first argument's memory."""


def leave_open(mode: FakeTensorMode) -> None:
    """From here on operators meet symbolic sizes."""
    mode.symbolic, mode.undecided, mode.estimated = answer, (DecidedByData,), _estimated


def _estimated(values: Any) -> bool:
    """Whether data decide sizes in arguments, so that what they are now says nothing of them."""
    environment = environment_of(tensors_in(values))
    return environment is not None and not environment.by_data.keys().isdisjoint(symbols_of(values))


def answer(mode: FakeTensorMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call with symbolic sizes; None where no rule tells it."""
    if not isinstance(func, OpOverload):
        return None
    environment = environment_of((*args, *kwargs.values()))
    if environment is None:
        return None
    view = VIEWS.get(func)
    if func is aten.copy_.default:
        return _copied_to(environment, *args, **kwargs)
    if view is None and func._schema.is_mutable:
        return _written_to(mode, func, args, kwargs)
    new = NEW.get(func) or (broadcast if _is_pointwise(func) else None)
    if view is None and new is None:
        return None
    rule = _Rule(mode, environment)
    return rule.view(view, func, args, kwargs) if view is not None else rule.new(new, func, args, kwargs)


def _written_to(mode: FakeTensorMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``x.add_(y)`` gives, where ``x + y`` is of the sizes of x, and x has room for its numbers."""
    plain = functional(func)
    if plain is None or not _is_pointwise(plain) or not isinstance(args[0], torch.Tensor):
        return None
    result = answer(mode, plain, args, kwargs)
    if result is None or sizes_of(result.shape) != sizes_of(args[0].shape):
        return None
    return args[0] if torch.can_cast(result.dtype, args[0].dtype) else None


def _copied_to(environment: SizeEnvironment, x: torch.Tensor, source: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    meet(environment, [sizes_of(source.shape), sizes_of(x.shape)])
    return x if spreads(sizes_of(source.shape), sizes_of(x.shape)) else None


class _Rule:
    """One call."""

    def __init__(self, mode: FakeTensorMode, environment: SizeEnvironment) -> None:
        self.mode, self.environment = mode, environment

    def view(self, rule: ViewRule, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not _is_fake(self.mode, args[0]):
            return None
        named = {name: _sized(value) for name, value in kwargs.items()}
        layout = rule(self.environment, _layout(args[0]), *map(_sized, args[1:]), **named)
        if layout is None:
            return None
        ((now,), _) = self._in_numbers(func, args, kwargs)
        found = tuple(map(hint, layout.sizes)), hint(layout.offset)
        if now is None or found != (now.sizes, now.offset) or not _same_strides(layout.strides, now):
            return None
        sizes, strides = self._integers(layout.sizes), self._integers(layout.strides)
        return view_of(self.mode, args[0], sizes, strides, self.environment.integer(layout.offset), now.dtype)

    def new(self, rule: Any, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not all(_is_fake(self.mode, tensor) for tensor in tensors_in((*args, *kwargs.values()))):
            return None
        if rule is broadcast:
            meet(self.environment, [sizes_of(one.shape) for one in tensors_in((*args, *kwargs.values()))])
        if func in OF_FILLED and not all(self.environment.decide(size, ">=", 1) for size in sizes_of(args[0].shape)):
            raise DecidedByData("whether a tensor is empty")  # the kernel refuses that, meta functions do not look
        found = rule(*map(_sized, args), **{name: _sized(value) for name, value in kwargs.items()})
        if found is None:
            return None
        results, kind = self._in_numbers(func, args, kwargs)
        if len(results) != len(found):
            return None
        made: list[Any] = []
        for one, told in zip(results, found):
            if told is None and one is None:
                made.append(None)
                continue
            sizes, strides = (told.sizes, told.strides) if isinstance(told, Layout) else (told, None)
            if sizes is None or one is None or tuple(map(hint, sizes)) != one.sizes:
                return None
            if not all(self.environment.decide(size, ">=", int(func in FILLED), "a size") for size in sizes):
                return None
            if strides is None:
                if any(step > 1 for step, _ in one.nested):
                    return None  # as far apart as something else, of which the numbers do not tell
                strides = self._strides(func, args, kwargs, sizes, one)
            elif not _same_strides(strides, one):
                return None
            made.append(fake_like(self.mode, one, self._integers(sizes), self._integers(strides)))
        return made[0] if kind is None else kind(made)

    def _strides(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], sizes: Sizes, now: Numbers
    ) -> Sizes:
        """How a new tensor lies."""
        nested = tuple(step * product(sizes[dim] for dim in inside) for step, inside in now.nested)
        deciding = _deciding(func, args, kwargs, now)
        if deciding is None:
            if func in CONTIGUOUS_FIRST and not lies_contiguous(args[0]):
                for size in sizes_of(args[0].shape):
                    if hint(size) == 1:
                        self.environment.settle(size, "==", 1)
            return nested
        operands = [(sizes_of(one.shape), sizes_of(one.stride())) for one in deciding]
        strides, inside = list(nested), list[Size]()
        for dim in innermost_first(self.environment, operands, sizes):
            strides[dim] = product(inside)
            inside.append(sizes[dim])
        return tuple(strides) if _same_strides(tuple(strides), now) else nested

    def _in_numbers(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Numbers | None], type | None]:
        """What the call gives with the sizes as they are, and as a tuple, a list or a tensor alone. A graph repeats few
        calls many times.
        """
        key = call_key(self.mode, func, args, kwargs, symbols=True)
        known = _known.get(key)
        if known is None:
            with self.mode:
                now = func(*map(self._number, args), **{name: self._number(value) for name, value in kwargs.items()})
            kind = type(now) if isinstance(now, (tuple, list)) else None
            known = [Numbers.of(one) for one in ([now] if kind is None else now)], kind
            if key is not None:
                if len(_known) >= MOST_KEPT:
                    _known.clear()
                _known[key] = known
        return known

    def _number(self, value: Any) -> Any:
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            return value.node.hint
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._number, value)) if type(value) in (list, tuple) else list(value)
        if not isinstance(value, torch.Tensor) or not has_symbols(value):
            return value
        layout = hints(value.shape), hints(value.stride()), hint_of(value.storage_offset())
        known = getattr(value, "_torchglass_numbers", None)
        if known is None or (list(known.shape), list(known.stride()), known.storage_offset()) != layout:
            sizes, strides, offset = layout
            known = fake_like(self.mode, value, sizes, strides)
            if offset != 0:
                known = view_of(self.mode, known, sizes, strides, offset, value.dtype)
            value._torchglass_numbers = known
        return known

    def _integers(self, sizes: Sizes) -> tuple[Any, ...]:
        return tuple(map(self.environment.integer, sizes))


def _is_fake(mode: FakeTensorMode, value: Any) -> bool:
    """Whether it is a fake of which sizes and strides tell all."""
    return (
        type(value) is FakeTensor
        and value.fake_mode is mode
        and value.layout is torch.strided
        and not (value.is_conj() or value.is_neg() or value._is_zerotensor())
    )


def _layout(tensor: torch.Tensor) -> Layout:
    return Layout(sizes_of(tensor.shape), sizes_of(tensor.stride()), size_of(tensor.storage_offset()), tensor.dtype)


def _sized(value: Any) -> Any:
    """An argument as rules take it: tensors as layouts, sizes as ``Size``."""
    if isinstance(value, torch.Tensor):
        return _layout(value)
    if isinstance(value, torch.SymInt):
        return size_of(value)
    return [_sized(item) for item in value] if isinstance(value, (list, tuple)) else value


def _same_strides(strides: Sizes, now: Numbers) -> bool:
    return all(size == 1 or hint(ours) == step for ours, size, step in zip(strides, now.sizes, now.strides))


# --- new tensors ----------------------------------------------------------------------------------------------------
def _deciding(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Numbers
) -> list[torch.Tensor] | None:
    """The operands by which a result lies; none if it lies in rows, None where that is not known."""
    if kwargs.get("memory_format") not in (None, torch.preserve_format):
        return None
    if func in ROW_BY_ROW and result.device.type == "cpu":
        return []
    if func in LIKE:
        return [args[0]]
    return tensors_in((*args, *kwargs.values())) if _is_pointwise(func) else None


@functools.cache
def _is_pointwise(func: OpOverload) -> bool:
    schema = func._schema
    returns = len(schema.returns) == 1 and str(schema.returns[0].type) == "Tensor"
    return torch.Tag.pointwise in func.tags and not schema.is_mutable and returns


def meet(environment: SizeEnvironment, operands: Sequence[Sizes]) -> None:
    """Sizes that meet in broadcasting and now are equal are assumed to be: PyTorch asks first whether they are 1. No
    symbol is assumed to be a number.
    """
    for place in range(1, max(map(len, operands), default=0) + 1):
        met = list(dict.fromkeys(one[-place] for one in operands if place <= len(one) and one[-place] != 1))
        for other in met[1:] if len({hint(size) for size in met}) == 1 else ():
            if linear(environment.canonical(met[0] - other)) is None:
                environment.decide(met[0], "==", other)


@gives(aten.complex.default, aten.polar.default)
def broadcast(*args: Any, **kwargs: Any) -> list[Sizes] | None:
    """The sizes of operands, as they meet; None where it is not known which of two is 1."""
    operands = [arg.sizes for arg in (*args, *kwargs.values()) if isinstance(arg, Layout)]
    sizes: list[Size] = []
    for place in range(max(map(len, operands), default=0)):
        met = {one[len(one) - 1 - place] for one in operands if place < len(one)}
        met = met - {1} if len(met) > 1 else met
        if len(met) != 1:
            return None
        sizes.insert(0, met.pop())
    return [tuple(sizes)]


LIKE.update((
    aten.clone.default, aten._to_copy.default, aten.zeros_like.default, aten.ones_like.default, aten.full_like.default,
    aten.empty_like.default, aten.rand_like.default, aten.randn_like.default, aten.flip.default, aten.index_put.default,
    aten.native_dropout.default, aten.sort.default, aten.sort.stable,
))  # fmt: skip


@gives(
    aten.clone.default, aten._to_copy.default, aten._softmax.default, aten._log_softmax.default, aten.cumsum.default,
    aten.tril.default, aten.triu.default, aten.zeros_like.default, aten.ones_like.default, aten.full_like.default,
    aten.empty_like.default, aten.rand_like.default, aten.randn_like.default, aten.flip.default, aten.roll.default,
    aten.index_put.default, aten._softmax_backward_data.default, aten._log_softmax_backward_data.default,
)  # fmt: skip
def _same(x: Any, *args: Any, **kwargs: Any) -> list[Sizes] | None:
    return [x.sizes] if isinstance(x, Layout) else None


# What an operator reads of one operand where another one has an element must be there: sizes that are not seen to be
# equal are left to its meta function, which asks.
@gives(aten.copy.default)
def _copied(x: Layout, source: Layout, *args: Any) -> list[Sizes] | None:
    return [x.sizes] if spreads(source.sizes, x.sizes) else None


def spreads(sizes: Sizes, wanted: Sizes) -> bool:
    """Whether a tensor of these sizes is one of the wanted ones when it is expanded."""
    begin = len(wanted) - len(sizes)
    return begin >= 0 and all(size in (1, whole) for size, whole in zip(sizes, wanted[begin:]))


@gives(aten.select_scatter.default)
def _select_scatter(x: Layout, source: Layout, dim: int, *args: Any) -> list[Layout] | None:
    dim %= len(x.sizes)
    return [x] if source.sizes == (*x.sizes[:dim], *x.sizes[dim + 1 :]) else None  # its strides are kept


@gives(aten.scatter.value)
def _scatter(x: Layout, dim: int, index: Layout, *args: Any, **kwargs: Any) -> list[Sizes] | None:
    fits = len(x.sizes) == len(index.sizes) and _alike_but(x.sizes, index.sizes, dim % max(len(x.sizes), 1))
    return [x.sizes] if fits else None


@gives(aten.scatter.src, aten.scatter_add.default)
def _scatter_of(x: Layout, dim: int, index: Layout, source: Layout, **kwargs: Any) -> list[Sizes] | None:
    return _scatter(x, dim, index) if index.sizes == source.sizes else None


@gives(aten.index_add.default)
def _index_add(x: Layout, dim: int, index: Layout, source: Layout, **kwargs: Any) -> list[Sizes] | None:
    if not x.sizes or len(x.sizes) != len(source.sizes):
        return None
    dim %= len(x.sizes)
    return [x.sizes] if _alike_but(x.sizes, source.sizes, dim) and index.sizes == (source.sizes[dim],) else None


@gives(aten.native_dropout.default, aten.sort.default, aten.sort.stable)
def _twice(x: Layout, *args: Any, **kwargs: Any) -> list[Sizes]:
    return [x.sizes, x.sizes]


@gives(aten.topk.default)
def _largest(x: Layout, count: Size, dim: int = -1, *args: Any) -> list[Sizes] | None:
    if not x.sizes or not at_least(x.sizes[dim] - count, 0):
        return None
    dim %= len(x.sizes)
    return [(*x.sizes[:dim], count, *x.sizes[dim + 1 :])] * 2


@gives(aten.mm.default, aten.bmm.default)
def _product(x: Layout, y: Layout) -> list[Sizes] | None:
    fits = x.sizes[:-2] == y.sizes[:-2] and x.sizes[-1] == y.sizes[-2]
    return [(*x.sizes[:-1], y.sizes[-1])] if fits else None


@gives(aten.addmm.default, aten.baddbmm.default)
def _product_added(bias: Layout, x: Layout, y: Layout, **kwargs: Any) -> Results:
    return _product(x, y) if spreads(bias.sizes, (*x.sizes[:-1], y.sizes[-1])) else None


@gives(aten.embedding.default)
def _embedding(weight: Layout, indices: Layout, *args: Any) -> list[Sizes]:
    return [(*indices.sizes, *weight.sizes[1:])]


@gives(aten.embedding_dense_backward.default)
def _embedding_backward(grad: Layout, indices: Layout, count: Size, *args: Any) -> list[Sizes]:
    return [(count, grad.sizes[-1])]


@gives(aten.gather.default)
def _gather(x: Layout, dim: int, index: Layout, **kwargs: Any) -> list[Sizes] | None:
    return None if _scatter(x, dim, index) is None else [index.sizes]


@gives(aten.index.Tensor)
def _index(x: Layout, indices: list[Layout | None]) -> list[Sizes] | None:
    """Places in some dimensions, all of them where the first one was; before all others if something lies between."""
    given = {dim: index for dim, index in enumerate(indices) if index is not None}
    met = broadcast(*given.values())
    if met is None or any(map(is_mask, given.values())):
        return None
    first = min(given) if max(given) - min(given) < len(given) else 0
    kept = [size for dim, size in enumerate(x.sizes) if dim not in given]
    return [(*kept[:first], *met[0], *kept[first:])]


@gives(aten.cat.default)
def _cat(parts: list[Layout], dim: int = 0) -> list[Sizes] | None:
    first = parts[0].sizes
    dim %= max(len(first), 1)
    if any(len(part.sizes) != len(first) or not _alike_but(part.sizes, first, dim) for part in parts):
        return None
    total: Size = 0
    for part in parts:
        total = total + part.sizes[dim]
    return [(*first[:dim], total, *first[dim + 1 :])]


def _alike_but(one: Sizes, other: Sizes, dim: int) -> bool:
    return all(n == dim or a == b for n, (a, b) in enumerate(zip(one, other)))


@gives(aten.native_layer_norm.default)
def _layer_norm(x: Layout, shape: list[Size], *args: Any) -> list[Sizes] | None:
    rank = len(x.sizes) - len(shape)
    outer = (*x.sizes[:rank], *(1 for _ in shape))
    return [x.sizes, outer, outer] if normalizes(x.sizes[rank:], shape, args) else None


def normalizes(sizes: Sizes, shape: Sequence[Size], args: Sequence[Any]) -> bool:
    """Whether weights, and what else an operator takes for each element, are of what it normalizes over."""
    return sizes == tuple(shape) and all(one.sizes == sizes for one in args if isinstance(one, Layout))


@gives(aten.native_layer_norm_backward.default)
def _layer_norm_backward(grad: Layout, x: Layout, shape: list[Size], *args: Any) -> list[Sizes] | None:
    return [x.sizes, tuple(shape), tuple(shape)] if args[-1] == [True, True, True] else None


@gives(aten.constant_pad_nd.default)
def _padded(x: Layout, pads: list[Size], *args: Any) -> list[Sizes] | None:
    sizes = list(x.sizes)
    for n, dim in enumerate(range(len(sizes) - 1, len(sizes) - 1 - len(pads) // 2, -1)):
        ends = pads[2 * n : 2 * n + 2]
        cut = sum(-end for end in ends if not at_least(end, 0))
        if cut != 0 and not at_least(sizes[dim] - cut, 0) and not all(at_least(-end, 0) for end in ends):
            return None  # what is cut off must be there, also where the other end is filled up
        sizes[dim] = sizes[dim] + ends[0] + ends[1]
    return [tuple(sizes)]


@gives(
    aten.sum.dim_IntList, aten.mean.dim, aten.var.correction, aten.any.dim, aten.all.dim, aten.logsumexp.default,
)  # fmt: skip
def _reduced(x: Layout, dims: Any = None, *args: Any, keepdim: bool = False, **kwargs: Any) -> list[Sizes]:
    keepdim = keepdim or (bool(args) and args[0] is True)
    rank = len(x.sizes)
    listed = [dims] if isinstance(dims, int) else list(dims or range(rank))
    gone = {dim % max(rank, 1) for dim in listed}
    kept = [1 if n in gone else size for n, size in enumerate(x.sizes) if keepdim or n not in gone]
    return [tuple(kept)]


@gives(aten.amax.default, aten.amin.default, aten.argmax.default, aten.argmin.default)
def _extreme(x: Layout, *args: Any, **kwargs: Any) -> Results:
    """Nothing has no largest: unlike a sum it must not be empty."""
    return _reduced(x, *args, **kwargs) if all(at_least(size, 1) for size in x.sizes) else None


@gives(
    aten.sum.default, aten.mean.default, aten.any.default, aten.all.default, aten._is_any_true.default,
    aten._is_all_true.default, aten.max.default, aten.min.default,
)  # fmt: skip
def _number(x: Layout, *args: Any, **kwargs: Any) -> list[Sizes]:
    return [()]


@gives(
    aten.full.default, aten.zeros.default, aten.ones.default, aten.empty.memory_format, aten.rand.default,
    aten.randn.default,
)  # fmt: skip
def _made(sizes: list[Size], *args: Any, **kwargs: Any) -> list[Sizes]:
    return [tuple(sizes)]


@gives(aten.arange.default, aten.arange.start, aten.arange.start_step)
def _counted(*args: Any, **kwargs: Any) -> list[Sizes] | None:
    """As many as there are steps from the start to before the end, of numbers that are exact as floats."""
    start, end = (0, *args)[-2:] if len(args) < 3 else args[:2]
    step = args[2] if len(args) == 3 else 1
    if isinstance(step, Expr) or not all(isinstance(one, (int, float, Expr)) for one in args):
        return None
    parts = [(one, 1) if isinstance(one, Expr) else float(one).as_integer_ratio() for one in (start, end)]
    above, below = float(step).as_integer_ratio()
    scale = math.lcm(below, *(under for _, under in parts))
    first, last = (over * (scale // under) for over, under in parts)
    stride = above * (scale // below)
    return [((last - first + stride - 1) // stride,)] if scale <= MOST_EXACT and stride > 0 else None


MOST_EXACT = 1 << 20


@gives(aten.new_zeros.default, aten.new_ones.default, aten.new_empty.default, aten.new_full.default)
def _made_like(x: Layout, sizes: list[Size], *args: Any, **kwargs: Any) -> list[Sizes]:
    return [tuple(sizes)]


@gives(aten._scaled_dot_product_flash_attention_for_cpu.default)
def _attention(query: Layout, key: Layout, value: Layout, *args: Any, **kwargs: Any) -> list[Sizes] | None:
    mask = kwargs.get("attn_mask")
    batch, scores = query.sizes[:-2], (*query.sizes[:-1], key.sizes[-2])
    fits = batch == key.sizes[:-2] == value.sizes[:-2] and key.sizes[-2] == value.sizes[-2]
    if not fits or query.sizes[-1] != key.sizes[-1] or not (mask is None or spreads(mask.sizes, scores)):
        return None
    return [(*query.sizes[:-1], value.sizes[-1]), query.sizes[:-1]]
