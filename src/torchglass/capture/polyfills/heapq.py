"""Functions of ``heapq``."""

# mypy: ignore-errors

from __future__ import annotations

import heapq

from .registry import polyfill


@polyfill(heapq.nlargest)
def nlargest(n, iterable, key=None):
    return sorted(iterable, key=key, reverse=True)[:n]


@polyfill(heapq.nsmallest)
def nsmallest(n, iterable, key=None):
    return sorted(iterable, key=key)[:n]
