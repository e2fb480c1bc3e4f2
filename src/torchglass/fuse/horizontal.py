"""Small kernels that do not need one another run in one call: an order of steps in, the same with runs marked out.

The update of 200 parameters of 1,000 numbers is 200 kernels, each of a tenth of a microsecond, each with a call from
Python of half a microsecond, and each too small for threads::

    kernel p_0 ...                                  kernel p_1 ..., in one call with the one before

Marked kernels are printed as one function with one parallel region over all of them. On a CPU only: on a GPU launches
run one behind the other without a thread that waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..records.kernels import FusedKernel, FusionDecision
from ..records.loops import Compute, ExternCall, LoopGraph
from ..records.sizes import hint, product
from ..records.target import Cpu, Targets
from ..records.tuned.fusion import CpuFusion

RULE = "horizontal"


def horizontal_fusion(
    graph: LoopGraph, order: Sequence[FusedKernel | ExternCall], targets: Targets, decisions: list[FusionDecision]
) -> list[FusedKernel | ExternCall]:
    """The order with kernels marked that run in one call with the one before them."""
    out: list[FusedKernel | ExternCall] = []
    together: list[FusedKernel] = []
    written: set[str] = set()
    points = 0
    for step in order:
        tuned = _tuned(graph, step, targets)
        if not isinstance(step, FusedKernel) or tuned is None or not _is_small(graph, step, tuned):
            together, written = [], set()
        elif needed := next((name for name in step.reads if name in written), None):
            why = f"it reads {needed}"
            decisions.append(FusionDecision(together[-1].name, step.name, False, RULE, why))
            together, written, points = [step], set(step.writes), _points(step)
        elif together and _has_room(len(together), points + _points(step), tuned):
            why = f"small and apart, {len(together) + 1} in one call"
            decisions.append(FusionDecision(together[-1].name, step.name, True, RULE, why))
            step = replace(step, horizontal=True)
            together.append(step)
            written.update(step.writes)
            points += _points(step)
        else:
            together, written, points = [step], set(step.writes), _points(step)
        out.append(step)
    return out


def calls(order: Sequence[FusedKernel | ExternCall]) -> Iterator[list[FusedKernel | ExternCall]]:
    """The steps, those in one call together."""
    run: list[FusedKernel | ExternCall] = []
    for step in order:
        if run and not (isinstance(step, FusedKernel) and step.horizontal):
            yield run
            run = []
        run.append(step)
    if run:
        yield run


def _tuned(graph: LoopGraph, step: FusedKernel | ExternCall, targets: Targets) -> CpuFusion | None:
    """The numbers of the CPU that a kernel runs on, if it is one."""
    if not isinstance(step, FusedKernel):
        return None
    target = targets.of(graph.buffers[step.writes[0]].device)
    return target.fusion if isinstance(target, Cpu) else None


def _has_room(kernels: int, points: int, tuned: CpuFusion) -> bool:
    """Whether one more may join those of a call, with so many points in all."""
    return kernels < tuned.horizontal_kernels and points <= tuned.horizontal_total


def _is_small(graph: LoopGraph, kernel: FusedKernel, tuned: CpuFusion) -> bool:
    """Whether a kernel does little, in memory of its own, and checks nothing that could raise an error."""
    if _points(kernel) > tuned.horizontal_points or any(loop.is_scatter for loop in kernel.loops):
        return False
    if any(graph.buffers[name].alias_of is not None for name in (*kernel.writes, *kernel.reads)):
        return False
    return not any(isinstance(op, Compute) and op.op == "bound" for loop in kernel.loops for op in loop.body)


def _points(kernel: FusedKernel) -> int:
    return sum(hint(product(loop.dims)) for loop in kernel.loops)
