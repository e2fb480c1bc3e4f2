"""What code is generated for: what a stage may know of a machine. ``runtime.machine`` makes them, tests make their own.

    targets = Targets(Cpu(vector_bits=512), Gpu(capability=(9, 0)))
    targets.of("cuda:1")      -> the Gpu

Stages get ``Targets`` as they get options, and ask neither the processor nor the environment: for another machine than
this one a graph is printed by passing another target. What was found by measuring is in ``tuned``, a section for each
stage that chooses by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TypeAlias

from .tuned.fusion import CpuFusion, GpuFusion
from .tuned.lowering import CpuLowering, GpuLowering
from .tuned.scheduling import CpuSchedule, GpuSchedule


@dataclass(frozen=True)
class Cpu:
    """A processor, and what PyTorch's libraries do on it.

    ``vector_bits``: of its widest registers that PyTorch's own kernels use. ``threads``: the most that a kernel may
    use; None: as many as PyTorch does when it runs. ``sleeping``: OpenMP's threads sleep between kernels, so that a
    parallel region costs the time to wake them. ``onednn``: oneDNN may be called, ``packs``: dtypes of which it takes
    packed weights, ``onednn_multiplies``: its float32 products are faster than those that PyTorch calls.
    """

    vector_bits: int = 256
    threads: int | None = None
    sleeping: bool = False
    onednn: bool = True
    packs: frozenset[str] = frozenset({"float32"})
    onednn_multiplies: bool = False
    lowering: CpuLowering = field(default=CpuLowering(), repr=False)
    fusion: CpuFusion = field(default=CpuFusion(), repr=False)
    schedule: CpuSchedule = field(default=CpuSchedule(), repr=False)

    @property
    def avx512(self) -> bool:
        return self.vector_bits >= 512

    @property
    def lanes(self) -> int:
        """Floats that a register holds."""
        return self.vector_bits // 32


@dataclass(frozen=True)
class Gpu:
    """A GPU of NVIDIA's: its compute capability, multiprocessors and the most threads of each, and bytes of shared
    memory a program may have.

    ``bandwidth``: bytes that its memory can move in a second at most, 0 where that is not known.
    ``deterministic``: every run is to give the same, bit by bit (``torch.use_deterministic_algorithms``).
    """

    capability: tuple[int, int] = (9, 0)
    multiprocessors: int = 132
    threads: int = 2048
    shared_memory: int = 232_448
    deterministic: bool = False
    bandwidth: float = 3.35e12
    lowering: GpuLowering = field(default=GpuLowering(), repr=False)
    fusion: GpuFusion = field(default=GpuFusion(), repr=False)
    schedule: GpuSchedule = field(default=GpuSchedule(), repr=False)


Target: TypeAlias = "Cpu | Gpu"


@dataclass(frozen=True)
class Targets:
    """What a graph is compiled for, by the device its tensors are on.

    ``Targets(cpu=Gpu())`` prints for a GPU what was traced with tensors on a CPU.
    """

    cpu: Target = Cpu()
    cuda: Target | None = None

    def of(self, device: str) -> Target:
        """The target of ``"cpu"`` or ``"cuda:0"``; NotImplementedError for a device that no code is generated for."""
        kind = device.partition(":")[0]
        target = {"cpu": self.cpu, "cuda": self.cuda}.get(kind)
        if target is None:
            raise NotImplementedError(f"no code is generated for {device}")
        return target


DEVICES = tuple(one.name for one in fields(Targets))
"""The kinds of devices that code is generated for."""
