"""What ``lower`` chooses by on each kind of target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CpuLowering:
    """Which operators are loops on a CPU and which are calls, and of what."""


@dataclass(frozen=True)
class GpuLowering:
    """The same on a GPU."""
