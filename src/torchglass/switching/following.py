"""What programs say to torch.compile at run time is said to us too: stances and ``reset``.

Programs that change compilers keep their ``torch.compiler.set_stance("force_eager")`` and ``torch._dynamo.reset()``.
Both come by ``torch._dynamo``; when that is loaded, and not before, its two functions are made to tell us. What else is
said there (marks, ``disable``, ``assume_constant_result``, ...) is left on tensors and functions: capture reads it.

    follow(reset)       # from here on; again changes nothing
    stop()              # the two functions are PyTorch's own again
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..inspector.when_loaded import when_loaded
from ..process import changes
from .stance import Stance, take

DYNAMO = "torch._dynamo"
_open = contextlib.ExitStack()
_follows = False


def follow(reset: Callable[[], None]) -> None:
    """From now on, until ``stop``. ``reset`` is what torch.compile's own means for us."""
    global _follows
    if not _follows:
        _follows = True
        _open.enter_context(when_loaded(DYNAMO, functools.partial(_followed, reset)))
        changes.made(stop)


def stop() -> None:
    """Nobody tells us any more; what another tool has put over ours stays, and leads on."""
    global _follows
    _open.close()
    _follows = False


@contextlib.contextmanager
def _followed(reset: Callable[[], None]) -> Iterator[None]:
    package: Any = sys.modules[DYNAMO]
    stances = package.decorators._set_stance

    @functools.wraps(stances)
    def set_stance(stance: Any) -> Any:
        before = stances(stance)
        take(Stance(stance.stance, stance.skip_guard_eval_unsafe, stance.backend))
        return before

    theirs = package.reset

    @functools.wraps(theirs)
    def reset_both() -> None:
        theirs()
        reset()

    package.decorators._set_stance, package.reset = set_stance, reset_both
    try:
        yield
    finally:
        if package.decorators._set_stance is set_stance:
            package.decorators._set_stance = stances
        if package.reset is reset_both:
            package.reset = theirs
