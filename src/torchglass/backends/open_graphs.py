"""A graph of torch.compile's with sizes left open: the graph and a call's inputs in, what runs for other sizes out.

    s77, x                       PyTorch's number and a tensor of [s77, 4]
    size_s0 = x.shape[0]         a symbol of ours; s77 is the same, which a guard says
    mul(x, s77)  ->  mul(x, s0)

PyTorch's guards know what its capture asked of sizes, but not what our stages ask: those are guards here, in a native
table as an entry has them (``runtime/guard_build.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import fx

from .. import torch_compat
from ..capture.graph.symbolic_layouts import layout_with
from ..graph_pipeline import compiling_graph
from ..operators import symbolic_shapes
from ..operators.size_tensor import size_tensor
from ..options import CompileOptions
from ..records.declared_sizes import DeclaredSize
from ..records.guards import Guard, TensorMeta
from ..records.origin import UNKNOWN
from ..records.size_environment import SizeEnvironment
from ..records.size_places import in_numbers, size_places, symbols_of
from ..records.size_sources import size_guards
from ..records.sizes import hint, symbol_name
from ..records.sources import Item, Local, Source, tensor_size
from ..records.symbolic_ints import size_of
from ..runtime import guards as guard_runtime
from ..runtime.store import Folder

Formed: TypeAlias = "tuple[fx.GraphModule, list[torch.Tensor], list[int]]"
Form: TypeAlias = "Callable[[fx.GraphModule, Sequence[Any], Mapping[int, Any]], Formed]"


def _inputs_of(*inputs: Any) -> None:
    """The signature for which guards are made."""


def _place(position: int) -> Source:
    return Item(Local("inputs"), position)


class OpenGraph:
    """One compile of a graph. ``examples`` are the inputs as PyTorch's capture saw them; ``form`` puts numbers into the
    graph. Raises SizesUnfit, and whatever a stage raises.
    """

    def __init__(
        self,
        gm: fx.GraphModule,
        inputs: Sequence[Any],
        examples: Sequence[Any],
        form: Form,
        options: CompileOptions,
        folder: Folder,
    ) -> None:
        self.environment = SizeEnvironment()
        self.environment.free = lambda name: torch_compat.reserved_name(gm.graph, name)
        self.environment.declared = _equal_sizes(examples)
        self.mode = torch_compat.new_fake_mode()
        symbolic_shapes.leave_open(self.mode)
        self.guards = [Guard(None, "global_state", guard_runtime.global_state())]
        self.fakes: dict[int, torch.Tensor] = {}
        self.numbers: dict[int, Any] = {}
        for position, (value, example) in enumerate(zip(inputs, examples, strict=True)):
            self._enter(position, value, example)
        graph, self.lifted, kept = form(gm, inputs, self.numbers)
        self.results = _without_numbers(graph)
        self.told = self._tell_sizes(graph, [self.fakes[position] for position in kept])
        self.call = self._compiled(graph, inputs, kept, options, folder)
        fetch = [*map(_place, kept), *(self.environment.sources[name] for name in self.told)]
        guards = [*self.guards, *size_guards(self.environment)]
        self.table = guard_runtime.build_table(guards, fetch, _inputs_of)

    def __call__(self, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """What the graph gives; None for inputs that this compile is not for."""
        fetched = self.table.check((inputs,))
        if fetched is None:
            return None
        count = len(fetched) - len(self.told)
        made = self.call(*fetched[:count], *self.lifted, *map(size_tensor, fetched[count:]))
        if self.results is None:
            return made
        numbers = {position: size for position, size in self.numbers.items() if isinstance(size, torch.SymInt)}
        at = {str(symbol_name(size_of(size))): inputs[position] for position, size in numbers.items()}
        tensors = iter(made)
        return tuple(next(tensors) if result is _TENSOR else in_numbers(result, at) for result in self.results)

    def _enter(self, position: int, value: Any, example: Any) -> None:
        """An input as a fake tensor, or a number to be put into the graph; and the guard for it."""
        place = _place(position)
        if not isinstance(value, torch.Tensor):
            is_open = isinstance(example, torch.SymInt) and type(value) is int and value >= 1
            self.numbers[position] = self.environment.symbol(place, value) if is_open else value
            self.guards.append(Guard(place, "type", int) if is_open else Guard(place, "constant", value))
            return
        dims = frozenset(dim for dim, size in enumerate(example.shape) if isinstance(size, torch.SymInt))
        layout = layout_with(self.environment, value, place, dims)
        exact = TensorMeta.of(value)
        self.guards.append(Guard(place, "tensor", exact if layout is None else layout.meta(exact)))
        sizes = (None, None) if layout is None else (layout.sizes, layout.strides)
        self.fakes[position] = torch_compat.fake_of(self.mode, value, *sizes)

    def _tell_sizes(self, graph: fx.GraphModule, fakes: list[torch.Tensor]) -> list[str]:
        """Add inputs for the symbols that no tensor has as a size, as tensors without memory."""
        wanted = symbols_of((node.args, node.kwargs) for node in graph.graph.nodes)
        told = sorted(wanted - size_places(fakes, wanted).keys())
        last = next(node for node in graph.graph.nodes if node.op != "placeholder")
        with graph.graph.inserting_before(last):
            for name in told:
                graph.graph.placeholder(f"size_{name}").meta["origin"] = UNKNOWN
        graph.recompile()
        return told

    def _compiled(
        self, graph: fx.GraphModule, inputs: Sequence[Any], kept: list[int], options: CompileOptions, folder: Folder
    ) -> Callable[..., Any]:
        sizes = [self.environment.named(name) for name in self.told]
        like = torch.empty((), dtype=torch.uint8, device="cpu")
        fakes = [self.fakes[position] for position in kept]
        fakes += [torch_compat.fake_of(self.mode, tensor) for tensor in self.lifted]
        fakes += [torch_compat.fake_like(self.mode, like, (size,), (0,)) for size in sizes]
        examples = [
            *(inputs[position] for position in kept),
            *self.lifted,
            *(size_tensor(hint(size_of(size))) for size in sizes),
        ]
        for node, fake in zip(graph.graph.nodes, fakes):
            node.meta["val"] = node.meta["example_value"] = fake
        with compiling_graph(graph, examples, options, folder, fakes) as compiling:
            return compiling.finish().call


_TENSOR = object()


def _without_numbers(graph: fx.GraphModule) -> list[Any] | None:
    """Take the numbers out of a graph's outputs: each output in order, ``_TENSOR`` for one that stays; None for a graph
    that gives tensors alone.
    """
    (output,) = graph.graph.find_nodes(op="output")
    found = output.args[0]
    results = [_TENSOR if isinstance(one, fx.Node) else one for one in found]
    if all(one is _TENSOR for one in results):
        return None
    output.args = (tuple(one for one in found if isinstance(one, fx.Node)),)
    return results


def _equal_sizes(examples: Sequence[Any]) -> dict[Source, DeclaredSize]:
    """Which sizes and numbers are one symbol of PyTorch's: each is like the first, a tensor's size if there is one."""
    places: dict[str, list[Source]] = {}
    for position, example in enumerate(examples):
        if isinstance(example, torch.SymInt):
            places.setdefault(str(example), []).append(_place(position))
        elif isinstance(example, torch.Tensor):
            for dim, size in enumerate(example.shape):
                if isinstance(size, torch.SymInt):
                    places.setdefault(str(size), []).insert(0, tensor_size(_place(position), dim))
    return {one: DeclaredSize("torch.compile", like=first) for first, *rest in places.values() for one in rest}
