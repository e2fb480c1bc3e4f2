"""How capture leaves the straight path. Only these cross function borders inside the frontend."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ..records.origin import Origin

Result = TypeVar("Result")


class Unsupported(Exception):
    """What cannot be in the graph: a graph break of the outermost frame. ``reason`` and ``hint`` are for users."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.origin: Origin | None = None


def fitting(name: str, handler: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Result:
    """Call a table's handler; arguments that it was not written for end the graph, and Python says what is wrong."""
    try:
        return handler(*args, **kwargs)
    except (TypeError, IndexError, KeyError, ValueError) as error:
        trace = error.__traceback__
        if trace is None or trace.tb_next is None or trace.tb_next.tb_next is None:
            raise Unsupported(f"`{name}` called with these arguments") from None
        raise


class BreaksThisCall(Unsupported):
    """A break that later calls, which find other objects, may do without: its entry relies on all that was read."""


class NeedsData(Unsupported):
    """A tensor operation whose result's shape or value depends on data."""


class Fails(Unsupported):
    """A tensor operation that raises: Python runs it, for fake tensors word their errors in their own way."""


class CannotResume(Unsupported):
    """A break at a place where the frame cannot be entered again: the whole frame runs eager."""


class StaysInPython(Unsupported):
    """What asks for all of its frame to run eager: whatever is captured of it would be missed by it."""


class EntersHooks(Unsupported):
    """Hooks for saved tensors are entered: as long as they are, what follows runs in the user's bytecode."""


class LeafLeaves(CannotResume):
    """A tensor leaves the graph that later stages cannot differentiate: made to require grad there, its history freed
    there, or made by an operator without a derivative. The graph ends where that happens.
    """


class Unchecked(CannotResume):
    """A check of a tensor cannot wait until the graph has run: the graph must end where it is."""


class OutOfOrder(CannotResume):
    """A call that leaves a trace cannot wait until the graph has run: the graph must end where it is."""


class UserError(Exception):
    """The user's program raised: unwinds symbolic frames. ``value`` is the exception as a symbolic value."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.value = value


def forget_frames(error: BaseException) -> None:
    """Let go of the frames that an exception passed, which hold the call's arguments: who keeps an exception in one of
    these frames keeps all of them until Python looks for cycles, and generators among them are not closed before.
    """
    link: BaseException | None = error
    while link is not None and link.__traceback__ is not None:
        link = link.with_traceback(None).__context__


class Shown(Unsupported):
    """A log record or a warning that somebody may be shown."""


class RaisesCompiled(Exception):
    """The program raises, and was told that it is compiled: perhaps in eager it does not."""


class Restart(Exception):
    """Start the capture again with what was learnt (a new step of the outermost frame at which to break)."""
