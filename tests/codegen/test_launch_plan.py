"""The plan of a graph's calls, row by row; and graphs on several devices, printed for each and run by one wrapper.

Tensors that are said to be on a GPU are fake ones, or lie on the CPU: there kernels run through ``triton_on_torch``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.codegen import triton_on_torch
from tests.codegen.harness import compare, tensors
from tests.codegen.test_graphs import make
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchglass import codegen, fuse, graph_pipeline, lower, schedule, torch_compat
from torchglass.codegen.wrapper import ROWS, prints
from torchglass.options import CompileOptions
from torchglass.records import launch
from torchglass.records.kernels import Allocate, FusedGraph, FusedKernel, KernelSources
from torchglass.records.launch import Launch, LaunchGroup
from torchglass.records.loops import Access, Buffer, Compute, Load, Loop, LoopGraph, Reduce, Store, View
from torchglass.records.sizes import Symbol
from torchglass.records.target import Cpu, Gpu, Targets

BOTH = Targets(Cpu(), Gpu())
Device = str | None


@pytest.fixture(autouse=True)
def products_by_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which write into the graph's memory; oneDNN's, on some processors, bring their own."""
    monkeypatch.setattr(torch_compat.onednn, "_mkl_is_slow", lambda: False)


def traced(
    fn: Callable[..., Any], args: Sequence[torch.Tensor], devices: Sequence[Device] = ()
) -> torch.fx.GraphModule:
    """The graph of a function whose arguments are said to be on ``devices``."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        named = [*devices, *(None for _ in args[len(devices) :])]
        fakes = [
            torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device or "cpu")
            for x, device in zip(args, named, strict=True)
        ]
        return make_fx(torch.func.functionalize(fn))(*fakes)


def printed(
    fn: Callable[..., Any], args: Sequence[torch.Tensor], devices: Sequence[Device] = (), targets: Targets = BOTH
) -> KernelSources:
    loops = lower.run(traced(fn, args, devices), targets)
    return codegen.run(schedule.run(fuse.run(loops, targets), targets), targets)


def rows(sources: KernelSources) -> str:
    """The plan's rows, but for the points of kernels."""
    plan = sources.plan
    plain = [replace(row, points=()) if isinstance(row, Launch) else row for row in plan.rows]
    return "\n".join(map(str, (*plan.head, *plain)))


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., KernelSources]:
    """Print for the devices, run with all tensors on the CPU, compare with eager."""

    def run(
        fn: Callable[..., Any], args: Sequence[torch.Tensor], devices: Sequence[Device] = (), targets: Targets = BOTH
    ) -> KernelSources:
        sources = printed(fn, args, devices, targets)
        call = triton_on_torch.loaded(sources, tmp_path, monkeypatch)
        for want, got in zip(tensors(fn(*args)), call(list(args)), strict=True):
            compare(want, got, 1e-5)
        return sources

    return run


# -- rows ------------------------------------------------------------------------------------------------------------
def test_every_row_has_a_printer() -> None:
    kinds = {getattr(launch, name) for union in (launch.Head, launch.Row) for name in union.split(" | ")}
    assert ROWS.keys() == kinds
    with pytest.raises(ValueError, match="Alloc'>: entered already"):
        prints(launch.Alloc)(lambda plan, row: [])


PLANS: dict[str, tuple[Callable[..., Any], list[torch.Tensor], str]] = {
    "a product, and a kernel in its memory": (
        lambda x, w: (x @ w.t()).relu(),
        [make(4, 8), make(6, 8)],
        """\
alloc mm: float32[4, 6] strides [6, 1]
call torch.mm(x_1, w_1[8, 6]@[1, 8]+its offset + 0) out mm  # mm
release x_1, w_1
alias relu = mm  # written over it
launch kernel_0(mm, relu)  # relu
return relu""",
    ),
    "memory of what died a step ago": (
        lambda x, w: x @ w @ w @ w,
        [make(4, 4), make(4, 4)],
        """\
alloc mm: float32[4, 4] strides [4, 1]
call torch.mm(x_1, w_1) out mm  # mm
release x_1
alloc mm_1: float32[4, 4] strides [4, 1]
call torch.mm(mm, w_1) out mm_1  # mm
alias mm_2 = mm  # its memory, reused
call torch.mm(mm_1, w_1) out mm_2  # mm
return mm_2""",
    ),
    "small kernels in one call": (
        lambda x, y: (x * 2, y * 2),
        [make(3), make(5)],
        """\
alloc mul: float32[3] strides [1]
alloc mul_1: float32[5] strides [1]
group kernel_group_0: kernel_0(x_1, mul), kernel_1(y_1, mul_1)
return mul, mul_1""",
    ),
    "an index that may be out of range": (
        lambda x, i: x[i] + 1,
        [make(4, 3), torch.tensor([1, 2])],
        """\
alloc add: float32[2, 3] strides [3, 1]
launch kernel_0(i_1, x_1, add)  # index, add
check failures
return add""",
    ),
    "no index": (
        lambda x, i: x[i],
        [make(4, 3), torch.zeros(0, dtype=torch.int64)],
        """\
alloc index: float32[0, 3] strides [3, 1]
launch kernel_0(i_1, x_1, index)  # index
return index""",
    ),
    "several results, of which one is read": (
        lambda x: torch.topk(x, 2)[0].t() * 2,
        [make(4, 3)],
        """\
call topk_0, topk_1 = aten_topk(x_1, 2)  # topk
ensure layout topk_0: float32[4, 2] strides [2, 1]
release x_1, topk_1
alloc mul: float32[2, 4] strides [1, 2]
launch kernel_0(topk_0, mul)  # mul
return mul""",
    ),
    "parts of a whole": (
        lambda x, y: torch.cat([x.exp(), y @ y]),
        [make(2, 2), make(2, 2)],
        """\
alloc mm: float32[2, 2] strides [2, 1]
call torch.mm(y_1, y_1) out mm  # mm
release y_1
alloc cat: float32[4, 2] strides [2, 1]
alias cat_part_0 = cat[2, 2]@[2, 1]+0  # a part of it
launch kernel_0(x_1, cat_part_0)  # exp, cat
release x_1
alias cat_part_1 = cat[2, 2]@[2, 1]+4  # a part of it
launch kernel_1(mm, cat_part_1)  # cat
release mm
return cat""",
    ),
    "nothing to compute": (lambda x: (x, x.t()), [make(2, 3)], "return x_1, x_1[3, 2]@[1, 3]+its offset + 0"),
}


