"""``torch.func``: a function that is transformed becomes a graph of its own, and the call of the transform one node.

    torch.func.grad(loss)(w, x)   ->   grad_loss = Transformed(grad, loss's graph)((w, x), {}, ())

PyTorch's own transform runs, on fake tensors, over a stand-in of the user's function; when it calls the stand-in with
its wrapped tensors, the machine interprets the user's function on these. So shapes inside ``vmap``, nested transforms
and errors are PyTorch's affair. Tensors from outside that the function reads become further inputs of its graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx
from torch.fx.immutable_collections import immutable_dict, immutable_list

from ... import torch_compat
from ...aten.nested import tensors_in
from ...records.size_places import symbols_of
from ...records.sources import Source
from ...records.symbolic_ints import SizesUnfit
from ..errors import Unsupported, UserError
from ..graph.arguments import convert
from ..graph.builder import GraphBuilder, building, stack_trace
from ..graph.symbolic_layouts import SymbolicLayout
from ..meanings.registry import handles, made_like
from ..protocol import Lazy, Machine, Value
from ..values.constant import ConstantV, is_none
from ..values.containers import ListV, SequenceV, TupleV
from ..values.dicts import DictV
from ..values.instance import InstanceV
from ..values.sealing import sealed
from ..values.tensor import TensorV
from ..values.transformed import Transform, TransformedV, bound, call_transformed
from . import torch_function as function_modes


class BodyBuilder(GraphBuilder):
    """The graph of a transformed function. Tensors of the ``parent`` that it reads are lifted to inputs."""

    parent: GraphBuilder

    def __init__(self, parent: GraphBuilder) -> None:
        super().__init__(parent.fake_mode)
        self.parent = parent
        self.lifted: dict[int, tuple[TensorV, torch.fx.Node]] = {}
        self.region = None

    def placeholder(self, real: torch.Tensor, source: Source, layout: SymbolicLayout | None = None) -> TensorV:
        with torch_compat.outside_transforms():
            return self.parent.placeholder(real, source, layout)

    def constant(self, real: torch.Tensor) -> TensorV:
        with torch_compat.outside_transforms():
            return self.parent.constant(real)

    def argument_tensor(self, value: TensorV) -> torch.fx.Node:
        if value.node.graph is self.graph:
            return value.node
        if any(value.fake is changed for changed in self.changed):
            raise Unsupported("a function under torch.func that writes to a tensor from outside")
        if id(value) not in self.lifted:
            self.parent.argument_tensor(value)  # it must be in reach there
            self.lifted[id(value)] = (value, self._input(f"outer_{len(self.lifted)}"))
        return self.lifted[id(value)][1]

    def argument(self, fake: torch.Tensor) -> TensorV:
        """An argument as the transform hands it to the function."""
        value = TensorV(self._input(f"argument_{len(self.graph.nodes)}"), fake)
        self.by_fake[id(fake)] = value
        return value

    def _input(self, name: str) -> torch.fx.Node:
        first = next((n for n in self.graph.nodes if n.op != "placeholder"), None)
        if first is None:
            return self.graph.placeholder(name)
        with self.graph.inserting_before(first):
            return self.graph.placeholder(name)


class Transformed:
    """What a node calls: ``transform`` of the function that ``body`` is the graph of."""

    def __init__(self, transform: Transform, body: torch.fx.GraphModule, places: list[int]) -> None:
        self.transform = transform
        self.body = body
        self.places = places  # of the body's inputs: which argument, or (from the end, negative) which outer tensor
        self.__name__ = getattr(transform, "__name__", "transformed")

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], outer: tuple[torch.Tensor, ...]) -> Any:
        def function(*inner: Any, **named: Any) -> Any:
            own = tensors_in((inner, named))
            return plain(self.body(*[own[p] if p >= 0 else outer[-1 - p] for p in self.places]))

        return self.transform(function)(*plain(args), **plain(kwargs))

    @property
    def shown(self) -> str:
        """What captured.py says of it."""
        within = [node.target.shown for node in self.body.graph.nodes if isinstance(node.target, Transformed)]
        return "\n".join((f"torch.func.{self.__name__} of", self.body.code.strip(), *within))

    def __repr__(self) -> str:
        return self.shown


def plain(structure: Any) -> Any:
    """A structure as the program made it: torch.fx keeps lists and dictionaries in classes of its own."""
    if isinstance(structure, immutable_dict):
        return {k: plain(v) for k, v in structure.items()}
    if isinstance(structure, immutable_list) or type(structure) is list:
        return [plain(item) for item in structure]
    if type(structure) is tuple:
        return tuple(plain(item) for item in structure)
    return structure


# --- calling a transformed function -----------------------------------------------------------------------------------
@call_transformed.defined
def _call_transformed(
    m: Machine, transform: Transform, function: Value, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    return recorded(m, *interpreted(m, transform, function, args, kwargs))


def interpreted(
    m: Machine, transform: Transform, function: Value, args: list[Value], kwargs: dict[str, Value]
) -> tuple[Transformed, list[Value], Any]:
    """The call as a node has it: what it calls, its operands (arguments, named ones, outer tensors), its result."""
    outer = m.state(GraphBuilder)
    args, kwargs = [known(m, a) for a in args], {k: known(m, v) for k, v in kwargs.items()}
    body = BodyBuilder(outer)
    finished: list[Any] = []

    def stand_in(*inner: Any, **named: Any) -> Any:
        if finished:
            raise Unsupported("a torch.func transform that calls its function more than once")
        values = [_received(m, body, a, given) for a, given in zip(inner, args)]
        named_values = {k: _received(m, body, named[k], given) for k, given in kwargs.items()}
        with building(m, body), sealed(m, "a function under torch.func"), function_modes.outside_probe(m):
            result = known(m, m.call(function, values, named_values))
        finished.append(convert(result, body.argument_tensor))
        return convert(result, lambda t: t.fake)

    def run(*fake_args: Any, **fake_kwargs: Any) -> Any:
        with function_modes.probing(m):
            return transform(stand_in)(*fake_args, **fake_kwargs)

    try:
        result = outer.evaluate(run, args, kwargs)
    except (Unsupported, UserError):
        raise
    except Exception as error:
        raise Unsupported(f"torch.func.{_name(transform)}, which raises {type(error).__name__}: {error}") from None
    if not finished:
        raise Unsupported(f"torch.func.{_name(transform)}, which did not call its function")
    target = Transformed(transform, _close(body, finished[0]), _places(body))
    lifted = TupleV([value for value, _ in body.lifted.values()])
    operands: list[Value] = [TupleV(args), DictV.of([(ConstantV(k), v) for k, v in kwargs.items()]), lifted]
    return target, operands, result


def _name(transform: Any) -> str:
    return str(getattr(transform, "__name__", "transform"))


def known(m: Machine, value: Value) -> Value:
    """An argument or result with all that lies in it read; a dictionary's or list's subclass counts as its base."""
    value = m.settle(value)
    if isinstance(value, InstanceV) and value.payload is not None:
        value = m.settle(value.payload)
    return value


def _received(m: Machine, body: BodyBuilder, structure: Any, given: Value) -> Value:
    """What the transform handed on for ``given``: its containers anew, its tensors as inputs of the body."""
    if isinstance(structure, torch.Tensor):
        return body.argument(structure)
    if isinstance(given, SequenceV) and isinstance(structure, (tuple, list)):
        items = [_received(m, body, s, g) for s, g in zip(structure, given.all(m))]
        return ListV(items) if isinstance(given, ListV) else TupleV(items, given.cls)
    if isinstance(given, DictV) and isinstance(structure, dict):
        pairs = [(k, _received(m, body, structure[k.as_constant()], v)) for k, v in given.pairs(m)]
        result = DictV.of(pairs)
        result.cls = given.cls
        return result
    return given


def _close(body: BodyBuilder, result: Any) -> torch.fx.GraphModule:
    """The graph of a function. It is no text that names of sizes mean something in: they are numbers there."""
    body.graph.output(result)
    if symbols_of((node.args, tuple(node.kwargs.values())) for node in body.graph.nodes):
        raise SizesUnfit("a function under torch.func takes sizes as numbers")
    for node in body.graph.nodes:
        # the wrapped tensors of the transform are dead behind it
        node.meta = {k: v for k, v in node.meta.items() if k == "origin"}
    body.graph.lint()
    return torch_compat.graph_module(body.root, body.graph, "transformed")


def _places(body: BodyBuilder) -> list[int]:
    lifted = {node: -1 - n for n, (_, node) in enumerate(body.lifted.values())}
    own = 0
    places = []
    for node in body.graph.nodes:
        if node.op != "placeholder":
            continue
        if node in lifted:
            places.append(lifted[node])
        else:
            places.append(own)
            own += 1
    return places


def recorded(m: Machine, target: Transformed, operands: list[Value], result: Any) -> Value:
    """The node; results with dictionaries in them leave it as a flat tuple of tensors."""
    origin, trace = m.origin(), stack_trace(m)
    if not _has_dict(result):
        return m.state(GraphBuilder).record("call_function", target, operands, {}, result, origin, trace)

    def tensors(*args: Any) -> tuple[torch.Tensor, ...]:
        return tuple(tensors_in(target(*args)))

    tensors.__name__ = target.__name__
    tensors.shown = target.shown  # type: ignore[attr-defined]
    parts = m.state(GraphBuilder).record(
        "call_function", tensors, operands, {}, tuple(tensors_in(result)), origin, trace
    )
    return _structured(m, result, iter(m.listed(parts)))


def _has_dict(result: Any) -> bool:
    if isinstance(result, (tuple, list)):
        return any(map(_has_dict, result))
    return isinstance(result, dict)


def _structured(m: Machine, result: Any, tensors: Iterator[Value]) -> Value:
    """``tensors`` in containers as those of ``result``."""
    if isinstance(result, torch.Tensor):
        return next(tensors)
    if isinstance(result, dict):
        return DictV.of([(ConstantV(k), _structured(m, v, tensors)) for k, v in result.items()])
    if isinstance(result, (tuple, list)):
        items = [_structured(m, item, tensors) for item in result]
        return ListV(items) if isinstance(result, list) else TupleV(items, type(result))
    return m.wrap_result(result)


# --- the transforms ---------------------------------------------------------------------------------------------------
def _enter(transform: Any) -> None:
    names = list(inspect.signature(transform).parameters)[1:]

    @handles(transform)
    def make(m, args, kwargs):
        given = dict(zip(names, args[1:])) | kwargs
        options = {name: m.settle(value).as_constant() for name, value in given.items()}
        return TransformedV(transform, options, args[0])

    @made_like(transform(lambda x: x).__code__)
    def call_made(m, function, args, kwargs):
        """A function that was transformed before the call: its options are in its closure."""
        cells = function.real.__closure__ or ()
        closure = {n: c.cell_contents for n, c in zip(function.real.__code__.co_freevars, cells)}
        options = {name: closure[name] for name in names if name in closure}
        return call_transformed(m, bound(transform, options), m.wrap(closure["func"]), args, kwargs)


for _transform in (torch.func.vmap, torch.func.grad, torch.func.grad_and_value, torch.func.jacrev, torch.func.jacfwd):
    _enter(_transform)


@handles(torch.func.hessian)
def hessian_(m, args, kwargs):
    options = {k: v.as_constant() for k, v in kwargs.items()}
    return TransformedV(torch.func.hessian, options, args[0])


@handles(torch.func.jvp)
def jvp_(m, args, kwargs):
    """``jvp(f, primals, tangents)``: called at once, with the primals one by one."""
    options = {k: v.as_constant() for k, v in kwargs.items()}
    count = len(m.listed(args[1]))

    def jvp(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *both: torch.func.jvp(function, both[:count], both[count:], **options)

    return call_transformed(m, jvp, args[0], [*m.listed(args[1]), *m.listed(args[2])], {})


# --- functional_call --------------------------------------------------------------------------------------------------
@handles(torch.func.functional_call)
def functional_call_(m, args, kwargs):
    """The module is called while its tables show the given tensors; nothing is written to it."""
    names = ("module", "parameter_and_buffer_dicts", "args", "kwargs")
    given = dict(zip(names, args)) | kwargs
    module, tensors = given["module"], m.settle(given["parameter_and_buffer_dicts"])
    if not (isinstance(module, InstanceV) and module.is_module()) or set(given) - set(names):
        raise Unsupported("torch.func.functional_call with these arguments")
    pairs: list[tuple[Value, Value]] = []
    for table in [tensors] if isinstance(tensors, DictV) else m.listed(tensors):
        pairs += table.mapping_pairs(m)
    call_args = given.get("args", TupleV([]))
    positional = m.listed(call_args) if isinstance(call_args, TupleV) else [call_args]
    if is_none(call_args):
        positional = []
    named = given.get("kwargs")
    named_values = {k.as_constant(): v for k, v in named.mapping_pairs(m)} if isinstance(named, DictV) else {}
    swaps = [swap for key, value in pairs for swap in _swaps(m, module, key.as_constant(), value)]
    before = [(table, name, table.items.get(name, _ABSENT)) for table, name, _ in swaps]
    for table, name, value in swaps:
        table.items[name] = value
    try:
        with sealed(m, "torch.func.functional_call"):
            return m.call(module, positional, named_values)
    finally:
        for table, name, old in reversed(before):
            if old is _ABSENT:
                del table.items[name]
            else:
                table.items[name] = old


_ABSENT = Lazy(None, None)


def _swaps(m: Machine, module: InstanceV, path: str, value: Value) -> list[tuple[DictV, str, Value]]:
    """The table and name that ``path`` means, and all others that hold the same tensor (tied weights)."""
    *parents, name = path.split(".")
    owner: Value = module
    for part in parents:
        owner = m.get_attr(owner, part)
    current = m.get_attr(owner, name)
    found = [
        (table, key)
        for child in _modules(m, module)
        for table in _tables(m, child)
        for key in ([name] if child is owner else list(table.real or table.items))
        if table.lookup(m, key) is current or (child is owner and key == name and table.lookup(m, key) is not None)
    ]
    if not found:
        raise Unsupported(f"torch.func.functional_call: `{path}` is no parameter or buffer")
    return [(table, key, value) for table, key in found]


def _modules(m: Machine, module: InstanceV) -> list[InstanceV]:
    result = [module]
    assert module.attrs is not None
    children = module.attrs.lookup(m, "_modules")
    assert isinstance(children, DictV)
    for _, child in children.pairs(m):
        if isinstance(child, InstanceV) and child.is_module():
            result += _modules(m, child)
    return result


def _tables(m: Machine, module: InstanceV) -> list[DictV]:
    assert module.attrs is not None
    tables = [module.attrs.lookup(m, name) for name in ("_parameters", "_buffers")]
    return [t for t in tables if isinstance(t, DictV)]
