"""The table of strategies: what it refuses, its order, and what forward.loops says of those that do not apply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from torchglass import lower
from torchglass.lower import strategies
from torchglass.lower.strategies import graph_strategy, loop_strategy, strategies_of, strategy
from torchglass.lower.table import NotLowered
from torchglass.records.loops import ExternCall, LoopGraph
from torchglass.records.target import Cpu, Gpu, Targets

aten = torch.ops.aten
Tensor = torch.Tensor


def lowered(fn: Callable[..., Any], args: list[Tensor], cpu: Cpu | Gpu, **more: Any) -> LoopGraph:
    return lower.run(make_fx(fn, tracing_mode="fake")(*args), Targets(cpu), **more)


def calls(graph: LoopGraph) -> list[str]:
    return [node.target.removeprefix("torch.ops.aten.") for node in graph.nodes if isinstance(node, ExternCall)]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test enters is gone after it."""
    monkeypatch.setattr(strategies, "STRATEGIES", {key: dict(row) for key, row in strategies.STRATEGIES.items()})
    kinds = {kind: dict(row) for kind, row in strategies.GRAPH_STRATEGIES.items()}
    monkeypatch.setattr(strategies, "GRAPH_STRATEGIES", kinds)
    of_loops = {kind: dict(row) for kind, row in strategies.LOOP_STRATEGIES.items()}
    monkeypatch.setattr(strategies, "LOOP_STRATEGIES", of_loops)


@pytest.mark.usefixtures("table")
def test_entries_are_checked() -> None:
    with pytest.raises(KeyError, match="is no operator"):
        strategy(Cpu, aten.mm, rank=7)(lambda *args: None)
    with pytest.raises(KeyError, match=r"aten\.mm\.default have a strategy of rank 1 already: onednn_product"):
        strategy(Cpu, aten.mm.default, rank=1)(lambda *args: None)
    with pytest.raises(KeyError, match="graphs on Cpu have a strategy of rank 0 already"):
        graph_strategy(Cpu, rank=0)(lambda *args: args[:2])
    with pytest.raises(KeyError, match="loops on Gpu have a strategy of rank 1 already: pad_products"):
        loop_strategy(Gpu, rank=1)(lambda *args: args[0])


@pytest.mark.usefixtures("table")
def test_loops_are_rewritten_once_for_a_target() -> None:
    """With the devices that it stands for."""
    seen: list[Any] = []

    def looks(graph: LoopGraph, cpu: Cpu, devices: Any, request: Any) -> LoopGraph:
        seen.append((cpu, devices, request.returned))
        return graph

    loop_strategy(Cpu, rank=0)(looks)
    lowered(lambda x: x + 1, [torch.randn(3)], Cpu(), returned=1)
    assert seen == [(Cpu(), {"cpu"}, 1)]


def test_the_order() -> None:
    names = [found.__name__ for found in strategies_of(Cpu(), aten.addmm.default)]
    assert names == ["packed_weight", "onednn_product", "bias_by_loops"]
    assert [found.__name__ for found in strategies_of(Gpu(), aten.addmm.default)] == ["small_product"]
    assert strategies_of(None, aten.addmm.default) == []


@pytest.mark.usefixtures("table")
def test_what_is_passed_over_leaves_nothing_behind() -> None:
    """A strategy that gives up, or fails, when it has made loops."""

    def gives_up(low: Any, cpu: Any, node: Any, args: Any, kwargs: Any) -> Any:
        low.map(lambda x: x + 1, [args[0]], name="half_made")
        raise NotLowered("the moon is full")

    strategy(Cpu, aten.mm.default, rank=-1)(gives_up)
    graph = lowered(lambda x: (x @ x) @ x, [torch.randn(4, 4)], Cpu())
    assert "half_made" not in str(graph) and calls(graph) == ["mm.out", "mm.out"]
    assert "no gives_up (2): the moon is full" in graph.notes


PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], Cpu, list[str], str]] = {
    "small products": (
        lambda x, y: x @ y, [(8, 16), (16, 8)], Cpu(onednn_multiplies=True), ["mm.out"],
        "no onednn_product (1): a vector, or fewer than 1500000 multiplications",
    ),
    "large products": (
        lambda x, y: x @ y, [(128, 128), (128, 128)], Cpu(onednn_multiplies=True),
        ["torch.ops.mkldnn._linear_pointwise.default"], "",
    ),
    "on Intel's": (
        lambda x, y: x @ y, [(128, 128), (128, 128)], Cpu(), ["mm.out"],
        "no onednn_product (1): what PyTorch calls is as fast on this processor",
    ),
    "a bias that is returned": (
        lambda b, x, y: torch.addmm(b, x, y), [(8,), (8, 16), (16, 8)], Cpu(), ["addmm.out"],
        "no bias_by_loops (1): not loops alone read the result",
    ),
    "attention without AVX-512": (
        lambda q: F.scaled_dot_product_attention(q, q, q), [(1, 2, 40, 16)], Cpu(vector_bits=256),
        ["_scaled_dot_product_flash_attention_for_cpu.default"], "no attention_in_cache (1): no AVX-512",
    ),
    "attention with it": (
        lambda q: F.scaled_dot_product_attention(q, q, q), [(1, 2, 40, 16)], Cpu(vector_bits=512), ["attention"], "",
    ),
    "of few queries": (
        lambda q: F.scaled_dot_product_attention(q, q, q), [(1, 2, 20, 16)], Cpu(vector_bits=512),
        ["_scaled_dot_product_flash_attention_for_cpu.default"], "no attention_in_cache (1): fewer than 32 queries",
    ),
    "many parts": (
        lambda x: torch.cat([x] * 9), [(2,)], Cpu(), ["cat.default"],
        "aten.cat stays a call (1): many parts: a copy each by ATen is as fast",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_why_not(name: str) -> None:
    fn, shapes, cpu, expected, note = PROGRAMS[name]
    graph = lowered(fn, [torch.randn(shape) for shape in shapes], cpu)
    assert calls(graph) == expected
    assert [line for line in graph.notes if line.startswith(("no ", "aten."))][-1:] == ([note] if note else [])


def test_tuned_numbers_are_the_targets() -> None:
    cpu = Cpu(onednn_multiplies=True)
    few = replace(cpu, lowering=replace(cpu.lowering, onednn_multiplications=100, joined_parts=1))
    x = torch.randn(8, 16)
    assert calls(lowered(lambda x: x @ x.t(), [x], few)) == ["torch.ops.mkldnn._linear_pointwise.default"]
    assert calls(lowered(lambda x: torch.cat([x, x]), [x], few)) == ["cat.default"]
    assert calls(lowered(lambda x: torch.cat([x, x]), [x], cpu)) == []


def test_nothing_of_a_cpus_for_a_gpu() -> None:
    args = [torch.randn(64), torch.randn(256, 128), torch.randn(128, 64)]
    graph = lowered(lambda b, x, y: torch.addmm(b, x, y).relu(), args, Gpu())
    assert calls(graph) == ["addmm.out"] and graph.notes == ()
