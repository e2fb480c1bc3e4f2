"""The tables that files of programs fill by decorators: captured whole, or broken and right, or makers of programs.

Programs stand in the room of what they are about, in files ``<subject>_programs.py``; ``program_files`` finds them all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType
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


def program_files() -> list[ModuleType]:
    """Every file of programs in every room."""
    here = Path(__file__).parent
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what modules of before the calls say when they are made
        return [import_module(f".{p.parent.name}.{p.stem}", __package__) for p in sorted(here.glob("*/*_programs.py"))]


def entered(name: str, files: Iterable[ModuleType]) -> Table:
    """What the files have in their tables of that name, each as ``<program> of <subject>``."""
    found: Table = {}
    for file in files:
        subject = file.__name__.rpartition(".")[2].removesuffix("_programs")
        of_file = {f"{program} of {subject}": function for program, function in getattr(file, name, {}).items()}
        if twice := found.keys() & of_file.keys():
            raise ValueError(f"{twice}: there are such programs already")
        found |= of_file
    return found


def rand(*shape: int, seed: int = 0, grad: bool = False) -> torch.Tensor:
    """Random numbers that are the same in every run."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)
