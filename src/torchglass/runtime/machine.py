"""This machine as a target: what ``records.target`` says of a processor, asked once for each compile."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch

from ..torch_compat import has_avx512, multiplies_faster, packs_weights

if TYPE_CHECKING:
    from ..records.target import Targets

PACKED = ("float32", "bfloat16", "float16")


def targets(threads: int | None = None) -> Targets:
    """The processor, and the GPU if there is one. ``threads``: the most that a kernel may use."""
    from ..records.target import Cpu, Gpu, Targets  # with all that was tuned, of which a kept entry needs nothing

    gpu = gpu_facts()
    return Targets(Cpu(**cpu_facts(), threads=threads), None if gpu is None else Gpu(**gpu))


def cpu_facts() -> dict[str, Any]:
    """The fields of ``Cpu`` that this processor has and the process has set."""
    return {
        "vector_bits": 512 if has_avx512() else 256,
        "sleeping": _threads_sleep(),
        "onednn": torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled,
        "packs": frozenset(dtype for dtype in PACKED if packs_weights(getattr(torch, dtype))),
        "onednn_multiplies": multiplies_faster(),
    }


def _threads_sleep() -> bool:
    """How OpenMP was told to let idle threads wait."""
    return os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive" or os.environ.get("GOMP_SPINCOUNT") == "0"


def gpu_facts() -> dict[str, Any] | None:
    """The same of ``Gpu``: of that on which this process works. One that it has not touched yet is left alone: asking
    would start CUDA, which takes memory, and cannot be done in a forked process.
    """
    if not torch.cuda.is_initialized():
        return None
    about = torch.cuda.get_device_properties(torch.cuda.current_device())
    shared = getattr(about, "shared_memory_per_block_optin", None)
    return {
        "capability": (about.major, about.minor),
        "multiprocessors": about.multi_processor_count,
        "threads": about.max_threads_per_multi_processor,
        **({} if shared is None else {"shared_memory": shared}),
        "deterministic": torch.are_deterministic_algorithms_enabled(),  # guarded as all global state
        "bandwidth": _bandwidth(about),
    }


def _bandwidth(about: Any) -> float:
    """Bytes a second, from the memory's clock in kHz, in each cycle of which it moves its width in bits twice."""
    return 2e3 * getattr(about, "memory_clock_rate", 0) * getattr(about, "memory_bus_width", 0) / 8
