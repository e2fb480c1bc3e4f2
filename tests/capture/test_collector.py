"""No collections while anything compiles, and nothing of a compile piles up."""

from __future__ import annotations

import gc
from typing import Any

import torch

import torchglass as tg
from torchglass.process.collector import Paused


class Node:
    """Refers to itself, so that only the collector finds it dead."""

    alive = 0

    def __init__(self) -> None:
        self.itself: Any = self
        Node.alive += 1

    def __del__(self) -> None:
        Node.alive -= 1


def test_what_is_made_meanwhile_is_young_afterwards() -> None:
    gc.collect()
    with Paused():
        Node()
    assert gc.isenabled() and Node.alive == 1
    gc.collect(0)
    assert Node.alive == 0


def test_the_program_is_not_asked_amid_a_compile() -> None:
    """What collections run of the program would compute amid fake tensors."""
    x = torch.ones(3)
    kinds: set[type] = set()

    def seen(phase: str, info: dict[str, int]) -> None:
        kinds.add(type(x * 2))

    before = gc.get_threshold()
    gc.callbacks.append(seen)
    gc.set_threshold(1)
    try:
        tg.compile(lambda x: (x * 3).cos() + x.sum(), fullgraph=True)(x)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(seen)
    assert kinds == {torch.Tensor}


def test_compiles_leave_few_graphs_behind() -> None:
    def graphs() -> int:
        return sum(type(o) is torch.fx.Graph for o in gc.get_objects())

    gc.collect()
    before = graphs()
    for n in range(20):
        held = torch.full((4,), float(n))
        assert tg.compile(lambda x, held=held: x + held, backend="eager")(torch.ones(4))[0] == n + 1
    assert graphs() - before < 10
