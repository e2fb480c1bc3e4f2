"""Warnings that are ours to silence, without the program's being shown again.

    with ignored("The .grad attribute"):    # of this text; ignored() means all
        ...

``warnings.catch_warnings`` would do, but it makes Python forget which warnings of the whole program have been shown, so
that each compile shows all again. A filter that is put in and taken out while Python is not told changes nothing else.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def ignored(text: str = "") -> Iterator[None]:
    """No warning whose message begins with ``text`` is shown or raised inside."""
    row: Any = ("ignore", re.compile(text, re.IGNORECASE) if text else None, Warning, None, 0)
    filters: Any = warnings.filters
    filters.insert(0, row)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the program may have put others in their place
            filters.remove(row)
