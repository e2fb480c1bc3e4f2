"""What ``schedule`` and the printers choose by on each kind of target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CpuSchedule:
    """How loops run on a CPU.

    ``spinning_work``: estimated operations (``schedule.cost_model``) from which threads share a kernel where they spin
    between kernels, ``sleeping_work`` where they sleep: a parallel region costs 0.5 and 6.8 microseconds (measured).
    """

    spinning_work: int = 50_000
    sleeping_work: int = 300_000
    unrolled: int = 4  # elements of a dimension that is written out, too few for vectors

    def least_shared(self, sleeping: bool) -> int:
        """The work from which threads share a kernel."""
        return self.sleeping_work if sleeping else self.spinning_work


@dataclass(frozen=True)
class GpuSchedule:
    """How loops run on a GPU."""

    unrolled: int = 4
