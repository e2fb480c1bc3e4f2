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
    """How loops run on a GPU: one configuration for each kernel. Blocks are powers of two, since Triton has no others.

    Microseconds are an H100's, by ``benchmarks.gpu_tuning``. Figures without a source were chosen on an H200, where the
    kernels of ``benchmarks.gpu_loops`` were at or near torch.compile's speed with them (docs/codegen.md); none has been
    searched for by itself.
    """

    unrolled: int = 4
    """Elements of a row that are too few to be one: what it shares is computed for each of them."""
    busy: int = 2
    """Programs for each multiprocessor below which a tile gets smaller: waiting for memory is all that they do."""

    # Points
    flat_block: int = 1024
    """Points of one program where nothing is carried along a row."""
    least_block: int = 128
    """The same where there are few points in all."""
    thread_points: int = 8
    """Points of a thread: 16 bytes, the most that it moves at once, of two-byte elements."""
    few_thread_points: int = 4
    """The same where there are few points."""
    light_points: int = 3
    """Buffers of a kernel up to which a thread has twice as many points: gelu of 16,384 x 4,096 takes 97.7
    microseconds (105.5), its backward 143.8 (147.8)."""
    least_line: int = 64
    """Neighbours of the last dimension from which a tile of rows and columns is better than points that find theirs by
    division: one at least of the two 64-byte halves of a line is whole, of two-byte elements both are."""
    aligned: int = 16
    """Elements whose multiples need no mask that tells neighbours apart, which would be moved one by one."""
    apart_points: int = 1 << 16
    """Points, of another number, from which whole blocks have code of their own without a mask. A gelu of 3001 x 3333
    took 27.3 microseconds with one, eager 21.9 (docs/codegen.md)."""
    apart_operations: int = 120
    """Operations of a kernel up to which they have: it compiles all of them twice."""
    transposed_tile: int = 32
    """The side of a square tile where accesses run along two dimensions: a line of 128 bytes of floats."""
    half_transposed_tile: int = 64
    """The same where all elements have at most two bytes."""
    least_transposed: int = 16
    """Elements of both dimensions from which such a tile is worth it."""

    # Rows
    short_row: int = 1024
    """Columns up to which a row needs one warp, and shorter rows share one: what they reduce goes through no shared
    memory then. That doubled their speed on a B200 (pytorch#168335)."""
    light_tile: int = 4
    """Buffers that a row's tile moves up to which a thread has 32 points of it, past which 16: registers."""
    warps_by_columns: tuple[tuple[int, int], ...] = ((8192, 16), (2048, 8), (0, 4))
    """Columns from which a longer row has so many warps."""
    waiting_warps: int = 4
    """Warps of a short row where rows are few: each thread has less to wait for."""
    long_row: int = 16_384
    """Columns past which a row is walked in blocks. Read once, rows of up to so many reach 86 to 100 % of an H100's
    copy bandwidth in plain Triton (QuACK's figures for Liger's norms and softmax)."""
    row_block: int = 8192
    """Columns of one block of a longer row. Cross entropy of 16,384 rows of 30,522 words takes 1269 microseconds with
    them, 1402 with half as many, its backward 689 and 841; of 128,256 words 686 and 690, 732 and 745."""
    half_row: int = 8192
    """Columns past which a row takes half of a multiprocessor's registers and warps. Softmax of 8,192 rows of 16,384
    took 185.7 microseconds with at most 64 registers of a thread, 251.7 with more (what must move takes 179)."""
    registers: int = 65_536
    """Of a multiprocessor."""
    long_scan: int = 4096
    """Columns past which a row that is scanned is walked in blocks: a scan's code grows with the elements of a thread.
    One of logaddexp took 2.5 s to compile over so many, 14 s over 16,384; one of sums 0.2 and 0.6 s."""
    scan_points: int = 8
    """Points of a thread of those."""

    # Columns
    column_block: int = 64
    """Rows and columns of a tile whose neighbouring rows lie side by side in memory."""
    column_points: int = 16
    """Points of a thread of that tile, twice as many where it moves one or two buffers. Column sums of 16,384 x 3,072
    take 49.6 microseconds with 32, 73.5 with 16 (what must move takes 35); with gelu's backward before, 160 and 148."""
    part_blocks: int = 16
    """Blocks of a row's part that a program walks at most, where squares about a mean are summed in parts."""
    least_part: int = 16
    """Elements of such a part at least."""
    least_columns: int = 16
    """Columns of the same where there would be fewer programs than multiprocessors: 64 bytes of floats."""

    # Rows and the sums of their columns
    persistent_tile: int = 2048
    """Points of the rows that a program has at a time."""
    persistent_points: int = 16
    """Points of a thread of those: beside them are as many of each sum, and of each weight. Of 16,384 rows of 768, in
    BERT's backward, norms with 2, 5 and 2 buffers to read take 49, 73 and 74 microseconds with tiles of 2,048 points
    and 16 of a thread, 46, 79 and 110 with twice as many of both."""

    packed_row: int = 8192
    """Columns past which a row is kept as it was read while its reductions are made, and converted again after them.
    RMSNorm's backward of 8,192 x 16,384 takes 251 microseconds on an H200 so, 332 where dx and the sums are kernels of
    their own; LayerNorm's 298 and 388, and 390 with a row of floats, which spills."""
    packed_points: int = 64
    """Points of a thread of those: such a kernel of LayerNorm's took 307 microseconds with 16 warps, 255 with 8."""
    packed_stages: int = 2
    """Rows of those under way at a time, if shared memory has room: 324 microseconds with one."""

    # Blocks that a program walks
    stages: int = 4
    """Blocks under way at a time where shared memory has room for them beside those of ``busy`` programs. LayerNorm's
    backward of 32,768 x 1,024 takes 79 microseconds so, 104 with one. The sum of 802,816 rows of 64 columns: 48.4, with
    three 49.6, with one 65.1; cross entropy's backward of 128,256 words 745, 805 and 748."""

    # Warps
    most_warps: int = 16
    most_thread_points: int = 64
    """Points of a thread past which Triton compiles for minutes (triton#8908)."""

    def warps(self, points: int, each: int) -> int:
        """Warps of a program whose threads have about ``each`` of its points, never more than may be."""
        least = -(-points // (32 * self.most_thread_points))
        return max(1, least, min(self.most_warps, points // (32 * each)))

    def row_warps(self, columns: int) -> int:
        """Warps of a program that has a row of more than ``short_row`` columns."""
        return next(warps for least, warps in self.warps_by_columns if columns >= least)
