"""Calling a pure function while capturing, on constants."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from ..errors import Unsupported
from ..guarding.wrap import REBUILT
from ..protocol import Machine, NotConstant, Value
from ..values.arrays import is_array
from ..values.containers import KINDS
from ..values.opaque import is_opaque


def fold(m: Machine, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a pure function on constants."""
    try:
        real_args = [m.settle(a).as_constant() for a in args]
        real_kwargs = {k: m.settle(v).as_constant() for k, v in kwargs.items()}
    except NotConstant:
        names = ", ".join(a.describe() for a in args)
        raise Unsupported(f"`{getattr(function, '__qualname__', function)}` of {names}") from None
    given = (*real_args, *real_kwargs.values())
    if any(_is_programs(m, real) for real in given) and _calls_arguments(function):
        raise Unsupported(f"`{getattr(function, '__qualname__', function)}`, which calls a function of the program's")
    result = m.real(function, *real_args, **real_kwargs)
    if is_opaque(result) and type(result) not in REBUILT and not is_array(result):
        # it would be made once, at capture, and be used up or changed by the first call
        raise Unsupported(f"`{getattr(function, '__qualname__', function)}`, which makes a {type(result).__name__}")
    made = _containers(result)
    if made and not made.isdisjoint(_containers((real_args, *real_kwargs.values()))):
        raise Unsupported(f"`{getattr(function, '__qualname__', function)}`, which gives back what it was given")
    return m.wrap_result(result)


def _is_programs(m: Machine, value: Any) -> bool:
    function = getattr(value, "__func__", value)
    return type(function) is FunctionType and not m.is_stable(function.__globals__.get("__name__"))


def _calls_arguments(function: Any) -> bool:
    """Whether a function may call one that it is given, as ``re.Pattern.sub`` does."""
    return getattr(function, "__module__", None) not in ("builtins", "_operator", "typing")


def _containers(value: Any) -> set[int]:
    """The mutable containers that a value is made of, by their ids."""
    if isinstance(value, (dict, set, *KINDS)):
        items: Any = value.values() if isinstance(value, dict) else value
        return {id(value)}.union(*map(_containers, items))
    return set[int]().union(*map(_containers, value)) if isinstance(value, tuple) else set()
