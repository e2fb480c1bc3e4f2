"""What is told of a kernel beside its own record: with what it was not fused, and what its machine code takes.

not_fused(side)["kernel_1"]    ->   {"kernel_0": "their shapes do not fit", "mm": "a call of torch.mm"}
resources(side, "kernel_1")    ->   Resources(registers=40, spilled=0)
replays(side)                  ->   "replayed 12 times in 0.110 ms (launched: 0.742), ..."
"""

from __future__ import annotations

from typing import NamedTuple

from ..records.compilation import SideRecord
from ..records.extern_targets import JOIN
from ..records.kernels import FusedGraph, FusedKernel
from ..records.loops import ExternCall
from . import show


class Resources(NamedTuple):
    """``registers`` of a thread, and ``spilled`` bytes of its numbers that are in memory for want of registers."""

    registers: int
    spilled: int


def resources(side: SideRecord, kernel: str) -> Resources | None:
    """Those of a Triton kernel that has run on a GPU; None for others, and once the graph's code is gone."""
    call = side.call() if side.call is not None else None
    launcher = None if call is None else call.__globals__.get(kernel)
    registers = getattr(launcher, "registers", None)
    return None if registers is None else Resources(registers, launcher.spilled)  # type: ignore[union-attr]


def replays(side: SideRecord) -> str:
    """What became of its kernels as a CUDA graph; empty where none was asked for, and once they are gone."""
    replayed = side.replayed() if side.replayed is not None else None
    if replayed is None:
        return ""
    told = replayed.told()
    if not told.graphs:
        return f"no CUDA graph: {told.reason or 'its calls have not settled yet'}"
    took = "" if told.replayed is None else f" in {told.replayed:.3f} ms"
    took += "" if told.launched is None else f" (launched: {told.launched:.3f})"
    moved = f", {show.size(told.moved_bytes)} of results moved before they were overwritten" if told.moved_bytes else ""
    graphs = f"{show.count(told.graphs, 'CUDA graph')} of {show.size(told.bytes)}"
    return f"{graphs}, replayed {show.count(told.replays, 'time')}{took}{moved}"


def not_fused(side: SideRecord) -> dict[str, dict[str, str]]:
    """Of each kernel its neighbours that it was not fused with, and why: calls, and kernels with which that was tried,
    of several reasons the last.
    """
    found = calls_beside(side)
    fused: FusedGraph | None = side.fused
    if fused is None:
        return found
    printed, step = printed_as(side), steps(fused)
    for decision in fused.decisions:
        first, second = printed.get(decision.first), printed.get(decision.second)
        apart = not decision.fused and step.get(decision.first) != step.get(decision.second)
        if apart and first is not None and second is not None:
            found[first][second] = found[second][first] = decision.why
    return found


def calls_beside(side: SideRecord) -> dict[str, dict[str, str]]:
    """Of each kernel the calls of PyTorch's operators that make what it reads or read what it makes."""
    found: dict[str, dict[str, str]] = {kernel.name: {} for kernel in side.kernels}
    fused: FusedGraph | None = side.fused
    if fused is None:
        return found
    printed = printed_as(side)
    calls = [call for call in fused.steps if isinstance(call, ExternCall) and call.target != JOIN]
    for kernel in fused.kernels:
        for call in calls:
            if {*call.writes} & {*kernel.reads} or {*call.reads} & {*kernel.writes}:
                found[printed[kernel.loops[0].name]][call.name] = f"a call of {call.target}"
    return found


def printed_as(side: SideRecord) -> dict[str, str]:
    """The kernel that a loop is in, by the loop's name."""
    return {loop: kernel.name for kernel in side.kernels for loop in kernel.loops}


def steps(fused: FusedGraph) -> dict[str, str]:
    """The kernel of the graph that a loop is in, by its name; equal ones are printed as one."""
    return {loop.name: step.name for step in fused.steps if isinstance(step, FusedKernel) for loop in step.loops}
