"""Functions whose tensors have another size at nearly every call: why entries were made in, whether to make more out.

is_growing(recompiles, hits, misses)    # a key-value cache that grows with each token
build_table(without_sizes(guards), (), function)    # takes the calls that differ from an entry in sizes alone
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..records.compilation import Recompile
from ..records.guards import Guard, TensorMeta

EARLY = 8
"""Entries, one of them for each of so many sizes in a row, before a function is taken to be growing."""

SHARE = 3
"""It is if it was compiled at more than one call in so many."""


def is_growing(recompiles: Sequence[Recompile], hits: int, misses: int) -> bool:
    """Whether the last entries were made for sizes alone, and too many of the calls made one."""
    entries = len(recompiles) + 1
    latest = recompiles[1 - EARLY :]
    return entries >= EARLY and all(map(_is_of_sizes, latest)) and SHARE * entries > hits + misses


def _is_of_sizes(recompile: Recompile) -> bool:
    old, new = recompile.old, recompile.new
    if not isinstance(old, TensorMeta) or not isinstance(new, TensorMeta) or len(old.shape) != len(new.shape):
        return False
    return old.shape != new.shape and replace(new, shape=old.shape, strides=old.strides) == old


def without_sizes(guards: Iterable[Guard]) -> list[Guard]:
    """The guards, with those on tensors taking any size."""
    return [replace(g, expected=_any_size(g.expected)) if isinstance(g.expected, TensorMeta) else g for g in guards]


def _any_size(meta: TensorMeta) -> TensorMeta:
    return replace(meta, shape=(None,) * len(meta.shape), strides=(None,) * len(meta.strides))
