"""The table of snippets: a module text that defines ``f``, and the argument lists to call it with."""

from __future__ import annotations

from typing import Any

Snippet = tuple[str, str, list[tuple[Any, ...]], tuple[int, int]]
SNIPPETS: list[Snippet] = []


def add(name: str, text: str, *calls: tuple[Any, ...], since: tuple[int, int] = (3, 10)) -> None:
    SNIPPETS.append((name, text.strip("\n") + "\n", list(calls) or [()], since))
