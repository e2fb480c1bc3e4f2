"""``.grad`` and ``.data`` of tensors from outside, written: what is read from then on, and what the entry replays.

for p in model.parameters():
    p.grad = None               # the entry: setattr(p, 'grad', None); no guard asks what it was
    p.data = p.data - rate * g  # the entry: setattr(p, 'data', sub), a result of the graph
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from ..errors import Fails, Unsupported
from ..meanings.argument_binding import bind_arguments
from ..meanings.registry import handles
from ..polyfills import optimizers as polyfill_optimizers
from ..protocol import Machine, Value
from ..values.constant import ConstantV, is_none
from ..values.overlays import set_overlay
from ..values.tensor import TensorV, write_data, write_grad


@write_grad.defined
def _write_grad(m: Machine, owner: TensorV, value: Value) -> None:
    if isinstance(value, TensorV):
        if not _alike(owner.fake, value.fake):
            raise Fails("the program raises RuntimeError")
        if value.fake.requires_grad:
            raise Unsupported("a gradient that has a gradient, written to `.grad`", "write what `.detach()` gives")
    elif not is_none(value):
        raise Fails("the program raises TypeError")
    set_overlay(m, owner, "grad", value)


@write_data.defined
def _write_data(m: Machine, owner: TensorV, value: Value) -> None:
    if not isinstance(value, TensorV):
        raise Fails("the program raises TypeError")
    if _same_memory(owner.fake, value.fake):  # `p.data += x` ends so
        return
    if not _alike(owner.fake, value.fake):
        raise Unsupported("writing other sizes or another type to `.data` of a tensor")
    set_overlay(m, owner, "data", value)
    owner.replaced = True


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)


def _same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    storages = (t.untyped_storage()._cdata for t in (one, other))
    places = ((t.storage_offset(), t.stride()) for t in (one, other))
    return len(set(storages)) == 1 and len(set(places)) == 1 and _alike(one, other)


# --- zero_grad --------------------------------------------------------------------------------------------------------
@handles(torch.nn.Module.zero_grad)
def zero_grad_of_module(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    function: Any = m.wrap(torch.nn.Module.zero_grad)
    if _to_none(m, function.real, args, kwargs):
        return m.call(m.wrap(polyfill_optimizers.drop_grads_of_module), args[:1], {})
    return m.inline(function, args, kwargs)


@handles(torch.optim.Optimizer.zero_grad)
def zero_grad_of_optimizer(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    to_none = _to_none(m, inspect.unwrap(torch.optim.Optimizer.zero_grad), args, kwargs)
    polyfill = polyfill_optimizers.drop_grads_of_optimizer if to_none else polyfill_optimizers.zero_grads_of_optimizer
    return m.call(m.wrap(polyfill), args[:1], {})


def _to_none(m: Machine, function: Any, args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether a call means to set gradients to None: then what they were does not matter."""
    bound = bind_arguments(m, function.__code__, function.__qualname__, args, kwargs, [ConstantV(True)], {})
    return m.truth(m.forced(bound["set_to_none"]))
