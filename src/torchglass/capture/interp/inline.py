"""Following a Python function into its code."""

from __future__ import annotations

from typing import Any

from ...records.sources import Attr
from ..errors import Unsupported
from ..guarding.functions import closure_of, defaults_of, module_of, source_of
from ..meanings.argument_binding import bind_arguments
from ..protocol import Machine, Value
from ..values.binding import home_of
from ..values.functions import FunctionV
from ..values.iterators import GeneratorV
from ..values.overlays import Overlays
from .frame import Frame

CODE_COROUTINE = 0x80 | 0x200


def inline(m: Machine, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Interpret a Python function's body."""
    if isinstance(function, FunctionV):
        code, namespace, module = function.code, function.namespace, function.module_source
        closure = function.closure
        variables = bind_arguments(m, code, function.called(m), args, kwargs, function.defaults, function.kwdefaults)
    else:
        real = function.real
        code, namespace = real.__code__, real.__globals__
        source = source_of(m, function)
        module = module_of(m, real, source)
        if source is not None and not m.is_stable(home_of(real)):
            m.guard(Attr(source, "__code__"), "identity", code, "it was called")
        closure = closure_of(m, real, source)
        variables = bind_arguments(m, code, real.__qualname__, args, kwargs, *defaults_of(m, real, source))
    if code.co_flags & CODE_COROUTINE:
        raise Unsupported(f"calling the coroutine function `{code.co_qualname}`")
    frame = Frame(code, namespace, module, variables, closure)
    _, value = frame.run(m)
    if isinstance(value, GeneratorV) and value.frame is frame:
        value.names = {name: _name_of(m, function, name) for name in value.names}
    return value


def _name_of(m: Machine, function: Any, name: str) -> str:
    if isinstance(function, FunctionV):
        return function.called(m, name)
    written = m.state(Overlays).attribute(function.real, name)
    return str(getattr(function.real, name) if written is None else written.as_constant())
