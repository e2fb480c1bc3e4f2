"""Binding arguments to parameters, as CPython does it, with CPython's messages."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType
from typing import TYPE_CHECKING, Any

from ..bytecode import parameter_names
from .values.constant import ConstantV
from .values.containers import TupleV
from .values.dicts import DictV

if TYPE_CHECKING:
    from .machine import Machine


def bind_arguments(
    m: Machine,
    code: CodeType,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    defaults: Sequence[Any],
    kwdefaults: dict[str, Any],
) -> dict[str, Any]:
    """Local variables of a call; raises the user's TypeError when arguments do not fit."""
    names = parameter_names(code)
    positional = names[: code.co_argcount]
    keyword_only = names[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    bound: dict[str, Any] = dict(zip(positional, args))
    rest = list(args[len(positional) :])
    if rest and not code.co_flags & CO_VARARGS:
        m.throw(
            TypeError,
            f"{code.co_qualname}() takes {len(positional)} positional argument{'s' * (len(positional) != 1)} "
            f"but {len(args)} {'was' if len(args) == 1 else 'were'} given",
        )
    accepted = set(positional[code.co_posonlyargcount :]) | set(keyword_only)
    extra: dict[str, Any] = {}
    for name, value in kwargs.items():
        if name in accepted:
            if name in bound:
                m.throw(TypeError, f"{code.co_qualname}() got multiple values for argument '{name}'")
            bound[name] = value
        elif code.co_flags & CO_VARKEYWORDS:
            extra[name] = value
        else:
            m.throw(TypeError, f"{code.co_qualname}() got an unexpected keyword argument '{name}'")
    for name, value in zip(positional[len(positional) - len(defaults) :], defaults):
        bound.setdefault(name, value)
    for name in keyword_only:
        if name not in bound and name in kwdefaults:
            bound[name] = kwdefaults[name]
    missing = [n for n in (*positional, *keyword_only) if n not in bound]
    if missing:
        listed = " and ".join(f"'{n}'" for n in missing)
        m.throw(
            TypeError,
            f"{code.co_qualname}() missing {len(missing)} required argument{'s' * (len(missing) != 1)}: {listed}",
        )
    index = code.co_argcount + code.co_kwonlyargcount
    if code.co_flags & CO_VARARGS:
        bound[names[index]] = TupleV(rest)
        index += 1
    if code.co_flags & CO_VARKEYWORDS:
        bound[names[index]] = DictV.of([(ConstantV(k), v) for k, v in extra.items()])
    return bound
