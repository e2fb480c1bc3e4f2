"""Fused patterns: microseconds of a warm call, eager, ours and torch.compile turn by turn in one process.

    python -m benchmarks.kernels --json kernels.json
    python -m benchmarks.kernels --patterns softmax layernorm --sizes medium --kinds forward --dtypes float32
    python -m benchmarks.kernels --shard 0/8 --json part0.json      # every eighth case; --merge part*.json shows all

Prints every case below 0.9 times torch.compile or eager and geometric means of all. ``forward`` runs under no_grad;
``training`` is forward and backward. Our results are compared with eager's before they are timed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from . import common
from .patterns import PATTERNS, SIZES, Pattern

KINDS = ("forward", "training")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
BAR = 0.9


def main(arguments: list[str] | None = None) -> int:
    import argparse

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--patterns", nargs="+", choices=PATTERNS, default=list(PATTERNS))
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--sides", nargs="+", choices=common.SIDES, default=list(common.SIDES))
    parser.add_argument("--seconds", type=float, default=1.0, help="time to measure each case")
    parser.add_argument("--threads", type=int, help="threads torch may use")
    parser.add_argument("--shard", default="0/1", help="k/n: every n-th case from the k-th on")
    parser.add_argument("--merge", nargs="+", type=Path, help="show the figures of these files")
    chosen = parser.parse_args(arguments)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    if chosen.merge:
        rows = [row for path in chosen.merge for row in json.loads(path.read_text())["rows"]]
    else:
        rows = []
        for row in measure_all(chosen):
            rows.append(row)
            print(line(row, chosen.sides), flush=True)
            common.write_json(chosen.json, "kernels", rows, seconds=chosen.seconds)
    summary(rows)
    if chosen.merge:
        common.write_json(chosen.json, "kernels", rows)
    return 0


def measure_all(chosen: Any) -> Iterator[dict[str, Any]]:
    cases = [
        (PATTERNS[name], size, kind, dtype)
        for name in chosen.patterns
        for size in chosen.sizes
        for kind in chosen.kinds
        for dtype in chosen.dtypes
        if PATTERNS[name].trains or kind == "forward"
    ]
    k, n = map(int, chosen.shard.split("/"))
    for pattern, size, kind, dtype in cases[k::n]:
        yield measure(pattern, size, kind, dtype, chosen.sides, chosen.seconds)


def measure(pattern: Pattern, size: str, kind: str, dtype: str, sides: list[str], seconds: float) -> dict[str, Any]:
    """One row: medians by side in microseconds; ``wrong`` where our result is not eager's."""
    torch.compiler.reset()
    import torchglass as tg

    tg.reset()
    inputs = pattern.inputs(*SIZES[size], DTYPES[dtype])
    row: dict[str, Any] = {"pattern": pattern.name, "size": size, "kind": kind, "dtype": dtype, "problem": None}
    calls = {}
    try:
        for side in sides:
            calls[side] = _call(common.SIDES[side](pattern.fn), inputs, kind, dtype)
            calls[side]()
        if {"eager", "torchglass"} <= set(sides):
            row["problem"] = difference(calls["eager"](), calls["torchglass"](), dtype)
        if row["problem"] is not None:  # eager may be the one that is wrong
            exact = [x.double() if x.is_floating_point() else x for x in inputs]
            right = _call(pattern.fn, exact, kind, dtype)()
            row["problem"] = worse(right, calls["eager"](), calls["torchglass"]()) and row["problem"]
        timings = common.interleaved(calls, seconds)
    except Exception as error:  # a side that cannot do it is a row, too
        row["problem"] = f"{type(error).__name__}: {error}"[:200]
        row["microseconds"] = {}
        return row
    row["microseconds"] = {side: t.median * 1e3 for side, t in timings.items()}
    return row


def _call(fn: Callable[..., Any], inputs: list[torch.Tensor], kind: str, dtype: str) -> Callable[[], Any]:
    if kind == "forward":

        def forward() -> Any:
            with torch.no_grad():
                return fn(*inputs)

        return forward
    leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in inputs]
    moving = [x for x in leaves if x.requires_grad]
    results = fn(*leaves)
    results = results if isinstance(results, tuple) else (results,)
    torch.manual_seed(1)  # every side has the same
    weights = [_weight(r, dtype) for r in results]

    def training() -> Any:
        out = fn(*leaves)
        out = out if isinstance(out, tuple) else (out,)
        return (*out, *torch.autograd.grad(out, moving, weights, allow_unused=True))

    return training


