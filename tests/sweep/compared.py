"""Compile a module, call it twice, compare outputs and gradients with what eager gave."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import numpy
import torch

Row = dict[str, Any]
Step = Callable[..., tuple[list[torch.Tensor], list[torch.Tensor | None]]]


def tensors(value: Any, depth: int = 0) -> list[torch.Tensor]:
    """All tensors of an output, those in caches included, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors(v, depth + 1)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors(v, depth + 1)]
    if depth < 8 and type(value).__name__.endswith(("Cache", "Layer", "State", "Output")):
        return tensors(vars(value), depth + 1)
    return []


def stepper(model: torch.nn.Module, inputs: Any, training: bool) -> Step:
    """A function of a module: its outputs, and with ``training`` the gradients of all parameters."""

    def call(module: Any, dtype: torch.dtype | None) -> list[torch.Tensor]:
        _seed()
        fresh = lambda v: v.to(dtype, copy=True) if v.is_floating_point() else v.clone()
        if isinstance(inputs, dict):
            return tensors(module(**{k: fresh(v) for k, v in inputs.items()}))
        return tensors(module(*[fresh(v) for v in inputs]))

    def step(module: Any, dtype: torch.dtype | None = None) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
        if not training:
            with torch.no_grad():
                return call(module, dtype), []
        for p in model.parameters():
            p.grad = None
        out = call(module, dtype)
        parts = [t for t in out if t.requires_grad and t.numel()]
        if parts:
            _weighted(parts).backward()
        return [t.detach() for t in out], [p.grad for p in model.parameters()]

    return step


def _seed() -> None:
    """Models draw from Python's and NumPy's generators as well: masks of audio, dropped layers. Convolutions in TF32, a
    GPU's default, differ by the algorithm that cuDNN chooses for a layout, by more than what is allowed here.
    """
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


def _weighted(parts: list[torch.Tensor]) -> torch.Tensor:
    """One number that depends on every element differently, of the size of one, whatever the model's scale."""
    double = any(t.dtype is torch.float64 for t in parts)
    device = parts[0].device
    total = torch.zeros((), dtype=torch.float64 if double else torch.float32, device=device)
    for t in parts:
        weights = torch.linspace(-1, 1, t.numel(), device=t.device).view(t.shape)
        real = t.real if t.is_complex() else t
        total = total + ((real.to(total.dtype) * weights).sum() / t.numel()).to(device)
    return total


def compared(row: Row, model: torch.nn.Module, step: Step, expected: Any, backend: str) -> Row:
    """``row`` with the result: one graph if that works, else with breaks; twice against eager."""
    import torchglass as tg

    before = {k: v.clone() for k, v in model.state_dict().items()}
    step(model)
    for k, v in before.items():  # batch norms count
        model.state_dict()[k].copy_(v)
    expected = step(model)
    after = {k: v.clone() for k, v in model.state_dict().items()}
    spread = [step(model), step(model)] if model.training or _changes(before, after) else [expected, expected]
    begin = time.perf_counter()
    found = None
    for fullgraph in (True, False):
        for k, v in before.items():
            model.state_dict()[k].copy_(v)
        tg.reset()
        try:
            compiled = tg.compile(model, backend=backend, fullgraph=fullgraph)
            begin = time.perf_counter()
            found = step(compiled)
        except Exception as error:
            if not fullgraph:
                return {**row, "result": "wrong", "why": f"{type(error).__name__}: {error}"[:600]}
            row["reason"] = f"{type(error).__name__}: {error}"[:900]
            continue
        eager = [f.reason for function in tg.explain(compiled).record.walk() for f in function.fallbacks]
        if fullgraph and eager:  # it was captured to an end that Python does not come to
            row["reason"] = f"runs eagerly: {eager[0]}"[:900]
            continue
        row["result"] = "whole" if fullgraph else "breaks"
        break
    row["seconds"] = round(time.perf_counter() - begin, 2)
    state = [v.clone() for v in model.state_dict().values()]
    difference = _difference(state, list(after.values()), "state")
    again = step(compiled)
    row["entries"] = len(tg.explain(compiled).entries)
    difference = difference or first_difference(found, expected)
    if difference and not first_difference(found, _told_compiling(step, model, before)):
        return {**row, "note": "computes something else, in eager too, once torch.compiler.is_compiling() says yes"}
    difference = difference or first_difference(again, spread[0])
    if difference and backend != "eager" and (exact := _in_float64(step, model, before)):
        difference = far_from(exact, (*found, state), (*expected, list(after.values())))
        row["note"] = "judged by float64"
    return {**row, "result": "wrong", "why": difference} if difference else row


