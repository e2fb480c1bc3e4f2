"""The lowering of one graph under way: values of FX nodes, and the verbs rules are written in: ``map``, ``reduce``.

A softmax by these verbs::

    top = low.reduce("max", [x], [-1])
    e = low.map(lambda x, m: exp(x - m), [x, top])
    total = low.reduce("sum", [e], [-1])
    return low.map(lambda e, s: e / s, [e, total], name=node.name)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from ..records import check_loops
from ..records.launch import unreserved
from ..records.loops import (
    Access,
    Buffer,
    Compute,
    Const,
    ExternCall,
    Load,
    Loop,
    Node,
    Operation,
    View,
    compute_dtype,
    reach,
)
from ..records.origin import UNKNOWN, Origin
from ..records.size_floats import Float, as_float
from ..records.sizes import Size, is_known, product
from ..records.symbolic_ints import size_of, sizes_of
from ..records.target import Gpu, Target, Targets
from ..records.triton_support import lacking
from ..records.tuned.lowering import LoopLimits
from .strides import broadcast, contiguous, is_dense
from .table import NotLowered
from .values import Body, Number, V

DTYPES = {getattr(torch, name): name for name in check_loops.DTYPES}


@dataclass(frozen=True)
class Splat:
    """A tensor of one repeated number; takes memory only where an ATen call needs it."""

    value: Number
    dtype: str
    shape: tuple[Size, ...]


def dtype_name(dtype: torch.dtype) -> str:
    """``torch.float32`` -> ``float32``; NotLowered for dtypes loops do not know."""
    if dtype not in DTYPES:
        raise NotLowered(f"dtype {str(dtype).removeprefix('torch.')}")
    return DTYPES[dtype]


def layout_of(val: torch.Tensor) -> tuple[tuple[Size, ...], tuple[Size, ...]]:
    """The shape and strides of an FX value."""
    return sizes_of(val.shape), sizes_of(val.stride())


def known_size(size: Size) -> int:
    """A size that is a number, for a rule that needs it; NotLowered where it is none."""
    if not is_known(size):
        raise NotLowered("sizes that are not known")
    return size


def known_sizes(sizes: Sequence[Size]) -> tuple[int, ...]:
    return tuple(map(known_size, sizes))


def count_of(shape: Sequence[Size], dims: Iterable[int] | None = None) -> Float:
    """The number of elements in some dimensions, in all by default."""
    return as_float(product(shape if dims is None else [shape[d] for d in dims]))


def _of_nothing(op: Operation, dims: Sequence[Size], buffers: Mapping[str, Buffer]) -> Operation:
    """An operation of a loop over no points: what does not depend on the point would be checked before the loop, and
    read there, from memory that is none.
    """
    if isinstance(op, Load) and 0 in buffers[op.access.buffer].shape:
        still = all(s == 0 for s, d in zip(op.access.strides, dims) if d == 0)
        return Const(op.result, 0, op.dtype) if still else op
    return Const(op.result, 0, op.dtype) if isinstance(op, Compute) and op.op == "bound" else op


class Lowering:
    """State of one graph's lowering. Rules use map, reduce, view, extern and the helpers; nothing else."""

    def __init__(self, targets: Targets, frozen: frozenset[str] = frozenset()) -> None:
        self.targets = targets
        self.frozen = frozen  # inputs that are weights to be packed
        self.values: dict[fx.Node, Any] = {}
        self.buffers: dict[str, Buffer] = {}
        self.nodes: list[Node] = []
        self.constants: dict[str, Any] = {}
        self.device = "cpu"  # where loops of the node at hand store
        self.origin: Origin = UNKNOWN
        self.op = ""
        self.refusals: Counter[tuple[str, str]] = Counter()  # what did not apply to nodes, and why
        self._splats: dict[object, View] = {}
        self._target_of: dict[torch.device | str, Target | None] = {}

    def target_of(self, device: torch.device | str) -> Target | None:
        """What code is generated for on a device, if there is any."""
        if device not in self._target_of:
            self._target_of[device] = None
            with suppress(NotImplementedError):
                self._target_of[device] = self.targets.of(str(device))
        return self._target_of[device]

    @property
    def target(self) -> Target | None:
        """That of the node at hand."""
        return self.target_of(self.device)

    @property
    def limits(self) -> LoopLimits:
        """Up to which sizes the node at hand is loops."""
        return LoopLimits() if self.target is None else self.target.lowering

    def check_printed(self, nodes: Iterable[Node]) -> None:
        """NotLowered where the target's language has no text for one of these nodes, or it would do it in any order."""
        for node in nodes:
            if not isinstance(node, Loop):
                continue
            target = self.target_of(self.buffers[node.writes[0]].device)
            if not isinstance(target, Gpu):
                continue
            if node.is_scatter and target.deterministic:
                raise NotLowered("written in no order, where every run is to give the same")
            if (why := lacking(node, self.buffers)) is not None:
                raise NotLowered(why)

    # -- buffers and views -------------------------------------------------------------------------------------------
    def fresh(self, name: str) -> str:
        """A buffer name not yet taken, after ``name``; nor one that the wrapper uses itself."""
        name = f"b_{name}" if name.startswith(("kernel_", "aten_")) else name
        return unreserved(name, self.buffers)

    def buffer(
        self, name: str, dtype: str, shape: Sequence[Size], strides: Sequence[Size] | None = None, role: str = "temp"
    ) -> View:
        """A new buffer, and the view of all of it."""
        unique = self.fresh(name)
        strides = contiguous(shape) if strides is None else tuple(strides)
        self.buffers[unique] = Buffer(unique, dtype, tuple(shape), strides, role, self.device)
        return View(unique, tuple(shape), strides)

    def undo(self, nodes: int, buffers: int) -> None:
        """Forget what a rule made before it gave up: all but the first ``nodes`` nodes and ``buffers`` buffers."""
        del self.nodes[nodes:]
        while len(self.buffers) > buffers:
            self.buffers.popitem()
        self._splats = {key: view for key, view in self._splats.items() if view.buffer in self.buffers}

    def dtype(self, x: View | Splat) -> str:
        return x.dtype if isinstance(x, Splat) else self.buffers[x.buffer].dtype

    def view(self, x: View | Splat) -> View:
        """``x`` in memory."""
        if isinstance(x, View):
            return x
        key = (repr(x.value), x.dtype, x.shape, self.device)
        if key not in self._splats:
            self._splats[key] = self.map(lambda v: v, [x], shape=x.shape, dtype=x.dtype, name="full")
        return self._splats[key]

    def laid_out(self, x: Splat, val: torch.Tensor, name: str) -> View:
        """``x`` in memory of its own, which may be written to, as ``val`` lies: with the strides and offset of what may
        be a view of a larger tensor.
        """
        (shape, strides), offset = layout_of(val), size_of(val.storage_offset())
        if offset == 0 and strides == contiguous(shape):
            return self.map(lambda v: v, [x], shape=shape, dtype=x.dtype, name=name)
        whole = self.map(lambda v: v, [x], shape=(offset + reach(shape, strides),), dtype=x.dtype, name=name)
        return View(whole.buffer, shape, strides, offset)

    # -- the two verbs -----------------------------------------------------------------------------------------------
    def map(
        self,
        fn: Callable[..., V],
        inputs: Sequence[Any],
        *,
        shape: Sequence[Size] | None = None,
        dtype: str | None = None,
        strides: Sequence[Size] | None = None,
        name: str | None = None,
        indexed: bool = False,
    ) -> View:
        """One loop over ``shape`` that stores ``fn(*inputs)`` point by point; inputs broadcast.

        ``inputs`` are Views, Splats, numbers or None (both handed to ``fn`` as they are). With ``indexed``, ``fn``
        gets the loop counters of every dimension as a first argument. The result has ``dtype`` (default: fn's).
        """
        body, shape, result = self._computed(fn, inputs, shape, indexed)
        dtype = dtype or result.dtype
        return self._stored(body, result, self.buffer(name or self.op, dtype, shape, strides), shape)

    def reduce(
        self,
        kind: str,
        inputs: Sequence[Any],
        dims: Sequence[int],
        fn: Callable[..., V] = lambda x: x,
        post: Callable[[V], V] = lambda x: x,
        *,
        shape: Sequence[Size] | None = None,
        dtype: str | None = None,
        strides: Sequence[Size] | None = None,
        name: str | None = None,
        indexed: bool = False,
    ) -> View:
        """One loop that reduces ``fn(*inputs)`` over ``dims`` and stores ``post`` of it; dims stay as size 1."""
        body, shape, value = self._computed(fn, inputs, shape, indexed)
        over = {d % len(shape) for d in dims} if shape else set()
        value = post(body.reduce(kind, value) if over else value)
        kept = tuple(1 if k in over else s for k, s in enumerate(shape))
        dtype = dtype or value.dtype
        out = self.buffer(name or f"{self.op}_{kind}", dtype, kept, strides)
        return self._stored(body, value, out, shape, over)

    def scan(
        self,
        kind: str,
        inputs: Sequence[Any],
        dim: int,
        val: torch.Tensor,
        name: str,
        fn: Callable[..., V] = lambda x: x,
        post: Callable[[V], V] = lambda x: x,
    ) -> View:
        """One loop that stores, like ``val``, ``post`` of what ``fn(*inputs)`` comes to along ``dim``."""
        dtype = dtype_name(val.dtype)
        body, shape, value = self._computed(fn, inputs, sizes_of(val.shape), indexed=False)
        if shape and shape[dim] != 1:
            value = body.scan(kind, value, tuple(int(k == dim) for k in range(len(shape))))
        return self._stored(body, post(value), self.buffer(name, dtype, shape, sizes_of(val.stride())), shape)

    def _computed(
        self, fn: Callable[..., V], inputs: Sequence[Any], shape: Sequence[Size] | None, indexed: bool
    ) -> tuple[Body, tuple[Size, ...], V]:
        """What ``fn`` gives at each point of a shape, by default of that to which the inputs broadcast."""
        if shape is None:
            shape = broadcast(*(x.shape for x in inputs if isinstance(x, (View, Splat))))
        shape, body = tuple(shape), Body(len(shape))
        args = [self._argument(body, x, shape) for x in inputs]
        return body, shape, fn(self.counters(body, shape), *args) if indexed else fn(*args)

    def _stored(
        self, body: Body, value: V, out: View, shape: tuple[Size, ...], over: Collection[int] = frozenset()
    ) -> View:
        """``out``, to which a loop over ``shape`` stores ``value``; the dimensions ``over`` are reduced."""
        strides = tuple(0 if k in over else s for k, s in enumerate(out.strides))
        body.store(Access(out.buffer, strides), value.cast(compute_dtype(self.dtype(out))))
        self.append(out.buffer, shape, body, tuple(k in over for k in range(len(shape))))
        return out

    def append(self, name: str, shape: tuple[Size, ...], body: Body, reduced: tuple[bool, ...] | None = None) -> None:
        """Append a loop for the node at hand."""
        reduced = (False,) * len(shape) if reduced is None else reduced
        ops = tuple(_of_nothing(op, shape, self.buffers) if 0 in shape else op for op in body.ops)
        self.nodes.append(Loop(name, shape, reduced, ops, (self.op,), (self.origin,)))

    def copy_into(self, whole: View, x: View | Splat, place: Size, name: str) -> View:
        """A loop that copies ``x`` into ``whole``, from element ``place`` on, with the whole's strides."""
        dtype = self.dtype(whole)
        copy = self.map(lambda v: v, [x], shape=x.shape, dtype=dtype, strides=whole.strides, name=name)
        self.buffers[copy.buffer] = replace(self.buffers[copy.buffer], alias_of=(whole.buffer, place))
        return copy

    def counters(self, body: Body, shape: Sequence[Size]) -> list[V]:
        rank = len(shape)
        return [body.index(tuple(int(j == k) for j in range(rank))) for k in range(rank)]

    def access(self, x: View, shape: Sequence[Size]) -> Access:
        """The address of ``x``'s element at a point of ``shape``, with broadcasting."""
        pad = len(shape) - len(x.shape)
        strides = tuple(0 if size == 1 else stride for size, stride in zip(x.shape, x.strides))
        return Access(x.buffer, (0,) * pad + strides, x.offset)

    def _argument(self, body: Body, x: Any, shape: Sequence[Size]) -> Any:
        if isinstance(x, Splat):
            return body.const(x.value, compute_dtype(x.dtype))
        if isinstance(x, View):
            return body.load(self.access(x, shape), compute_dtype(self.dtype(x)))
        return x

    def finish(self, fn: Callable[..., V], inputs: Sequence[Any], node: fx.Node, **more: Any) -> View:
        """``map`` to the value of ``node``: its shape, dtype, strides and name."""
        return self.map_like(node.meta["val"], node.name, fn, inputs, **more)

    def map_like(self, val: torch.Tensor, name: str, fn: Callable[..., V], inputs: Sequence[Any], **more: Any) -> View:
        """``map`` to a result of a node: the shape, dtype and strides of ``val``."""
        shape, strides = layout_of(val)
        if not is_dense(shape, strides):
            raise NotLowered("elements of the result overlap")
        return self.map(fn, inputs, shape=shape, dtype=dtype_name(val.dtype), strides=strides, name=name, **more)

    # -- ATen calls --------------------------------------------------------------------------------------------------
    def extern(
        self,
        target: str,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        outputs: Sequence[str | None],
        *,
        unpack: bool = False,
        out: bool = False,
        aliases: bool = False,
        effect: bool = False,
    ) -> None:
        """Append an ATen call whose results are named ``outputs``."""
        call = ExternCall(
            next(iter(outputs), None) or self.op, target, tuple(args), tuple(kwargs.items()), tuple(outputs),
            unpack, out, aliases, effect, (self.op,), (self.origin,),
        )  # fmt: skip
        self.nodes.append(call)

    def result(self, node: fx.Node, name: str | None = None) -> View:
        """The buffer of a node's own tensor value with the strides eager gives it."""
        return self.result_of(node.meta["val"], name or node.name)

    def result_of(self, val: torch.Tensor, name: str) -> View:
        return self.buffer(name, dtype_name(val.dtype), *layout_of(val))

    def cast_like(self, view: View, val: torch.Tensor) -> View:
        """What a rule computed with its dimensions kept, in another dtype perhaps, as the FX value ``val``."""
        dtype = dtype_name(val.dtype)
        if self.dtype(view) != dtype:
            view = self.map(lambda v: v, [view], dtype=dtype, name=f"{view.buffer}_rounded")
        return View(view.buffer, *layout_of(val), view.offset)

    def argument(self, arg: Any) -> Any:
        """An FX argument with nodes replaced by their values."""
        return fx.map_arg(arg, lambda n: self.values[n]) if not isinstance(arg, fx.Node) else self.values[arg]
