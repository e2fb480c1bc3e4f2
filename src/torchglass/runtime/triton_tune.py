"""Measuring Triton kernels in several ways (mode="max-autotune"): a kernels file in, that with the fastest ways out.

    tuned(path, text, {"kernel_0": KernelCall(buffers, points=(512,))})
        -> the text with other blocks, warps and stages, and what was measured of each kernel

Blocks that a grid or a walk counts are varied by powers of two, warps twice, stages from one to four where a program
walks its rows, registers of wide rows. All ways of all kernels are compiled at once beside this process, and timed on
tensors of their own with nothing in the L2 cache: all of them shortly, the best of them longer. The way that a kernel
was given stays unless another one is faster by 3 %. What was measured is kept for other processes, by the kernel's
text, what it is called with, and the GPU.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import math
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..records.kernels import Measurement
from ..records.loops import Buffer
from ..records.sizes import hint
from . import cache_folder, files, triton_compiler, triton_kernels
from .toolchain import ToolchainError
from .triton_kernels import CudaKernel
from .tune import by_speed

MOST_WAYS = 16
"""Of a kernel: those nearest to what it was given."""
SECONDS = 120.0
"""For all kernels of a file; those that are not done by then stay as they are."""
SHORT_RUNS, RUNS, FINALISTS = 5, 20, 3
CACHE_BYTES = 128 << 20
"""Written before each run: more than any L2 cache holds."""
SHARE = 0.25
"""Of the GPU's free memory, which the tensors of one kernel may take."""
LEAST_POINTS, MOST_POINTS = 4, 64
"""Elements of a thread: more of them take Triton minutes (triton#8908)."""
WIDE = 8192
"""Elements of a row in registers, from which on it is tried with fewer registers a thread."""
WALK = re.compile(r"for start in (?:tl\.)?range\((0, (?=(\d+), (\w+))\w+, \w+)(?:, num_stages=\d)?\)")
FUNCTION = "@triton.jit\n"
FORMAT = 1

Configuration = triton_kernels.Configuration


class KernelCall(NamedTuple):
    """What a kernel is called with: buffers of known sizes, and the points along each axis of its grid."""

    buffers: tuple[Buffer, ...]
    points: tuple[int, ...]


@dataclass(frozen=True)
class Way:
    """A row of the table, and how many turns of a walk are loaded ahead (1 where a program does not walk)."""

    row: str  # JSON, so that equal ones are
    stages: int

    @property
    def configuration(self) -> Configuration:
        return dict(json.loads(self.row))

    def __str__(self) -> str:
        shown = {k: v for k, v in self.configuration.items() if k not in ("signature", "grid")}
        return f"{', '.join(f'{k} {v}' for k, v in shown.items())}, stages {self.stages}"


def tuned(path: Path, text: str, calls: Mapping[str, KernelCall]) -> tuple[str, dict[str, tuple[Measurement, ...]]]:
    """The text with each kernel of ``calls`` in its fastest way, and what was measured, the way to take first. Kernels
    that do not compile, or whose tensors are too large, stay as they are.
    """
    end = time.monotonic() + SECONDS
    folder, given = cache_folder.of_tuned(), triton_kernels.configurations(path, text)
    texts = {name: alone(text, name) for name in calls}
    kept = {name: folder / _file_name(texts[name], given[name], call) for name, call in calls.items()}
    found: dict[str, list[tuple[Way, float]]] = {}
    asked: dict[str, dict[Way, triton_compiler.Asked]] = {}
    for name, call in calls.items():
        known = _known(kept[name], given[name], texts[name])
        if known is not None:
            found[name] = known
        else:
            asked[name] = _begun(path, texts[name], name, given[name], call)
    for name, ways in asked.items():
        if len(ways) > 1 and time.monotonic() < end and _has_room(calls[name]):
            measured = _measured(ways, calls[name])
            if measured:
                found[name] = measured
                _keep(kept[name], measured)
    tried = {name: by_speed(measured) for name, measured in found.items()}
    for name, measured in found.items():
        if tried[name][0] != measured[0]:
            text = with_way(text, name, tried[name][0][0])
    return text, {name: tuple(Measurement(str(way), us) for way, us in rows) for name, rows in tried.items()}


