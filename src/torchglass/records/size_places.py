"""Which tensors tell the sizes that a graph leaves open, and arguments with the numbers of a call in their place.

places = size_places([x, w], {"s0"})          # {"s0": (0, 1)}: s0 is x.shape[1]
at = read_sizes(places, [x, w])               # {"s0": 123}
in_numbers((s0, 16), at)                      # (123, 16)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch

from . import size_floats
from .side_call import Layout
from .sizes import Expr, symbol_name, symbols, value
from .symbolic_ints import float_of, has_symbols, size_of, sizes_of, sizes_within

SizePlaces = Mapping[str, tuple[int, int]]
"""For each symbol which tensor has it as a size, and in which dimension."""


def size_places(tensors: Sequence[Any], wanted: Collection[str]) -> dict[str, tuple[int, int]]:
    """Where fake ``tensors`` have these symbols; those that none has are left out."""
    found: dict[str, tuple[int, int]] = {}
    for index, tensor in enumerate(tensors):
        if isinstance(tensor, torch.Tensor) and has_symbols(tensor):
            for dim, size in enumerate(tensor.shape):
                name = symbol_name(size_of(size))
                if name is not None and name in wanted:
                    found.setdefault(name, (index, dim))
    return found


def layout_of(tensor: torch.Tensor) -> Layout:
    """How it lies, its sizes as ours."""
    return sizes_of(tensor.shape), sizes_of(tensor.stride()), tensor.dtype


def layout_places(layouts: Sequence[Layout | None]) -> dict[str, tuple[int, int]]:
    """Where tensors of these layouts tell the symbols that are a size of one."""
    found: dict[str, tuple[int, int]] = {}
    for index, layout in enumerate(layouts):
        for dim, size in enumerate(layout[0] if layout is not None else ()):
            name = symbol_name(size)
            if name is not None:
                found.setdefault(name, (index, dim))
    return found


def symbols_of(values: Iterable[Any]) -> set[str]:
    """The symbols in the sizes of tensors and in arguments."""
    found: set[str] = set()
    for one in values:
        if isinstance(one, (tuple, list)):
            found |= symbols_of(one)
        elif not isinstance(one, torch.Tensor):
            found.update(symbols(sizes_within(one)))
        elif has_symbols(one):
            found.update(symbols(map(size_of, (*one.shape, *one.stride()))))
    return found


def read_sizes(places: SizePlaces, tensors: Sequence[Any]) -> dict[str, int]:
    """The symbols' values in a call."""
    return {name: tensors[index].shape[dim] for name, (index, dim) in places.items()}


def in_numbers(argument: Any, at: Mapping[str, int]) -> Any:
    """An argument with numbers in the place of symbolic sizes."""
    if isinstance(argument, Expr):
        return value(argument, at)
    if isinstance(argument, torch.SymInt):
        return value(size_of(argument), at)
    if isinstance(argument, torch.SymFloat):
        return size_floats.value(float_of(argument), at)
    if isinstance(argument, (tuple, list)):
        numbers = [in_numbers(item, at) for item in argument]
        return numbers if isinstance(argument, list) else tuple(numbers)
    return argument


def shown(at: Mapping[str, int]) -> str:
    """Sizes as people read them: ``s0=8, s1=512``."""
    return ", ".join(f"{name}={size}" for name, size in at.items())


def has_sizes(argument: Any) -> bool:
    """Whether an argument has symbolic sizes in it."""
    return next(sizes_within(argument), None) is not None
