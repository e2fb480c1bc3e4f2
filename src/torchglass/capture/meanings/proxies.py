"""Builtins written in C that run to their end (``sorted``, ``sum``, ``list.index``) on symbolic values: CPython itself
runs them, on proxies whose slots ask the machine. So the order of calls, short cuts and words are Python's.

    max(rows, key=f)      ->  max(Proxy(a), Proxy(b), ..., key=...)        # `>` of what f gave, interpreted
    [x, y].index(z)       ->  list.index([Proxy(x), Proxy(y)], Proxy(z))   # ValueError: ... is not in list

What the machine raises (a break, the program's exception) passes through C as any exception does. Iterators in C are no
such builtins: they outlive a graph break, and the entry could not make a half used one anew.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..errors import Unsupported
from ..protocol import Machine, Value
from ..values.constant import FALSE, NONE, ConstantV, is_none
from ..values.number import NumberV

MOST_STEPS = 1_000_000
PLAIN = (int, float, bool, str)  # what C compares by itself
SUMMED = (int, float, complex, bool, str, bytes, bytearray)  # what C adds up, or refuses to, by itself
COMPENSATED = sys.version_info >= (3, 12)  # C keeps the bits that a sum of floats loses on the way


def _compares(function: Callable[..., Any]) -> Callable[[Proxy, Any], bool]:
    return lambda self, other: self.m.truth(self.m.binary(function, self.value, symbolic(self.m, other)))


def _combines(function: Callable[..., Any], swapped: bool = False) -> Callable[[Proxy, Any], Proxy]:
    def combine(self: Proxy, other: Any) -> Proxy:
        pair = self.value, symbolic(self.m, other)
        return Proxy(self.m, self.m.binary(function, *(pair[::-1] if swapped else pair)))

    return combine


class Proxy:
    """A symbolic value as code in C sees it."""

    __slots__ = ("m", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, m: Machine, value: Value) -> None:
        self.m, self.value = m, value

    def __repr__(self) -> str:
        return str(self.m.call(self.m.wrap(repr), [self.value], {}).as_constant())

    def __bool__(self) -> bool:
        return self.m.truth(self.value)

    def __eq__(self, other: object) -> bool:  # C has compared the proxies' identity, not that of what they stand for
        return self.m.equal(self.value, symbolic(self.m, other))

    __lt__, __gt__ = _compares(operator.lt), _compares(operator.gt)
    __add__, __radd__ = _combines(operator.add), _combines(operator.add, swapped=True)
    __mul__, __rmul__ = _combines(operator.mul), _combines(operator.mul, swapped=True)


def symbolic(m: Machine, real: Any) -> Value:
    return real.value if isinstance(real, Proxy) else m.wrap_result(real)


def run(m: Machine, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Value:
    """What ``function``, written in C, gives for proxies and constants."""
    return symbolic(m, m.real(function, *args, **kwargs))


def proxies(m: Machine, values: Iterable[Value]) -> list[Any]:
    return [Proxy(m, value) for value in values]


def compared(m: Machine, values: list[Value]) -> list[Any]:
    """Proxies; where C compares them all by itself, the objects."""
    plain = all(type(value) is ConstantV and type(value.value) in PLAIN for value in values)
    return [value.as_constant() for value in values] if plain else proxies(m, values)


def summed(m: Machine, value: Value) -> Any:
    """An operand of a sum: numbers as they are, since C has a way of its own with them."""
    exact = type(value) is ConstantV
    if COMPENSATED and isinstance(value, NumberV):
        exact = type(value.known) is float
    real = value.as_constant() if exact else None
    return real if type(real) in SUMMED else Proxy(m, value)


def fed(m: Machine, iterable: Value, shown: Callable[[Machine, Value], Any] = Proxy) -> Iterator[Any]:
    """The items, each made when C asks for it."""
    return _items(m, m.iterate(iterable), shown)


def _items(m: Machine, iterator: Value, shown: Callable[[Machine, Value], Any]) -> Iterator[Any]:
    for _ in range(MOST_STEPS):
        item = iterator.next(m)
        if item is None:
            return
        yield shown(m, m.forced(item))
    raise Unsupported(f"an iteration of over {MOST_STEPS:,} steps")


def calling(m: Machine, function: Value) -> Callable[..., Proxy]:
    """A function of the program's, for C to call."""
    return lambda *args: Proxy(m, m.call(function, [symbolic(m, arg) for arg in args], {}))


def in_order(m: Machine, values: list[Value], kwargs: dict[str, Value]) -> list[Value]:
    """``sorted(values, **kwargs)``."""
    key, descending = kwargs.get("key", NONE), m.truth(kwargs.get("reverse", FALSE))
    ranks = compared(m, values if is_none(key) else [m.call(key, [value], {}) for value in values])
    places = m.real(sorted, range(len(values)), key=ranks.__getitem__, reverse=descending)
    return [values[place] for place in places]
