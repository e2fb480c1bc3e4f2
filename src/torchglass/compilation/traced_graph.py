"""A captured graph in stages: autodiff, its forward, and backwards when they are first needed.

traced = TracedGraph(job, ...)
traced.start(gm, captured, examples, inputs)     # up to the C compiler, which is left at work
call = traced.finish()
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx

from .. import autodiff
from ..inspector import progress
from ..process import interrupts
from ..process.locks import fork_safe_lock
from ..records.compilation import FunctionRecord, SideRecord
from ..records.kept_graph import KeptGraph, KeptSide
from ..records.partition import Partition, SavedTensor, TangentLayout
from ..records.render_graph import Rendered
from ..records.segments import CutGraph, Groups
from ..records.symbolic_ints import SizesUnfit, environment_of, size_of
from ..runtime.graph_calls import GraphCall
from ..runtime.inference_mode import making_inference_tensors
from ..runtime.runtime_wrapper import runtime_wrapper
from . import graph_sharing, index_range
from .job import Job, alone
from .reporting import rewrite
from .segments import cut_backward
from .side_pipeline import Backward, Forward, calls_others, compile_backwards
from .timing import compiling


def _nothing() -> Any:
    raise AssertionError("the compile is over")


@dataclass(eq=False)
class TracedGraph:
    """``sides`` are the records of the graph, which it adds to; ``function`` is the record whose files tell of it,
    ``undone`` what is raised where the graph fails and has written to no input, ``keep`` takes a backward that is
    compiled when it is first needed.
    """

    job: Job
    sides: list[SideRecord]
    node_count: int
    compiled: bool
    function: FunctionRecord | None
    undone: type[Exception] | None
    keep: Callable[[Partition, Callable[[], KeptSide]], None]
    saved: tuple[SavedTensor, ...] = ()
    lock: Any = field(default_factory=fork_safe_lock)  # one backward at a time
    backwards: int = 0
    forward: Forward | None = None
    ahead: Backward | None = None  # compiled before it is needed
    was_ahead: Backward | None = None  # the same, once its callable is in use
    enters_grad: bool = False
    inference: tuple[bool, ...] | None = None
    finish: Callable[[], GraphCall] = _nothing  # what is to be done when the C compiler is ready

    # --- forward ---------------------------------------------------------------------------------------------------
    def start(
        self,
        gm: torch.fx.GraphModule,
        rendered: Rendered,
        captured: GraphCall,
        examples: Sequence[Any],
        inputs: list[Any],
    ) -> None:
        """Everything up to the C compiler, which is left at work; ``captured`` is what runs the graph as it is."""
        job = self.job
        if not job.edited and not calls_others(gm):
            content = graph_sharing.content(rendered, gm, inputs, examples, job.options, job.folder.store.runs)
            job.shared = graph_sharing.find(content, job.shared)
        plain = autodiff.without_inference_mode(gm)
        if plain is None:
            self.finish = lambda: captured
            return
        inference = plain.inference
        with torch.no_grad() if inference is not None and all(inference) else nullcontext():
            self._start_traced(plain.graph, captured, examples, inputs)
        self.inference = inference
        if inference is not None:
            finish = self.finish
            self.finish = lambda: making_inference_tensors(finish(), inference)

    def _start_traced(
        self, gm: torch.fx.GraphModule, captured: GraphCall, examples: Sequence[Any], inputs: list[Any]
    ) -> None:
        """The graph through autodiff, and its forward through what follows."""
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

        def finish() -> GraphCall:
            call = self._linked(forward, captured)
            # a graph that begins inside `no_grad` and goes on after it records its derivatives itself
            return torch.enable_grad()(call) if self.enters_grad else call

        self.finish = finish

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

    def kept(self, graph: KeptGraph) -> KeptGraph:
        """``graph``, of which the captured one is known, with what became of it. Raises NotKept."""
        if self.forward is None:
            return graph
        partition = self.forward.laid_out()
        backwards: tuple[tuple[Partition, KeptSide], ...] = ()
        if partition.training:
            made = self.ahead or self.was_ahead
            side = made.kept() if made else Backward(self.job, partition, "backward", self.compiled).graph_alone()
            backwards = ((partition, side),)
        joint = self.job.shared.joint
        return replace(
            graph,
            joint="" if joint is None else self.job.own(joint).text,
            partition=partition.after_forward(),
            forward=self.forward.kept(),
            backwards=backwards,
            enters_grad=self.enters_grad,
            inference=self.inference,
        )

    def end(self) -> None:
        """Finished or not: what was made is kept for equal graphs, within limits. A backward to come holds this."""
        for side in (self.forward, self.ahead):
            if side is not None:
                side.stop()
        self.forward, self.ahead, self.was_ahead, self.finish = None, None, None, _nothing
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
            if not side.fallback:
                self.keep(partition, side.kept)
        return call

    def _next_name(self) -> str:
        self.backwards += 1
        return "backward" if self.backwards == 1 else f"backward_{self.backwards}"

    def _compiled(self, sides: Sequence[Backward]) -> list[GraphCall]:
        """Backwards through the stages, and their records; operators run one that fails."""
        calls = compile_backwards(sides, self._or_by_operators)
        for side in sides:
            self.sides.extend(side.records())
        graph_sharing.keep(self.job.shared, self.node_count)
        if self.function is not None:
            with suppress(OSError):
                rewrite(self.function, self.job.folder)
        return calls

    def _or_by_operators(self, side: Backward, step: Callable[[], Any]) -> Any:
        try:
            return side.by_operators() if side.fallback else step()
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
