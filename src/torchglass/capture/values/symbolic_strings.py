"""Texts made of numbers that change from call to call: made anew by entry code, not one entry for each.

print(f"loss {n:.3f}")     ->   text = format(n, '.3f'); text_1 = 'loss ' + text; print(text_1)
"{:>{}}".format(n, 8)      ->   text = '{:>{}}'.format(n, 8)
"%d of %d" % (n, 10)       ->   text = '%d of %d' % (n, 10)
str(x.shape)               ->   text = repr(torch.Size([n, 3]))
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ..protocol import Machine, Value
from .constant import ConstantV
from .containers import ListV, SequenceV, TupleV
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


def shown(m: Machine, value: Value) -> NumberV | None:
    """``repr`` of a tuple, a list or a ``torch.Size`` of numbers and texts; None of another value, and where nothing
    changes.
    """
    if not isinstance(value, (TupleV, ListV)) or value.cls not in _BRACKETS:
        return None
    found = _fields(m, value)
    if found is None or not changes(found[1]):
        return None
    template, parts = found
    return computed(m, _filled(template), "repr(" + template.replace("{!r}", "{}") + ")", tuple(parts))


_BRACKETS = {tuple: ("(", ")"), list: ("[", "]"), torch.Size: ("torch.Size([", "])")}


def _fields(m: Machine, sequence: SequenceV, depth: int = 3) -> tuple[str, list[Value]] | None:
    """How a sequence is written, with a field for each number or text in it, and these; None of one that holds others
    than these and such sequences.
    """
    texts: list[str] = []
    parts: list[Value] = []
    for item in map(m.settle, sequence.all(m)):
        if isinstance(item, (TupleV, ListV)):
            inner = _fields(m, item, depth - 1) if depth and item.cls in _BRACKETS else None
            if inner is None:
                return None
            texts.append(inner[0])
            parts += inner[1]
        elif isinstance(item, ConstantV):
            texts.append("{!r}")
            parts.append(item)
        else:
            return None
    opened, closed = _BRACKETS[sequence.cls]
    comma = "," if sequence.cls is tuple and len(texts) == 1 else ""
    return opened + ", ".join(texts) + comma + closed, parts


@functools.cache
def _filled(template: str) -> Callable[..., str]:
    return template.format


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
