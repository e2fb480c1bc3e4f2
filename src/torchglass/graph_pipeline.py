"""The order of the stages of one graph: as captured in, a callable out.

    captured.py ─ autodiff ─ forward ─ around the call, where the backward is compiled when it is first needed

What else a compile has to do is done while the C compiler works, which needs no part of this process::

    with compiling_graph(gm, inputs, options, folder) as graph:
        ...
        compilation = graph.finish()
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from . import autodiff
from .aten.nested import tensors_in
from .backends import registry
from .cache.keep import keep_backward
from .compilation import graph_sharing, index_range
from .compilation.job import Job, alone, first_origin
from .compilation.reporting import rewrite
from .compilation.segments import cut_backward
from .compilation.side_pipeline import Backward, Forward, calls_others
from .compilation.timing import Timeline, compiling
from .errors import BackendError
from .inspector import progress
from .options import CompileOptions
from .process import fallbacks, interrupts
from .process.locks import fork_safe_lock
from .records.compilation import Compilation, FunctionRecord, GraphRecord, SideRecord
from .records.kept_graph import KeptEntry, KeptGraph, KeptSide, NotKept, OpenSizes
from .records.partition import Partition, SavedTensor, TangentLayout
from .records.segments import CutGraph, Groups
from .records.symbolic_ints import SizesUnfit, environment_of, size_of
from .records.target import DEVICES
from .runtime import machine, triton_kernels
from .runtime.graph_calls import Foreign, GraphCall
from .runtime.inference_mode import making_inference_tensors
from .runtime.runtime_wrapper import runtime_wrapper
from .runtime.store import Folder, current_store


def prepare(options: CompileOptions) -> None:
    """Before a graph is captured: what compiles in a process of its own begins to prepare itself."""
    if "codegen" in registry.resolve(options.backend).stages:
        triton_kernels.warm_up()


def compile_graph(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], options: CompileOptions, folder: Folder | None = None
) -> Compilation:
    """Compile a captured graph for its inputs: a callable with the graph's inputs and outputs.

    ``gm`` takes and returns tensors, flat; ``example_inputs`` are real tensors. Raises whatever a stage raises.
    """
    with compiling_graph(gm, example_inputs, options, folder or current_store().folder("graph", gm)) as graph:
        return graph.finish()


@contextmanager
def compiling_graph(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    options: CompileOptions,
    folder: Folder,
    fake_inputs: Sequence[Any] | None = None,
    function: FunctionRecord | None = None,
    undone: type[Exception] | None = None,
) -> Iterator[GraphPipeline]:
    """The same with something to do in between. ``fake_inputs`` are those that capture has made, ``function`` is the
    record whose files tell of the graph, ``undone`` what is raised where the graph fails and has written to no input.
    """
    graph = GraphPipeline(options, folder, function, undone)
    try:
        graph.start(gm, example_inputs, fake_inputs)
        yield graph
    finally:
        graph.end()


class GraphPipeline:
    """One captured graph on its way through the stages that its backend names."""

    def __init__(
        self,
        options: CompileOptions,
        folder: Folder,
        function: FunctionRecord | None,
        undone: type[Exception] | None,
    ) -> None:
        self.function, self.undone = function, undone
        self.backend = registry.resolve(options.backend)
        self.compiled = "codegen" in self.backend.stages
        shared = graph_sharing.Shared(folder.function_name)
        self.job = Job(options, folder, shared, Timeline(folder.function_name), machine.targets(options.get("threads")))
        self.sides: list[SideRecord] = []
        self.saved: tuple[SavedTensor, ...] = ()
        self.node_count = 0
        self.objects: dict[str, Any] = {}  # what captured.py stands for
        self.lock = fork_safe_lock()  # one backward at a time
        self.backwards = 0
        self.forward: Forward | None = None
        self.ahead: Backward | None = None  # compiled before it is needed
        self.was_ahead: Backward | None = None  # the same, once its callable is in use
        self.enters_grad = False
        self.inference: tuple[bool, ...] | None = None
        self.entry = KeptEntry()
        self.open_sizes = OpenSizes()  # where their values decide what runs
        self.rest: Callable[[], GraphCall] = _nothing  # what is to be done when the C compiler is ready

    @property
    def runs_generated_kernels(self) -> bool:
        """Whether what runs is printed from the graph, as nobody has changed it."""
        return self.compiled and self.job.runs_kernels and not self.job.edited

    # --- forward ---------------------------------------------------------------------------------------------------
    def start(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any], fake_inputs: Sequence[Any] | None) -> None:
        """Everything up to the C compiler, which is left at work."""
        job, self.node_count = self.job, len(gm.graph.nodes)
        job.origin = first_origin(gm)
        rendered = job.rendered(gm, "captured", "The graph as captured")
        captured, text, gm = job.python_file("captured", rendered, gm, compiled=True)
        self.sides.append(SideRecord("captured", text, rendered.nodes))
        self.objects = rendered.objects
        self.rest = lambda: captured
        if self.backend.foreign is not None:
            with job.timeline.stage(f"backend {self.backend.name}"):
                foreign = Foreign(self._foreign(self.backend.foreign, gm, list(example_inputs)))
            self.rest = lambda: foreign
        elif "autodiff" in self.backend.stages and not (self.compiled and self._lies_elsewhere(gm)):
            inputs = list(fake_inputs if fake_inputs is not None else example_inputs)
            if not job.edited and not calls_others(gm):
                runs = job.folder.store.runs
                content = graph_sharing.content(rendered, gm, inputs, example_inputs, job.options, runs)
                job.shared = graph_sharing.find(content, job.shared)
            self._start_without_inference_mode(gm, captured, example_inputs, inputs)

    def _lies_elsewhere(self, gm: torch.fx.GraphModule) -> bool:
        """Whether tensors of the graph are on a device that no code is generated for: it then runs as captured. An
        error with ``fullgraph``.
        """
        devices = (value.device.type for node in gm.graph.nodes for value in tensors_in(node.meta.get("val")))
        device = next((one for one in devices if one not in DEVICES), None)
        if device is None:
            return False
        if self.job.options.fullgraph:
            raise NotImplementedError(f"no code is generated for tensors on {device}")
        where = f"in {self.job.folder.path}"
        told = f"a graph has tensors on {device}, for which no code is generated: PyTorch runs it"
        fallbacks.say(told, self.job.origin, where, key=("device", device))
        return True

    def _foreign(self, compiler: registry.Compiler, gm: torch.fx.GraphModule, inputs: list[Any]) -> GraphCall:
        try:
            return alone(compiler, gm, inputs, self.job.options)
        except RecursionError:  # the program's, which is nested so deeply
            raise
        except Exception as error:
            raise BackendError(self.backend.name, error) from error

    def _start_without_inference_mode(
        self, gm: torch.fx.GraphModule, captured: GraphCall, examples: Sequence[Any], inputs: list[Any]
    ) -> None:
        plain = autodiff.without_inference_mode(gm)
        if plain is None:
            return
        inference = plain.inference
        with torch.no_grad() if inference is not None and all(inference) else nullcontext():
            self._start_traced(plain.graph, captured, examples, inputs)
        self.inference = inference
        if inference is not None:
            rest = self.rest
            self.rest = lambda: making_inference_tensors(rest(), inference)

    def _start_traced(
        self, gm: torch.fx.GraphModule, captured: GraphCall, examples: Sequence[Any], inputs: list[Any]
    ) -> None:
        """The graph through autodiff, and its forward through what follows; ``captured`` is what runs it as it is."""
        job, entered = self.job, torch.is_grad_enabled()
        training = any(i.requires_grad for i in inputs) or autodiff.differentiates(gm)
        training = training and (entered or autodiff.enables_grad(gm))
        self.enters_grad = training and not entered
        frozen: frozenset[str] = frozenset()
        if job.options.get("freezing") and not training:
            named = zip(gm.graph.find_nodes(op="placeholder"), examples)
            frozen = frozenset(node.name for node, example in named if isinstance(example, torch.nn.Parameter))
        if job.shared.partition is None:
            with job.timeline.stage("autodiff"):
                trace = autodiff.trace_training if training else autodiff.trace_inference
                job.shared.partition = alone(trace, gm, inputs, job.options)
        partition = job.shared.partition
        job.elements = index_range.assumed(partition.joint, environment_of(inputs))
        self.forward = forward = Forward(job, partition, frozen, self.compiled)
        forward.start()
        if partition.training:
            self._write_joint(partition)

        def rest() -> GraphCall:
            call = self._linked(forward, captured)
            # a graph that begins inside `no_grad` and goes on after it records its derivatives itself
            return torch.enable_grad()(call) if self.enters_grad else call

        self.rest = rest

    def _write_joint(self, partition: Partition) -> None:
        if self.job.shared.joint is None:
            self.job.shared.joint = self.job.rendered(partition.joint, "joint", "Forward and backward as one graph")
        text = self.job.own(self.job.shared.joint).text
        self.sides.append(SideRecord("joint", text))
        self.job.folder.write("joint.py", text, "read")

    def _linked(self, forward: Forward, captured: GraphCall) -> GraphCall:
        call = forward.finish()
        partition = forward.laid_out()
        self.sides.extend(forward.records())
        self.saved = partition.saved
        if self.job.folder.store.runs == "captured":
            return captured
        if partition.training:
            again = functools.partial(self._traced_again, partition.again, partition.saved)
            partition = replace(partition.after_forward(), again=again)
        backward = self._compile_backward()
        return runtime_wrapper(partition, call, backward, captured, self.undone, self._segments)

    def _compile_backward(self) -> Callable[[Partition], GraphCall]:
        side = self.ahead
        if side is None:
            return self._backward
        graph, made, self.ahead, self.was_ahead, self.backwards = side.graph, side.finish(), None, side, 1
        self.sides.extend(side.records())
        return lambda partition: made if partition.backward is graph else self._backward(partition)

    def start_backward(self) -> None:
        """Compile the backward with the forward, for gradients that arrive as they were traced; ``start`` is over."""
        if self.forward is not None and self.forward.partition.training:
            self.ahead = Backward(self.job, self.forward.laid_out(), "backward", self.compiled)
            self.ahead.start()

    def wait(self) -> None:
        """Until the compilers that ``start`` and ``start_backward`` left at work are done."""
        for side in (self.forward, self.ahead):
            if side is not None:
                side.wait()

    def finish(self) -> Compilation:
        """The compiled graph. A backward to come adds to its record."""
        call, job = self.rest(), self.job
        events, shared = job.timeline.events, job.shared
        name, count = job.folder.name, self.node_count
        return Compilation(call, GraphRecord(name, self.sides, self.saved, count, events, self.objects, shared))

    def kept(self) -> KeptGraph:
        """What later processes need to run it, before ``end``. Raises NotKept."""
        job = self.job
        if self.backend.foreign is not None:
            raise NotKept(f"the backend {self.backend.name} is not ours")
        if job.edited or not job.runs_kernels:
            raise NotKept("a person edited it" if job.edited else f"runs={job.folder.store.runs!r} was asked for")
        captured = self.sides[0]
        told = captured.text, self.objects, captured.nodes
        if self.forward is None:
            return KeptGraph(*told)
        partition = self.forward.laid_out()
        backwards: tuple[tuple[Partition, KeptSide], ...] = ()
        if partition.training:
            made = self.ahead or self.was_ahead
            side = made.kept() if made else Backward(job, partition, "backward", self.compiled).graph_alone()
            backwards = ((partition, side),)
        joint = job.own(job.shared.joint).text if job.shared.joint is not None else ""
        runs = partition.after_forward(), self.forward.kept(), backwards
        return KeptGraph(*told, joint, *runs, self.enters_grad, self.inference, self.open_sizes)

    def end(self) -> None:
        """Finished or not: what was made is kept for equal graphs, within limits. A backward to come holds this."""
        for side in (self.forward, self.ahead):
            if side is not None:
                side.stop()
        self.forward, self.ahead, self.was_ahead, self.rest = None, None, None, _nothing
        graph_sharing.keep(self.job.shared, self.node_count)

    # --- backward --------------------------------------------------------------------------------------------------
    def _backward(self, partition: Partition) -> GraphCall:
        """Compile a backward: backward.py for the gradients of the first one, backward_2.py for gradients that arrive
        in another way, and so on. In the handler of a signal that came amid a compile: its operators.
        """
        if interrupts.is_handling():
            return Backward(self.job, partition, "backward", compiled=False).by_operators()
        return interrupts.whole(lambda: compiling.undisturbed(lambda: self._next_backward(partition)))

    def _next_backward(self, partition: Partition) -> GraphCall:
        with self.lock, progress.compiling(self.job.timeline.name):
            side = Backward(self.job, partition, self._next_name(), self.compiled)
            call = self._compiled([side])[0]
            if self.entry.path is not None and not side.fallback:
                keep_backward(self.entry.path, partition, side.kept)
        return call

    def _next_name(self) -> str:
        self.backwards += 1
        return "backward" if self.backwards == 1 else f"backward_{self.backwards}"

    def _compiled(self, sides: Sequence[Backward]) -> list[GraphCall]:
        """Backwards through the stages; what compiles in other processes does it at once."""
        for side in sides:
            self._or_by_operators(side, side.start)
        calls = [side.by_operators() if side.fallback else self._or_by_operators(side, side.finish) for side in sides]
        for side in sides:
            self.sides.extend(side.records())
        graph_sharing.keep(self.job.shared, self.node_count)
        if self.function is not None:
            with suppress(OSError):
                rewrite(self.function, self.job.folder)
        return calls

    def _or_by_operators(self, side: Backward, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except (SizesUnfit, Exception) as error:  # a full disk, a typo in an edited file: nothing ends for that
            side.fallback = self.job.say_aten_runs(side.graph, error)
            return side.by_operators()

    def _segments(self, partition: Partition, groups: Groups, buckets: Sequence[int | None]) -> CutGraph | None:
        """Compile a backward in segments, one for each group of gradients. None where it cannot be cut."""
        if interrupts.is_handling():
            return None
        return interrupts.whole(lambda: compiling.undisturbed(lambda: self._next_segments(partition, groups, buckets)))

    def _next_segments(self, partition: Partition, groups: Groups, buckets: Sequence[int | None]) -> CutGraph | None:
        found = cut_backward(self.job, partition, groups, buckets)
        if found is None:
            return None
        with self.lock, progress.compiling(self.job.timeline.name):
            name = self._next_name()
            self.sides.append(found.written(name))
            return found.with_calls(self._compiled(found.sides(name, self.compiled)))

    def _traced_again(self, again: Any, saved: tuple[SavedTensor, ...], arrived: TangentLayout) -> Partition | None:
        """Backward, traced once more."""

        def traced() -> Partition | None:
            known = self.job.shared.again
            key = tuple(None if strides is None else tuple(map(size_of, strides)) for strides in arrived)
            if key not in known:
                with self.job.timeline.stage("backward autodiff"):
                    made = alone(again, arrived)
                known.setdefault(key, made)
            found = known[key]
            return None if found is None else replace(found, saved=saved, arrived=key)

        return interrupts.whole(lambda: compiling.undisturbed(traced))


def _nothing() -> Any:
    raise AssertionError("the compile is over")
