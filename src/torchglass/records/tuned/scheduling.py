"""What ``schedule`` and the printers choose by on each kind of target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CpuSchedule:
    """How loops run on a CPU. Sizes are in elements but where they say bytes."""

    # Threads
    spinning_work: int = 50_000
    """Estimated operations (``schedule.cost_model``) from which threads share a kernel where they spin between kernels:
    a parallel region costs 0.5 microseconds then (measured)."""
    sleeping_work: int = 300_000
    """The same where they sleep, and a region costs 6.8 microseconds (measured)."""
    few_rows: int = 16
    """Rows below which threads share what is in them instead: each of several cores is to have some."""
    line_floats: int = 16
    """A cache line, in floats: threads that share columns begin at one."""

    # Rows
    unrolled: int = 4
    """Elements of a dimension that is written out, too few for vectors."""
    short_line: int = 32
    """Elements of a scan below which a vector is hardly filled."""
    stack_bytes: int = 32_768
    """Arrays of a row larger than this live in a thread's own heap block: threads' stacks are small."""
    shuffled: int = 8
    """Elements apart that GCC may load together and take apart; further, it takes seconds to compile."""
    longest_gather: int = 4096
    """Elements of the array that a gather of its own fills: 16 KiB of floats stay in the first cache."""
    longest_table: int = 2048
    """Columns of a table of places and weights that all rows share, and how many tables: 64 KiB of the stack at most,
    and the first cache holds those of a bilinear resize."""
    most_tables: int = 8
    cheap_loads: int = 3
    """Loads of a loop that is computed again rather than kept in a row array."""
    total_block: int = 1024
    """Elements that one partial sum of a whole tensor covers."""

    # Sums
    lane_steps: int = 64
    """Numbers of a lane before they are added to a total in double: a float's sum of 64 loses 3 bits on average."""
    light_body: int = 8
    """Statements of a body that is faster than one addition after the other: it gets two vectors of accumulators."""
    wide_row: int = 4096
    """Columns past which column sums are shared out by columns: one thread's totals leave the first cache."""
    column_block: int = 512
    """Columns whose sums stay in the first cache while rows go by."""
    rows_in_registers: int = 8
    """Rows whose sum stays in a register, the loop over them written out."""
    most_unrolled: int = 64
    """Statements that are written out for them."""

    # Rows across memory
    panel: int = 64
    """Neighbouring rows that are walked at once."""
    few_panel: int = 32
    """The same where there would be fewer than ``enough_panels`` for threads to share."""
    enough_panels: int = 16
    fetch_ahead: int = 8
    """Steps ahead of which memory is asked for."""
    tile: int = 64
    """The side of the blocks in which transposed reads go, along which arithmetic is vectorized."""
    half_tile: tuple[int, int] = (32, 128)
    """Both sides for elements of two bytes: of a block's reads a cache line is all that is ever used."""
    line: int = 64
    """Bytes of a cache line."""
    far: int = 2**20
    """Bytes from which a read across memory is asked for ahead, for each line of a block's column."""
    least_step: int = 16
    """Elements of a dimension, and of a step, for which blocks are worth it."""

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
