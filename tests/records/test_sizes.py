"""Sizes against integers, SymPy and the C compiler: expressions by chance, and numbers for their symbols."""

from __future__ import annotations

import ast
import ctypes
import doctest
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sympy
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.codegen.harness import Compiled

from torchglass.codegen.prelude import prelude_of, words_of
from torchglass.records import sizes
from torchglass.records.size_environment import SizeEnvironment
from torchglass.records.size_relations import HOLDS, Assumption, proved
from torchglass.records.sizes import (
    Size,
    Symbol,
    at_least,
    at_most,
    bounds,
    divides,
    hint,
    is_known,
    known,
    magnitude,
    maximum,
    minimum,
    product,
    symbol_name,
    symbols,
    text,
    value,
)
from torchglass.runtime.toolchain import compile_c

Tree = Any
"""A name, a number, or an operator and two trees, of which a divisor is positive."""
LIMITS = {"a": (0, None), "b": (0, None), "p": (1, None), "q": (1, 64)}
HINTS = {"a": 0, "b": 7, "p": 3, "q": 16}
SYMBOLS = {name: Symbol(name, HINTS[name], *LIMITS[name]) for name in LIMITS}

positive = st.integers(1, 9) | st.sampled_from("pq")
divisors = positive | st.tuples(st.just("*"), positive, positive) | st.tuples(st.just("+"), positive, positive)
leaves = st.sampled_from("abpq") | st.integers(-6, 12)
points = st.fixed_dictionaries({
    "a": st.integers(0, 20), "b": st.integers(0, 20), "p": st.integers(1, 20), "q": st.integers(1, 64),
})  # fmt: skip


def operations(signs: str) -> Callable[[st.SearchStrategy[Tree]], st.SearchStrategy[Tree]]:
    return lambda parts: st.tuples(st.sampled_from(signs.split()), parts, parts)


