"""What the callable of one side of a graph needs beside its files, as data: ``runtime.graph_calls.made`` reads it.

SideCall(inputs=(((8, 16), (16, 1), torch.float32),))       # a forward of one tensor, in kernels
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch

from .sizes import Size

Layout: TypeAlias = "tuple[tuple[Size, ...], tuple[Size, ...], torch.dtype]"
"""Sizes, strides and dtype of a tensor."""


@dataclass(frozen=True)
class Replay:
    """What is known of a side that may run as a CUDA graph (mode="reduce-overhead").

    ``returned``: so many of its results are the program's or autograd's, those behind them are saved for a backward;
    None for all. ``written``: inputs that kernels write to. ``unsafe``: why it cannot be captured, if so.
    """

    returned: int | None = None
    written: tuple[int, ...] = ()
    unsafe: str = ""


@dataclass(frozen=True)
class SideCall:
    """``inputs`` are the layouts for which a side was traced, on these ``devices``; None for what is no tensor.

    ``rearranged``: they are not those with which tensors arrive. ``saved``: of a backward, how many inputs lead that
    the forward has saved; None for a forward. ``copied``: the inputs whose numbers are not in memory as they are, of
    which kernels take copies. ``drawn``: of a graph that draws random numbers in kernels, the layouts in which these
    leave results. ``calls_others``: it calls operators that are not ATen's. ``replay``: of a side on a GPU where
    CUDA graphs were asked for.
    """

    inputs: tuple[Layout | None, ...] = ()
    devices: tuple[str, ...] = ()
    rearranged: bool = False
    saved: int | None = None
    copied: tuple[int, ...] = ()
    drawn: tuple[Layout | None, ...] | None = None
    calls_others: bool = False
    replay: Replay | None = None
