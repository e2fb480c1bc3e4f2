"""Operators that stay ATen calls: everything without a rule. Matmuls write into buffers we plan (``out=``).

``aten.mm(a, b)`` becomes ``extern mm = torch.ops.aten.mm.out(a, b, out=mm)``; an operator with several results names
each of them.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from ..records import own_operators
from ..records.literals import overload_text
from ..records.loops import Value, View
from ..records.symbolic_ints import lies_contiguous
from ..torch_compat import OpOverload
from .context import Lowering, Splat, layout_of
from .strides import is_dense
from .table import NotLowered

# Operators whose out= overload is worth calling: the result's memory is then ours to plan.
OUT_OPS = ("mm", "addmm", "bmm", "baddbmm")

# Operators whose results are views of an argument, which their schemas do not say.
HIDDEN_VIEWS = ("_unsafe_view", "unsafe_split", "unsafe_chunk")


def lower_extern(low: Lowering, node: fx.Node) -> Any:
    """Append the call; return the node's value: a View, a Value, or a tuple of them."""
    args, kwargs = arguments_in_memory(low, node)
    vals = node.meta.get("val")
    target = target_name(node.target)
    if _has_out(node):
        view = low.result(node)
        low.extern(target.rpartition(".")[0] + ".out", args, kwargs, [view.buffer], out=True)
        return view
    if schema_is_void(node):
        low.extern(target, args, kwargs, [None], effect=True)
        return None
    several = isinstance(vals, (tuple, list))
    named = [(f"{node.name}_{k}", val) for k, val in enumerate(vals)] if several else [(node.name, vals)]
    results = [_result(low, val, name) for name, val in named]
    names = [r.name if isinstance(r, Value) else r.buffer for r in results]
    low.extern(target, args, kwargs, names, unpack=several, aliases=may_alias(node), effect=has_effect(node))
    return tuple(results) if several else results[0]


def _has_out(node: fx.Node) -> bool:
    if not isinstance(node.target, OpOverload):
        return False
    namespace, _, packet = node.target._schema.name.partition("::")
    if namespace != "aten" or packet not in OUT_OPS or node.target._overloadname != "default":
        return False
    val = node.meta["val"]
    return is_dense(*layout_of(val)) and not val.dtype.is_complex


def _result(low: Lowering, val: Any, name: str) -> View | Value:
    if isinstance(val, torch.Tensor):
        try:
            return low.result_of(val, name)
        except NotLowered:
            return low.buffer(name, str(val.dtype).removeprefix("torch."), *layout_of(val))
    return Value(low.fresh(name))


def arguments_in_memory(low: Lowering, node: fx.Node) -> tuple[list[Any], dict[str, Any]]:
    """A call's arguments and keyword arguments, tensors as Views."""
    return [_in_memory(low, a) for a in node.args], {k: _in_memory(low, v) for k, v in node.kwargs.items()}


def _in_memory(low: Lowering, arg: Any) -> Any:
    """An FX argument as ATen takes it: repeated numbers become tensors that lie as eager's, since kernels draw random
    numbers, and lay out results, in the order of memory.
    """
    if isinstance(arg, (tuple, list)):
        return (tuple if isinstance(arg, tuple) else list)(_in_memory(low, a) for a in arg)
    value = low.argument(arg)
    if not isinstance(value, Splat):
        return value
    val = arg.meta["val"]
    return low.view(value) if lies_contiguous(val) else low.laid_out(value, val, arg.name)


def may_alias(node: fx.Node) -> bool:
    """Whether results may be views of arguments: then the arguments' memory must not be reused early."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.name.rpartition("::")[2].startswith(HIDDEN_VIEWS):
        return True
    return any(r.alias_info is not None for r in schema.returns)


def schema_is_void(node: fx.Node) -> bool:
    """Whether the operator returns nothing."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and not schema.returns


def has_effect(node: fx.Node) -> bool:
    """Whether leaving the call out would change more than its results: it returns nothing, draws random numbers, or
    sizes are read off what it returns.
    """
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return False
    return not schema.returns or not EFFECTS.isdisjoint(node.target.tags)


EFFECTS = {torch.Tag.nondeterministic_seeded, torch.Tag.dynamic_output_shape}


def target_name(target: Any) -> str:
    """How the wrapper calls it: ``torch.ops.aten.mm.default``, ``operator.mul``, ..."""
    ours = own_operators.path_of(target)
    if ours is not None:
        return ours
    if isinstance(target, OpOverload):
        return overload_text(target)
    name = getattr(target, "__name__", None)
    module = getattr(target, "__module__", None)
    if module in ("_operator", "operator") or getattr(operator, str(name), None) is target:
        return f"operator.{name}"
    if module and name:
        return f"{module}.{name}"
    raise NotLowered(f"call target {target!r}")
