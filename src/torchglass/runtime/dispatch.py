"""The callable that users get: a Python function and what to do on a miss in, a native compiled function out.

    def miss(arguments):                            # the values of all parameters, as the call bound them
        table, entry = compile_for(arguments)       # entry(*arguments, fetched)
        compiled.add_entry(table, entry)
        return entry(*arguments, table.check(arguments))

    compiled = compiled_function(function, miss)

It stands in for the function everywhere: as a method, in ``inspect.signature``, ``functools.wraps``, pickle.
csrc/dispatch.cpp has the calling path.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch  # noqa: F401  (loads the libraries that _native needs)

from .. import _native


def compiled_function(
    function: FunctionType,
    miss: Callable[[tuple[Any, ...]], Any],
    bound: tuple[Any, ...] = (),
    rebuild: Callable[[tuple[Any, ...]], Any] | None = None,
) -> _native.CompiledFunction:
    """A compiled function without entries yet, which looks like ``function``.

    With ``bound``, calls leave out these first arguments, as calls of a bound method do, and ``rebuild(bound)`` makes
    another one for copies of them (``copy.deepcopy`` of a compiled module). TypeError if ``function`` is not a Python
    function or ``miss`` cannot be called.
    """
    compiled = _native.CompiledFunction(function, miss, bound)
    functools.update_wrapper(compiled, function)
    if len(bound) == 1:
        compiled.__wrapped__ = MethodType(function, bound[0])  # so that signature() leaves out self
    if rebuild is not None:
        compiled.rebuild = rebuild
    return compiled
