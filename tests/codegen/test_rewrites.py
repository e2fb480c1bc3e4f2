"""The rewrites of a kernel's statements: before and after as reviewed, and where they do not apply."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from torchglass.codegen.c_printer import lines_of
from torchglass.codegen.rewrites.bf16_pairs import bf16_pairs, paired
from torchglass.codegen.rewrites.column_tables import column_tables
from torchglass.codegen.rewrites.opaque_strides import opaque_strides
from torchglass.codegen.rewrites.separate_gathers import separate_gathers
from torchglass.codegen.rewrites.transposed_tiles import within
from torchglass.codegen.rewrites.unroll import unroll
from torchglass.codegen.rewrites.vector_accumulators import Lanes, in_lanes, lanes_of
from torchglass.codegen.statements import (
    Accumulate,
    Address,
    Assign,
    Count,
    For,
    Let,
    Place,
    Read,
    Stmt,
    Write,
)
from torchglass.records.loops import Access, Load, Loop
from torchglass.records.sizes import Symbol

ROW = Address((("i0", 256), ("i1", 1)))
VECTOR, LIGHT = 16, 8


def read(name: str = "t1", stored: str = "float32", address: Address = ROW, mask: str | None = None) -> Read:
    return Read(name, "float", Place("x", address), stored, "float32", mask, "0.0f" if mask else "")


def write(value: str = "t1", stored: str = "float32", address: Address = ROW) -> Write:
    return Write(Place("y", address), value, stored)


def let(name: str, op: str, *args: str) -> Let:
    return Let(name, "float", op, args, "float32", "float32")


def added(name: str = "r2", value: str = "t1") -> Accumulate:
    return Accumulate(name, "sum", value, "float32")


def loop(*body: Stmt, size: int = 256) -> For:
    return For("i1", "0", size, body, kind="simd")


def shown(before: Sequence[Stmt], after: Sequence[Stmt]) -> str:
    return "\n".join(["/* before */", *lines_of(before), "", "/* after */", *lines_of(after), ""])


BF16 = read(stored="bfloat16")


# -- pairs of bfloat16 -----------------------------------------------------------------------------------------------
def test_bf16_pairs(golden: Callable[[str, str], None]) -> None:
    body = (
        BF16, let("t2", "mul", "t1", "t7"), let("t3", "mul", "t7", "2.0f"), added(value="t2"),
        write("t2", "bfloat16", Address((("i1", 1),), 3)),
    )  # fmt: skip
    after = bf16_pairs(loop(*body), VECTOR)
    assert after is not None
    golden(shown([loop(*body)], [after]), "c")


@pytest.mark.parametrize(
    "stmt",
    [
        read("t2"),
        read("t2", "bfloat16", Address((("i1", 2),))),
        read("t2", "bfloat16", Address((("i0", 256), ("i1", -1)))),
        read("t2", "bfloat16", Address((("t3", 3),))),
        read("t2", "bfloat16", mask="t3"),
        Count("t2", "int64_t", Address((("i1", 1),))),
        Accumulate(Place("acc2", Address((("i1", 1),))), "sum", "t1", "float32", exact=True),
        write(),
        Accumulate("r2", "max", "t1", "float32"),
    ],
    ids=str,
)
def test_what_is_no_pair(stmt: Stmt) -> None:
    assert paired([BF16, write(stored="bfloat16")], "i1") is not None
    assert paired([BF16, stmt, write(stored="bfloat16")], "i1") is None


@pytest.mark.parametrize("size", [255, 30])
def test_pairs_need_an_even_row_of_two_registers(size: int) -> None:
    assert bf16_pairs(loop(BF16, write(stored="bfloat16"), size=size), VECTOR) is None


def test_writes_alone_are_no_pairs() -> None:
    assert paired([write("1.0f", "bfloat16")], "i1") is None


# -- vectors of accumulators -----------------------------------------------------------------------------------------
SUM = (read(), added())
EXP = (read(), let("t2", "exp", "t1"), added(value="t2"))


@pytest.mark.parametrize(
    "body, memory, size, lanes",
    [
        (SUM, ("float",), 2048, Lanes(16, 16, 2)),
        (SUM, ("float",), 31, None),
        (SUM, ("bf16",), 32, Lanes(16, 32, 1)),
        ((BF16, added()), ("bf16",), 32, Lanes(16, 16, 2, pairs=True)),
        (SUM, ("float", "f16"), 100, Lanes(16, 32, 1)),
        (SUM, ("float", "bool8"), 2048, None),
        (SUM, ("double",), 2048, None),
        ((Count("t3", "int64_t", Address((("i1", 1),))), *SUM), ("float",), 2048, None),
        (EXP, ("float",), 2048, Lanes(16, 16, 1)),
        ((*SUM, write()), ("float",), 16, Lanes(16, 16, 1)),
        (SUM, ("float",), Symbol("s0", hint=8), Lanes(16, 16, 2)),
    ],
)
def test_how_many_lanes(body, memory, size, lanes) -> None:
    assert lanes_of(body, memory, "i1", size, VECTOR, LIGHT) == lanes


@pytest.mark.parametrize(
    "body, lanes, size",
    [(SUM, Lanes(8, 8, 2), 100), ((BF16, added()), Lanes(8, 8, 2, pairs=True), 96)],
    ids=["sum", "pairs"],
)
def test_vector_accumulators(body, lanes, size, golden: Callable[[str, str], None]) -> None:
    before, loops, (total,) = in_lanes(body, ["r2"], lanes, "i1", size)
    after = [*before, *loops, Assign("r2", total, "+=")]
    golden(shown([loop(*body, size=size)], after), "c")


# -- gathers, short loops, wide steps, blocks ------------------------------------------------------------------------
PLACE = Let("t2", "int64_t", "bound", ("t1", "INT64_C(1000)", "INT64_C(0)", "INT64_C(0)"), "int64", "int64")
INDEX = Read("t1", "int64_t", Place("index", Address((("i1", 1),))), "int64", "int64")
GOT = read("t3", "bfloat16", Address((("t2", 8), ("i0", 1))))


def test_separate_gathers(golden: Callable[[str, str], None]) -> None:
    before = loop(INDEX, PLACE, GOT, let("t4", "mul", "t3", "2.0f"), write("t4"))
    found = separate_gathers(before, 256, {"x": "bf16", "index": "int64_t"}, 4096)
    assert found is not None
    golden(shown([before], [*found[0], found[1]]), "c")


@pytest.mark.parametrize(
    "body, longest",
    [
        ((INDEX, PLACE, read("t3", "float32", Address((("t2", 8),))), write("t3")), 4096),  # nothing calls a function
        ((INDEX, PLACE, GOT, write("t3")), 100),  # too long a row
        ((BF16, write()), 4096),  # nothing is gathered
        ((INDEX, PLACE, GOT, Write(Place("y", Address((("t2", 1),))), "t3", "bfloat16")), 4096),  # scattered there, too
    ],
    ids=["cheap", "long", "none", "scattered"],
)
def test_gathers_that_stay(body, longest) -> None:
    assert separate_gathers(loop(*body), 256, {"x": "bf16", "index": "int64_t"}, longest) is None


COLUMN = Count("t2", "int64_t", Address((("i1", 1),)))
HALVED = Let("t3", "int64_t", "shr", ("t2", "INT64_C(1)"), "int64", "int64")
WEIGHT = Let("t4", "float", "cast", ("t2",), "float32", "int64")
HALF_WAY = read("t5", address=Address((("i0", 128), ("t3", 1))))


def rows(*body: Stmt) -> list[Stmt]:
    return [For("i0", "0", 64, (loop(*body),), kind="parallel")]


def test_column_tables(golden: Callable[[str, str], None]) -> None:
    before = rows(COLUMN, HALVED, WEIGHT, HALF_WAY, let("t6", "mul", "t5", "t4"), write("t6"))
    ahead, after = column_tables(before, "i1", 256, frozenset("x"), 8)
    golden(shown(before, [*ahead, *after]), "c")
    assert "int64_t column0" in "\n".join(lines_of(column_tables(before, "i1", 256, frozenset(), 8)[0]))


@pytest.mark.parametrize(
    "body, most",
    [
        ((COLUMN, WEIGHT, read(), let("t6", "mul", "t1", "t4"), write("t6")), 8),  # no place among them
        ((COLUMN, HALVED, HALF_WAY, write("t5")), 0),  # too many
        ((INDEX, PLACE, read("t5", address=Address((("t2", 1),))), write("t5")), 8),  # a place that memory says
        ((COLUMN, Let("t3", "int64_t", "add", ("t2", "t9"), "int64", "int64"), HALF_WAY, write("t5")), 8),
    ],
    ids=["weights", "many", "read", "of the row"],
)
def test_columns_without_tables(body, most) -> None:
    before: list[Stmt] = [For("i0", "0", 64, (Count("t9", "int64_t", Address((("i0", 1),))), *rows(*body)))]
    assert column_tables(before, "i1", 256, frozenset("x"), most) == ([], before)


def test_unroll(golden: Callable[[str, str], None]) -> None:
    once = read("t1", address=Address((("i0", 1),)))
    before = loop(once, read("t2"), let("t3", "mul", "t1", "t2"), write("t3"), size=3)
    golden(shown([before], unroll(before, 3)), "c")


def test_what_is_written_is_read_again_each_time() -> None:
    """A value read of an array that the body writes does not come once, though its place does not move."""
    here = Address((("i0", 1),))
    total = Accumulate(Place("x", here), "sum", "t2", "float32", exact=True)
    (first, *_) = unroll(loop(read("t2"), total, read("t3", address=here), write("t3"), size=2), 2)
    assert "t3 = x[i0]" in "\n".join(lines_of([first]))


def test_opaque_strides(golden: Callable[[str, str], None]) -> None:
    places = [Access("x", (1, 4096), offset) for offset in (0, 1)]
    loops = [Loop("y", (8, 64), (False, False), tuple(Load(f"t{n}", a, "float32") for n, a in enumerate(places)))]
    before = [loop(*(read(f"t{n}", address=Address((("i0", 1), ("i1", 4096)), n)) for n in (1, 2)))]
    golden(shown(before, opaque_strides(before, loops, 1, 8)), "c")
    assert opaque_strides(before, loops, 1, 4096) == before


def test_a_loop_within_a_block() -> None:
    inside = within(loop(*SUM), 1, 256)
    assert (inside.start, inside.stop) == ("from", "to")
    for other in (loop(*SUM, size=128), For("i0", "0", 256, SUM), For("i1", "0", 256, SUM, step=2)):
        assert within(other, 1, 256) is other
