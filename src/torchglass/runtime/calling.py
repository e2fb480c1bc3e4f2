"""The values of all parameters in, an ordinary call of the function out."""

from __future__ import annotations

from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import FunctionType
from typing import Any


def call_original(function: FunctionType, arguments: tuple[Any, ...]) -> Any:
    """Call the user's function with its bound parameters (co_varnames order)."""
    code = function.__code__
    positional, keyword_only = code.co_argcount, code.co_kwonlyargcount
    args = list(arguments[:positional])
    names = code.co_varnames[positional : positional + keyword_only]
    kwargs = dict(zip(names, arguments[positional:]))
    rest = list(arguments[positional + keyword_only :])
    if code.co_flags & CO_VARARGS:
        args += rest.pop(0)
    if code.co_flags & CO_VARKEYWORDS:
        kwargs.update(rest.pop(0))
    return function(*args, **kwargs)
