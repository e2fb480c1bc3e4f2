"""The order of the stages of one graph: as captured in, a callable out.

    captured.py ─ autodiff ─ forward ─ around the call, where the backward is compiled when it is first needed

What else a compile has to do is done while the C compiler works, which needs no part of this process::

    with compiling_graph(gm, inputs, options, folder) as graph:
        ...
        compilation = graph.finish()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from .aten.nested import tensors_in
from .backends import registry
from .cache.keep import keep_backward
from .compilation import graph_sharing
from .compilation.job import Job, alone, first_origin
from .compilation.timing import Timeline
from .errors import BackendError
from .options import CompileOptions
from .process import fallbacks
from .records.compilation import Compilation, FunctionRecord, GraphRecord, SideRecord
from .records.kept_graph import KeptEntry, KeptGraph, KeptSide, NotKept, OpenSizes
from .records.target import DEVICES
from .runtime import machine, triton_kernels
from .runtime.graph_calls import Foreign, GraphCall
from .runtime.store import Folder, current_store

if TYPE_CHECKING:
    from .compilation.traced_graph import TracedGraph
    from .records.partition import Partition


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
        self.node_count = 0
        self.objects: dict[str, Any] = {}  # what captured.py stands for
        self.entry = KeptEntry()
        self.open_sizes = OpenSizes()  # where their values decide what runs
        self.call: GraphCall | None = None  # of a graph that does not go through stages
        self.traced: TracedGraph | None = None  # one that does

    @property
    def runs_generated_kernels(self) -> bool:
        """Whether what runs is printed from the graph, as nobody has changed it."""
        return self.compiled and self.job.runs_kernels and not self.job.edited

    def start(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any], fake_inputs: Sequence[Any] | None) -> None:
        """Everything up to the C compiler, which is left at work."""
        job, self.node_count = self.job, len(gm.graph.nodes)
        job.origin = first_origin(gm)
        rendered = job.rendered(gm, "captured", "The graph as captured")
        captured, text, gm = job.python_file("captured", rendered, gm, compiled=True)
        self.sides.append(SideRecord("captured", text, rendered.nodes))
        self.objects = rendered.objects
        self.call = captured
        if self.backend.foreign is not None:
            with job.timeline.stage(f"backend {self.backend.name}"):
                self.call = Foreign(self._foreign(self.backend.foreign, gm, list(example_inputs)))
        elif "autodiff" in self.backend.stages and not (self.compiled and self._lies_elsewhere(gm)):
            # what follows takes a tenth of a second to import, for which other backends need not wait
            from .compilation.traced_graph import TracedGraph

            of = job, self.sides, self.node_count, self.compiled, self.function, self.undone
            self.traced = TracedGraph(*of, keep=self._keep_backward)
            inputs = list(fake_inputs if fake_inputs is not None else example_inputs)
            self.traced.start(gm, rendered, captured, example_inputs, inputs)

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

    def start_backward(self) -> None:
        """Compile the backward with the forward, for gradients that arrive as they were traced; ``start`` is over."""
        if self.traced is not None:
            self.traced.start_backward()

    def wait(self) -> None:
        """Until the compilers that ``start`` and ``start_backward`` left at work are done."""
        if self.traced is not None:
            self.traced.wait()

    def finish(self) -> Compilation:
        """The compiled graph. A backward to come adds to its record."""
        if self.traced is not None:
            self.call = self.traced.finish()
        assert self.call is not None
        job, saved = self.job, self.traced.saved if self.traced is not None else ()
        record = GraphRecord(
            job.folder.name, self.sides, saved, self.node_count, job.timeline.events, self.objects, job.shared
        )
        return Compilation(self.call, record)

    def kept(self) -> KeptGraph:
        """What later processes need to run it, before ``end``. Raises NotKept."""
        job = self.job
        if self.backend.foreign is not None:
            raise NotKept(f"the backend {self.backend.name} is not ours")
        if job.edited or not job.runs_kernels:
            raise NotKept("a person edited it" if job.edited else f"runs={job.folder.store.runs!r} was asked for")
        captured = self.sides[0]
        kept = KeptGraph(captured.text, self.objects, captured.nodes, open_sizes=self.open_sizes)
        return kept if self.traced is None else self.traced.kept(kept)

    def _keep_backward(self, partition: Partition, side: Callable[[], KeptSide]) -> None:
        if self.entry.path is not None:
            keep_backward(self.entry.path, partition, side)

    def end(self) -> None:
        """Finished or not: what was made is kept for equal graphs, within limits. A backward to come holds it."""
        if self.traced is not None:
            self.traced.end()
        self.call = self.traced = None
