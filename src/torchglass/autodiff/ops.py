"""The trace as autodiff writes it: a list of ``Op``, one for each ATen call, before it becomes an FX graph.

An ``Op`` names its operands by reference, so passes over the list need no name table. ``cos(cos(x))`` traces to::

    placeholder x | cos(x) | cos(cos(x)) | tangent t | sin(cos(x)) | neg | mul | sin(x) | neg | mul
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx

from ..aten.sizes import bytes_of_elements
from ..operators.size_tensor import read_size
from ..records.origin import UNKNOWN, Origin
from ..records.size_places import symbols_of
from ..torch_compat import OpOverload

INPUT, TANGENT, CONSTANT, CALL = "input", "tangent", "constant", "call"


class Op:
    """One value of the trace: an input, a tangent, a constant tensor or an ATen call.

    ``val`` is what it evaluates to (a FakeTensor, or a tuple of them for a call with several results, whose items are
    ``operator.getitem`` ops of their own). ``captured`` is the name of the captured node it comes from; ``backward``
    says that torch's autograd made it while differentiating. ``region`` is the number of the checkpointed function it
    stands in, which is to be computed again in backward. Compared by identity.
    """

    __slots__ = ("args", "backward", "captured", "kind", "kwargs", "name", "origin", "region", "target", "val")

    def __init__(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        val: Any = None,
    ) -> None:
        self.kind = kind
        self.target = target
        self.args = args
        self.kwargs = kwargs or {}
        self.val = val
        self.origin: Origin = UNKNOWN
        self.captured = ""
        self.backward = False
        self.region: int | None = None
        self.name = ""

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name or self.target}>"

    @property
    def is_item(self) -> bool:
        """One result of a call with several."""
        return self.target is operator.getitem


def walk(arg: Any) -> Iterator[Op]:
    """Every Op inside an argument, which may be nested in lists and tuples."""
    if type(arg) is Op:
        yield arg
    elif isinstance(arg, (list, tuple)):
        for item in arg:
            yield from walk(item)


def bytes_of(op: Op) -> int:
    """Bytes of the op's result; the sum for a tuple."""
    values = op.val if isinstance(op.val, tuple) else (op.val,)
    return sum(map(bytes_of_elements, (v for v in values if isinstance(v, torch.Tensor))))


def operands(op: Op) -> list[Op]:
    """The ops that ``op`` reads, in argument order, repeated if it reads one twice."""
    found: list[Op] = []
    for arg in op.args:
        if type(arg) is Op:
            found.append(arg)
        elif isinstance(arg, (list, tuple)):
            found.extend(walk(arg))
    for arg in op.kwargs.values():
        found.extend(walk(arg))
    return found


def substitute(arg: Any, swap: Callable[[Op], Any]) -> Any:
    """``arg`` with ``swap`` applied to every Op in it; lists and tuples keep their type."""
    if type(arg) is Op:
        return swap(arg)
    if isinstance(arg, list):
        return [substitute(item, swap) for item in arg]
    if isinstance(arg, tuple):
        return tuple(substitute(item, swap) for item in arg)
    return arg


def is_view(op: Op) -> bool:
    """Whether the value shares memory with the first operand: ``transpose``, ``slice``, an item of ``split``, ..."""
    if op.kind is not CALL or not op.args or type(op.args[0]) is not Op:
        return False  # autograd takes the conjugate of numbers, too
    if op.is_item:
        return is_view(op.args[0])
    target = op.target
    if target in HIDDEN_VIEWS:
        return True
    return isinstance(target, OpOverload) and target.is_view


HIDDEN_VIEWS = frozenset(
    {
        torch.ops.aten._unsafe_view.default,
        torch.ops.aten.unsafe_split.Tensor,
        torch.ops.aten.unsafe_split_with_sizes.default,
    }
)
"""Operators that allocate nothing and whose schemas hide it, because nobody else sees the operand."""


def view_root(op: Op) -> Op:
    """The op whose memory ``op`` shows: itself when it is no view."""
    while is_view(op):
        op = op.args[0]
    return op


def is_random(op: Op) -> bool:
    """Whether the call draws from a random generator."""
    if op.kind is not CALL:
        return False
    return is_random_call(op.target) or _within(op, is_random_call)


def is_random_call(target: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


def _within(op: Op, found: Callable[[Any], bool]) -> bool:
    """Whether one of the calls in the sub-graphs that a call runs is such."""
    graphs = [arg.target for arg in op.args if type(arg) is Op and isinstance(arg.target, torch.fx.GraphModule)]
    while graphs:
        graph = graphs.pop()
        graphs += [child for _, child in graph.named_children() if isinstance(child, torch.fx.GraphModule)]
        if any(found(node.target) for node in graph.graph.nodes if node.op == "call_function"):
            return True
    return False


def must_stay(op: Op) -> bool:
    """Whether a call has an effect beside its value: it draws random numbers, it returns nothing (an assertion), or
    sizes in the graph are read off it.
    """
    if op.kind is not CALL or op.is_item:
        return op.is_item and makes_sizes(op)
    return is_random(op) or _returns_nothing(op.target) or _within(op, _returns_nothing) or makes_sizes(op)


def makes_sizes(op: Op) -> bool:
    """Whether data decide a size of what a call gives, or it checks that they decide as was assumed; an item of a tuple
    counts as the call itself.
    """
    while op.is_item:
        op = op.args[0]
    if op.target is read_size:
        return True
    if not SIZED_BY_DATA & set(getattr(op.target, "tags", ())):
        return False
    return bool(symbols_of([op.val]) - symbols_of([read.val for read in operands(op)]))


SIZED_BY_DATA = {torch.Tag.dynamic_output_shape}


def _returns_nothing(target: Any) -> bool:
    return isinstance(target, OpOverload) and not target._schema.returns
