"""Methods of strings that give a string: of texts and numbers that change, one that is made anew at each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import Unsupported
from ...protocol import Value
from ...values import symbolic_strings as texts
from ...values.containers import TupleV
from ...values.tensor import TensorV
from ..registry import method

NAMES = (
    "format", "capitalize", "casefold", "center", "expandtabs", "ljust", "lower", "lstrip", "removeprefix",
    "removesuffix", "replace", "rjust", "rstrip", "strip", "swapcase", "title", "upper", "zfill",
)  # fmt: skip


@method(str)
def join(m, self, parts):
    items = m.listed(parts)
    found = texts.separated(m, self, items) if texts.changes([self, *items]) else None
    return m.fold(str.join, [self, TupleV(items)], {}) if found is None else found


def _handler(name: str) -> Callable[..., Value]:
    function = getattr(str, name)

    def handler(m: Any, /, *args: Value, **kwargs: Value) -> Value:
        if name == "format" and any(isinstance(value, TensorV) for value in (*args, *kwargs.values())):
            raise Unsupported("formatting a tensor")
        changing = texts.changes([*args, *kwargs.values()])
        found = texts.method(m, function, args, kwargs) if changing else None
        return m.fold(function, list(args), kwargs) if found is None else found

    return handler


for _name in NAMES:
    method(str, name=_name)(_handler(_name))
