"""Functions that users put into their programs to talk to the compiler. Capture knows them by identity."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, TypeVar

import torch

from ..bytecode.objects import copy_of_function

F = TypeVar("F", bound=Callable[..., Any])

DISABLED = "_torchglass_disabled"  # True: and what it calls; False: the function alone. csrc/frame_hook.cpp reads it
REASON = "_torchglass_reason"
IN_GRAPH = "_torchglass_in_graph"
CONSTANT = "_dynamo_marked_constant"  # torch.compile's: what either marks, both honour

SUBSTITUTES: dict[int, tuple[Any, FunctionType]] = {}  # by id: the function, and what capture interprets instead


def is_compiling() -> bool:
    """True inside a function that is being compiled, False in eager Python."""
    return False


def graph_break() -> None:
    """End the graph here; the rest goes on in a graph of its own. Does nothing in eager Python."""


def disable(function: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """What compiled code calls as ordinary Python and does not look inside; without ``function``, a decorator.

    A function or method, or a module or class: its ``forward``, or else its ``__call__``. ``recursive=False``: the
    functions that it calls may be compiled. ``reason`` is told where the graph breaks for it.
    """
    if function is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    _refuse_uncallable("disable", function)
    if isinstance(function, (type, torch.nn.Module)):
        name = "forward" if hasattr(function, "forward") else "__call__"
        setattr(function, name, disable(getattr(function, name), recursive, reason=reason))
        return function
    if isinstance(function, MethodType):
        return MethodType(disable(function.__func__, recursive, reason=reason), function.__self__)
    made = _twin(function)
    vars(made)[DISABLED] = recursive
    vars(made)[REASON] = reason
    return made


def _refuse_uncallable(marker: str, function: Any) -> None:
    if not callable(function):
        raise TypeError(f"tg.{marker}: `function` is {function!r}, which cannot be called")


def _twin(function: Callable[..., Any]) -> Any:
    """A Python function that does the same: a mark on it means nothing to who has the original."""
    if type(function) is FunctionType:
        return copy_of_function(function)
    return functools.wraps(function)(lambda *args, **kwargs: function(*args, **kwargs))


def allow_in_graph(function: F) -> F:
    """Mark a function of tensors, or each of several: it becomes one node of the graph, and its body is not captured.

    It must be pure but for its results, take tensors and constants, and return tensors.
    """
    for one in function if isinstance(function, (list, tuple)) else (function,):
        _refuse_uncallable("allow_in_graph", one)
        if type(one) is FunctionType:  # what has no Python code is a node anyway, or cannot be one
            setattr(one, IN_GRAPH, True)
    return function


def is_exporting() -> bool:
    """False: there is no export here."""
    return False


def assume_constant_result(function: F) -> F:
    """Mark a function: called with constants and objects, it gives what it gave when the caller was compiled."""
    _refuse_uncallable("assume_constant_result", function)
    setattr(function, CONSTANT, True)
    return function


def substitute_in_graph(
    original: Callable[..., Any], *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[FunctionType], Callable[..., Any]]:
    """A decorator of a Python function that capture interprets where ``original``, mostly one in C, is called.

    The other arguments are torch.compiler's and change nothing: constants fold always, signatures are for the caller.
    """
    if not callable(original):
        raise TypeError(f"substitute_in_graph expects a function, not {original!r}")

    def enter(function: FunctionType) -> Callable[..., Any]:
        if type(function) is not FunctionType:
            raise TypeError(f"@substitute_in_graph expects a Python function, not {function!r}")
        SUBSTITUTES[id(original)] = original, function
        return functools.wraps(function)(lambda *args, **kwargs: original(*args, **kwargs))

    return enter


def nested_compile_region(function: Any = None, **options: Any) -> Any:
    """The function itself; without one, a decorator. Equal blocks are compiled once without being named."""
    if function is None:
        return nested_compile_region
    _refuse_uncallable("nested_compile_region", function)
    return function


def cudagraph_mark_step_begin() -> None:
    """Does nothing: no memory is taken back from one call for the next."""
