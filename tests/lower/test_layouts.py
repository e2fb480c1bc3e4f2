"""Results lie in memory as eager's do, also where an operator's meta function says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.complaints import complains
from torch.utils._pytree import tree_leaves

import torchglass as tg
from torchglass import codegen
from torchglass.records.target import Cpu, Targets
from torchglass.runtime import machine

Tensor = torch.Tensor
OF_TWO = [
    torch.copysign, torch.heaviside, torch.logaddexp, torch.logaddexp2, torch.logical_and, torch.logical_or,
    torch.logical_xor, torch.special.xlog1py, torch.xlogy, torch.add, torch.eq, torch.maximum, torch.atan2, torch.fmod,
]  # fmt: skip


@pytest.mark.parametrize("function", [lambda x, y: tuple(f(x, y) for f in OF_TWO)])
def test_functions_of_two_tensors(function: Callable[..., Tensor]) -> None:
    turned = torch.rand(3, 4, 7).permute(1, 2, 0)
    compiled = tg.compile(function, fullgraph=True)
    for x, y in (
        (turned, turned.contiguous()),
        (torch.rand(()), turned),
        (torch.rand(1), turned),
        (turned, turned[:1]),
    ):
        for theirs, ours in zip(function(x, y), compiled(x, y), strict=True):
            assert ours.stride() == theirs.stride()
            torch.testing.assert_close(ours, theirs)


def test_unpooling_keeps_channels_last() -> None:
    x = torch.rand(2, 3, 8, 8).to(memory_format=torch.channels_last)

    def fn(x: Tensor) -> Tensor:
        return F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)

    ours, theirs = tg.compile(fn, fullgraph=True)(x), fn(x)
    assert ours.stride() == theirs.stride()
    assert torch.equal(ours, theirs)


def test_negative_numbers_as_bytes() -> None:
    """C leaves the conversion open; eager wraps."""
    x = torch.tensor([-2.0, -300.5, 3.7, 255.0, 256.0, -0.5] * 7)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        fn = lambda x: (x.to(torch.uint8), (x * 2).byte())
        for theirs, ours in zip(fn(x.to(dtype)), tg.compile(fn)(x.to(dtype)), strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_extremes_of_rounded_values_are_found_again(dtype: torch.dtype) -> None:
    """Backward compares values computed anew with the extremum that was stored: both must be rounded alike."""
    x = torch.randn(5, 33, generator=torch.Generator().manual_seed(0)).to(dtype)

    def fn(x: Tensor) -> tuple[Tensor, ...]:
        y = torch.atan(x)
        return y.amin(1), y.amax(0), y.amax(), torch.maximum(y, y.amax(1, keepdim=True)), y.argmax(1), y.max(1)[1]

    found = []
    for call in (fn, tg.compile(fn, fullgraph=True)):
        leaf = x.clone().requires_grad_()
        outputs = call(leaf)
        total = sum(o.float().sum() for o in outputs[:4])
        found.append((*outputs, *torch.autograd.grad(total, leaf)))
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_functions_that_jump_see_rounded_values(dtype: torch.dtype) -> None:
    """Numbers just below 1 are 1 in half precision, and large ones infinite, also where they stay in registers."""
    x = torch.tensor([-3.0, -2.9, -0.3, 0.0, 0.1, 2.9, 3.0, 300.0]).to(dtype)

    def fn(x: Tensor) -> tuple[Any, ...]:
        y, huge = torch.erf(x), x * x * x * 1e30 if dtype is torch.bfloat16 else x * x
        return (
            torch.fmod(y, 0.5), torch.remainder(y, 0.5), y // 0.5, y.floor(), y.ceil(), y.round(), y.trunc(), y.frac(),
            y.long(), huge.isinf(), huge.isposinf(), (y - y * 1).sign(),
        )  # fmt: skip

    for k, (theirs, ours) in enumerate(zip(fn(x), tg.compile(fn, fullgraph=True)(x), strict=True)):
        assert torch.equal(ours, theirs), k


# -- images channels last between convolutions -----------------------------------------------------------------------
W = {
    f"w{c}{k}": torch.randn(8, c, k, k, generator=torch.Generator().manual_seed(1)) / 8 for c in (8, 16) for k in (1, 3)
}
CHAINS: dict[str, Callable[[Tensor], Tensor | tuple[Tensor, ...]]] = {
    "relu": lambda x: F.conv2d(F.conv2d(x, W["w83"], padding=1).relu(), W["w83"], padding=1),
    "value between": lambda x: (y := F.conv2d(x, W["w83"]).relu(), F.conv2d(y, W["w83"]).sigmoid()),
    "batch norm": lambda x: F.conv2d(
        F.batch_norm(F.conv2d(x, W["w83"]), None, None, training=True).relu(), W["w83"]
    ),
    "group norm": lambda x: F.conv2d(F.silu(F.group_norm(F.conv2d(x, W["w83"]), 2, W["w81"][:, 0, 0, 0])), W["w83"]),
    "groups of one": lambda x: F.conv2d(F.group_norm(F.conv2d(x, W["w83"]), 8), W["w83"]),
    "pools": lambda x: F.conv2d(F.avg_pool2d(F.max_pool2d(F.conv2d(x, W["w83"]), 2), 3, 1, 1), W["w83"]).mean((2, 3)),
    "overlapping pool": lambda x: F.conv2d(F.max_pool2d(F.conv2d(x, W["w83"]), 3, 2, 1), W["w83"]),
    "resizes": lambda x: F.conv2d(
        F.interpolate(F.interpolate(F.conv2d(x, W["w83"]), scale_factor=2), scale_factor=2, mode="bilinear"), W["w83"]
    ),
    "skips": lambda x: F.conv2d(
        torch.cat([F.interpolate(F.conv2d(F.max_pool2d(x.sin(), 2), W["w81"]), scale_factor=2), x.sin()], 1), W["w163"]
    ),
    "parts": lambda x: torch.cat([F.conv2d(p, W["w83"][:, :4]) for p in F.conv2d(x, W["w83"]).chunk(2, 1)], 1),
    "flattened": lambda x: F.conv2d(F.conv2d(x, W["w83"]).tanh(), W["w83"]).flatten(1) * 2,
    "permuted": lambda x: F.layer_norm(
        F.conv2d(F.conv2d(x, W["w83"]), W["w83"]).permute(0, 2, 3, 1), (8,)
    ).reshape(-1, 8).softmax(-1),
    "padded": lambda x: F.conv2d(F.pad(F.conv2d(x, W["w83"]), (1, 1, 1, 1)), W["w83"]),
    "broadcast": lambda x: F.conv2d(y := F.conv2d(x, W["w83"]), W["w83"]).sum() + (y * y.mean((2, 3), keepdim=True)),
    "depthwise": lambda x: F.conv2d(F.gelu(F.conv2d(x, W["w83"][:, :1], groups=8)), W["w81"]),
    "transposed": lambda x: F.conv2d(F.conv_transpose2d(x, W["w83"], stride=2), W["w83"]),
}  # fmt: skip


def compile_for(monkeypatch: pytest.MonkeyPatch, **processor: Any) -> None:
    """This machine, where images always lie channels last between convolutions, and what else is said of it."""
    cpu = machine.targets().cpu
    assert isinstance(cpu, Cpu)
    target = replace(cpu, lowering=replace(cpu.lowering, layout_gain=0), **processor)
    monkeypatch.setattr(machine, "targets", lambda threads=None: Targets(target))


def both_ways(fn: Callable[..., Any], x: Tensor) -> list[tuple[Tensor, ...]]:
    """Results and gradient of eager and ours, and our results under no_grad."""
    found = []
    compiled = tg.compile(fn, fullgraph=True)
    for call in (fn, compiled):
        leaf = x.clone().requires_grad_()
        outputs = call(leaf)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        weights = [torch.randn(o.shape, generator=torch.Generator().manual_seed(2)) for o in outputs]
        gradient = torch.autograd.grad(sum((o * w).sum() for o, w in zip(outputs, weights)), leaf)
        with torch.no_grad():
            plain = call(x)
        found.append((*outputs, *gradient, *(plain if isinstance(plain, tuple) else (plain,))))
    return found


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("last", [False, True])
def test_convolutions_one_after_the_other(name: str, last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_for(monkeypatch)
    x = torch.randn(2, 8, 12, 20, generator=torch.Generator().manual_seed(0))
    theirs, ours = both_ways(CHAINS[name], x.to(memory_format=torch.channels_last) if last else x)
    for a, b in zip(theirs, ours, strict=True):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


LONG: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "plain": ((96, 64, 3, 3), {"padding": 1}),
    "biased": ((64, 96, 3, 3), {"bias": torch.linspace(-1, 1, 64)}),
    "strided": ((96, 96, 3, 3), {"stride": 2, "padding": (1, 0), "dilation": (1, 2)}),
    "even": ((64, 64, 4, 2), {"stride": (3, 2), "padding": 1}),
    "pointwise": ((1024, 512, 1, 1), {}),
    "odd channels": ((40, 70, 3, 3), {"padding": 1}),
}
"""Weights' shapes and geometries of convolutions that add up many numbers."""


