"""Numbers as operands of tensor operations: a tensor of no dimensions that promotes as the Python number would.

x * n                  ->   mul = x * n                              # n: an input of the graph, of x's dtype
n / x                  ->   mul = x.reciprocal() * n                 # as Tensor.__rtruediv__ does
torch.full((3,), n)    ->   fill = torch.fill(torch.full((3,), 0), n)
torch.tensor([n, 2])   ->   clone = torch.clone(data)                # data: torch.tensor([n, 2]) of the entry's
x.add_(y, alpha=n)     ->   add_ = x.add_(y * n)
x.clamp(-n, n)         ->   clamp = x.clamp(-n as a tensor, n as a tensor)
torch.linspace(0, n, 5)   ->   sums and products of torch.arange(5) and n
"""

from __future__ import annotations

import operator
from collections.abc import Container
from typing import Any, TypeGuard

import torch

from ...operators import symbolic_creation
from ...records.sources import Item, Source
from ..errors import Fails
from ..graph.builder import NUMBER_DTYPES, GraphBuilder
from ..protocol import Lazy, Machine, Value
from ..values.constant import ConstantV, is_none
from ..values.containers import ListV, SequenceV, TupleV
from ..values.entry_tensor import ListCall
from ..values.function_modes import FunctionModes
from ..values.number import NumberV, changes
from ..values.tensor import TensorV
from .numbers_read import tensor_of

