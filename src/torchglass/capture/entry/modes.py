"""Modes that the program leaves changed where its entry ends: grad mode, autocast, inference mode."""

from __future__ import annotations

from ... import torch_compat
from ...torch_compat import InferenceMode, Modes
from ..torch_api.inference_mode import EnteredInference, InferenceV
from ..values.constant import ConstantV
from ..values.function_modes import FunctionModes
from .emitter import Emitter


def left(e: Emitter) -> list[str]:
    """Statements after which the thread is in the modes that the program is in."""
    return changes(_entered(e, e.m.state(EnteredInference).guards), Modes())


def changes(before: Modes, after: Modes) -> list[str]:
    """Statements that take the thread from one to the other; backend switches are never left changed."""
    made = [] if before.grad == after.grad else [f"torch._C._set_grad_enabled({after.grad})"]
    for (device, was_on, old), (_, on, dtype) in zip(before.autocast, after.autocast):
        if was_on != on:
            made.append(f"torch.set_autocast_enabled({device!r}, {on})")
        if old != dtype:
            made.append(f"torch.set_autocast_dtype({device!r}, {dtype})")
    if before.cache != after.cache:
        made.append(f"torch.set_autocast_cache_enabled({after.cache})")
    deeper = after.nesting - before.nesting
    return made + [f"torch.autocast_{'increment' if deeper > 0 else 'decrement'}_nesting()"] * abs(deeper)


def _entered(e: Emitter, guards: list[InferenceV]) -> Modes:
    """Write the guards that are not yet written; the modes behind them."""
    modes = e.m.modes
    for v in guards:
        e.expr(v)
        modes = v.after
    return modes


def guard(e: Emitter, v: InferenceV) -> str:
    """The guard of ``torch.inference_mode``."""
    made = f"{e.pin(InferenceMode, 'InferenceMode')}({v.mode})"
    entered = e.m.state(EnteredInference).guards
    if v not in entered:
        name = e.name_value(v, "inference_mode", made)
        e.line(f"{name}.__exit__(None, None, None)")
        return name
    # making it enters the mode: what was entered around it comes before
    e.body += changes(_entered(e, entered[: entered.index(v)]), v.before)
    return e.name_value(v, "inference_mode", made)


def push(e: Emitter) -> None:
    """Write how Python goes on under the modes that are active here: ``with torch.device(...)`` and the like."""
    for mode in e.m.state(FunctionModes).entered:
        if mode.cls is torch_compat.DeviceContext:
            e.line(f"{e.expr(ConstantV(mode.real.device))}.__enter__()")
        else:
            e.line(f"torch._C._push_on_torch_function_stack({e.expr(mode)})")
