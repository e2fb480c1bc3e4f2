"""``python forward_kernels.py``: each kernel of the file checked against its loops, and timed.

    python forward_kernels.py                         every kernel
    python forward_kernels.py kernel_3 s0=4096        one; sizes that the graph leaves open are 8 unless told

Two files beside it say the rest: forward.launch how kernels are called and over how many points, forward.fused which
loops a kernel stands for and what its buffers are. Inputs are drawn: normal numbers, and a second time their
magnitudes, so that roots and logarithms are numbers; integers, which may be indices, are small enough that every
address lies in its buffer.

The check holds what a kernel writes, as the file has it now, against what its loops come to by PyTorch's operators
(``loop_evaluator``), in which neither Triton nor our generated code takes part. The error is the largest difference by
the largest number; what is not finite must be the same. The time is the median of launches with nothing in the L2
cache, the bytes are the elements that the loops have touched, each once, and the share is that of the bandwidth of a
copy in the same run.
"""

from __future__ import annotations

import ast
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import load, triton_kernels
from .loop_evaluator import KernelText, Memory, Program, evaluate, number, read
from .toolchain import ToolchainError

TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 3e-2}
"""Errors up to which a result of a dtype is right: sums are added up in another order, and Triton's interpreter cuts
bfloat16 off in place of rounding it. Other dtypes are exact."""
OPEN = 8  # a size that the graph leaves open
LARGEST = 64  # below which integers are drawn
MOST_PROGRAMS = 512  # of a kernel that Triton's interpreter runs unasked: some seconds
OVERWRITTEN, CALLS = 1 << 29, 40
"""Bytes that are written before each call that is timed: more than any L2 cache, in 0.2 milliseconds; and calls."""
COPIED = 1 << 29  # bytes of the copy: many times what an L2 cache holds

Draw = Callable[[Tensor], Tensor]
DRAWS: tuple[Draw, ...] = (lambda normal: normal, torch.abs)


class Untried(Exception):
    """Why a kernel is left out."""


def main(file: str, arguments: Sequence[str] | None = None) -> None:
    """Try kernels of a file, those that are named or all. Exits with 1 where one is wrong, or with why none can run."""
    told = sys.argv[1:] if arguments is None else arguments
    if {"-h", "--help"} & {*told}:
        print(__doc__)
        return
    named = [one for one in told if "=" not in one]
    path, on_cpu = Path(file), triton_kernels.by_interpreter()
    if not (on_cpu or torch.cuda.is_available()):
        sys.exit("There is no GPU here to run kernels on. With TRITON_INTERPRET=1 Triton's interpreter checks them.")
    try:
        sizes = {name: int(value) for name, _, value in (one.partition("=") for one in told if "=" in one)}
        trial = Trial(path, sizes, "cpu" if on_cpu else "cuda")
        if unknown := [name for name in named if name not in trial.launched]:
            sys.exit(f"{path.name} has no {', '.join(unknown)}, but {', '.join(trial.launched)}")
        names = named or list(trial.launched)
        launchers = load.kernels(path.resolve(), names)
    except (OSError, ValueError, ToolchainError) as error:
        sys.exit(f"{path.name}: {error}")
    right = trial.on_interpreter(names, launchers, bool(named)) if on_cpu else trial.on_gpu(names, launchers)
    if not right:
        sys.exit(1)


@dataclass(frozen=True)
class Launched:
    """A kernel of the file: its loops, and the sizes and points of each axis of the grid with which it is called."""

    name: str
    loops: KernelText
    sizes: tuple[str, ...]
    points: tuple[str, ...]


