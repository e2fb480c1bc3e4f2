"""What entry code calls to make objects whose construction was interpreted: instances, functions, iterators.

reconstruct.instance(BaseModelOutput, {"last_hidden_state": t0}, items={"last_hidden_state": t0})
"""

from __future__ import annotations

import ctypes
import logging
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

import torch

from .._native import number_tensor
from ..bytecode.objects import fill as fill
from ..bytecode.objects import instance as instance
from ..bytecode.objects import new_class as new_class
from ..process import fallbacks, interrupts
from ..records.origin import Origin
from ..torch_compat import Modes as Modes
from ..torch_compat import saved_tensor_hooks as saved_tensor_hooks
from ..torch_compat import saved_tensor_hooks_active
from .call_original import call_from as call_from
from .call_original import call_original

log = logging.getLogger("torchglass")


def __getattr__(name: str) -> Any:
    """``size_tensor``, with which all operators of ours load: when entry code first asks for it."""
    if name != "size_tensor":
        raise AttributeError(name)
    from ..operators.size_tensor import size_tensor

    globals()[name] = size_tensor
    return size_tensor


def function(
    code: types.CodeType,
    namespace: dict[str, Any],
    defaults: tuple[Any, ...] = (),
    kwdefaults: dict[str, Any] | None = None,
    cells: tuple[Any, ...] = (),
    attributes: dict[str, Any] | None = None,
    annotations: dict[str, Any] | None = None,
) -> types.FunctionType:
    """A function of the user's program with its closure."""
    made = types.FunctionType(code, namespace, code.co_name, defaults or None, cells or None)
    made.__kwdefaults__ = kwdefaults or None
    if annotations:
        made.__annotations__ = annotations
    for key, value in (attributes or {}).items():
        setattr(made, key, value)
    return made


def cell(*content: Any) -> types.CellType:
    """A closure cell, empty without an argument."""
    return types.CellType(*content)


def delete_global(namespace: dict[str, Any], name: str) -> None:
    """``del name`` of a global."""
    if name not in namespace:
        raise NameError(f"name {name!r} is not defined", name=name)
    del namespace[name]


def scalar(value: float, dtype: torch.dtype) -> torch.Tensor:
    """A number as an input of a graph, of no dimensions. Undone for one that is too large."""
    try:
        return number_tensor(value, dtype)
    except OverflowError as error:
        raise Undone(str(error)) from error


def number(value: Any, kind: type) -> Any:
    """``value``, which was a ``kind`` when the entry was made; TypeError if it is none now."""
    if type(value) is not kind:
        raise TypeError(f"a number was {kind.__name__} and is {type(value).__name__}")
    return value


# What ``next`` gives entry code at the end of a loop.
END = object()


def exception(
    cls: type[BaseException],
    args: tuple[Any, ...],
    attributes: dict[str, Any],
    initialize: Callable[..., None] | None = None,
    **named: Any,
) -> BaseException:
    """An exception made without calling its ``__init__``, which capture has interpreted; only its builtin class's."""
    made: BaseException = cls.__new__(cls, *args)
    if initialize is not None:
        initialize(made, *args, **named)
    else:
        made.args = args
    made.__dict__.update(attributes)
    return made


def group(
    cls: type[BaseExceptionGroup[Any]],
    message: str,
    exceptions: tuple[BaseException, ...],
    args: tuple[Any, ...],
    attributes: dict[str, Any],
) -> BaseExceptionGroup[Any]:
    """An exception group, made as ``exception`` makes others."""
    made = BaseExceptionGroup.__new__(cls, message, exceptions)
    made.args = args
    made.__dict__.update(attributes)
    return made


def array_view(
    root: Any, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, writeable: bool
) -> Any:
    """A view of a NumPy array that is contiguous, in either order."""
    buffer = root if root.flags.c_contiguous else root.T
    view = type(root)(shape, dtype, buffer, offset, strides)
    view.flags.writeable = writeable
    return view


