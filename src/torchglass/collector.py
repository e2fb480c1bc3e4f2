"""Python's cyclic collector kept from walking what will not die: PyTorch, the program's own objects, our modules.

A full collection visits every object there is: with PyTorch and a library or two loaded some 300,000, a fifth of a
second. Loading our modules and compiling make so many objects that Python starts several, which find next to nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

INTERPRETERS_OWN = 1_000
"""More frozen objects than any Python begins with: 3.12 has some 400, others none."""

RARER = 10
"""How many times, while compiles run. Collections were a third of what 3,333 linear layers take to compile
(``python -m benchmarks.large_graphs --programs parameters``), and are a tenth so.
"""


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

    ``gc.unfreeze`` puts all of it among the oldest objects. Python visits those when a quarter as many have come to
    them as there were, but does not count these, and forgets its count when it collects inside. So that dead cycles do
    not lie there for good, the young are collected before, and the same rule is kept here.

    Collections inside are rarer, too: what a compile makes stays until its end, and is visited again and again.
    """

    def __init__(self) -> None:
        self._frozen = False
        self._threshold: tuple[int, int, int] | None = None  # the program's, while ours is set
        self._oldest = 0  # at the last full collection
        self._came = 0  # to them since then

    def __enter__(self) -> None:
        self._threshold = young, middle, oldest = gc.get_threshold()
        gc.set_threshold(young * RARER, middle, oldest * RARER)
        self._frozen = gc.get_freeze_count() < INTERPRETERS_OWN
        if not self._frozen:
            return
        full = gc.isenabled() and self._is_full_collection_due()
        if full:
            gc.collect()
            self._came = 0
        gc.freeze()
        if full or self._oldest == 0:
            self._oldest = gc.get_freeze_count()

    def _is_full_collection_due(self) -> bool:
        young = sum(len(gc.get_objects(generation)) for generation in (0, 1))
        self._came += young - gc.collect(1)
        return self._came > self._oldest // 4 > 0

    def __exit__(self, *exception: object) -> None:
        if self._threshold is not None:
            gc.set_threshold(*self._threshold)
            self._threshold = None
        if self._frozen:
            self._came += len(gc.get_objects(2))  # of those made inside; the sheltered are in no generation
            gc.unfreeze()
            self._frozen = False
