"""What decompiled continuations say for a context manager that was entered before they begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class reentered:  # it reads as a function
    """``with reentered(leave):`` enters nothing and leaves by calling ``leave(type, error, traceback)``."""

    def __init__(self, leave: Callable[..., Any]) -> None:
        self.leave = leave

    def __enter__(self) -> None:
        return None

    def __exit__(self, *raised: Any) -> Any:
        return self.leave(*raised)

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *raised: Any) -> Any:
        return await self.leave(*raised)
