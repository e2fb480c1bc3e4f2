"""Runs a captured graph once, forward and through torch's own autograd, and returns the trace.

Input: the captured ``GraphModule`` and its example inputs. Output: a ``Trace``. The tensors that flow through the graph
are three layers deep: autograd sees functional tensors, functionalization turns writes into values, and the recorder
sees pure ATen calls on fake tensors::

    F.linear, x.add_(1), ...   captured operations, on functional tensors that require gradients
      autograd                 decomposes, remembers how to differentiate
        functionalization      add_ -> add, writes to views -> scatters
          Recorder             writes the Op
            FakeTensorMode     shapes, strides, dtypes
"""

from __future__ import annotations

import bisect
import functools
import itertools
import operator
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx

from ..aten.layouts import as_kernels_take
from ..aten.sizes import hint_of
from ..operators import data_sizes, symbolic_shapes
from ..operators.array_calls import numpy_call
from ..operators.traced_arrays import NotTraced, TracedArrays
from ..process import interrupts
from ..records.origin import UNKNOWN, Origin
from ..records.partition import TangentLayout
from ..records.size_environment import SizeEnvironment
from ..records.symbolic_ints import SizesUnfit, environment_of, has_symbols, size_of
from ..records.tensor_spec import TensorSpec
from ..torch_compat import (
    FakeTensor,
    FakeTensorMode,
    autograd_sequence_number,
    called_on_symbols,
    current_autograd_node,
    fake_of,
    functional_storage_changed,
    functional_writes_all_hidden,
    functionalization,
    is_functional,
    new_fake_mode,
    shielded_saved_tensor_hooks,
    unwrap_functional,
    view_replay,
    warnings_heard,
    without_functionalization,
    wrap_functional,
)
from . import attention_masks, custom_writes, fold, higher_order, prefixes, pure_kernels
from .composites import COMPOSITES
from .layouts import keeping_layouts, out_of_place
from .ops import INPUT, TANGENT, Op
from .recorder import AutodiffError, Recorder

__all__ = ["AutodiffError", "Trace", "TracedInput", "trace", "trace_backward"]


@dataclass
class TracedInput:
    """One input: its op, the functional tensor the graph got, and the leaf to differentiate by (None: no gradient)."""

    name: str
    op: Op
    wrapper: torch.Tensor
    leaf: torch.Tensor | None
    history: Any = None  # the wrapper's grad_fn before the graph ran
    final: Op | None = None  # its value after the forward, where the graph wrote to it
    tracked: bool = False  # eager's write would have been seen by autograd
    bumps_version: bool = True

    def __post_init__(self) -> None:
        self.version = _version(self.wrapper)

    @property
    def moved_version(self) -> bool:
        """Whether the wrapper was written to other than through ``.data`` and the like."""
        return self.version is None or _version(self.wrapper) != self.version


@dataclass
class Trace:
    """All ops in execution order and what the graph's ends are. ``results`` are what the forward returns: set by
    aliases.
    """

    ops: list[Op]
    inputs: list[TracedInput]
    outputs: list[Any]  # functional tensors and plain values, as the graph returned them
    tangents: list[Op] = field(default_factory=list)
    gradients: list[Op | None] = field(default_factory=list)  # one for each input
    tracer: Tracer | None = None  # where backward was traced: it can trace it again
    bound: int = 0  # how many values the recorder knew when the forward ended

    def inputs_alone(self) -> Trace:
        """What it takes to trace backward again."""
        return Trace([], self.inputs, [], tracer=self.tracer, bound=self.bound)