@pytest.mark.parametrize("name", PLANS)
def test_rows(name: str, check: Callable[..., KernelSources]) -> None:
    fn, args, expected = PLANS[name]
    sources = check(fn, args)
    assert rows(sources) == expected
    assert sources.texts.keys() == {"c"} and "cuda" not in sources.wrapper_text


# -- devices ---------------------------------------------------------------------------------------------------------
def to_and_fro(a: torch.Tensor, b: torch.Tensor, scale: torch.Tensor) -> Any:
    """``a`` is on a GPU, the others are not: a copy there, one back in another dtype, and a number of the CPU."""
    there = ((b * 3).to(a.device) + a) * scale
    return there, there.t().to(b.device, torch.float64).sin()


INPUTS = [make(4, 5), make(4, 5, seed=1), make()]
TO_AND_FRO = """\
device gpu is that of a_1
alloc mul: float32[4, 5] strides [5, 1]
launch kernel_0(b_1, mul)  # mul
release b_1
alloc _to_copy: float32[4, 5] strides [5, 1] on cuda:0
copy mul to _to_copy  # _to_copy
release mul
alloc mul_1: float32[4, 5] strides [5, 1] on cuda:0
alloc scale_1_on_gpu: float32[] strides [] on cuda:0
copy scale_1 to scale_1_on_gpu
launch kernel_1(_to_copy, a_1, scale_1_on_gpu, mul_1)  # add, mul
release _to_copy, a_1, scale_1
alloc _to_copy_1: float64[5, 4] strides [1, 5]
copy mul_1[5, 4]@[1, 5]+0 to _to_copy_1  # _to_copy
alloc sin: float64[5, 4] strides [1, 5]
launch kernel_2(_to_copy_1, sin)  # sin
return mul_1, sin"""


def test_a_graph_on_two_devices(check: Callable[..., KernelSources]) -> None:
    """Kernels in the language of their device, memory on it, which another device does not take over, and copies."""
    sources = check(to_and_fro, INPUTS, ["cuda:0"])
    assert rows(sources) == TO_AND_FRO
    assert sources.plan.kernels == {"c": ("kernel_0", "kernel_2"), "triton": ("kernel_1",)}
    assert [kernel.language for kernel in sources.kernels] == ["c", "c", "triton"]


@pytest.mark.skipif(torch.cuda.device_count() == 1, reason="fake tensors of a second GPU want one beside a first")
def test_two_gpus(check: Callable[..., KernelSources]) -> None:
    """Kernels are started where their memory is, whichever is current."""

    def fn(a: torch.Tensor, b: torch.Tensor) -> Any:
        return a.sin(), a.to(b.device) * b

    sources = check(fn, [make(4), make(4, seed=1)], ["cuda:0", "cuda:1"])
    assert sources.plan.devices == {"cuda:0": "gpu", "cuda:1": "gpu_1"}
    assert "alloc _to_copy: float32[4] strides [1] on cuda:1" in rows(sources)


def test_equal_kernels_of_two_devices_are_two(check: Callable[..., KernelSources]) -> None:
    sources = check(lambda a, b: (a.exp(), b.exp()), [make(4), make(4, seed=1)], ["cuda:0"])
    assert [kernel.calls for kernel in sources.kernels] == [1, 1]


