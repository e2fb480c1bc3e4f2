"""What a capture asked that no guard holds, since it does not change while a process runs: another process asks again.

Plain data of PyTorch's and Python's modules, and the answers of functions in Python that ran as they are: whether a
package is installed, which version of another one there is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from ..protocol import Machine

_IN_PYTHON = (FunctionType, type(functools.cache(len)))
_PLAIN = (bool, int, float, str, bytes, type(None))


@dataclass
class Consulted:
    """``answers``: functions, arguments and results; ``data``: values by module and name."""

    answers: dict[tuple[Any, ...], tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]] = field(
        default_factory=dict
    )
    data: dict[tuple[str, str], Any] = field(default_factory=dict)


def note_answer(
    m: Machine, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    """What a function in Python has answered."""
    home = getattr(function, "__module__", None) or ""
    if isinstance(function, _IN_PYTHON) and home.partition(".")[0] != "torchglass":
        key = id(function), *map(id, args), *((name, id(value)) for name, value in kwargs.items())  # all kept alive
        m.state(Consulted).answers.setdefault(key, (function, args, kwargs, result))


def note_data(m: Machine, module: str, name: str, value: Any) -> None:
    """What a module of a library has under a name, if that is plain."""
    if isinstance(value, _PLAIN) and not module.startswith("torchglass"):
        m.state(Consulted).data[module, name] = value
