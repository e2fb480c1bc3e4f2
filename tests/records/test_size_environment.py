"""Symbols and decisions of one compile."""

from __future__ import annotations

import pytest
from torch.fx.experimental.symbolic_shapes import guard_or_false, guard_or_true

from torchglass.records.size_environment import SizeEnvironment
from torchglass.records.size_relations import HOLDS
from torchglass.records.sizes import Size, hint, value
from torchglass.records.sources import Local
from torchglass.records.symbolic_ints import size_of


@pytest.mark.parametrize("open_layouts", [True, False])
@pytest.mark.parametrize("number", [1, 7])
def test_the_same_answer_or_else_to_python_and_to_cpp(open_layouts: bool, number: int) -> None:
    asked = []
    for ask in (
        (guard_or_false, guard_or_true),
        (lambda one: one.node.guard_or_false(), lambda one: one.node.guard_or_true()),
    ):
        environment = SizeEnvironment()
        environment.layouts_open = open_layouts
        size = environment.symbol(Local("n"), number)
        asked.append(([each(size == 1) for each in ask], list(environment.assumed)))
    assert asked[0] == asked[1]
    assert asked[0][0] == ([False, True] if open_layouts else [number == 1, number == 1])
    assert bool(asked[0][1]) != open_layouts


def test_a_symbol_that_was_assumed_to_equal_another_keeps_its_name() -> None:
    environment = SizeEnvironment()
    n, m = (environment.symbol(Local(name), 7) for name in "nm")
    assert bool(n == m)
    assert environment.named("s0") is n and environment.named("s1") is m
    assert size_of(n) == size_of(m)
    assert bool(m == 7)
    assert hint(size_of(environment.named("s1"))) == 7


def test_what_follows_holds_wherever_the_others_do() -> None:
    """Each of these relations beside each other, and beside two: what is said to follow is tried at all sizes."""
    environment = SizeEnvironment()
    n = size_of(environment.symbol(Local("n"), 24))
    relations: list[tuple[Size, str, Size]] = [
        (n // 2, "==", n // 4 * 2),
        (n // 4 * 4, "==", n),
        (n % 4, "==", 0),
        (n % 2, "==", 0),
        (n // 3 * 3, "==", n),
        (n % 24, "!=", 1),
        (n // 8, ">", 2),
        (n * n, ">=", 100),
    ]
    rows = []
    for relation in relations:
        alone = SizeEnvironment()
        alone.ranges = dict(environment.ranges)
        assert alone.decide(*relation)
        rows += [row for row in alone.assumed.values() if row not in rows]
    found = set()
    for row in rows:
        for others in ([a, b] for a in rows for b in rows if row not in (a, b)):
            if environment.follows(row, others):
                found.add(str(row.left))
                for size in range(1, 200):
                    holds = [HOLDS[one.relation](value(one.left, {"s0": size}), 0) for one in (row, *others)]
                    assert holds[0] or not all(holds[1:]), (size, row, others)
    assert "(s0 // 2) - 2*(s0 // 4)" in found and len(found) > 2


@pytest.mark.parametrize("relation, answer", [("==", True), ("!=", False)])
def test_equal_products_have_equal_factors_however_they_are_compared(relation: str, answer: bool) -> None:
    """As PyTorch's own versions ask of logits and labels."""
    environment = SizeEnvironment()
    sizes = [(size, n) for n, size in ((0, 4), (1, 6), (2, 4), (3, 6))]
    b, t, c, u = (size_of(environment.symbol(Local(f"x{n}"), size)) for size, n in sizes)
    assert environment.decide(b * t, relation, c * u) is answer
    assert environment.proved(b, "==", c) and environment.proved(t, "==", u) and environment.proved(b * t, ">=", c * u)
