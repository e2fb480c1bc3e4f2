"""Printed Triton: the table covers the IR, the texts are as reviewed, and what they compute equals eager.

Kernels run on CPU tensors through a stand-in (``triton_on_torch``); tests/gpu runs them on a GPU.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.codegen import triton_on_torch
from tests.codegen.harness import compare, tensors
from tests.codegen.test_graphs import GRAPHS, make, with_gradients
from tests.lower import test_scans as test_scans_of_loops
from torch.fx.experimental.proxy_tensor import make_fx

from torchglass import codegen, fuse, lower, schedule
from torchglass.codegen.triton_ops import TABLE, CannotPrint, prints, triton_op
from torchglass.records.kernels import Allocate, FusedGraph, FusedKernel, KernelSources
from torchglass.records.loops import OPS, Access, Buffer, Compute, Load, Loop, LoopGraph, Reduce, Store, View
from torchglass.records.sizes import Symbol
from torchglass.records.target import Gpu, Targets
from torchglass.records.tuned.lowering import GpuLowering
from torchglass.records.tuned.scheduling import GpuSchedule
from torchglass.schedule import gpu

GPU = Targets(cpu=Gpu(lowering=GpuLowering(loop_multiplications=0)))
"""Products are calls, as those of models are; ``tests/lower/test_cuda_small_products.py`` has those that are loops."""
SHORT_ROWS = Targets(cpu=Gpu(schedule=GpuSchedule(long_row=32, row_block=16, long_scan=32, column_block=8)))
"""A GPU that walks all but short rows in blocks."""


def fused(fn: Callable[..., Any], args: Sequence[torch.Tensor]) -> FusedGraph:
    plain = lambda *a: fn(*a)
    functional = plain if getattr(fn, "trains", False) else torch.func.functionalize(plain)
    return fuse.run(lower.run(make_fx(functional, tracing_mode="fake")(*args), GPU), GPU)


def printed(fn: Callable[..., Any], args: Sequence[torch.Tensor], targets: Targets = GPU) -> KernelSources:
    return codegen.run(schedule.run(fused(fn, args), targets), targets)


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., KernelSources]:
    """Print, run on the stand-in, compare with eager."""

    def run(
        fn: Callable[..., Any], args: Sequence[torch.Tensor], tol: float | None = None, targets: Targets = GPU
    ) -> KernelSources:
        sources = printed(fn, args, targets)
        call = triton_on_torch.loaded(sources, tmp_path, monkeypatch)
        for want, got in zip(tensors(fn(*args)), call(list(args)), strict=True):
            compare(want, got, tol)
        return sources

    return run


# -- the table -------------------------------------------------------------------------------------------------------
def test_every_operation_has_a_rule() -> None:
    assert TABLE.keys() == OPS.keys()


def test_the_table_checks_its_rows() -> None:
    with pytest.raises(KeyError, match="no operation wobble"):
        prints("wobble")(lambda dtype, operand, a: a)
    with pytest.raises(KeyError, match="has a Triton rule already"):
        prints("exp")(lambda dtype, operand, a: a)
    rule = TABLE.pop("where")
    try:
        with pytest.raises(TypeError, match="where takes 3 arguments, its rule 2"):
            prints("where")(lambda dtype, operand, a, b: a)
        with pytest.raises(CannotPrint, match="operation where"):
            triton_op("where", "float32", "float32", ["c", "a", "b"])
    finally:
        TABLE["where"] = rule


# -- texts -----------------------------------------------------------------------------------------------------------
def toy(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a / (torch.abs(a) + 1) * (b * -1)


PROGRAMS: dict[str, tuple[Callable[..., torch.Tensor], list[torch.Tensor]]] = {
    "toy": (toy, [make(1000), make(1000, seed=1)]),
    "softmax": (lambda x: torch.softmax(x, -1), [make(64, 100)]),
    "layernorm": (lambda x, w, b: F.layer_norm(x, (200,), w, b), [make(16, 200), make(200), make(200, seed=1)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    """The files as reviewed."""
    scheduled = schedule.run(fused(*PROGRAMS[name]), GPU)
    sources = codegen.run(scheduled, GPU)
    assert set(sources.texts) == {"triton"}
    texts = {"schedule": str(scheduled), "kernels": sources.texts["triton"], "wrapper": sources.wrapper_text}
    for kind, text in texts.items():
        golden(text, f"{kind}.txt")
        if kind != "schedule":
            ast.parse(text)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_three_kernels(name: str, check: Callable[..., KernelSources]) -> None:
    assert len(check(*PROGRAMS[name]).kernels) == 1


def test_equal_layers_share_kernels(check: Callable[..., KernelSources]) -> None:
    def layers(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        for w in weights:
            x = F.gelu(x @ w)
        return x

    (kernel,) = check(layers, [make(8, 16), *(make(16, 16, seed=s) for s in range(4))], 1e-4).kernels
    assert kernel.calls == 4 and kernel.arguments == ("mm", "gelu")


# -- values ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name: str, check: Callable[..., KernelSources]) -> None:
    fn, args = GRAPHS[name]
    check(fn, args, tol=1e-5)
    check(with_gradients(fn), args, tol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", ["softmax", "normal", "two", "extremes"])
def test_long_rows(name: str, dtype: torch.dtype, check: Callable[..., KernelSources]) -> None:
    """Rows too long for registers are walked in blocks."""
    programs = PROGRAMS | {
        "normal": (lambda x: (x - x.mean(-1, True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1e-5), [make(12, 100)]),
        "two": (lambda x: torch.softmax(F.rms_norm(x, (100,), eps=1e-6).exp() + 1, -1), [make(12, 100)]),
        "extremes": (lambda x: (x - x.amin(-1, True)) / x.amax(-1, True) * (x > 0).any(-1, True), [make(12, 100)]),
    }
    fn, args = programs[name]
    tol = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2}[dtype]
    sources = check(fn, [a.to(dtype) for a in args], tol, SHORT_ROWS)
    ahead = dtype is not torch.bfloat16  # of which a row of 100 is no whole number of 16 bytes
    assert f"for start in {'tl.range(' if ahead else 'range('}" in sources.texts["triton"]


# -- scans -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("targets", [GPU, SHORT_ROWS], ids=["whole", "in blocks"])
@pytest.mark.parametrize("shape", [(1,), (0, 3), (37,), (4, 100), (3, 5, 7), (2, 3, 2)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_scans(dtype: torch.dtype, shape: Sequence[int], targets: Targets, check: Callable[..., KernelSources]) -> None:
    """All five along every dimension; logarithms of sums are rounded at every step, as eager's."""
    tol = 5e-6 if dtype is torch.float32 else None
    sources = check(test_scans_of_loops.every, [test_scans_of_loops.numbers(shape, dtype)], tol, targets)
    assert "torch.ops." not in sources.wrapper_text


