"""Objects that the program relied on being different ones, written out as guards when a capture ends.

y.data = torch.ones(3)  # with `x is y` at the next call, the line below would give 1
return x[0]             # guard: len({id(o) for o in (y, x)}) == 2
"""

from __future__ import annotations

from collections.abc import Iterable
from types import NoneType

from ...records.guards import Guard
from ...records.sources import InstanceDict
from ..graph.builder import GraphBuilder
from ..protocol import Machine, Value
from ..values.closure import ClosureV
from ..values.constant import ConstantV
from ..values.containers import CellV
from ..values.hashing import Keys
from ..values.known import KnownV
from ..values.overlays import Overlays
from ..values.tensor import TensorV


def guard_distinct(m: Machine, values: Iterable[Value], why: str) -> None:
    """Rely on it that these existing objects, when reached again, are still different ones."""
    sources = tuple(v.source for v in values)
    if None not in sources and all(map(_may_be_another, values)) and len(sources) > 1:
        m.guards.setdefault(("distinct", sources), Guard(None, "distinct", sources, why, m.origin()))


def _may_be_another(value: Value) -> bool:
    """Whether at the next call another object may stand where this one was: other guards ask for constants."""
    constant = isinstance(value, (ConstantV, KnownV)) and not isinstance(value, ClosureV)
    return value.source is not None and not constant and getattr(value, "real", None) is not None


def guard_told_apart(m: Machine) -> None:
    """What is written through one name must not be reached through another at the next call, and different keys must
    not be one.
    """
    each = {id(v): v for _, v in m.wrapped.values()}.values()  # stand-ins lead to one value twice
    # objects are told apart, their dictionaries and what they hold as subclasses of list or dict with them
    existing = [v for v in each if not isinstance(v, CellV) and not isinstance(v.source, (NoneType, InstanceDict))]
    owners = {id(part): v for v in existing for part in (getattr(v, "attrs", None), getattr(v, "payload", None))}
    written = [owners.get(id(v), v) for v in m.mutated.values()]
    _guard_kinds(m, [v for v in written if not isinstance(v, CellV)], existing, "one of them is written to")
    changed = [owner for owner, _ in m.state(Overlays).attributes.values() if isinstance(owner, TensorV)]
    _guard_kinds(m, changed, [v for v in existing if isinstance(v, TensorV)], "an attribute of one of them is written")
    _guard_kinds(m, m.state(Keys).values(), (), "they were different keys")
    if m.state(GraphBuilder).flagged:
        guard_distinct(m, m.state(GraphBuilder).inputs, "one of them is made to require grad")


def _guard_kinds(m: Machine, values: Iterable[Value], others: Iterable[Value], why: str) -> None:
    """Rely on it that these are none of the others of their kind, nor of each other: one guard for each kind, as a
    program that writes to many writes to many of a kind.
    """
    values = [v for v in values if _may_be_another(v)]
    for kind in {v.python_type(): None for v in values}:
        alike = {id(v): v for v in (*values, *others) if v.python_type() is kind and _may_be_another(v)}
        guard_distinct(m, alike.values(), why)
