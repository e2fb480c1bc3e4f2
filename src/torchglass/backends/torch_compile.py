"""torchglass as a backend of torch.compile: PyTorch's captured graph in, our compiled callable out.

    torch.compile(model, backend="torchglass")

The entry point ``torch_dynamo_backends`` in pyproject.toml names :func:`torchglass`. PyTorch's frontend
hands over a graph of torch-level calls and real example inputs. Here the graph is brought to the form that
``pipeline`` takes: every parameter an input, every number a constant, the user's line on each node as an
``Origin``.

With dynamic shapes some inputs are numbers (``SymInt``; a float comes as a tensor that is read with
``item()``), and sizes may change without a recompile. The graph is then compiled at call time with its
sizes left open (``open_graphs.py``), or, where that is impossible, once for each combination of numbers
and tensor layouts.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from .. import torch_compat
from ..graph_pipeline import compile_graph
from ..options import CompileOptions
from ..process import fallbacks
from ..records.origin import UNKNOWN, Origin
from ..records.symbolic_ints import SizesUnfit
from ..runtime.store import Folder, current_store
from .open_graphs import OpenGraph

log = logging.getLogger("torchglass.backends")

MAX_OPEN = 8
"""Compiles of one dynamic graph with sizes left open; what takes none of them is compiled for its layout."""

MAX_LAYOUTS = 64
"""Layouts one dynamic graph is compiled for; calls with further ones run it op by op."""

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)')


def torchglass(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph captured by torch.compile. ``mode`` and ``options`` are those of ``tg.compile``.

    Returns a callable that takes what the graph takes and returns what it returns. A graph that we fail on
    runs as it is, with one warning. Raises ValueError or TypeError for a wrong mode or option.
    """
    wishes = CompileOptions.make(mode=mode, options=options)
    folder = current_store().folder(_function_name(gm), gm)
    if _read_as_numbers(gm) or any(map(_is_symbolic, _example_values(gm, example_inputs))):
        return _ByLayout(gm, example_inputs, wishes, folder)
    return _compile_or_run(gm, tuple(example_inputs), wishes, folder)


