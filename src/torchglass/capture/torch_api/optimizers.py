"""PyTorch's optimizers: their `step` is followed like other code, but for what it does for torch.compile's sake.

    opt.step()   ->   one graph without gradients; `step` counts and moments are inputs that it writes to,
                      rates are numbers that change

``_get_value`` of a step count gives it in double precision: what eager computes of it with Python's floats, the graph
computes with as many digits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel

from ... import torch_compat
from ..errors import BreaksThisCall, Unsupported
from ..guarding.functions import cells_of
from ..meanings.registry import Apply, Polyfill, handles, made_like
from ..polyfills import optimizers as polyfill_optimizers
from ..protocol import Machine, Value
from ..values.constant import NONE, ConstantV, is_none
from ..values.containers import ListV
from ..values.known import KnownV
from ..values.tensor import TensorV


@made_like(torch_compat.OPTIMIZER_STEP_WRAPPER)
def step_in_grad_mode(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The wrapper around the `step` of PyTorch's optimizers, which breaks the graph twice for torch.compile."""
    step = cells_of(m, function)["func"].get(m)
    return m.call(m.wrap(polyfill_optimizers.in_grad_mode_of_optimizer), [m.forced(step), *args], kwargs)


handles(torch_compat.group_tensors)(Polyfill(polyfill_optimizers.group_tensors))


@handles(torch_compat.value_for_optimizer)
def value_for_optimizer(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`x.item()` as a tensor that has a Python float's digits."""
    (value,) = args
    return m.torch_method(value, "to", [ConstantV(torch.float64)], {}) if isinstance(value, TensorV) else value


@handles(torch_compat.stack_for_optimizer)
def stack_for_optimizer(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The list itself: `torch._foreach_addcdiv_` and its kin are taken apart here."""
    return args[0]


# --- formulas ---------------------------------------------------------------------------------------------------------
def _of_optimizers(names: dict[str, Any], meaning: Callable[[Any, Any], Any]) -> None:
    """Give functions of PyTorch's optimizers a meaning; a version that lacks one has nothing to give it to."""
    for name, fact in names.items():
        function = torch_compat.optimizer_function(name)
        if function is not None:
            handles(function)(meaning(function, fact))


def _selecting(formula: Any, scalars: int) -> Apply:
    """Formulas that branch on step counts, but not for CUDA graphs; whose gradients need counts that change no more."""

    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if any(m.truth(m.forced(kwargs.get(name, NONE))) for name in ("capturable", "differentiable")):
            return m.inline(KnownV(formula), args, kwargs)
        polyfill = m.wrap(polyfill_optimizers.capturable_in_double)
        return m.call(polyfill, [m.wrap(formula), ConstantV(scalars), *args], kwargs)

    return handler


def _in_one_kernel(formula: Any, one_by_one: str) -> Apply:
    """Fused formulas: ours is one pass, too, whichever of PyTorch's formulas it is made of."""

    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        polyfill = m.wrap(polyfill_optimizers.fused)
        return m.call(polyfill, [m.wrap(torch_compat.optimizer_function(one_by_one)), *args], kwargs)

    return handler


_of_optimizers({"radam._single_tensor_radam": 1, "radam._multi_tensor_radam": 1}, _selecting)
_of_optimizers({"asgd._single_tensor_asgd": 3, "asgd._multi_tensor_asgd": 3}, _selecting)
_of_optimizers(
    dict.fromkeys(
        ("_adafactor._single_tensor_adafactor", "_adafactor._multi_tensor_adafactor"), polyfill_optimizers.adafactor
    ),
    lambda formula, polyfill: Polyfill(polyfill),
)
_of_optimizers(
    {f"{name}._fused_{name}": f"{name}._single_tensor_{name}" for name in ("adam", "sgd", "adagrad")}, _in_one_kernel
)


def _called_directly(name: str, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """PyTorch's functionalization, which autodiff asks for, fails on their empty lists."""
    raise Unsupported(f"`torch.{name}`", "call the optimizer's `step`")


for _name in ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"):
    _kernel = getattr(torch, _name, None)
    if _kernel is not None:
        handles(_kernel)(functools.partial(_called_directly, _name))


# --- GradScaler, AveragedModel ----------------------------------------------------------------------------------------
@handles(torch_compat.step_of_scaler)
def step_unless_infinite(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``if not found_inf.item(): optimizer.step()``: the step is taken, and undone where a gradient was infinite."""
    if len(args) != 3 or not _does_nothing_else(m, args[1]):
        return m.inline(KnownV(torch_compat.step_of_scaler), args, kwargs)
    _, optimizer, state = args
    found = _polyfilled(m, polyfill_optimizers.found_infinite, state)
    written = m.listed(_polyfilled(m, polyfill_optimizers.written_by_step, optimizer))
    before = _polyfilled(m, polyfill_optimizers.clones, ListV(list(written)))
    result = m.call(m.get_attr(optimizer, "step"), [], kwargs)
    now = m.listed(_polyfilled(m, polyfill_optimizers.written_by_step, optimizer))
    if len(now) != len(written) or any(a is not b for a, b in zip(now, written)):
        raise BreaksThisCall("a step under a GradScaler that makes the optimizer's state")
    _polyfilled(m, polyfill_optimizers.restore_where, found, ListV(list(written)), before)
    return result


def _does_nothing_else(m: Machine, optimizer: Value) -> bool:
    """Whether `step` writes to tensors alone: an optimizer of PyTorch's that calls no functions of the program's."""
    if not optimizer.python_type().__module__.startswith("torch.optim.") or any(torch_compat.global_step_hooks):
        return False
    if m.truth(_polyfilled(m, polyfill_optimizers.is_differentiable, optimizer)):
        return False
    hooks = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
    return not any(m.truth(m.get_attr(optimizer, name)) for name in hooks)


def _polyfilled(m: Machine, polyfill: Any, *args: Value) -> Value:
    return m.call(m.wrap(polyfill), list(args), {})


@handles(AveragedModel.update_parameters)
def update_average(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The first update copies the parameters: both are computed, and the count selects."""
    functions = [m.get_attr(args[0], name) for name in ("avg_fn", "multi_avg_fn")]
    if all(_is_of_pytorch(f) for f in functions):
        return m.call(m.wrap(polyfill_optimizers.update_average), args, kwargs)
    return m.inline(KnownV(AveragedModel.update_parameters), args, kwargs)


def _is_of_pytorch(function: Value) -> bool:
    """Whether an average's function is none, or PyTorch's own, which does nothing but compute."""
    real = function.real if isinstance(function, KnownV) else None
    return getattr(real, "__module__", None) == AveragedModel.__module__ or (is_none(function))
