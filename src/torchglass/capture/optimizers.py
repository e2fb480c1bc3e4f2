"""PyTorch's optimizers: their `step` is followed like other code, but for what it does for torch.compile's sake.

    opt.step()   ->   one graph without gradients; `step` counts and moments are inputs that it writes to,
                      rates are numbers that change

``_get_value`` of a step count gives it in double precision: what eager computes of it with Python's floats, the graph
computes with as many digits.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from .. import torch_compat
from . import polyfills
from .builtin_functions import handles
from .errors import Unsupported
from .standard_library import BY_CODE
from .values.base import Value
from .values.constant import ConstantV
from .values.known import KnownV
from .values.tensor import TensorV

if TYPE_CHECKING:
    from .machine import Machine


def step_in_grad_mode(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The wrapper around the `step` of PyTorch's optimizers, which breaks the graph twice for torch.compile."""
    step = m.cells_of(function)["func"].get(m)
    return m.call(m.wrap_known(polyfills.in_grad_mode_of_optimizer), [m.forced(step), *args], kwargs)


BY_CODE[torch_compat.OPTIMIZER_STEP_WRAPPER] = step_in_grad_mode


@handles(torch_compat.value_for_optimizer)
def value_for_optimizer(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`x.item()` as a tensor that has a Python float's digits."""
    (value,) = args
    return m.torch_method(value, "to", [ConstantV(torch.float64)], {}) if isinstance(value, TensorV) else value


@handles(torch_compat.stack_for_optimizer)
def stack_for_optimizer(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The list itself: `torch._foreach_addcdiv_` and its kin are taken apart here."""
    return args[0]


def _in_one_kernel(name: str, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Unsupported(f"`torch.{name}`, an optimizer's step as one kernel", "drop `fused=True`: ours is one pass too")


for _name in ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"):
    _kernel = getattr(torch, _name, None)
    if _kernel is not None:
        handles(_kernel)(functools.partial(_in_one_kernel, _name))
