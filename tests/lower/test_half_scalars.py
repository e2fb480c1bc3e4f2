"""Numbers and tensors without dimensions beside half floats: eager rounds most of them first (``OPMATH``), exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.codegen.harness import check

import torchglass as tg

HALVES = [torch.float16, torch.bfloat16]
INF, NAN = math.inf, math.nan
SCALARS = (0.1, 1 / 3, 1e-9, 65519.0, -1e10, 2049, INF)
NUMBERS = (0.1, 0.2, 0.3, 0.7, -0.1, 1 / 3, INF, -INF, NAN, 0.0, 65504.0, 1.0, -3.0, 2.5, 9.0, 1e-9, 2048.0)

Operator = Callable[[torch.Tensor, Any], torch.Tensor]
OPERATORS: dict[str, Operator] = {
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
    "add": torch.add, "sub": torch.sub, "rsub": torch.rsub, "mul": torch.mul, "div": torch.div,
    "remainder": torch.remainder, "fmod": torch.fmod, "floor_divide": torch.floor_divide,
    "trunc": lambda x, s: torch.div(x, s, rounding_mode="trunc"),
    "floor": lambda x, s: torch.div(x, s, rounding_mode="floor"),
    "where": lambda x, s: torch.where(x > 0, x, s),
}  # fmt: skip
FROM_THE_LEFT: dict[str, Operator] = {
    "remainder": lambda x, s: torch.remainder(s, x),
    "mul": lambda x, s: torch.mul(s, x),
    "div": lambda x, s: torch.div(s, x),
}
OF_NUMBERS: dict[str, Operator] = {
    "alpha": lambda x, s: torch.add(torch.ones_like(x), 1, alpha=s) + 0 * x,
    "lerp": lambda x, s: torch.lerp(x, x.flip(0), s),
    "addcmul": lambda x, s: torch.addcmul(x, x.flip(0), x, value=s),
    "addcdiv": lambda x, s: torch.addcdiv(x, x.flip(0), x, value=s),
    "leaky_relu": F.leaky_relu,
    "clamp": lambda x, s: x.clamp(-abs(s), s),
    "hardshrink": lambda x, s: F.hardshrink(x, abs(s)),
    "masked_fill": lambda x, s: x.masked_fill(x > 0, s),
    "threshold": lambda x, s: F.threshold(x, s, 0.0),
}
HELD = [s for s in SCALARS if not math.isfinite(s) or abs(s) <= 65504]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_scalars(dtype: torch.dtype, tmp_path: Path) -> None:
    def fn(x: torch.Tensor) -> Any:
        return (
            *(operator(x, s) for operator in OPERATORS.values() for s in SCALARS),
            *(operator(x, s) for operator in OF_NUMBERS.values() for s in HELD),
        )

    check(fn, [torch.tensor(NUMBERS * 3).to(dtype)], tmp_path, tol=0)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("of", [torch.float64, None], ids=str)
def test_tensors_without_dimensions(of: torch.dtype | None, dtype: torch.dtype, tmp_path: Path) -> None:
    def fn(x: torch.Tensor, *singles: torch.Tensor) -> Any:
        return tuple(operator(x, s) for operator in (*OPERATORS.values(), *FROM_THE_LEFT.values()) for s in singles)

    singles = [torch.tensor(s, dtype=of or dtype) for s in (0.1, 1e-9, 70000.0, 2049)]
    check(fn, [torch.tensor(NUMBERS).to(dtype), *singles], tmp_path, tol=0)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_tensors_of_whole_numbers(dtype: torch.dtype, tmp_path: Path) -> None:
    """Beside a half float without dimensions they are rounded to its dtype."""

    def fn(x: torch.Tensor, single: torch.Tensor) -> Any:
        return x + single, x * single, x == single, torch.full_like(single, 0.1) == 0.1

    check(fn, [torch.tensor([2049, 70001, 4097]), torch.tensor(2048, dtype=dtype)], tmp_path, tol=0)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_quotients_towards_zero_are_rounded_first(dtype: torch.dtype, tmp_path: Path) -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> Any:
        return torch.div(a, b, rounding_mode="trunc"), torch.div(1.0, b, rounding_mode="trunc")

    check(fn, [torch.tensor([1.0, 0.5, 3]).to(dtype), torch.tensor([0.1, 0.1, 0.3]).to(dtype)], tmp_path, tol=0)


REFUSED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "add": lambda x: torch.add(x, x, alpha=70000.0),
    "pow": lambda x: x**70000.0,
    "clamp": lambda x: x.clamp(min=70000.0),
    "fill": lambda x: torch.full_like(x, 70000.0),
    "masked_fill": lambda x: x.masked_fill(x > 0, 70000.0),
    "hardshrink": lambda x: F.hardshrink(x, 70000.0),
    "pad": lambda x: F.pad(x, (1, 1), value=70000.0),
    "pad with a wide number": lambda x: F.pad(x.to(torch.int8), (1, 1), value=300),
    "pad with no number": lambda x: F.pad(x.to(torch.int32), (1, 1), value=NAN),
}


@pytest.mark.parametrize("name", REFUSED)
def test_numbers_that_eager_refuses(name: str) -> None:
    with pytest.raises(RuntimeError, match="without overflow"):
        tg.compile(REFUSED[name])(torch.ones(2, dtype=torch.float16))


def test_what_is_made_of_truth_is_not_rounded(tmp_path: Path) -> None:
    """A one-hot's numbers are 0 and 1, whatever holds them: rounding them took a quarter of this kernel's time."""

    def fn(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (x * F.one_hot(target, 50)).sum(-1)

    x, target = torch.randn(8, 50, dtype=torch.bfloat16), torch.arange(8)
    check(fn, [x, target], tmp_path, tol=0)
    assert "tg_to_bf16(t" not in "".join(line for line in _text(tmp_path).splitlines() if "bf16 t" in line)


def test_truth_written_onto_larger_numbers_is_rounded_with_them(tmp_path: Path) -> None:
    def fn(x: torch.Tensor, n: torch.Tensor, places: torch.Tensor, on: torch.Tensor) -> torch.Tensor:
        return x * n.clone().index_copy(0, places, on.long())

    x, n = torch.full((8,), 1 / 3, dtype=torch.bfloat16), torch.arange(1001, 1009)
    check(fn, [x, n, torch.tensor([1, 3]), torch.tensor([True, False])], tmp_path, tol=0)


def _text(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.rglob("*.c"))
