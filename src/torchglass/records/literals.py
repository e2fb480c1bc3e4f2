"""Plain values as Python text that evaluates to them where ``torch`` is imported, and names as identifiers."""

from __future__ import annotations

import keyword
import math
import re
from typing import Any

import torch

_AS_THEY_PRINT = (bool, int, str, bytes, type(None), range)


def literal(value: Any) -> str | None:
    """An expression for a plain value, of its type and with every bit of it; None for containers and other objects."""
    kind = type(value)
    if kind in _AS_THEY_PRINT:
        return repr(value)
    if value is Ellipsis:
        return "..."
    if kind is float:
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if kind is complex:
        return f"complex({literal(value.real)}, {literal(value.imag)})"
    if kind is slice:
        parts = [literal(part) for part in (value.start, value.stop, value.step)]
        return None if None in parts else f"slice({', '.join(filter(None, parts))})"
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return str(value)
    return f"torch.device({str(value)!r})" if isinstance(value, torch.device) else None


def identifier(text: str) -> str:
    """A name that may be written in Python: parameters of tools' own making (pytest's ``@py_assert1``) may not."""
    name = re.sub(r"\W", "_", text)
    if not name or name[0].isdigit():
        name = "_" + name
    return name + "_" if keyword.iskeyword(name) else name
