"""print, log records and warnings: they wait until the graph has run, and those that nobody is shown are nothing.

    log.debug("shape %s", x.shape)   # below the logger's level: nothing, and the entry relies on all levels that say so
    log.error("NaN in loss")         # made by the entry, from the program's line, when the graph has run

The Python code of ``logging`` and ``warnings`` is interpreted; here is what it ends in. What cannot wait ends the
graph. A warning that one of PyTorch's own functions gives is shown while it is captured, if it is one to be shown once.
"""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, NoneType
from typing import Any, NamedTuple

from ... import torch_compat
from ...records.sources import Fixed
from ..errors import Shown, Unsupported, UserError
from ..polyfills import warnings as polyfill_warnings
from ..protocol import Frame, Machine, Value
from ..values.constant import NONE, ConstantV
from ..values.effects_log import CallerPlace, DeferredCall, EffectsLog, is_stream
from ..values.exceptions import exception_from
from ..values.instance import ExceptionV, InstanceV
from ..values.known import CalledAtTheEnd, KnownV
from ..values.overlays import Overlays
from ..values.sealing import refuse_when_sealed
from .deferred_calls import as_of_now, may_wait, nothing_written
from .registry import handles


# --- print ------------------------------------------------------------------------------------------------------------
@handles(print)
def print_(m, args, kwargs):
    """Made when the graph has run, of what there is to show now: the objects, copies of them, or their texts."""
    refused = Unsupported("print()", "print outside the compiled function")
    written = m.state(Overlays).attribute(sys, "stdout")
    if written is not None and getattr(written, "real", None) is not sys.stdout:
        kwargs = {"file": written, **kwargs}  # by `contextlib.redirect_stdout` inside
    before = len(m.state(EffectsLog).calls)
    if not may_wait(m) or not all(map(_is_option, kwargs, kwargs.values())):
        raise refused
    shown = _all_of([as_of_now(m, arg) or _text(m, arg) for arg in args])
    if shown is None or len(m.state(EffectsLog).calls) != before:
        raise refused  # or it prints while it makes its text
    m.state(EffectsLog).calls.append(DeferredCall(KnownV(print), shown, kwargs))
    return NONE


def _all_of(values: list[Value | None]) -> tuple[Value, ...] | None:
    found = tuple(value for value in values if value is not None)
    return found if len(found) == len(values) else None


def _text(m: Machine, value: Value) -> Value | None:
    """The text of an object; None where it has none here, or where reading all of it would be relied on."""
    if getattr(value, "real", None) is not None and not isinstance(value, InstanceV):
        return None
    try:
        text = m.call(m.wrap(str), [value], {})
    except UserError:
        return None  # what came before it has been printed
    return text if isinstance(text, ConstantV) else None


def _is_option(name: str, value: Value) -> bool:
    """Whether this is an option of ``print`` that may wait."""
    if isinstance(value, ConstantV):
        kinds = {"sep": (str, NoneType), "end": (str, NoneType), "file": (NoneType,), "flush": (bool, int)}
        return issubclass(value.python_type(), kinds.get(name, ()))
    return name == "file" and is_stream(getattr(value, "real", None))


# --- logging ----------------------------------------------------------------------------------------------------------
@handles(logging.Logger.isEnabledFor)
def is_enabled_for(m, args, kwargs):
    """Without its cache, which another change of a level empties: the levels themselves are relied on."""
    manager = m.wrap(logging.Logger.manager, Fixed(logging.Logger.manager))
    return m.call(m.wrap(polyfill_warnings.is_enabled_for), [*args, manager], kwargs)


RECORD = ("self", "level", "msg", "args", "exc_info", "extra", "stack_info", "stacklevel")
HINT = "log outside the compiled function"


@handles(logging.Logger._log)
def write_record(m, args, kwargs):
    given = {**dict(zip(RECORD, args)), **kwargs}
    logger = given["self"].real
    refused = Shown(f"a log record of `{logger.name}`" if logger else "a log record", HINT)
    level = given.get("stacklevel", ConstantV(1))
    frame = _frame_at(m, level.as_constant(), logging.Logger._log.__code__.co_filename) if level.is_constant() else None
    looks = not (_is_false(given.get("stack_info")) and _is_false(given.get("exc_info")))
    if not may_wait(m) or frame is None or looks or not isinstance(logger, logging.Logger) or _is_touched(m, logger):
        raise refused
    shown = _all_of([as_of_now(m, given[name]) for name in ("msg", "args", "extra") if name in given])
    if shown is None:
        raise refused
    named = {"extra": shown[2]} if "extra" in given else {}
    at = frame.origin()
    caller = CallerPlace(at.file, at.line, at.function, frame.namespace)
    function = KnownV(logging.Logger._log)
    m.state(EffectsLog).calls.append(DeferredCall(function, (given["self"], given["level"], *shown[:2]), named, caller))
    return NONE