class Trial:
    """The kernels of a file, and what its folder says of them. ``sizes``: what those that are left open are."""

    def __init__(self, path: Path, sizes: dict[str, int], device: str) -> None:
        """Raises OSError where a file is missing, ToolchainError for a kernels file without its table."""
        graph = path.stem.removesuffix("_kernels")
        fused, launch = (path.with_name(f"{graph}.{kind}").read_text(encoding="utf-8") for kind in ("fused", "launch"))
        self.about = f"kernels of {path.name} against their loops in {graph}.fused"
        self.program = read(fused)
        self.table = triton_kernels.configurations(path, path.read_text(encoding="utf-8"))
        found: dict[str, Launched] = {}
        for one in launches(launch, self.program):
            found.setdefault(one.name, one)
        self.launched = {name: found[name] for name in self.table if name in found}
        self.sizes = {name: OPEN for one in found.values() for name in one.sizes} | sizes
        self.device = device

    def on_interpreter(self, names: Sequence[str], launchers: Sequence[Any], named: bool) -> bool:
        """Print the errors of kernels, of large ones only where they were named. Whether all are right."""
        print(f"{self.about}, by Triton's interpreter, which tells no times")
        said = [self.said(name, launcher, large=named) for name, launcher in zip(names, launchers)]
        return all(said)

    def on_gpu(self, names: Sequence[str], launchers: Sequence[Any]) -> bool:
        """Print the errors and times of kernels. Whether all are right."""
        copied = copy_bandwidth(self.device)
        print(f"{self.about}, on {torch.cuda.get_device_name()}, where a copy moves {copied / 1e9:.0f} GB/s")
        said = [self.said(name, launcher, copied) for name, launcher in zip(names, launchers)]
        return all(said)

    def said(self, name: str, launcher: Any, copied: float | None = None, large: bool = True) -> bool:
        """Print a line on a kernel; whether it is right. ``copied``: bytes a second of a copy, if it is to be timed."""
        one = self.launched[name]
        head = f"{name:10} {one.loops.name:32}"
        try:
            if not large and self.programs(one) > MOST_PROGRAMS:
                raise Untried(f"{self.programs(one)} programs take the interpreter long; name the kernel to run it")
            error, right = self.checked(one, launcher)
            time = "" if copied is None else self.timed(one, launcher, copied)
        except (Untried, torch.OutOfMemoryError) as why:
            print(f"{head} not tried: {why}")
            return True
        print(f"{head} error {error:<8.1e} {'right' if right else 'WRONG'}  {time}".rstrip(), flush=True)
        return right

    def programs(self, one: Launched) -> int:
        """Of a launch."""
        blocks = (self.table[one.name][axis] for axis in self.table[one.name]["grid"])
        return math.prod(-(-count // block) for count, block in zip(self.points(one), blocks))

    def points(self, one: Launched) -> tuple[int, ...]:
        return tuple(number(text, self.sizes) for text in one.points)

    # -- the check -----------------------------------------------------------------------------------------------------
    def checked(self, one: Launched, launcher: Any) -> tuple[float, bool]:
        """The largest error of what a kernel writes, and whether none is too large. Raises Untried."""
        errors = []
        for draw in DRAWS:
            buffers, wanted = self.drawn(one, draw)
            self.start(one, launcher, buffers)
            errors += [(difference(wanted.flat[n], buffers[n]), buffers[n].dtype) for n in one.loops.writes]
        return max(error for error, _ in errors), all(error <= TOLERANCES.get(dtype, 0.0) for error, dtype in errors)

    def drawn(self, one: Launched, draw: Draw) -> tuple[dict[str, Tensor], Memory]:
        """A kernel's buffers before it runs, and after its loops have. Raises Untried."""
        largest = LARGEST
        while True:
            buffers = self.buffers(one, draw, largest)
            after = Memory({name: flat.clone() for name, flat in buffers.items()}, one.loops.bases)
            try:
                evaluate(one.loops, after, self.sizes)
                return buffers, after
            except NotImplementedError as error:
                raise Untried(f"its loops have {error}") from error
            except IndexError as error:
                if largest == 1:
                    raise Untried(f"its loops have {error}") from error
                largest //= 2

    def buffers(self, one: Launched, draw: Draw, largest: int) -> dict[str, Tensor]:
        """The elements of each buffer in a row, integers below ``largest``."""
        generator = torch.Generator(self.device).manual_seed(0)
        made = {}
        for name in one.loops.arguments:
            declared = self.program.buffers[name]
            dtype, length = getattr(torch, declared.dtype), (declared.extent(self.sizes),)
            if dtype.is_floating_point:
                made[name] = draw(torch.randn(length, generator=generator, device=self.device)).to(dtype)
            else:
                top = 2 if dtype == torch.bool else largest
                made[name] = torch.randint(top, length, generator=generator, device=self.device).to(dtype)
        return made | {name: made[base] for name, base in one.loops.bases.items()}

    def start(self, one: Launched, launcher: Any, buffers: dict[str, Tensor]) -> None:
        """Launch a kernel once."""
        points = self.points(one)
        sizes = (self.sizes[name] for name in one.sizes)
        launcher(*(buffers[name] for name in one.loops.arguments), *sizes, points=points)

    # -- the time ------------------------------------------------------------------------------------------------------
    def timed(self, one: Launched, launcher: Any, copied: float) -> str:
        """Microseconds of a launch, its bytes, and what they are beside a copy's."""
        buffers, after = self.drawn(one, DRAWS[0])
        taken, moved = seconds(lambda: self.start(one, launcher, buffers)), after.moved()
        rate = moved / taken
        figures = [
            f"{taken * 1e6:8.1f} us",
            f"{moved / 1e6:8.2f} MB",
            f"{rate / 1e9:5.0f} GB/s",
            f"{rate / copied:4.0%}",
        ]
        if (registers := getattr(launcher, "registers", None)) is not None:
            figures += [f"{registers} registers", f"{launcher.spilled} bytes spilled"]
        return "  ".join(figures)


def launches(text: str, program: Program) -> Iterator[Launched]:
    """Those of a forward.launch: ``launch kernel_0(x, softmax, s0, points=64)  # softmax   model.py:12``."""
    writers = {name: kernel for kernel in program.kernels.values() for name in kernel.writes}
    for line in text.splitlines():
        verb, _, call = line.strip().partition("  # ")[0].partition(" ")
        if verb == "launch":
            made: Any = ast.parse(call, mode="eval").body
            names = [ast.unparse(argument) for argument in made.args]
            loops = next(writers[name] for name in reversed(names) if name in writers)  # the last buffers are written
            points = [one.value for one in made.keywords]
            axes = points[0].elts if points and isinstance(points[0], ast.Tuple) else points
            sizes = names[len(loops.arguments) :]
            yield Launched(ast.unparse(made.func), loops, tuple(sizes), tuple(map(ast.unparse, axes)))


def difference(want: Tensor, got: Tensor) -> float:
    """The largest difference by the largest number; infinite where something is not finite and is not the same."""
    want, got = want.double(), got.double()
    finite = want.isfinite()
    if not torch.allclose(want[~finite], got[~finite], equal_nan=True) or not bool(got[finite].isfinite().all()):
        return math.inf
    largest = float(want[finite].abs().amax()) if bool(finite.any()) else 0.0
    return float((want - got)[finite].abs().amax()) / (largest or 1.0) if bool(finite.any()) else 0.0


def seconds(call: Callable[[], Any]) -> float:
    """The median of the GPU's time for a call, which finds nothing of its own in the L2 cache.

    Calls are queued behind as much work as the host needs to queue them, so that its time does not count.
    """
    other, taken = torch.empty(OVERWRITTEN, dtype=torch.uint8, device="cuda"), []
    for _ in range(CALLS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        other.fill_(1).fill_(2)
        begin.record()
        call()
        end.record()
        end.synchronize()
        taken.append(1e-3 * begin.elapsed_time(end))
    return statistics.median(taken[CALLS // 4 :])


def copy_bandwidth(device: str) -> float:
    """Bytes a second, those that are read and those that are written."""
    source, target = (torch.empty(COPIED, dtype=torch.uint8, device=device) for _ in range(2))
    return 2 * COPIED / seconds(lambda: target.copy_(source))
