"""Compiling shelters what was there from the cyclic collector, and lets nothing of its own pile up."""

from __future__ import annotations

import gc
from typing import Any

import torch

import torchglass as tg
from torchglass.collector import Sheltered


class Node:
    """Refers to itself, so that only the collector finds it dead."""

    alive = 0

    def __init__(self) -> None:
        self.itself: Any = self
        Node.alive += 1

    def __del__(self) -> None:
        Node.alive -= 1


def test_what_is_left_by_one_is_collected_by_the_next() -> None:
    sheltered = Sheltered()
    gc.collect()
    for _ in range(20):
        with sheltered:
            Node()
        assert Node.alive <= 2


def test_what_is_collected_is_the_programs_choice() -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            with Sheltered():
                Node()
        assert Node.alive == 3
    finally:
        gc.enable()
        gc.collect()


def test_compiles_leave_few_graphs_behind() -> None:
    def graphs() -> int:
        return sum(type(o) is torch.fx.Graph for o in gc.get_objects())

    gc.collect()
    before = graphs()
    for n in range(20):
        held = torch.full((4,), float(n))
        assert tg.compile(lambda x, held=held: x + held, backend="eager")(torch.ones(4))[0] == n + 1
    assert graphs() - before < 10
