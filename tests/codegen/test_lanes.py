"""Sums along rows in lanes: where they are, and that they give what one addition after the other gives."""

import pytest
import torch
import torch.nn.functional as F
from tests.codegen.harness import Compiled

import torchglass as tg
from torchglass.records.target import Cpu, Targets
from torchglass.runtime import machine

FUNCTIONS = {
    "sum": lambda x: x.sum(-1),
    "moments": lambda x: torch.var_mean(x, -1),
    "extrema": lambda x: (x.amax(-1), x.amin(-1), x.sum(-1)),
    "product": lambda x: (x / 100 + 1).prod(-1),
    "softmax": lambda x: F.softmax(x, -1),
    "any": lambda x: ((x > 3).any(-1), (x > -3).all(-1)),
    "norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "argmax": lambda x: x.argmax(-1),
    "integers": lambda x: x.nan_to_num().long().sum(-1),
}


COLUMNS = 31, 32, 33, 100, 1000, 1024, 2048, 2049, 3072, 5000


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_results(dtype, columns):
    check(lambda x: [fn(x) for fn in FUNCTIONS.values()], dtype, columns)


@pytest.mark.parametrize("columns", [16, 17, 100, 1024, 3072])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_vectors_of_eight(dtype, columns, tmp_path):
    fn, x = FUNCTIONS["moments"], torch.randn(5, columns).to(dtype)
    close(Compiled(fn, [x], tmp_path, Targets(Cpu(vector_bits=256))).call([x]), fn(x.double()))


@pytest.mark.parametrize("shape", [(3, 4, 50), (2, 7, 300), (2, 40, 3), (2, 3, 1000)])
def test_several_dimensions(shape):
    """A view whose dimensions do not collapse."""
    x = torch.rand(shape[0], shape[1], shape[2] + 1)[..., :-1]  # sums that do not cancel
    fn = lambda x: (x.sum((1, 2)), x.amax((1, 2)), (x * x).mean((1, 2)))
    close(tg.compile(fn)(x), fn(x.double()))


def test_sizes_that_change():
    for columns in COLUMNS:
        x = torch.randn(4, columns)
        close(tg.compile(FUNCTIONS["moments"])(x), FUNCTIONS["moments"](x.double()))


def check(fn, dtype, columns):
    x = torch.randn(5, columns, generator=torch.Generator().manual_seed(columns)).to(dtype)
    compiled = tg.compile(fn)
    close(compiled(x), fn(x.double()))
    x[1, columns - 3] = torch.nan
    close(compiled(x), fn(x.double()))


def close(found, exact):
    """Within the rounding of the results' dtypes."""
    if isinstance(exact, torch.Tensor):
        torch.testing.assert_close(found, exact.to(found.dtype), equal_nan=True)
        return
    for one, right in zip(found, exact, strict=True):
        close(one, right)


def test_a_kernel_has_them(tmp_path):
    cpu = machine.targets().cpu
    compiled = Compiled(FUNCTIONS["moments"], [torch.randn(64, 2 * cpu.lanes * cpu.schedule.lane_steps)], tmp_path)
    assert f"r2 += tg_sum_f32x{cpu.lanes}(r2_v[0] + r2_v[1]);" in compiled.sources.texts["c"]
