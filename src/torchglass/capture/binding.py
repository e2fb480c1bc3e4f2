"""Binding arguments to parameters, as CPython does it, with CPython's messages."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

from .values.constant import ConstantV
from .values.containers import TupleV
from .values.dicts import DictV

if TYPE_CHECKING:
    from .machine import Machine

VARARGS, VARKEYWORDS = 0x04, 0x08


def parameter_names(code: CodeType) -> tuple[str, ...]:
    """All parameters in ``co_varnames`` order: positional, keyword-only, ``*args``, ``**kwargs``."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & VARARGS) + bool(code.co_flags & VARKEYWORDS)
    return code.co_varnames[:count]


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
    if rest and not code.co_flags & VARARGS:
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
        elif code.co_flags & VARKEYWORDS:
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
    if code.co_flags & VARARGS:
        bound[names[index]] = TupleV(rest)
        index += 1
    if code.co_flags & VARKEYWORDS:
        bound[names[index]] = DictV.of([(ConstantV(k), v) for k, v in extra.items()])
    return bound