def test_small_kernels_in_one_call_are_of_one_device(check: Callable[..., KernelSources]) -> None:
    fn = lambda a, b, c, d: (a * 2, b * 2, c * 2, d * 2)
    sources = check(fn, [make(n) for n in (3, 4, 5, 6)], ["cuda:0", None, None, "cuda:0"])
    groups = [row for row in sources.plan.rows if isinstance(row, LaunchGroup)]
    assert [[one.buffers[0] for one in group.launches] for group in groups] == [["b_1", "c_1"]]


def test_a_kernel_on_two_devices_is_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"b_1 is on cpu, its kernel on cuda:0"):
        kernel_on({"a_1": "cuda:0", "b_1": "cpu", "y": "cuda:0"})
    with pytest.raises(NotImplementedError, match=r"a_1 is on cuda:0, its kernel on cpu"):
        kernel_on({"a_1": "cuda:0", "b_1": "cpu", "y": "cpu"})


def kernel_on(devices: dict[str, str]) -> KernelSources:
    """``y = a_1 * b_1``, each on its device."""
    buffers = {
        name: Buffer(name, "float32", (4,), (1,), "temp" if name == "y" else "input", device)
        for name, device in devices.items()
    }
    body = (
        Load("t0", Access("a_1", (1,)), "float32"),
        Load("t1", Access("b_1", (1,)), "float32"),
        Compute("t2", "mul", ("t0", "t1"), "float32"),
        Store(Access("y", (1,)), "t2"),
    )
    loop = Loop("y", (4,), (False,), body)
    graph = LoopGraph("forward", ("a_1", "b_1"), buffers, (loop,), (View("y", (4,), (1,)),))
    fused = FusedGraph(graph, (Allocate("y"), FusedKernel("y", (4,), (False,), (loop,))))
    return codegen.run(schedule.run(fused, BOTH), BOTH)


def test_tensors_made_on_a_gpu() -> None:
    """Without an input there, the device is named as it was when the graph was traced."""

    def fn(x: torch.Tensor) -> Any:
        return torch.arange(4, device="cuda:0") * 2, torch.rand(3, device="cuda:0"), x + 1

    sources = printed(fn, [make(3)])
    assert "gpu = device('cuda:0')" in sources.wrapper_text
    assert "aten_rand([3], device=gpu" in sources.wrapper_text
    compile(sources.wrapper_text, "forward_wrapper.py", "exec")


def test_constants_go_where_the_graph_runs(check: Callable[..., KernelSources]) -> None:
    """Small ones, and those that are too large for the wrapper's text."""
    small, large = make(7), make(2000, seed=1)
    fn = lambda x: (x[:7] + small, x * large)
    sources = check(fn, [make(2000, seed=2)], targets=Targets(cpu=Gpu()))
    assert [type(row).__name__ for row in sources.plan.head] == ["ReadDevice", "MoveConstant", "MoveConstant"]
    assert list(sources.plan.handed.values()) == [large]


def test_sizes_are_read_off_inputs() -> None:
    s0, s1 = Symbol("s0", hint=5), Symbol("s1", hint=8)
    x = Buffer("x", "float32", (4, s1), (s0, 1), "input", "cuda:0")
    y = Buffer("y", "float32", (4,), (1,), device="cuda:0")
    body = (Load("t0", Access("x", (s0, 1)), "float32"), Reduce("t1", "max", "t0", "float32"))
    loop = Loop("y", (4, s1), (False, True), (*body, Store(Access("y", (1, 0)), "t1")))
    graph = LoopGraph("forward", ("x",), {"x": x, "y": y}, (loop,), (View("y", (4,), (1,)),))
    fused = FusedGraph(graph, (Allocate("y"), FusedKernel("y", loop.dims, loop.reduced, (loop,))))
    sources = codegen.run(schedule.run(fused, BOTH), BOTH)
    assert "size s0 is stride 0 of x\nsize s1 is size 1 of x\n" in rows(sources)
    assert "    s0 = x.stride()[0]\n    s1 = x.shape[1]\n" in sources.wrapper_text
    assert "launch kernel_0(x, y, s0, s1" in str(sources.plan)
    unread = replace(graph, inputs=(), buffers={"y": replace(y, shape=(s0,))})
    with pytest.raises(NotImplementedError, match="forward: no input tells the size s0"):
        codegen.run(schedule.run(FusedGraph(unread, ()), BOTH), BOTH)


def test_the_pipeline_loads_kernels_of_both_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    """One wrapper, a C file and a Python file."""
    graph = traced(to_and_fro, INPUTS, ["cuda:0"])
    fakes = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    monkeypatch.setattr(graph_pipeline.machine, "targets", lambda threads: BOTH)
    with monkeypatch.context() as patch:
        triton_on_torch.install(patch)
        compilation = graph_pipeline.compile_graph(graph, fakes, CompileOptions.make())
        results = compilation.call(*INPUTS)
    for want, got in zip(to_and_fro(*INPUTS), results, strict=True):
        compare(want, got, 1e-5)
    assert {"forward_kernels.c", "forward_kernels.py", "forward_wrapper.py"} <= compilation.record.files.keys()
