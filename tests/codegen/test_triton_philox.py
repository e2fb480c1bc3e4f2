"""Random numbers in kernels are those that eager's kernels draw: by a model of these, and Philox by its authors' tests.

``tests/gpu/test_random_on_gpu.py`` compares with eager itself.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.codegen import philox, triton_on_torch
from tests.codegen.triton_compile import compiled
from torch.fx.experimental.proxy_tensor import make_fx

from torchglass import codegen, fuse, lower, schedule, torch_compat
from torchglass.operators import symbolic_shapes
from torchglass.records.loops import Compute, ExternCall, LoopGraph
from torchglass.records.philox import most_threads
from torchglass.records.size_environment import SizeEnvironment
from torchglass.records.sources import Local, tensor_size
from torchglass.records.target import Gpu, Targets
from torchglass.runtime import philox as runtime

SMALL = Gpu(multiprocessors=1, threads=600)
"""Whose threads are 512, so that they draw for many elements each."""
MOST = most_threads(SMALL)
dropout = torch.ops.aten.native_dropout


def lowered(fn: Callable[..., Any], *args: torch.Tensor, gpu: Gpu = SMALL, open_sizes: bool = False) -> LoopGraph:
    mode = torch_compat.new_fake_mode()
    with mode:
        fakes = [_with_open_sizes(mode, x) if open_sizes else torch_compat.fake_of(mode, x) for x in args]
        return lower.run(make_fx(fn)(*fakes), Targets(cpu=gpu))


def _with_open_sizes(mode: Any, x: torch.Tensor) -> torch.Tensor:
    mode.symbolic = symbolic_shapes.answer
    environment = SizeEnvironment()
    sizes = [environment.symbol(tensor_size(Local("x"), dim), size) for dim, size in enumerate(x.shape)]
    return torch_compat.fake_of(mode, x, tuple(sizes), (*sizes[1:], 1))


def calls(graph: LoopGraph) -> list[str]:
    return [node.target for node in graph.nodes if isinstance(node, ExternCall)]


# -- Philox ----------------------------------------------------------------------------------------------------------
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
"""``kat_vectors`` of Random123: counter, key, and what philox4x32-10 makes of them."""


@pytest.mark.parametrize(("counter", "key", "wanted"), KNOWN)
def test_philox_is_its_authors(counter: str, key: str, wanted: str) -> None:
    words, (low, high) = ([int(word, 16) for word in text.split()] for text in (counter, key))
    drawn = philox.philox([np.array(word) for word in words], (low, high))
    assert " ".join(f"{int(word):08x}" for word in drawn) == wanted


def test_numbers_end_where_eagers_do() -> None:
    """``curand_uniform`` of 0 and of 2**32 - 1."""
    ends = np.array([0, 2**32 - 1], dtype=np.uint32).astype(np.float32) * np.float32(2**-32) + np.float32(2**-33)
    assert ends.tolist() == [2**-33, 1.0]


# -- dropout ---------------------------------------------------------------------------------------------------------
class Generator:
    """In place of a GPU's."""

    def __init__(self, seed: int, offset: int) -> None:
        self.seed, self.offset = seed, offset
        self.taken: list[int] = []

    def reserve(self, where: Any, numel: int, shift: int, threads: int) -> tuple[int, ...]:
        assert threads == MOST
        if isinstance(where, torch.Tensor):
            assert where.numel() == numel
            while shift and where.data_ptr() // where.element_size() % (1 << shift):
                shift -= 1
        while shift and numel % (1 << shift):
            shift -= 1
        self.taken.append(self.offset)
        self.offset += 4 * runtime._calls(numel, threads)
        return self.seed - (self.seed >> 63 << 64), self.taken[-1], shift


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LoopGraph]:
    """Run ``dropout(before(x))``, and compare with the model of eager's: mask and numbers, bit by bit."""

    def run(
        x: torch.Tensor, p: float = 0.5, before: Callable[..., Any] | None = None, seed: int = 7, offset: int = 4,
        open_sizes: bool = False, shift: int | None = None,
    ) -> LoopGraph:  # fmt: skip
        generator = Generator(seed, offset)
        monkeypatch.setattr(runtime, "reserve_philox", generator.reserve)
        graph = lowered(lambda x: dropout(before(x) if before else x, p, True), x, open_sizes=open_sizes)
        assert calls(graph) == ["reserve_philox"]
        targets = Targets(cpu=SMALL)
        sources = codegen.run(schedule.run(fuse.run(graph, targets), targets), targets)
        results = triton_on_torch.loaded(sources, tmp_path, monkeypatch)([x])
        x = before(x) if before else x
        kept = philox.mask(x, p, MOST, seed, offset, shift)
        scale = torch.tensor(1.0 / torch.tensor(1.0 - p, dtype=torch.float32).item())
        wanted = (x.to(scale.dtype) * kept.to(scale.dtype) * scale).to(x.dtype)
        assert torch.equal(results[1], kept)
        assert torch.equal(results[0], wanted) and results[0].stride() == torch.empty_like(x).stride()
        return graph

    return run


def make(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)


HALVES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("size", [1, 3, 4, 5, 6, 255, 256, 1023, 4096, 9001, 9002, 16384])
def test_sizes(size: int, dtype: torch.dtype, check: Callable[..., LoopGraph]) -> None:
    check(make(size, dtype=dtype))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("begin", range(9))
