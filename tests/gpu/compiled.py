"""Compile with ``tg.compile``, call on a GPU, compare with eager there. Nothing may run eagerly, no graph with ATen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchglass as tg

DEVICE = "cuda"
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def make(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0, grad: bool = False) -> torch.Tensor:
    """Normal numbers on the GPU."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    return torch.randn(shape, device=DEVICE, generator=generator).to(dtype).requires_grad_(grad)


def tensors(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def alike(want: Any, got: Any, tol: float | None = None) -> None:
    """Values, dtypes, devices, shapes and strides. ``tol`` is also relative to a tensor's largest value, since sums of
    either sign end near 0.
    """
    for a, b in zip(tensors(want), tensors(got), strict=True):
        assert (a is None) == (b is None)
        if a is None:
            continue
        bounds = {}
        if tol is not None and a.numel():
            bounds = {"rtol": tol, "atol": tol * max(1.0, float(a.detach().abs().nan_to_num(0, 0, 0).max()))}
        torch.testing.assert_close(b, a, equal_nan=True, **bounds)
        if a.numel():
            assert moving(b) == moving(a)


def moving(x: torch.Tensor) -> list[int]:
    """The strides that matter."""
    return [step for step, size in zip(x.stride(), x.shape) if size > 1]


def generated(compiled: Any, kernels: bool = True) -> set[str]:
    """The languages of a compiled function's kernels, after a look that compiled code ran and no stage gave up."""
    report = tg.explain(compiled)
    assert report.graphs(), "nothing was compiled"
    reasons = [fallback.reason for function in report.record.walk() for fallback in function.fallbacks]
    reasons += [reason for graph in report.graphs() for reason in graph.fallbacks.values()]
    assert not reasons, reasons
    languages = {kernel.language for kernel in report.kernels()}
    assert not kernels or "triton" in languages, languages
    return languages


def check(fn: Callable[..., Any], *args: Any, tol: float | None = None, kernels: bool = True) -> Any:
    """Outputs, and where inputs ask for one their gradients, like eager's; called twice. What was compiled."""
    tg.reset()
    compiled = tg.compile(fn, fullgraph=True)
    for _ in range(2):
        alike(outcome(fn, args), outcome(compiled, args), tol)
    generated(compiled, kernels)
    return compiled


def outcome(fn: Callable[..., Any], args: tuple[Any, ...]) -> list[Any]:
    """Outputs and the inputs' gradients from one seed."""
    torch.manual_seed(0)
    leaves = [x for x in args if isinstance(x, torch.Tensor) and x.requires_grad]
    out = tensors(fn(*args))
    ends = [o for o in out if o.requires_grad]
    if not leaves or not ends:
        return out
    weights = [torch.linspace(-1, 1, o.numel(), device=o.device).view(o.shape).to(o.dtype) for o in ends]
    return [o.detach() for o in out] + list(torch.autograd.grad(ends, leaves, weights, allow_unused=True))


def train(model: torch.nn.Module, step: Callable[[Any], torch.Tensor], tol: float | None = None) -> Any:
    """Loss, gradients and buffers after ``step(compiled)`` and backward like those after ``step(model)``, twice."""
    tg.reset()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    compiled = tg.compile(model, fullgraph=True)
    for _ in range(2):
        results = []
        for call in (model, compiled):
            model.load_state_dict(before)
            model.zero_grad(set_to_none=True)
            torch.manual_seed(0)
            loss = step(call)
            loss.backward()
            results.append(
                [loss.detach(), *(p.grad for p in model.parameters()), *(b.clone() for b in model.buffers())]
            )
        alike(*results, tol)
    generated(compiled)
    return compiled
