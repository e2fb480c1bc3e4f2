"""What a call that only leaves a trace is given, as it is when the program makes the call: it may be made later."""

from __future__ import annotations

import contextlib
from types import BuiltinFunctionType, FunctionType, ModuleType

import torch

from ..errors import Unsupported
from ..graph.builder import GraphBuilder
from ..protocol import Machine, Value
from ..values.constant import ConstantV
from ..values.containers import ListV, TupleV
from ..values.dicts import DictV
from ..values.effects_log import EffectsLog, SnapshotV
from ..values.function_modes import FunctionModes
from ..values.known import KnownV
from ..values.overlays import Overlays
from ..values.sealing import Sealed
from ..values.tensor import TensorV

UNCHANGING = (FunctionType, BuiltinFunctionType, ModuleType)


def may_wait(m: Machine) -> bool:
    """Whether calls are deferred here: not where code runs at other times or more often than here."""
    return not m.state(EffectsLog).breaks and not m.state(Sealed).by and type(m.state(GraphBuilder)) is GraphBuilder


def nothing_written(m: Machine) -> bool:
    """Whether all objects that were there before the call are as they were."""
    return not (m.mutated or m.state(Overlays).attributes or m.state(Overlays).globals)


def as_of_now(m: Machine, value: Value) -> Value | None:
    """What shows ``value`` as it is now when the graph has run; None where nothing does."""
    if isinstance(value, TensorV):
        return _tensor(m, value)
    if isinstance(value, ConstantV):
        return value
    if isinstance(value, KnownV) and isinstance(value.real, UNCHANGING):
        return value
    if getattr(value, "real", None) is not None and nothing_written(m):
        return SnapshotV(value, m.state(GraphBuilder).writes)
    return _container(m, value)


def _container(m: Machine, value: Value) -> Value | None:
    """A copy of a list, tuple or dictionary; existing dictionaries and lists that grow would be read whole."""
    if type(value) is DictV and value.cls is dict and value.real is None:
        m.settle(value)  # which refuses what contains itself
        pairs = [(key, as_of_now(m, item)) for key, item in value.pairs(m)]
        if all(isinstance(key, ConstantV) for key, _ in pairs):
            return DictV.of([(key, item) for key, item in pairs if item is not None]) if _whole(pairs) else None
    elif type(value) in (ListV, TupleV) and value.cls in (list, tuple, torch.Size):
        assert isinstance(value, (ListV, TupleV))
        if getattr(value, "machine", None) is not None and value.source in m.changes:
            return None
        m.settle(value)
        items = [as_of_now(m, item) for item in value.all(m)]
        return type(value)(items, value.cls) if None not in items else None
    return None


def _whole(pairs: list[tuple[Value, Value | None]]) -> bool:
    return all(item is not None for _, item in pairs)


def _tensor(m: Machine, value: TensorV) -> SnapshotV | None:
    """A tensor, and a copy of it that the graph makes here if it writes to it later. A tensor with a history shows the
    name of its node in autograd's graph, which is another one when the graph has run.
    """
    if value.replaced or m.state(FunctionModes).entered or (value.real is None and value.fake.requires_grad):
        return None
    copy = None
    writes = m.state(GraphBuilder).writes
    if value.python_type() is torch.Tensor and not value.fake.requires_grad:
        with contextlib.suppress(Unsupported):
            copy = m.torch_method(value, "clone", [], {})
    return SnapshotV(value, writes, copy if isinstance(copy, TensorV) else None)