SCANNING = (
    "strided converted nucleus corner_sums corner_sums_of_many whole_line_needed columns_summed across_rows halves "
    "flat_beside_a_total places_of_what_rounds shared_lines"
)


@pytest.mark.parametrize("targets", [GPU, SHORT_ROWS], ids=["whole", "in blocks"])
@pytest.mark.parametrize("name", SCANNING.split())
def test_scans_with_what_surrounds_them(name: str, targets: Targets, check: Callable[..., KernelSources]) -> None:
    check(getattr(test_scans_of_loops, name), [make(24, 40)], 2e-5, targets)


def special() -> torch.Tensor:
    finite = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 1e-30, 88.0, -104.0, 7.25]
    return torch.tensor([*finite, float("inf"), float("-inf"), float("nan")])


UNARY = """
exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc
sigmoid floor ceil trunc round neg abs sign isnan isinf lgamma
"""
BINARY = "add sub mul div floor_divide remainder fmod maximum minimum pow atan2 eq ne lt le gt ge"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", UNARY.split())
def test_functions_of_one_value(name: str, dtype: torch.dtype, check: Callable[..., KernelSources]) -> None:
    check(getattr(torch, name), [special().to(dtype)])


@pytest.mark.parametrize("name", BINARY.split())
def test_functions_of_two_values(name: str, check: Callable[..., KernelSources]) -> None:
    x = special()
    check(getattr(torch, name), [x, x.flip(0) * 0.75])


