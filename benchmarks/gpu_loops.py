"""The loop programs on a GPU: printed as Triton, run, compared with eager and timed beside torch.compile.

    python -m benchmarks.gpu_loops --json gpu_loops.json
    python -m benchmarks.gpu_loops --programs toy softmax layernorm --sides eager torchglass

Programs are traced and lowered from CPU tensors by our own stages; only the launch is on the GPU. Runs from a checkout
without building anything. For every program, size and dtype one line says PASS or FAIL: our root mean square error
against float64 may be twice eager's own, and NaN and infinities must be where eager has them. Exits with 1 on a FAIL.

Times are milliseconds of GPU work of one call: medians of CUDA graph replays that rotate through several sets of inputs
(larger together than the L2 cache), sides turn by turn. ``call_us`` is a call's time on the host for a tiny input.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from . import common

if importlib.util.find_spec("torchglass") is None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

Call = Callable[..., torch.Tensor]
ROTATION_BYTES = 1 << 29
FLOOR_ULPS = 4


def toy(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a / (torch.abs(a) + 1) * (b * -1)


def chain(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    x = torch.sin(a) * torch.exp(-b * b) + torch.tanh(a * 0.5)
    x = torch.where(x > 0, x.sqrt(), x * 0.1) + torch.log1p(b.abs())
    return torch.maximum(x, a).clamp(-3, 3) * torch.sigmoid(b) - torch.erf(x)


@dataclass(frozen=True)
class Program:
    """A function of the inputs' shapes at (rows, columns), and the sizes to run it at; the first in float64 as well."""

    fn: Call
    shapes: Callable[[int, int], list[tuple[int, ...]]]
    sizes: tuple[tuple[int, int], ...]


def _two(rows: int, columns: int) -> list[tuple[int, ...]]:
    return [(rows, columns)] * 2


def _normed(rows: int, columns: int) -> list[tuple[int, ...]]:
    return [(rows, columns), (columns,), (columns,)]


PROGRAMS: dict[str, Program] = {
    "toy": Program(toy, _two, ((4096, 4096), (3001, 3333), (1, 10))),
    "softmax": Program(
        lambda x: torch.softmax(x, -1),
        lambda r, c: [(r, c)],
        ((16384, 1024), (8192, 1000), (65536, 100), (4096, 4097), (512, 50257)),
    ),
    "layernorm": Program(
        lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b),
        _normed,
        ((16384, 1024), (8192, 1000), (8192, 3000), (65536, 100), (1024, 20000)),
    ),
    "rmsnorm": Program(
        lambda x, w, b: F.rms_norm(x, (x.shape[-1],), w, 1e-6) + b, _normed, ((16384, 1024), (8192, 3000))
    ),
    "chain": Program(chain, _two, ((4096, 4096), (3001, 3333))),
    "silu_mul": Program(lambda a, b: F.silu(a) * b, _two, ((4096, 4096), (4096, 11008))),
    "gelu": Program(lambda a: F.gelu(a), lambda r, c: [(r, c)], ((4096, 4096), (3001, 3333))),
}


# -- ours ------------------------------------------------------------------------------------------------------------
def build(program: Program, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, folder: Path) -> Call:
    """The program through autodiff, lower, fuse and the Triton printer; the folder keeps what runs."""
    from torchglass import autodiff, codegen, fuse, lower, schedule
    from torchglass.records.target import Gpu, Targets
    from torchglass.runtime.load import load

    inputs = [torch.empty(s, dtype=dtype) for s in shapes]
    targets = Targets(cpu=Gpu())
    graph = autodiff.trace_inference(torch.fx.symbolic_trace(program.fn), inputs).forward
    fused = fuse.run(lower.run(graph, targets), targets)
    sources = codegen.run(schedule.run(fused, targets), targets)
    folder.mkdir(parents=True)
    (folder / "forward_kernels.py").write_text(sources.texts["triton"])
    (folder / "forward_wrapper.py").write_text(sources.wrapper_text)
    if any(hasattr(step, "target") for step in fused.steps):
        raise AssertionError(f"an ATen call is left in\n{fused}")
    call = load(folder / "forward_wrapper.py")
    return lambda *args: call(list(args))[0]


