"""Binding arguments to parameters: CPython does it, and words its own errors, by calling a function of that signature.

def f(a, b=2, *rest, key): ...     f(x, key=y)   ->   {"a": x, "b": Lazy(2), "key": y, "rest": ()}
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType, FunctionType
from typing import Any

from ...bytecode import parameter_names
from ..protocol import Machine
from ..values.constant import ConstantV
from ..values.containers import TupleV
from ..values.dicts import DictV

VARIADIC = CO_VARARGS | CO_VARKEYWORDS


def bind_arguments(
    m: Machine,
    code: CodeType,
    called: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    defaults: Sequence[Any],
    kwdefaults: dict[str, Any],
) -> dict[str, Any]:
    """Local variables of a call; raises the user's TypeError, which names what was ``called``, when they do not fit."""
    variadic = code.co_flags & VARIADIC
    if not kwargs and not variadic and not code.co_kwonlyargcount and len(args) == code.co_argcount:
        return dict(zip(code.co_varnames, args))
    names = parameter_names(code)
    shell = FunctionType(_shell(called, names, code.co_argcount, code.co_posonlyargcount, variadic), {})
    shell.__defaults__, shell.__kwdefaults__ = tuple(defaults), kwdefaults
    try:
        bound: dict[str, Any] = shell(*args, **kwargs)
    except TypeError as error:
        m.throw(TypeError, *error.args)
    if code.co_flags & CO_VARKEYWORDS:
        extra = bound[names[-1]]
        bound[names[-1]] = DictV.of([(ConstantV(name), value) for name, value in extra.items()])
    if code.co_flags & CO_VARARGS:
        rest = names[code.co_argcount + code.co_kwonlyargcount]
        bound[rest] = TupleV(list(bound[rest]))
    return bound


def _variables() -> dict[str, Any]:
    return locals()


@functools.lru_cache(4096)
def _shell(called: str, names: tuple[str, ...], positional: int, positional_only: int, variadic: int) -> CodeType:
    """Code that takes such arguments and returns them by name, in frames of what is ``called`` so."""
    return _variables.__code__.replace(
        co_qualname=called,
        co_varnames=names,
        co_nlocals=len(names),
        co_argcount=positional,
        co_posonlyargcount=positional_only,
        co_kwonlyargcount=len(names) - positional - variadic.bit_count(),
        co_flags=_variables.__code__.co_flags | variadic,
    )
