"""What torchglass says when it could not do what it is for: a graph that failed, a rule, a compilation.

Programs go on eagerly then, with the right result, so a test that only looks at results would not see it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager


class Complaints(logging.Handler):
    """Collects torchglass's warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        trace = record.exc_info[1] if record.exc_info else None
        self.texts.append(record.getMessage() + (f" ({trace!r})" if trace else ""))


@contextmanager
def complaints() -> Iterator[list[str]]:
    """The warnings logged inside."""
    handler, logger = Complaints(), logging.getLogger("torchglass")
    logger.addHandler(handler)
    try:
        yield handler.texts
    finally:
        logger.removeHandler(handler)


@contextmanager
def complains(pattern: str) -> Iterator[list[str]]:
    """torchglass says ``pattern`` inside; the texts, of which nobody else hears."""
    logger, texts = logging.getLogger("torchglass"), []

    def unexpected(record: logging.LogRecord) -> bool:
        expected = record.levelno >= logging.WARNING and re.search(pattern, record.getMessage()) is not None
        if expected:
            texts.append(record.getMessage())
        return not expected

    logger.addFilter(unexpected)
    try:
        yield texts
    finally:
        logger.removeFilter(unexpected)
    assert texts, f"nothing was said of {pattern!r}"
