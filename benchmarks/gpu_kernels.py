"""Kernels that models spend their time in on a GPU: milliseconds and the share of the copy bandwidth, bfloat16.

    python -m benchmarks.gpu_kernels --json gpu_kernels.json
    python -m benchmarks.gpu_kernels --kernels softmax layernorm --columns 1024 --sides eager torchglass
    python -m benchmarks.gpu_kernels --device cpu --small --sides eager torchglass        # to try this script

Where ``benchmarks.gpu_loops`` runs the printed kernel alone, ours is ``tg.compile`` end to end here, forward under
no_grad and backward, which begins with the gradients of the outputs and ends with those of the inputs. torch.compile is
told that shapes are static. Times are GPU work: what the host needs to launch does not count. The inputs of successive
calls are different memory, larger together than the L2 cache. A kernel's bytes are those that must move: what it needs
once, what it makes once; the copy's are measured in the same run. Results are compared with eager's. Exits with 1 if a
side of ours failed, is wrong or ran eagerly.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from . import common, gpu_timing
from .gpu_loops import ROTATION_BYTES
from .kernels import difference, worse
from .patterns import PATTERNS

Tensor = torch.Tensor
SIDES = ("eager", "torch.compile", "torchglass")
SIZES = {1024: 32768, 4096: 16384, 16384: 8192}
"""Rows of each number of columns."""
VOCABULARY = {128256: 4096}
SMALL, SMALL_VOCABULARY = {64: 32}, {1000: 16}
COPY_BYTES = 1 << 29


@dataclass(frozen=True)
class Kernel:
    """``letters`` make its inputs, see ``inputs_of``: ``q`` are heads and ``c`` angles of a rotary embedding. Indices
    are ``i``, of a column for each row, ``t``, of rows, and ``g``, of a column for each element.

    ``forward`` and ``backward`` count the tensors of rows x columns that must be read or written, an index for four.
    """

    fn: Callable[..., Any]
    letters: str
    forward: int
    backward: int
    sizes: str = "rows"


def norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def add_norm(x: Tensor, residual: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    h = x + residual
    return F.rms_norm(h, (h.shape[-1],), w, 1e-6), h


def dropout_add_norm(x: Tensor, residual: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return norm(F.dropout(x, 0.1) + residual, w, b)


KERNELS = {
    "softmax": Kernel(PATTERNS["softmax"].fn, "x", 2, 3),
    "layernorm": Kernel(norm, "xww", 2, 3),
    "rmsnorm": Kernel(lambda x, w: F.rms_norm(x, (x.shape[-1],), w, 1e-6), "xw", 2, 3),
    "add+norm": Kernel(add_norm, "xxw", 4, 4),
    "gelu": Kernel(F.gelu, "x", 2, 3),
    "swiglu": Kernel(PATTERNS["swiglu"].fn, "xx", 3, 5),
    "rotary": Kernel(PATTERNS["rotary_heads"].fn, "qqcc", 4, 4),
    "cross entropy": Kernel(PATTERNS["cross_entropy"].fn, "xi", 1, 2, "vocabulary"),
    "dropout+add+norm": Kernel(dropout_add_norm, "xxww", 3, 4),
    "embedding": Kernel(lambda x, t: F.embedding(t, x), "xt", 2, 2),
    "gather": Kernel(lambda x, g: x.gather(1, g), "xg", 6, 0),
    "adam": Kernel(PATTERNS["adam_step"].fn, "xxxp", 7, 0),
}

HEAD = 128


def inputs_of(kernel: Kernel, rows: int, columns: int, device: str, seed: int) -> list[Tensor]:
    """Numbers of a seed, made on the device. All that are floating point and a gradient flows to ask for one."""
    torch.manual_seed(seed)
    on = {"device": device}
    head = min(HEAD, columns)
    made = {
        "x": lambda: torch.randn(rows, columns, **on),
        "p": lambda: torch.rand(rows, columns, **on) + 0.1,
        "w": lambda: torch.randn(columns, **on) * 0.1 + 1,
        "i": lambda: torch.randint(0, columns, (rows,), **on),
        "t": lambda: torch.randint(0, rows, (rows,), **on),
        "g": lambda: torch.randint(0, columns, (rows, columns), **on),
        "q": lambda: torch.randn(rows // 16, 16, columns // head, head, **on).transpose(1, 2),
        "c": lambda: torch.randn(16, head, **on).clamp(-1, 1),
    }
    values = [made[letter]() for letter in kernel.letters]
    values = [x.to(torch.bfloat16) if x.is_floating_point() else x for x in values]
    return [x.requires_grad_(letter in "xwq" and kernel.backward > 0) for letter, x in zip(kernel.letters, values)]


# -- calls -----------------------------------------------------------------------------------------------------------
def forward(fn: Callable[..., Any], inputs: list[Tensor]) -> tuple[Tensor, ...]:
    with torch.no_grad():
        return as_tuple(fn(*inputs))


def both(fn: Callable[..., Any], inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """The outputs and the gradients."""
    torch.manual_seed(1)
    out = as_tuple(fn(*inputs))
    return (*out, *gradients(out, inputs))


def gradients(out: tuple[Tensor, ...], inputs: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(out, [x for x in inputs if x.requires_grad], [weight_of(o) for o in out])


def weight_of(out: Tensor) -> Tensor:
    """What the gradient begins with: an own row of numbers for each output, the same in every dtype."""
    if not out.dim():
        return torch.ones_like(out)
    generator = torch.Generator(out.device).manual_seed(2)
    return torch.randn(out.shape, device=out.device, generator=generator).to(torch.bfloat16).to(out.dtype)


def as_tuple(result: Any) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def milliseconds(fn: Callable[..., Any], part: str, sets: list[list[Tensor]], device: str) -> float:
    if part == "forward":
        return gpu_timing.gpu_work(lambda: [lambda s=s: forward(fn, s) for s in sets], device)
    weights = [weight_of(out) for out in as_tuple(fn(*sets[0]))]

    def prepare() -> list[Callable[[], Any]]:
        ends = [(as_tuple(fn(*s)), [x for x in s if x.requires_grad]) for s in sets]
        return [lambda out=out, leaves=leaves: torch.autograd.grad(out, leaves, weights) for out, leaves in ends]

    return gpu_timing.gpu_work(prepare, device)


def copy_bandwidth(device: str, small: bool) -> float:
    """Gigabytes a second, read and written, of copying a large tensor."""
    count = (1 << 20) if small else COPY_BYTES
    pairs = [[torch.empty(count, dtype=torch.uint8, device=device).fill_(1) for _ in "ab"] for _ in range(2)]
    ms = gpu_timing.gpu_work(lambda: [lambda p=p: p[0].copy_(p[1]) for p in pairs], device)
    return 2 * count / ms / 1e6


# -- rows ------------------------------------------------------------------------------------------------------------
def compiled(fn: Callable[..., Any], side: str) -> Callable[..., Any]:
    return torch.compile(fn, dynamic=False) if side == "torch.compile" else common.SIDES[side](fn)


def measure(name: str, rows: int, columns: int, part: str, sides: list[str], device: str) -> dict[str, Any]:
    """One row: milliseconds and seconds of the first call by side, and what was wrong."""
    import torchglass as tg

    torch.compiler.reset()
    tg.reset()
    kernel = KERNELS[name]
    moved = getattr(kernel, part) * rows * columns * torch.bfloat16.itemsize
    count = max(2, min(8, ROTATION_BYTES // moved))
    sets = [inputs_of(kernel, rows, columns, device, seed) for seed in range(count)]
    row: dict[str, Any] = {"kernel": name, "rows": rows, "columns": columns, "part": part, "bytes": moved}
    row |= {"ms": {}, "cold": {}, "problems": {}}
    run = forward if part == "forward" else both
    for side in sides:
        fn = compiled(kernel.fn, side)
        try:
            with common.our_warnings() as warnings:
                begin = time.perf_counter()
                run(fn, sets[0])
                gpu_timing.synchronize(device)
                row["cold"][side] = time.perf_counter() - begin
            if side != "eager" and (problem := unlike_eager(name, fn, run, sets[0])):
                row["problems"][side] = problem
            row["ms"][side] = milliseconds(fn, part, sets, device)
            if side == "torchglass" and warnings:
                row["problems"][side] = f"ran eagerly: {warnings[0]}"
        except Exception as error:  # a side that cannot do it is a row, too
            row["problems"][side] = f"{type(error).__name__}: {error}"[:300]
    return row


def unlike_eager(name: str, fn: Callable[..., Any], run: Callable[..., Any], inputs: list[Tensor]) -> str | None:
    """What differs from eager by more than the tolerance, and is farther than twice eager's error from float64."""
    kernel = KERNELS[name]
    torch.manual_seed(1)
    mine = run(fn, inputs)
    torch.manual_seed(1)
    eager = run(kernel.fn, inputs)
    found = difference(eager, mine, "bfloat16")
    if found is None or "dropout" in name:  # whose numbers float64 does not draw
        return found
    exact = [x.detach().double().requires_grad_(x.requires_grad) if x.is_floating_point() else x for x in inputs]
    return found if worse(run(kernel.fn, exact), eager, mine) else None


