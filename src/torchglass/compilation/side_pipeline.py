"""The order of the stages of one side of a graph: an ATen graph in, a callable on a list of tensors out.

    forward.py ─ lower ─ fuse ─ schedule ─ codegen ─ compile C, Triton ─ load

``start`` goes as far as the compilers, which need no part of this process; ``finish`` waits for them::

    side = Forward(job, partition, frozen)
    side.start()
    ...                     # what else there is to do
    call = side.finish()
    side.records()          # what the stages left, for people
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from .. import codegen, fuse, lower, schedule, torch_compat
from ..inspector import progress, show
from ..records.compilation import SideRecord
from ..records.extern_targets import RESERVE_PHILOX
from ..records.kept_graph import KeptSide, NotKept
from ..records.kernels import KernelSources, Measurement
from ..records.launch import FILES, Launch
from ..records.loops import Buffer, ExternCall, LoopGraph, View
from ..records.partition import Partition, SavedTensor
from ..records.render_graph import Rendered, targets_within
from ..records.render_graph import load as load_rendered
from ..records.schedule import ScheduledGraph
from ..records.segments import SegmentRecord
from ..records.side_call import Layout, Replay, SideCall
from ..records.size_places import layout_of, symbols_of
from ..records.sizes import all_known
from ..runtime import edits, triton_kernels, triton_tune, tune
from ..runtime.graph_calls import GraphCall, by_kernels, by_operators, replayed, with_grad_mode
from ..runtime.toolchain import ToolchainError
from ..runtime.triton_tune import KernelCall
from .graph_sharing import Side
from .job import Job, PythonFile
from .kernel_build import KernelBuild, Printed
from .replaying import MODES, replay_of


class SidePipeline:
    """One side on its way. Without ``compiled`` the graph's file runs, operator by operator."""

    prefix = ""  # of stages on the time line
    may_fail = True  # with the whole call, which can still run eagerly; but a compiler that fails is no reason

    def __init__(self, job: Job, name: str, gm: torch.fx.GraphModule, strides: tuple[Any, ...], compiled: bool) -> None:
        self.job, self.name, self.graph, self.compiled = job, name, gm, compiled
        self.strides = strides  # with which saved tensors arrive
        self.file: PythonFile | None = None
        self.nodes: tuple[Any, ...] = ()
        self.lowered: LoopGraph | None = None
        self.build: KernelBuild | None = None
        self.replayed: weakref.ref[Any] | None = None  # what replays them as a CUDA graph
        self.fallback = ""  # why operators run
        self.segment: SegmentRecord | None = None  # of a backward that is cut

    @property
    def rearranged(self) -> bool:
        """Whether a saved tensor lies otherwise than eager's."""
        return any(strides is not None for strides in self.strides)

    def loops(self, gm: torch.fx.GraphModule) -> LoopGraph:
        raise NotImplementedError

    def facts(self, gm: torch.fx.GraphModule) -> SideCall:
        """What its callable needs beside files, of a graph of this side."""
        vals = [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]
        inputs = [layout_of(val) if isinstance(val, torch.Tensor) else None for val in vals]
        tensors = [(place, val) for place, val in enumerate(vals) if isinstance(val, torch.Tensor)]
        copied = tuple(place for place, val in tensors if not torch_compat.has_its_numbers(val))
        devices = tuple(str(val.device) if isinstance(val, torch.Tensor) else "" for val in vals)
        others = calls_others(self.graph)
        return SideCall(tuple(inputs), devices, self.rearranged, None, copied, None, others, self.replay(gm))

    def replay(self, gm: torch.fx.GraphModule, returned: int | None = None) -> Replay | None:
        """What a CUDA graph of its kernels has to know, where such ones were asked for."""
        if self.lowered is None or self.job.options.mode not in MODES:
            return None
        return replay_of(gm, self.lowered, returned)

    # --- from the graph to the compilers ---------------------------------------------------------------------------
    def start(self) -> None:
        """Everything up to the compilers of C and Triton, which are left at work."""
        made, job = self.made(), self.job
        self.file = job.python_file(self.name, job.own(made.rendered), self.graph, self.compiled)
        self.nodes = made.rendered.nodes
        if self.file.graph is not self.graph:
            made = Side(made.rendered)
        if self.compiled:
            self._or_by_operators(lambda: self._begin(made))

    def made(self) -> Side:
        """What stages have made of this side, of any graph of the same content."""
        job, key = self.job, (self.name, self.graph, (self.job.elements, *self.strides))
        known = job.shared.sides.get(key)
        if known is None:
            until = f", up to {show.gradients(self.segment.gives)}," if self.segment else ""
            title = f"The {self.name.partition('_')[0]} graph{until}"
            known = job.shared.sides.setdefault(key, Side(job.rendered(self.graph, self.name, title)))
        return known

    def _begin(self, made: Side) -> None:
        assert self.file is not None
        if made.loops is None:
            with self.job.timeline.stage(f"{self.prefix}lower"):
                made.loops = self.loops(self.file.graph)
        self.lowered = made.loops
        self.build = KernelBuild(self._print(made.loops, self.name, self.prefix, made))

    def _print(self, loops: LoopGraph, side: str, prefix: str, made: Side) -> Printed:
        """A graph in loops as kernels and a wrapper, and the files of these."""
        job = self.job
        job.folder.write(f"{side}.loops", str(loops), "read")
        if made.printed is None:
            with job.timeline.stage(f"{prefix}fuse"):
                fused = fuse.run(loops, job.targets)
            with job.timeline.stage(f"{prefix}schedule"):
                scheduled = schedule.run(fused, job.targets)
            with job.timeline.stage(f"{prefix}codegen"):
                made.printed = scheduled, codegen.run(scheduled, job.targets, self._measured(scheduled, side))
            sources = made.printed[1]
            if self._searches(scheduled) and "triton" in sources.texts and not triton_kernels.interprets():
                with job.timeline.stage(f"{prefix}autotune"):
                    made.printed = scheduled, self._tuned(scheduled, sources, side)
        scheduled, sources = made.printed
        progress.reached(f"{prefix}codegen", len(sources.kernels))
        job.folder.write(f"{side}.fused", str(scheduled.fused), "read")
        job.folder.write(f"{side}.schedule", str(scheduled), "read")
        job.folder.write(f"{side}.launch", str(sources.plan), "read")
        kernels = tuple(job.written(FILES[name].format(side), text, side) for name, text in sources.texts.items())
        wrapper = job.written(f"{side}_wrapper.py", sources.wrapper_text, side)
        graphs = codegen.sub_graphs(loops).items()
        called = {name: self._print_called(graph, f"{side}_{name}") for name, graph in graphs}
        return Printed(side, scheduled.fused, sources, kernels, wrapper, called)

    def _print_called(self, graph: torch.fx.GraphModule, side: str) -> Printed:
        """A sub-graph, which takes the way of the graph that calls it."""
        loops = replace(lower.run(graph, self.job.targets, side), called=True)
        return self._print(loops, side, "sub-graph ", Side(Rendered("")))

    def _searches(self, scheduled: ScheduledGraph) -> bool:
        """Whether kernels are measured in several ways: where sizes are known."""
        symbolic = any(schedule.symbols for schedule in scheduled.schedules)
        return self.job.options.mode.startswith("max-autotune") and not symbolic

    def _measured(self, scheduled: ScheduledGraph, side: str) -> dict[str, tuple[Measurement, ...]]:
        """What mode="max-autotune" measures of each C kernel's ways to run; nothing in other modes."""
        if not self._searches(scheduled):
            return {}
        candidates = codegen.variants(scheduled, self.job.targets, torch.get_num_threads())
        if not candidates.functions:
            return {}
        return tune.measure(candidates, self.job.folder.write(f"{side}_variants.c", candidates.text, "read"))

    def _tuned(self, scheduled: ScheduledGraph, sources: KernelSources, side: str) -> KernelSources:
        """The Triton kernels in their fastest ways."""
        calls: dict[str, KernelCall] = {}
        for row in sources.plan.rows:
            if isinstance(row, Launch) and row.points and not row.sizes and all_known(row.points):
                buffers = tuple(scheduled.buffers[name] for name in row.buffers if name in scheduled.buffers)
                if len(buffers) == len(row.buffers):  # none of them a number that the wrapper has brought here
                    calls.setdefault(row.kernel, KernelCall(buffers, row.points))
        path = self.job.folder.path / FILES["triton"].format(side)
        text, tried = triton_tune.tuned(path, sources.texts["triton"], calls)
        kernels = tuple(replace(k, tried=tried.get(k.name, k.tried)) for k in sources.kernels)
        return replace(sources, texts={**sources.texts, "triton": text}, kernels=kernels)

    # --- and on to a call ------------------------------------------------------------------------------------------
    def finish(self) -> GraphCall:
        """What runs the side: kernels, or the graph's file with what it is given as that was traced."""
        assert self.file is not None
        facts = self.facts(self.file.graph)
        call = self._or_by_operators(lambda: self._kernels(facts)) if self.build is not None else None
        return with_grad_mode(by_operators(self.file.forward, facts) if call is None else call, facts)

    def _kernels(self, facts: SideCall) -> GraphCall | None:
        assert self.build is not None and self.file is not None
        with self.job.timeline.stage(f"{self.prefix}compile {self.build.compilers}"):  # what is left of it
            call = self.build.finish(self.job.options)
        if self.job.runs_kernels:
            call = replayed(call, facts)
            self.replayed = None if facts.replay is None else weakref.ref(call)
            return by_kernels(call, self.file.forward, facts)
        self.fallback = f"it was asked for (runs={self.job.folder.store.runs!r})"
        return None

    def _or_by_operators(self, step: Callable[[], Any]) -> Any:
        """``step()``; None, and the graph's file to run, where it fails."""
        try:
            return step()
        except Exception as error:
            self.stop()
            if self.may_fail and not isinstance(error, (ToolchainError, codegen.CannotPrint)):
                raise
            self.build = None  # kernels that never run are none
            self.fallback = self.job.say_aten_runs(self.graph, error)
            return None
        except BaseException:
            self.stop()
            raise

    def wait(self) -> None:
        """Until the compilers are done, whatever became of it: ``finish`` says that."""
        if self.build is not None:
            self.build.wait()

    def stop(self) -> None:
        """Nobody needs the kernels any more."""
        if self.build is not None:
            self.build.stop()

    def kept(self) -> KeptSide:
        """What a later process needs to run it. Raises NotKept."""
        assert self.file is not None
        if self.fallback:
            raise NotKept(f"operators run its {self.name}, since {self.fallback}")
        facts, objects = self.facts(self.file.graph), self.made().rendered.objects
        kernels = None if self.build is None else self.build.kept()
        return KeptSide(self.name, facts, self.file.text, objects, self.nodes, kernels)

    def records(self) -> list[SideRecord]:
        """What the stages left of this side, and of its sub-graphs."""
        text = self.file.text if self.file is not None else ""
        kernels, *called = [SideRecord(self.name)] if self.build is None else self.build.records()
        own = replace(kernels, text=text, nodes=self.nodes, fallback=self.fallback)
        return [replace(own, replayed=self.replayed, segment=self.segment), *called]