# Operations of two operands that mean the same for a number and for a tensor of no dimensions. Powers with a number as
# exponent do not: PyTorch computes some of those in other ways.
NAMES = ("add", "sub", "mul", "true_divide", "div", "floor_divide", "remainder", "lt", "le", "gt", "ge", "eq", "ne")
OPERATIONS: frozenset[Any] = frozenset(
    [getattr(torch, name) for name in NAMES]
    + [getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod")]
    + [getattr(operator, name) for name in ("iadd", "isub", "imul", "itruediv", "lt", "le", "gt", "ge", "eq", "ne")]
    + [*NAMES, *(f"{name}_" for name in ("add", "sub", "mul", "div")), "fill_", "__add__", "__mul__"]
    + [torch.fill]
)
# Those that write their last operand to places of the first: ``x[0] = n``, ``x.masked_fill(mask, n)``.
WRITES: frozenset[Any] = frozenset({operator.setitem, torch.masked_fill, "masked_fill", "masked_fill_"})
# Those that make a tensor of a number, by the place of that argument; some take lists of numbers, too.
LISTED = (torch.tensor, torch.as_tensor, torch.asarray)
FILLS: dict[Any, int] = {
    torch.full: 1, torch.full_like: 1, "new_full": 2, torch.scalar_tensor: 0, **dict.fromkeys(LISTED, 0)
}  # fmt: skip
UNFIT = object()
LEAVES = (*NUMBER_DTYPES, bool)  # what such lists are made of
SCALED: dict[Any, tuple[str, int]] = {  # the name of the factor, and how many tensors there are
    **dict.fromkeys((torch.add, torch.sub, "add", "sub", "add_", "sub_"), ("alpha", 2)),
    **dict.fromkeys((torch.addcmul, torch.addcdiv, "addcmul", "addcmul_", "addcdiv", "addcdiv_"), ("value", 3)),
}
# Those that take tensors in the place of their numbers, by the names of these.
BOUNDED: dict[Any, tuple[str, ...]] = {
    **dict.fromkeys((torch.clamp, torch.clip, "clamp", "clip", "clamp_", "clip_"), ("min", "max")),
    **dict.fromkeys((torch.lerp, "lerp", "lerp_"), ("end", "weight")),
}
PRODUCTS = (operator.mul, operator.imul)
REFLECTED = (*PRODUCTS, operator.truediv, operator.itruediv)
EXACT = (torch.float32, torch.float64)  # products of which are rounded as little as the sums
POWERS: frozenset[Any] = frozenset({operator.pow, torch.pow})
REDUCED = (torch.float16, torch.bfloat16)
MADE = (*EXACT, torch.int64)  # what an entry makes a number into
WIDE_INTEGERS = (torch.int32, torch.int64)


def operands(m: Machine, target: Any, args: list[Value], kwargs: dict[str, Value]) -> list[Value]:
    """The arguments with numbers that change as inputs of the graph, where the operation allows it."""
    writes, chooses = _is_one_of(target, WRITES), target is torch.where
    known = writes or chooses or _is_one_of(target, OPERATIONS) or _is_power(target, args)
    if len(args) != (3 if writes or chooses else 2) or kwargs or not known:
        return args
    pair = args[1:] if chooses else args
    number, tensor = (pair[0], pair[-1]) if isinstance(pair[0], NumberV) else (pair[-1], pair[0])
    if not isinstance(number, NumberV) or type(number.known) not in NUMBER_DTYPES:
        return args
    if not isinstance(tensor, TensorV) or type(m.state(GraphBuilder)) is not GraphBuilder:
        return args
    replaced = _operand(m, number, tensor.fake)
    return args if replaced is None else [replaced if a is number else a for a in args]


def reflected(m: Machine, target: Any, args: list[Value]) -> Value | None:
    """``n * x`` and ``n / x`` as ``Tensor.__rmul__`` and ``__rtruediv__`` compute them; None for other operations. The
    kernels round a number of no dimensions that comes first to the tensor's dtype.
    """
    if len(args) != 2 or not _is_one_of(target, REFLECTED):
        return None
    if not isinstance(args[0], NumberV) or not isinstance(args[1], TensorV):
        return None
    number, tensor = args[0], args[1] if target in PRODUCTS else m.torch_method(args[1], "reciprocal", [], {})
    return m.torch_call(operator.mul, [tensor, number], {})


def made(m: Machine, target: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The tensor that ``target`` makes of numbers that change from call to call; None where it makes none of them."""
    if not _is_one_of(target, FILLS) or type(m.state(GraphBuilder)) is not GraphBuilder or "requires_grad" in kwargs:
        return None
    place = FILLS[target]
    value = args[place] if place < len(args) else kwargs.get("fill_value")
    if not isinstance(value, NumberV) or type(value.known) not in NUMBER_DTYPES:
        return None
    none = ConstantV(type(value.known)(0))
    args = [none if arg is value else arg for arg in args]
    kwargs = {name: none if arg is value else arg for name, arg in kwargs.items()}
    method = type(target) is str
    like = m.torch_method(args[0], target, args[1:], kwargs) if method else m.torch_call(target, args, kwargs)
    return m.torch_call(torch.fill, [like, value], {})


def spaced(m: Machine, target: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """``torch.linspace`` where it begins or ends at a float that changes; None of all other calls."""
    if target is not torch.linspace or len(args) != 3 or type(m.state(GraphBuilder)) is not GraphBuilder:
        return None
    dtype = kwargs.get("dtype")
    known = dtype is None or (isinstance(dtype, ConstantV) and dtype.value in (None, *EXACT))
    floats = any(isinstance(arg, NumberV) and type(arg.known) is float for arg in args[:2])
    if not (floats and known and {*kwargs} <= {"dtype", "device"}):
        return None
    return m.inline(m.wrap(symbolic_creation.spaced), args, kwargs)


def scaled(
    m: Machine, target: Any, args: list[Value], kwargs: dict[str, Value]
) -> tuple[list[Value], dict[str, Value]]:
    """The arguments of an addition whose ``alpha`` (or ``value``) is a number that changes, or a tensor for one: the
    product in the second's place. Those of a clamp or a ``lerp``: tensors in the numbers' places.
    """
    if _is_one_of(target, BOUNDED):
        return _bounded(m, BOUNDED[target], args, kwargs)
    name, count = SCALED[target] if _is_one_of(target, SCALED) else ("", 0)
    factor = kwargs.get(name)
    if not count or len(kwargs) > 1 or len(args) != count:
        return args, kwargs
    if not all(isinstance(a, TensorV) and a.fake.dtype in EXACT for a in args):
        return args, kwargs
    x = args[0]
    if _is_single(factor) and factor.fake.is_floating_point() and not factor.fake.requires_grad:
        assert isinstance(x, TensorV)
        factor = m.torch_method(factor, "to", [ConstantV(x.fake.dtype)], {})
    elif not isinstance(factor, NumberV):
        return args, kwargs
    return [x, m.torch_call(torch.mul, [args[1], factor], {}), *args[2:]], {}


def _is_single(value: Value | None) -> TypeGuard[TensorV]:
    """Whether it is a tensor that PyTorch takes for a number."""
    return isinstance(value, TensorV) and not value.fake.dim()


def _bounded(
    m: Machine, names: tuple[str, ...], args: list[Value], kwargs: dict[str, Value]
) -> tuple[list[Value], dict[str, Value]]:
    given = {**dict(zip(names, args[1:])), **kwargs}
    given = {name: v for name, v in given.items() if not is_none(v)}
    numbers = [v for v in given.values() if isinstance(v, NumberV)]
    x = args[0]
    if not numbers or not isinstance(x, TensorV) or x.fake.dtype not in EXACT or not set(given) <= set(names):
        return args, kwargs
    fits = all(isinstance(v, TensorV) if name == "end" else _is_number(v) for name, v in given.items())
    if type(m.state(GraphBuilder)) is not GraphBuilder or not fits:
        return args, kwargs
    bounds: dict[str, Value] = {n: v if isinstance(v, TensorV) else _bound(m, v, x.fake) for n, v in given.items()}
    return [x], bounds


def _is_number(value: Value) -> bool:
    known = value.known if isinstance(value, NumberV) else getattr(value, "value", None)
    return type(known) in NUMBER_DTYPES


def _bound(m: Machine, value: Value, x: torch.Tensor) -> Value:
    if isinstance(value, NumberV):
        found = _operand(m, value, x)
        if found is not None:
            return found
    settings: dict[str, Value] = {"dtype": ConstantV(x.dtype), "device": ConstantV(x.device)}
    return m.torch_call(torch.full, [TupleV([]), value], settings)


def made_of_list(m: Machine, target: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """``torch.tensor([[n, 2], ...])`` as the entry makes it, where one of the numbers is known to change; else None."""
    if not _is_one_of(target, LISTED) or not args or not isinstance(args[0], (ListV, TupleV)):
        return None
    rest, plain = (
        args[1:],
        type(m.state(GraphBuilder)) is GraphBuilder
        and not m.state(FunctionModes).entered
        and "requires_grad" not in kwargs,
    )
    if not plain or not all(isinstance(a, ConstantV) for a in (*rest, *kwargs.values())):
        return None
    leaves: list[Value | Lazy] = []
    data, known = _data(m, args[0], leaves)
    if known is UNFIT or not any(_changes(m, leaf) for leaf in leaves):
        return None
    try:
        settings = {name: a.as_constant() for name, a in kwargs.items()}
        result = target(known, *(a.as_constant() for a in rest), **settings)
    except Exception:
        return None  # with the numbers guarded, the program raises it
    for leaf in leaves:
        if isinstance(leaf, Lazy) and leaf.source is not None:
            m.guard(leaf.source, "type", type(leaf.real), "a tensor was made of it")
    made = m.state(GraphBuilder).listed(ListCall(target, data, leaves, rest, kwargs, result))
    return m.torch_call(torch.clone, [made], {})


def _data(m: Machine, value: Any, leaves: list[Value | Lazy]) -> tuple[Any, Any]:
    """What makes the list in the entry, and the list itself; UNFIT for one of other things than numbers, or of lists
    that the entry finds as they were before the program wrote to one.
    """
    real, source = getattr(value, "real", None), value.source
    if type(real) in (list, tuple) and source is not None:
        as_found = not any(isinstance(written, SequenceV) for written in m.mutated.values())
        return Lazy(real, source), _existing(m, real, source, leaves) if as_found else UNFIT
    if isinstance(value, (ListV, TupleV)):
        parts = [_data(m, item, leaves) for item in value.items]
        items = [known for _, known in parts]
        return ListV([made for made, _ in parts]), UNFIT if any(item is UNFIT for item in items) else items
    leaves.append(value)
    known = value.known if isinstance(value, NumberV) else getattr(value, "value", real)
    return value, known if type(known) in LEAVES else UNFIT


def _existing(m: Machine, real: Any, source: Source, leaves: list[Value | Lazy]) -> Any:
    """A list from outside, or lists in one. They become no values: which of them are one object says nothing here."""
    if type(real) in LEAVES:
        leaves.append(Lazy(real, source))
        return real
    if type(real) not in (list, tuple):
        return UNFIT
    m.guard(source, "type", type(real), "a tensor was made of its items")
    m.guard(source, "length", len(real), "a tensor was made of its items")
    known = [_existing(m, item, Item(source, n), leaves) for n, item in enumerate(real)]
    return UNFIT if any(part is UNFIT for part in known) else known


def _changes(m: Machine, leaf: Value | Lazy) -> bool:
    return isinstance(leaf, NumberV) or (leaf.source is not None and changes(m, leaf.source))


def _is_power(target: Any, args: list[Value]) -> bool:
    """``n ** x`` of a floating-point tensor."""
    exponent = args[-1] if args else None
    raised = isinstance(exponent, TensorV) and exponent.fake.is_floating_point()
    return raised and isinstance(args[0], NumberV) and _is_one_of(target, POWERS)


def _is_one_of(target: Any, operations: Container[Any]) -> bool:
    try:
        return target in operations
    except TypeError:
        return False


def _operand(m: Machine, number: NumberV, other: torch.Tensor) -> Value | None:
    """``number`` as a tensor that leads to the same dtype; None where there is none. Fails for one too large."""
    if type(number.known) is int and not -(1 << 63) <= number.known < 1 << 63:
        raise Fails("the program raises OverflowError")
    dtype = _dtype_for(number.known, other)
    if dtype is None:
        return None
    like = torch.empty((1,) * min(other.dim(), 1), dtype=other.dtype, device="meta")  # fakes refuse to meet others
    if torch.result_type(like, number.known) != torch.result_type(like, torch.empty((), dtype=dtype, device="meta")):
        return None
    read = tensor_of(m, number, dtype, other.device)
    if read is not None:
        return read
    if dtype in MADE:
        return m.state(GraphBuilder).number(number, dtype)
    return m.torch_method(m.state(GraphBuilder).number(number), "to", [ConstantV(dtype)], {})


def _dtype_for(real: Any, other: torch.Tensor) -> torch.dtype | None:
    dtype = other.dtype
    if dtype in REDUCED:
        return torch.float32 if other.dim() else None
    if dtype.is_floating_point:
        return dtype if dtype in (torch.float32, torch.float64) else None
    if dtype.is_complex:
        return dtype.to_real() if dtype in (torch.complex64, torch.complex128) else None
    if isinstance(real, float):
        return torch.get_default_dtype()
    return dtype if dtype in WIDE_INTEGERS else None
