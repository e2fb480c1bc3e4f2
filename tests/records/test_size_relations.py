"""Relations of sizes against integers: their normal forms, and sizes after equalities that were assumed."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.records.test_sizes import HINTS, LIMITS, Tree, computed, points, size_of, trees

from torchglass.records import size_floats, size_relations
from torchglass.records.size_environment import SizeEnvironment
from torchglass.records.size_floats import FloatOf
from torchglass.records.size_relations import HOLDS, conjuncts, exact_quotient, normal_form, paired, proved, solved
from torchglass.records.sizes import Size, Symbol, hint, maximum, minimum, text, value
from torchglass.records.sources import Local
from torchglass.records.symbolic_ints import size_of as size_in

relations = st.sampled_from(tuple(HOLDS))


@given(trees, trees, relations, points)
@settings(deadline=None, max_examples=400)
def test_what_is_proved_holds(one: Tree, other: Tree, relation: str, at: dict[str, int]) -> None:
    left, right = size_of(one), size_of(other)
    answer = proved(left, relation, right)
    assert answer in (None, HOLDS[relation](value(left, at), value(right, at)))


@given(trees, relations, points)
@settings(deadline=None, max_examples=400)
def test_a_normal_form_holds_of_the_same_sizes(tree: Tree, relation: str, at: dict[str, int]) -> None:
    size, expected = size_of(tree), HOLDS[relation](computed(tree, at), 0)
    assert HOLDS[relation](computed(tree, HINTS), 0) in (True, False)
    low_enough = all(at[name] >= low for name, (low, _) in LIMITS.items())
    left, now = normal_form(size, relation)
    assert not low_enough or HOLDS[now](value(left, at), 0) == expected


@pytest.mark.parametrize(
    ("difference", "relation", "expected"),
    [
        ("a // 4 - 2", ">=", "a - 8 >= 0"), ("a // 4 - 2", "<", "a - 8 < 0"), ("a // 4", "!=", "a - 4 >= 0"),
        ("a // 4", "==", "a - 4 < 0"), ("2 - (a + 3) // 2", "<=", "a - 1 >= 0"), ("b - a", "<", "a - b > 0"),
        ("(a // 4 + 1) // 8 - 1", ">=", "a - 28 >= 0"), ("6*a - 12", "==", "a - 2 == 0"),
    ],
)  # fmt: skip
def test_normal_forms(difference: str, relation: str, expected: str) -> None:
    a, b = Symbol("a", 40, 1), Symbol("b", 9, 1)
    left, now = normal_form(eval(difference, {"a": a, "b": b}), relation)
    assert f"{left} {now} 0" == expected


# --- equalities that were assumed -----------------------------------------------------------------------------------
def environment_at(at: dict[str, int]) -> tuple[SizeEnvironment, dict[str, Size]]:
    environment = SizeEnvironment()
    made = {name: environment.symbol(Local(name), max(number, 1)) for name, number in at.items()}
    return environment, {name: size_in(size) for name, size in made.items()}


@given(st.lists(st.tuples(trees, trees, st.sampled_from(("==", "%"))), max_size=4), trees, points)
@settings(deadline=None, max_examples=400)
def test_equal_sizes_come_to_the_same(pairs: list[tuple[Tree, Tree, str]], tree: Tree, at: dict[str, int]) -> None:
    """What is assumed is true of the numbers at hand, and so is every form that a size has afterwards."""
    at = {name: max(number, 1) for name, number in at.items()}
    environment, names = environment_at(at)
    before: Size = computed(tree, names, maximum, minimum)
    for left, right, how in pairs:
        one, other = (computed(part, names, maximum, minimum) for part in (left, right))
        if how == "==":
            environment.decide(one, "==", other + (hint(one) - hint(other)))
        elif not isinstance(other, int) and environment.proved(other, ">", 0):
            environment.decide(one - hint(one) % hint(other), ">=", 0)
            environment.decide((one - hint(one) % hint(other)) % other, "==", 0)
    at = dict(zip((text(size) for size in names.values()), at.values()))
    assert value(environment.canonical(before), at) == value(before, at)
    after: Size = computed(tree, {n: environment.canonical(s) for n, s in names.items()}, maximum, minimum)
    assert value(environment.canonical(after), at) == value(before, at)


def test_one_form_for_what_is_equal() -> None:
    environment, names = environment_at({"n": 24, "k": 3, "m": 8, "j": 8, "i": 2})
    n, k, m, j, i = names.values()
    assert environment.decide(n % k, "==", 0) and environment.decide(n // k, "==", m)
    assert environment.canonical(n) == m * k and environment.canonical(n // m) == k
    assert environment.decide(m, "==", j)
    assert environment.canonical(j * k) == environment.canonical(n)
    assert environment.decide(j, "==", i * 4)
    assert environment.canonical(i * 4) == environment.canonical(m)
    assert environment.proved(i * 4 * k, "==", n)
    assert not solved(2 * n - 3 * k)


def test_what_is_a_multiple_has_an_exact_quotient() -> None:
    """Whether that is said by the remainder or by what the quotient comes to."""
    n = Symbol("n", hint=12, low=1)
    (halved,) = (atom for atom in solved(2 * (n // 2) - n) if atom.function == "floordiv")
    assert 2 * solved(2 * (n // 2) - n)[halved] == n
    assert solved(2 * (n // 2) - n) == solved(n % 2)


def test_exact_quotients() -> None:
    n, k = Symbol("n", 24, 1), Symbol("k", 3, 1)
    e = exact_quotient(n, k)
    assert e != n // k and e * k == n and n // e == k and (16 * n) % (4 * e) == 0 and (16 * n) // (4 * e) == 4 * k
    assert exact_quotient(n * k, k) == n and exact_quotient(12, 4) == 3
    assert text(e) == "(n // k)" and text(e, "c") == "(n / k)" and value(e, {"n": 24, "k": 3}) == 8


def test_equal_relations_are_assumed_once() -> None:
    environment, names = environment_at({"n": 24, "m": 24})
    n, m = names.values()
    assert environment.decide(n, "==", m) and environment.decide(m, "==", n) and environment.decide(2 * n, "==", 2 * m)
    assert len(environment.assumed) == 1


# --- floats ---------------------------------------------------------------------------------------------------------
numbers = st.sampled_from(("n", "m")) | st.floats(-4, 4, width=16)
float_trees = st.recursive(numbers, lambda parts: st.tuples(st.sampled_from("+-*/"), parts, parts), max_leaves=6)
NAMES = {"+": "add", "-": "sub", "*": "mul", "/": "truediv"}


@given(float_trees, st.integers(1, 30), st.integers(1, 30))
@settings(deadline=None, max_examples=300)
def test_floats_are_those_of_python(tree: Tree, n: int, m: int) -> None:
    at = {"n": n, "m": m}
    symbols = {name: FloatOf(Symbol(name, number, 1)) for name, number in at.items()}

    def made(tree: Tree, names: dict[str, object], own: bool) -> object:
        if not isinstance(tree, tuple):
            return names[tree] if isinstance(tree, str) else tree
        left, right = (made(part, names, own) for part in tree[1:])
        function = NAMES[tree[0]]
        return (
            size_floats.computed(function, left, right) if own else size_floats.FUNCTIONS[function].value(left, right)
        )

    try:
        expected = made(tree, {name: float(number) for name, number in at.items()}, own=False)
    except ZeroDivisionError:
        return
    try:
        number = made(tree, symbols, own=True)
    except ZeroDivisionError:  # of constants
        return
    assert size_floats.value(number, at) == size_floats.hint(number) == expected  # type: ignore[arg-type]
    assert eval(str(number), {}, at) == expected


@pytest.mark.parametrize("module", [size_floats, size_relations])
def test_examples(module: object) -> None:
    assert doctest.testmod(module, extraglobs={"Symbol": Symbol}).failed == 0  # type: ignore[arg-type]


def test_factors_of_equal_products_are_paired_by_what_they_are_now() -> None:
    b, t, c, u = (Symbol(name, hint) for name, hint in (("b", 3), ("t", 8), ("c", 3), ("u", 8)))
    assert paired(b * t - c * u) in ([(b, c), (t, u)], [(c, b), (u, t)])
    assert not paired(b * t - c)
    assert not paired(b * t - 2 * c * u)
    assert not paired(b * t - Symbol("v", 6) * Symbol("w", 4))


def test_a_minimum_is_at_most_either_and_a_maximum_at_least() -> None:
    a, b = Symbol("a", 6), Symbol("b", 4)
    least, most = minimum(a, b), maximum(2 * a, b)
    assert proved(least, "<=", a) and proved(least, "<=", b) and proved(a + 1 - least, ">", 0)
    assert proved(most, ">=", b) and proved(most + 1, ">", 2 * a) and proved(b - most, ">", 0) is False
    assert proved(least, ">=", b) is None and proved(most, "<=", b) is None


def test_a_quotient_is_at_most_what_is_divided() -> None:
    a, b = Symbol("a", 6), Symbol("b", 4, low=1)
    assert proved(a // 2, "<=", a) and proved(a - a // 2, ">=", 0) and proved(a // b, "<=", a)
    assert proved(a // 3 * 2, "<=", a) and proved(a // 2 + 1, ">", 0) and proved((a + 1) // 2 * 2, ">=", a)
    assert proved(a % b, "<=", a) and proved((a - 3) // 2, "<", a)
    assert proved(a // 2, "<", a) is None and proved(a // 2 * 3, "<=", a) is None and proved(a % 3, "<", a) is None


def test_what_a_maximum_is_below_both_of_its_arguments_are_below() -> None:
    a, b, c = Symbol("a", 6), Symbol("b", 4), Symbol("c", 9)
    assert conjuncts(maximum(a, b) - c, "<=") == [a - c, b - c]
    assert conjuncts(c - maximum(a, b), ">=") == [c - a, c - b]
    assert conjuncts(minimum(a, b) - c, ">") == [a - c, b - c]
    assert conjuncts(maximum(a, b) - c, ">=") == conjuncts(minimum(a, b) - c, "==") == conjuncts(a - c, "<=") == []