def raised(error: BaseException) -> BaseException:
    """An exception like one that was raised while capturing: each call has its own, with its own context.

    What is not in ``args`` (the name of an AttributeError or NameError) is taken over.
    """
    cls = type(error)
    made = cls(*error.args) if cls.__module__ == "builtins" else exception(cls, error.args, error.__dict__)
    for name in ("name", "obj", "path"):
        if hasattr(error, name):
            setattr(made, name, getattr(error, name))
    made.__suppress_context__ = error.__suppress_context__
    return made


def caught(error: BaseException) -> BaseException:
    """An exception for a handler to handle: it has a traceback, which CPython relies on where a `with` is left.

    The traceback names the entry's line, but holds a frame of its own: that of the entry would keep the entry's
    variables, among them the exception, until the collector comes.
    """
    if error.__traceback__ is None:
        entry = sys._getframe(1)
        at = {f"co_{part}": getattr(entry.f_code, f"co_{part}") for part in ("filename", "name", "qualname")}
        code = _nothing.__code__.replace(**at, co_firstlineno=entry.f_lineno)
        frame = types.FunctionType(code, {})().gi_frame
        error.__traceback__ = TracebackType(None, frame, frame.f_lasti, entry.f_lineno)
    return error


def _nothing() -> Iterator[None]:
    """A generator has a frame before it runs, and none calls it."""
    yield


def advanced(values: Iterable[Any], steps: int) -> Iterator[Any]:
    """An iterator over ``values`` from which ``steps`` items were taken."""
    iterator = iter(values)
    for _ in range(steps):
        next(iterator, None)
    return iterator


def going_down(values: list[Any] | tuple[Any, ...], index: int) -> Iterator[Any]:
    """What ``reversed(values)`` made, before the item at ``index``; -1 where it has ended."""
    iterator: Any = reversed(values)
    for _ in iterator if index < 0 else ():
        pass
    if index >= 0:
        iterator.__setstate__(index)
    return iterator


def rest(values: Iterable[Any]) -> Iterator[Any]:
    """An iterator over the items that a loop has not yet taken."""
    return iter(values)


def finished() -> Iterator[Any]:
    """A generator that has returned."""
    made: Iterator[Any] = (item for item in ())  # type: ignore[var-annotated]
    next(made, None)
    return made


class Undone(Exception):
    """A graph failed, and what it had written to its inputs is as it was."""


class Undoable:
    """A graph that writes to some of its inputs, which are copied until it has run once: what fails for want of a
    kernel (fake tensors do not know) fails then. After that ``namespaces`` hold the graph itself; there are none where
    the graph has operations that fail for some values, and then the inputs are copied at each run. What autodiff has
    made pure raises Undone itself.
    """

    def __init__(self, graph: Callable[..., Any], written: tuple[int, ...]) -> None:
        self.graph = graph
        self.written = written
        self.namespaces: list[dict[str, Any]] = []

    def __call__(self, *inputs: Any) -> Any:
        copies = [inputs[n].detach().clone() for n in self.written]
        try:
            results = self.graph(*inputs)
        except Undone:
            raise
        except Exception as error:
            for n, copy in zip(self.written, copies):
                inputs[n].detach().copy_(copy)
            raise Undone(str(error)) from error
        for namespace in self.namespaces:
            namespace["graph_0"] = self.graph
        return results


class Random:
    """The states of the default random generators and of ``others`` when made; ``restore`` makes them so again."""

    def __init__(self, *others: torch.Generator) -> None:
        self.others = [(generator, generator.get_state()) for generator in others]
        self.cpu = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []

    def restore(self) -> None:
        torch.set_rng_state(self.cpu)
        for generator, state in self.others:
            generator.set_state(state)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)


