"""Compiles a backward of which an earlier process has kept the graph alone: nobody had asked for its gradients there.

    call = compile_kept(options, "f", partition, facts, artifact, objects, entry)

The graph's file is traced again on fake tensors of the layouts that were kept, and goes through the stages as any
backward does. What is made is added to the entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.fx

from . import torch_compat
from .backends import registry
from .cache.keep import keep_backward
from .compilation.graph_sharing import Shared
from .compilation.job import Job, alone
from .compilation.segments import cut_backward
from .compilation.side_pipeline import Backward, compile_backwards
from .compilation.timing import Timeline, compiling
from .inspector import progress
from .options import CompileOptions
from .process import interrupts
from .records.kept_graph import NotKept
from .records.partition import Partition
from .records.segments import CutGraph, Groups
from .records.side_call import SideCall
from .records.sizes import all_known
from .runtime import edits, machine
from .runtime.graph_calls import GraphCall
from .runtime.store import Artifact, current_store


def compile_kept(
    options: CompileOptions,
    name: str,
    partition: Partition,
    facts: SideCall,
    artifact: Artifact,
    objects: Mapping[str, Any],
    entry: Path | None,
    at: tuple[Groups, Sequence[int | None]] | None = None,
) -> GraphCall | CutGraph | None:
    """What runs the backward, which is added to ``entry`` if there is one; ``at``: in segments, behind these groups of
    gradients, which are for these buckets (None where it cannot be cut). Segments are not added. Raises whatever a
    stage raises, and NotKept for a graph with open sizes.
    """
    if interrupts.is_handling():
        raise NotKept("a signal is being handled")
    compiled = "codegen" in registry.resolve(options.backend).stages
    targets = machine.targets(options.get("threads"))

    def made() -> GraphCall | CutGraph | None:
        with progress.compiling(name):
            gm = alone(_traced, facts, artifact, objects)
            folder = current_store().folder(name, gm).child("kept").child("graph_0")
            job = Job(options, folder, Shared(folder.function_name), Timeline(name), targets)
            whole = replace(partition, backward=gm)
            if at is not None:
                found = cut_backward(job, whole, *at)
                return None if found is None else found.with_calls(_compiled(found.sides("backward", compiled)))
            side = Backward(job, whole, "backward", compiled)
            (call,) = _compiled([side])
            if entry is not None:
                keep_backward(entry, partition, side.kept)
        return call

    return interrupts.whole(lambda: compiling.undisturbed(made))


def _compiled(sides: list[Backward]) -> list[GraphCall]:
    try:
        return compile_backwards(sides)
    finally:
        for side in sides:
            side.stop()


def _traced(facts: SideCall, artifact: Artifact, objects: Mapping[str, Any]) -> torch.fx.GraphModule:
    """The graph of a file, with the value of each node."""
    inputs = []
    with torch_compat.new_fake_mode():
        for layout, device in zip(facts.inputs, facts.devices, strict=True):
            if layout is None or not all_known(layout[0]) or not all_known(layout[1]):
                raise NotKept("the backward of a graph with open sizes")
            inputs.append(torch.empty_strided(layout[0], layout[1], dtype=layout[2], device=device))
    gm = edits.retraced_file(artifact, objects, inputs)
    edits.propagate_values(gm)
    return gm
