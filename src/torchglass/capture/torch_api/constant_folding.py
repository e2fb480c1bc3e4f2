"""The values of tensors that depend on constants alone: masks, sizes and tables that a program computes as tensors.

    pad = torch.tensor([1, 2])          # a node
    F.pad(x, pad.tolist())              # its value is asked for: the node and what it depends on run once, now

Nothing is computed before somebody asks for data. What depends on an input, on random numbers, on memory that was
never written or that an operation wrote to in place is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from ... import torch_compat
from ...aten.nested import tensors_in
from ...marks.markers import IN_GRAPH
from ..graph.arguments import convert
from ..graph.builder import GraphBuilder
from ..protocol import Machine, Value
from ..values.containers import ListV, SliceV, TupleV
from ..values.tensor import TensorV, known_value

MOST_ELEMENTS = 1 << 16
MOST_NODES = 200
# What these give is whatever stood in memory, or random.
UNKNOWN = (
    "empty",
    "rand",
    "multinomial",
    "bernoulli",
    "normal",
    "dropout",
    "poisson",
    "exponential",
    "uniform",
    "set_",
)


class _Unknown(Exception):
    """A tensor whose value is not known before the call."""


@known_value.defined
def _known_value(m: Machine, tensor: TensorV) -> torch.Tensor | None:
    try:
        return _checked(m, lambda: _known(m, tensor))
    except _Unknown:
        return None


def result_of(m: Machine, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """What ``function`` gives whose result's shape depends on data, when these are known; None when they are not."""

    def compute() -> Any:
        given: list[torch.Tensor] = []

        def known(tensor: TensorV) -> torch.Tensor:
            given.append(_known(m, tensor))
            return given[-1]

        real_args = [convert(a, known) for a in args]
        real_kwargs = {k: convert(v, known) for k, v in kwargs.items()}
        before = [t._version for t in given]
        result = function(*real_args, **real_kwargs)
        if [t._version for t in given] != before:
            raise _Unknown  # it writes: the graph has to
        return result

    try:
        return _constant(m, _checked(m, compute))
    except _Unknown:
        return None


def as_numbers(m: Machine, args: list[Value]) -> list[Value] | None:
    """The arguments with known integers in place of tensors behind the first (``x.repeat(count, 1)``); None if none."""

    def number(tensor: TensorV) -> Value:
        single = tensor.fake.dim() == 0 and not tensor.fake.dtype.is_floating_point
        real = known_value(m, tensor) if single else None
        return tensor if real is None else m.wrap_result(real.item())

    replaced = args[:1] + [with_numbers(m, a, number) for a in args[1:]]
    return replaced if any(a is not b for a, b in zip(args, replaced)) else None


def with_numbers(m: Machine, value: Value, number: Callable[[TensorV], Value]) -> Value:
    """An argument with what ``number`` gives for the tensors in it; itself if that is these."""
    if isinstance(value, (ListV, TupleV)):
        items = [with_numbers(m, item, number) for item in value.all(m)]
        return value if all(a is b for a, b in zip(items, value.items)) else type(value)(items, value.cls)
    if isinstance(value, SliceV):
        parts = [with_numbers(m, part, number) for part in value.parts]
        return value if all(a is b for a, b in zip(parts, value.parts)) else SliceV(parts)
    return number(value) if isinstance(value, TensorV) else value


def _constant(m: Machine, real: Any) -> Value:
    """A computed result as constants of the graph, each call with copies of its own."""
    if isinstance(real, torch.Tensor):
        value = m.state(GraphBuilder).constant(real)
        m.state(GraphBuilder).computed.add(value.node)
        return m.torch_method(value, "clone", [], {})
    if isinstance(real, list):
        return ListV([_constant(m, r) for r in real])
    if isinstance(real, tuple):
        return TupleV([_constant(m, r) for r in real], type(real))
    return m.wrap_result(real)


def _checked(m: Machine, compute: Callable[[], Any]) -> Any:
    """Run ``compute`` on real tensors; _Unknown when it fails, draws random numbers or would mean something else."""
    nodes = m.state(GraphBuilder).graph.nodes
    if type(m.state(GraphBuilder)) is not GraphBuilder or any(n.target in torch_compat.AUTOCAST_SETTERS for n in nodes):
        raise _Unknown
    before = torch.get_rng_state()
    try:
        with torch.inference_mode(False), torch.no_grad():
            result = compute()
    except Exception:
        raise _Unknown from None
    finally:
        drawn = not torch.equal(before, torch.get_rng_state())
        if drawn:
            torch.set_rng_state(before)
    if drawn:
        raise _Unknown
    return result


def _known(m: Machine, tensor: TensorV) -> torch.Tensor:
    if tensor.real is not None or tensor.fake.requires_grad:
        raise _Unknown
    real = _run(m, tensor.node, {})
    if not isinstance(real, torch.Tensor) or real.shape != tensor.fake.shape or real.dtype != tensor.fake.dtype:
        raise _Unknown
    return real


def _run(m: Machine, node: torch.fx.Node, done: dict[torch.fx.Node, Any]) -> Any:
    """The value of a node, from those that it depends on."""
    if node in done:
        return done[node]
    if node in m.state(GraphBuilder).computed:
        return getattr(m.state(GraphBuilder).root, str(node.target)).clone()  # the operations that run on it may write
    for given in m.state(GraphBuilder).numbers:
        if given.node is node:
            return given.relied_on(m).clone()
    name = str(getattr(node.target, "__name__", node.target))
    if node.op not in ("call_function", "call_method") or node.meta.get("effect") or len(done) > MOST_NODES:
        raise _Unknown
    if node.op == "call_function" and not _is_pytorchs(node.target):
        raise _Unknown
    if any(name.startswith(word) or f"_{word}" in name for word in UNKNOWN) or name.endswith("_"):
        raise _Unknown
    for part in tensors_in(node.meta.get("val")):
        if part.numel() > MOST_ELEMENTS or m.state(GraphBuilder).wrote_to(part):
            raise _Unknown

    def known(argument: torch.fx.Node) -> Any:
        return _run(m, argument, done)

    args = torch.fx.map_arg(node.args, known)
    kwargs = torch.fx.map_arg(node.kwargs, known)
    target: Any = node.target
    if node.op == "call_method":
        done[node] = getattr(args[0], target)(*args[1:], **kwargs)
    else:
        done[node] = target(*args, **kwargs)
    return done[node]


def _is_pytorchs(target: Any) -> bool:
    """Whether a node's function is an operation of PyTorch's own: the user's may do more than compute."""
    if isinstance(target, torch_compat.OpOverload):
        return str(target.namespace) in ("aten", "prims")
    module = getattr(target, "__module__", None) or "torch"
    return not hasattr(target, IN_GRAPH) and (module in ("torch", "_operator") or module.startswith("torch."))
