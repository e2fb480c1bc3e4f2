"""``torch.utils.checkpoint``: the function's operations stand in the graph, marked as a region to compute again.

    checkpoint(block, x, use_reentrant=False)  ->  block's nodes, each with meta["checkpoint_region"] = 0

Recomputing changes memory, not results, so the marks are all that later stages need. What a second run of the function
would do twice (writes to objects or tensors that were there before) ends the graph: eager does it twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils.checkpoint as torch_checkpoint

from ..errors import Unsupported
from ..graph.builder import GraphBuilder
from ..meanings.registry import handles
from ..polyfills import contexts as polyfills
from ..protocol import Machine, Value
from ..values.constant import ConstantV
from ..values.containers import TupleV
from ..values.sealing import sealed
from ..values.tensor import TensorV

OPTIONS = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")


@handles(torch_checkpoint.checkpoint)
def checkpoint(m, args, kwargs):
    """``checkpoint(function, *args, **kwargs)``."""
    options = {name: _option(kwargs[name]) for name in OPTIONS if name in kwargs}
    kwargs = {name: value for name, value in kwargs.items() if name not in OPTIONS}
    function, arguments = args[0], args[1:]
    if options.get("context_fn", torch_checkpoint.noop_context_fn) is not torch_checkpoint.noop_context_fn:
        raise Unsupported("torch.utils.checkpoint with a context_fn")
    if options.get("debug"):
        raise Unsupported("torch.utils.checkpoint with debug=True")
    reentrant = options.get("use_reentrant")
    if reentrant is None or reentrant:
        if kwargs:
            raise Unsupported("torch.utils.checkpoint with use_reentrant=True and keyword arguments")
        return _reentrant(m, function, arguments)
    if not torch.is_grad_enabled():
        return m.call(function, arguments, kwargs)
    with _region(m):
        return m.call(function, arguments, kwargs)


def _option(value: Value) -> Any:
    if not value.is_constant():
        raise Unsupported("torch.utils.checkpoint with options that are not known")
    return value.as_constant()


def _reentrant(m: Machine, function: Value, arguments: list[Value]) -> Value:
    """The old form: gradients flow only if an argument that is a tensor requires them."""
    arguments = [m.forced(a) for a in arguments]
    requires = any(isinstance(a, TensorV) and a.fake.requires_grad for a in arguments)
    if not (requires and torch.is_grad_enabled()):
        result = m.call(m.wrap(polyfills.without_gradients), [function, *arguments], {})
        return _as_outputs(m, result, arguments)
    with _region(m):
        result = m.call(function, arguments, {})
        parts = result.all(m) if isinstance(result, TupleV) else [result]
        for part in parts:
            if not isinstance(part, (TensorV, ConstantV)):
                raise Unsupported("a checkpointed function (use_reentrant=True) that returns other things than tensors")
            if isinstance(part, TensorV) and part.fake.dtype.is_floating_point and not part.fake.requires_grad:
                raise Unsupported("a checkpointed function (use_reentrant=True) with a result that needs no gradient")
        return _as_outputs(m, result, arguments)


def _as_outputs(m: Machine, result: Value, arguments: list[Value]) -> Value:
    """What an autograd.Function returns: an argument handed through is a view of it."""
    if isinstance(result, TupleV):
        return TupleV([_as_outputs(m, part, arguments) for part in result.all(m)], result.cls)
    if isinstance(result, TensorV) and any(result is a for a in arguments):
        return m.torch_method(result, "view_as", [result], {})
    return result


@contextmanager
def _region(m: Machine) -> Iterator[None]:
    """Nodes made inside belong to one region; a region inside another is part of it."""
    builder = m.state(GraphBuilder)
    outermost = builder.region is None
    if outermost:
        builder.region, builder.regions = builder.regions, builder.regions + 1
    try:
        with sealed(m, "a checkpointed function"):
            yield
    finally:
        if outermost:
            builder.region = None
