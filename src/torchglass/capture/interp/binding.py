"""Binding arguments to parameters, as CPython does it, with CPython's messages."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType
from typing import TYPE_CHECKING, Any

from ...bytecode import parameter_names
from ..values.constant import ConstantV
from ..values.containers import TupleV
from ..values.dicts import DictV

if TYPE_CHECKING:
    from .machine import Machine


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
    names = parameter_names(code)
    positional = names[: code.co_argcount]
    keyword_only = names[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    bound: dict[str, Any] = dict(zip(positional, args))
    rest = list(args[len(positional) :])
    accepted = set(positional[code.co_posonlyargcount :]) | set(keyword_only)
    extra: dict[str, Any] = {}
    for name, value in kwargs.items():
        if name in accepted:
            if name in bound:
                m.throw(TypeError, f"{called}() got multiple values for argument '{name}'")
            bound[name] = value
        elif code.co_flags & CO_VARKEYWORDS:
            extra[name] = value
        else:
            m.throw(TypeError, _unexpected(code, called, positional, kwargs, name))
    if rest and not code.co_flags & CO_VARARGS:
        given = sum(name in bound for name in keyword_only)
        m.throw(TypeError, _too_many(code, called, len(args), len(defaults), given))
    for name, value in zip(positional[len(positional) - len(defaults) :], defaults):
        bound.setdefault(name, value)
    for name in keyword_only:
        if name not in bound and name in kwdefaults:
            bound[name] = kwdefaults[name]
    for kind, group in (("positional", positional), ("keyword-only", keyword_only)):
        missing = [f"'{name}'" for name in group if name not in bound]
        if missing:
            plural = "s" * (len(missing) != 1)
            m.throw(
                TypeError,
                f"{called}() missing {len(missing)} required {kind} argument{plural}: {_listed(missing)}",
            )
    index = code.co_argcount + code.co_kwonlyargcount
    if code.co_flags & CO_VARARGS:
        bound[names[index]] = TupleV(rest)
        index += 1
    if code.co_flags & CO_VARKEYWORDS:
        bound[names[index]] = DictV.of([(ConstantV(k), v) for k, v in extra.items()])
    return bound


# --- CPython's words --------------------------------------------------------------------------------------------------
def _listed(names: list[str]) -> str:
    if len(names) < 3:
        return " and ".join(names)
    return f"{', '.join(names[:-1])}, and {names[-1]}"


def _unexpected(code: CodeType, called: str, positional: Sequence[str], kwargs: dict[str, Any], name: str) -> str:
    wrong = [n for n in positional[: code.co_posonlyargcount] if n in kwargs]
    if wrong:
        said = "got some positional-only arguments passed as keyword arguments"
        return f"{called}() {said}: '{', '.join(wrong)}'"
    return f"{called}() got an unexpected keyword argument '{name}'"


def _too_many(code: CodeType, called: str, given: int, defaults: int, keyword_only: int) -> str:
    count = code.co_argcount
    takes = f"from {count - defaults} to {count}" if defaults else str(count)
    plural = "s" * bool(defaults or count != 1)
    also = ""
    if keyword_only:
        also = f" positional argument{'s' * (given != 1)} (and {keyword_only} keyword-only argument"
        also += f"{'s' * (keyword_only != 1)})"
    was = "was" if given == 1 and not keyword_only else "were"
    return f"{called}() takes {takes} positional argument{plural} but {given}{also} {was} given"