class Forward(SidePipeline):
    """``frozen``: inputs whose layout is chosen once."""

    def __init__(self, job: Job, partition: Partition, frozen: frozenset[str], compiled: bool) -> None:
        super().__init__(job, "forward", partition.forward, (), compiled)
        self.partition, self.frozen = partition, frozen

    def loops(self, gm: torch.fx.GraphModule) -> LoopGraph:
        loops = lower.run(gm, self.job.targets, frozen=self.frozen, returned=self.partition.returned)
        return replace(loops, elements=self.job.elements, updates=_updates(loops, self.partition))

    def replay(self, gm: torch.fx.GraphModule, returned: int | None = None) -> Replay | None:
        return super().replay(gm, self.partition.returned)

    def facts(self, gm: torch.fx.GraphModule) -> SideCall:
        """Kernels that draw random numbers do not while a CUDA graph is captured."""
        lowered = self.lowered
        draws = lowered is not None and any(
            isinstance(node, ExternCall) and node.target == RESERVE_PHILOX for node in lowered.nodes
        )
        if lowered is None or not draws:
            return super().facts(gm)
        return replace(super().facts(gm), drawn=tuple(_output_layout(lowered, output) for output in lowered.outputs))

    def laid_out(self) -> Partition:
        """The partition with the strides that lowering has given to what is saved, where kernels run."""
        if self.lowered is None or self.build is None or self.fallback:
            return self.partition
        outputs, returned = self.lowered.outputs, self.partition.returned

        def placed(saved: SavedTensor) -> SavedTensor:
            place = saved.place
            made = outputs[place.index] if place.kind == "output" and place.index >= returned else None
            return replace(saved, strides=made.strides) if isinstance(made, View) else saved

        return replace(self.partition, saved=tuple(map(placed, self.partition.saved)))