INTEGERS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "arithmetic": lambda i, j: (i + j, i - j * 3, -i, i.abs(), i.sign(), i // 7, i % 7, i.maximum(j), i.clamp(-2, 5)),
    "bits": lambda i, j: (i & j, i | j, i ^ j, ~i),
    "logic": lambda i, j: (
        (i > 2) & (j < 4),
        (i > 2) ^ (j < 4),
        ~(i > j),
        torch.where(i > j, i, j),
        i.masked_fill(i > j, -1),
    ),
    "casts": lambda i, j: (
        i.float() / 3,
        (i / 2).to(torch.int32),
        i.bool(),
        (i > 0).to(torch.float64),
        i.to(torch.uint8),
    ),
    "sums": lambda i, j: (
        i.sum(-1),
        i.amax(-1),
        j.amin(-1),
        (i > 5).any(-1),
        (j > -90).all(-1),
        (i > 0).sum(-1),
        i.prod(-1),
    ),
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name: str, dtype: torch.dtype, check: Callable[..., KernelSources]) -> None:
    i = torch.arange(-9, 9).view(2, 9)
    check(INTEGERS[name], [i.to(dtype), i.flip(0, 1).to(dtype)])


def first(x: torch.Tensor, shape: list[int]) -> torch.Tensor:
    """Zeros but for ``x`` at the first place."""
    return torch.ops.aten.select_backward(x, shape, 0, 0)


LAYOUTS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "transposed": (lambda x, y: x.t() * 2 + y, [make(5, 7), make(7, 5)]),
    "broadcast": (lambda x, y: x[:, None] * y + 1, [make(5), make(3, 1, 4)]),
    "joined": (lambda x, y: torch.cat([x, y * 2], 1).relu(), [make(3, 4), make(3, 5)]),
    "padded": (lambda x: F.pad(x, (1, 2), value=0.5), [make(3, 4)]),
    "looked up": (lambda w, i: F.embedding(i, w) * 2, [make(10, 6), torch.tensor([[1, 9], [0, 3]])]),
    "triangle": (lambda x: x.tril() + x.flip(0), [make(5, 5)]),
    "rows of middle dimensions": (lambda x: x.softmax(1), [make(3, 8, 5)]),
    "one element": (lambda x: x.sin() + 1, [torch.tensor(0.5)]),
    "no elements": (lambda x: x * 2, [torch.zeros(0, 3)]),
    "a total of no elements": (lambda x: (x.sum(), x.t().sum()), [torch.zeros(5, 0)]),
    "no rows": (lambda x: (x.double().sum(0), x.double().softmax(1)), [torch.zeros(1, 5).expand(0, 5)]),
    "rows of no elements": (lambda x: (x.double().sum(0), x.double().softmax(0)), [torch.zeros(1).expand(0)]),
    "a place of a place": (
        lambda x, y: first(first(x.sum(), [3]), [5, 3]) + first(y.sum(0), [5, 3]),
        [make(5, 3), make(5, 3, seed=1)],
    ),
    "a total and what waits for it": (lambda x: (x.square().sum().sqrt(), x * 2), [make(64, 40)]),
    "one row": (lambda x: x.log_softmax(0), [make(40)]),
    "constants": (lambda x: torch.where(x > 0, 0.1, x.double()), [make(9)]),
    "half": (lambda x: F.silu(x) * x, [make(40).half()]),
    "nan": (lambda x: (x.amax(-1), x.amin(-1)), [torch.tensor([[1.0, float("nan"), 2.0], [3.0, 1.0, 2.0]])]),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name: str, check: Callable[..., KernelSources]) -> None:
    check(*LAYOUTS[name])


