"""An edited graph file as a graph again: what a person wrote in captured.py or forward.py is what is compiled.

gm = retraced(module.forward, path, gm)      # the file's function in, a graph with the original's inputs out
gm = with_values(gm, path, original)         # and the value (a fake tensor) of every node, for an ATen graph
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.overrides import TorchFunctionMode

from ..records.origin import Origin
from ..torch_compat import MODE_CHANGES, STATE_SETTERS, FakeTensor, create_node
from .edit_errors import EditError, line_in, line_of
from .store import Artifact, load_python


def retraced(forward: Callable[..., Any], path: Path, original: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph of an edited file's ``forward``. Raises EditError, with the line, for what it cannot trace."""
    theirs = [node for node in original.graph.nodes if node.op == "placeholder"]
    tracer = _Tracer(theirs)
    try:
        with _Recording(tracer), _replaced(forward.__globals__, "torch", _Namespace(tracer, torch)):
            graph = tracer.trace(forward)
    except Exception as error:
        raise EditError(f"the edited {path}{line_of(error, path)}: {type(error).__name__}: {error}") from error
    ours = [node for node in graph.nodes if node.op == "placeholder"]
    if len(ours) != len(theirs):
        raise EditError(f"the edited {path} takes {len(ours)} inputs, not {len(theirs)}")
    for node in graph.nodes:
        lines = re.findall(rf'File "{re.escape(str(path))}", line (\d+)', node.stack_trace or "")
        if lines:
            node.meta["origin"] = Origin(str(path), int(lines[-1]), "forward")
    return torch.fx.GraphModule(tracer.root, graph)


def retraced_file(
    artifact: Artifact, objects: Mapping[str, Any], inputs: Sequence[torch.Tensor]
) -> torch.fx.GraphModule:
    """The graph of a file, for these inputs; ``objects`` are what names in it stand for. Raises EditError."""
    forward = load_python(artifact, after=objects).forward
    names = forward.__code__.co_varnames[: forward.__code__.co_argcount]
    original = torch.fx.Graph()
    for name, value in zip(names, inputs, strict=True):
        original.placeholder(name).meta["val"] = value
    original.output(())
    return retraced(forward, artifact.path, torch.fx.GraphModule({}, original))


class _Tracer(torch.fx.Tracer):
    """Traces a graph whose inputs are those of another one. What it computes of their sizes is arithmetic, no nodes."""

    record_stack_traces = True

    def __init__(self, inputs: Sequence[torch.fx.Node]) -> None:
        super().__init__()
        self.inputs = iter(inputs)

    def create_node(
        self, kind: str, target: Any, args: Any, kwargs: Any, name: str | None = None, type_expr: Any = None
    ) -> torch.fx.Node:
        node = create_node(self.graph, kind, target, args, kwargs, name)
        known = next(self.inputs, None) if kind == "placeholder" else None
        node.meta = dict(known.meta) if known is not None else node.meta
        return node

    def proxy(self, node: torch.fx.Node) -> torch.fx.Proxy:
        return _Sized(node, self)


class _Recording(TorchFunctionMode):
    """Calls that take no value of the graph are nodes as well: they draw random numbers, make memory, set modes."""

    def __init__(self, tracer: _Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        of_constant = name == "__get__" or getattr(torch.Tensor, name, None) is function
        if of_constant or any(issubclass(kind, torch.fx.Proxy) for kind in types):
            return function(*args, **(kwargs or {}))
        return self.tracer.create_proxy("call_function", function, args, kwargs or {})


class _Namespace:
    """``torch`` in a file that is traced: of calls that change modes PyTorch tells nobody, and they are nodes too."""

    def __init__(self, tracer: _Tracer, module: ModuleType) -> None:
        self._tracer, self._module = tracer, module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if isinstance(value, ModuleType):
            return _Namespace(self._tracer, value)
        if not isinstance(value, Hashable) or value not in MODE_CHANGES:
            return value
        if value not in STATE_SETTERS:
            raise NotImplementedError("a graph with inference mode in it, whose results are inference tensors")
        return lambda *args: self._tracer.create_proxy("call_function", value, args, {})


@contextlib.contextmanager
def _replaced(names: dict[str, Any], name: str, value: Any) -> Iterator[None]:
    before = names.get(name)
    names[name] = value
    try:
        yield
    finally:
        names[name] = before


class _Sized(torch.fx.Proxy):
    @property
    def shape(self) -> Any:
        value = self.node.meta.get("val")
        return value.shape if isinstance(value, torch.Tensor) else super().__getattr__("shape")


def with_values(gm: torch.fx.GraphModule, path: Path, original: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Gives every node its value, and holds the outputs to the original's dtypes and shapes (EditError)."""
    try:
        propagate_values(gm)
    except Exception as error:
        raise EditError(f"the edited {path}: {type(error).__name__}: {error}") from error
    wanted, found = _outputs(original), _outputs(gm)
    if len(wanted) != len(found):
        raise EditError(f"the edited {path} returns {len(found)} values, not {len(wanted)}")
    for n, (before, now) in enumerate(zip(wanted, found)):
        if before != now:
            raise EditError(f"the edited {path} returns {now} as value {n}, where {before} is needed")
    return gm


def propagate_values(gm: torch.fx.GraphModule) -> None:
    """Gives every node of an ATen graph its value, of its inputs' values."""
    inputs = [node.meta.get("val") for node in gm.graph.nodes if node.op == "placeholder"]
    mode = next((value.fake_mode for value in inputs if isinstance(value, FakeTensor)), None)
    with torch.no_grad():
        FakeTensorProp(gm, mode).propagate_dont_convert_inputs(*inputs)


def _outputs(gm: torch.fx.GraphModule) -> list[Any]:
    (output,) = (node for node in gm.graph.nodes if node.op == "output")
    values = output.args[0] if isinstance(output.args[0], (tuple, list)) else (output.args[0],)
    return [_facts(value) for value in values]


def _facts(value: Any) -> Any:
    value = value.meta.get("val") if isinstance(value, torch.fx.Node) else value
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, torch.Tensor) else value


class Tried:
    """The call of an edited graph, at first on copies of its inputs: where it fails the graph as generated goes on."""

    def __init__(
        self, call: Callable[[list[Any]], Any], generated: Callable[[list[Any]], Any], edited: Sequence[Any]
    ) -> None:
        self.call, self.generated, self.edited = call, generated, edited
        self.checked = False

    def __call__(self, inputs: list[Any]) -> Any:
        if self.checked:
            return self.call(inputs)
        try:
            results = self.call([_copied(value) for value in inputs])
        except Exception as error:
            blamed = next((file for file in self.edited if line_in(error, file.path)), self.edited[0])
            blamed.as_generated(error)
            self.call, self.checked = self.generated, True
            return self.call(inputs)
        self.checked = True
        return results


def _copied(value: Any) -> Any:
    """A tensor that lies as ``value`` does; itself where places share memory, in which nobody writes."""
    if not isinstance(value, torch.Tensor):
        return value
    with torch.no_grad():
        try:
            copy = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=value.device)
            return copy.copy_(value)
        except RuntimeError:
            return value