def plainly(error: Exception | str, function: types.FunctionType, arguments: tuple[Any, ...]) -> Any:
    """Run the user's function in place of its entry, where ``error`` came up before anything had happened."""
    log.info("`%s` runs eagerly for this call: %s", function.__name__, error)
    if isinstance(error, str):
        return call_original(function, arguments)
    # the graph's failure, which is being handled here, is no part of the program's story
    failure = error.__cause__ if isinstance(error, Undone) else error
    if failure is not None and _is_from_outside(failure):
        raise failure
    set_handled(failure.__context__ if failure is not None else None)
    try:
        return call_original(function, arguments)
    finally:
        set_handled(error)


set_handled = ctypes.pythonapi.PyErr_SetHandledException
"""What ``sys.exception()`` gives from here on in the frame that handles an exception, and those that it calls."""
set_handled.argtypes, set_handled.restype = [ctypes.py_object], None


def without_graph(error: Exception, function: types.FunctionType, arguments: tuple[Any, ...]) -> Any:
    """Run the user's function after its graph raised ``error``: on the data of this call an operation fails. Where the
    function then goes through, it caught that itself or the graph is wrong: that is said once.

    Not under hooks for saved tensors: they have seen the graph's tensors, and ``torch.utils.checkpoint`` ends its
    second run by an exception from such a hook.
    """
    from ..operators.size_tensor import OutOfRange

    code, cause = function.__code__, error.__cause__ or error
    if isinstance(cause, OutOfRange):  # before the graph gave anything
        return plainly(error, function, arguments)
    if saved_tensor_hooks_active():
        raise cause
    result = plainly(error, function, arguments)
    fallbacks.say(
        f"a graph of `{function.__name__}` failed and the function itself, which ran eagerly instead, did not: "
        f"{type(cause).__name__}: {cause}",
        Origin(code.co_filename, code.co_firstlineno, code.co_qualname),
        _place_of(cause),
        key=(code, "its graph failed"),
    )
    return result


def _is_from_outside(error: BaseException) -> bool:
    """Whether this struck a graph that did not fail: a signal's handler raised it, or another thread sent it. Of the
    latter those are found whose class is the program's, with nothing of the program on the way.
    """
    if interrupts.is_raised_by_handler(error):
        return True
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not frames or type(error).__module__.partition(".")[0] in (*_LIBRARIES, "builtins"):
        return False
    last = frames[-1]
    of_library = last.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES
    return of_library or last.f_code.co_filename.endswith(_GENERATED)


def _place_of(error: BaseException) -> str:
    """``in .../forward_wrapper.py, line 20``: the last line of a generated file on the way to the error."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if file.endswith(_GENERATED):
            place = f"in {file}, line {line}"
    return place


_LIBRARIES = ("torch", "torchglass")
_GENERATED = ("transformed.py", "captured.py", "forward.py", "backward.py", "_wrapper.py")


def begun(made: types.GeneratorType[Any, Any, Any]) -> types.GeneratorType[Any, Any, Any]:
    """A generator of a resume function's code, taken to where it is to wait."""
    next(made)
    return made


def generator(made: types.GeneratorType[Any, Any, Any], *names: str) -> types.GeneratorType[Any, Any, Any]:
    """A generator that stands for one of the program's, under its name and qualified name."""
    if names:
        made.__name__, made.__qualname__ = names
    return made


def enter(manager: Any) -> tuple[Any, Any]:
    """What ``with manager`` does first: its bound ``__exit__``, and what ``__enter__`` returned."""
    cls = type(manager)
    for name in ("__enter__", "__exit__"):
        if not hasattr(cls, name):
            raise TypeError(f"'{cls.__name__}' object does not support the context manager protocol")
    leave = cls.__exit__.__get__(manager, cls)
    return leave, cls.__enter__(manager)


def merge(target: dict[Any, Any], more: Any) -> None:
    """Keyword arguments of ``**more`` into ``target``, as a call merges them."""
    for key in more.keys():  # noqa: SIM118
        if key in target:
            raise TypeError(f"got multiple values for keyword argument '{key}'")
        target[key] = more[key]


def import_from(module: Any, name: str) -> Any:
    """``from module import name``."""
    return getattr(__import__(module.__name__, fromlist=[name]), name)
