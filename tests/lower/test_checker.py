"""The checker of loop programs refuses each kind of broken loop, naming it; what lowering makes passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from torchglass import lower
from torchglass.records.check_loops import LoopError, check_graph, check_loop, operands
from torchglass.records.loops import Access, Buffer, Compute, Const, Load, Loop, LoopGraph, Reduce, Scan, Store
from torchglass.runtime import machine

BUFFERS = {n: Buffer(n, "float32", (4, 8), (8, 1)) for n in "xy"} | {"z": Buffer("z", "float32", (4,), (1,))}
X, Y, Z = Access("x", (8, 1)), Access("y", (8, 1)), Access("z", (1, 0))

LOAD = Load("t0", X, "float32")
SCAN = Scan("t1", "sum", "t0", (0, 1), "float32")


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
        (loop(LOAD, SCAN, Compute("t2", "add", ("t0", "t1"), "float32"), Store(Y, "t2")), "more than the scan"),
        (loop(LOAD, SCAN, Reduce("t2", "sum", "t1", "float32"), Store(Z, "t2"), reduced=(False, True)), "and reduces"),
        (loop(LOAD, SCAN, replace(SCAN, result="t2", strides=(1, 0)), Store(Y, "t1")), "another line"),
        (loop(LOAD, replace(SCAN, strides=(1, 1)), Store(Y, "t1")), "one by one"),
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


# -- broken on purpose, one thing at a time --------------------------------------------------------------------------
def programs() -> Iterator[LoopGraph]:
    """What lowering makes of reductions, reads by index, joins and windows."""
    x, ids, image = torch.randn(6, 8), torch.tensor([1, 5, 0]), torch.randn(1, 2, 6, 6)
    for fn, args in (
        (lambda x: torch.softmax(x * 2, 1).sum(0), (x,)),
        (lambda x: F.gelu(F.layer_norm(x, (8,))).to(torch.bfloat16), (x,)),
        (lambda x, i: torch.cat([F.embedding(i, x), x], 0).max(1), (x, ids)),
        (lambda x, i: (x * 2).index_add(0, i, x[:3]), (x, ids)),
        (lambda x: F.interpolate(F.max_pool2d(x, 3, 2, 1), scale_factor=2.0, mode="bilinear"), (image,)),
        (lambda x: (torch.softmax(x, 1).cumsum(0), *(x * 2).cummax(1)), (x,)),
        (lambda x: (x.t().argmax(0), (x > 0).any(1), x.flip(0) @ x.t()), (x,)),
    ):
        yield lower.run(make_fx(fn, tracing_mode="fake")(*args), machine.targets())


def mutants(graph: LoopGraph) -> Iterator[tuple[str, LoopGraph]]:
    """``graph`` with one thing changed that makes it wrong."""
    for n, node in enumerate(graph.nodes):
        others = [node for k, node in enumerate(graph.nodes) if k != n]
        yield f"{node.name} left out", replace(graph, nodes=tuple(others))
        yield f"{node.name} twice", replace(graph, nodes=(*graph.nodes, node))
        if isinstance(node, Loop):
            for what, changed in broken_loops(node):
                nodes = (*graph.nodes[:n], changed, *graph.nodes[n + 1 :])
                yield f"{node.name}: {what}", replace(graph, nodes=nodes)


def broken_loops(loop: Loop) -> Iterator[tuple[str, Loop]]:
    body = loop.body
    flags = tuple(not r for r in loop.reduced)
    if loop.dims and len(set(flags)) == 1 and any(d > 1 for d in loop.dims):
        yield "reduced dimensions exchanged", replace(loop, reduced=flags)
    yield "a dimension more", replace(loop, dims=(*loop.dims, 2), reduced=(*loop.reduced, False))
    for k, op in enumerate(body):
        users = [] if isinstance(op, Store) else [later for later in body[k + 1 :] if op.result in operands(later)]
        if not users and not isinstance(op, Store):
            continue  # nothing reads it: most changes are harmless
        cast = isinstance(op, (Load, Compute)) and all(isinstance(u, Compute) and u.op == "cast" for u in users)
        cast = cast or (isinstance(op, Compute) and op.op == "cast")
        for what, changed in broken_operations(op):
            if what == "of another dtype" and cast:
                continue  # another conversion, not a broken one
            yield f"`{op}` {what}", replace(loop, body=(*body[:k], *changed, *body[k + 1 :]))


def broken_operations(op: object) -> Iterator[tuple[str, tuple[object, ...]]]:
    yield "left out", ()
    if not isinstance(op, Store):
        yield "twice", (op, op)
        other = "int16" if op.dtype != "int16" else "int32"
        yield "of another dtype", (replace(op, dtype=other),)
        yield "of an unknown dtype", (replace(op, dtype="float99"),)
    if isinstance(op, Compute):
        yield "of nothing known", (replace(op, op="frobnicate"),)
        yield "with one argument fewer", (replace(op, args=op.args[1:]),)
        yield "of what does not exist", (replace(op, args=("t999", *op.args[1:])),)
        yield "of itself", (replace(op, args=(op.result, *op.args[1:])),)
    if isinstance(op, (Load, Store)):
        access = op.access
        yield "of an unknown buffer", (replace(op, access=replace(access, buffer="nowhere")),)
        yield "with a stride fewer", (replace(op, access=replace(access, strides=(*access.strides, 1))),)
        if isinstance(op, Store):
            yield "beyond the end", (replace(op, access=replace(access, offset=10**6)),)
            yield "before the start", (replace(op, access=replace(access, offset=-1)),)
            yield "of what does not exist", (replace(op, arg="t999"),)
            yield "onto what does not exist", (replace(op, base="nowhere"),)
            if op.base is None:
                yield "added to nothing", (replace(op, add=True),)
            else:
                yield "onto nothing", (replace(op, base=None),)
            yield "to what a tensor says", (replace(op, access=replace(access, indirect=(("t999", 1),))),)
    if isinstance(op, Reduce):
        yield "by an unknown kind", (replace(op, kind="median"),)
    if isinstance(op, Scan):
        yield "of an unknown kind", (replace(op, kind="mean"),)
        yield "along nothing", (replace(op, strides=(0,) * len(op.strides)),)
        yield "every other point", (replace(op, strides=tuple(2 * s for s in op.strides)),)
        yield "backwards", (replace(op, strides=tuple(-s for s in op.strides)),)
        yield "with a stride fewer", (replace(op, strides=op.strides[1:]),)
        yield "twice, the second of the first", (op, replace(op, result="t999", arg=op.result))


def test_every_mutant_is_refused() -> None:
    """Lowering's own programs pass; each of a thousand changed ones does not."""
    survivors, count = [], 0
    for graph in programs():
        check_graph(graph)
        for what, mutant in mutants(graph):
            count += 1
            try:
                check_graph(mutant)
            except LoopError:
                continue
            survivors.append(what)
    assert not survivors, survivors
    assert count > 1000
