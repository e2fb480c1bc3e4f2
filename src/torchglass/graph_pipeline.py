"""The order of the stages of one graph: as captured in, a callable out.

    captured.py ─ autodiff ─ lower ─ fuse ─ schedule ─ codegen ─ compile C ─ load

What else a compile has to do (``meanwhile``) is done while the C compiler works, which needs no part of this process.
"""

from __future__ import annotations

import copy
import functools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import torch
import torch.fx

from . import autodiff, codegen, fallbacks, fuse, graph_sharing, interrupts, lower, schedule, torch_compat
from .backends import registry
from .graph_sharing import Side
from .locks import fork_safe_lock
from .options import CompileOptions
from .records.compilation import GraphRecord
from .records.kernels import FusedGraph, KernelSources, Trial
from .records.launch import FILES
from .records.loops import Buffer, LoopGraph, View
from .records.origin import UNKNOWN, Origin
from .records.partition import Arrived, Partition
from .records.render_graph import Rendered, render
from .records.schedule import ScheduledGraph
from .runtime import edit_errors, edits, machine, tune
from .runtime.load import Building, conform, graph_file, load, with_numbers
from .runtime.store import Artifact, Folder, Role, current_store, load_python
from .runtime.toolchain import NoCompiler, ToolchainError
from .stages import Stages, compiling

GraphCall = Callable[..., Any]
T = TypeVar("T")


def compile_graph(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    options: CompileOptions,
    folder: Folder | None,
    *,
    fake_inputs: Sequence[Any] | None = None,
    record: GraphRecord | None = None,
    stages: Stages | None = None,
    on_change: Callable[[], None] | None = None,
    meanwhile: Callable[[], Any] = lambda: None,
) -> GraphCall:
    """Compile a captured graph for its inputs: a callable with the graph's inputs and outputs.

    ``gm`` takes and returns tensors, flat; ``example_inputs`` are real tensors, ``fake_inputs`` their fakes where
    capture has made them. ``record`` is filled with the texts; ``on_change`` is called when the backward has been
    compiled. ``meanwhile`` is called while the forward's C is compiled, if it is. Raises whatever a stage raises.
    """
    folder = folder or current_store().folder("graph", gm)
    compiler = GraphCompiler(
        options,
        folder,
        record or GraphRecord(folder.name),
        stages or Stages(folder.name),
        on_change or (lambda: None),
        meanwhile,
    )
    try:
        return compiler.run(gm, example_inputs, fake_inputs)
    finally:
        compiler.meanwhile = _nothing  # a backward to come holds the compiler, and this the tensors of the call
        compiler.share()


def _nothing() -> None:
    pass


