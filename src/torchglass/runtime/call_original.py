"""Calls of the user's: of a function with the values of all its parameters, and of what looks at the calling line."""

from __future__ import annotations

import functools
import sys
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType, FrameType, FunctionType
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


def call_from(
    file: str, line: int, name: str, namespace: dict[str, Any], function: Any, /, *args: Any, **kwargs: Any
) -> Any:
    """Call what looks at its caller (logging, warnings) from the user's line; callers further up are the user's too."""
    stacklevel = kwargs.get("stacklevel", 1)
    if type(stacklevel) is int and stacklevel > 1:
        kwargs["stacklevel"] = stacklevel + _frames_of_ours(sys._getframe())
    return FunctionType(_calling(file, line, name), namespace)(function, args, kwargs)


@functools.lru_cache
def _calling(file: str, line: int, name: str) -> CodeType:
    return _CALLING.replace(co_filename=file, co_firstlineno=line, co_name=name, co_qualname=name)


_CALLING = (lambda function, args, kwargs: function(*args, **kwargs)).__code__


def _frames_of_ours(frame: FrameType | None) -> int:
    count = 0
    while frame is not None and (
        frame.f_code.co_name == "transformed" or frame.f_globals.get("__name__", "").startswith("torchglass.")
    ):
        frame, count = frame.f_back, count + 1
    return count
