"""Philox4x32-10, and the numbers that eager's CUDA kernels draw by it, thread by thread as ``Dropout.cu`` has it.

numbers(6, vector=1, most=512, seed=1, offset=0)      -> six float32 of (0, 1]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW = 0xFFFFFFFF


def philox(counter: Sequence[np.ndarray], key: tuple[int, int]) -> list[np.ndarray]:
    """Ten rounds of the paper's figure 3; words of 32 bits, held in 64."""
    a, b, c, d = (np.asarray(word, dtype=np.uint64) for word in counter)
    for _ in range(10):
        first, second = a * np.uint64(MULTIPLIERS[0]), c * np.uint64(MULTIPLIERS[1])
        a, b = (second >> np.uint64(32)) ^ b ^ np.uint64(key[0]), second & np.uint64(LOW)
        c, d = (first >> np.uint64(32)) ^ d ^ np.uint64(key[1]), first & np.uint64(LOW)
        key = ((key[0] + WEYL[0]) & LOW, (key[1] + WEYL[1]) & LOW)
    return [a, b, c, d]


def uniform4(seed: int, thread: np.ndarray, offset: int, call: int) -> np.ndarray:
    """What ``curand_uniform4`` gives each thread at its call of this number, after ``curand_init``."""
    at = offset // 4 + call
    words = (np.full(thread.shape, at & LOW), np.full(thread.shape, at >> 32), thread, np.zeros(thread.shape))
    drawn = np.stack(philox(words, (seed & LOW, seed >> 32 & LOW)), -1)
    return drawn.astype(np.uint32).astype(np.float32) * np.float32(2**-32) + np.float32(2**-33)


def numbers(numel: int, vector: int, most: int, seed: int, offset: int) -> np.ndarray:
    """The number of each element, in the order in which eager's kernel counts them: through memory, where threads read
    vectors; else row by row.
    """
    threads = min(most, -(-numel // 256) * 256)
    thread, found = np.arange(threads), np.zeros(numel, dtype=np.float32)

    def put(place: np.ndarray, drawn: np.ndarray) -> None:
        inside = place < numel
        found[place[inside]] = drawn[inside]

    step = threads * max(vector, 4 if vector == 1 else vector)
    for turn in range(-(-numel // step)):
        if vector == 1:
            drawn = uniform4(seed, thread, offset, turn)
            for k in range(4):
                put(turn * step + k * threads + thread, drawn[:, k])
        for part in range(-(-vector // 4) if vector > 1 else 0):
            drawn = uniform4(seed, thread, offset, turn * max(1, vector // 4) + part)
            for k in range(min(vector, 4)):
                put(turn * step + thread * vector + part * 4 + k, drawn[:, k])
    return found


def mask(x: torch.Tensor, p: float, most: int, seed: int, offset: int, shift: int | None = None) -> torch.Tensor:
    """Which elements eager's dropout of ``x`` keeps; it looks at the address where ``shift`` does not say."""
    packed = sorted((step, size) for step, size in zip(x.stride(), x.shape) if size > 1)
    extents = np.cumprod([1, *(size for _, size in packed)])
    vector = 16 // x.element_size() if [step for step, _ in packed] == list(extents[:-1]) else 1
    vector = vector if shift is None else min(vector, 1 << shift)
    while vector > 1 and (x.numel() % vector or (shift is None and x.data_ptr() // x.element_size() % vector)):
        vector //= 2
    drawn = torch.from_numpy(numbers(x.numel(), vector, most, seed, offset))
    kept = drawn < torch.tensor(1.0 - p, dtype=torch.float32)
    if vector == 1:
        return kept.view(x.shape)
    return torch.empty_like(x, dtype=torch.bool).as_strided((x.numel(),), (1,)).copy_(kept).as_strided(
        x.shape, torch.empty_like(x).stride()
    )  # fmt: skip


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda x: x.transpose(1, 2),
    "permuted": lambda x: x.permute(2, 0, 1),
    "every second": lambda x: x[..., ::2],
    "columns": lambda x: x[..., 4:8],
    "odd": lambda x: x[:3, :5, :7].transpose(0, 1).contiguous().transpose(0, 1),
    "repeated": lambda x: x[:1].expand(3, -1, -1),
}
"""Ways in which what is dropped out lies, of a tensor of three dimensions."""
