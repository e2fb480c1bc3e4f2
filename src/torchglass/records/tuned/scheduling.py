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
    """How loops run on a GPU. Blocks are powers of two, since Triton has no others.

    Chosen on an H200, where the kernels of ``benchmarks.gpu_loops`` were at or near torch.compile's speed with them
    (docs/codegen.md); none has been searched for by itself.
    """

    # Tiles
    unrolled: int = 4
    """Elements of a row that are too few to be one: what it shares is computed for each of them."""
    flat_block: int = 1024
    """Points of one program where nothing is carried along a row."""
    row_tile: int = 1024
    """Points of one program's rows: shorter rows share one, which doubled their speed on a B200 (pytorch#168335)."""
    long_row: int = 16_384
    """Columns past which a row is walked in blocks. Read once, rows of up to so many reach 86 to 100 % of an H100's
    copy bandwidth in plain Triton (QuACK's figures for Liger's norms and softmax)."""
    row_block: int = 4096
    """Columns of one block of a longer row."""
    long_scan: int = 4096
    """Columns past which a row that is scanned is walked in blocks: a scan's code grows with the elements of a thread.
    One of logaddexp took 2.5 s to compile over so many, 14 s over 16,384; one of sums 0.2 and 0.6 s."""
    column_block: int = 64
    """Rows and columns of a tile whose neighbouring rows lie side by side in memory."""

    # Warps
    warp_points: int = 256
    """Points of a warp, 8 to a thread, until there are as many warps as may be."""
    small_tile: int = 1024
    """Points up to which a program has at most ``small_warps``, past which ``most_warps``."""
    small_warps: int = 4
    most_warps: int = 16
    """32 points a thread in the longest whole row; past 64 Triton compiles for minutes (triton#8908)."""

    def warps(self, points: int) -> int:
        """Warps of a program."""
        most = self.small_warps if points <= self.small_tile else self.most_warps
        return max(1, min(most, points // self.warp_points))
