"""``torch._foreach_*``: one operation on each tensor of a list, as eager computes them on a CPU.

    torch._foreach_mul_([a, b], 0.9)                ->   a.mul_(0.9); b.mul_(0.9)
    torch._foreach_addcdiv_([a], [b], [c], [n])     ->   a.addcdiv_(b, c, value=n)

Each is fused with what else is done to that tensor, and small ones run in one call (``fuse/horizontal.py``).
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..meanings.registry import handles
from ..protocol import Lazy, Machine, Value
from ..values.constant import ConstantV
from ..values.containers import ListV, SequenceV, TupleV
from ..values.function_modes import FunctionModes
from ..values.tensor import TensorV

PREFIX = "_foreach_"
UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "clone", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac",
    "lgamma", "log", "log10", "log1p", "log2", "max", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin",
    "sinh", "sqrt", "tan", "tanh", "trunc", "zero",
)  # fmt: skip
BINARY = ("add", "sub", "mul", "div", "pow", "clamp_max", "clamp_min", "maximum", "minimum", "copy", "lerp")
SCALED = ("addcmul", "addcdiv")  # their last argument, a number or as many, is called `value`
OF_NUMBERS = {"maximum": "clamp_min", "minimum": "clamp_max"}  # what these are called where the other is a number
NAMED = frozenset({"alpha", "value"})


def each(m: Machine, args: list[Value], kwargs: dict[str, Value], *, of: Any) -> Value:
    """The operation on every tensor in turn; the call as it is where it is none of the usual ones."""
    base = of.__name__.removeprefix(PREFIX)
    taken = _taken(m, base.rstrip("_"), args, kwargs)
    if taken is None:
        return m.torch_call(of, args, kwargs)
    results: list[Value] = [_one(m, base, row, named) for row, named in taken]
    return ListV(results) if base.endswith("_") else TupleV(results)


def _taken(
    m: Machine, base: str, args: list[Value], kwargs: dict[str, Value]
) -> list[tuple[list[Value], dict[str, Value]]] | None:
    """For each tensor the arguments of its operation; None for lists of unequal lengths and the like."""
    if m.state(FunctionModes).entered or not kwargs.keys() <= NAMED or not args:
        return None
    lists = [[m.forced(v) for v in a.all(m)] if isinstance(a, SequenceV) else None for a in args]
    lengths = {len(items) for items in lists if items is not None}
    tensors = lists[0] if lists[0] is not None else lists[-1]
    if len(lengths) != 1 or not tensors or not all(isinstance(t, TensorV) for t in tensors):
        return None
    if base in SCALED and len(args) == 4:
        lists[3] = lists[3] or _parted(m, args[3], len(tensors))
    rows = [[a if items is None else items[n] for a, items in zip(args, lists)] for n in range(len(tensors))]
    if base in SCALED and len(args) == 4:
        return [(row[:3], {**kwargs, "value": row[3]}) for row in rows]
    return [(row, kwargs) for row in rows]


def _parted(m: Machine, scalars: Value, count: int) -> list[Value] | None:
    """A tensor of numbers, one for each."""
    if not isinstance(scalars, TensorV) or tuple(scalars.fake.shape) != (count,):
        return None
    return m.listed(m.torch_method(scalars, "unbind", [], {}))


def _one(m: Machine, base: str, row: list[Value], named: dict[str, Value]) -> Value:
    if isinstance(row[0], Lazy) or not isinstance(row[0], TensorV):  # `_foreach_pow` of a number
        return m.torch_call(torch.pow, row, named)
    name, other = base.rstrip("_"), row[1] if len(row) > 1 else None
    if name in OF_NUMBERS and not isinstance(other, TensorV):
        base = base.replace(name, OF_NUMBERS[name])
    if not hasattr(torch.Tensor, base):  # there is no `maximum_`
        return m.torch_method(row[0], "copy_", [m.torch_method(row[0], name, row[1:], named)], {})
    return m.torch_method(row[0], base, row[1:], named)


def _norms(m: Machine, args: list[Value], kwargs: dict[str, Value], *, of: Any) -> Value:
    tensors = args[0] if args else None
    if (
        m.state(FunctionModes).entered
        or not isinstance(tensors, SequenceV)
        or not tensors.items
        or not kwargs.keys() <= {"dtype"}
    ):
        return m.torch_call(of, args, kwargs)
    order = args[1] if len(args) > 1 else ConstantV(2)
    kwargs = {**kwargs, "dtype": args[2]} if len(args) > 2 else kwargs
    return TupleV([m.torch_call(torch.linalg.vector_norm, [m.forced(t), order], kwargs) for t in tensors.all(m)])


for _name, _meaning in (
    {f"{base}{end}": each for base in (*UNARY, *BINARY, *SCALED) for end in ("", "_")} | {"norm": _norms}
).items():
    _function = getattr(torch, PREFIX + _name, None)
    if _function is not None:
        handles(_function)(functools.partial(_meaning, of=_function))
