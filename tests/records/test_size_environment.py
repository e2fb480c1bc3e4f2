"""Symbols and decisions of one compile."""

from __future__ import annotations

import pytest
from torch.fx.experimental.symbolic_shapes import guard_or_false, guard_or_true

from torchglass.records.size_environment import SizeEnvironment
from torchglass.records.sizes import hint
from torchglass.records.sources import Local
from torchglass.records.symbolic_ints import size_of


@pytest.mark.parametrize("open_layouts", [True, False])
@pytest.mark.parametrize("value", [1, 7])
def test_the_same_answer_or_else_to_python_and_to_cpp(open_layouts: bool, value: int) -> None:
    asked = []
    for ask in (
        (guard_or_false, guard_or_true),
        (lambda one: one.node.guard_or_false(), lambda one: one.node.guard_or_true()),
    ):
        environment = SizeEnvironment()
        environment.layouts_open = open_layouts
        size = environment.symbol(Local("n"), value)
        asked.append(([each(size == 1) for each in ask], list(environment.assumed)))
    assert asked[0] == asked[1]
    assert asked[0][0] == ([False, True] if open_layouts else [value == 1, value == 1])
    assert bool(asked[0][1]) != open_layouts


def test_a_symbol_that_was_assumed_to_equal_another_keeps_its_name() -> None:
    environment = SizeEnvironment()
    n, m = (environment.symbol(Local(name), 7) for name in "nm")
    assert bool(n == m)
    assert environment.named("s0") is n and environment.named("s1") is m
    assert size_of(n) == size_of(m)
    assert bool(m == 7)
    assert hint(size_of(environment.named("s1"))) == 7
