"""The graph under construction: symbolic operations in, torch.fx nodes out.

Every operation runs once on fake tensors; its result's metadata is what the rest of the capture sees.
"""

from __future__ import annotations

import enum
import functools
import linecache
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.fx

from ... import torch_compat
from ...aten.layouts import as_kernels_take
from ...aten.nested import tensors_in
from ...operators import data_sizes, symbolic_shapes
from ...operators.size_tensor import read_size
from ...operators.symbolic_views import settle_view
from ...operators.traced_arrays import NotTraced, TracedArrays
from ...records.origin import Origin
from ...records.size_environment import DecidedByData, SizeEnvironment
from ...records.size_places import size_places, symbols_of
from ...records.sizes import symbol_name
from ...records.sources import Source
from ...records.symbolic_ints import size_of
from ...records.tensor_spec import TensorSpec
from ..errors import NeedsData, Unsupported
from ..protocol import Machine, Value
from ..values.arrays import is_array
from ..values.constant import NUMPY_FLOATS, ConstantV
from ..values.containers import ListV, TupleV
from ..values.entry_tensor import EntrySizeV, EntryTensorV, ListCall, ListTensorV, NumberTensorV
from ..values.number import NumberV
from ..values.sizes import refuse_by_data
from ..values.tensor import TensorV
from .arguments import convert, empty_like, fake_of, has_list, is_empty, tried, zeros_like
from .autograd_history import FREES_HISTORY, history_of, is_freed, leaves_of, no_derivative
from .before import Before
from .memory_overlap import Windows, crosses_itself, leaves_memory, memory, overlaps, storage
from .open_layouts import OpenLayouts, may_copy
from .symbolic_layouts import SymbolicLayout

Made = TypeVar("Made", bound=EntryTensorV)

# Constants that torch.fx writes as they are.
PRINTED = frozenset(
    [int, float, complex, bool, str, bytes, type(None), type(Ellipsis), range, torch.dtype, torch.device]
    + [torch.layout, torch.memory_format]
)
GENERAL = frozenset(
    ("reshape", "reshape_as", "view", "view_as", "flatten", "unflatten", "ravel", "getitem", "__getitem__", "setitem")
    + ("__setitem__", "index_select", "index_put", "index_put_", "embedding")
)
"""They ask whether a size is 0 or 1, and what they do for all others is right for these."""
RECURRENT = frozenset((torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu))
SPARSE = frozenset((torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc))
MOST_TRIED = 1 << 16  # elements
NUMBER_DTYPES = {int: torch.int64, **dict.fromkeys((float, *NUMPY_FLOATS), torch.float64)}


