"""Integer division, shifts, powers and special functions: eager's values and errors, as loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.codegen.harness import check

import torchglass as tg

Tensor = torch.Tensor
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
DIVISIONS = [
    lambda x, y: x // y, lambda x, y: x % y, lambda x, y: torch.fmod(x, y),
    lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    lambda x, y: torch.div(x, y, rounding_mode="floor"),
]  # fmt: skip


def ends(dtype: torch.dtype) -> Tensor:
    limits = torch.iinfo(dtype)
    return torch.tensor([limits.min, limits.min + 1, 0, 1, 5, 7, limits.max - 1, limits.max] * 3, dtype=dtype)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_division(dtype: torch.dtype, tmp_path: Path) -> None:
    x = ends(dtype)
    y = torch.tensor([1, 2, 3, 7, 100, 5, 1, 2] * 3, dtype=dtype)
    if dtype != torch.uint8:
        y[8:16] *= -1
        x[8] = 3  # the smallest number by -1 has no answer
    check(lambda x, y: tuple(f(x, y) for f in DIVISIONS), (x, y), tmp_path, loops_only=True)
    check(lambda x: tuple(f(x, 3) for f in DIVISIONS), (x,), tmp_path, loops_only=True)
    check(lambda x: tuple(f(100, x + (x == 0)) for f in (torch.remainder,)), (x,), tmp_path, loops_only=True)


def test_the_smallest_number_by_minus_one_does_not_trap(tmp_path: Path) -> None:
    for dtype in INTEGERS[:4]:
        x = torch.full((9,), torch.iinfo(dtype).min, dtype=dtype)
        y = torch.full((9,), -1, dtype=dtype)
        for division in DIVISIONS:
            tg.compile(division)(x, y)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_that_overflow_wrap(dtype: torch.dtype, tmp_path: Path) -> None:
    """C leaves it open, and a compiler that knows so takes x + 1 > x for granted."""
    ends = torch.iinfo(dtype)
    x = torch.tensor([ends.max, ends.min, ends.max - 1, ends.min + 1, 0, 1, 5], dtype=dtype)
    check(lambda x: (x + 1 > x, x - 1 < x, x * 2 // 2 == x, -x > 0, x.abs() >= 0, x.square() >= 0), (x,), tmp_path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_numbers_out_of_range_become_integers_as_in_eager(dtype: torch.dtype, tmp_path: Path) -> None:
    """And are still these integers when the same kernel makes them floating-point again."""
    x = torch.tensor([300.7, -300.2, 40000.0, 3e9, -3e9, 1e19, -1e30, math.inf, -math.inf, math.nan, 0.5]).to(dtype)
    back = [lambda x, to=to: (x.to(to), x.to(to).to(dtype) + 1) for to in (*INTEGERS, torch.bool)]
    check(lambda x: [y for f in back for y in f(x)], (x,), tmp_path, loops_only=True)


@pytest.mark.parametrize("division", DIVISIONS)
def test_integer_division_by_zero(division: Callable[..., Tensor]) -> None:
    x, y = torch.tensor([4, 2]), torch.tensor([1, 0])
    compiled = tg.compile(division)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        division(x, y)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(x, y)
    assert torch.equal(compiled(x, y + 1), division(x, y + 1))


def test_integer_powers(tmp_path: Path) -> None:
    for dtype in INTEGERS:
        check(lambda x: (x**0, x**2, x**3, x**5, x**7, x**64), (ends(dtype),), tmp_path, loops_only=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_powers_that_are_roots(dtype: torch.dtype, tmp_path: Path) -> None:
    """Eager takes roots but for float16, of which -inf and -0. have powers."""
    x = torch.tensor([-math.inf, -0.0, 0.0, -4, 4, 3, math.inf, math.nan] * 5).to(dtype)
    check(lambda x: (x.pow(0.5), x.pow(-0.5)), (x,), tmp_path, loops_only=True)


def test_special_functions(tmp_path: Path) -> None:
    x = torch.tensor([0.0, -0.0, 1.5, -2.5, float("inf"), -float("inf"), float("nan"), 1e-30, 3e38])
    y = x.flip(0)

    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.copysign(x, y), torch.hypot(x, y), torch.nextafter(x, y), torch.signbit(x), torch.heaviside(x, y),
            torch.logaddexp2(x, y), torch.special.xlog1py(x, y), torch.angle(x), x.nan_to_num(), x.nan_to_num(1, 2, 3),
            torch.fmax(x, y), torch.fmin(x, y), torch.xlogy(x, y), torch.nansum(x), torch.count_nonzero(x),
        )  # fmt: skip

    check(fn, (x, y), tmp_path, loops_only=False)


FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_larger_of_two_zeros_has_eagers_sign(dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, -0.0, 0.0, -0.0, math.nan, 1.0], dtype=dtype).repeat(9)
    y = torch.tensor([-0.0, 0.0, 0.0, -0.0, -0.0, math.nan], dtype=dtype).repeat(9)
    for fn in (torch.fmax, torch.fmin):
        theirs, ours = fn(x, y), tg.compile(lambda x, y, fn=fn: fn(x, y))(x, y)
        torch.testing.assert_close(1 / ours, 1 / theirs, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("limit", [0.3, 0.1, 1.7])
def test_limits_of_shrinking_are_rounded_as_in_eager(dtype: torch.dtype, limit: float, tmp_path: Path) -> None:
    near = torch.tensor(limit, dtype=dtype)
    x = torch.stack([near, near.nextafter(near + 1), near.nextafter(near - 1)]).repeat(7)
    x = torch.cat([x, -x])
    check(lambda x: (F.hardshrink(x, limit), F.softshrink(x, limit)), (x,), tmp_path, loops_only=True)
    for backward in (torch.ops.aten.hardshrink_backward, torch.ops.aten.softshrink_backward):
        check(lambda x, fn=backward: fn(torch.ones_like(x), x, limit), (x,), tmp_path, loops_only=True)


@pytest.mark.parametrize("name", ["erf", "exp", "expm1", "gelu", "log", "log1p", "sigmoid", "tanh"])
def test_functions_of_our_own_are_exact(name: str) -> None:
    """Within four units of the last place of the result, for gelu of a tenth of the argument where that is more."""
    fn = getattr(torch.nn.functional if name == "gelu" else torch, name)
    x = torch.linspace(-12, 12, 200_001)
    exact, found = fn(x.double()), tg.compile(lambda x: fn(x))(x)
    scale = exact.abs().maximum(0.1 * x.abs().double()) if name == "gelu" else exact.abs()
    wrong = ((found - exact).abs() > 4 * torch.finfo(torch.float32).eps * scale) & exact.isfinite()
    assert not wrong.any(), x[wrong]
    ends = torch.tensor([0.0, -0.0, 1e-40, 1e30, -1e30, math.inf, math.nan])
    assert torch.allclose(tg.compile(lambda x: fn(x))(ends), fn(ends.double()).float(), equal_nan=True)


def test_shifts(tmp_path: Path) -> None:
    for dtype in INTEGERS:
        x, by = ends(dtype), torch.tensor([0, 1, 7, 8, 31, 63, 64, 3] * 3, dtype=dtype)
        if dtype != torch.uint8:
            by[8] = -1
        check(lambda x, by: (x << by, x >> by, x << 2, x >> 2), (x, by), tmp_path, loops_only=True)


def test_numbers_wrap_in_narrow_integers_where_eager_wraps_them() -> None:
    x, y = torch.tensor([0, 1, 2, 250], dtype=torch.uint8), torch.tensor([1, -128], dtype=torch.int8)

    def wraps() -> tuple[Tensor, ...]:
        return (
            x < -2, x == -2, x + (-2), torch.where(x > 0, x, -2), x.clamp(-2, 2), x.masked_fill(x > 1, -1), x + 300,
            x < 300, x * 300, y + 200, y < 200, y.abs(),
        )  # fmt: skip

    for theirs, ours in zip(wraps(), tg.compile(wraps)(), strict=True):
        assert torch.equal(ours, theirs)
    for refused in (lambda: x.clamp(0, 300), lambda: torch.where(x > 0, x, 300), lambda: torch.full_like(x, 300)):
        with pytest.raises(RuntimeError, match="without overflow"):
            tg.compile(refused)()


def test_dropout_is_one_kernel_with_what_is_around_it() -> None:
    """The random numbers are ATen's call, so that they are eager's; it needs nothing that a loop makes."""

    def block(x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.gelu(x), 0.25) + residual

    x, residual = torch.randn(32, 48, requires_grad=True), torch.randn(32, 48)
    compiled, results = tg.compile(block, fullgraph=True), []
    for fn in (block, compiled):
        torch.manual_seed(3)
        out = fn(x, residual)
        results.append((out, *torch.autograd.grad(out.sum(), x)))
    torch.testing.assert_close(*results)
    (graph,) = tg.explain(compiled).graphs()
    calls = graph.files["forward_wrapper.py"].split("def call")[1]
    assert calls.count("    kernel_") == 1


def test_complex_numbers_leave_the_operator_to_aten() -> None:
    """Without a word: the log says nothing that a program's author could mend."""
    x = torch.tensor([1.0, 0.0, 2.0])
    for f in (lambda x: x == 1j, lambda x: x != 1 + 0j, lambda x: x * 1j + 2j, lambda x: torch.rsub(x, 1j)):
        torch.testing.assert_close(tg.compile(f)(x), f(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_gradients_far_from_zero(dtype: torch.dtype) -> None:
    """That of logsigmoid is small, not 0, where ``sigmoid`` rounds to 1."""
    ends = [5, 12, 16, 17, 20, 40, -200, math.inf, -math.inf, math.nan, 0.0]

    def gradients(x: Tensor) -> list[Tensor]:
        return [torch.autograd.grad(f(x).sum(), x)[0] for f in (F.logsigmoid, F.hardsigmoid)]

    x = torch.tensor(ends, dtype=dtype, requires_grad=True)
    rtol = 2 * torch.finfo(dtype).eps
    for got, want in zip(tg.compile(gradients)(x), gradients(x)):
        torch.testing.assert_close(got, want, rtol=rtol, atol=0, equal_nan=True)


@pytest.mark.parametrize("eps", [None, 1e-6, 3e-4, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_logit_at_its_ends(dtype: torch.dtype, eps: float | None) -> None:
    """The ends are numbers of the dtype: 1 - 1e-6 is 1 in half precision."""
    places = [-1.0, 0.0, 0.1, 0.5, 0.9, 1.0, 2.0] + [1e-6, 1 - 1e-6, 3e-4, 1 - 3e-4] * (dtype != torch.float32)

    def values(x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.logit(x, eps)
        return y.detach(), torch.autograd.grad(y.sum(), x)[0]

    for place in places + [math.nan] * (dtype != torch.float32):  # single numbers: eager's vectors differ in NaN
        x = torch.tensor([place], dtype=dtype, requires_grad=True)
        for got, want in zip(tg.compile(values)(x), values(x)):
            torch.testing.assert_close(got, want, rtol=4 * torch.finfo(dtype).eps, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_sums_with_multiples_round_once(dtype: torch.dtype) -> None:
    """As eager's vectors do: what is added may be more than the dtype holds."""
    most = torch.finfo(dtype).max
    x, y = torch.cat([torch.randn(2, 64, dtype=dtype), torch.tensor([[math.inf, 1.5], [-most, most]], dtype=dtype)], 1)

    def sums(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        scaled = torch.add(x, y, alpha=3), torch.sub(x, y, alpha=2.3), torch.rsub(y, x, alpha=2.0)
        return *scaled, torch.addcmul(x, x, y, value=0.5), torch.lerp(x, y, 0.3), torch.lerp(x, y, 0.8)

    for got, want in zip(tg.compile(sums)(x, y), sums(x, y), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
