"""What a caller passes: an argument's name and value in, nothing out, or an error that names it and says what it takes.

>>> require("gdb", "x", bool, "True or False")
Traceback (most recent call last):
TypeError: gdb must be True or False, not 'x'
"""

from __future__ import annotations

import os
from typing import Any


def require(name: str, value: Any, kinds: type | tuple[type, ...], allowed: str) -> None:
    """Raise TypeError unless the value is of one of these kinds."""
    if not isinstance(value, kinds):
        raise TypeError(f"{name} must be {allowed}, not {value!r}")


def require_flag(name: str, value: Any) -> None:
    """Raise TypeError for anything but True and False: text that says "no" would count as true."""
    require(name, value, bool, "True or False")


def require_path(name: str, value: Any) -> None:
    """Raise TypeError for what names no file or folder."""
    require(name, value, (str, os.PathLike), "a path, as a string or a Path")
