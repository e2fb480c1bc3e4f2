"""A program whose tensors have other sizes from call to call: a function of tensors, and how to make these.

The first letters of an input's sizes are those that change: ``"bt16"`` is [b, t, 16].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Program:
    """``inputs``: a tensor's sizes, as numbers and the letters b and t, and "int" for one of whole numbers below 8."""

    function: Callable[..., Any]
    inputs: tuple[tuple[Any, ...], ...]
    trains: bool = True
    most_entries: int = 2

    def made(self, b: int, t: int, seed: int = 0) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        known = {"b": b, "t": t}
        made = []
        for sizes in self.inputs:
            shape = [known.get(size, size) for size in sizes if size != "int"]
            if "int" in sizes:
                made.append(torch.randint(0, 8, shape, generator=generator))
            else:
                made.append(torch.randn(shape, generator=generator))
        return made


PROGRAMS: dict[str, Program] = {}


def program(*inputs: tuple[Any, ...], trains: bool = True, most_entries: int = 2) -> Callable[[Any], Any]:
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        assert function.__name__ not in PROGRAMS
        PROGRAMS[function.__name__] = Program(function, inputs, trains, most_entries)
        return function

    return enter


X = ("b", "t", 16)
W = (16, 16)