# -- errors ----------------------------------------------------------------------------------------------------------
def numbers(shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, seed: int) -> list[torch.Tensor]:
    """Normal numbers on the GPU, other ones for each seed."""
    generator = torch.Generator("cuda").manual_seed(seed)
    return [torch.randn(s, dtype=dtype, device="cuda", generator=generator) * 3 for s in shapes]


def errors(ours: Call, fn: Call, inputs: list[torch.Tensor]) -> dict[str, Any]:
    """Root mean square errors against float64 (of the CPU, where the inputs are float64 themselves)."""
    where = "cpu" if inputs[0].dtype == torch.float64 else "cuda"
    exact = fn(*(x.to(where, torch.float64) for x in inputs)).cuda()
    eager = fn(*inputs)
    poison(eager)
    result = ours(*inputs)
    mean, eagers = (float((r.double() - exact).square().mean().sqrt()) for r in (result, eager))
    largest = float((result.double() - exact).abs().max())
    floor = FLOOR_ULPS * torch.finfo(eager.dtype).eps * float(exact.square().mean().sqrt())
    same = result.dtype == eager.dtype and result.shape == eager.shape and result.stride() == eager.stride()
    fine = same and mean <= max(2 * eagers, floor)  # NaN is not fine
    return {
        "ours": mean,
        "eager": eagers,
        "ours_largest": largest,
        "fine": fine,
        "nan_and_inf": special(ours, fn, inputs),
    }


def poison(like: torch.Tensor) -> None:
    """Leave NaN in the memory that the next result will take, so that unwritten elements show."""
    torch.full_like(like, float("nan"))


def special(ours: Call, fn: Call, inputs: list[torch.Tensor]) -> str:
    """Whether NaN and infinities in the first input end where eager's do: "as eager", "as eager on the CPU", "differs".

    Eager's own kernels disagree in places: rms_norm of a float64 row with an infinity is all NaN on the GPU, and NaN at
    that element alone on the CPU and in float32.
    """
    first = inputs[0].clone()
    flat = first.view(-1)
    for value, step in ((float("nan"), 4099), (float("inf"), 3001), (float("-inf"), 5003)):
        flat[step - 1 :: step * 7] = value
    first[-1] = float("-inf")
    changed = [first, *inputs[1:]]
    got = ours(*changed)
    if alike(got, fn(*changed)):
        return "as eager"
    return "as eager on the CPU" if alike(got.cpu(), fn(*(x.cpu() for x in changed))) else "differs"


def alike(got: torch.Tensor, want: torch.Tensor) -> bool:
    """NaN and infinities in the same places, the rest close."""
    return torch.allclose(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)


