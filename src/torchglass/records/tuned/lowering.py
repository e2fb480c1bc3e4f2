"""What ``lower`` chooses by on each kind of target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LoopLimits:
    """Up to which size a rule makes loops; past it the operator stays ATen's call. Measured on CPUs alone."""

    window: int = 25  # places of a pooling's window, 5 x 5, each a load of the body: bounds the code, not measured
    joined_parts: int = 8  # of a concatenation that a loop picks among; for more a copy each by ATen is as fast
    gamma_numbers: int = 64  # of lgamma, one at a time by the C library: past it five times as long as ATen's vectors
    mirrored_padding: int = 2  # numbers at a side of a reflected padding that backward reads one by one; loops are
    repeated_padding: int = 4  # 1.5 to 3 times as fast as ATen up to here; the same of a replicated one
    max_pool_gradients: bool = True  # of windows that do not tile the image: each place looks at all that hold it
    padded_means_of_channels: bool = True  # of windows out of images channels last; gradients of all but tiles
    padded_rows: int = 1 << 62  # numbers from which a padding by what is there is ATen's that shares no loop
    ordered_sums: bool = True  # at places that tensors say, which eager adds up in one order: loops do it in order


@dataclass(frozen=True)
class CpuLowering(LoopLimits):
    """Which operators are loops on a CPU and which are calls, and of what."""

    max_pool_gradients: bool = False
    """Milliseconds for (8, 64, 56, 56) on one thread: 3 x 3 with step 2 6.3 and ATen's 1.0, with step 1 13 and 2.1.
    2 x 2 with step 2 of 57 x 57 1.6 and 1.0, channels last 7.2 and 1.1."""

    padded_means_of_channels: bool = False
    """The same: 3 x 3 with step 2 0.8 and ATen's 0.55, backward 3.1 and 1.5; with step 1 4.1 and 1.9, 5.9 and 4.6."""

    padded_rows: int = 8192
    """ATen copies rows: of (8, 16, 64, 64) alone loops took 1.25 times as long, of bfloat16 4 times; beside a relu 0.36
    and 0.75 times. Of (1, 3, 16, 16) they took 0.75 times as long: one call less."""

    layout_gain: int = 2
    """Bytes that convolutions move for each byte that is laid out anew where images begin and end to lie channels
    last. Convolutions take 0.6 to 0.9 times as long so."""

    chain: int = 432
    """Summands of a convolution that oneDNN adds up in one go with AVX-512 before it is split: 48 channels of 3 x 3
    have 1.6 times eager's error."""

    depthwise_window: int = 3
    """Places along a side of the windows that oneDNN has a depthwise kernel for."""

    depthwise_channels: int = 32
    """From which on a loop over channels is faster than oneDNN's call for other windows."""

    onednn_multiplications: int = 1_500_000
    """Of a product, from which on oneDNN wins more than what its call costs."""

    attention_queries: int = 32
    """That our attention works on at once (csrc/attention.cpp). With fewer, half of a panel would be empty: slower with
    many threads."""

    attention_scores: int = 1 << 16
    """Keys times numbers of a key and a value that stay in cache, four times as many below a causal mask."""

    merged_products: int = 3
    """Of a sum, from which on calls less are worth the copies of the factors. Not measured: an LSTM's 20 steps gain."""


@dataclass(frozen=True)
class GpuLowering(LoopLimits):
    """The same on a GPU."""

    ordered_sums: bool = False
    """Of an embedding's gradient and of index_put: ATen's calls sort the places and add up in float32, the same in
    every run. A loop's atomic sums are in no order and, for halves, need a table of float32: 154 MB for GPT-2's."""

    loop_multiplications: int = 1 << 20
    """Of a product, up to which it is a loop. Sixteen shapes of 2**17 to 2**24 on an H100, bfloat16: up to here 1.4 to
    2.0 microseconds of the GPU's time where cuBLAS took 2.0 to 2.5 (long sums 3.4 and 3.5), and a call 9 to 13 where
    it took 20 to 30; of 2**21 2.5 to 6.1 and 2.1 to 2.5."""

    patch_elements: int = 16
    """Of a convolution's window, from which on one of windows that do not overlap is a product of copied patches: they
    are read as often as cuDNN's channels last. Of 16 x 16 it takes a tenth of the time; smaller ones were not
    measured."""

    padded_operations: int = 1 << 30
    """Multiplications and additions of a product, from which on it is padded to rows of 16 bytes. On an H200 those of
    GPT-2's head, 1.9e12 a step, took 12.4 ms less so: 6.5 ps each. These are worth 7 microseconds, a kernel or two."""

    padded_operations_per_byte: int = 100
    """The same for each byte that padding reads or writes, at the 3 TB/s that an H100 copies: twice as much is won."""

    divided_points: int = 1 << 18
    """Elements that one program reduces, from which on it is worth more programs and a kernel over what they come to.
    Not measured."""

    part_points: int = 1 << 14
    """Elements of a part at least: four blocks of a row. Not measured."""

    programs_each: int = 4
    """Programs for each multiprocessor that parts make: of 16 warps, four fill it. Not measured."""
