"""Dropout in kernels draws what eager draws, bit by bit, and leaves the generator where eager leaves it.

``python -m tests.gpu.test_random_on_gpu`` prints a row for each size and dtype, with the first element that differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.codegen import philox
from tests.gpu.compiled import DEVICE, alike, generated, make, needs_gpu, tensors

import torchglass as tg

pytestmark = needs_gpu

SIZES = (1, 3, 4, 5, 6, 255, 1023, 4096, 65537, 2**20, 2**22 + 1, 2**22 + 2, 10**7)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
dropout = torch.ops.aten.native_dropout


def state() -> tuple[int, int]:
    """The generator's seed and offset."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    return generator.initial_seed(), generator.get_offset()


def drawn(fn: Callable[..., Any], *args: Any, seed: int = 1, offset: int = 8) -> tuple[list[Any], tuple[int, int]]:
    """What a function returns, drawing from there on, and the generator's state then."""
    torch.cuda.manual_seed(seed)
    torch.cuda.default_generators[torch.cuda.current_device()].set_offset(offset)
    return tensors(fn(*args)), state()


def differences(fn: Callable[..., Any], compiled: Callable[..., Any], *args: Any, **at: int) -> Iterator[str]:
    """Where a compiled function differs from the function."""
    (wanted, end), (found, ours) = drawn(fn, *args, **at), drawn(compiled, *args, **at)
    for k, (a, b) in enumerate(zip(wanted, found, strict=True)):
        if (a.dtype, a.shape, a.stride()) != (b.dtype, b.shape, b.stride()):
            yield f"result {k} is {b.dtype} {list(b.shape)} {b.stride()}, not {a.dtype} {list(a.shape)} {a.stride()}"
        elif not torch.equal(a, b):
            places = (a != b).flatten().nonzero().flatten()
            yield f"result {k} differs at {places.numel()} of {a.numel()} elements, first {places[:4].tolist()}"
    if end != ours:
        yield f"the generator is at {ours}, not at {end}"


def compile_drawing(fn: Callable[..., Any], **options: Any) -> Any:
    tg.reset()
    return tg.compile(fn, fullgraph=True, **options)


def same(fn: Callable[..., Any], *args: Any, kernels: bool = True, **at: int) -> Any:
    """Check that a function draws alike compiled, twice; ``kernels``: by kernels of ours."""
    compiled = compile_drawing(fn)
    for _ in range(2):
        assert not (found := list(differences(fn, compiled, *args, **at))), found
    if kernels:
        assert draws(compiled), "dropout stayed a call of ATen"
    return compiled


def draws(compiled: Any) -> bool:
    """Whether a kernel of a compiled function draws."""
    generated(compiled)
    return any("tg_philox" in kernel.source for kernel in tg.explain(compiled).kernels())


def of_both(p: float) -> Callable[[torch.Tensor], Any]:
    """Dropout of an input, and of what a kernel makes."""
    return lambda x: (*dropout(x, p, True), *dropout(x * 2, p, True))


def table(dtype: torch.dtype, sizes: tuple[int, ...] = SIZES) -> Iterator[str]:
    """A line for each size at which something differs."""
    for n, size in enumerate(sizes):
        p = (0.1, 0.5, 0.9)[n % 3]
        fn, x = of_both(p), make(size, dtype=dtype)
        compiled = compile_drawing(fn)
        for found in differences(fn, compiled, x):
            yield f"{size} elements of {dtype}, p={p}: {found}"
        if not draws(compiled):
            yield f"{size} elements of {dtype}: a call of ATen"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sizes(dtype: torch.dtype) -> None:
    assert not (found := list(table(dtype))), "\n".join(found)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_begins_anywhere(dtype: torch.dtype) -> None:
    """Eager's kernel looks at the address of what it reads."""
    x, fn = make(4104, dtype=dtype), of_both(0.5)
    compiled = compile_drawing(fn)
    for begin in range(9):
        found = list(differences(fn, compiled, x[begin : begin + 4096]))
        assert not found, (begin, found)
    same(lambda x: dropout((x * 2)[3:4099], 0.5, True), x)
    same(lambda x: dropout((x * 2)[4:4100], 0.5, True), x)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("seed", [0, 2**31, 2**32 + 5, 2**63 + 11, 2**64 - 1])
def test_seeds(seed: int, p: float) -> None:
    same(of_both(p), make(65, 36), seed=seed, offset=2**34 - 4)


LAYOUTS = {**philox.LAYOUTS, "no dimensions": lambda x: x[0, 0, 0]}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name: str, dtype: torch.dtype) -> None:
    x = make(50, 120, 640, dtype=dtype)
    same(lambda x: (*dropout(LAYOUTS[name](x), 0.5, True), *dropout(LAYOUTS[name](x * 2), 0.5, True)), x)
    same(of_both(0.5), LAYOUTS[name](x))


