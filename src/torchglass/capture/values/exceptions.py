"""What ``raise`` raises, and what an exception is raised in the course of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ...bytecode.objects import namesake
from ..errors import UserError
from ..protocol import Machine, Value
from .constant import TRUE, ConstantV
from .instance import ExceptionV, InstanceV
from .known import KnownV


def handled(m: Machine) -> Value | None:
    """The exception being handled in the innermost frame that handles one (``sys.exc_info``)."""
    return next((error for f in reversed(m.frames) if (error := f.handled()) is not None), None)


def chain(m: Machine, value: Value, anew: bool = False) -> None:
    """Give an exception raised in a handler its context; another one if it is raised ``anew``."""
    context = handled(m)
    if not isinstance(value, ExceptionV) or value.real is not None or context is None or context is value:
        return
    if not anew and "__context__" in value.slots:
        return
    value.slots["__context__"] = context
    link: Any = context
    seen: set[int] = set()
    while isinstance(link, ExceptionV) and id(link) not in seen:  # which must not lead back to it
        seen.add(id(link))
        below = link.slots.get("__context__")
        if below is value:
            link.slots["__context__"] = ConstantV(None)
        link = below if below is not value else None


def raise_over(m: Machine, error: Exception, cause: Value) -> NoReturn:
    """``raise error from cause``."""
    value = ExceptionV(type(error), [m.wrap_result(a) for a in error.args], error)
    value.slots |= {"__cause__": cause, "__context__": cause, "__suppress_context__": TRUE}
    raise UserError(value) from None


def _raising(error: Any) -> NoReturn:
    raise error


def exception_from(m: Machine, value: Value, user: Callable[[Any], Any] = _raising) -> InstanceV:
    """What ``raise value`` raises: classes are called. ``user``, which takes one, words the error."""
    if isinstance(value, KnownV) and isinstance(value.real, type) and issubclass(value.real, BaseException):
        cls, value = value.real, m.call(value, [], {})
        if not issubclass(value.python_type(), BaseException):
            kind = value.python_type()
            text = f"calling {cls} should have returned an instance of BaseException, not {kind}"
            m.throw(TypeError, text)
    if not isinstance(value, InstanceV) or not issubclass(value.cls, BaseException):
        m.throw_as(user, namesake(value.python_type()))
    return value
