"""What ``fuse`` chooses by on each kind of target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CpuFusion:
    """Which legal fusions pay on a CPU."""


@dataclass(frozen=True)
class GpuFusion:
    """The same on a GPU."""
