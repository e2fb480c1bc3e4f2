"""Entry code that replays what the program wrote to objects that were there before the call."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from types import FunctionType
from typing import Any

from ...records.guards import guard_key
from ...records.sources import Global, Item, Source
from ..errors import CannotResume, OutOfOrder
from ..protocol import Lazy, Value
from ..values.constant import ConstantV
from ..values.containers import CellV, ListV, SetV, TupleV
from ..values.dicts import DELETED, DictV
from ..values.effects_log import DeferredCall, EffectsLog
from ..values.hashing import IdentityKey
from ..values.instance import InstanceV
from ..values.known import CalledAtTheEnd, KnownV
from ..values.number import NumberV
from ..values.overlays import Overlays
from . import locks
from . import modes as emit_modes
from .emitter import Emitter

LITERALS = (int, str, bytes, bool, type(None), type(Ellipsis))


def emit_effects(e: Emitter) -> None:
    """Make the deferred calls, then replay what was written to objects that existed before the call, in order of the
    first write.
    """
    for call in e.m.state(EffectsLog).calls:
        _refuse_recorded(e, call)
        e.line(_deferred(e, call))
    statements: list[str] = []
    for value in list(e.m.mutated.values()):
        for kind, writer in WRITERS:
            if isinstance(value, kind):
                statements += writer(e, value)
                break
    for (_, name), (owner, value) in e.m.state(Overlays).attributes.items():
        # what a metaclass's own method does was interpreted
        quiet = isinstance(owner, KnownV) and isinstance(type(owner.real).__setattr__, FunctionType)
        write = "type.__setattr__" if quiet and issubclass(owner.python_type(), type) else "setattr"
        statements.append(f"{write}({e.expr(owner)}, {name!r}, {e.expr(value)})")
    for (module, name), value in e.m.state(Overlays).globals.items():
        space = e.m.state(Overlays).namespace_of(module)
        if name in space and unchanged(e, value, Global(name, module), space[name]):
            continue
        table = e.pin(space, "globals_of_" + (module or "function"))
        statements.append(f"{table}[{name!r}] = {e.expr(value)}")
    e.body += [*locks.held(e, statements), *emit_modes.left(e)]


def _refuse_recorded(e: Emitter, call: DeferredCall) -> None:
    """A warning that `catch_warnings(record=True)` appends to a list that the program has read already."""
    recorded = getattr(getattr(warnings, "_showwarnmsg_impl", None), "__self__", None)
    warns = isinstance(call.function, KnownV) and call.function.real is warnings.warn_explicit
    if warns and recorded is not None and id(recorded) in e.m.wrapped:
        raise OutOfOrder("a warning that the program records and looks at")


def _deferred(e: Emitter, call: DeferredCall) -> str:
    try:
        parts = [e.written_out(e.expr(arg)) if isinstance(arg, TupleV) else e.expr(arg) for arg in call.args]
        parts += [f"{name}={e.expr(arg)}" for name, arg in call.kwargs.items()]
        function = e.expr(call.function)
        if call.caller is None:
            return f"{function}({', '.join(parts)})"
        at = call.caller
        place = f"{at.file!r}, {at.line}, {at.function!r}, {e.pin(at.namespace, 'globals_of_function')}"
        return f"reconstruct.call_from({place}, {', '.join([function, *parts])})"
    except CannotResume as error:
        raise OutOfOrder(error.reason) from None


def unchanged(e: Emitter, value: Any, place: Source | None, original: Any) -> bool:
    """Whether ``value`` is what stands at ``place`` at every call that the guards let in."""
    if place is None:
        return isinstance(value, Lazy) and value.source is None and value.real is original
    if value.source == place:
        return True
    plain = isinstance(value, ConstantV) and not isinstance(value, NumberV) and isinstance(value.value, LITERALS)
    return plain and type(value.value) is type(original) and guard_key(place, "constant", value.value) in e.m.guards


def _at(container: Value, key: Any) -> Source | None:
    return Item(container.source, key) if container.source is not None else None


def _write_list(e: Emitter, v: ListV) -> list[str]:
    if v.machine is not None:
        added = e.listing(v.tail)
        return [f"{e.existing(v)}.append({added})" if len(v.tail) == 1 else f"{e.existing(v)}.extend([{added}])"]
    real = list(v.real)
    written = [n for n, (a, b) in enumerate(zip(v.items, real)) if not unchanged(e, a, _at(v, n), b)]
    if len(real) == len(v.items) and not written:
        return []
    target = str(e.existing(v))
    if not v.written_whole:
        return [f"{target}[{n}] = {e.expr(v.items[n])}" for n in written]
    return v.overwriting(target, f"[{e.listing(v.items)}]")


def _write_dict(e: Emitter, v: DictV) -> list[str]:
    real = v.real
    target = e.existing(v)
    exact = type(real) is dict
    plain = e.pin(OrderedDict) if isinstance(real, OrderedDict) else "dict"
    statements = []
    deleted: list[Any] = []
    kept: list[Any] = []
    for key in real:
        gone = v.items.get(key, DELETED if v.complete else None) is DELETED
        (deleted if gone else kept).append(key)
    written = [k for k in v.items if v.items[k] is not DELETED]
    if v.complete and not (len(kept) <= len(written) and all(map(_same_key, kept, written))):
        # the order of keys changed: start over
        statements.append(f"{target}.clear()")
        deleted, real = [], {}
    for key in deleted:
        statements.append(f"del {target}[{e.expr(v.key_value(key))}]")
    for key in written:
        value = v.items[key]
        if isinstance(key, IdentityKey) or key not in real or not unchanged(e, value, _at(v, key), real[key]):
            name, text = e.expr(v.key_value(key)), e.expr(value)
            statements.append(
                f"{target}[{name}] = {text}" if exact else f"{plain}.__setitem__({target}, {name}, {text})"
            )
    return statements


def _same_key(a: Any, b: Any) -> bool:
    """As a dictionary compares keys: tensors with other hashes are never asked whether they are equal."""
    return a is b or (hash(a) == hash(b) and bool(b == a))


def _write_set(e: Emitter, v: SetV) -> list[str]:
    target = e.existing(v)
    if v.items.keys() == set(v.real):
        return []
    owner = target if type(v.real) is set else "set"
    first = "" if owner == target else target
    items = f"[{e.listing(list(v.items.values()))}]"
    return [f"{owner}.clear({first})", f"{owner}.update({', '.join(filter(None, [first, items]))})"]


def _write_cell(e: Emitter, v: CellV) -> list[str]:
    if not v.written or isinstance(v.content, Lazy):
        return []
    target = e.existing(v)
    return [f"{target}.cell_contents = {e.expr(v.content)}" if v.content is not None else f"del {target}.cell_contents"]


def _write_slots(e: Emitter, v: InstanceV) -> list[str]:
    target = e.existing(v)
    return [f"object.__setattr__({target}, {name!r}, {e.expr(value)})" for name, value in v.slots.items()]


def _call(e: Emitter, v: CalledAtTheEnd) -> list[str]:
    return [f"{e.expr(KnownV(v.real))}()"]


WRITERS: tuple[tuple[Any, Callable[[Emitter, Any], list[str]]], ...] = (
    (ListV, _write_list),
    (DictV, _write_dict),
    (SetV, _write_set),
    (CellV, _write_cell),
    (InstanceV, _write_slots),
    (CalledAtTheEnd, _call),
)
