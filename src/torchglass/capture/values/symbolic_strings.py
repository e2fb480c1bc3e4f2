"""Texts made of numbers that change from call to call: made anew by entry code, not one entry for each.

print(f"loss {n:.3f}")     ->   text = format(n, '.3f'); text_1 = 'loss ' + text; print(text_1)
"{:>{}}".format(n, 8)      ->   text = '{:>{}}'.format(n, 8)
"%d of %d" % (n, 10)       ->   text = '%d of %d' % (n, 10)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..protocol import Machine, Value
from .constant import ConstantV
from .containers import TupleV
from .number import NumberV, computed


def changes(values: list[Value]) -> bool:
    return any(isinstance(value, NumberV) for value in values)


def joined(m: Machine, parts: list[Value]) -> Value:
    """The fields and constant parts of an f-string, put together."""
    if changes(parts):
        found = computed(m, _put_together(len(parts)), " + ".join(["{}"] * len(parts)), tuple(parts))
        if found is not None:
            return found
    return ConstantV("".join(part.as_constant() for part in parts))


# Guards call builtin functions, and tell them apart by identity: hence `str.format`, one for each number of texts.
@functools.cache
def _put_together(count: int) -> Callable[..., str]:
    return ("{}" * count).format


@functools.cache
def _separated_by_first(count: int) -> Callable[..., str]:
    return "{0}".join(f"{{{n}}}" for n in range(1, count + 1)).format


def formatted(m: Machine, value: Value, spec: Value) -> Value | None:
    """``format(value, spec)``; None where neither changes."""
    if not changes([value, spec]):
        return None
    if isinstance(spec, ConstantV) and not isinstance(spec, NumberV) and spec.value == "":
        return value if value.python_type() is str else computed(m, str, "str({})", (value,))
    return computed(m, format, "format({}, {})", (value, spec))


def filled_in(m: Machine, template: Value, values: Value) -> NumberV | None:
    """``template % (value, ...)``; None for other operands, and where nothing changes."""
    if template.python_type() is not str or not isinstance(values, TupleV) or values.cls is not tuple:
        return None
    items = values.all(m)
    if not changes([template, *items]):
        return None
    text = "{} % (" + ", ".join(["{}"] * len(items)) + ("," if len(items) == 1 else "") + ")"
    return computed(m, lambda first, *rest: first % rest, text, (template, *items))


def method(m: Machine, function: Any, args: tuple[Value, ...], kwargs: dict[str, Value]) -> NumberV | None:
    """``text.center(20)``, ``"...".format(n, name=n)``; None where that is not known."""
    holes = [*["{}"] * (len(args) - 1), *(f"{keyword}={{}}" for keyword in kwargs)]

    def call(*values: Any) -> Any:
        return function(*values[: len(args)], **dict(zip(kwargs, values[len(args) :])))

    return computed(m, call, "{}." + f"{function.__name__}({', '.join(holes)})", (*args, *kwargs.values()))


def separated(m: Machine, separator: Value, items: list[Value]) -> NumberV | None:
    """``separator.join([item, ...])``; None where that is not known."""
    text = "{}.join([" + ", ".join(["{}"] * len(items)) + "])"
    return computed(m, _separated_by_first(len(items)), text, (separator, *items))