@pytest.mark.complains("dynamic=True has no effect yet")
def test_open_sizes() -> None:
    fn = of_both(0.5)
    compiled = compile_drawing(fn, dynamic=True)
    for size in (64, 65, 66, 68, 10**6 + 4, 10**6 + 5):
        assert not (found := list(differences(fn, compiled, make(size, 3)))), (size, found)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_what_is_no_draw(p: float) -> None:
    same(lambda x: F.dropout(x * 2, p) + 1, make(64, 32), kernels=False)
    same(lambda x: F.dropout(x * 2, 0.5, training=False) + 1, make(64, 32), kernels=False)
    same(lambda x: F.dropout((x * 2)[:0], 0.5), make(64, 32), kernels=False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients(dtype: torch.dtype) -> None:
    """Backward multiplies by the mask that forward drew."""
    fn, x = lambda x: F.dropout(x * 2, 0.25), make(128, 96, dtype=dtype, grad=True)
    compiled = compile_drawing(fn)

    def step(call: Callable[..., Any]) -> list[torch.Tensor]:
        out = call(x)
        return [out.detach(), *torch.autograd.grad(out, x, torch.ones_like(out))]

    (wanted, end), (found, ours) = drawn(step, fn), drawn(step, compiled)
    assert end == ours and all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))
    assert draws(compiled)


def test_eager_draws_between_and_after() -> None:
    compiled = compile_drawing(one := lambda x: F.dropout(x * 2, 0.5))
    x = make(300, 70)

    def program(call: Callable[..., Any]) -> list[torch.Tensor]:
        found = [call(x), torch.rand(5, device=DEVICE), call(x), torch.randn(700, device=DEVICE)]
        with torch.random.fork_rng(devices=[torch.cuda.current_device()]):
            torch.cuda.manual_seed(9)
            found.append(call(x))
        return [*found, call(x), F.dropout(x, 0.1)]

    (wanted, end), (found, ours) = drawn(program, one), drawn(program, compiled)
    assert end == ours and all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))


def test_draws_beside_calls_that_draw() -> None:
    def program(x: torch.Tensor) -> Any:
        a = F.dropout(x * 2, 0.5)
        b = torch.rand_like(a)
        F.dropout(a, 0.5)
        return a, b, F.dropout(b * 2, 0.1), torch.randn_like(a)

    same(program, make(300, 70))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [64, 768, 1001, 4096, 20000])
def test_dropout_add_and_norm(width: int, dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        left, mask = dropout(x, 0.1, True)
        return mask, F.layer_norm(left + y, (width,))

    x, y = make(512, width, dtype=dtype), make(512, width, dtype=dtype, seed=1)
    compiled = compile_drawing(program)
    (wanted, end), (found, ours) = drawn(program, x, y), drawn(compiled, x, y)
    assert end == ours and torch.equal(wanted[0], found[0]) and draws(compiled)
    alike(wanted[1], found[1], 1e-5 if dtype == torch.float32 else 3e-2)
    assert len(tg.explain(compiled).kernels()) <= (1 if width < 20000 else 2)  # rows that no program holds


def test_a_captured_graph_draws_anew() -> None:
    """Under ``torch.cuda.graph`` seed and offset lie in memory, where each replay finds those of then."""
    compiled = compile_drawing(lambda x: (F.dropout(x * 2, 0.5), F.dropout(x, 0.1)))
    x = make(300, 70)

    def captured(call: Callable[..., Any]) -> list[Any]:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            call(x)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.manual_seed(5)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = call(x)
        found: list[Any] = []
        for seed in (5, 2**40 + 1):
            torch.cuda.manual_seed(seed)
            for _ in range(2):
                graph.replay()
                found += [o.clone() for o in out]
            found.append(state())
        return found

    wanted, found = captured(lambda x: (F.dropout(x * 2, 0.5), F.dropout(x, 0.1))), captured(compiled)
    for a, b in zip(wanted, found, strict=True):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
    assert not torch.equal(found[0], found[2])
    assert draws(compiled)


def test_more_elements_than_32_bits_count() -> None:
    x = torch.ones(2**31 + 8, dtype=torch.bfloat16, device=DEVICE)
    fn = lambda x: dropout(x * 2, 0.5, True)
    compiled = compile_drawing(fn)
    assert not (found := list(differences(fn, compiled, x))), found
    assert draws(compiled)


def main() -> None:
    for dtype in DTYPES:
        lines = list(table(dtype))
        print("\n".join(lines) if lines else f"{dtype}: as eager at all of {SIZES}", flush=True)


if __name__ == "__main__":
    main()