def difference(want: Any, got: Any, dtype: str) -> str | None:
    want, got = (x if isinstance(x, tuple) else (x,) for x in (want, got))
    tolerance = 1e-4 if dtype == "float32" else 6e-2
    try:
        for a, b in zip(want, got, strict=True):
            if a is not None and a.is_floating_point():
                a = a.to(b.dtype)
                known = a.detach()[a.isfinite()]
                scale = float(known.abs().max()) if known.any() else 1.0
                torch.testing.assert_close(b, a, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
            elif a is not None:
                assert torch.equal(a, b)
    except AssertionError as error:
        return "WRONG: " + str(error).replace("\n", " ")[:160]
    return None


def _weight(result: torch.Tensor, dtype: str) -> torch.Tensor:
    """What the gradient begins with: the same for the exact result as for the rounded ones, unlike ``randn_like``."""
    if not result.dim():
        return torch.ones_like(result)
    return torch.randn_like(result, dtype=torch.float32).to(DTYPES[dtype]).to(result.dtype)


def worse(right: Any, eager: Any, ours: Any) -> bool:
    """Whether our error against float64 is more than twice eager's, in the largest one or in the mean of squares.

    Where a result near 0 decides (a relu's gradient), rounding decides it for eager and for us, not the same way; and
    eager has NaN where what it rounded to 0 has an infinite derivative. Those of its numbers do not count, ours do.
    """
    for exact, theirs, mine in zip(*(x if isinstance(x, tuple) else (x,) for x in (right, eager, ours)), strict=True):
        if exact is None or not exact.is_floating_point():
            continue
        exact, theirs, mine = (x.detach().double() for x in (exact, theirs, mine))
        if not mine[exact.isfinite()].isfinite().all():
            return True
        known = theirs.isfinite() & exact.isfinite()
        if not known.any():
            continue
        errors = [(x - exact)[known].abs() for x in (theirs, mine)]
        least = 1e-6 * float(exact[known].abs().max())
        for size in (torch.Tensor.max, lambda e: e.square().mean().sqrt()):
            if not float(size(errors[1])) <= 2 * float(size(errors[0])) + least:
                return True
    return False


def line(row: dict[str, Any], sides: list[str]) -> str:
    times = "  ".join(f"{side} {row['microseconds'].get(side, float('nan')):9.1f}" for side in sides)
    ratios = "  ".join(f"{ratio(row, side):5.2f}x {side}" for side in sides if side != "torchglass")
    case = f"{row['pattern']:22} {row['size']:6} {row['kind']:8} {row['dtype']:8}"
    return f"{case}  {times}   {ratios} {row['problem'] or ''}"


def ratio(row: dict[str, Any], side: str) -> float:
    """How many times as fast as ``side`` we are."""
    times = row["microseconds"]
    return times[side] / times["torchglass"] if side in times and "torchglass" in times else float("nan")


def summary(rows: list[dict[str, Any]]) -> None:
    good = [r for r in rows if r["microseconds"]]
    for side in ("torch.compile", "eager"):
        known = [r for r in good if side in r["microseconds"] and "torchglass" in r["microseconds"]]
        if not known:
            continue
        slow = sorted((r for r in known if ratio(r, side) < BAR), key=lambda r: ratio(r, side))
        mean = common.geometric_mean(ratio(r, side) for r in known)
        print(f"\n{side}: geometric mean {mean:.3f}x of {len(known)} cases")
        for key in ("kind", "dtype", "size"):
            parts = sorted({r[key] for r in known})
            means = {p: common.geometric_mean(ratio(r, side) for r in known if r[key] == p) for p in parts}
            print("  " + "  ".join(f"{p} {m:.3f}x" for p, m in means.items()))
        print(f"  {len(slow)} cases below {BAR}x:")
        for r in slow:
            print(f"    {ratio(r, side):5.2f}x  {r['pattern']} {r['size']} {r['kind']} {r['dtype']}")
    for r in rows:
        if r["problem"]:
            print(f"PROBLEM {r['pattern']} {r['size']} {r['kind']} {r['dtype']}: {r['problem']}")


if __name__ == "__main__":
    sys.exit(main())
