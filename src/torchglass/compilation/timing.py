"""When the stages of one compile ran, and what surrounds every compile.

timeline = Timeline("toy_example")
with timeline.stage("lower"):
    ...
timeline.events         # [Event("lower", begin, seconds)]
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


class Timeline:
    """The events of one compile, in the order in which they ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.events: list[Event] = []

    @contextmanager
    def stage(self, stage: str) -> Iterator[None]:
        interrupts.check()
        log.debug("%s: %s", self.name, stage)
        progress.reached(stage)
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.events.append(Event(stage, begin, time.perf_counter() - begin))