class _ByLayout:
    """A graph with symbolic sizes: calls go to what was compiled with sizes left open, or for numbers and layouts."""

    def __init__(self, gm: fx.GraphModule, examples: Sequence[Any], options: CompileOptions, folder: Folder) -> None:
        self.gm = gm
        self.read = _read_as_numbers(gm)
        self.options = options
        self.folder = folder
        self.examples = _example_values(gm, examples)
        self.may_stay_open = True
        self.open: list[OpenGraph] = []
        self.compiled: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *inputs: Any) -> Any:
        told = self._with_numbers(inputs)
        for graph in self.open:
            made = graph(told)
            if made is not None:
                return made
        key = (torch.is_grad_enabled(), *map(_layout, told))
        run = self.compiled.get(key)
        if run is None and self.may_stay_open:
            made = self._opened(told)
            if made is not None:
                return made
        if run is None:
            if len(self.compiled) >= MAX_LAYOUTS:
                log.info("a dynamic graph was called with more than %d layouts; the rest run eagerly", MAX_LAYOUTS)
                return self.gm.forward(*inputs)
            folder = self.folder.child(f"layout_{len(self.compiled)}")
            run = self.compiled[key] = _compile_or_run(self.gm, inputs, self.options, folder)
        return run(*inputs)

    def _with_numbers(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs with floats where the graph reads tensors as such."""
        if not self.read:
            return inputs
        return tuple(value.item() if n in self.read else value for n, value in enumerate(inputs))

    def _opened(self, inputs: tuple[Any, ...]) -> Any:
        """What a new compile with sizes left open gives for these inputs; None where there is none."""
        gm, folder = _without_submodule_calls(self.gm), self.folder.child(f"open_{len(self.open)}")
        try:
            graph = OpenGraph(gm, inputs, self.examples, bring_to_form, self.options, folder)
        except (SizesUnfit, Exception) as error:
            self.may_stay_open = False
            log.info("a graph of torch.compile is compiled for its sizes as they are: %s", error)
            log.debug("compiling a graph for changing sizes failed", exc_info=error)
            return None
        self.open.append(graph)
        self.may_stay_open = len(self.open) < MAX_OPEN
        return graph(inputs)


def _compile_or_run(
    gm: fx.GraphModule, inputs: tuple[Any, ...], options: CompileOptions, folder: Folder
) -> Callable[..., Any]:
    try:
        graph, lifted, kept = bring_to_form(gm, inputs)
        tensors = [inputs[position] for position in kept] + lifted
        compiled = compile_graph(graph, tensors, options, folder).call
    except Exception as error:
        log.debug("compiling a graph of torch.compile failed", exc_info=True)
        where = next((o for o in map(_origin, gm.graph.nodes) if o != UNKNOWN), UNKNOWN)
        message = f"torchglass could not compile a graph and runs it eagerly: {type(error).__name__}: {error}"
        fallbacks.say(message, where, f"artifacts in {folder.path}")
        return gm.forward
    if not lifted and len(kept) == len(inputs):
        return compiled

    def run(*call_inputs: Any) -> Any:
        return compiled(*(call_inputs[position] for position in kept), *lifted)

    return run


def bring_to_form(
    gm: fx.GraphModule, inputs: Sequence[Any], numbers: Mapping[int, Any] = MappingProxyType({})
) -> tuple[fx.GraphModule, list[torch.Tensor], list[int]]:
    """The graph with every number among ``inputs``, or what ``numbers`` have in its place, put in as a constant and
    every tensor attribute an input.

    Returns the graph, the tensors of the added inputs (they come last) and the positions in ``inputs`` of
    the inputs that stay. Values that PyTorch's frontend noted on nodes are dropped, since they belong to
    its own fake tensors.

        placeholder s77; placeholder x; get_attr w; mul(x, s77); add(mul, w)
        becomes, for s77 = 3,
        placeholder x; placeholder w; mul(x, 3); add(mul, w)
    """
    gm = _without_submodule_calls(gm)
    read = _read_as_numbers(gm)
    graph = fx.Graph()
    new: dict[fx.Node, Any] = {}
    kept: list[int] = []
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for position, (node, value) in enumerate(zip(placeholders, inputs, strict=True)):
        if position in read:
            new.update(dict.fromkeys(node.users, value.item() if isinstance(value, torch.Tensor) else value))
            new[node] = None
        elif isinstance(value, torch.Tensor):
            kept.append(position)
            new[node] = _copy(graph, node, new)
        else:
            new[node] = numbers.get(position, _number(value))
    lifted: dict[str, tuple[fx.Node, torch.Tensor]] = {}
    for node in gm.graph.nodes:
        if node.op == "get_attr" and isinstance(value := _attribute(gm, node.target), torch.Tensor):
            if node.target not in lifted:
                lifted[node.target] = graph.placeholder(node.name), value
                lifted[node.target][0].meta["origin"] = _origin(node)
            new[node] = lifted[node.target][0]
    for node in gm.graph.nodes:
        if node not in new:
            new[node] = _computed(node, new) if _is_of_sizes(node, new) else _copy(graph, node, new)
    return fx.GraphModule(gm, graph), [tensor for _, tensor in lifted.values()], kept


def _read_as_numbers(gm: fx.GraphModule) -> list[int]:
    """Positions of tensors that the graph only calls ``item()`` on: the frontend's way to hand over a
    float.
    """
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    return [
        position
        for position, node in enumerate(placeholders)
        if node.users and all(u.op == "call_method" and u.target == "item" for u in node.users)
    ]


def _copy(graph: fx.Graph, node: fx.Node, new: Mapping[fx.Node, Any]) -> fx.Node:
    """The node in ``graph``; ``fx.Graph.node_copy`` would not take a constant in place of an argument."""
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: new[n])
    copied = torch_compat.create_node(graph, node.op, node.target, args, kwargs, node.name)
    copied.meta["origin"] = _origin(node)
    return copied


def _is_of_sizes(node: fx.Node, new: Mapping[fx.Node, Any]) -> bool:
    """Whether a node computes with numbers alone, one of them a size that is left open."""
    target = node.target
    computes = getattr(target, "__module__", "") in ("_operator", "math") or str(target).startswith("sym_")
    if node.op != "call_function" or not computes:
        return False
    operands = [new[operand] for operand in node.all_input_nodes]
    numbers = [one for one in operands if isinstance(one, (int, torch.SymInt))]
    return len(numbers) == len(operands) and any(isinstance(one, torch.SymInt) for one in numbers)


def _computed(node: fx.Node, new: Mapping[fx.Node, Any]) -> Any:
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: new[n])
    return node.target(*args, **kwargs)


def _without_submodule_calls(gm: fx.GraphModule) -> fx.GraphModule:
    """The graph with calls of submodules opened up, if it has any (older frontends and hand-made graphs
    do).
    """
    if not any(n.op == "call_module" for n in gm.graph.nodes):
        return gm

    class Opened(fx.Tracer):
        def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
            return False

    return fx.GraphModule(gm, Opened().trace(gm))


def _example_values(gm: fx.GraphModule, inputs: Sequence[Any]) -> list[Any]:
    """The inputs as the frontend saw them: an input is a real tensor even where its sizes are symbols."""
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    seen = [n.meta.get("example_value", n.meta.get("val")) for n in placeholders]
    return [given if one is None else one for given, one in zip(inputs, seen, strict=True)]


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return any(isinstance(size, torch.SymInt) for size in value.shape)
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


def _layout(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return type(value), _exact(value)
    strides = value.stride() if value.layout == torch.strided else value.layout
    return type(value), value.dtype, value.device, value.shape, strides, value.requires_grad


def _exact(value: Any) -> Any:
    """A key for a number: 0.0 and -0.0 are two, NaN is itself."""
    return value.hex() if isinstance(value, float) else value


def _number(value: Any) -> Any:
    """A SymInt given as an example stands for the number it was traced with."""
    for symbolic, plain in ((torch.SymInt, int), (torch.SymFloat, float), (torch.SymBool, bool)):
        if isinstance(value, symbolic):
            return plain(value)
    return value


def _attribute(root: Any, path: str) -> Any:
    for name in path.split("."):
        root = getattr(root, name)
    return root


def _origin(node: fx.Node) -> Origin:
    """The user's line of a node: the innermost frame of the stack trace that the frontend noted."""
    if isinstance(known := node.meta.get("origin"), Origin):
        return known
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    if not frames:
        return UNKNOWN
    file, line, function = frames[-1]
    return Origin(file, int(line), function.strip())


def _function_name(gm: fx.GraphModule) -> str:
    """The user's outermost function in the graph, for the folder's name."""
    for node in gm.graph.nodes:
        frames = _FRAME.findall(node.meta.get("stack_trace") or "")
        if frames and node.op not in ("placeholder", "output"):
            return f"{frames[0][2].strip()}.torch_compile"
    return "torch_compile"
