"""Log records and warnings: those that nobody is shown are nothing, others end the graph as ``print`` does.

    log.debug("shape %s", x.shape)   # below the logger's level: nothing, and the entry relies on all levels that say so
    log.error("NaN in loss")         # done by Python between two graphs

The Python code of ``logging`` and ``warnings`` is interpreted; here is what it ends in. A warning that one of PyTorch's
own functions gives is shown while it is captured, if it is one to be shown once.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import torch_compat
from ...records.sources import Fixed
from ..errors import Shown, Unsupported
from ..polyfills import warnings as polyfill_warnings
from ..values.base import Value
from ..values.constant import NONE, ConstantV
from ..values.instance import ExceptionV
from ..values.known import CalledAtTheEnd
from .registry import handles

if TYPE_CHECKING:
    from ..interp.machine import Machine


# --- logging ----------------------------------------------------------------------------------------------------------
@handles(logging.Logger.isEnabledFor)
def is_enabled_for(m, args, kwargs):
    """Without its cache, which another change of a level empties: the levels themselves are relied on."""
    manager = m.wrap(logging.Logger.manager, Fixed(logging.Logger.manager))
    return m.call(m.wrap_known(polyfill_warnings.is_enabled_for), [*args, manager], kwargs)


@handles(logging.Logger._log)
def write_record(m, args, kwargs):
    raise Shown(f"a log record of `{args[0].real.name}`" if args[0].real else "a log record", HINT)


HINT = "log outside the compiled function"


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
    return m.wrap_known(m.real(logging.getLogger, *[a.as_constant() for a in args]))


# --- warnings ---------------------------------------------------------------------------------------------------------
class Place(NamedTuple):
    """Where a warning is said to be: a line of a file, and the module that its filters and its registry are of."""

    file: str
    line: int
    module: str
    namespace: dict[str, Any]


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
    file, line, module = (m.settle(given.get(name, NONE)).as_constant() for name in ("filename", "lineno", "module"))
    module = (file.removesuffix(".py") or "<unknown>") if module is None else module
    return _warn(m, given["message"], given["category"], Place(file, line, module, {}), False)


@handles(warnings._filters_mutated)  # type: ignore[attr-defined]
def filters_mutated(m, args, kwargs):
    m.refuse_when_sealed()
    m.mutated.setdefault(id(warnings), CalledAtTheEnd(warnings._filters_mutated))  # type: ignore[attr-defined]
    return NONE


def _of_frame(m: Machine, level: int) -> Place | None:
    """Where ``stacklevel`` leads to; None beyond the captured function, whose callers differ."""
    frames = [frame for frame in m.frames if not frame.module_is_ours()]
    level = max(level, 1)
    if level > len(frames):
        return None
    frame = frames[-level]
    at = frame.origin()
    return Place(at.file, at.line, frame.namespace.get("__name__") or "<string>", frame.namespace)


def _warn(m: Machine, message: Value, category: Value, place: Place | None, pytorchs: bool) -> Value:
    text, kind = _text_and_category(m, message, category)
    action = _action(m, text, kind, place)
    if action == "ignore":
        return NONE
    if action in SHOWN_ONCE and pytorchs and place is not None:
        _show(m, text, kind, place)
        return NONE
    raise Shown("a warning", "warn outside the compiled function")


SHOWN_ONCE = ("default", "module", "once")


def _text_and_category(m: Machine, message: Value, category: Value) -> tuple[Any, Any]:
    if isinstance(message, ExceptionV):
        if not issubclass(message.cls, Warning):
            raise Shown("a warning that is no Warning")
        return m.settle(m.call(m.wrap_known(str), [message], {})).as_constant(), message.cls
    message = m.settle(message)
    if not message.is_constant():
        raise Shown("a warning whose text is not known here")
    kind = category.as_constant()
    return message.as_constant(), UserWarning if kind is None else kind


def _action(m: Machine, text: Any, kind: Any, place: Place | None) -> str | None:
    """What the filters say of a warning, which are relied on; None where only its place would tell."""
    where = (place.module, place.line) if place is not None else (None, None)
    module = m.wrap_known(warnings)
    filters, otherwise = m.get_attr(module, "filters"), m.get_attr(module, "defaultaction")
    asked = [m.wrap_result(value) for value in (text, kind, *where)]
    found = m.call(m.wrap_known(polyfill_warnings.action), [*asked, filters, otherwise], {})
    return found.as_constant()


def _show(m: Machine, text: str, kind: type[Warning], place: Place) -> None:
    registry = place.namespace.setdefault("__warningregistry__", {})
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
        _warn(m, m.wrap_result(message), m.wrap_result(category), place, True)


def _of_caller(m: Machine, frame: FrameType | None, level: int) -> Place | None:
    """Where ``stacklevel`` leads to from a function of PyTorch's, which the captured program has called."""
    while frame is not None and not str(frame.f_globals.get("__name__")).startswith("torchglass."):
        if level == 1:
            namespace = frame.f_globals
            return Place(frame.f_code.co_filename, frame.f_lineno, namespace.get("__name__", "<string>"), namespace)
        frame, level = frame.f_back, level - 1
    return _of_frame(m, level)