def _in_float64(step: Step, model: torch.nn.Module, before: dict[str, torch.Tensor]) -> Any:
    """Outputs, gradients and state in float64, or None where the model does not run in it."""
    single = {k: v.clone() for k, v in model.state_dict().items()}
    try:
        model.double()
        for k, v in before.items():
            model.state_dict()[k].copy_(v)
        out, gradients = step(model, torch.float64)
        return out, [None if g is None else g.clone() for g in gradients], [*model.state_dict().values()]
    except Exception:
        return None
    finally:
        model.float()
        for k, v in single.items():
            model.state_dict()[k].copy_(v)


def far_from(exact: Any, ours: Any, eager: Any, others: Sequence[tuple[Any, Any]] = ()) -> str:
    """Where our error is far over eager's own, both against float64.

    Networks with batch norms over few values amplify the last bit of their first layers, and one value on the other
    side of a ReLU's edge moves the gradients of a whole branch, so one tensor's error is a draw: half of the tensors
    must be within twice eager's error, three quarters within eight times. A step of float32 is free. ``others``: more
    of eager's draws, each with what is exact, of inputs that differ in the last bit; then its largest error counts.
    """
    draws = [(exact, eager), *others]
    for part, name in enumerate(("outputs", "gradients", "state")[: len(exact)]):
        ratios = []
        for n, (truth, a) in enumerate(zip(exact[part], ours[part])):
            if truth is None or not truth.is_floating_point():
                continue
            free, error = 1e-6 * _size(truth) + 1e-12, _error(a, truth)
            allowed = max(_error(theirs[part][n], truths[part][n]) for truths, theirs in draws)
            if math.isnan(error):
                return f"{name} {n}: of another shape, or not finite at the same places as in float64"
            ratios.append(error / (allowed + free))
        if len(ratios) < 2:
            ratios *= 2
        half, most = statistics.quantiles(ratios, n=4)[1:] if ratios else (0.0, 0.0)
        if half > 2 or most > 8:
            return f"{name}: half of the errors are over {half:.2g} times eager's, a quarter over {most:.2g} times"
    return ""


def _size(x: torch.Tensor) -> float:
    return x.double().nan_to_num(0, 0, 0).square().mean().sqrt().item() if x.numel() else 0.0


def _error(got: torch.Tensor, truth: torch.Tensor) -> float:
    """Root mean square; NaN where one is finite and the other is not."""
    if got.shape != truth.shape or not torch.equal(got.isfinite(), truth.isfinite()):
        return float("nan")
    return _size(got.double() - truth)


def first_difference(mine: Any, theirs: Any) -> str:
    parts = zip(("outputs", "gradients"), mine, theirs)
    return next((d for part, a, b in parts if (d := _difference(a, b, part))), "")


def _told_compiling(step: Step, model: torch.nn.Module, before: dict[str, torch.Tensor]) -> Any:
    """What eager gives when the library's questions are answered as for any compiler."""
    for k, v in before.items():
        model.state_dict()[k].copy_(v)
    with mock.patch("torch.compiler.is_compiling", lambda: True):
        try:
            return step(model)
        except Exception:
            return [], []


def _changes(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> bool:
    return any(not torch.equal(v, after[k]) for k, v in before.items())


def _difference(ours: list[Any], theirs: list[Any], part: str) -> str:
    if len(ours) != len(theirs):
        return f"{len(ours)} {part} instead of {len(theirs)}"
    for n, (a, b) in enumerate(zip(ours, theirs)):
        if (a is None) != (b is None):
            return f"{part} {n} is None in one"
        if a is None:
            continue
        try:
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4, equal_nan=True)
        except AssertionError as error:
            return f"{part} {n}: {str(error)[:300]}"
    return ""
