"""The tables that files of programs fill by decorators: captured whole, or broken and right, or makers of programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Table = dict[str, Any]
Entering = Callable[[Any], Any]


def table(*others: Table) -> tuple[Table, Entering]:
    """A table and the decorator that enters functions by name, each once in it and ``others``."""
    entries: Table = {}

    def enter(function: Any) -> Any:
        name = function.__name__
        if any(name in known for known in (entries, *others)):
            raise ValueError(f"{name}: there is such a program already")
        entries[name] = function
        return function

    return entries, enter


def tables() -> tuple[Table, Table, Entering, Entering]:
    """Two tables, for what is captured whole and what breaks, and their decorators."""
    whole_ones, whole = table()
    breaking_ones, breaking = table(whole_ones)
    return whole_ones, breaking_ones, whole, breaking


def rand(*shape: int, seed: int = 0, grad: bool = False) -> torch.Tensor:
    """Random numbers that are the same in every run."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)
