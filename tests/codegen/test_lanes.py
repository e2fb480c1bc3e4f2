"""Sums along rows in lanes: where they are, and that they give what one addition after the other gives."""

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg
from torchglass.codegen import c_kernel, c_lanes
from torchglass.codegen.c_lanes import Lanes, laned, lanes_of

BODY = ["const float t1 = x[256*i0 + i1];", "r2 = r2 + t1;"]
TWO = ["const float t1 = tg_from_bf16(x[256*i0 + i1]);", "r2 = r2 + t1;"]
EXP = ["const float t1 = x[i1];", "const float t2 = tg_exp_f32(t1);", "r2 = r2 + t2;"]


@pytest.mark.parametrize(
    ("body", "memory", "size", "lanes"),
    [
        (BODY, ("float",), 2048, Lanes(16, 2)),
        (BODY, ("float",), 31, None),
        (BODY, ("bf16",), 32, Lanes(32, 1)),
        (TWO, ("bf16",), 32, Lanes(16, 2, pairs=True)),
        (BODY, ("float", "f16"), 100, Lanes(32, 1)),
        (BODY, ("float", "bool8"), 2048, None),
        (BODY, ("double",), 2048, None),
        (["const int64_t t3 = i1;", *BODY], ("float",), 2048, None),
        (EXP, ("float",), 2048, Lanes(16, 1)),
        ([*BODY, "y[i1] = t1;"], ("float",), 16, Lanes(16, 1)),
        (BODY, ("float",), "s0", Lanes(16, 2)),
    ],
)
def test_how_many(body, memory, size, lanes, monkeypatch):
    monkeypatch.setattr(c_lanes, "VECTOR", 16)
    assert lanes_of(body, memory, 1, size) == lanes


def test_text(monkeypatch):
    monkeypatch.setattr(c_lanes, "VECTOR", 8)
    before, loops, sums = laned(BODY, ["r2"], Lanes(8, 2), 1, 100)
    assert before == ["f32x8 r2_v[2] = {};"]
    assert sums == ["tg_sum_f32x8(r2_v[0] + r2_v[1])"]
    assert (
        "\n".join(loops)
        == """for (int64_t j = 0; j < 96; j += 16) {
    float r2_l[16] ALIGNED;
    #pragma omp simd
    for (int64_t l = 0; l < 8; ++l) {
        {
            const int64_t i1 = j + l;
            const float t1 = x[256*i0 + i1];
            r2_l[l] = t1;
        }
        {
            const int64_t i1 = j + l + 8;
            const float t1 = x[256*i0 + i1];
            r2_l[l + 8] = t1;
        }
    }
    r2_v[0] += *(f32x8*)&r2_l[0];
    r2_v[1] += *(f32x8*)&r2_l[8];
}
{
    float r2_l[16] ALIGNED = {};
    #pragma omp simd
    for (int64_t l = 0; l < 4; ++l) {
        const int64_t i1 = 96 + l;
        const float t1 = x[256*i0 + i1];
        r2_l[l] = t1;
    }
    r2_v[0] += *(f32x8*)&r2_l[0];
    r2_v[1] += *(f32x8*)&r2_l[8];
}"""
    )


def test_text_of_pairs(monkeypatch):
    monkeypatch.setattr(c_lanes, "VECTOR", 8)
    _, loops, _ = laned(TWO, ["r2"], Lanes(8, 2, pairs=True), 1, 96)
    assert (
        "\n".join(loops)
        == """for (int64_t j = 0; j < 96; j += 16) {
    float r2_l[16] ALIGNED;
    #pragma omp simd
    for (int64_t l = 0; l < 8; ++l) {
        const int64_t i1 = j + 2*l;
        const pair t1_p = PAIR(x[256*i0 + i1]);
        const float t1 = tg_first(t1_p), t1_b = tg_second(t1_p);
        r2_l[l] = t1;
        r2_l[l + 8] = t1_b;
    }
    r2_v[0] += *(f32x8*)&r2_l[0];
    r2_v[1] += *(f32x8*)&r2_l[8];
}"""
    )


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
def test_vectors_of_eight(dtype, columns, monkeypatch):
    for module in (c_lanes, c_kernel):
        monkeypatch.setattr(module, "VECTOR", 8)
    check(FUNCTIONS["moments"], dtype, columns)


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
    with tg.prepare_debug(tmp_path):
        tg.compile(FUNCTIONS["moments"])(torch.randn(64, 2 * c_lanes.VECTOR * c_lanes.STEPS))
    (kernels,) = tmp_path.rglob("forward_kernels.c")
    assert f"r2 += tg_sum_f32x{c_lanes.VECTOR}(r2_v[0] + r2_v[1]);" in kernels.read_text()
