"""Random numbers of PyTorch's generators on GPUs: what a draw is, for lowering, code generation and the runtime.

Eager's kernels take them of cuRAND's Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC 2011; https://www.thesalmons.org/john/random123/papers/random123sc11.pdf), a function of a counter of 128 bits and a
key of 64 that makes four numbers of 32 bits. The key is the generator's seed; the upper half of the counter is the
thread that draws; the lower one counts that thread's calls of ``curand4``, from a quarter of the generator's offset on.
The offset moves on by 4 for each call that any thread may make.

How elements fall to threads stands in ``fused_dropout_kernel_vec``, ``fused_dropout_kernel`` and ``get_vector_size`` of
PyTorch's ``aten/src/ATen/native/cuda/Dropout.cu`` (as of 2025). With T threads, in blocks of 256:

- vectors of V = 2, 4 or 8 elements: the thread of the element at ``place`` in memory is ``place // V % T``. It calls
  once for every vector of 2 or 4, twice for one of 8, and a call's numbers go to four neighbours in turn (where V is 2
  to two, and the others are not used).
- one by one: elements are counted row by row, however they lie; the thread is ``count % T``. A call's four numbers go
  to the thread's elements in turn, which are T apart.

T is ``min(multiprocessors * (threads of one // 256), ceil(elements / 256)) * 256``. Where the second is the smaller, no
thread has a second vector, so that ``place // V`` and ``count`` are below both: kernels compute with the first,
whatever the number of elements. V is the largest that 16 bytes hold and that divides the address of what is dropped out
and its number of elements; 1 where that has gaps.
"""

from __future__ import annotations

from .target import Gpu

BLOCK = 256
"""Threads of a block of eager's kernels: ``block_size`` there."""

DRAW = {"seed": "int64", "offset": "int64", "shift": "int32"}
"""What ``reserve_philox`` returns, and the dtypes in which kernels take it. V is ``1 << shift``."""

WIDEST = {"float32": 2, "float16": 3, "bfloat16": 3}
"""The largest shift by dtype: vectors of 16 bytes."""


def most_threads(gpu: Gpu) -> int:
    """The threads of eager's kernels for many elements."""
    return gpu.multiprocessors * (gpu.threads // BLOCK) * BLOCK
