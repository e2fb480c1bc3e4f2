"""What the benchmarks share: the sides that are compared, interleaved timing, the machine, JSON.

Sides are timed *interleaved* (one call each, turn by turn) and compared by the ratio of their medians, so
that a change in the machine's speed while measuring hits all of them alike.
"""

from __future__ import annotations

import argparse
import compileall
import gc
import importlib.util
import json
import logging
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from .models import LAYERS, WORKLOADS, Workload, output_of

ATTENTIONS = ("eager", "sdpa")
KINDS = ("inference", "training")


def _ours(model: torch.nn.Module, **options: Any) -> Callable[..., Any]:
    import torchglass as tg

    return tg.compile(model, **options)


SIDES: dict[str, Callable[..., Callable[..., Any]]] = {
    "eager": lambda model: model,
    "torchglass": _ours,
    "torch.compile": lambda model: torch.compile(model),
}
"""Name of a side to what makes its callable of a model. torch and torchglass load on first use, as for a
user.
"""

EVERY_SIDE: dict[str, Callable[..., Callable[..., Any]]] = {
    **SIDES,
    "torchglass dynamic": lambda model: _ours(model, dynamic=True, options={"hot_calls": 0}),
    "torchglass specialized": lambda model: _ours(model, dynamic=True, options={"hot_calls": 1}),
    "torch.compile dynamic": lambda model: torch.compile(model, dynamic=True),
    "torchglass reduce-overhead": lambda model: _ours(model, mode="reduce-overhead"),
    "torchglass max-autotune": lambda model: _ours(model, mode="max-autotune"),
    "torch.compile max-autotune": lambda model: torch.compile(model, mode="max-autotune"),
    "torch.compile reduce-overhead": lambda model: torch.compile(model, mode="reduce-overhead"),
}
"""With those whose sizes are left open from the first call on, and ours with kernels for the sizes that calls have."""


def settle() -> None:
    """Wait for what ours compiles beside the calls."""
    if "torchglass" in sys.modules:
        from torchglass import lazy_specialization

        lazy_specialization.wait()


def byte_compile() -> None:
    """Byte-compile what a compile imports, as pip does what it installs; also where Python is told to write none.

    Machines for benchmarks may have been set up without: there SymPy takes two seconds to import, on all sides.
    """
    for name in ("torchglass", "torch", "triton", "sympy", "mpmath"):
        spec = importlib.util.find_spec(name)
        for folder in (spec and spec.submodule_search_locations) or ():
            compileall.compile_dir(folder, quiet=2, workers=0)


def without_caches(folder: str) -> dict[str, str]:
    """The environment of a process that finds nothing compiled: every cache is off, or new in an empty folder."""
    fresh = {
        **os.environ,
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "TRITON_CACHE_DIR": f"{folder}/triton",
        "XDG_CACHE_HOME": f"{folder}/cache",
        "HF_HUB_OFFLINE": "1",
    }
    for name in ("TORCHGLASS_DIR", "TORCHGLASS_CACHE"):  # our folder, too, is below XDG_CACHE_HOME
        fresh.pop(name, None)
    return fresh


def with_caches(folder: str) -> dict[str, str]:
    """The environment of a process whose caches are in ``folder``, where an earlier one may have left something."""
    kept = {**without_caches(folder), "TORCHGLASS_CACHE": f"{folder}/torchglass"}
    del kept["TORCHINDUCTOR_FORCE_DISABLE_CACHES"]
    return kept


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def our_warnings() -> Iterator[list[str]]:
    """What torchglass warns of inside: what runs eagerly, whose times are then not those of compiled code."""
    handler, logger = _Warnings(), logging.getLogger("torchglass")
    logger.addHandler(handler)
    try:
        yield handler.texts
    finally:
        logger.removeHandler(handler)


def step(call: Callable[..., Any], model: torch.nn.Module, inputs: Mapping[str, Any], kind: str) -> torch.Tensor:
    """One inference (under no_grad) or one training step without the optimizer; the model's output."""
    if kind == "inference":
        with torch.no_grad():
            return output_of(call(**inputs))
    model.zero_grad(set_to_none=True)
    output = output_of(call(**inputs))
    loss_of(output).backward()
    return output


def loss_of(output: torch.Tensor) -> torch.Tensor:
    """A loss whose gradient differs in every element (a plain mean would hide mistakes), the same for every side.

    Random rather than evenly spaced weights: nearly constant rows would leave of a normalization's gradient little but
    what rounding made of two numbers' difference.
    """
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).to(output.dtype)
    return (output * weights).sum() / 1000


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one side: the median and the quartiles of ``count`` calls."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Timing:
        low, median, high = statistics.quantiles([s * 1e3 for s in seconds], n=4, method="inclusive")
        return cls(median, low, high, len(seconds))