def _is_false(value: Value | None) -> bool:
    return value is None or (isinstance(value, ConstantV) and not value.as_constant())


def _is_touched(m: Machine, logger: logging.Logger) -> bool:
    """Whether the program may have changed what becomes of a record: it wrote to a logger's or handler's state, or to
    anything while these run code of the program's.
    """
    if nothing_written(m):
        return False
    parts: list[Any] = []
    chain: logging.Logger | None = logger
    while chain is not None:
        parts += [chain, chain.handlers, chain.filters]
        parts += [part for h in chain.handlers for part in (h, h.filters, h.formatter, *h.filters)] + chain.filters
        chain = chain.parent if chain.propagate else None
    written = {id(getattr(v, "real", None)) for v in m.mutated.values()} | {
        owner for owner, _ in m.state(Overlays).attributes
    }
    at_home = all(type(part).__module__ in ("builtins", "logging", "logging.handlers") for part in parts)
    return not at_home or any(id(part) in written for part in parts)


def _left_to_python(function: Any) -> None:
    @handles(function)
    def refuse(m, args, kwargs):
        raise Unsupported(f"`{function.__qualname__}`, which changes what is logged", HINT)


for _function in (
    logging.basicConfig, logging.disable, logging.captureWarnings, logging.shutdown, logging.Logger.setLevel,
):  # fmt: skip
    _left_to_python(_function)


@handles(logging.getLogger)
def get_logger(m, args, kwargs):
    """The same logger for the same name, always."""
    return m.wrap(m.real(logging.getLogger, *[a.as_constant() for a in args]))


# --- warnings ---------------------------------------------------------------------------------------------------------
class Place(NamedTuple):
    """Where a warning is said to be: a line of a file, and the module that its filters and its registry are of."""

    file: str
    line: int
    module: str
    namespace: dict[str, Any] | None


NAMES = ("message", "category", "stacklevel", "source")
NAMES_EXPLICIT = ("message", "category", "filename", "lineno", "module")


@handles(warnings.warn)
def warn(m, args, kwargs):
    given = {**dict(zip(NAMES, args)), **kwargs}
    if "skip_file_prefixes" in given or not given:
        raise Shown("`warnings.warn` called with these arguments")
    level = given.get("stacklevel", ConstantV(1))
    place = _of_frame(m, level.as_constant()) if level.is_constant() else None
    inlined = m.is_stable(m.frames[-1].namespace.get("__name__"))
    return _warn(m, given["message"], given.get("category", NONE), place, inlined)


@handles(warnings.warn_explicit)
def warn_explicit(m, args, kwargs):
    given = {**dict(zip(NAMES_EXPLICIT, args)), **kwargs}
    if len(given) > len(set(given) & set(NAMES_EXPLICIT)) or len(args) > len(NAMES_EXPLICIT):
        raise Shown("`warnings.warn_explicit` called with these arguments")
    file, line, module = (m.settle(given.get(name, NONE)).as_constant() for name in ("filename", "lineno", "module"))
    module = (file.removesuffix(".py") or "<unknown>") if module is None else module
    return _warn(m, given["message"], given["category"], Place(file, line, module, None), False)


@handles(warnings._filters_mutated)  # type: ignore[attr-defined]
def filters_mutated(m, args, kwargs):
    refuse_when_sealed(m)
    m.mutated.setdefault(id(warnings), CalledAtTheEnd(warnings._filters_mutated))  # type: ignore[attr-defined]
    return NONE


def _frame_at(m: Machine, level: int, inner: str = "") -> Frame | None:
    """The frame that ``stacklevel`` leads to, not counting code of the file ``inner``; None beyond the captured
    function, whose callers differ.
    """
    frames = [f for f in m.frames if not f.module_is_ours() and f.code.co_filename != inner]
    level = max(level, 1)
    # a module's forward is called without the frames that eager has of `nn.Module.__call__`
    past_a_module = any(frame.code.co_name == "forward" for frame in frames[len(frames) - level + 1 :])
    return frames[-level] if level <= len(frames) and not past_a_module else None