class GraphCompiler:
    """One captured graph on its way through the stages that its backend names."""

    def __init__(
        self,
        options: CompileOptions,
        folder: Folder,
        record: GraphRecord,
        stages: Stages,
        on_change: Callable[[], None],
        meanwhile: Callable[[], Any],
    ) -> None:
        self.options = options
        self.folder = folder
        self.record = record
        self.stages = stages
        self.on_change = on_change
        self.meanwhile = meanwhile
        self.lock = fork_safe_lock()  # one backward at a time
        self.backend = registry.resolve(options.backend)
        self.targets = machine.targets(options.get("threads"))
        self.frozen: frozenset[str] = frozenset()  # inputs whose layout is chosen once
        self.edited: dict[str, list[Artifact]] = {}  # files of a graph that a person changed, by its name
        self.backwards = 0
        self.origin = UNKNOWN  # of the first captured node that has one
        self.partition: Partition | None = None
        self.kept: tuple[Any, ...] = ()  # strides of what is kept for backward, None where they are eager's
        self.shared = graph_sharing.Shared(folder.function_name)  # with graphs of the same content

    def run(
        self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any], fake_inputs: Sequence[Any] | None
    ) -> GraphCall:
        self.record.node_count = len(gm.graph.nodes)
        self.origin = _first_origin(gm)
        rendered = self._rendered(gm, "captured.py", "The graph as captured")
        captured, self.record.captured_text, gm = self._python("captured.py", rendered, gm, compiled=True)
        if self.backend.foreign is not None:
            with self.stages.stage(f"backend {self.backend.name}"):
                return Foreign(_alone(self.backend.foreign, gm, list(example_inputs), self.options))
        if "autodiff" not in self.backend.stages:
            return captured
        inputs = list(fake_inputs if fake_inputs is not None else example_inputs)
        if not self.edited and not _calls_others(gm):
            runs = self.folder.store.runs
            content = graph_sharing.content(rendered, gm, inputs, example_inputs, self.options, runs)
            self.shared = graph_sharing.find(content, self.shared)
        self.record.shared = self.shared
        traced = functools.partial(self._traced, captured, example_inputs, inputs)
        return autodiff.outside_inference_mode(gm, captured, traced)

    def share(self) -> None:
        """What was made is kept for equal graphs, within limits."""
        graph_sharing.keep(self.shared, self.record.node_count)

    def _traced(self, captured: GraphCall, examples: Sequence[Any], inputs: Any, gm: torch.fx.GraphModule) -> GraphCall:
        """The graph through autodiff and what follows; ``captured`` is what runs it as it is."""
        entered = torch.is_grad_enabled()
        training = any(i.requires_grad for i in inputs) or autodiff.differentiates(gm)
        training = training and (entered or autodiff.enables_grad(gm))
        if self.options.get("freezing") and not training:
            placeholders = gm.graph.find_nodes(op="placeholder")
            self.frozen = frozenset(
                p.name for p, example in zip(placeholders, examples) if isinstance(example, torch.nn.Parameter)
            )
        if self.shared.partition is None:
            with self.stages.stage("autodiff"):
                trace = autodiff.trace_training if training else autodiff.trace_inference
                self.shared.partition = _alone(trace, gm, inputs, self.options)
        self.partition = partition = self.shared.partition
        forward = self._lowered(partition.forward, "forward")
        if partition.training:
            self._write_joint()
            again = functools.partial(self._traced_again, partition.again)
            self.partition, partition = partition.after_backward(), replace(partition.after_forward(), again=again)
        self.record.saved = partition.saved
        if self.folder.store.runs == "captured":
            return captured
        call = autodiff.link(partition, forward, self._backward, captured)
        # a graph that begins inside `no_grad` and goes on after it records its derivatives itself
        return torch.enable_grad()(call) if training and not entered else call

    def _write_joint(self) -> None:
        if self.partition is not None and self.partition.training and not self.record.joint_text:
            if self.shared.joint is None:
                title = "Forward and backward as one graph"
                self.shared.joint = self._rendered(self.partition.joint, "joint.py", title)
            self.record.joint_text = self._own(self.shared.joint).text
            self.folder.write("joint.py", self.record.joint_text, "read")

    def _backward(self, partition: Partition) -> GraphCall:
        """Compile a backward: backward.py for the gradients of the first one, backward_2.py for gradients that arrive
        in another way, and so on.
        """
        return interrupts.whole(lambda: compiling.undisturbed(lambda: self._next_backward(partition)))

    def _next_backward(self, partition: Partition) -> GraphCall:
        with self.lock, self.stages.shown():
            number = self.backwards + 1
            side = "backward" if number == 1 else f"backward_{number}"
            try:
                call = self._lowered(partition.backward, side)
            except Exception as error:  # a full disk, a typo in an edited file: no reason for the program to end
                assert partition.backward is not None
                self._say_aten_runs(partition.backward, side, error)
                call = _on_list(partition.backward, partition.backward if self.kept else None)
            self.backwards = number
            self.share()
            with suppress(OSError):
                self.on_change()
        return call

    def _traced_again(self, again: Any, arrived: Arrived) -> Partition | None:
        """Backward, traced once more."""

        def traced() -> Partition | None:
            known = self.shared.again
            if arrived not in known:
                with self.stages.stage("backward autodiff"):
                    made = _alone(again, arrived)
                known.setdefault(arrived, made)
            return known[arrived]

        return interrupts.whole(lambda: compiling.undisturbed(traced))

    def _lowered(self, gm: torch.fx.GraphModule, side: str) -> GraphCall:
        """An ATen graph as a callable on a list of tensors."""
        call = self._run_by_backend(gm, side)
        # custom operators in Python ask whether gradients are recorded, as ATen's below autograd do not
        return torch.no_grad()(call) if _calls_others(gm) else call

    def _run_by_backend(self, gm: torch.fx.GraphModule, side: str) -> GraphCall:
        compiled = "codegen" in self.backend.stages
        ours = gm
        known_as = side, gm, self.kept
        made = self.shared.sides.get(known_as)
        if made is None:
            made = Side(self._rendered(gm, f"{side}.py", f"The {side.partition('_')[0]} graph"))
        forward, text, gm = self._python(f"{side}.py", self._own(made.rendered), gm, compiled)
        made = self.shared.sides.setdefault(known_as, made) if gm is ours else Side(made.rendered)
        if side.endswith("ward"):
            setattr(self.record, f"{side}_text", text)
        else:
            self.record.files[f"{side}.py"] = text
        if not compiled:
            return _on_list(forward)
        known = {name: copy.copy(vars(self.record)[name]) for name in _OF_KERNELS}
        try:
            generated = self._generated(gm, side, made)
            if side.startswith("backward"):
                generated = self._unless_batched(generated, forward, gm)
            if self.folder.store.runs in ("kernels", "lines"):
                return self._tried_first(generated, ours, side)
            self.kept = ()
            self.record.fallbacks[side] = f"it was asked for (runs={self.folder.store.runs!r})"
            return _on_list(forward)
        except Exception as error:
            if side == "forward" and not isinstance(error, ToolchainError):
                raise  # the whole call can still run eagerly; a backward has only its graph
            vars(self.record).update(known)  # kernels that never run are none
            self._say_aten_runs(gm, side, error)
            if side == "forward":
                self.kept = ()
            return _on_list(forward, gm if self.kept else None)

    def _unless_batched(self, generated: GraphCall, forward: GraphCall, gm: torch.fx.GraphModule) -> GraphCall:
        """Gradients that are many at once (``is_grads_batched``, ``torch.func.vmap``) have no memory for kernels:
        backward.py runs.
        """
        assert self.partition is not None
        saved = len(self.partition.saved)
        by_operators = _on_list(forward, gm, saved)

        def call(tensors: list[Any]) -> Any:
            have_memory = all(map(torch_compat.has_storage, tensors[saved:]))
            return generated(tensors) if have_memory else by_operators(tensors)

        return call

    def _say_aten_runs(self, gm: torch.fx.GraphModule, side: str, error: Exception) -> None:
        """Once for each graph; of a compiler that is not there, once."""
        why = self.record.fallbacks[side] = str(error) if isinstance(error, ToolchainError) else edit_errors.told(error)
        origin = self.origin if self.origin != UNKNOWN else _first_origin(gm)
        key = str(error) if isinstance(error, NoCompiler) else (self.folder.path, type(error))
        fallbacks.say(f"torchglass runs a graph with ATen: {why}", origin, f"in {self.folder.path}", key)

    def _generated(self, gm: torch.fx.GraphModule, side: str, made: Side) -> GraphCall:
        """A side as kernels: what ``made`` has of an equal graph, or what the stages make now."""

        def named(stage: str) -> str:
            return stage if side == "forward" else f"{side} {stage}"

        if made.loops is None:
            with self.stages.stage(named("lower")):
                made.loops = self._loops(gm, side)
        loops = made.loops
        if side == "forward":
            self.kept = self._strides_kept(loops)
        self.folder.write(f"{side}.loops", str(loops), "read")
        sources, kernels, wrapper = self._printed(loops, side, named, made)
        self.record.sides[side] = tuple(sources.kernels)
        building = _building(sources, kernels)
        try:
            functions = self._functions(loops)
            if side == "forward":
                self._write_joint()
                self.meanwhile()
            with self.stages.stage(named("compile C")):  # what is left of it
                call = load(wrapper, building, self.options, {**sources.plan.handed, **functions}, kernels)
                return with_numbers(call, _without_numbers(gm))
        except BaseException:
            if building is not None:
                building.stop()
            raise

    def _loops(self, gm: torch.fx.GraphModule, side: str) -> LoopGraph:
        if side == "forward":
            assert self.partition is not None
            loops = lower.run(gm, self.options, frozen=self.frozen, returned=self.partition.returned)
            loops = replace(loops, updates=_updates(loops, self.partition))
        else:
            loops = lower.run(gm, self.options, arrived=self.kept)
        return loops if loops.name == side else replace(loops, name=side)

    def _strides_kept(self, loops: LoopGraph) -> tuple[Any, ...]:
        assert self.partition is not None
        places = [saved.place for saved in self.partition.saved]
        returned = self.partition.returned
        made = [loops.outputs[p.index] if p.kind == "output" and p.index >= returned else None for p in places]
        return tuple(getattr(one, "strides", None) for one in made)

    def _functions(self, loops: LoopGraph) -> dict[str, GraphCall]:
        """The sub-graphs that a graph calls, compiled like itself."""
        functions: dict[str, GraphCall] = {}
        for name, graph in codegen.sub_graphs(loops).items():
            side, made = f"{loops.name}_{name}", Side(Rendered(""))
            inner = lower.run(graph, self.options, side)
            self.folder.write(f"{side}.loops", str(inner), "read")
            sources, kernels, wrapper = self._printed(inner, side, lambda stage: f"sub-graph {stage}", made)
            constants = {**sources.plan.handed, **self._functions(inner)}
            functions[name] = graph_file(wrapper.path, load(wrapper, None, self.options, constants, kernels))
        return functions

    def _printed(
        self, loops: LoopGraph, side: str, named: Callable[[str], str], made: Side
    ) -> tuple[KernelSources, list[Artifact], Artifact]:
        """A graph in loops as kernels and a wrapper, and the files of these."""
        if made.printed is None:
            with self.stages.stage(named("fuse")):
                fused = fuse.run(loops, self.options)
            _refuse_unloaded(fused)
            with self.stages.stage(named("schedule")):
                scheduled = schedule.run(fused, self.targets)
            with self.stages.stage(named("codegen")):
                made.printed = scheduled, codegen.run(scheduled, self.targets, self._tried(scheduled, side))
        scheduled, sources = made.printed
        fused = scheduled.fused
        self.folder.write(f"{side}.fused", str(fused), "read")
        self.folder.write(f"{side}.schedule", str(scheduled), "read")
        self.folder.write(f"{side}.launch", str(sources.plan), "read")
        kernels = [self._written(FILES[name].format(side), text, side) for name, text in sources.texts.items()]
        wrapper = self._written(f"{side}_wrapper.py", sources.wrapper_text, side)
        self.record.kernels += tuple(sources.kernels)
        self.record.decisions += tuple(fused.decisions)
        self.record.fused[side] = fused
        if self.stages.line is not None:
            self.stages.line.kernels += len(sources.kernels)
        self.record.files.update({artifact.path.name: artifact.text for artifact in (*kernels, wrapper)})
        return sources, kernels, wrapper

    def _written(self, filename: str, text: str, side: str) -> Artifact:
        artifact = self.folder.write(filename, text, _role(filename, self.folder.store.runs))
        if artifact.edited:
            self.edited.setdefault(side, []).append(artifact)
        return artifact

    def _tried_first(self, call: GraphCall, gm: torch.fx.GraphModule, side: str) -> GraphCall:
        """A backward that a person edited is tried before it runs: nothing could go on in its place later."""
        edited = self.edited.get(side, [])
        if side == "forward" or not edited:
            return call
        return edits.Tried(call, _on_list(gm, gm if self.kept else None), edited)

    def _tried(self, scheduled: ScheduledGraph, side: str) -> dict[str, tuple[Trial, ...]]:
        """What mode="max-autotune" measures of each kernel's ways to run; nothing in other modes."""
        if not self.options.mode.startswith("max-autotune"):
            return {}
        variants = codegen.variants(scheduled, self.targets, torch.get_num_threads())
        return tune.measure(variants, self.folder.write(f"{side}_variants.c", variants.text, "read"))

    def _python(
        self, filename: str, rendered: Rendered, gm: torch.fx.GraphModule, compiled: bool
    ) -> tuple[GraphCall, str, torch.fx.GraphModule]:
        """A graph as a file: its ``forward`` function, as the file says it, the text, and the graph again, which an
        edit has changed if it is ``compiled``. An edit that fails is not used.
        """
        name = filename.partition(".")[0]
        artifact = self._written(filename, rendered.text, name)
        self.record.nodes[name] = rendered.nodes
        if name == "captured":
            self.record.objects = rendered.objects
        if artifact.edited and compiled:
            try:
                forward = load_python(artifact, after=rendered.objects).forward
                changed = _alone(edits.retraced, forward, artifact.path, gm)
                if name != "captured":
                    changed = edits.with_values(changed, artifact.path, gm)
                return forward, artifact.text, changed
            except Exception as error:
                artifact = artifact.as_generated(error)
        return load_python(artifact, after=rendered.objects).forward, artifact.text, gm

    def _rendered(self, gm: torch.fx.GraphModule | None, filename: str, title: str) -> Rendered:
        assert gm is not None
        what = _WHAT_RUNS[re.split("[_.]", filename)[0]]
        return render(gm, f"{title} of {self.shared.name}.\n\n{what}")

    def _own(self, rendered: Rendered) -> Rendered:
        """The text of an equal graph as this function's."""
        return graph_sharing.retitled(rendered, self.shared.name, self.folder.function_name)


