"""The functions of sizes that a normal form keeps as they are: their values, what bounds them, their texts.

>>> FUNCTIONS["mod"].value(7, 4), FUNCTIONS["mod"].bounds((0, None), (4, 4)), FUNCTIONS["max"].texts["c"]
(3, (0, 3), 'tg_larger({}, {})')
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Bounds: TypeAlias = "tuple[int, int | None]"
"""What a size lies between, both included; None: no upper bound is known."""
UNBOUNDED = 1 << 63
"""Stands for no lower bound, and in sums and products for no upper one."""
FAR = 1 << 62
"""What lies beyond this came of ``UNBOUNDED``."""


@dataclass(frozen=True)
class Function:
    """An opaque function of two sizes: its value, what bounds it, and its text in each language.

    ``signed``: the text where the first may be negative, if it is another.
    """

    value: Callable[[int, int], int]
    bounds: Callable[[Bounds, Bounds], Bounds]
    texts: Mapping[str, str]
    signed: Mapping[str, str] = field(default_factory=dict)

    def text(self, arguments: Sequence[str], language: str, signed: bool) -> str:
        """Its call in a language, in parentheses where that is an operator."""
        template = (self.signed if signed else self.texts)[language]
        filled = template.format(*arguments)
        return f"({filled})" if template.startswith("{") else filled


def _texts(python: str, c: str | None = None, triton: str | None = None) -> dict[str, str]:
    return {"python": python, "c": c or python, "triton": triton or python}


def _quotient_bounds(a: Bounds, b: Bounds) -> Bounds:
    by_most, by_least = b[1], max(b[0], 1)
    low = a[0] // by_least if a[0] < 0 else 0 if by_most is None else a[0] // max(by_most, 1)
    return low, None if a[1] is None else a[1] // by_least if a[1] >= 0 else 0


def _remainder_bounds(a: Bounds, b: Bounds) -> Bounds:
    most = None if b[1] is None else max(b[1] - 1, 0)
    if a[0] >= 0 and a[1] is not None:
        most = a[1] if most is None else min(most, a[1])
    return 0, most


def _of_known(choose: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else choose(a, b)


def _smaller_top(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


_FLOORDIV = Function(
    operator.floordiv, _quotient_bounds, _texts("{} // {}", c="{} / {}"),
    {"c": "tg_floordiv_i64({}, {})", "triton": "(({0} - ({0} % {1} + {1}) % {1}) // {1})"},
)  # fmt: skip
FUNCTIONS: dict[str, Function] = {
    "floordiv": _FLOORDIV,
    "quotient": _FLOORDIV,  # of which something told that the division leaves nothing
    "mod": Function(
        operator.mod, _remainder_bounds, _texts("{} % {}"),
        {"c": "tg_mod_i64({}, {})", "triton": "(({0} % {1} + {1}) % {1})"},
    ),
    "max": Function(
        max, lambda a, b: (max(a[0], b[0]), _of_known(max, a[1], b[1])),
        _texts("max({}, {})", c="tg_larger({}, {})", triton="tl.maximum({}, {})"),
    ),
    "min": Function(
        min, lambda a, b: (min(a[0], b[0]), _smaller_top(a[1], b[1])),
        _texts("min({}, {})", c="tg_smaller({}, {})", triton="tl.minimum({}, {})"),
    ),
}  # fmt: skip
"""Quotients and remainders of what is not negative are the same in all three languages; C and Triton cut off others."""
QUOTIENTS = frozenset(("floordiv", "quotient"))
