"""PyTorch's symbolic sizes as ours: a ``SymInt``'s SymPy expression in, a ``Size`` out.

    Mod(s0, 3) + 2*s1                 (SymPy)        (s0 % 3) + 2*s1                   (records.sizes)
    ModularIndexing(s0, 4, 3)                        ((s0 // 4) % 3)

Symbols keep the value and the range that the shape environment has of them. SymPy is not imported: a graph whose sizes
are numbers never meets it, and an expression says by the name of its class what it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add, floordiv, mod, mul
from typing import Any
from weakref import WeakKeyDictionary

import torch

from ..records.sizes import Size, Symbol, is_known, maximum, minimum, product
from ..records.symbolic_ints import IntNode
from ..torch_compat import expression_of, symbol_facts
from .table import NotLowered


def _power(base: Size, exponent: Size) -> Size:
    if not is_known(exponent) or exponent < 0:
        raise NotLowered(f"a size to the power of {exponent}")
    return product([base] * exponent)


FUNCTIONS: dict[str, Callable[..., Size]] = {
    "Add": lambda *sizes: reduce(add, sizes),
    "Mul": lambda *sizes: reduce(mul, sizes),
    "Max": lambda *sizes: reduce(maximum, sizes),
    "Min": lambda *sizes: reduce(minimum, sizes),
    "Pow": _power, "PowByNatural": _power,
    "FloorDiv": floordiv, "CleanDiv": floordiv,
    "Mod": mod, "PythonMod": mod,
    "ModularIndexing": lambda base, divisor, modulus: base // divisor % modulus,
}  # fmt: skip
"""SymPy's and PyTorch's functions of sizes, by the names of their classes."""

_CONVERTED: WeakKeyDictionary[Any, dict[Any, Size]] = WeakKeyDictionary()
"""What expressions came to, by the environment of their symbols."""


def converted(size: torch.SymInt) -> Size:
    """A symbolic size as a ``Size``; NotLowered where it has none."""
    if isinstance(size.node, IntNode):
        return size.node.size
    return of_expression(*expression_of(size))


def of_expression(expression: Any, environment: Any) -> Size:
    """The same of an expression in an environment's symbols."""
    known = _CONVERTED.setdefault(environment, {})
    found = known.get(expression)
    if found is None:
        if expression.is_Integer:
            found = int(expression)
        elif expression.is_Symbol:
            found = _symbol(expression, environment)
        elif (function := FUNCTIONS.get(type(expression).__name__)) is not None:
            found = function(*(of_expression(argument, environment) for argument in expression.args))
        else:
            raise NotLowered(f"the size {expression}")
        known[expression] = found
    return found


def _symbol(symbol: Any, environment: Any) -> Size:
    facts = symbol_facts(environment, symbol)
    if facts.hint is None or facts.low is None or facts.low < 0:
        raise NotLowered(f"the size {symbol}, which data decide or which may be negative")
    return Symbol(symbol.name, facts.hint, facts.low, facts.high)
