"""Printed Triton: the table covers the IR, the texts are as reviewed, and what they compute equals eager.

Kernels run on CPU tensors through a stand-in (``triton_on_torch``); tests/gpu runs them on a GPU.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.codegen import triton_on_torch
from tests.codegen.harness import compare, tensors
from tests.codegen.test_graphs import GRAPHS, make, with_gradients
from torch.fx.experimental.proxy_tensor import make_fx

from torchglass import codegen, fuse, lower, schedule
from torchglass.codegen import triton_kernel
from torchglass.codegen.triton_ops import TABLE, CannotPrint, prints, triton_op
from torchglass.records.kernels import Allocate, FusedGraph, FusedKernel, KernelSources
from torchglass.records.loops import OPS, Access, Buffer, Compute, Load, Loop, LoopGraph, Reduce, Store, View
from torchglass.records.sizes import Symbol
from torchglass.records.target import Gpu, Targets
from torchglass.runtime.load import load

GPU = Targets(cpu=Gpu())
GOLDEN = Path(__file__).parents[1] / "golden"


def fused(fn: Callable[..., Any], args: Sequence[torch.Tensor]) -> FusedGraph:
    plain = lambda *a: fn(*a)
    functional = plain if getattr(fn, "trains", False) else torch.func.functionalize(plain)
    return fuse.run(lower.run(make_fx(functional, tracing_mode="fake")(*args)))


def printed(fn: Callable[..., Any], args: Sequence[torch.Tensor]) -> KernelSources:
    return codegen.run(schedule.run(fused(fn, args), GPU), GPU)


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., KernelSources]:
    """Print, run on the stand-in, compare with eager."""

    def run(fn: Callable[..., Any], args: Sequence[torch.Tensor], tol: float | None = None) -> KernelSources:
        sources = printed(fn, args)
        (tmp_path / "forward_kernels.py").write_text(sources.texts["triton"])
        (tmp_path / "forward_wrapper.py").write_text(sources.wrapper_text)
        with monkeypatch.context() as patch:  # not while tracing: torch's own modules look for Triton too
            triton_on_torch.install(patch)
            call = load(tmp_path / "forward_wrapper.py")
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
def test_golden(name: str) -> None:
    """The files as reviewed. TORCHGLASS_GOLDEN=1 rewrites them."""
    sources = printed(*PROGRAMS[name])
    for kind, text in (("kernels", sources.texts["triton"]), ("wrapper", sources.wrapper_text)):
        path = GOLDEN / f"triton_{name}_{kind}.txt"
        if os.environ.get("TORCHGLASS_GOLDEN"):
            path.write_text(text)
        assert text == path.read_text(), f"{path.name} changed; review, then rewrite with TORCHGLASS_GOLDEN=1"
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
    if name == "columns of few rows":  # the gradient of a product is made of cumulative products
        with pytest.raises(CannotPrint, match="scans"):
            check(with_gradients(fn), args)
    else:
        check(with_gradients(fn), args, tol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", ["softmax", "normal", "two", "extremes"])
def test_long_rows(
    name: str, dtype: torch.dtype, check: Callable[..., KernelSources], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows too long for registers are walked in blocks."""
    monkeypatch.setattr(triton_kernel, "LONG_ROW", 32)
    monkeypatch.setattr(triton_kernel, "ROW_BLOCK", 16)
    programs = PROGRAMS | {
        "normal": (lambda x: (x - x.mean(-1, True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1e-5), [make(12, 100)]),
        "two": (lambda x: torch.softmax(F.rms_norm(x, (100,), eps=1e-6).exp() + 1, -1), [make(12, 100)]),
        "extremes": (lambda x: (x - x.amin(-1, True)) / x.amax(-1, True) * (x > 0).any(-1, True), [make(12, 100)]),
    }
    fn, args = programs[name]
    tol = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2}[dtype]
    sources = check(fn, [a.to(dtype) for a in args], tol)
    assert "for start in range(" in sources.texts["triton"]


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
    "one row": (lambda x: x.log_softmax(0), [make(40)]),
    "constants": (lambda x: torch.where(x > 0, 0.1, x.double()), [make(9)]),
    "half": (lambda x: F.silu(x) * x, [make(40).half()]),
    "nan": (lambda x: (x.amax(-1), x.amin(-1)), [torch.tensor([[1.0, float("nan"), 2.0], [3.0, 1.0, 2.0]])]),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name: str, check: Callable[..., KernelSources]) -> None:
    check(*LAYOUTS[name])


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
    (tmp_path / "forward_kernels.py").write_text(sources.texts["triton"])
    (tmp_path / "forward_wrapper.py").write_text(sources.wrapper_text)
    with monkeypatch.context() as patch:
        triton_on_torch.install(patch)
        call = load(tmp_path / "forward_wrapper.py")
    for shape in ((3, 5), (1, 5000), (9, 4096)):
        x = make(*shape)
        assert torch.equal(call([x])[0], x.amax(-1))


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
