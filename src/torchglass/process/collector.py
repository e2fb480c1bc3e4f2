"""Python's cyclic collector kept from walking what will not die: PyTorch, the program's own objects, our modules.

A full collection visits every object there is: with PyTorch and a library or two loaded some 300,000, a fifth of a
second. Loading our modules and compiling make so many objects that Python starts several, which find next to nothing:
they were a third of what 3,333 linear layers take (``python -m benchmarks.large_graphs --programs parameters``). And
what collections run of the program, ``gc.callbacks`` and ``__del__``, would compute amid fake tensors.
"""

from __future__ import annotations

import gc


class Paused:
    """No collections from ``__enter__`` to ``__exit__``, which may come twice. What was made in between is young at the
    end, as if it were made then.

    By a threshold of 0 and not by ``gc.disable()``: what the program does of that meanwhile, on another thread, is its
    own, and a threshold that it sets is one that is not ours.
    """

    def __init__(self) -> None:
        self._before: tuple[int, int, int] | None = None

    def __enter__(self) -> None:
        youngest, *older = before = gc.get_threshold()
        if youngest:
            self._before = before
            gc.set_threshold(0, *older)

    def __exit__(self, *exception: object) -> None:
        before, self._before = self._before, None
        if before is not None and gc.get_threshold() == (0, *before[1:]):
            gc.set_threshold(*before)