_OF_KERNELS = ("kernels", "decisions", "sides", "fused", "files")
"""Fields of a graph's record that tell of kernels."""


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


def _role(filename: str, runs: str) -> Role:
    """Whether a call comes by this file, itself or what is compiled of it."""
    name = filename.partition(".")[0]
    of_graph = not name.endswith(("_kernels", "_wrapper"))
    used = runs in ("kernels", "lines") or name == "captured" or (of_graph and runs == "forward")
    return "runs" if used else "unused"


_IF_NOT = 'under prepare_debug(dir, runs="{}"): breakpoints here are hit then, edits are always compiled.'
_WHAT_RUNS = {
    "captured": 'Calls run this file with backend="eager" and ' + _IF_NOT.format("captured"),
    "joint": "For reading: forward.py and backward.py are its parts, and what is compiled.",
    "forward": 'Calls run this file with backend="aot_eager" and ' + _IF_NOT.format("forward"),
    "backward": 'Calls run this file with backend="aot_eager" and ' + _IF_NOT.format("forward"),
}
"""What the top of a graph's file says about breakpoints in it."""


def _alone(trace: Callable[..., T], *args: Any) -> T:
    """``trace(*args)``, which runs a graph, and so what it does to grad mode, autocast and the process."""

    def traced() -> T:
        with torch_compat.modes_kept():
            return trace(*args)

    return compiling.alone(traced)