class Tracer:
    """State of one trace: the modes, the recorder, and where in the captured graph we are."""

    def __init__(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> None:
        self.gm = gm
        self.traces_arrays = any(getattr(node.target, "traces_arrays", False) for node in gm.graph.nodes)
        self.mode = _fake_mode_of(example_inputs)
        self.recorder = Recorder(self.mode)
        self.sizes = environment_of([*example_inputs, *(n.meta.get("val") for n in gm.graph.nodes)])
        if self.sizes is not None:
            symbolic_shapes.leave_open(self.mode)
            self.sizes.general = True  # who refuses tensors without elements has asked for them in capture
            self.mode.sized_by_data = functools.partial(data_sizes.answer, self.sizes)
        self.examples = list(example_inputs)
        self.names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
        self.fakes = {n: self._fake(v) for n, v in zip(self.names, self.examples) if isinstance(v, torch.Tensor)}
        self.starts: list[int] = []  # autograd sequence number at the start of each captured node
        self.places: list[tuple[str, Origin, int | None]] = []
        self.constants: dict[int, torch.Tensor] = {}
        self.masks: dict[Op, torch.Tensor | None] = {}

    def _fake(self, value: torch.Tensor) -> torch.Tensor:
        """An input as the recorder sees it, without gradient. Called before any mode is active."""
        if isinstance(value, FakeTensor) and value.fake_mode is self.mode:
            return value.detach()
        return fake_of(self.mode, value.detach())

    # --- forward -----------------------------------------------------------------------------------------------------
    def forward(self, training: bool) -> Trace:
        """Run the captured graph on functional tensors."""
        if len(self.names) != len(self.examples):
            raise AutodiffError(f"the graph has {len(self.names)} inputs, {len(self.examples)} examples were given")
        inputs = [self._input(name, value, training) for name, value in zip(self.names, self.examples)]
        outputs = self._run([entry.wrapper for entry in inputs])
        for entry in inputs:
            self._note_writes(entry)
        return Trace(self.recorder.ops, inputs, outputs)

    def _input(self, name: str, value: Any, training: bool) -> TracedInput:
        if not isinstance(value, torch.Tensor):
            raise AutodiffError(f"input {name!r} is a {type(value).__name__}, not a tensor")
        fake = self.fakes[name]
        op = self.recorder.write(Op(INPUT, name, val=fake))
        op.captured = name
        self.recorder.bind(fake, op)
        wrapper = wrap_functional(fake)
        if not (training and value.requires_grad):
            return TracedInput(name, op, wrapper, None)
        leaf = wrapper.requires_grad_()
        # The graph may write to inputs; autograd forbids that on a leaf, so the graph gets a copy that costs nothing:
        # the recorder lets clones through unseen, and a clone's gradient is the identity.
        self.recorder.transparent = True
        wrapper = leaf.clone()
        self.recorder.transparent = False
        return TracedInput(name, op, wrapper, leaf, wrapper.grad_fn)

    def _run(self, wrappers: list[torch.Tensor]) -> list[Any]:
        """Interpret the captured graph, node by node; returns its flat outputs."""
        values: dict[torch.fx.Node, Any] = {}
        feed = iter(wrappers)

        def given(value: Any) -> Any:
            if isinstance(value, torch.fx.Node):
                return values[value]
            # what later calls made a number of is one: C++ takes a symbolic float of numbers alone for NaN
            return self.sizes.integer(size_of(value)) if isinstance(value, torch.SymInt) and self.sizes else value

        for node in self.gm.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(feed)
                continue
            if node.op == "output":
                flat = torch.fx.map_arg(node.args[0], values.__getitem__)
                return list(flat) if isinstance(flat, (tuple, list)) else [flat]
            self._enter(node)
            args, kwargs = torch.fx.node.map_aggregate((node.args, node.kwargs), given)
            try:
                turn = out_of_place(node.target)
                if turn is not None and _is_base(args[0], values):
                    with torch.enable_grad():
                        values[node] = _replaced(args[0], turn(*args, **kwargs), values)
                else:
                    values[node] = keeping_layouts(node, self._call, args, kwargs)
                if self.sizes is not None and not kwargs:
                    _note_content(self.sizes, node.target, args, values[node])
            except (SizesUnfit, Exception) as error:
                error.torchglass_origin = self.recorder.origin  # type: ignore[union-attr]
                raise
        raise AutodiffError("the captured graph has no output")

    def _enter(self, node: torch.fx.Node) -> None:
        interrupts.check()
        self.recorder.captured = node.name
        self.recorder.origin = origin_of(node)
        self.recorder.region = node.meta.get("checkpoint_region")
        if self.sizes is not None:
            self.sizes.again = list(node.meta.get("made_sizes", ()))
        self.starts.append(autograd_sequence_number())
        self.places.append((node.name, self.recorder.origin, self.recorder.region))

    def _call(self, node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        if node.op in ("call_function", "call_method"):
            function = node.target if node.op == "call_function" else getattr(type(args[0]), str(node.target))
            called = higher_order.rule_of(function)
            if called is not None:
                return called(self, *args, **kwargs)
            if function is attention_masks.attention:
                args, kwargs = attention_masks.without_mask(args, kwargs, self._known_mask)
            args = as_kernels_take(function, args, kwargs)
            written = COMPOSITES.get(function)
            result = called_on_symbols(self.mode, written, args, kwargs) if written is not None else None
            return called_on_symbols(self.mode, function, args, kwargs) if result is None else result
        value: Any = self.gm
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if node.op == "call_module":
            return value(*args, **kwargs)
        return self._constant(value) if isinstance(value, torch.Tensor) else value

    def _known_mask(self, mask: torch.Tensor) -> torch.Tensor | None:
        """The mask's value, where it follows from numbers alone."""
        if not is_functional(mask):
            return None
        op = self.recorder.op_of(unwrap_functional(mask))
        if op not in self.masks:
            with without_functionalization():
                self.masks[op] = self._computed_mask(op)
        return self.masks[op]

    def _computed_mask(self, op: Op) -> torch.Tensor | None:
        if self.sizes is not None and has_symbols(op.val):
            return prefixes.value_up_to(op, self.sizes, attention_masks.LARGEST)
        return fold.value_of(op, self.recorder.ops, attention_masks.LARGEST)

    def _constant(self, value: torch.Tensor) -> torch.Tensor:
        if id(value) not in self.constants:
            with without_functionalization():
                fake = fake_of(self.mode, value.detach())
            self.recorder.constant(value, fake)
            self.constants[id(value)] = wrap_functional(fake)
        return self.constants[id(value)]

    def _note_writes(self, entry: TracedInput) -> None:
        now, before = entry.wrapper, entry.op.val
        same = now.shape == before.shape and now.stride() == before.stride()
        if not same or functional_storage_changed(now):
            raise AutodiffError(f"input {entry.name!r} changes shape or storage in place")
        final = self.recorder.op_of(unwrap_functional(entry.wrapper))
        if final is entry.op and entry.wrapper.grad_fn is entry.history:
            return
        entry.final = final
        entry.tracked = entry.wrapper.grad_fn is not entry.history
        entry.bumps_version = entry.moved_version and not functional_writes_all_hidden(now)

    def leave_forward(self, bound: int) -> None:
        """Let go of what a backward traced later does not read."""
        self.recorder.forget_since(bound)
        self.recorder.ops, self.examples, self.fakes, self.masks = [], [], {}, {}
        self.gm = torch.fx.GraphModule({}, torch.fx.Graph())

    # --- backward ----------------------------------------------------------------------------------------------------
    def backward(self, trace: Trace, results: list[torch.Tensor], layout: TangentLayout | None = None) -> None:
        """Differentiate ``results`` by the inputs' leaves: adds the ops to the trace and sets its tangents and
        gradients. ``layout``: strides of each result's gradient, None for a result that has none; without it every
        result has one, as dense as the result.
        """
        self.recorder.locate, self.recorder.region = self._locate, None
        trace.tangents, trace.gradients = [], []
        strides = layout or [dense_strides(unwrap_functional(result)) for result in results]
        used = [(result, layout) for result, layout in zip(results, strides) if layout is not None]
        tangents = [self._tangent(result, layout, trace) for result, layout in used]
        leaves = [entry.leaf for entry in trace.inputs if entry.leaf is not None]
        ends = [result for result, _ in used]
        found = iter(torch.autograd.grad(ends, leaves, tangents, allow_unused=True, retain_graph=True))
        for entry in trace.inputs:
            gradient = next(found) if entry.leaf is not None else None
            trace.gradients.append(None if gradient is None else self.recorder.op_of(unwrap_functional(gradient)))

    def _tangent(self, result: torch.Tensor, strides: tuple[int, ...], trace: Trace) -> torch.Tensor:
        like = unwrap_functional(result)
        with without_functionalization():
            recorded = len(self.recorder.ops)
            meta = torch.empty_strided(like.shape, strides, dtype=like.dtype, device="meta")
            del self.recorder.ops[recorded:]  # the making is no part of the trace
            fake = FakeTensor(self.mode, meta, like.device)
        of = self.recorder.op_of(like)
        op = self.recorder.write(Op(TANGENT, f"tangent_{of.captured or len(trace.tangents)}", val=fake))
        op.captured, op.origin = of.captured, of.origin
        self.recorder.bind(fake, op)
        trace.tangents.append(op)
        return wrap_functional(fake)

    def _locate(self, node: Any) -> tuple[str, Origin, int | None]:
        """The captured node that made an autograd node, by its sequence number."""
        index = bisect.bisect_right(self.starts, node._sequence_nr()) - 1
        return self.places[index] if index >= 0 else ("", UNKNOWN, None)


def _note_content(sizes: SizeEnvironment, function: Any, args: Any, result: Any) -> None:
    """What ``data_sizes`` knows a mask or a number by, of the tensors that operators meet."""
    inner = lambda v: unwrap_functional(v) if isinstance(v, torch.Tensor) and is_functional(v) else v
    if isinstance(result, torch.Tensor):
        data_sizes.note_content(sizes, function, [inner(a) for a in args], inner(result))


def _is_base(tensor: torch.Tensor, values: dict[torch.fx.Node, Any]) -> bool:
    """Whether there are views of a tensor, which must not be turned in place then: after a write autograd makes their
    histories anew, by calls on the tensor that they were made of, which it would find turned.
    """
    return any(isinstance(value, torch.Tensor) and value._base is tensor for value in values.values())


def _replaced(before: torch.Tensor, now: torch.Tensor, values: dict[torch.fx.Node, Any]) -> torch.Tensor:
    """``now``, which stands from now on for every value that was ``before``."""
    values.update({node: now for node, value in values.items() if value is before})
    return now


def trace(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], training: bool, choose: Any) -> tuple[Trace, Any]:
    """Trace ``gm``. ``choose(trace, recorder)`` looks at the forward's outputs and returns what describes them, with
    attributes ``differentiable`` (the functional tensors to differentiate) and ``layout``. Returns the trace and that
    description.
    """
    pure_kernels.register()
    custom_writes.register(custom_writes.called_in(gm))
    tracer = Tracer(gm, example_inputs)
    with _tracing(tracer, training):
        traced = tracer.forward(training)
        described = choose(traced, tracer.recorder)
        if training and described.differentiable:
            traced.tracer = tracer
            traced.bound = tracer.recorder.mark()
            with _no_autocast():
                tracer.backward(traced, described.differentiable, described.layout)
            tracer.leave_forward(traced.bound)
    return traced, described


def trace_backward(trace: Trace, results: list[torch.Tensor], layout: TangentLayout) -> Trace:
    """Differentiate the forward of ``trace`` again, for gradients that arrive as ``layout`` says: a trace of the same
    inputs whose ops are the new ones alone.
    """
    assert trace.tracer is not None
    again = replace(trace, ops=[])
    recorder = trace.tracer.recorder
    recorder.ops, recorder.around = again.ops, current_autograd_node()
    try:
        with _tracing(trace.tracer, True), _no_autocast():
            trace.tracer.backward(again, results, layout)
    finally:
        recorder.around = None  # it saves tensors of the call, and holds what holds the recorder
        recorder.forget_since(trace.bound)
    return again


@contextmanager
def _tracing(tracer: Tracer, training: bool) -> Iterator[None]:
    """The layers of modes, outermost first."""
    with ExitStack() as stack:
        stack.callback(torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled())
        torch.set_autocast_cache_enabled(False)  # it would keep our tensors alive; equal casts are merged later
        stack.enter_context(torch.set_grad_enabled(training))
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        stack.enter_context(shielded_saved_tensor_hooks())
        stack.enter_context(warnings_heard(lambda *heard: None))  # capture has shown them
        stack.enter_context(view_replay())
        stack.enter_context(tracer.mode)
        stack.enter_context(tracer.recorder)
        stack.enter_context(functionalization())
        if tracer.sizes is not None:
            tracer.sizes.origin = lambda: tracer.recorder.origin
            stack.callback(tracer.sizes.release)
        if tracer.traces_arrays:
            stack.enter_context(TracedArrays(functools.partial(_numpy_call, tracer)))
        try:
            yield
        except NotTraced as error:
            raise AutodiffError(f"{error} cannot be traced") from None


def _numpy_call(tracer: Tracer, expression: str, tensors: tuple[torch.Tensor, ...], spec: TensorSpec) -> torch.Tensor:
    (result,) = higher_order.emit(tracer, numpy_call, (expression, tensors, spec.strides), [spec])
    return result


@contextmanager
def _no_autocast() -> Iterator[None]:
    """Eager differentiates outside the user's autocast."""
    with ExitStack() as stack:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def origin_of(node: torch.fx.Node) -> Origin:
    """The user's line of a captured node: ``meta["origin"]``, or the innermost frame of a recorded stack trace."""
    origin = node.meta.get("origin")
    if origin is not None:
        return origin
    frames = re.findall(r'File "(.+?)", line (\d+), in (.+)', node.meta.get("stack_trace") or "")
    return Origin(frames[-1][0], int(frames[-1][1]), frames[-1][2]) if frames else UNKNOWN


def _fake_mode_of(values: Sequence[Any]) -> FakeTensorMode:
    return next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None) or new_fake_mode()


def _version(value: torch.Tensor) -> int | None:
    return None if value.is_inference() else value._version


def dense_strides(value: torch.Tensor) -> tuple[int, ...]:
    """Strides that a gradient of ``value`` most likely has: its own if they are dense, else contiguous ones."""
    expected: Any = 1
    for stride, size in sorted(zip(value.stride(), value.shape), key=lambda pair: tuple(map(hint_of, pair))):
        if size_of(size) == 1:
            continue
        if size_of(stride) != size_of(expected):
            sizes = [size if isinstance(size, torch.SymInt) else max(size, 1) for size in value.shape[1:]]
            return tuple(itertools.accumulate([1, *reversed(sizes)], operator.mul))[::-1] if value.shape else ()
        expected = expected * size
    return value.stride()
