"""What ``fuse`` chooses by on each kind of target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fusion:
    """Which legal fusions pay on every target. These bound costs; no sweep is recorded of them but where one is named.

    ``small_bytes``: larger memory that waited for a taker was 2 MB of a U-Net's peak, 6 of Mixtral's (measured).
    """

    max_operations: int = 600  # of one kernel: past this compile time grows and registers spill
    max_streams: int = 40  # buffers one kernel may touch
    part_distance: int = 12  # nodes between what makes a small part of a whole and its place in it
    sibling_distance: int = 48  # nodes apart: joining readers far from each other keeps memory alive between them
    alone: int = 16_384  # elements that one thread, or program, reduces before others would be worth waking
    inline_few: int = 8  # numbers made for each one that is read, from which on the reader makes what it reads
    inline_short: int = 8  # operations that are cheaper to do again for one element than to store it and read it back
    inline_loads: int = 4  # of what makes one number
    small_bytes: int = 64 << 10  # below which memory may wait for a taker: it matters less than a call that allocates


@dataclass(frozen=True)
class CpuFusion(Fusion):
    """The same on a CPU, where threads share rows, and a kernel may add up over rows while it walks them.

    ``strided_*``: rows across memory; where there was more to read, passes along memory took less time (measured).
    ``horizontal_*``: kernels in one call; 200 updates of 1,000 numbers take 105 microseconds so, and 125 each in a call
    of its own (one thread, AMD EPYC).
    """

    few_lines: int = 16  # lines that threads cannot share well
    strided_points: int = 65_536  # elements in all
    strided_lanes: int = 16  # neighbouring columns at least: a cache line of floats
    strided_panel: int = 32  # columns walked together
    strided_panels: int = 8  # for threads to share
    horizontal_points: int = 16_384  # of a kernel, over all its loops
    horizontal_kernels: int = 64  # in one call
    horizontal_total: int = 1 << 18  # points of all of them: their memory is held at once


@dataclass(frozen=True)
class GpuFusion(Fusion):
    """The same on a GPU, whose programs run side by side: nothing is added up from one's rows to another's.

    ``split_*``: reductions in two steps. ``persistent_*``: rows and the sums of their columns in one kernel. None of
    them has been swept on a GPU; Inductor's such kernels got slower at 16,384 columns, with many reads (registers) and
    on small tensors, which stay in cache (pytorch#185814, #179494, #166938).
    """

    split_rows: int = 4096  # rows of columns from which their sums go in two steps
    split_least: int = 16  # rows of a part
    split_columns: int = 16  # columns of a program without parts: 64 bytes of floats
    split_row: int = 1 << 16  # elements of a row from which it is shared, where rows are fewer than multiprocessors
    least_share: float = 0.7  # of the multiprocessors' time that parts fill
    persistent_programs: int = 80  # that walk rows at least: more than half of a large GPU's multiprocessors
    persistent_columns: int = 8192  # of a row that is whole in a program's registers, beside its sums
    persistent_numbers: int = 40_960  # that a program holds for them: of 65,536 registers of a multiprocessor
    packed_columns: int = 16_384  # of a wider row, whose numbers of two bytes are converted when they are needed
    packed_numbers: int = 49_152  # for those, of which a row of two-byte numbers takes half as many as columns
