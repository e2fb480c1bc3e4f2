"""PyTorch's symbolic sizes become ours: the same numbers for all values of the symbols, and what has no such form."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.functions import CleanDiv, FloorDiv, IntTrueDiv, Max, Min, Mod, ModularIndexing, PythonMod

from torchglass import lower
from torchglass.lower.context import sizes_of
from torchglass.lower.symbolic_sizes import converted, of_expression
from torchglass.lower.table import NotLowered
from torchglass.records.sizes import Expr, bounds, hint, symbols, value

ENVIRONMENT = ShapeEnv()
SIZES = FakeTensorMode(shape_env=ENVIRONMENT).from_tensor(torch.empty(6, 9), static_shapes=False).shape
S, T = (size.node.expr for size in SIZES)

OPERATIONS: list[Callable[[Any, Any, int], Any]] = [
    lambda a, b, n: a + b,
    lambda a, b, n: a * b,
    lambda a, b, n: sympy.Pow(a, n % 4, evaluate=False),
    lambda a, b, n: Max(a, b, evaluate=False),
    lambda a, b, n: Min(a, b, evaluate=False),
    lambda a, b, n: FloorDiv(a, b + 1, evaluate=False),
    lambda a, b, n: Mod(a, b + 1, evaluate=False),
    lambda a, b, n: PythonMod(a, b + 1, evaluate=False),
    lambda a, b, n: CleanDiv(a * n, n, evaluate=False),
    lambda a, b, n: ModularIndexing(a, n, n + 2, evaluate=False),
]
"""Of two expressions that are not negative and a small number. To simplify deep ones SymPy would take very long."""

EXPRESSIONS = st.recursive(
    st.sampled_from([S, T, S - 1, T - 2, 2 * S, *map(sympy.Integer, range(4))]),
    lambda parts: st.tuples(st.sampled_from(OPERATIONS), parts, parts, st.integers(1, 6)).map(lambda p: p[0](*p[1:])),
    max_leaves=6,
)


def number(expression: Any, at: dict[Any, int]) -> int:
    """What SymPy's functions come to where the symbols have these values."""
    if not expression.args:
        return int(expression.subs(at))
    return int(expression.func(*(sympy.Integer(number(argument, at)) for argument in expression.args)))


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, st.integers(2, 40), st.integers(2, 40))
def test_the_same_numbers(expression: Any, s: int, t: int) -> None:
    size = of_expression(expression, ENVIRONMENT)
    expected = number(expression, {S: s, T: t})
    assert value(size, {S.name: s, T.name: t}) == expected
    assert hint(size) == value(size, {S.name: 6, T.name: 9})


def test_symbols_keep_what_is_known_of_them() -> None:
    size = converted(SIZES[0] * 3 + 1)
    assert isinstance(size, Expr) and symbols([size]) == [S.name]
    assert hint(size) == 19 and bounds(size) == (7, None)
    assert sizes_of(torch.empty(2, 3).shape) == (2, 3)
    assert sizes_of(SIZES) == (converted(SIZES[0]), converted(SIZES[1]))


@pytest.mark.parametrize("expression", [IntTrueDiv(S, T), S ** sympy.Integer(-1), S * sympy.Rational(1, 2), 2**S])
def test_what_is_no_size(expression: Any) -> None:
    with pytest.raises(NotLowered):
        of_expression(expression, ENVIRONMENT)


def test_a_size_that_data_decide() -> None:
    with pytest.raises(NotLowered, match="which data decide"):
        converted(ENVIRONMENT.create_unbacked_symint())


def test_numbers_do_without_sympy() -> None:
    """A conversion knows an expression by its class's name: what has numbers for sizes never waits for SymPy."""
    for file in Path(lower.__file__).parent.rglob("*.py"):
        imported = [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, (ast.Import, ast.ImportFrom))]
        assert not any("sympy" in ast.unparse(node) for node in imported), file