class Backward(SidePipeline):
    """A backward whose saved tensors lie as the forward leaves them, or a segment of one. It has only its graph."""

    prefix, may_fail = "backward ", False

    def __init__(
        self,
        job: Job,
        partition: Partition,
        name: str,
        compiled: bool,
        segment: SegmentRecord | None = None,
    ) -> None:
        assert partition.backward is not None
        strides = tuple(saved.strides for saved in partition.saved)
        super().__init__(job, name, partition.backward, strides, compiled)
        self.segment = segment

    def loops(self, gm: torch.fx.GraphModule) -> LoopGraph:
        loops = lower.run(gm, self.job.targets, self.name, input_strides=self.strides)
        return replace(loops, elements=self.job.elements)

    def facts(self, gm: torch.fx.GraphModule) -> SideCall:
        return replace(super().facts(gm), saved=len(self.strides))

    def _kernels(self, facts: SideCall) -> GraphCall | None:
        """One that a person edited is tried before it runs: nothing could go on in its place later."""
        call, edited = super()._kernels(facts), self.job.edited.get(self.name, [])
        return edits.Tried(call, self.by_operators(), edited) if call is not None and edited else call

    def graph_alone(self) -> KeptSide:
        """One that is not compiled yet, for later processes."""
        rendered = self.job.own(self.made().rendered)
        return KeptSide(self.name, self.facts(self.graph), rendered.text, rendered.objects)

    def by_operators(self) -> GraphCall:
        """The graph itself, which no file that a person edited takes part in."""
        forward: GraphCall = self.graph
        if symbols_of(node.meta.get("val") for node in self.graph.graph.nodes):  # which only a text can read
            forward = load_rendered(self.job.rendered(self.graph, self.name, "Its operators"))
        return by_operators(forward, self.facts(self.graph))