class GraphBuilder:
    """Nodes, placeholders and fakes of one capture."""

    parent: GraphBuilder | None = None  # of a graph inside a graph
    traces_arrays = False  # whether tensors give NumPy arrays that are traced

    def __init__(self, fake_mode: Any = None) -> None:
        self.graph = torch.fx.Graph()
        self.fake_mode = fake_mode or torch_compat.new_fake_mode()
        self.inputs: list[TensorV] = []
        self.by_fake: dict[int, TensorV] = {}
        self.sizes = SizeEnvironment()  # where operators meet symbolic ones
        self.root = torch.nn.Module()
        self.changed_data = False
        self.written: set[int] = set()  # storages
        self.windows: dict[int, list[Windows]] = {}  # of storages
        self.writes = 0  # operations that write
        self.changed: list[torch.Tensor] = []
        self.open_layouts = OpenLayouts()
        self.region: int | None = None  # of the torch.utils.checkpoint call that nodes now belong to
        self.regions = 0
        self.held: dict[str, Any] = {}
        self.without_derivative: dict[Any, str] = {}  # nodes of autograd's graph that raise, what they are of
        self.inner_leaves: list[torch.Tensor] = []  # made to require grad inside: eager would keep them as leaves
        self.flagged: list[TensorV] = []  # inputs that the entry makes require grad before the graph runs
        self.numbers: list[EntryTensorV] = []
        self.made_sizes: tuple[torch.SymInt, ...] = ()  # by data, in the operation that is recorded next
        self.computed: set[torch.fx.Node] = set()  # constants that are results of operations on constants
        self._placeholder_anchor: torch.fx.Node | None = None

    def number(self, number: NumberV, dtype: torch.dtype | None = None) -> NumberTensorV:
        """The graph input for a number that changes from call to call; these come after all tensors. Raises Unsupported
        for one that is known when the graph has run.
        """
        refuse_by_data([number])
        dtype = dtype or NUMBER_DTYPES[type(number.known)]
        for known in self.numbers:
            if not isinstance(known, NumberTensorV) or known.fake.dtype is not dtype:
                continue
            if known.number is number or (number.source is not None and known.number.source == number.source):
                return known
        with self.fake_mode:
            fake = torch.empty((), dtype=dtype, device="cpu")  # whatever the default device is
        name = readable_name(number.source) if number.source is not None else "number"
        return self._made_by_entry(NumberTensorV(self._after_tensors(name), fake, number))

    def listed(self, call: ListCall) -> ListTensorV:
        """The graph input for a tensor made of lists of numbers that change. Raises Unsupported as ``number`` does."""
        refuse_by_data(call.leaves)
        fake = torch_compat.fake_of(self.fake_mode, call.result)
        return self._made_by_entry(ListTensorV(self._after_tensors("data"), fake, call))

    def tell_sizes(self, sizes: SizeEnvironment, inputs: list[TensorV]) -> None:
        """Add graph inputs for the sizes in the graph that its inputs do not tell, and say what numbers that it reads
        are to be.
        """
        for node in self.graph.nodes:
            if node.target is read_size:
                ends = sizes.checked.get(node.meta["reads"], ([], []))  # none of what equals another size by now
                node.args = (node.args[0], *([sizes.integer(one) for one in dict.fromkeys(end)] for end in ends))
        wanted = symbols_of((node.args, node.kwargs) for node in self.graph.nodes)
        wanted |= symbols_of(node.meta.get("val") for node in self.graph.nodes)
        wanted -= sizes.by_data.keys()
        like = torch.empty((), dtype=torch.uint8, device="cpu")
        for name in sorted(wanted - size_places([value.fake for value in inputs], wanted).keys()):
            size = sizes.named(name)
            fake = torch_compat.fake_like(self.fake_mode, like, (size,), (0,))
            self._made_by_entry(EntrySizeV(self._after_tensors(f"size_{name}"), fake, size))

    def _made_by_entry(self, value: Made) -> Made:
        value.node.meta["example_value"] = value.node.meta["val"] = value.fake
        self.numbers.append(value)
        self.by_fake[id(value.fake)] = value
        return value

    def _after_tensors(self, name: str) -> torch.fx.Node:
        return self._placed(name, self.numbers[-1].node if self.numbers else self._placeholder_anchor)

    def _placed(self, name: str, last: torch.fx.Node | None) -> torch.fx.Node:
        """A placeholder behind another one, or the first node: its parameter has the node's own, unique name."""
        graph = self.graph
        with graph.inserting_before(next(iter(graph.nodes), None)) if last is None else graph.inserting_after(last):
            node = graph.placeholder(name)
        node.target = node.name
        return node

    def placeholder(self, real: torch.Tensor, source: Source, layout: SymbolicLayout | None = None) -> TensorV:
        """A graph input for a real tensor, of a layout that changes if one is given."""
        if layout is None:
            fake = torch_compat.fake_of(self.fake_mode, real)
        else:
            fake = torch_compat.fake_of(self.fake_mode, real, layout.sizes, layout.strides)
        node = self._placeholder_anchor = self._placed(readable_name(source), self._placeholder_anchor)
        node.meta["example_value"] = node.meta["val"] = fake
        node.meta["source"] = source
        value = TensorV(node, fake, real, source)
        self.inputs.append(value)
        self.by_fake[id(fake)] = value
        return value

    def leave_sizes_open(self, sizes: SizeEnvironment) -> None:
        """From here on operators meet symbolic sizes."""
        symbolic_shapes.leave_open(self.fake_mode)
        sizes.contents |= self.sizes.contents
        self.sizes = sizes
        sizes.free = lambda name: torch_compat.reserved_name(self.graph, name)

    def constant(self, real: torch.Tensor) -> TensorV:
        """A tensor that no source reaches: an attribute of the graph module."""
        if real.requires_grad:
            raise Unsupported("a tensor that requires grad and is reached through no argument, global or closure")
        name = f"constant_{len(list(self.root.named_buffers()))}"
        self.root.register_buffer(name, real)
        fake = torch_compat.fake_of(self.fake_mode, real)
        node = self.graph.get_attr(name)
        node.meta["example_value"] = node.meta["val"] = fake
        value = TensorV(node, fake, real, None)
        self.by_fake[id(fake)] = value
        return value

    def require_grad(self, value: TensorV) -> bool:
        """Make an unused input require grad, as the entry will before the graph; False where it cannot."""
        if value.node.graph is not self.graph or self.parent is not None or self.region is not None:
            return False
        try:
            value.fake.requires_grad_()
        except RuntimeError:  # integers
            return False
        self.flagged.append(value)
        return True

    def refuse_inner_leaves(self, outputs: list[TensorV]) -> None:
        """What leaves the graph must not be a leaf made inside, nor owe its gradient to such leaves alone: later stages
        differentiate by the graph's inputs only. Raises Unsupported.
        """
        inner = {id(leaf) for leaf in self.inner_leaves}
        written = [v for v in self.inputs if inner and self.wrote_to(v.fake)]
        for output in (*outputs, *written) if inner else ():
            leaves = {id(leaf) for leaf in leaves_of(output.fake)}
            if id(output.fake) in inner or (leaves & inner and not leaves - inner):
                raise Unsupported("a tensor made to require grad in the graph that leaves it", "make it before")

    def _leaving(self, outputs: list[TensorV]) -> list[torch.Tensor]:
        """What leaves the graph: its outputs, and the inputs that it writes to."""
        return [v.fake for v in outputs] + [v.fake for v in self.inputs if self.wrote_to(v.fake)]

    def refuse_freed_histories(self, outputs: list[TensorV]) -> None:
        """What leaves the graph must not have a history that ``torch.autograd.grad`` freed: later stages could not
        differentiate it, while eager's raises when it is asked. Raises Unsupported.
        """
        if not any(node.target is torch.autograd.grad for node in self.graph.nodes):
            return
        if any(map(is_freed, history_of(self._leaving(outputs)))):
            raise Unsupported(*FREES_HISTORY)

    def refuse_missing_derivatives(self, outputs: list[TensorV]) -> None:
        """What leaves the graph must not depend on an operator that autograd has no derivative of: later stages could
        not differentiate it, while eager's raises when it is asked. Raises Unsupported.
        """
        if self.without_derivative:
            for node in history_of(self._leaving(outputs)):
                if node in self.without_derivative:
                    raise Unsupported(*no_derivative(self.without_derivative[node]))

    def refuse_open_layouts(self, outputs: list[TensorV]) -> None:
        """Two tensors that leave the graph must not perhaps be one. Raises LayoutsMatter."""
        self.open_layouts.leaving({storage(value.fake) for value in (*self.inputs, *outputs)})

    def _called(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        with self.fake_mode:
            taken = as_kernels_take(function, args, kwargs)
            return torch_compat.called_on_symbols(self.fake_mode, function, taken, kwargs)

    def refuse_perhaps_one(self, one: TensorV, other: TensorV) -> None:
        """The program asks whether two tensors are one object. Raises LayoutsMatter where they perhaps are."""
        self.open_layouts.leaving({storage(one.fake), storage(other.fake)})

    def evaluate(self, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Any:
        """The result of an operation on fake tensors. PyTorch's own errors come through as they are."""
        fake_args = [fake_of(a) for a in args]
        fake_kwargs = {k: fake_of(v) for k, v in kwargs.items()}
        tensors = list(tensors_in((*fake_args, fake_kwargs)))
        _refuse_outright(function, fake_kwargs, tensors)
        written: list[torch.Tensor] = []
        self.fake_mode.writes = written
        self.sizes.operator = getattr(function, "__name__", str(function))
        try:
            before = Before(tensors, self._is_given)
            if self._is_tried(fake_args, fake_kwargs, tensors):
                function(*[tried(a, empty_like) for a in args], **{k: tried(v, empty_like) for k, v in kwargs.items()})
            result = self._result(function, fake_args, fake_kwargs)
            if function is operator.getitem and has_list(fake_args[1]) and result.numel() <= MOST_TRIED:
                function(*[tried(a, zeros_like) for a in args])  # nor do they see whether these places are there
            self.changed = before.changed(written)
            # an operation that returns its argument changed something about it: data, or a flag
            self.changed_data = bool(self.changed) or any(t is result for t in tensors)
            self.writes += self.changed_data
            before.refuse_lost(self.changed)
            if self.changed:
                self._note_writes(function, fake_args, tensors)
            shown = Windows.of(function, fake_args, fake_kwargs)
            if shown is not None:
                self.windows.setdefault(storage(result), []).append(shown)
            if isinstance(result, torch.Tensor) and not fake_kwargs:
                data_sizes.note_content(self.sizes, function, fake_args, result)
            return result
        except Exception as error:
            if not isinstance(error, DecidedByData) and not torch_compat.needs_data(error):
                raise
            raise _asks_for_data(self.sizes.operator, error) from None
        finally:
            self.fake_mode.writes = None
            self.sizes.operator = ""

    def _result(self, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        name = self.sizes.operator
        room = memory(args[0]) if name.startswith("as_strided") else None
        self.sizes.general = name in GENERAL
        result = self._called(function, args, kwargs)
        if may_copy(name, args, result) and settle_view(self.sizes, args[0], result.shape):
            result = self._called(function, args, kwargs)
        if isinstance(result, torch.Tensor) and result.layout in SPARSE:
            raise Unsupported("an operation that makes a sparse tensor", "work with it outside what is compiled")
        if room is not None and leaves_memory(result, room):
            raise Unsupported("`as_strided` beyond the memory of a tensor's elements", "take it of what is larger")
        if self.sizes.layouts_open:
            self.open_layouts.watch(name, args, result)
        return result

    def _note_writes(self, function: Callable[..., Any], args: list[Any], tensors: list[torch.Tensor]) -> None:
        """Raises Unsupported where a write does not reach all that shows the memory."""
        changed = set(map(storage, self.changed))
        self.written |= changed
        self.open_layouts.written(changed)
        if overlaps(function, args, tensors, self.changed):
            raise Unsupported("writing to a tensor whose elements share memory")  # most kernels refuse
        # a graph gives back what an input is after all writes to parts of it, in one write to all of it
        if any(storage(v.fake) in changed and crosses_itself(v.fake) for v in self.inputs):
            raise Unsupported("writing to a part of an input whose elements share memory", "clone it before")
        if any(shown.leave_gaps() for one in changed for shown in self.windows.get(one, ())):
            raise Unsupported("writing to memory that `unfold` shows in part", "write to slices of it")

    def _is_tried(self, args: list[Any], kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> bool:
        """Whether an operation is called on real tensors, too: fake kernels let pass what real ones refuse (the maximum
        of nothing), and where there are no elements both are at hand.
        """
        known = bool(tensors) and all(map(is_empty, tensors))
        return known and self.sizes.by_data.keys().isdisjoint(symbols_of((args, kwargs)))

    def sized_by_data(
        self, sizes: SizeEnvironment, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]
    ) -> Any:
        """``evaluate`` an operation of whose result data decide the size, which the graph then reads off it. None where
        it must not be in a graph: a checkpointed function runs twice, and a graph inside a graph is run by others.
        """
        if not sizes.data_allowed or self.parent is not None or self.region is not None:
            return None
        before, sizes.made_by_data = self.fake_mode.symbolic, []
        self.leave_sizes_open(sizes)
        self.fake_mode.sized_by_data = functools.partial(data_sizes.answer, sizes)
        try:
            result = self.evaluate(function, args, kwargs)
        finally:
            self.fake_mode.sized_by_data = None
            if not sizes.made_by_data:
                self.fake_mode.symbolic = before
        made = symbols_of(sizes.made_by_data) & symbols_of([result])
        if made - size_places(tensors_in(result), made).keys():
            return None  # a size that follows from one that nobody sees
        self.made_sizes = tuple(sizes.made_by_data)
        return result

    def telling(self, name: str) -> tuple[TensorV, int]:
        """A tensor of the graph's that has a symbol as a size, and in which dimension."""
        values = [value for value in self.by_fake.values() if value.node.graph is self.graph]
        place, dim = size_places([value.fake for value in values], {name})[name]
        return values[place], dim

    def _is_given(self, fake: torch.Tensor) -> bool:
        """Whether the graph gets a tensor, that of the program or one that stands for it."""
        known = self.by_fake.get(id(fake))
        return known is not None and (known.real is not None or known.node.op == "placeholder")

    def writes_inputs(self) -> bool:
        """Whether an operation writes to memory that was there before the call."""
        return any(storage(v.fake) in self.written for v in self.by_fake.values() if v.real is not None)

    def wrote_to(self, fake: torch.Tensor) -> bool:
        """Whether an operation has written to the memory of a tensor."""
        return storage(fake) in self.written

    def record(
        self, op: str, target: Any, args: list[Value], kwargs: dict[str, Value], result: Any, origin: Origin, stack: str
    ) -> Value:
        """Add a node whose fake result is ``result`` and wrap it."""
        arguments = tuple(self._argument(a) for a in args), {k: self._argument(v) for k, v in kwargs.items()}
        return self.record_node(op, target, *arguments, result, origin, stack)

    def record_node(
        self, op: str, target: Any, args: Any, kwargs: dict[str, Any], result: Any, origin: Origin, stack: str
    ) -> Value:
        """``record`` of arguments that are a node's already."""
        self._refuse_double_writes()
        node = torch_compat.create_node(self.graph, op, target, args, kwargs)
        self._mark(node, origin)
        node.meta["effect"] = result is None or self.changed_data or bool(self.made_sizes)
        if self.made_sizes:
            if node.target is read_size:
                node.meta["reads"] = symbol_name(size_of(self.made_sizes[0]))
            node.meta["made_sizes"], self.made_sizes = self.made_sizes, ()
        node.stack_trace = stack
        return self._wrap(node, result, origin)

    def mark_mode(self, target: Callable[..., Any], args: tuple[Any, ...], origin: Origin) -> torch.fx.Node:
        """A node that changes how the ones after it run."""
        node = self.graph.call_function(target, args)
        self._mark(node, origin)
        node.meta |= {"effect": True, "val": None, "example_value": None}
        return node

    def _argument(self, value: Value) -> Any:
        """A value as an argument of a node; an object that no text says is an attribute of the graph module."""
        return convert(value, self.argument_tensor, self._held)

    def argument_tensor(self, value: TensorV) -> torch.fx.Node:
        """The node of a tensor; one of another graph has left the function that it was made in."""
        if value.node.graph is not self.graph:
            raise Unsupported("a tensor that left the function under torch.func that made it")
        return value.node

    def _held(self, real: Any) -> Any:
        if type(real) in PRINTED or isinstance(real, (enum.Enum, slice, torch_compat.OpOverload)):
            return real
        if is_array(real):
            real = real.copy()  # the program may write to its own later
        for name, held in self.held.items():
            if held is real:
                return self.graph.get_attr(name)
        name = f"{re.sub(r'[^a-z0-9]', '_', type(real).__name__.lower())}_{len(self.held)}"
        self.held[name] = real
        setattr(self.root, name, real)
        return self.graph.get_attr(name)

    def _mark(self, node: torch.fx.Node, origin: Origin) -> None:
        node.meta["origin"] = origin
        if self.region is not None:
            node.meta["checkpoint_region"] = self.region

    def _refuse_double_writes(self) -> None:
        """Eager runs a checkpointed function twice: what it writes to must be its own."""
        if self.region is None:
            return
        for tensor in self.changed:
            for written in (tensor, tensor._base):
                known = self.by_fake.get(id(written))
                if known is not None and known.node.meta.get("checkpoint_region") != self.region:
                    raise Unsupported("a checkpointed function, which writes to a tensor made before it")

    def _wrap(self, node: torch.fx.Node, result: Any, origin: Origin) -> Value:
        node.meta["example_value"] = node.meta["val"] = result
        if isinstance(result, torch.Tensor):
            known = self.by_fake.get(id(result))
            if known is not None and known.fake is result:
                return known
            value = TensorV(node, result)
            self.by_fake[id(result)] = value
            return value
        if isinstance(result, (tuple, list)):
            items: list[Value] = []
            for n, item in enumerate(result):
                if isinstance(item, (torch.Tensor, tuple, list)):
                    part = self.graph.call_function(operator.getitem, (node, n))
                    self._mark(part, origin)
                    part.meta["effect"] = "made_sizes" in node.meta
                    part.stack_trace = node.stack_trace
                    items.append(self._wrap(part, item, origin))
                else:
                    items.append(ConstantV(item))
            return ListV(items) if isinstance(result, list) else TupleV(items, type(result))
        return ConstantV(result)


@contextmanager
def tracing_arrays(mode: TracedArrays) -> Iterator[None]:
    """Tensors give arrays that are traced; what else is done with these cannot be in the graph."""
    try:
        with mode:
            yield
    except NotTraced as error:
        raise Unsupported(str(error), "move it out of the compiled function") from None


@contextmanager
def building(m: Machine, builder: GraphBuilder) -> Iterator[None]:
    """What is captured in this block goes into another graph."""
    outer = m.state(GraphBuilder)
    m.states[GraphBuilder] = builder
    try:
        yield
    finally:
        m.states[GraphBuilder] = outer


def stack_trace(m: Machine) -> str:
    """The frames in the form of a traceback, which ``print_readable`` shows."""
    lines = []
    for frame in m.frames:
        at = frame.origin()
        text = linecache.getline(at.file, at.line).strip()
        lines.append(f'  File "{at.file}", line {at.line}, in {at.function}\n    {text}\n')
    return "".join(lines)


class RehearsalBuilder(GraphBuilder):
    """A builder whose graph is thrown away: for code that is interpreted only to know what it relies on.

    ``what`` names that code in messages. It may use the tensors it is given, as ``stand_in``s, and no others.
    """

    def __init__(self, fake_mode: Any, what: str) -> None:
        super().__init__(fake_mode)
        self.what = what
        self.arrays = TracedArrays(self._numpy_call)

    traces_arrays = True

    def evaluate(self, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Any:
        with tracing_arrays(self.arrays):
            return super().evaluate(function, args, kwargs)

    def _numpy_call(self, expression: str, tensors: tuple[torch.Tensor, ...], spec: TensorSpec) -> torch.Tensor:
        with self.fake_mode:
            return torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype, device=spec.device)

    def stand_in(self, fake: torch.Tensor) -> TensorV:
        """A tensor of the rehearsal with the metadata of ``fake``; what happens to it does not happen to ``fake``."""
        copy = fake.detach().requires_grad_(fake.requires_grad)
        value = TensorV(self.graph.placeholder("argument"), copy)
        self.by_fake[id(copy)] = value
        return value

    def placeholder(self, real: torch.Tensor, source: Source, layout: SymbolicLayout | None = None) -> TensorV:
        raise Unsupported(f"{self.what}, which reads `{source.render()}`, a tensor that is no argument", "pass it in")

    def constant(self, real: torch.Tensor) -> TensorV:
        raise Unsupported(f"{self.what}, which reads a tensor that is no argument", "pass it in")

    def argument_tensor(self, value: TensorV) -> torch.fx.Node:
        if value.node.graph is not self.graph:
            raise Unsupported(f"{self.what}, which reads a tensor that is no argument", "pass it in")
        return value.node


def readable_name(source: Source) -> str:
    """A Python identifier for a placeholder: ``self.layer[0].weight`` gives ``self_layer_0_weight``."""
    text = source.render()
    text = re.sub(r"\.__dict__|\b_parameters\b|\b_buffers\b|\b_modules\b", "", text)
    text = re.sub(r"\bG\b|\bC\b|cell_contents|\bvars\b|\bsys\.modules\b", "", text)
    text = re.sub(r"\W+", "_", text).strip("_")
    return text if text and not text[0].isdigit() else f"input_{text}"


def _refuse_outright(function: Callable[..., Any], kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> None:
    if kwargs.get("pin_memory") is True:  # which a value of a graph is not
        raise Unsupported("an operation that makes pinned memory", "make it outside what is compiled")
    if function in RECURRENT and any(t.device.type == "cuda" for t in tensors):
        raise Unsupported("a recurrent layer of cuDNN, which looks for its weights in memory")


def _asks_for_data(name: str, error: Exception) -> NeedsData:
    if isinstance(error, DecidedByData):
        asked = f"asks {error}, which data decide"
    else:
        asked = f"needs the data of a tensor ({type(error).__name__})"
    return NeedsData(f"`{name}` {asked}", "move it out of the compiled function, or compile the parts around it")
