"""The parameters of a code object: names in the order in which a call's values are bound."""

from __future__ import annotations

from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType


def parameter_names(code: CodeType) -> tuple[str, ...]:
    """All parameters in ``co_varnames`` order: positional, keyword-only, ``*args``, ``**kwargs``."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    return code.co_varnames[:count]
