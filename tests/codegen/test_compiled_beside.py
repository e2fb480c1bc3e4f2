"""The C compiler works beside the rest of the pipeline, and its errors stay where they were."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.complaints import complains

import torchglass as tg
from torchglass.runtime import guards, load
from torchglass.runtime.toolchain import ToolchainError


def test_guards_are_built_while_the_c_compiler_works(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_c, build_table = load.compile_c, guards.build_table
    built, waited = threading.Event(), []

    def slow(source: Path, *parts: int) -> Path:
        waited.append(built.wait(30))
        return compile_c(source, *parts)

    def noted(*arguments: Any) -> Any:
        built.set()
        return build_table(*arguments)

    monkeypatch.setattr(load, "compile_c", slow)
    monkeypatch.setattr(guards, "build_table", noted)
    x = torch.randn(5)
    assert torch.equal(tg.compile(lambda x: x * 2 + 1, fullgraph=True)(x), x * 2 + 1)
    assert waited[0]


def test_a_compiler_that_fails_beside_is_told_of_where_the_kernels_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: Any) -> Any:
        raise ToolchainError("no room")

    monkeypatch.setattr(load, "compile_c", failing)
    x = torch.randn(5, requires_grad=True)
    compiled = tg.compile(lambda x: (x.sin() * 2).sum(), fullgraph=True)
    with complains("with ATen: no room"):
        (gradient,) = torch.autograd.grad(compiled(x), x)
    torch.testing.assert_close(gradient, 2 * x.detach().cos())