def compile_backwards(
    sides: Sequence[Backward], attempt: Callable[[Backward, Callable[[], Any]], Any] = lambda side, step: step()
) -> list[GraphCall]:
    """Backwards through the stages; what compiles in other processes does it at once. ``attempt`` makes a step."""
    for side in sides:
        attempt(side, side.start)
    return [attempt(side, side.finish) for side in sides]


def _output_layout(loops: LoopGraph, output: Any) -> Layout | None:
    """How an output lies, where numbers say it."""
    if not isinstance(output, View) or not all_known(output.shape) or not all_known(output.strides):
        return None
    return output.shape, output.strides, getattr(torch, loops.buffers[output.buffer].dtype)


def _updates(loops: LoopGraph, partition: Partition) -> tuple[tuple[str, str], ...]:
    """The results that a graph's inputs get, which kernels may write there themselves, and those inputs. With a
    backward, what it reads is kept in memory of its own.
    """
    if partition.training:
        return ()
    whole = [o.buffer if isinstance(o, View) and _is_whole(o, loops.buffers[o.buffer]) else None for o in loops.outputs]
    shown = Counter(o.buffer for o in loops.outputs if isinstance(o, View))
    pairs = [(whole[m.output], loops.inputs[m.input]) for m in partition.mutations if not m.tracked]
    return tuple((new, old) for new, old in pairs if new is not None and shown[new] == 1 and old in loops.buffers)


def _is_whole(view: View, buffer: Buffer) -> bool:
    return (view.shape, view.strides, view.offset) == (buffer.shape, buffer.strides, 0)


def calls_others(gm: torch.fx.GraphModule) -> bool:
    """Whether a graph or one that it calls has operators that are not ATen's."""
    return any(isinstance(t, torch_compat.OpOverload) and t.namespace != "aten" for t in targets_within(gm))
