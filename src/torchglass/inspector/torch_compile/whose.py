"""Which function of the user's torch.compile is at: the code of a decorator's wrapper does not say.

@can_return_tuple                    # every forward that it decorates runs the one code object ``wrapper``
def forward(self, ids): ...          # wrapped_name gives "BertModel.forward"
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Iterator
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType, FunctionType
from typing import Any


def variables_being_compiled() -> dict[str, Any]:
    """The locals of torch.compile's frame below the hook: ``globals``, ``locals``, ``closure`` of what it compiles."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == "_compile" and frame.f_code.co_filename.endswith("convert_frame.py"):
            return frame.f_locals
    return {}


def wrapped_name(code: CodeType, compiling: dict[str, Any]) -> str:
    """The qualified name of the function that ``code`` wraps; '' where ``code`` is no wrapper, or nothing says."""
    passes_all_on = CO_VARARGS | CO_VARKEYWORDS
    if "<locals>" not in getattr(code, "co_qualname", "") or code.co_flags & passes_all_on != passes_all_on:
        return ""
    functions = (*_methods(code, compiling.get("locals")), *_wrapped(code, compiling.get("closure")))
    return functions[0].__qualname__ if functions else ""


def _methods(code: CodeType, variables: Any) -> Iterator[FunctionType]:
    """Methods of the first argument's class that run ``code``."""
    names = [*code.co_varnames[: code.co_argcount], code.co_varnames[code.co_argcount + code.co_kwonlyargcount]]
    values = [(variables or {}).get(name) for name in names]
    rest = values.pop()
    first = [*values, *(rest if isinstance(rest, tuple) else ())][:1]
    for cls in type(first[0]).__mro__ if first else ():
        for value in list(vars(cls).values()):
            if type(value) is FunctionType and value.__code__ is code:
                yield value


def _ids(closure: Any) -> list[int]:
    return list(map(id, closure or ()))


def _wrapped(code: CodeType, closure: Any) -> Iterator[FunctionType]:
    """What the function of this code and closure says that it wraps, as ``functools.wraps`` has it say."""
    for function in gc.get_referrers(code) if closure else ():
        if type(function) is FunctionType and _ids(function.__closure__) == _ids(closure):
            wrapped = inspect.unwrap(function)
            if wrapped is not function and type(wrapped) is FunctionType:
                yield wrapped