def test_what_begins_anywhere(begin: int, dtype: torch.dtype, check: Callable[..., LoopGraph]) -> None:
    """Eager looks at the address, of inputs and of parts of what is made."""
    x = make(2056, dtype=dtype)
    check(x[begin : begin + 2048])
    check(x, before=lambda x: (x * 2)[begin : begin + 2048])


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("seed", [0, 2**31, 2**32 + 5, 2**63 + 11, 2**64 - 1])
def test_seeds(seed: int, p: float, check: Callable[..., LoopGraph]) -> None:
    check(make(65, 36), p, seed=seed, offset=2**34 - 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", philox.LAYOUTS)
def test_layouts(name: str, dtype: torch.dtype, check: Callable[..., LoopGraph]) -> None:
    x = make(5, 12, 64, dtype=dtype)
    check(philox.LAYOUTS[name](x))
    check(x, before=lambda x: philox.LAYOUTS[name](x * 2))


def test_a_single_number(check: Callable[..., LoopGraph]) -> None:
    check(make(1).view(()))


@pytest.mark.parametrize("shape", [(40, 96), (7, 33)])
def test_open_sizes(shape: tuple[int, int], check: Callable[..., LoopGraph]) -> None:
    check(make(*shape), before=lambda x: x * 2, open_sizes=True)
    check(make(*shape), open_sizes=True)


def test_long_rows_draw_as_short_ones(check: Callable[..., LoopGraph]) -> None:
    """Once for each pass over a row: the same numbers."""
    check(make(3, 20000), before=lambda x: x - x.amax(1, keepdim=True))


# -- what is around it -----------------------------------------------------------------------------------------------
def test_golden(golden: Callable[[str, str], None]) -> None:
    """Dropout of what a kernel makes, and of an input, in one kernel with the norm around them."""

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        left, mask = dropout(x * 2, 0.1, True)
        return F.layer_norm(left + dropout(y, 0.5, True)[0], (64,)), mask

    graph, targets = lowered(program, make(8, 64), make(8, 64)), Targets(cpu=SMALL)
    sources = codegen.run(schedule.run(fuse.run(graph, targets), targets), targets)
    assert len(sources.kernels) == 1
    texts = {"loops": str(graph), "kernels": sources.texts["triton"], "wrapper": sources.wrapper_text}
    for kind, text in texts.items():
        golden(text, f"{kind}.txt")


def test_draws_are_in_the_programs_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a call of ATen that draws, and a dropout whose result nobody reads."""

    def program(x: torch.Tensor) -> Any:
        a, _ = dropout(x, 0.5, True)
        dropout(x * 3, 0.5, True)
        b, _ = dropout(torch.rand_like(a) + a, 0.5, True)
        return a, b

    graph = lowered(program, make(8, 600))
    assert [target.rpartition("aten.")[2] for target in calls(graph)] == [
        "reserve_philox", "reserve_philox", "rand_like.default", "reserve_philox"
    ]  # fmt: skip
    generator, targets = Generator(3, 0), Targets(cpu=SMALL)
    monkeypatch.setattr(runtime, "reserve_philox", generator.reserve)
    sources = codegen.run(schedule.run(fuse.run(graph, targets), targets), targets)
    x = make(8, 600)
    a, _ = triton_on_torch.loaded(sources, tmp_path, monkeypatch)([x])
    assert generator.taken == [0, 12, 24]
    assert torch.equal(a != 0, philox.mask(x, 0.5, MOST, 3, 0))
    text = sources.wrapper_text
    assert text.index("rand_like(") < text.rindex("reserve_philox(")


def test_layers_share_a_kernel() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = dropout(x @ w, 0.5, True)[0]
        return x

    targets = Targets(cpu=SMALL)
    graph = lowered(program, make(256, 256), make(256, 256))
    sources = codegen.run(schedule.run(fuse.run(graph, targets), targets), targets)
    assert [kernel.calls for kernel in sources.kernels] == [3]
    assert sources.wrapper_text.count("_draw[1], ") == 3


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda x: dropout(x, 0.5, False), "nothing is drawn"),
        (lambda x: dropout(x, 1.0, True), "nothing is drawn"),
        (lambda x: dropout(x[:0], 0.5, True), "nothing is drawn"),
    ],
)
def test_what_stays_a_call(fn: Callable[..., Any], why: str) -> None:
    graph = lowered(fn, make(8, 4))
    assert calls(graph) == ["torch.ops.aten.native_dropout.default"]
    assert any(f"no philox_dropout (1): {why}" in note for note in graph.notes)


def test_backward_reads_the_mask() -> None:
    """Nothing is drawn a second time."""

    def step(x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        left, _ = dropout(x * 2, 0.5, True)
        return torch.autograd.grad(left.sum(), x)

    graph = lowered(step, make(8, 64))
    drawn = [op for node in graph.nodes for op in getattr(node, "body", ()) if getattr(op, "op", None) == "philox"]
    assert calls(graph) == ["reserve_philox"] and len(drawn) == 1 and isinstance(drawn[0], Compute)


# -- Triton ----------------------------------------------------------------------------------------------------------
def test_four_neighbours_share_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty products of 64 bits each, of which LLVM knows some."""
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(dropout(x * 2, 0.1, True)[0] + y, (1024,))

    with torch._subclasses.FakeTensorMode():
        args = [torch.empty(16384, 1024, dtype=torch.bfloat16) for _ in range(2)]
    targets = Targets(cpu=Gpu())
    scheduled = schedule.run(fuse.run(lowered(program, *args, gpu=Gpu()), targets), targets)
    (kernel,) = compiled(scheduled, codegen.run(scheduled, targets), tmp_path, aligned=16).values()
    mapping = scheduled.schedules[0].mapping
    points = prod(axis.block for axis in mapping.axes) // (32 * mapping.warps)
    assert kernel.asm["ptx"].count("mul.hi.u32") + kernel.asm["ptx"].count("mul.wide.u32") <= points // 4 * 20