# -- texts -----------------------------------------------------------------------------------------------------------
def alone(text: str, name: str) -> str:
    """A kernels file without its other kernels, and without the table of configurations."""
    before, *functions = text[: text.index(f"{triton_kernels.TABLE} = ")].split(FUNCTION)
    kept = (f for f in functions if not f.startswith("def kernel_") or f.startswith(f"def {name}("))
    return FUNCTION.join((before, *kept))


def with_way(text: str, name: str, way: Way) -> str:
    """A kernels file in which one kernel runs in another way."""
    function = re.compile(rf"(?<={FUNCTION})def {name}\(.*?(?=\n\n|\Z)", re.DOTALL)
    text = function.sub(lambda found: _with_stages(found.group(), way.stages), text, count=1)
    row = re.compile(rf'^    "{name}": .*$', re.MULTILINE)
    return row.sub(lambda _: f'    "{name}": {way.row},', text, count=1)


def _with_stages(function: str, stages: int) -> str:
    return WALK.sub(rf"for start in tl.range(\1, num_stages={stages})", function)


def stages_of(function: str) -> int:
    found = re.search(r"num_stages=(\d)", function)
    return int(found.group(1)) if found else 1


# -- ways ------------------------------------------------------------------------------------------------------------
def ways_of(given: Configuration, text: str, points: tuple[int, ...]) -> list[Way]:
    """The way that a kernel was given, and others, the nearest first. ``text`` is its file alone."""
    own = Way(json.dumps(given), stages_of(text))

    def distance(way: Way) -> int:
        ours, theirs = given, way.configuration
        return sum(ours.get(k) != theirs.get(k) for k in {*ours, *theirs}) + (way.stages != own.stages)

    others = {Way(json.dumps(one), stages) for one, stages in alternatives(given, text, points)} - {own}
    return [own, *sorted(others, key=lambda way: (distance(way), way.row, way.stages))[: MOST_WAYS - 1]]


