"""``torch._check`` and its kin: a Python condition is decided while capturing, a tensor's when the graph runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ... import torch_compat
from ..errors import Unsupported
from ..meanings.registry import handles
from ..protocol import Machine, Value
from ..values.constant import NONE, ConstantV, is_none
from ..values.sizes import ConditionV
from ..values.tensor import TensorV

NO_MESSAGE = "Expected cond to be True, but got False. (Could this error message be improved? Please say so.)"


def _raising(error: type[Exception]) -> Callable[..., Value]:
    def check(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        cond, message = _parameters(args, kwargs)
        if isinstance(cond, TensorV):
            m.throw(TypeError, f"cond must be a bool, but got {torch.Tensor}")
        if isinstance(cond, ConditionV) and cond.is_checked():
            return NONE
        if not m.truth(cond):
            m.throw(error, _text(m, message))
        return NONE

    return check


for _check, _error in torch_compat.CHECKS.items():
    handles(_check)(_raising(_error))


@handles(*torch_compat.TENSOR_CHECKS)
def check_tensor_all(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A node that raises RuntimeError, as eager does, when an element is False."""
    cond, message = _parameters(args, kwargs)
    if not isinstance(cond, TensorV):
        m.throw(TypeError, f"cond must be a tensor, but got {cond.python_type()}")
    if cond.fake.dtype is not torch.bool:
        m.throw(TypeError, f"cond tensor must have dtype torch.bool, but got {cond.fake.dtype}")
    try:
        text = _text(m, message)
    except Unsupported:  # it would show the tensor's values
        text = ConstantV(NO_MESSAGE)
    every = m.torch_method(cond, "all", [], {})
    return m.torch_call(torch_compat.assert_tensor, [every, text], {})


def _parameters(args: list[Value], kwargs: dict[str, Value]) -> tuple[Any, Value]:
    given = dict(zip(("cond", "message"), args), **kwargs)
    return given["cond"], given.get("message", NONE)


def _text(m: Machine, message: Value) -> Value:
    if is_none(message):
        return ConstantV(NO_MESSAGE)
    return m.call(m.wrap(str), [m.call(message, [], {})], {})