@pytest.mark.parametrize("name", LONG)
def test_long_sums_are_as_exact_as_eagers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images channels last, whose channels oneDNN adds up in one chain."""
    compile_for(monkeypatch, vector_bits=512)
    (outs, channels, *window), geometry = LONG[name]
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(outs, channels, *window, generator=draw)
    back = torch.randn(channels, outs, 1, 1, generator=draw)

    def fn(x: Tensor, weight: Tensor, back: Tensor) -> Tensor:
        bias = geometry.get("bias")
        more = {**geometry, "bias": None if bias is None else bias.to(x.dtype)}
        return F.conv2d(F.conv2d(x, weight, **more).tanh(), back)

    compiled = tg.compile(fn, fullgraph=True)

    def results(call: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor]:
        leaves = [
            t.to(dtype).requires_grad_()
            for t in (torch.randn(2, channels, 23, 24, generator=torch.Generator().manual_seed(1)), weight, back)
        ]
        out = call(*leaves)
        return [out.detach(), *torch.autograd.grad(out.square().sum(), leaves)]

    for exact, eager, ours in zip(
        results(fn, torch.float64), results(fn, torch.float32), results(compiled, torch.float32), strict=True
    ):
        assert [s for s, d in zip(ours.stride(), ours.shape) if d > 1] == [
            s for s, d in zip(eager.stride(), eager.shape) if d > 1
        ]
        assert (ours - exact).norm() <= 2 * (eager - exact).norm() + 1e-7 * exact.norm()
    (graph,) = tg.explain(compiled).graphs()
    calls = [node for node in graph.fused["forward"].graph.nodes if getattr(node, "args", None)]
    assert any(node.args[-1] > 1 for node in calls if "convolution" in node.target) == (name != "odd channels")


def notes(compiled: Any) -> str:
    (graph,) = tg.explain(compiled).graphs()
    return " ".join(note for fused in graph.fused.values() for note in fused.graph.notes)


@torch.no_grad()
def test_where_images_are_laid_out_anew() -> None:
    """Between convolutions; not around a single one, nor for weights larger than the images."""
    small, large = torch.randn(2, 8, 32, 32), torch.randn(512, 512, 3, 3)
    for fn, x, expected in (
        (
            lambda x: F.conv2d(F.conv2d(x, large[:64, :8]).relu(), W["w83"].repeat(1, 8, 1, 1)),
            small,
            "last: 2 convolutions",
        ),
        (lambda x: F.conv2d(x, W["w83"]), small, "images stay as they are"),
        (lambda x: F.conv2d(F.conv2d(x, large).relu(), large), torch.randn(1, 512, 7, 7), ""),
        (lambda x: x * 2, small, ""),
    ):
        compiled = tg.compile(fn, fullgraph=True)
        torch.testing.assert_close(compiled(x), fn(x), rtol=1e-3, atol=1e-3)
        assert expected in notes(compiled) and bool(expected) == bool(notes(compiled))


def test_a_backward_run_by_aten_gets_what_it_was_traced_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saved channels last by the forward, viewed in a way that only eager's layout allows."""
    compile_for(monkeypatch)
    generate = codegen.run

    def run(scheduled: Any, *more: Any) -> Any:
        if scheduled.fused.graph.name != "forward":
            raise RuntimeError("no backward today")
        return generate(scheduled, *more)

    monkeypatch.setattr(codegen, "run", run)

    def fn(x: Tensor) -> Tensor:
        return F.conv2d(F.silu(F.conv2d(x, W["w83"])), W["w83"]).sin().flatten(1).softmax(1)

    with complains("no backward today"):
        theirs, ours = both_ways(fn, torch.randn(2, 8, 12, 20, generator=torch.Generator().manual_seed(0)))
    for a, b in zip(theirs, ours, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_images_of_one_row_taken_apart() -> None:
    """A row of channels last has no view whose rows mix channels and places."""
    conv = torch.nn.Conv2d(1, 8, 3)

    def fn(x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(conv(x), (1, 3)).reshape(x.size(0), 6, 4) * 2

    x = torch.rand(4, 1, 9, 9)
    torch.testing.assert_close(tg.compile(fn)(x), fn(x))


def test_repeated_numbers_that_a_call_is_given_lie_as_in_eager() -> None:
    """Random numbers are drawn in the order of memory."""

    def draws(x: Tensor) -> Any:
        gaps = torch.zeros(6, 30)
        gaps[:, ::2].t().uniform_()
        drawn = torch.zeros(30, 6).t().exponential_(), torch.randn_like(torch.ones(30, 6).t()), gaps
        return *drawn, torch.full((4, 1), 0.5).expand(4, 7).bernoulli(), torch.sort(torch.ones(30, 6).t()), x + 1

    results = []
    for function in (tg.compile(draws, fullgraph=True), draws):
        torch.manual_seed(0)
        results.append([*tree_leaves(function(torch.ones(3))), torch.get_rng_state()])
    for ours, eager in zip(*results, strict=True):
        assert torch.equal(ours, eager) and ours.stride() == eager.stride()
