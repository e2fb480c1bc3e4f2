"""One row of ``benchmarks.gpu`` on one side, in this process: seconds of the first call, milliseconds, memory, errors.

    python -m benchmarks.gpu_step '{"row": "mlp", "side": "eager", "device": "cuda", "small": false, "dropout": 0.0}'

Prints one line of JSON. ``benchmarks.gpu`` runs it in a fresh process with empty caches.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from . import common, gpu_timing
from .gpu_models import ROWS, Case, Row

WARMUP, STEPS, SMALL_STEPS = 12, 40, 5
EPS = torch.finfo(torch.bfloat16).eps
MEGABYTE = 1 << 20

Tensors = dict[str, torch.Tensor]


def main() -> int:
    task = json.loads(sys.argv[1])
    with common.our_warnings() as warnings:
        result = measure(ROWS[task["row"]], task["side"], task["device"], task["small"], task["dropout"])
    print(json.dumps({**result, "warnings": warnings}))
    return 0


def measure(row: Row, side: str, device: str, small: bool, dropout: float) -> dict[str, Any]:
    """All figures of one row on one side."""
    case = row.build(device, small, dropout)
    step(row, case, case.model)  # CUDA, cuBLAS, cuDNN and autograd start here, for every side
    gpu_timing.synchronize(device)
    begin = time.perf_counter()
    call = common.EVERY_SIDE[side](case.model)
    step(row, case, call)
    gpu_timing.synchronize(device)
    result: dict[str, Any] = {"cold": time.perf_counter() - begin}
    common.settle()
    begin = time.perf_counter()
    for _ in range(WARMUP):
        step(row, case, call)
    gpu_timing.synchronize(device)
    result["ready"] = result["cold"] + time.perf_counter() - begin  # CUDA graphs are captured by then
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    taken = gpu_timing.steps(lambda: step(row, case, call), SMALL_STEPS if small else STEPS, device)
    result["ms"] = statistics.median(taken)
    result["megabytes"] = None if device == "cpu" else torch.cuda.max_memory_allocated() / MEGABYTE
    result["reserved"] = None if device == "cpu" else torch.cuda.max_memory_reserved() / MEGABYTE
    result["cubins"] = cubins()
    if side.startswith("torchglass"):
        result |= of_ours(call)
    if side != "eager" and not dropout:
        try:
            result["errors"] = errors(row, case, call, device, small)
        except Exception as error:  # float32 takes twice the memory; the times are measured
            result["errors"] = {"verdict": f"errors not known, {type(error).__name__}: {error}"[:300]}
    return result


def step(row: Row, case: Case, call: Callable[..., Any], between: Callable[[], None] = lambda: None) -> Tensors:
    """One inference, or forward, loss and backward with the gradients set to None before. What came out.

    ``between`` forward and backward this is called.
    """
    if not row.training:
        with torch.no_grad():
            output = case.forward(call)[1]
        between()
        return {"output": output}
    case.model.zero_grad(set_to_none=True)
    loss, output = case.forward(call)
    assert loss is not None
    between()
    loss.backward()
    return {"loss": loss, "output": output}


def of_ours(call: Any) -> dict[str, Any]:
    """What ours says of itself."""
    import torchglass as tg
    from torchglass.runtime import triton_compiler

    report = tg.explain(call)
    graphs = report.graphs()
    eager = [fallback.reason for function in report.record.walk() for fallback in function.fallbacks]
    eager += [f"{side}: {reason}" for graph in graphs for side, reason in graph.fallbacks.items()]
    return {
        "stages": report.seconds_by_stage(),
        "graphs": len(graphs),
        "breaks": [f"{b.reason} at {b.origin}" for b in report.breaks()],
        "kernels": len(report.kernels()),
        "cubins": triton_compiler.compiled_so_far(),
        "eager": eager,
        "replays": [f"{side}: {told}" for graph in graphs for side, told in replays_of(graph).items()],
    }


def replays_of(graph: Any) -> dict[str, str]:
    from torchglass.inspector.kernel_facts import replays

    return {side.name: told for side in graph.sides if (told := replays(side))}


def cubins() -> int:
    """Binaries of kernels in the caches of this process, which were empty; ours leaves none there."""
    folders = {os.environ.get(name) for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME")}
    return sum(1 for folder in folders if folder for _ in Path(folder).rglob("*.cubin"))


# -- errors ----------------------------------------------------------------------------------------------------------
def errors(row: Row, case: Case, call: Callable[..., Any], device: str, small: bool) -> dict[str, Any]:
    """Our error and eager's in bfloat16 by part, both against eager in float32 from the same rounded weights.

    The gradients' is the root mean square over all parameters, ``worst`` that of the one which is farthest beyond
    eager's error. ``verdict`` says what is wrong.
    """
    torch.backends.cudnn.allow_tf32 = False
    exact_case = row.build(device, small).to(torch.float32)
    exact = results(row, exact_case, exact_case.model)
    sides = [results(row, case, call), results(row, case, case.model)]
    if set(sides[0]) != set(exact):
        return {"verdict": f"wrong: gradients too few or too many, {sorted(set(sides[0]) ^ set(exact))[:3]}"}
    if any(sides[0][name].shape != value.shape for name, value in exact.items()):
        return {"verdict": "wrong shapes"}
    scale = scales(exact)
    each = {name: [rms(side[name] - value) / scale[name] for side in sides] for name, value in exact.items()}
    found: dict[str, Any] = {"output": each.pop("output")}
    wrong = [] if within(*found["output"], 2, EPS / 8) else ["output"]
    if row.training:
        found["loss"] = each.pop("loss")
        found["gradients"] = [math.sqrt(statistics.fmean(pair[k] ** 2 for pair in each.values())) for k in (0, 1)]
        usual = found["gradients"][1]
        worst = max(each, key=lambda n: math.inf if math.isnan(each[n][0]) else each[n][0] / max(each[n][1], usual))
        found["worst"] = each[worst]
        wrong += [] if within(*found["loss"], 2, EPS) else ["loss"]
        wrong += [] if within(*found["gradients"], 2, EPS / 8) else ["gradients"]
        # one tensor's error is a draw, the more so where few values decide
        wrong += [] if within(*found["worst"], 4, 4 * usual) else [f"gradient of {worst}"]
    return {**found, "verdict": f"wrong: {', '.join(wrong)}" if wrong else ""}


def scales(exact: Tensors) -> dict[str, float]:
    """The size that a tensor's error is relative to: its own, or of a gradient that is zero but for rounding (a
    softmax does not see its keys' bias) what is usual.
    """
    sizes = {name: rms(value) for name, value in exact.items()}
    usual = statistics.median(size for name, size in sizes.items() if name not in ("loss", "output") or len(sizes) == 1)
    return {name: size if size > 1e-4 * usual or name in ("loss", "output") else usual for name, size in sizes.items()}


def results(row: Row, case: Case, call: Callable[..., Any]) -> Tensors:
    """Loss, output and gradients of a step in float32."""
    found = step(row, case, call)
    if row.training:
        found |= {name: p.grad for name, p in case.model.named_parameters() if p.grad is not None}
    return {name: value.detach().float() for name, value in found.items()}


def rms(x: torch.Tensor) -> float:
    return float(x.double().square().mean().sqrt())


def within(mine: float, eager: float, times: float, free: float) -> bool:
    """NaN is not."""
    return mine <= max(times * eager, free)


if __name__ == "__main__":
    sys.exit(main())
