"""Integers in 32 bits on a GPU: which, and that none is where it may not fit."""

from __future__ import annotations

from torchglass.records.loops import Access, Compute, Const, Index, Load, Loop, Store
from torchglass.schedule.narrow import narrowed

PLACE = Access("places", (1,))


def dtypes(loop: Loop, dims: tuple[int, ...]) -> dict[str, str]:
    return {op.result: op.dtype for op in narrowed(loop, dims).body if not isinstance(op, Store)}


def places(*body: object, result: str = "t2") -> Loop:
    return Loop("places", (64,), (False,), (*body, Store(PLACE, result)))  # type: ignore[arg-type]


def test_what_counters_bound_fits() -> None:
    loop = places(Index("t0", (2,), -1), Const("t1", 0, "int64"), Compute("t2", "maximum", ("t0", "t1"), "int64"))
    assert dtypes(loop, (64,)) == {"t0": "int32", "t1": "int32", "t2": "int32", "t2_wide": "int64"}
    assert str(narrowed(loop, (64,)).body[-1]) == "store places[i0] t2_wide"


def test_what_may_be_larger_stays() -> None:
    loop = places(Index("t0", (2**20,), 0), Const("t1", 2**12, "int64"), Compute("t2", "mul", ("t0", "t1"), "int64"))
    assert dtypes(loop, (64,)) == {"t0": "int32", "t1": "int32", "t0_wide": "int64", "t1_wide": "int64", "t2": "int64"}
    assert dtypes(places(Index("t2", (2**26,), 0)), (64,)) == {"t2": "int64"}


def test_what_memory_holds_stays() -> None:
    """A comparison with it is in 64 bits, one with counters in 32."""
    index, load = Index("t0", (1,), 0), Load("t1", Access("x", (1,)), "int64")
    loop = places(index, load, Compute("t2", "eq", ("t0", "t1"), "bool"), Compute("t3", "lt", ("t0", "t0"), "bool"))
    found = narrowed(loop, (64,)).body
    assert [str(op) for op in found[2:5]] == ["t0_wide = cast t0 : int64", "t2 = eq t0_wide t1 : bool",
                                              "t3 = lt t0 t0 : bool"]  # fmt: skip


def test_division_by_what_may_be_zero_stays() -> None:
    index, count = Index("t0", (1,), 0), Const("t1", 7, "int64")
    by = lambda a, b: dtypes(places(index, count, Compute("t2", "floordiv", (a, b), "int64")), (64,))["t2"]
    assert (by("t0", "t1"), by("t1", "t0")) == ("int32", "int64")
