"""The checker of loop programs refuses each kind of broken loop, naming it; what lowering makes passes."""

from __future__ import annotations

import pytest

from torchglass.records.check_loops import LoopError, check_graph, check_loop
from torchglass.records.loops import Access, Buffer, Compute, Const, Load, Loop, LoopGraph, Reduce, Store

BUFFERS = {n: Buffer(n, "float32", (4, 8), (8, 1)) for n in "xy"} | {"z": Buffer("z", "float32", (4,), (1,))}
X, Y, Z = Access("x", (8, 1)), Access("y", (8, 1)), Access("z", (1, 0))

LOAD = Load("t0", X, "float32")


def loop(*body: object, dims: tuple[int, ...] = (4, 8), reduced: tuple[bool, ...] = (False, False)) -> Loop:
    return Loop("f", dims, reduced, body)  # type: ignore[arg-type]


def test_a_sound_loop_passes_and_prints() -> None:
    good = loop(
        Load("t0", X, "float32"),
        Const("t1", 2.0, "float32"),
        Compute("t2", "mul", ("t0", "t1"), "float32"),
        Store(Y, "t2"),
    )
    check_loop(good, BUFFERS)
    assert str(good).splitlines() == [
        "loop f over [4, 8]:", "    t0 = load x[8*i0 + i1] : float32", "    t1 = const 2.0 : float32",
        "    t2 = mul t0 t1 : float32", "    store y[8*i0 + i1] t2",
    ]  # fmt: skip
    assert str(X.expr()) == "8*i0 + i1"


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (loop(Store(Y, "t9")), "not defined"),
        (loop(Load("t0", X, "float32"), Load("t0", X, "float32")), "second time"),
        (loop(Load("t0", X, "float99")), "unknown dtype"),
        (loop(Load("t0", X, "float32"), Compute("t1", "frob", ("t0",), "float32")), "no operator frob"),
        (loop(Load("t0", X, "float32"), Compute("t1", "add", ("t0",), "float32")), "takes 2 arguments"),
        (loop(Load("t0", X, "float32"), Compute("t1", "lt", ("t0", "t0"), "float32")), "yields bool"),
        (loop(Load("t0", Access("w", (8, 1)), "float32")), "no buffer w"),
        (loop(Load("t0", Access("x", (1,)), "float32")), "1 strides over 2"),
        (loop(Load("t0", Access("x", (8, 1), 1), "float32")), "leave x"),
        (loop(LOAD, Reduce("t1", "median", "t0", "float32"), Store(Z, "t1"), reduced=(False, True)), "no reduction"),
        (loop(Load("t0", X, "float32"), Store(Z, "t0"), reduced=(False, True)), "before its reduction"),
        (loop(LOAD, Reduce("t1", "sum", "t0", "float32"), Store(Y, "t1"), reduced=(False, True)), "along a reduced"),
        (loop(Const("t0", 1.0, "float32"), Store(Z, "t0"), reduced=(False, True)), "no reduce"),
    ],
)  # fmt: skip
def test_broken_loops_are_refused(broken: Loop, complaint: str) -> None:
    with pytest.raises(LoopError, match=complaint):
        check_loop(broken, BUFFERS)


def test_a_graph_must_write_before_it_reads() -> None:
    copy = loop(Load("t0", X, "float32"), Store(Y, "t0"))
    check_graph(LoopGraph("g", ("x",), BUFFERS, (copy,), ()))
    with pytest.raises(LoopError, match="before anything wrote it"):
        check_graph(LoopGraph("g", (), BUFFERS, (copy,), ()))
