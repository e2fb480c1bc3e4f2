"""The class statement: its body is a frame, whose variables become the class's namespace."""

from __future__ import annotations

import builtins
import types
from types import FunctionType
from typing import Any

from ..errors import Unsupported
from ..meanings.class_statement import metaclass_of
from ..meanings.registry import handles
from ..protocol import Machine, Value
from ..values.binding import home_of
from ..values.constant import ConstantV
from ..values.containers import CellV, TupleV
from ..values.dicts import DictV
from ..values.functions import FunctionV
from ..values.made import stand_in
from .frame import Frame


@handles(builtins.__build_class__)
def build_class(m, args, kwargs):
    """``__build_class__(body, name, *bases, metaclass=..., **keywords)``."""
    body, name = args[0], args[1].as_constant()
    if not isinstance(body, FunctionV):
        raise Unsupported("a class whose body is no function made here")
    keywords = dict(kwargs)
    given = keywords.pop("metaclass", None)
    bases = _resolved(m, args[2:])
    metaclass = metaclass_of(m, given, bases)
    prepare = getattr(m.class_lookup(metaclass, "__prepare__"), "__func__", None)
    prefilled: dict[str, Value] = {}
    if type(prepare) is FunctionType and not m.is_stable(home_of(prepare)):
        prefilled = _prepared(m, metaclass, name, bases, keywords)
    elif type(prepare) is FunctionType:
        prefilled = _BoundOnce()
    frame = Frame(body.code, body.namespace, body.module_source, prefilled, body.closure)
    _, cell = frame.run(m)
    namespace = {k: m.forced(v) for k, v in frame.locals.items()}
    if len(bases) != len(args) - 2 or any(a is not b for a, b in zip(args[2:], bases)):
        namespace["__orig_bases__"] = TupleV(args[2:])
    if isinstance(cell, CellV):
        namespace["__classcell__"] = cell
    pairs = DictV.of([(ConstantV(k), v) for k, v in namespace.items()])
    made = m.call(m.wrap(metaclass), [ConstantV(name), TupleV(bases), pairs], keywords)
    if isinstance(cell, CellV) and issubclass(made.python_type(), type):
        _check_cell(m, name, made, cell.get(m))
    return made


class _BoundOnce(dict[str, Any]):
    """The names of a class body of which a library's metaclass sees every binding, as an enumeration does."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self:
            raise Unsupported(f"`{name}`, which the body of a class binds twice where its metaclass looks on")
        super().__setitem__(name, value)


def _check_cell(m: Machine, name: str, made: Value, held: Value | None) -> None:
    """A metaclass may lose the cell of ``__class__`` that the methods refer to, or give it to another class."""
    if held is None:
        text = f"__class__ not set defining {name!r} as {_repr(m, made)}. Was __classcell__ propagated to type.__new__?"
        m.throw(RuntimeError, text)
    if not m.identical(held, made):
        m.throw(TypeError, f"__class__ set to {_repr(m, held)} defining {name!r} as {_repr(m, made)}")


def _repr(m: Machine, value: Value) -> str:
    return str(m.call(m.wrap(repr), [value], {}).as_constant())[:200]


def _resolved(m: Machine, bases: list[Value]) -> list[Value]:
    """Bases that are classes: ``Generic[T]`` says what it stands for."""
    reals = [stand_in(m, b) for b in bases]
    if all(isinstance(b, type) for b in reals):
        return list(bases)
    resolved = m.real(types.resolve_bases, tuple(reals))
    return [m.wrap(b) for b in resolved]


def _prepared(m: Machine, metaclass: type, name: str, bases: list[Value], keywords: dict[str, Value]) -> dict[str, Any]:
    """What a user's ``__prepare__`` puts into the namespace, if that is a plain dictionary."""
    prepare = m.get_attr(m.wrap(metaclass), "__prepare__")
    namespace = m.call(prepare, [ConstantV(name), TupleV(bases)], keywords)
    if not isinstance(namespace, DictV) or namespace.cls is not dict:
        raise Unsupported("a metaclass whose __prepare__ returns no plain dictionary")
    return {k.as_constant(): v for k, v in namespace.pairs(m)}
