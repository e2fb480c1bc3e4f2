"""CPU tensors compiled as a GPU's: lowered, fused, scheduled and printed for a GPU, and run by the stand-in for Triton.

    with standing_in("gpu"):
        tg.compile(run)(*samples)       # no GPU is asked for

What only a GPU's lowering and printer do is tried so on any machine. Not tried: Triton's own compiler, and operators
that are traced otherwise on a GPU (attention, dropout).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FunctionType
from typing import Any

import pytest
import torch
from tests.codegen import triton_on_torch

from torchglass.autodiff import recorder
from torchglass.codegen import launch_plan
from torchglass.records.launch import ReadDevice
from torchglass.records.target import Gpu, Targets
from torchglass.runtime import load, machine, philox

SMALL = replace(
    Gpu().schedule, long_row=32, row_block=16, half_row=16, long_scan=32, column_block=16, least_part=4, flat_block=128,
    apart_points=64, persistent_tile=64,
)  # fmt: skip
GPUS = {"gpu": Gpu(), "small-gpu": Gpu(multiprocessors=2, threads=512, schedule=SMALL)}
"""A GPU as there is one, and one whose programs hold few numbers, so that they walk the rows of small samples."""


@contextmanager
def standing_in(name: str) -> Iterator[None]:
    """What is compiled inside is compiled for one of ``GPUS``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "targets", lambda threads=None: Targets(cpu=GPUS[name]))
        patch.setenv("TRITON_INTERPRET", "1")  # kernels run as they are printed
        patch.setattr(load, "load_python", functools.partial(_with_stand_in, load.load_python))
        patch.setattr(launch_plan, "ReadDevice", lambda buffer, device, source: ReadDevice(buffer, "cpu", source))
        patch.setattr(philox, "reserve_philox", _reserved)
        for operator, rule in recorder.SPECIAL.items():
            if "cuda" in rule.__code__.co_consts:
                patch.setitem(recorder.SPECIAL, operator, _for_cpu(rule))
        yield


def _with_stand_in(load_python: Any, *args: Any, **kwargs: Any) -> Any:
    """Not longer than a file is loaded: torch's own modules look for Triton too."""
    with pytest.MonkeyPatch.context() as patch:
        triton_on_torch.install(patch)
        return load_python(*args, **kwargs)


def _for_cpu(rule: Any) -> Any:
    """A function that does with tensors of a CPU what it does with those of a GPU."""
    code = rule.__code__
    constants = tuple("cpu" if one == "cuda" else one for one in code.co_consts)
    return FunctionType(code.replace(co_consts=constants), rule.__globals__, rule.__name__, rule.__defaults__)


def _reserved(where: torch.Tensor | torch.device, numel: int, shift: int, threads: int) -> tuple[int, int, int]:
    """Of the CPU's generator, whose numbers are others."""
    bits = numel | where.data_ptr() // where.element_size() if isinstance(where, torch.Tensor) else numel
    while shift and bits % (1 << shift):
        shift -= 1
    return int(torch.randint(1 << 31, ())), 0, shift