def _first_origin(gm: torch.fx.GraphModule) -> Origin:
    origins = (node.meta.get("origin", UNKNOWN) for node in gm.graph.nodes)
    return next((origin for origin in origins if origin != UNKNOWN), UNKNOWN)


def _building(sources: KernelSources, kernels: Sequence[Artifact]) -> Building | None:
    """The compilation of a C file that was not edited, if there is something to compile."""
    if "c" not in sources.plan.kernels:
        return None
    file = next(one for one in kernels if one.filename.endswith(".c"))
    return None if file.edited else Building(file)


_LOADED = ("cpu",)
"""Kinds of devices whose kernels are loaded; those of others are printed, and no call runs them yet."""


def _refuse_unloaded(fused: FusedGraph) -> None:
    for name in {name for kernel in fused.kernels for name in (*kernel.reads, *kernel.writes)}:
        device = fused.buffers[name].device
        if device.partition(":")[0] not in _LOADED:
            raise NotImplementedError(f"{name} is on {device}; C runs on the CPU")


def _calls_others(gm: torch.fx.GraphModule) -> bool:
    """Whether a graph calls operators that are not ATen's."""
    targets = [node.target for node in gm.graph.nodes if node.op == "call_function"]
    return any(isinstance(t, torch_compat.OpOverload) and t.namespace != "aten" for t in targets)


