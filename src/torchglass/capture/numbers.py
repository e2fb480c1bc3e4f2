"""Numbers as operands of tensor operations: a tensor of no dimensions that promotes as the Python number would.

x * n   ->   mul = x * n.to(x.dtype)     # n: a float64 input of the graph
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from .graph import NUMBER_DTYPES, GraphBuilder
from .values.base import Value
from .values.constant import ConstantV
from .values.number import NumberV
from .values.tensor import TensorV

if TYPE_CHECKING:
    from .machine import Machine

# Operations of two operands that mean the same for a number and for a tensor of no dimensions. Powers do not: PyTorch
# computes those with some numbers in other ways.
NAMES = ("add", "sub", "mul", "true_divide", "div", "floor_divide", "remainder", "lt", "le", "gt", "ge", "eq", "ne")
OPERATIONS: frozenset[Any] = frozenset(
    [getattr(torch, name) for name in NAMES]
    + [getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod")]
    + [getattr(operator, name) for name in ("iadd", "isub", "imul", "itruediv", "lt", "le", "gt", "ge", "eq", "ne")]
    + [*NAMES, *(f"{name}_" for name in ("add", "sub", "mul", "div")), "fill_", "__add__", "__mul__"]
)
# Those that write their last operand to places of the first: ``x[0] = n``, ``x.masked_fill(mask, n)``.
WRITES: frozenset[Any] = frozenset({operator.setitem, torch.masked_fill, "masked_fill", "masked_fill_"})
REDUCED = (torch.float16, torch.bfloat16)
WIDE_INTEGERS = (torch.int32, torch.int64)


def operands(m: Machine, target: Any, args: list[Value], kwargs: dict[str, Value]) -> list[Value]:
    """The arguments with numbers that change as inputs of the graph, where the operation allows it."""
    writes = _is_one_of(target, WRITES)
    if len(args) != (3 if writes else 2) or kwargs or not (writes or _is_one_of(target, OPERATIONS)):
        return args
    number, tensor = (args[0], args[-1]) if isinstance(args[0], NumberV) else (args[-1], args[0])
    if not isinstance(number, NumberV) or type(number.known) not in NUMBER_DTYPES:
        return args
    if not isinstance(tensor, TensorV) or type(m.builder) is not GraphBuilder:
        return args
    replaced = _operand(m, number, tensor.fake)
    return args if replaced is None else [replaced if a is number else a for a in args]


def _is_one_of(target: Any, operations: frozenset[Any]) -> bool:
    try:
        return target in operations
    except TypeError:
        return False


def _operand(m: Machine, number: NumberV, other: torch.Tensor) -> Value | None:
    """``number`` as a tensor that leads to the same dtype; None where there is none."""
    dtype = _dtype_for(number.known, other)
    if dtype is None or torch.result_type(other, number.known) != torch.result_type(
        other, torch.empty((), dtype=dtype, device="meta")
    ):
        return None
    builder = m.builder
    tensor = builder.number(number)
    if tensor.fake.dtype is dtype:
        return tensor
    return m.torch_method(tensor, "to", [ConstantV(dtype)], {})


def _dtype_for(real: Any, other: torch.Tensor) -> torch.dtype | None:
    dtype = other.dtype
    if dtype in REDUCED:
        return torch.float32 if other.dim() else None
    if dtype.is_floating_point:
        return dtype if dtype in (torch.float32, torch.float64) else None
    if dtype.is_complex:
        return dtype.to_real() if dtype in (torch.complex64, torch.complex128) else None
    if type(real) is float:
        return torch.get_default_dtype()
    return dtype if dtype in WIDE_INTEGERS else None