def _of_frame(m: Machine, level: int) -> Place | None:
    frame = _frame_at(m, level)
    if frame is None:
        return None
    at = frame.origin()
    return Place(at.file, at.line, frame.namespace.get("__name__") or "<string>", frame.namespace)


def _warn(
    m: Machine, message: Value, category: Value, place: Place | None, pytorchs: bool, waits: bool = True
) -> Value:
    text, kind = _text_and_category(m, message, category)
    action = _action(m, text, kind, place)
    if action == "ignore":
        return NONE
    if waits and action == "error":
        raise UserError(exception_from(m, message if isinstance(message, ExceptionV) else _made(m, text, kind)))
    if waits and place is not None and action is not None and may_wait(m) and not _filters_touched(m):
        registry = place.namespace.setdefault("__warningregistry__", {}) if place.namespace is not None else None
        where = [ConstantV(place.file), ConstantV(place.line), ConstantV(place.module), KnownV(registry)]
        given = (ConstantV(text), m.wrap(kind), *where[: 4 if registry is not None else 3])
        m.state(EffectsLog).calls.append(DeferredCall(KnownV(warnings.warn_explicit), given))
        return NONE
    if action in SHOWN_ONCE and pytorchs and place is not None:
        _show(m, text, kind, place)
        return NONE
    raise Shown("a warning", "warn outside the compiled function")


SHOWN_ONCE = ("default", "module", "once")


def _made(m: Machine, text: str, kind: type[Warning]) -> Value:
    return m.call(m.wrap(kind), [ConstantV(text)], {})


def _filters_touched(m: Machine) -> bool:
    """Whether the program has written to what decides which warnings are shown, and how."""
    if id(warnings) in m.mutated or id(warnings.filters) in {id(getattr(v, "real", None)) for v in m.mutated.values()}:
        return True
    return any(module == "warnings" for module, _ in m.state(Overlays).globals)


def _text_and_category(m: Machine, message: Value, category: Value) -> tuple[Any, Any]:
    if isinstance(message, ExceptionV):
        if not issubclass(message.cls, Warning) or len(message.args) != 1:
            raise Shown("a warning that is no text")
        return m.settle(m.call(m.wrap(str), [message], {})).as_constant(), message.cls
    message = m.settle(message)
    if not message.is_constant():
        raise Shown("a warning whose text is not known here")
    kind = category.as_constant()
    return message.as_constant(), UserWarning if kind is None else kind


def _action(m: Machine, text: Any, kind: Any, place: Place | None) -> str | None:
    """What the filters say of a warning, which are relied on; None where only its place would tell."""
    importlib.import_module("sympy")  # which fake tensors load, and which adds a filter
    where = (place.module, place.line) if place is not None else (None, None)
    module = m.wrap(warnings)
    filters, otherwise = m.get_attr(module, "filters"), m.get_attr(module, "defaultaction")
    asked = [m.wrap_result(value) for value in (text, kind, *where)]
    found = m.call(m.wrap(polyfill_warnings.action), [*asked, filters, otherwise], {})
    return found.as_constant()


def _show(m: Machine, text: str, kind: type[Warning], place: Place) -> None:
    registry = (place.namespace or {}).setdefault("__warningregistry__", {})
    m.real(warnings.warn_explicit, text, kind, place.file, place.line, place.module, registry)


# --- warnings of PyTorch's operations ---------------------------------------------------------------------------------
@contextmanager
def watched(m: Machine) -> Iterator[None]:
    """While an operation is tried on fakes: what PyTorch's Python code warns of there, the program is taken to."""
    seen: list[tuple[Any, Any, Place | None]] = []

    def hear(message: Any, category: Any, frame: FrameType, level: int) -> None:
        seen.append((message, category, _of_caller(m, frame, max(level, 1))))

    with torch_compat.warnings_heard(hear):
        yield
    for message, category, place in seen:
        _warn(m, m.wrap_result(message), m.wrap_result(category), place, True, waits=False)


def _of_caller(m: Machine, frame: FrameType | None, level: int) -> Place | None:
    """Where ``stacklevel`` leads to from a function of PyTorch's, which the captured program has called."""
    while frame is not None and not str(frame.f_globals.get("__name__")).startswith("torchglass."):
        if level == 1:
            namespace = frame.f_globals
            return Place(frame.f_code.co_filename, frame.f_lineno, namespace.get("__name__", "<string>"), namespace)
        frame, level = frame.f_back, level - 1
    return _of_frame(m, level)