def alternatives(given: Configuration, text: str, points: tuple[int, ...]) -> Iterator[tuple[Configuration, int]]:
    """Configurations and stages. A block that divides all points has no mask: then its double must do so, too."""
    walk = WALK.search(text)
    counts = {walk.group(3): int(walk.group(2))} if walk else dict(zip(given["grid"], points))

    def fits(name: str, block: int) -> bool:
        return block > 0 and (counts[name] % given[name] != 0 or counts[name] % block == 0)

    blocks = {name: [b for b in (given[name] // 2, given[name], 2 * given[name]) if fits(name, b)] for name in counts}
    warps = {given["num_warps"] // 2, given["num_warps"], min(32, 2 * given["num_warps"])} - {0}
    limits = (None, 64, 128) if given.get("RBLOCK", 0) >= WIDE and not walk else (None,)
    fixed = {k: v for k, v in given.items() if k != "maxnreg"}
    for sizes in itertools.product(*blocks.values()):
        for count, limit in itertools.product(sorted(warps), limits):
            one = {**fixed, **dict(zip(blocks, sizes)), "num_warps": count} | ({"maxnreg": limit} if limit else {})
            elements = math.prod(v for k, v in one.items() if k.endswith("BLOCK"))
            if LEAST_POINTS <= elements // (32 * count) <= MOST_POINTS:
                yield from ((one, stages) for stages in (range(1, 5) if walk else (1,)))


def _begun(path: Path, own: str, name: str, given: Configuration, call: KernelCall) -> dict[Way, triton_compiler.Asked]:
    """The ways of a kernel, on their way through the compiler; the first one as it is."""
    begun: dict[Way, triton_compiler.Asked] = {}
    for way in ways_of(given, own, call.points):
        table = f'{triton_kernels.TABLE} = {{\n    "{name}": {way.row},\n}}\n'
        whole = f"{own}\n\n{table}" if not begun else with_way(f"{own}\n\n{table}", name, way)
        begun[way] = triton_compiler.Asked(str(path), whole, [name], triton_kernels.capability())
    return begun


# -- measuring -------------------------------------------------------------------------------------------------------
def _measured(ways: Mapping[Way, triton_compiler.Asked], call: KernelCall) -> list[tuple[Way, float]]:
    """Microseconds of the ways that compile and that the GPU has memory for, the given one first; nothing if that is
    not among them.
    """
    kernels = {way: kernel for way, asked in ways.items() if (kernel := _kernel(way, asked)) is not None}
    given = next(iter(ways))
    if given not in kernels or len(kernels) < 2:
        return []
    tensors = [_example(buffer) for buffer in call.buffers]
    points = call.points[0] if len(call.points) == 1 else call.points
    every = {way: functools.partial(kernel, *tensors, points=points) for way, kernel in kernels.items()}
    runs = {way: run for way, run in every.items() if _runs(run)}
    if given not in runs:
        return []
    first = _microseconds(runs, SHORT_RUNS)
    best = sorted(first, key=lambda way: first[way])[:FINALISTS]
    last = _microseconds({way: runs[way] for way in dict.fromkeys((given, *best))}, RUNS)
    return [(way, round((first | last)[way], 2)) for way in runs]


def _runs(run: Callable[[], Any]) -> bool:
    """Whether the GPU takes it: there may be too few registers, or too many programs along an axis."""
    try:
        run()
    except (RuntimeError, ValueError):
        return False
    return True


def _kernel(way: Way, asked: triton_compiler.Asked) -> Any:
    try:
        ((cubin, function, shared),) = asked.result()
    except ToolchainError:
        return None
    if shared > triton_kernels.most_shared():
        return None
    one = way.configuration
    blocks = tuple(one[axis] for axis in one["grid"])
    return CudaKernel(cubin, function, "tried", one["signature"], blocks, one["num_warps"], shared)


def _example(buffer: Buffer) -> torch.Tensor:
    """A tensor to try a kernel on; integers, which may be indices, are zeros."""
    dtype: torch.dtype = getattr(torch, buffer.dtype)
    tensor = torch.empty_strided(buffer.shape, buffer.strides, dtype=dtype, device="cuda")
    memory = tensor.as_strided((tensor.untyped_storage().nbytes() // dtype.itemsize,), (1,))
    if dtype.is_floating_point:
        memory.normal_(generator=torch.Generator("cuda").manual_seed(0))
    else:
        memory.zero_()
    return tensor


def _has_room(call: KernelCall) -> bool:
    needed = sum(hint(buffer.extent) * getattr(torch, buffer.dtype).itemsize for buffer in call.buffers)
    return needed < SHARE * torch.cuda.mem_get_info()[0]


def _microseconds(runs: Mapping[Way, Callable[[], Any]], count: int) -> dict[Way, float]:
    """The median of each, turn by turn."""
    flushed = torch.empty(CACHE_BYTES, dtype=torch.uint8, device="cuda")
    events: dict[Way, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {way: [] for way in runs}
    for _ in range(count + 1):
        for way, run in runs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flushed.zero_()
            begin.record()
            run()
            end.record()
            events[way].append((begin, end))
    torch.cuda.synchronize()
    return {way: 1e3 * statistics.median(a.elapsed_time(b) for a, b in pairs[1:]) for way, pairs in events.items()}


# -- what other processes have measured ------------------------------------------------------------------------------
def _file_name(text: str, given: Configuration, call: KernelCall) -> str:
    about = torch.cuda.get_device_properties()
    machine = [about.name, about.multi_processor_count, triton_kernels.version()]
    layouts = [(b.dtype, list(b.shape), list(b.strides)) for b in call.buffers]
    told = [FORMAT, text, given, layouts, call.points, *machine]
    digest = hashlib.sha256(json.dumps(told).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return f"{digest}.json"


def _known(file: Path, given: Configuration, text: str) -> list[tuple[Way, float]] | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        found = files.read_text(file)
        if found is not None:
            ways = [(Way(row, int(stages)), float(microseconds)) for row, stages, microseconds in json.loads(found)]
            if ways and ways[0][0] == Way(json.dumps(given), stages_of(text)):
                return ways
    return None


def _keep(file: Path, ways: Sequence[tuple[Way, float]]) -> None:
    with contextlib.suppress(OSError):
        files.write_atomically(file, json.dumps([[way.row, way.stages, microseconds] for way, microseconds in ways]))