def _on_list(forward: GraphCall, laid_out: torch.fx.GraphModule | None = None, first: int | None = None) -> GraphCall:
    """A graph file's function on a list of tensors, brought to the strides of ``laid_out``'s inputs if it is given: of
    all, or of the ``first`` so many.
    """
    if laid_out is None:
        return lambda inputs: forward(*inputs)
    vals = [node.meta["val"] for node in laid_out.graph.find_nodes(op="placeholder")[:first]]
    layouts = [(value.shape, value.stride(), value.dtype) for value in vals]
    count = len(layouts)
    return lambda inputs: forward(*(conform(x, *how) for x, how in zip(inputs, layouts)), *inputs[count:])


def _without_numbers(gm: torch.fx.GraphModule) -> dict[int, tuple[Any, ...]]:
    """The inputs of a graph whose numbers are not in memory as they are, and what kernels take for them."""
    vals = [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]
    tensors = {place: val for place, val in enumerate(vals) if isinstance(val, torch.Tensor)}
    return {p: (v.shape, v.stride(), v.dtype) for p, v in tensors.items() if not torch_compat.has_its_numbers(v)}


class Foreign:
    """A foreign backend's callable. Entry code unpacks what graphs return, so the first call looks whether that is a
    tuple or list; from then on ``namespaces`` hold the callable itself: passing 400 parameters on costs a microsecond.
    """

    def __init__(self, call: GraphCall) -> None:
        self.call = call
        self.namespaces: list[dict[str, Any]] = []

    def __call__(self, *inputs: Any) -> Any:
        results = self.call(*inputs)
        if not isinstance(results, (list, tuple)):
            return (results,)
        for namespace in self.namespaces:
            namespace["graph_0"] = self.call
        return results
