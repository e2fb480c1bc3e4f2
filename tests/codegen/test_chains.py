"""Reductions along rows in several chains: where they are, and that they give what one gives."""

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg
from torchglass.codegen.c_chains import chained, chains_of

BODY = ["const float t1 = x[256*i0 + i1];", "r2 = r2 + t1;"]


@pytest.mark.parametrize(
    ("body", "operators", "size", "count"),
    [
        (BODY, "+", 2048, 4),
        (BODY, "+", 3072, 2),
        (BODY, "+", 1024, 1),
        (BODY, "+", 2000, 1),
        (BODY, "+", 8192, 1),
        ([*BODY, "const float t2 = y[i1];"], "+", 2048, 1),
        (["const float t1 = x[i1];", "const float t2 = tg_exp_f32(t1);", "r2 = r2 + t2;"], "+", 2048, 1),
        ([*BODY, "r2[i1] = t1;"], "+", 2048, 1),
        (["const float t1 = tg_from_bf16(x[i1]);", "r2 = r2 + t1;"], "+", 2048, 4),
        (["const float t1 = tg_from_bf16(x[i1]);", "r2 = t1 > r2 ? t1 : r2;"], ("max", "|"), 2048, 1),
    ],
)
def test_how_many(body, operators, size, count):
    assert chains_of(body, operators, size, 512) == count


def test_text():
    text = "\n".join(chained(BODY, [("+", "r2", "float r2 = 0;")], 1, "0", 128, 2))
    assert (
        text
        == """float r2_1 = 0;
#pragma omp simd reduction(+:r2,r2_1)
for (int64_t j = 0; j < 0 + 128; ++j) {
    {
        const int64_t i1 = j;
        const float t1 = x[256*i0 + i1];
        r2 = r2 + t1;
    }
    {
        const int64_t i1 = j + 128;
        const float t1 = x[256*i0 + i1];
        r2_1 = r2_1 + t1;
    }
}
r2 = r2 + r2_1;"""
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
    "integers": lambda x: x.long().sum(-1),
}


@pytest.mark.parametrize("columns", [1024, 1536, 2048, 3072, 4096])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results(name, dtype, columns):
    fn = FUNCTIONS[name]
    x = torch.randn(5, columns, generator=torch.Generator().manual_seed(columns)).to(dtype)
    close(tg.compile(fn)(x), fn(x.double()))
    x[1, columns - 3] = torch.nan
    if name != "integers":
        close(tg.compile(fn)(x), fn(x.double()))


def close(found, exact):
    """Within the rounding of the results' dtypes."""
    for one, right in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, exact))):
        torch.testing.assert_close(one, right.to(one.dtype), equal_nan=True)


def test_rows_are_divided(tmp_path):
    with tg.prepare_debug(tmp_path):
        tg.compile(FUNCTIONS["moments"])(torch.randn(64, 2048))
    (kernels,) = tmp_path.rglob("forward_kernels.c")
    assert "r2_b = (r2_b + r2_b_1) + (r2_b_2 + r2_b_3);" in kernels.read_text()