def cases(chosen: Any) -> Iterator[tuple[str, int, int, str]]:
    for name in chosen.kernels:
        kernel = KERNELS[name]
        sizes = (SMALL, SMALL_VOCABULARY) if chosen.small else (SIZES, VOCABULARY)
        for columns, rows in sizes[kernel.sizes == "vocabulary"].items():
            if not chosen.columns or columns in chosen.columns:
                yield from ((name, rows, columns, part) for part in chosen.parts if getattr(kernel, part))


def line(row: dict[str, Any], sides: list[str], bandwidth: float) -> str:
    """A row for people: milliseconds, share of the copy bandwidth, and how many times as fast we are."""
    text = f"{row['kernel']:16} {row['rows']:>6}x{row['columns']:<6} {row['part']:8}"
    for side in sides:
        ms = row["ms"].get(side)
        text += f"  {side} " + (f"{ms:8.4f} ms {row['bytes'] / ms / 1e6 / bandwidth:4.0%}" if ms else "       -     ")
    ours = row["ms"].get("torchglass")
    if ours:
        text += "".join(f"  {row['ms'][s] / ours:.2f}x {s}" for s in sides if s != "torchglass" and s in row["ms"])
    return text + "".join(f"  {side}: {problem}" for side, problem in row["problems"].items())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file, after every row")
    parser.add_argument("--kernels", nargs="+", choices=KERNELS, default=list(KERNELS))
    parser.add_argument("--columns", nargs="+", type=int, help="these row lengths only")
    parser.add_argument("--parts", nargs="+", choices=("forward", "backward"), default=["forward", "backward"])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="one small size, which a CPU can run")
    parser.add_argument("--budget", type=float, default=86400, help="seconds, after which rows are skipped")
    chosen = parser.parse_args(arguments)
    end = time.monotonic() + chosen.budget
    bandwidth = copy_bandwidth(chosen.device, chosen.small)
    print(f"copy: {bandwidth:.0f} GB/s")
    rows: list[dict[str, Any]] = []
    skipped = 0
    for case in cases(chosen):
        if time.monotonic() > end:
            skipped += 1
            continue
        rows.append(measure(*case, chosen.sides, chosen.device))
        print(line(rows[-1], chosen.sides, bandwidth), flush=True)
        common.write_json(chosen.json, "gpu_kernels", rows, copy_gigabytes_per_second=bandwidth)
    for side in [s for s in chosen.sides if s != "torchglass"]:
        both_known = [r["ms"] for r in rows if {side, "torchglass"} <= set(r["ms"])]
        if both_known:
            mean = common.geometric_mean(ms[side] / ms["torchglass"] for ms in both_known)
            print(f"torchglass is {mean:.2f}x {side} (geometric mean of {len(both_known)})")
    if skipped:
        print(f"skipped {skipped} rows, the {chosen.budget:g} seconds were over")
    return 1 if any("torchglass" in row["problems"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
