"""Plain values as Python text that evaluates to them where ``torch`` is imported, and names as identifiers."""

from __future__ import annotations

import keyword
import math
import re
import unicodedata
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


def tensor_text(value: torch.Tensor) -> str:
    """An expression for a small tensor on the CPU. Lists do not say the shape of one without elements."""
    if not value.numel():
        return f"torch.empty({tuple(value.shape)}, dtype={value.dtype})"
    return f"torch.tensor({_numbers(value.tolist())}, dtype={value.dtype})"


def _numbers(value: Any) -> str:
    return f"[{', '.join(map(_numbers, value))}]" if isinstance(value, list) else str(literal(value))


_TAME = str.maketrans({"\\": "/", '"': "'"})


def one_line(text: object) -> str:
    """A text of the program's (a file's name, a function's, a message) for a docstring or a comment of a file that we
    write, Python or C: one line that is no code there, and ends nothing.
    """
    shown = str(text)
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else " " for c in shown)
    shown = shown.translate(_TAME)
    return shown.replace("*/", "* /").replace("/*", "/ *").replace("'''", "' ' '")


def quoted(text: str) -> str:
    """A text as a literal in double quotes, where it needs no more than that."""
    plain = text.isascii() and text.isprintable() and not {'"', "\\"} & set(text)
    return f'"{text}"' if plain else repr(text)


def is_name(text: str) -> bool:
    """Whether a text may be written as a name, and is read as the same: Python takes a ligature for its letters."""
    same = text.isascii() or unicodedata.normalize("NFKC", text) == text
    return same and text.isidentifier() and not keyword.iskeyword(text)


def identifier(text: str) -> str:
    """A name that may be written in Python: parameters of tools' own making (pytest's ``@py_assert1``) may not."""
    name = text if is_name(text) else re.sub(r"\W", "_", text, flags=re.ASCII)
    if not name or name[0].isdigit():
        name = "_" + name
    return name + "_" if keyword.iskeyword(name) else name


def overload_text(operator: Any) -> str:
    """An overload as an expression, ``torch.ops.aten.add.Tensor``. One of ``random`` is called "from"."""
    namespace, _, name = operator._schema.name.partition("::")
    packet, overload = f"torch.ops.{namespace}.{name}", operator._overloadname
    return f"{packet}.{overload}" if is_name(overload) else f"getattr({packet}, {quoted(overload)})"
