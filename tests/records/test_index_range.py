"""What may be counted in 32 bits where sizes change."""

from __future__ import annotations

from hypothesis import given, settings
from tests.records.test_sizes import Tree, computed, points, size_of, trees

from torchglass.records.index_range import covers, joined
from torchglass.records.sizes import Symbol, maximum, value

b, t, u = (Symbol(name, number, 1) for name, number in (("b", 4), ("t", 6), ("u", 3)))
ELEMENTS = joined([768 * b * t, 12 * b * t * t, 50 * b * t, b * t - 8, 7])


def test_a_sum_of_what_is_largest() -> None:
    assert 768 * b * t + 12 * b * t * t + 7 == ELEMENTS


def test_what_is_covered() -> None:
    assert covers(ELEMENTS, 1500 * b * t + 24 * b * t * t)
    assert covers(ELEMENTS, 1536 * b + 24 * t)  # t and b * t are 1 at least
    assert covers(ELEMENTS, (768 * b * t - 5) // 3)
    assert covers(ELEMENTS, 14) and not covers(ELEMENTS, 100_000)
    assert not covers(ELEMENTS, 2000 * b * t)
    assert not covers(ELEMENTS, 1500 * b * t + 1500 * b)
    assert not covers(ELEMENTS, b * b)
    assert not covers(ELEMENTS, u)
    assert not covers(ELEMENTS, (b * b * 100) // 200)  # what is divided is larger
    assert not covers(ELEMENTS, maximum(b, u))


@given(trees, trees, points)
@settings(deadline=None, max_examples=400)
def test_no_more_than_twice(one: Tree, other: Tree, at: dict[str, int]) -> None:
    elements = joined([size_of(one), size_of(one) * 2])
    if covers(elements, size_of(other)):
        assert computed(other, at) <= 2 * value(elements, at)