def branches(parts: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return operations("+ - * max min")(parts) | st.tuples(st.sampled_from(("//", "%")), parts, divisors)


polynomials = st.recursive(leaves, operations("+ - *"), max_leaves=8)
trees = st.recursive(leaves, branches, max_leaves=8)


def computed(tree: Tree, names: Mapping[str, Any], larger: Any = max, smaller: Any = min) -> Any:
    """What a tree comes to in integers, sizes, or whatever stands for the names."""
    if not isinstance(tree, tuple):
        return names[tree] if isinstance(tree, str) else tree
    x, y = (computed(part, names, larger, smaller) for part in tree[1:])
    return {
        "+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y, "//": lambda: x // y, "%": lambda: x % y,
        "max": lambda: larger(x, y), "min": lambda: smaller(x, y),
    }[tree[0]]()  # fmt: skip


def size_of(tree: Tree) -> Size:
    found: Size = computed(tree, SYMBOLS, maximum, minimum)
    return found


class Truncating(int):
    """An integer whose quotients and remainders are those of C and Triton."""

    def __floordiv__(self, other: int) -> Truncating:
        return Truncating(abs(int(self)) // abs(int(other)) * (1 if (self < 0) == (other < 0) else -1))

    def __mod__(self, other: int) -> Truncating:
        return self - (self // other) * other

    def __add__(self, other: int) -> Truncating:
        return Truncating(int(self) + int(other))

    def __sub__(self, other: int) -> Truncating:
        return Truncating(int(self) - int(other))

    def __mul__(self, other: int) -> Truncating:
        return Truncating(int(self) * int(other))

    def __neg__(self) -> Truncating:
        return Truncating(-int(self))

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: int) -> Truncating:
        return Truncating(other) - self

    def __rfloordiv__(self, other: int) -> Truncating:
        return Truncating(other) // self

    def __rmod__(self, other: int) -> Truncating:
        return Truncating(other) % self


# -- values ----------------------------------------------------------------------------------------------------------
@given(trees, points)
@settings(deadline=None, max_examples=400)
def test_what_integers_come_to(tree: Tree, at: dict[str, int]) -> None:
    size, expected = size_of(tree), computed(tree, at)
    assert value(size, at) == expected
    assert hint(size) == computed(tree, HINTS)
    assert eval(text(size), {}, dict(at)) == expected
    tl = SimpleNamespace(maximum=max, minimum=min)
    assert eval(text(size, "triton"), {"tl": tl}, {n: Truncating(v) for n, v in at.items()}) == expected
    assert known(size) == (expected if is_known(size) else None)
    assert value(magnitude(size), at) == abs(expected)
    assert {*symbols([size])} <= {*at}


@given(trees, points)
@settings(deadline=None, max_examples=400)
def test_bounds_hold(tree: Tree, at: dict[str, int]) -> None:
    size, number = size_of(tree), computed(tree, at)
    low, high = bounds(size)
    assert low <= number and (high is None or number <= high)
    for limit in (number - 1, number, number + 1):
        assert not at_most(size, limit) or number <= limit
        assert not at_least(size, limit) or number >= limit


@given(trees, trees, points)
@settings(deadline=None, max_examples=400)
def test_proofs_hold(left: Tree, right: Tree, at: dict[str, int]) -> None:
    for relation, holds in HOLDS.items():
        answer = proved(size_of(left), relation, size_of(right))
        assert answer is None or answer is holds(computed(left, at), computed(right, at))


@given(trees, divisors, points)
@settings(deadline=None)
def test_divisions_leave_nothing_where_certain(tree: Tree, divisor: Tree, at: dict[str, int]) -> None:
    size, by = size_of(tree), size_of(divisor)
    assert not divides(by, size) or computed(tree, at) % computed(divisor, at) == 0
    assert divides(by, size * by) or is_known(size * by) or len(getattr(by, "terms", ())) > 1


def test_what_is_certain() -> None:
    a, b, p, q = SYMBOLS.values()
    assert divides(4, a * 8 + 4) and divides(p, a * p * 3) and not divides(4, a * 2) and not divides(p, a)
    assert ((a * 6 + 4) // 2, (a * 6 + 4) % 3, (a * p) // p, (q % 4) // 4) == (a * 3 + 2, 1, a, 0)
    assert at_most(q * 2, 128) and not at_most(a, 1 << 40) and at_least(p * q, 1) and not at_least(a - p, 0)
    assert bounds(minimum(a - 5, q)) == (-5, 64) and maximum(p, 1) == p and minimum(q, 64) == q
    assert product([a, 3, b]) == a * b * 3 == b * (a * 3) and product([]) == 1
    assert (symbol_name(a), symbol_name(a + 1), symbol_name(a * b), symbol_name(7)) == ("a", None, None, None)
    assert maximum(a, b) == maximum(b, a) and str(a * 2 - 1) == "2*a - 1" and symbols([maximum(a, 3), b]) == ["a", "b"]


def test_padded_sizes_divide_into_windows() -> None:
    n, m = Symbol("n", 6, low=1), Symbol("m", 3, low=1)
    padded = n + (4 - n % 4) % 4
    assert padded % 4 == 0
    assert padded // 4 * 4 == padded
    assert (16 * padded * m) // (64 * m) == padded // 4
    assert (2 * m * (n + 1) * (n + 1)) // (m * n + m) == 2 * n + 2
    assert n // 2 // 3 == n // 6
    assert (n * n + 1) % (n + 1) != 0


def test_the_example_of_the_module() -> None:
    tried = doctest.testmod(sizes)
    assert tried.attempted >= 3 and not tried.failed


# -- the normal form -------------------------------------------------------------------------------------------------
@given(polynomials, polynomials)
@settings(deadline=None, max_examples=150)
def test_equal_polynomials_are_equal_objects(left: Tree, right: Tree) -> None:
    names = {name: sympy.Symbol(name) for name in LIMITS}
    one, other = (sympy.expand(computed(tree, names)) for tree in (left, right))
    mine, yours = size_of(left), size_of(right)
    assert sympy.expand(sympy.sympify(text(mine), names)) == one
    assert (mine == yours) == (one == other)
    assert mine != yours or hash(mine) == hash(yours)
    assert is_known(mine) == bool(one.is_Integer if isinstance(one, sympy.Basic) else True)


@given(polynomials, polynomials, polynomials)
@settings(deadline=None)
def test_rules_of_rings(one: Tree, two: Tree, three: Tree) -> None:
    x, y, z = size_of(one), size_of(two), size_of(three)
    assert x + y == y + x and x * y == y * x and (x + y) * z == x * z + y * z and x - x == 0 and x * 0 == 0


@given(trees, divisors)
@settings(deadline=None)
def test_whole_numbers_leave_a_quotient(tree: Tree, divisor: Tree) -> None:
    size, by = size_of(tree), size_of(divisor)
    assume(len(getattr(by, "terms", ())) <= 1)
    assert (size * by + by) // by == size + 1 and (size * by) % by == 0


# -- C ---------------------------------------------------------------------------------------------------------------
def tree_by_chance(rng: random.Random, depth: int) -> Tree:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice([*LIMITS, rng.randint(-6, 12)])
    sign = rng.choice(["+", "-", "*", "//", "%", "max", "min"])
    divisor = rng.choice(["p", "q", rng.randint(1, 9), ("*", "p", rng.randint(1, 4)), ("+", "p", "q")])
    return sign, tree_by_chance(rng, depth - 1), divisor if sign in "//%" else tree_by_chance(rng, depth - 1)


def test_texts_in_c(tmp_path: Path) -> None:
    """All in one file, with the paragraphs of the prelude that they use."""
    rng = random.Random(0)
    chosen = [tree_by_chance(rng, 4) for _ in range(300)]
    lines = [f"    out[{n}] = {text(size_of(tree), 'c')};" for n, tree in enumerate(chosen)]
    head = [
        "void sizes(const int64_t *at, int64_t *out)",
        "{",
        "    int64_t a = at[0], b = at[1], p = at[2], q = at[3];",
    ]
    body = "\n".join([*head, *lines, "}"])
    used = ("tg_larger", "tg_smaller", "tg_floordiv_i64", "tg_mod_i64", " / ", " % ")
    assert all(word in body for word in used)
    file = tmp_path / "sizes.c"
    file.write_text(f"{prelude_of(words_of(body))}\n\n{body}\n")
    library = compile_c(file)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.address("sizes"))
    for _ in range(50):
        at = {"a": rng.randint(0, 20), "b": rng.randint(0, 20), "p": rng.randint(1, 20), "q": rng.randint(1, 64)}
        given, out = (ctypes.c_int64 * 4)(*at.values()), (ctypes.c_int64 * len(chosen))()
        function(given, out)
        wrong = [(tree, at) for tree, got in zip(chosen, out) if got != computed(tree, at)]
        assert not wrong


# -- assumptions -----------------------------------------------------------------------------------------------------
def environment() -> SizeEnvironment:
    made = SizeEnvironment()
    made.ranges |= LIMITS
    return made


@given(trees, st.sampled_from([*HOLDS]), trees, points)
@settings(deadline=None)
def test_what_is_decided_is_proved_or_assumed(left: Tree, relation: str, right: Tree, at: dict[str, int]) -> None:
    """Where the assumptions hold, so does the answer."""
    sizes = environment()
    answer = sizes.decide(size_of(left), relation, size_of(right), "to try it")
    assert answer is HOLDS[relation](computed(left, HINTS), computed(right, HINTS))

    def hold(at: Mapping[str, int]) -> bool:
        return all(HOLDS[row.relation](value(row.left, at), value(row.right, at)) for row in sizes.assumed.values())

    assert hold(HINTS)
    if hold(at):
        assert answer is HOLDS[relation](computed(left, at), computed(right, at))


def test_an_assumption_is_made_once_and_says_why() -> None:
    a, q = SYMBOLS["a"], SYMBOLS["q"]
    sizes = environment()
    assert sizes.decide(q, "<=", 64, "it is certain") and not sizes.assumed
    assert not sizes.decide(a, ">", 4, "few rows") and not sizes.decide(a, ">", 4, "few rows")
    assert [*sizes.assumed.values()] == [Assumption(a - 4, "<=", 0, "few rows")]


# -- cost ------------------------------------------------------------------------------------------------------------
def test_no_sympy_here() -> None:
    tree = ast.parse(Path(sizes.__file__).read_text())
    imported = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    imported += [alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names]
    assert imported and not any("sympy" in name or "torch" in name for name in imported)


def test_known_sizes_make_no_expressions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, *_: object) -> None:
        raise AssertionError("an expression of known sizes")

    monkeypatch.setattr(sizes.Expr, "__init__", refuse)

    def training(x: torch.Tensor, w: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        loss = (torch.layer_norm(x @ w, (8,)).softmax(0)[index] * 2).cumsum(1).square().mean()
        return torch.autograd.grad(loss, (x, w))

    training.trains = True  # type: ignore[attr-defined]
    x, w = torch.rand(12, 6, requires_grad=True), torch.rand(6, 8, requires_grad=True)
    assert Compiled(training, [x, w, torch.tensor([0, 3, 11])], tmp_path).fused.kernels