# -- times -----------------------------------------------------------------------------------------------------------
def times(sides: dict[str, Call], shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> dict[str, float]:
    """Median milliseconds of GPU work by side."""
    nbytes = 2 * sum(torch.Size(s).numel() for s in shapes) * dtype.itemsize
    count = max(2, min(8, ROTATION_BYTES // nbytes))
    sets = [numbers(shapes, dtype, seed) for seed in range(count)]
    replays = {name: _captured(fn, sets) for name, fn in sides.items()}
    taken: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for turn in range(25):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            replays[name].replay()
            end.record()
            end.synchronize()
            if turn >= 5:
                taken[name].append(begin.elapsed_time(end) / count)
    return {name: statistics.median(rows) for name, rows in taken.items()}


def _captured(fn: Call, sets: list[list[torch.Tensor]]) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            fn(*sets[0])
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [fn(*inputs) for inputs in sets]
    del kept
    return graph


def host_times(sides: dict[str, Call], inputs: list[torch.Tensor]) -> dict[str, float]:
    """Microseconds a call takes on the host, by side."""
    out = {}
    for name, fn in sides.items():
        rows = []
        for _ in range(300):
            begin = time.perf_counter()
            fn(*inputs)
            rows.append(time.perf_counter() - begin)
            torch.cuda.synchronize()
        out[name] = statistics.median(rows) * 1e6
    return out


# -- all -------------------------------------------------------------------------------------------------------------
def cases(chosen: Any) -> Iterator[tuple[str, tuple[int, int], torch.dtype]]:
    for name in chosen.programs:
        for n, size in enumerate(PROGRAMS[name].sizes):
            for dtype in (torch.float32, torch.float64) if n == 0 else (torch.float32,):
                yield name, size, dtype


def measure(name: str, size: tuple[int, int], dtype: torch.dtype, sides: list[str], folder: Path) -> dict[str, Any]:
    """One row: errors, seconds until our first result, milliseconds by side."""
    program = PROGRAMS[name]
    shapes = program.shapes(*size)
    inputs = numbers(shapes, dtype, seed=99)
    begin = time.perf_counter()
    ours = build(program, shapes, dtype, folder / f"{name}_{size[0]}x{size[1]}_{str(dtype)[6:]}")
    ours(*inputs)
    torch.cuda.synchronize()
    cold = time.perf_counter() - begin
    row = {
        "program": name,
        "size": list(size),
        "dtype": str(dtype)[6:],
        "cold_s": cold,
        **errors(ours, program.fn, inputs),
    }
    calls: dict[str, Call] = {"eager": program.fn, "torchglass": ours}
    if "torch.compile" in sides and dtype == torch.float32:
        torch.compiler.reset()
        calls["torch.compile"] = torch.compile(program.fn, dynamic=False)
    calls = {side: calls[side] for side in sides if side in calls}
    row["milliseconds"] = times(calls, shapes, dtype)
    moved = (sum(x.numel() for x in inputs) + inputs[0].numel()) * dtype.itemsize
    row["gigabytes_per_second"] = {side: moved / ms / 1e6 for side, ms in row["milliseconds"].items()}
    if size[0] == 1:
        row["call_us"] = host_times(calls, inputs)
    return row


def line(row: dict[str, Any]) -> str:
    """A row for people."""
    verdict = "PASS" if row["fine"] and row["nan_and_inf"] != "differs" else "FAIL"
    text = f"{verdict} {row['program']:9} {row['size'][0]:>6}x{row['size'][1]:<6}{row['dtype']}"
    text += f"  error {row['ours']:.1e} eager {row['eager']:.1e}  NaN and inf {row['nan_and_inf']}  "
    ms = row["milliseconds"]
    text += "  ".join(f"{side} {value * 1e3:.1f}us" for side, value in ms.items())
    if "torchglass" in ms:
        text += "".join(f"  {ms[s] / ms['torchglass']:.2f}x {s}" for s in ms if s != "torchglass")
        text += f"  {row['gigabytes_per_second']['torchglass']:.0f} GB/s"
    if "call_us" in row:
        text += "  host " + " ".join(f"{side} {us:.0f}us" for side, us in row["call_us"].items())
    return text


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--sides", nargs="+", choices=common.SIDES, default=list(common.SIDES))
    parser.add_argument("--folder", type=Path, help="keep the generated files here")
    chosen = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("FAIL: no GPU here")
        return 1
    rows, failed = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        for case in cases(chosen):
            try:
                row = measure(*case, chosen.sides, chosen.folder or Path(scratch))
            except Exception as error:
                failed += 1
                print(f"FAIL {case[0]} {case[1]} {case[2]}: {type(error).__name__}: {error}", flush=True)
                continue
            rows.append(row)
            failed += not (row["fine"] and row["nan_and_inf"] != "differs")
            print(line(row), flush=True)
    device = torch.cuda.get_device_name()
    for side in set(chosen.sides) - {"torchglass"}:
        ratios = [r["milliseconds"][side] / r["milliseconds"]["torchglass"] for r in rows if side in r["milliseconds"]]
        if ratios:
            print(f"torchglass is {common.geometric_mean(ratios):.2f}x {side} (geometric mean of {len(ratios)})")
    common.write_json(chosen.json, "gpu_loops", rows, device=device)
    print(f"{'FAIL' if failed else 'PASS'}: {len(rows)} measured, {failed} failed, on {device}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
