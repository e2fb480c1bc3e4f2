"""Compile a function's ATen graph with the C code generator and compare it with eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from torchglass import codegen, fuse, lower, schedule
from torchglass.records.extern_targets import JOIN
from torchglass.records.kernels import FusedGraph
from torchglass.records.target import Targets
from torchglass.runtime import machine
from torchglass.runtime.load import Building, load


class Compiled:
    """A function through lower, fuse, codegen and load; ``fused`` and ``call`` to look at."""

    def __init__(
        self, fn: Callable[..., Any], args: Sequence[torch.Tensor], folder: Path, targets: Targets | None = None
    ) -> None:
        targets = targets or machine.targets()
        plain = lambda *a: fn(*a)
        trains = getattr(fn, "trains", False)  # functorch's functionalization and autograd.grad do not go together
        graph = make_fx(plain if trains else torch.func.functionalize(plain), tracing_mode="fake")(*args)
        self.graph = lower.run(graph, targets)
        self.fused: FusedGraph = fuse.run(self.graph, targets)
        self.sources = codegen.run(schedule.run(self.fused, targets), targets)
        (folder / "forward_kernels.c").write_text(self.sources.texts["c"])
        (folder / "forward_wrapper.py").write_text(self.sources.wrapper_text)
        self.call = load(folder / "forward_wrapper.py", [Building(folder / "forward_kernels.c")])

    @property
    def externs(self) -> list[str]:
        return [s.target for s in self.fused.steps if hasattr(s, "target") and s.target != JOIN]


def tensors(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def check(
    fn: Callable[..., Any],
    args: Sequence[torch.Tensor],
    folder: Path,
    *,
    loops_only: bool = False,
    tol: float | None = None,
) -> Compiled:
    """Compile, run, compare values, dtypes, shapes and strides with eager. ``loops_only``: no ATen call may remain."""
    compiled = Compiled(fn, args, folder)
    if loops_only:
        assert not compiled.externs, compiled.externs
    for want, got in zip(tensors(fn(*args)), compiled.call(list(args)), strict=True):
        compare(want, got, tol)
    return compiled


def compare(want: Any, got: Any, tol: float | None = None) -> None:
    if not isinstance(want, torch.Tensor):
        assert want == got
        return
    assert got.dtype == want.dtype and got.shape == want.shape
    if want.numel():
        moving = [k for k, d in enumerate(want.shape) if d > 1]
        assert [got.stride(k) for k in moving] == [want.stride(k) for k in moving]
    bounds = {} if tol is None else {"rtol": tol, "atol": tol}
    torch.testing.assert_close(got, want.detach(), equal_nan=True, **bounds)
