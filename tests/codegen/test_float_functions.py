"""The prelude's float functions over their whole range: rounding, the ends of float32, NaN of any payload."""

import pytest
import torch

import torchglass as tg

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