def interleaved(
    calls: Mapping[str, Callable[[], Any]], seconds: float = 4.0, warmup: int = 3, least: int = 10
) -> dict[str, Timing]:
    """Time the calls turn by turn for about ``seconds``, each at least ``least`` times, after ``warmup``
    rounds.

    The order turns by one every round, so that no side always runs after the same other one.
    """
    names = list(calls)
    for _ in range(warmup):
        for name in names:
            calls[name]()
    taken: dict[str, list[float]] = {name: [] for name in names}
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        end = time.perf_counter() + seconds
        turn = 0
        while turn < least or time.perf_counter() < end:
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                begin = time.perf_counter()
                calls[name]()
                taken[name].append(time.perf_counter() - begin)
            turn += 1
    finally:
        if collecting:
            gc.enable()
    return {name: Timing.of(rows) for name, rows in taken.items()}


@dataclass(frozen=True)
class Accuracy:
    """Errors of one tensor against float64, ours and eager's: root mean squares, and the largest.

    The mean square decides: of two equally accurate computations the *largest* errors differ by more than a
    factor of two now and then. ``floor`` is what rounding alone may cost.
    """

    name: str
    ours: float
    eager: float
    floor: float
    ours_largest: float
    eager_largest: float

    @property
    def fine(self) -> bool:
        """Within twice eager's own error, or within a few ulp of the largest value."""
        return self.ours <= max(2 * self.eager, self.floor)


def accuracy(
    workload: Workload, attention: str, kind: str, make: Callable[..., Any], layers: int = LAYERS
) -> list[Accuracy]:
    """Outputs and every parameter's gradient of ``make(model)`` and of eager, against eager in float64.

    Where a ReLU's input is 0 but for rounding, its gradient is there or not by chance, and with it a thousand times the
    error of all before it, on either side. So where a tensor is not fine, medians of five models count.
    """
    rows = _accuracy(workload, attention, kind, make, layers, seed=0)
    if all(row.fine for row in rows):
        return rows
    others = [_accuracy(workload, attention, kind, make, layers, seed) for seed in (1, 2, 3, 4)]
    fields = ("ours", "eager", "floor", "ours_largest", "eager_largest")
    return [
        Accuracy(row.name, *(statistics.median(getattr(one, field) for one in same) for field in fields))
        for row, *same in zip(rows, rows, *others, strict=True)
    ]


def _accuracy(
    workload: Workload, attention: str, kind: str, make: Callable[..., Any], layers: int, seed: int
) -> list[Accuracy]:
    results = {}
    for side, dtype in (("exact", torch.float64), ("eager", torch.float32), ("ours", torch.float32)):
        model, inputs = workload.build(attention, seed, layers)
        model = model.to(dtype).train(kind == "training")
        inputs = {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}
        if side == "exact" and hasattr(model, "set_experts_implementation"):
            model.set_experts_implementation("eager")  # the grouped product has no float64
        output = step(make(model) if side == "ours" else model, model, inputs, kind)
        gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        results[side] = {"output": output.detach(), **gradients}
    exact, eager, ours = results["exact"], results["eager"], results["ours"]
    if not set(exact) == set(eager) == set(ours):
        raise AssertionError(f"gradients differ: {sorted(set(eager) ^ set(ours))}")
    rows = []
    scale = max(float(value.abs().max()) for value in exact.values())
    for name, value in exact.items():
        size = float(value.abs().max())
        if size < torch.finfo(torch.float64).eps * scale:
            size = scale  # zero by mathematics (a softmax does not see its keys' bias): all sides have is rounding
        floor = 4 * torch.finfo(torch.float32).eps * size
        errors = [side[name].double() - value for side in (ours, eager)]
        mean, largest = [float(e.square().mean().sqrt()) for e in errors], [float(e.abs().max()) for e in errors]
        rows.append(Accuracy(name, *mean, floor, *largest))
    return rows


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    processor = platform.processor()
    with open("/proc/cpuinfo") as file:
        processor = next((x.split(":")[1].strip() for x in file if x.startswith("model name")), processor)
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options every benchmark over models has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--models", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--attention", nargs="+", choices=ATTENTIONS, default=["sdpa"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--sides", nargs="+", choices=EVERY_SIDE, default=list(SIDES))
    return parser


def write_json(path: Path | None, benchmark: str, rows: Iterable[Any], **more: Any) -> None:
    """Save the rows (dataclasses or dicts) with the machine they were measured on; nothing if ``path`` is
    None.
    """
    if path is not None:
        plain = [row if isinstance(row, dict) else asdict(row) for row in rows]
        payload = {"benchmark": benchmark, "machine": machine(), **more, "rows": plain}
        path.write_text(json.dumps(payload, indent=1) + "\n")


def geometric_mean(values: Iterable[float]) -> float:
    return statistics.geometric_mean(values)
