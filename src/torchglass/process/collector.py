"""Python's cyclic collector kept from walking what will not die: PyTorch, the program's own objects, our modules.

A full collection visits every object there is: with PyTorch and a library or two loaded some 300,000, a fifth of a
second. Loading our modules and compiling make so many objects that Python starts several, which find next to nothing:
they were a third of what 3,333 linear layers take (``python -m benchmarks.large_graphs --programs parameters``). And
what collections run of the program, ``gc.callbacks`` and ``__del__``, would compute amid fake tensors.
"""

from __future__ import annotations

import gc


class Paused:
    """No collections from ``__enter__`` to ``__exit__``, which may come twice; a program that turned them off itself is
    left alone. What was made in between is young at the end, as if it were made then.
    """

    def __init__(self) -> None:
        self._running = False

    def __enter__(self) -> None:
        self._running = gc.isenabled()
        gc.disable()

    def __exit__(self, *exception: object) -> None:
        if self._running:
            self._running = False
            gc.enable()
