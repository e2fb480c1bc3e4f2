"""Answers of functions that ran as they are while a program was captured, as another process compares them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ..records.kept_graph import NotKept

Answer: TypeAlias = "tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]"
_PLAIN = (bool, int, float, str, bytes, type(None))


def compared(result: Any) -> list[Any]:
    """What is compared of a result: its class and its text. Raises NotKept for a text with an address in it."""
    text = repr(result)
    if " at 0x" in text:
        raise NotKept("an answer that is another one in each process")
    return [type(result).__qualname__, text if isinstance(result, _PLAIN) or len(text) < 4000 else hash_of(text)]


def hash_of(text: str) -> str:
    """Of a long text its digest."""
    import hashlib

    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
