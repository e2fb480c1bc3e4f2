"""Python's cyclic collector kept from walking what will not die: PyTorch, the program's own objects, our modules.

A full collection visits every object there is: with PyTorch and a library or two loaded some 300,000, a fifth of a
second. Loading our modules and compiling make so many objects that Python starts several, which find next to nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """No collections inside, for what makes objects to keep: modules that load."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


class Sheltered:
    """What was there at ``__enter__`` is not visited by collections until ``__exit__``; what is made inside is.

    A program that froze objects itself (``gc.freeze``, before it forks) is left alone: they could not be told apart.
    """

    def __init__(self) -> None:
        self._frozen = False

    def __enter__(self) -> None:
        self._frozen = gc.get_freeze_count() == 0
        if self._frozen:
            gc.freeze()

    def __exit__(self, *exception: object) -> None:
        if self._frozen:
            gc.unfreeze()
