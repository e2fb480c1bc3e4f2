"""What the stages of one compile took, and what surrounds every compile.

``Stages`` is handed down from the missed call to the last stage: ``with stages.stage("lower"): ...``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .. import torch_compat
from ..inspector import progress
from ..process import interrupts
from ..records.compilation import Event

log = logging.getLogger("torchglass")

compiling = torch_compat.Compiling()


class Stages:
    """Seconds by stage of one entry, and when each stage ran."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seconds: dict[str, float] = {}
        self.events: list[Event] = []
        self.line: progress.Line | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """A compile that may take long enough for a line on the terminal."""
        with progress.compiling(self.name) as self.line:
            try:
                yield
            finally:
                self.line = None

    @contextmanager
    def stage(self, stage: str) -> Iterator[None]:
        interrupts.check()
        log.debug("%s: %s", self.name, stage)
        if self.line is not None:
            self.line.stage = stage
        begin = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - begin
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
            self.events.append(Event(stage, begin, seconds))