@pytest.mark.parametrize("count", [1023, 2048, 2049])
def test_the_last_block_apart(count: int, check: Callable[..., KernelSources]) -> None:
    """Blocks without masks have code of their own, and all points are computed once."""
    apart = Targets(cpu=Gpu(schedule=GpuSchedule(apart_points=1)))
    sources = check(lambda x, y: F.silu(x) * y, [make(count), make(count, seed=1)], 1e-5, apart)
    assert ("if (tl.program_id(0) + 1) * XBLOCK <= " in sources.texts["triton"]) == (count % 16 != 0)


def test_sizes_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One text for all sizes: rows are walked in blocks, sizes are arguments."""
    s0, s1 = Symbol("s0", hint=5), Symbol("s1", hint=8)
    buffers = {
        b.name: b for b in (Buffer("x", "float32", (s0, s1), (s1, 1), "input"), Buffer("y", "float32", (s0,), (1,)))
    }
    body = (
        Load("t0", Access("x", (s1, 1)), "float32"),
        Reduce("t1", "max", "t0", "float32"),
        Store(Access("y", (1, 0)), "t1"),
    )
    loop = Loop("y", (s0, s1), (False, True), body)
    graph = LoopGraph("forward", ("x",), buffers, (loop,), (View("y", (s0,), (1,)),))
    kernel = FusedKernel("y", loop.dims, loop.reduced, (loop,))
    sources = codegen.run(schedule.run(FusedGraph(graph, (Allocate("y"), kernel)), GPU), GPU)
    assert "s0: tl.int64, s1: tl.int64" in sources.texts["triton"]  # as products of sizes may need
    call = triton_on_torch.loaded(sources, tmp_path, monkeypatch)
    for shape in ((3, 5), (1, 5000), (9, 4096)):
        x = make(*shape)
        assert torch.equal(call([x])[0], x.amax(-1))


def test_a_row_of_unknown_length_is_held_where_a_block_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s0, s1 = Symbol("s0", 5, 1), Symbol("s1", 200, 1)
    buffers = {name: Buffer(name, "float32", (s0, s1), (s1, 1)) for name in "xy"}
    buffers["m"] = Buffer("m", "float32", (s0,), (1,))
    load = Load("t0", Access("x", (s1, 1)), "float32")
    most = Loop(
        "m", (s0, s1), (False, True), (load, Reduce("t1", "max", "t0", "float32"), Store(Access("m", (1, 0)), "t1"))
    )
    below = (load, Load("t1", Access("m", (1, 0)), "float32"), Compute("t2", "sub", ("t0", "t1"), "float32"))
    rest = Loop("y", (s0, s1), (False, False), (*below, Store(Access("y", (s1, 1)), "t2")))
    graph = LoopGraph("forward", ("x",), buffers, (most, rest), (View("y", (s0, s1), (s1, 1)),))
    kernel = FusedKernel("y", (s0, s1), (False, True), (most, rest), frozenset("m"))
    sources = codegen.run(schedule.run(FusedGraph(graph, (Allocate("y"), kernel)), GPU), GPU)
    held, _, walked = sources.texts["triton"].partition("if s1 <= RBLOCK:")[2].partition("    else:")
    assert held.count("tl.load(") == 1 and walked.count("tl.load(") == 2
    call = triton_on_torch.loaded(sources, tmp_path, monkeypatch)
    for shape in ((3, 1), (4, 200), (1, 256), (2, 257), (5, 5000)):
        x = make(*shape)
        assert torch.equal(call([x])[0], x - x.amax(-1, keepdim=True))


@pytest.mark.parametrize("rows, wide", [((1 << 28) - 1, False), ((1 << 28) + 1, True)])
def test_places_past_two_to_the_31st_are_counted_in_64_bits(rows: int, wide: bool) -> None:
    body = (
        Load("t0", Access("i", (1, 0)), "int32"),
        Load("t1", Access("w", (0, 1), 0, (("t0", 8),)), "float32"),
        Store(Access("y", (8, 1)), "t1"),
    )
    shapes = {"i": (5,), "w": (rows, 8), "y": (5, 8)}
    strides = {"i": (1,), "w": (8, 1), "y": (8, 1)}
    buffers = {n: Buffer(n, "int32" if n == "i" else "float32", shapes[n], strides[n]) for n in shapes}
    graph = LoopGraph("forward", ("i", "w"), buffers, (), ())
    kernel = FusedKernel("y", (5, 8), (False, True), (Loop("y", (5, 8), (False, False), body),))
    (made,) = codegen.run(schedule.run(FusedGraph(graph, (kernel,)), GPU), GPU).kernels
    assert ("tl.program_id(0).to(tl.int64)" in made.source) == ("8*t0.to(tl.int64)" in made.source) == wide


@pytest.mark.parametrize("points, wide", [(2**31 - 2**17, False), (2**31 - 1, True), (2**31 + 1, True)])
def test_counters_of_the_last_block_stay_positive(points: int, wide: bool) -> None:
    """They go past the end, where a number that wrapped would be a point."""
    body = (Load("t0", Access("x", (1,)), "int8"), Store(Access("y", (1,)), "t0"))
    buffers = {n: Buffer(n, "int8", (points,), (1,)) for n in "xy"}
    graph = LoopGraph("forward", ("x",), buffers, (), ())
    kernel = FusedKernel("y", (points,), (False,), (Loop("y", (points,), (False,), body),))
    (made,) = codegen.run(schedule.run(FusedGraph(graph, (kernel,)), GPU), GPU).kernels
    assert ("tl.program_id(0).to(tl.int64)" in made.source) == wide


def test_numbers_that_are_no_addresses_are_counted_in_64_bits(check: Callable[..., KernelSources]) -> None:
    sources = check(lambda x: x + torch.arange(0, 10**10, 10**6), [torch.zeros(10**4, dtype=torch.int64)])
    assert "1000000*i0.to(tl.int64)" in sources.texts["triton"]
    near = check(lambda x: x + torch.arange(0, 10**4, 1), [torch.zeros(10**4, dtype=torch.int64)])
    assert "i0.to(tl.int64)" not in near.texts["triton"]


def test_a_kernel_with_rows_in_two_directions_is_refused() -> None:
    body = (Load("t0", Access("x", (8, 1)), "float32"), Reduce("t1", "sum", "t0", "float32"))
    loops = tuple(
        Loop(name, (4, 8), reduced, (*body, Store(Access(name, strides), "t1")))
        for name, reduced, strides in (("y", (False, True), (1, 0)), ("z", (True, False), (0, 1)))
    )
    buffers = {n: Buffer(n, "float32", (8,), (1,)) for n in "xyz"}
    with pytest.raises(ValueError, match="k: y and z carry values along different dimensions"):
        gpu.scheduled("kernel_0", FusedKernel("k", (4, 8), (False, True), loops), buffers, Gpu())


def test_what_cannot_be_printed_is_named() -> None:
    body = (
        Load("t0", Access("x", (1,)), "float32"),
        Compute("t1", "wobble", ("t0",), "float32"),
        Store(Access("y", (1,)), "t1"),
    )
    buffers = {n: Buffer(n, "float32", (4,), (1,)) for n in "xy"}
    graph = LoopGraph("forward", ("x",), buffers, (), ())
    kernel = FusedKernel("k", (4,), (False,), (Loop("l", (4,), (False,), body),))
    with pytest.raises(
        CannotPrint, match=r"k, loop l, `t1 = wobble t0 : float32`: no Triton text for the operation wobble"
    ):
        codegen.run(schedule.run(FusedGraph(graph, (kernel,)), GPU), GPU)
