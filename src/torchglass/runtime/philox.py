"""What wrappers take random numbers from a GPU's generator by, for kernels that draw them (``records.philox``).

    reserve_philox(device("cuda"), 1048576, 3, 270336)      -> (42, 8, 3): seed 42, offset 8, vectors of 8

and the generator's offset is 12 then, as after eager's dropout of so many numbers.
"""

from __future__ import annotations

import torch

from ..records.philox import BLOCK

try:
    from .._native import reserve_philox
except (ImportError, AttributeError):

    def reserve_philox(
        where: torch.Tensor | torch.device, numel: int, shift: int, threads: int
    ) -> tuple[int, int, int]:
        """Numbers for ``numel`` elements of the generator of ``where``, by threads of which there are ``threads`` at
        most, each of which reads ``1 << shift`` elements at once, fewer where the address of a tensor or the number of
        elements does not allow it. Raises RuntimeError while a CUDA graph is captured.
        """
        device = where.device if isinstance(where, torch.Tensor) else where
        bits = numel if device is where else numel | where.data_ptr() // where.element_size()
        while shift and bits % (1 << shift):
            shift -= 1
        if not numel:
            return 0, 0, shift
        index = torch.cuda.current_device() if device.index is None else device.index
        generator = torch.cuda.default_generators[index]
        seed, offset = generator.initial_seed(), generator.get_offset()
        generator.set_offset(offset + _calls(numel, threads) * 4)
        return seed - (seed >> 63 << 64), offset, shift


def _calls(numel: int, threads: int) -> int:
    """Of ``curand4``, by each thread of eager's kernels."""
    launched = min(threads, -(-numel // BLOCK) * BLOCK)
    return (numel - 1) // (4 * launched) + 1
