"""The prelude's float functions over their whole range: rounding, the ends of float32, NaN of any payload."""

import platform

import pytest
import torch

import torchglass as tg
from torchglass.runtime import toolchain

FUNCTIONS = {
    "exp": (torch.exp, 1.0),
    "sigmoid": (torch.sigmoid, 2.5),
    "erf": (torch.erf, 2.0),
}


def everywhere():
    """Every 4099th float32, and the ends of exp's range."""
    numbers = torch.arange(-(2**31), 2**31, 4099).to(torch.int32).view(torch.float32)
    ends = torch.tensor([0.0, -0.0, 88.72283, 88.722839, 89.0, 95.0, -86.9, -87.4, -103.9, -104.0, -104.1, -1e9])
    return torch.cat((numbers, ends, torch.linspace(-110, 95, 100_003)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_ulps_from_float64(name):
    function, most = FUNCTIONS[name]
    x = everywhere()
    got, want = tg.compile(function)(x), function(x.double())
    rounded = want.float()
    assert torch.equal(got.isnan(), x.isnan())
    whole = rounded.isfinite() & (rounded.abs() >= 2.0**-126)
    ulp = torch.exp2(torch.floor(torch.log2(want[whole].abs())) - 23)
    errors = (got.double() - want)[whole].abs() / ulp
    assert float(errors.max()) <= most
    small = ~whole & ~x.isnan() & rounded.isfinite()
    assert float((got.double() - want)[small].abs().max()) <= 2.0**-126
    assert torch.equal(got[rounded.isinf()], rounded[rounded.isinf()])


def test_exp_of_what_is_nearly_0_is_no_normal_number():
    x = torch.linspace(-104.5, -87, 4096)
    got, want = tg.compile(torch.exp)(x), x.double().exp()
    assert float((got.double() - want).abs().max()) <= 2.0**-149


def test_gelu_keeps_to_float64():
    x = torch.linspace(-15, 15, 100_003)
    got, want = tg.compile(torch.nn.functional.gelu)(x), torch.nn.functional.gelu(x.double())
    eager = (torch.nn.functional.gelu(x) - want).abs().max()
    assert float((got.double() - want).abs().max()) <= max(float(eager), 2.0**-21)  # half an ulp of the largest


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_names_that_the_c_library_has(dtype):
    """A result is called after its operation, and an argument as the program calls it."""
    a, b = torch.randn(5, dtype=dtype), torch.randn(5, dtype=dtype)
    programs = (torch.hypot, torch.nextafter, torch.atan2, lambda pow, expf: expf.exp() + pow.abs().pow(0.5))
    for program in programs:
        torch.testing.assert_close(tg.compile(lambda a, b, program=program: program(a, b))(a, b), program(a, b))


def test_names_that_the_wrapper_has():
    x = torch.randn(3)
    torch.testing.assert_close(tg.compile(lambda kernel_0, aten_x: kernel_0 * aten_x + 1)(x, x), x * x + 1)


REMAINDERS = {
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "floor_divide": torch.floor_divide,
    "div": lambda x, y: torch.div(x, y, rounding_mode="floor"),
}


def divided(dtype):
    """Numerators and divisors: all pairs of the ends, any bits, quotients of all sizes, subnormals, exact multiples."""
    n, tiny = 1 << 14, torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    whole = {torch.float32: torch.int32, torch.float64: torch.int64}[dtype]
    info = torch.iinfo(whole)
    random = torch.Generator().manual_seed(3)

    def bits():
        return torch.randint(info.min, info.max, (n,), dtype=whole, generator=random).view(dtype)

    def normal(scale=1.0):
        return torch.randn(n, dtype=dtype, generator=random) * scale

    def integers(most, scale=1.0):
        return torch.randint(-most, most, (n,), generator=random).to(dtype) * scale

    ends = [0, 1, 0.3, torch.inf, torch.nan, tiny, 3 * tiny, torch.finfo(dtype).max, 2.0**24, 2.0**53, 1e-39, 7, 1 / 3]
    ends = torch.tensor([sign * end for end in ends for sign in (1, -1)], dtype=dtype)
    once = normal()
    pairs = [
        tuple(torch.cartesian_prod(ends, ends).t()), (bits(), bits()), (normal(10), normal()),
        (once * integers(2**20), once), (integers(2**24), torch.full((n,), 3.0, dtype=dtype)),
        (normal(2.0**26), normal()), (normal(2.0**60), normal()), (normal(2.0**100), normal(2.0**-20)),
        (bits(), integers(9, tiny)), (integers(2**20, tiny), integers(9, tiny)),
    ]  # fmt: skip
    return tuple(torch.cat(side) for side in zip(*pairs))


def apart(x):
    """The same numbers with gaps between, for which eager asks the C library one by one."""
    return torch.empty(2 * len(x), dtype=x.dtype)[::2].copy_(x)


MACHINES = ("native", "x86-64", "x86-64-v3") if platform.machine() == "x86_64" else ("native",)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", REMAINDERS)
def test_remainders_are_exact(name, dtype, machine, monkeypatch):
    """Every width of vectors, which the C library does not have."""
    if machine != "native" and torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        pytest.skip("this processor has not all the vectors")
    flags = tuple(f"-march={machine}" if flag == "-march=native" else flag for flag in toolchain.FLAGS)
    monkeypatch.setattr(toolchain, "FLAGS", flags)
    (x, y), function = divided(dtype), REMAINDERS[name]
    got, want = tg.compile(function)(x, y), function(apart(x), apart(y)).contiguous()
    integer = torch.int32 if dtype == torch.float32 else torch.int64
    same = (got.view(integer) == want.view(integer)) | (got.isnan() & want.isnan())
    assert torch.equal(x[~same], x[:0]), (x[~same][0], y[~same][0], got[~same][0], want[~same][0])
    eager = function(x, y)
    finite = (x / y).isfinite() | ~x.isfinite() | ~y.isfinite() | (y == 0)  # beyond, eager's vectors give NaN
    torch.testing.assert_close(got[finite], eager[finite], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_remainders_in_half_precision(dtype):
    """Those of float32, rounded once; eager's floor_divide rounds in between."""
    x, y = torch.randn(1003).mul(100).to(dtype), torch.randn(1003).to(dtype)
    for function in REMAINDERS.values():
        want = function(x.float(), y.float()).to(dtype)
        torch.testing.assert_close(tg.compile(function)(x, y), want, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_lgamma_of_many_numbers_is_eagers(dtype):
    """ATen's kernel, between loops."""
    x = torch.randn(2, 1003).mul(20).to(dtype)
    got, want = tg.compile(lambda x: (x * 2).lgamma() + 1)(x), (x * 2).lgamma() + 1
    torch.testing.assert_close(got, want, rtol=0, atol=0)


def every_half() -> torch.Tensor:
    return torch.arange(-(2**15), 2**15).short().view(torch.float16)


def half_conversions():
    edges = torch.tensor([65504.0, 65519.9, 65520.0, 2.0**-14, 2.0**-24, 2.0**-25, 2.0**-25 * 1.01, 2.0**-26])
    random = torch.randint(-(2**31), 2**31, (1 << 16,)).int().view(torch.float32)
    near = torch.cat([torch.randn(1 << 12) * scale for scale in (1.0, 1e-3, 1e-5, 1e-7, 1e4, 6e4)])
    floats = torch.cat([edges, -edges, random, near])
    halves = every_half()
    yield lambda x: x.float() * 1, halves
    yield lambda x: (x * 1).bfloat16(), halves
    yield lambda x: (x * 1).bool(), halves
    yield lambda x: (x * 1).int(), halves.nan_to_num(0, 0, 0)
    yield lambda x: (x * 1).half(), floats
    yield lambda x: (x * 1).half(), floats.double() * (1 + 2.0**-40)
    yield lambda x: (x * 1).half(), torch.randint(-70_000, 70_000, (4096,))


@pytest.mark.parametrize("function, x", list(half_conversions()))
def test_halves_become_other_numbers_and_back_as_in_eager(function, x):
    found, wanted = tg.compile(function)(x), function(x)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(found.signbit()[~found.isnan()], wanted.signbit()[~wanted.isnan()])
