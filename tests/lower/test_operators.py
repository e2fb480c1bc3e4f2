"""Every lowering family against eager, on several dtypes, shapes and strides. One graph holds many operators: quick."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.codegen.harness import check
from tests.complaints import complaints

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
TOLERANCE = {torch.bfloat16: 3e-2, torch.float16: 4e-3}


def make(*shape: int, dtype: torch.dtype = torch.float32, positive: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + 7 * len(shape))
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if not dtype.is_floating_point:
        return torch.randint(0 if dtype == torch.uint8 else -9, 9, shape, generator=generator).to(dtype)
    x = torch.randn(shape, generator=generator)
    return (x.abs() + 0.1 if positive else x).to(dtype)


def run(fn: Callable[..., Any], dtype: torch.dtype, folder: Path, *args: torch.Tensor, loops_only: bool = True) -> None:
    check(fn, args, folder, loops_only=loops_only, tol=TOLERANCE.get(dtype))


def each(namespace: Any, names: str) -> Callable[..., Any]:
    """A function of several results: every named operator on the same arguments."""
    functions = [getattr(namespace, n) for n in names.split()]
    return lambda *args: tuple(f(*args) for f in functions)


UNARY = "exp sin cos tanh erf sigmoid neg abs sign floor ceil trunc round expm1 relu reciprocal square"
UNARY += " atan sinh cosh asinh erfc tan"
POSITIVE = "log sqrt rsqrt log1p log2 log10 exp2"
ACTIVATIONS = "gelu silu softplus hardtanh leaky_relu elu hardswish hardsigmoid mish relu6"
BINARY = "add sub mul div maximum minimum fmod remainder atan2 floor_divide eq ne lt le gt ge"


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_functions_of_one_value(dtype: torch.dtype, tmp_path: Path) -> None:
    run(each(torch, UNARY), dtype, tmp_path, make(7, 33, dtype=dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_functions_of_positive_values(dtype: torch.dtype, tmp_path: Path) -> None:
    run(each(torch, POSITIVE), dtype, tmp_path, make(7, 33, dtype=dtype, positive=True))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_lgamma_of_few_numbers(dtype: torch.dtype, tmp_path: Path) -> None:
    run(each(torch, "lgamma"), dtype, tmp_path, make(7, 9, dtype=dtype, positive=True))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_activations(dtype: torch.dtype, tmp_path: Path) -> None:
    def fn(x: torch.Tensor) -> Any:
        return (
            *each(F, ACTIVATIONS)(x),
            F.gelu(x, approximate="tanh"),
            x.clamp(-0.5, 0.5),
            x.clamp_min(0.1),
            x.clamp_max(0.2),
        )

    run(fn, dtype, tmp_path, make(7, 33, dtype=dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_binary(dtype: torch.dtype, tmp_path: Path) -> None:
    run(each(torch, BINARY), dtype, tmp_path, make(7, 33, dtype=dtype), make(7, 66, dtype=dtype)[:, ::2])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_scalars_and_selection(dtype: torch.dtype, tmp_path: Path) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, p: torch.Tensor, mask: torch.Tensor) -> Any:
        return (
            torch.add(x, y, alpha=2), torch.sub(x, y, alpha=0.5), torch.rsub(x, y), 1 - x, 2 / p, x < 0.3, x != 0,
            torch.addcmul(x, y, p, value=0.5), torch.addcdiv(x, y, p, value=2), torch.lerp(x, y, 0.3), torch.pow(p, y),
            x**2, x**3, p**-0.5, p**1.5, 2**x, torch.where(x > 0, x, y), torch.where(mask, x, 0.5),
            x.masked_fill(mask, -1e4),
        )  # fmt: skip

    args = [make(7, 33, dtype=dtype), make(8, 33, dtype=dtype)[1:], make(7, 33, dtype=dtype, positive=True)]
    run(fn, dtype, tmp_path, *args, make(7, 33, dtype=torch.bool))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("dim", [0, 1, 2, 3, (0, 2), (1, 3), (1, 2), (0, 1, 2), (0, 1, 2, 3)], ids=str)
def test_reductions(dtype: torch.dtype, dim: Any, tmp_path: Path) -> None:
    def fn(z: torch.Tensor) -> Any:
        return z.sum(dim), z.mean(dim, keepdim=True), z.amax(dim), z.amin(dim), z.var(dim), (z > 1).any(dim), z.std(dim)

    run(fn, dtype, tmp_path, make(3, 5, 7, 8, dtype=dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_softmax_and_norms(dtype: torch.dtype, tmp_path: Path) -> None:
    def fn(z: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
        out = tuple(f(z, d) for f in (torch.softmax, torch.log_softmax) for d in (-1, 0, 1))
        return (*out, F.layer_norm(z, (33,), w, b), F.rms_norm(z, (33,), w, 1e-5), F.layer_norm(z, (33,)))

    shape: dict[str, Any] = {"dtype": dtype}
    half = dtype in TOLERANCE
    run(fn, dtype, tmp_path, make(3, 5, 33, **shape), make(33, **shape), make(33, **shape), loops_only=not half)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.bool], ids=str)
def test_joining_and_views(dtype: torch.dtype, tmp_path: Path) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
        return (
            torch.cat([x, y], 0), torch.cat([x, y, x], 1), torch.stack([x, y], 1), F.pad(x, (1, 2)),
            F.pad(x, (-1, 2, 1, -1)),
            z.transpose(1, 2).contiguous(), z.permute(0, 2, 3, 1).clone(), z.transpose(0, 3).reshape(-1),
            z[:, 1:4, ::2] == 1,
            z.unsqueeze(1).expand(3, 2, 5, 7, 8) != 0, x.tril(), x.triu(1), x.flip(1).clone(), z[1].clone(),
            x.t().clone(),
        )  # fmt: skip

    run(fn, dtype, tmp_path, make(7, 33, dtype=dtype), make(7, 33, dtype=dtype), make(3, 5, 7, 8, dtype=dtype))


def test_flip_of_one_number(tmp_path: Path) -> None:
    run(lambda x: x.sum().flip(0), torch.float32, tmp_path, make(3))


def test_nothing_fails_over_no_elements(tmp_path: Path) -> None:
    """A division by a constant is checked before the loop, which may have no round; a later check was told."""

    def fn(a: torch.Tensor, b: torch.Tensor) -> Any:
        rows = F.embedding(b[:0].long() - 9, b.float())
        return a // 0, (b[:, :0] // 0).sum(1), rows, torch.cat([a, b], 0) // 2

    run(fn, torch.float32, tmp_path, torch.zeros(0, 4, dtype=torch.int16), torch.ones(2, 4, dtype=torch.int16))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_layouts(dtype: torch.dtype, tmp_path: Path) -> None:
    def fn(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, s: torch.Tensor, e: torch.Tensor, o: torch.Tensor) -> Any:
        channels = (c * 2 + 1, c.sum((0, 2, 3)), c.mean(1))
        empty = (e * 2, e.sum(), e.sum(1), e.sum(0))
        return (a * 2, a.sum(0), a.sum(1), b * 2, b.sum(1), *channels, s * 2, s + a, s.exp(), *empty, o * 2 + o.t())

    args = [make(33, 7, dtype=dtype).t(), make(7, 66, dtype=dtype)[:, ::2]]
    args += [make(3, 5, 7, 8, dtype=dtype).to(memory_format=torch.channels_last), make(dtype=dtype)]
    run(fn, dtype, tmp_path, *args, make(3, 0, 4, dtype=dtype), make(9, 9, dtype=dtype)[2:, 2:])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_not_a_number_and_infinity(dtype: torch.dtype, tmp_path: Path) -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x.flip(0)
        return (
            x.amax(1), x.amax(0), x.amin(), torch.maximum(x, y), torch.minimum(x, y), torch.softmax(x, 1), x.relu(),
            x.clamp(-1, 1), x.isnan(), x.isinf(), x.exp(), x.tanh(), x.erf(), x.sigmoid(), x.abs().log(),
            x.abs().log1p(),
            x.expm1(), x * 0, x == x, x.sum(0), F.silu(x), x.sign(),
        )  # fmt: skip

    nan, inf = float("nan"), float("inf")
    run(fn, dtype, tmp_path, torch.tensor([[1.0, nan, 2.0, -inf], [inf, -inf, 0.0, 3e4]]).to(dtype))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers(dtype: torch.dtype, tmp_path: Path) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        arithmetic = (
            x + y,
            x * y,
            x - y,
            x // 3,
            x % 3,
            x.abs(),
            x + 1,
            x * 2.5,
            x / 2,
            x / (y * y + 1),
            x.exp(),
            x**2,
        )
        bits = (x & y, x | y, x ^ y, ~x, torch.maximum(x, y), x.clamp(0, 3), torch.div(x, 3, rounding_mode="trunc"))
        truth = (x.logical_and(y), x.logical_or(y), x.logical_not(), x == y, x != y, x < y, x < 0.5, x >= 1)
        sums = (
            x.sum(),
            x.sum(0),
            x.sum(1),
            x.amax(0),
            x.amin(1),
            x.float(),
            x.bool(),
            x.to(torch.int64),
            x.double() * 0.5,
        )
        return (*arithmetic, *bits, *truth, *sums)

    run(fn, dtype, tmp_path, make(7, 33, dtype=dtype), make(9, 33, dtype=dtype)[2:])


def test_bools(tmp_path: Path) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        counts = (x.sum(), x.sum(0), x.any(), x.all(1), x.any(0), x.all(()), x.any((), keepdim=True))
        return (x & y, x | y, x ^ y, ~x, x + y, x * y, x == y, x < y, x.float(), x.logical_xor(y), *counts)

    run(fn, torch.bool, tmp_path, make(7, 33, dtype=torch.bool), make(9, 33, dtype=torch.bool)[2:])


def test_promotion(tmp_path: Path) -> None:
    def fn(x: torch.Tensor, i: torch.Tensor, d: torch.Tensor, s: torch.Tensor, h: torch.Tensor) -> Any:
        return (
            x + i,
            x * d,
            i / 2,
            torch.where(x > 0, i, x),
            x + d.sum(),
            i + 1.5,
            x + s,
            i < x,
            s > i,
            h + x,
            h + 1,
            h * s,
        )

    args = [make(5, 9), make(5, 9, dtype=torch.int64), make(5, 9, dtype=torch.float64), make(dtype=torch.float64)]
    run(fn, torch.float32, tmp_path, *args, make(5, 9, dtype=torch.bfloat16))


def test_creation(tmp_path: Path) -> None:
    def fn(x: torch.Tensor) -> Any:
        made = (torch.zeros(3, 4), torch.full((2,), 3.5), torch.arange(7), torch.arange(2, 9, 3), x.new_zeros(3))
        return (
            *(m + 1 for m in made),
            torch.ones_like(x) * x,
            torch.full_like(x, 2),
            torch.arange(5, dtype=torch.float32) * 2,
        )

    run(fn, torch.float32, tmp_path, make(5, 9))


def test_backwards_of_views(tmp_path: Path) -> None:
    aten = torch.ops.aten

    def fn(x: torch.Tensor) -> Any:
        return (
            aten.select_backward(x, [5, 4, 9], 1, 2), aten.slice_backward(x, [5, 20], 1, 3, 12, 1),
            aten.slice_backward(x, [5, 9], 1, 0, 9, 1), aten.slice_backward(x, [5, 12], 1, -9, 12, 1),
        )  # fmt: skip

    run(fn, torch.float32, tmp_path, make(5, 9))


@pytest.mark.parametrize("shape", [(1000, 77), (10007,), (3, 60000), (1000, 300), (1, 1), (32, 50, 64)], ids=str)
def test_large_reductions_are_accurate(shape: tuple[int, ...], tmp_path: Path) -> None:
    def fn(x: torch.Tensor) -> Any:
        return x.sum(), x.mean(), x.sum(0), x.sum(-1), x.amax(), (x * x).mean(0), torch.softmax(x, -1)

    x = make(*shape) + 1
    compiled = check(fn, [x], tmp_path, tol=1e-4)
    for got, want, exact in zip(compiled.call([x]), fn(x), fn(x.double()), strict=True):
        scale = exact.abs().max().item() * 6e-8
        assert (got - exact).abs().max().item() <= 2 * (want - exact).abs().max().item() + 2 * scale


def test_a_number_made_a_tensor_by_vmap(tmp_path: Path) -> None:
    with complaints() as said:
        run(lambda x: torch.vmap(lambda row: row * 2 + 0.5)(x), torch.float32, tmp_path, make(2, 3))
    assert not said
