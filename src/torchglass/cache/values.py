"""Values of our records as JSON, and back: constants as they are, records by the names of their classes.

    encoded((1, 2.5, torch.float32))     # {"tuple": [1, 2.5, {"dtype": "float32"}]}
    decoded(encoded(value)) == value

What no text can say (an object of the program's, a tensor) is ``NotKept``, with the reason.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import math
from collections.abc import Callable
from typing import Any

import torch

from ..records import entry_point, guards, kept_graph, partition, side_call, size_floats, sizes, sources, tensor_spec
from ..records import origin as origins
from ..records.kept_graph import NotKept
from ..runtime.global_state import GlobalState
from ..torch_compat import OpOverload, OpOverloadPacket
from .objects import found, name_of

RECORDS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        guards.Guard, guards.TensorMeta, origins.Origin, tensor_spec.TensorSpec, side_call.SideCall, side_call.Replay,
        partition.TensorRef, partition.SavedTensor, partition.Mutation, partition.ViewStep, partition.StorageAlias,
        partition.Computed, partition.InputItself, partition.SameAs, partition.ViewOf, partition.Constant,
        partition.Gradient, partition.BackwardLiveness, partition.Part, partition.KeptBackward,
        sizes.Atom, sizes.Expr, GlobalState, entry_point.EntryPoint, kept_graph.OpenSizes, kept_graph.OpenInput,
    )
}  # fmt: skip
"""Frozen classes whose fields say all of them."""
_KINDS: dict[str, type] = {f"Source.{cls.__name__}": cls for cls in (
    sources.Local, sources.Global, sources.Cell, sources.Module, sources.Fixed, sources.Attr, sources.InstanceDict,
    sources.Item, sources.DictKey, sources.TypeOf, sources.StrideOf, sources.Referent, sources.Constant,
    sources.Computed,
)} | {f"Float.{cls.__name__}": cls for cls in (size_floats.FloatOf, size_floats.Computed)}  # fmt: skip
"""The same, of classes that share names with those."""
TAGS = {cls: name for name, cls in (*RECORDS.items(), *_KINDS.items())}
CLASSES = {name: cls for cls, name in TAGS.items()}
PLAIN = frozenset({bool, int, str, type(None)})
_NAMED = (torch.dtype, torch.layout, torch.memory_format)


def encoded(value: Any) -> Any:
    """``value`` as what ``json`` writes. Raises NotKept."""
    kind = type(value)
    if kind in PLAIN or (kind is float and math.isfinite(value)):
        return value
    write = _ENCODERS.get(kind)
    if write is not None:
        return write(value)
    tag = TAGS.get(kind)
    if tag is not None:
        return {tag: [encoded(getattr(value, name)) for name in field_names(kind)]}
    if isinstance(value, _NAMED):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, enum.Enum):
        return {"enum": [name_of(kind), value.name, type(value.value).__name__, repr(value.value)]}
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        from ..records.symbolic_ints import float_of, size_of  # of graphs that leave sizes open, as these were captured

        return encoded(size_of(value) if isinstance(value, torch.SymInt) else float_of(value))
    return {"object": name_of(value)}


def decoded(text: Any) -> Any:
    """The value again. Raises NotKept for an object that is not there any more."""
    if type(text) is not dict:
        return text
    ((tag, content),) = text.items()
    read = _DECODERS.get(tag)
    if read is not None:
        return read(content)
    return CLASSES[tag](*map(decoded, content))


def field_names(cls: Any) -> tuple[str, ...]:
    known = _field_names.get(cls)
    if known is None:
        named: Any = getattr(cls, "_fields", None)
        known = _field_names[cls] = named or tuple(f.name for f in dataclasses.fields(cls) if f.init)
    return known


_field_names: dict[type, tuple[str, ...]] = {}


def _items(value: Any) -> list[Any]:
    return [encoded(item) for item in value]


def _mapping(value: dict[Any, Any]) -> Any:
    """A dictionary; a module's globals by the module."""
    if isinstance(value.get("__name__"), str) and "__spec__" in value:
        return {"object": name_of(value)}
    return {"dict": [[encoded(k), encoded(v)] for k, v in value.items()]}


_ENCODERS: dict[type, Callable[[Any], Any]] = {
    float: lambda value: {"float": str(value)},
    complex: lambda value: {"complex": [encoded(value.real), encoded(value.imag)]},
    bytes: lambda value: {"bytes": value.hex()},
    tuple: lambda value: {"tuple": _items(value)},
    list: lambda value: {"list": _items(value)},
    set: lambda value: {"set": sorted(_items(value), key=repr)},
    frozenset: lambda value: {"frozenset": sorted(_items(value), key=repr)},
    dict: lambda value: _mapping(value),
    slice: lambda value: {"slice": _items((value.start, value.stop, value.step))},
    range: lambda value: {"range": [value.start, value.stop, value.step]},
    type(Ellipsis): lambda value: {"...": None},
    torch.Size: lambda value: {"Size": list(value)},
    torch.device: lambda value: {"device": str(value)},
    OpOverload: lambda value: {"operator": _operator_name(value)},
    OpOverloadPacket: lambda value: {"packet": value._qualified_op_name.split("::")},
}

_DECODERS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "complex": lambda parts: complex(*map(decoded, parts)),
    "bytes": bytes.fromhex,
    "tuple": lambda items: tuple(map(decoded, items)),
    "list": lambda items: list(map(decoded, items)),
    "set": lambda items: set(map(decoded, items)),
    "frozenset": lambda items: frozenset(map(decoded, items)),
    "dict": lambda rows: {decoded(k): decoded(v) for k, v in rows},
    "slice": lambda parts: slice(*map(decoded, parts)),
    "range": lambda parts: range(*parts),
    "...": lambda nothing: ...,
    "Size": torch.Size,
    "device": torch.device,
    "operator": lambda names: _operator(*names),
    "packet": lambda names: _packet(*names),
    "torch": lambda name: getattr(torch, name),
    "enum": lambda parts: _member(*parts),
    "object": found,
}


def _member(path: list[str], name: str, kind: str, value: str) -> Any:
    member = found(path).__members__.get(name)
    if member is None or [member.name, type(member.value).__name__, repr(member.value)] != [name, kind, value]:
        raise NotKept(f"{'.'.join(path)}.{name} is another member")
    return member


def _operator_name(operator: OpOverload) -> list[str]:
    namespace, _, name = operator._schema.name.partition("::")
    return [namespace, name, operator._overloadname, str(operator._schema) if namespace != "aten" else ""]


def _packet(namespace: str, name: str) -> Any:
    if namespace == "torchglass":
        importlib.import_module("torchglass.operators")
    try:
        return getattr(getattr(torch.ops, namespace), name)
    except (AttributeError, RuntimeError) as error:
        raise NotKept(f"there is no operator {namespace}::{name} here: {error}") from None


def _operator(namespace: str, name: str, overload: str, schema: str) -> Any:
    operator = getattr(_packet(namespace, name), overload, None)
    if operator is None:
        raise NotKept(f"there is no operator {namespace}::{name}.{overload} here")
    if schema and str(operator._schema) != schema:
        raise NotKept(f"the operator {namespace}::{name} was `{schema}` and is `{operator._schema}`")
    return operator
