"""Which pairs of loops may become one nest, and in which words the others are refused.

Loops are over (8, 4) or (2, 8, 4) numbers of row-major memory where nothing else is said; each adds up what it reads.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from torchglass import fuse
from torchglass.fuse.groups import Group, Uses
from torchglass.fuse.legality import Refused, check_cycle, check_devices, check_flow, check_order, join, roles
from torchglass.fuse.merging import merged, single
from torchglass.fuse.policy import Policy
from torchglass.fuse.policy_cpu import CpuPolicy
from torchglass.fuse.policy_gpu import GpuPolicy
from torchglass.records.loops import (
    Access,
    Buffer,
    Compute,
    Load,
    Loop,
    LoopGraph,
    Operation,
    Reduce,
    Scan,
    Store,
    View,
)
from torchglass.records.sizes import Size, Symbol
from torchglass.records.tuned.fusion import CpuFusion, GpuFusion

Sizes = tuple[Size, ...]
WIDE = {
    name: Buffer(name, dtype, (96, 4, 10000), (40000, 10000, 1))
    for name, dtype in (("f", "float32"), ("h", "bfloat16"))
}
CPU, GPU = CpuPolicy(CpuFusion()), GpuPolicy(GpuFusion(), WIDE)
FLAT, ROWS, COLUMNS, ONE = (4, 1), (1, 0), (0, 1), (0, 0)
DEEP = (32, 4, 1)
S0 = Symbol("s0", hint=8)


def loop(
    name: str, reads: dict[str, Sizes], store: Sizes = FLAT, dims: Sizes = (8, 4), *, over: tuple[int, ...] = (),
    along: Sizes | None = None, offset: int = 0,
) -> Loop:  # fmt: skip
    """Writes the buffer of its name. ``over``: the dimensions it reduces, ``along``: the line that it scans."""
    body: list[Operation] = []
    value = ""
    for k, (buffer, strides) in enumerate(reads.items()):
        body.append(Load(f"t{k}", Access(buffer, strides, offset), "float32"))
        if value:
            body.append(Compute(f"s{k}", "add", (value, f"t{k}"), "float32"))
        value = f"s{k}" if value else f"t{k}"
    if over:
        body.append(Reduce("r", "sum", value, "float32"))
    elif along is not None:
        body.append(Scan("r", "sum", value, along, "float32"))
    body.append(Store(Access(name, store), "r" if over or along else value))
    return Loop(name, dims, tuple(k in over for k in range(len(dims))), tuple(body))


def scatter(name: str, source: str) -> Loop:
    body = (
        Load("t0", Access(source, (1,)), "int64"),
        Store(Access(name, (0,), 0, (("t0", 1),)), "t0", f"{name}_before"),
    )
    return Loop(name, (8,), (False,), body)


def group(one: Loop, position: int, device: str = "cpu", policy: Policy = CPU) -> Group:
    return single(one, position, device, policy)


def legal(first: Group, second: Group, carries: bool = True) -> None:
    """All that is asked of a pair before it is asked whether it pays."""
    check_devices(first, second)
    check_order(first, second)
    left, right, dims = join(first, second)
    loops = [*left, *right]
    check_flow(loops, roles(loops, dims, carries))


def verdict(ask: Callable[[], object]) -> str:
    try:
        ask()
    except Refused as why:
        return str(why)
    return "fused"


POINTS = loop("a", {"x": FLAT})
ROW_SUM = loop("a", {"x": FLAT}, ROWS, over=(1,))
COLUMN_SUM = loop("a", {"x": FLAT}, COLUMNS, over=(0,))
TOTAL = loop("a", {"x": FLAT}, ONE, over=(0, 1))
DOWN = loop("a", {"x": FLAT}, along=(1, 0))  # a scan from row to row
FUSED = "fused"

PAIRS: dict[str, tuple[Loop, Loop, str]] = {
    "each point's number": (POINTS, loop("b", {"a": FLAT}), FUSED),
    "the same input": (POINTS, loop("b", {"x": FLAT}), FUSED),
    "the same input, transposed": (POINTS, loop("b", {"x": (1, 4)}, (8, 1), (4, 8)), FUSED),
    "the same memory in one dimension": (POINTS, loop("b", {"a": (1,)}, (1,), (32,)), FUSED),
    "the same memory, split otherwise": (POINTS, loop("b", {"a": (8, 4, 1)}, (8, 4, 1), (4, 2, 4)), FUSED),
    "a row's sum": (ROW_SUM, loop("b", {"x": FLAT, "a": ROWS}), FUSED),
    "a row's sum, alone": (ROW_SUM, loop("b", {"a": (1,)}, (1,), (8,)), FUSED),
    "a column's sum of what is made": (POINTS, loop("b", {"a": FLAT}, COLUMNS, over=(0,)), FUSED),
    "sums of rows and of columns": (ROW_SUM, loop("b", {"x": FLAT}, COLUMNS, over=(0,)), FUSED),
    "everything, beside rows": (ROW_SUM, loop("b", {"x": FLAT}, ONE, over=(0, 1)), FUSED),
    "what a whole nest comes to": (TOTAL, loop("b", {"x": FLAT, "a": ONE}), FUSED),
    "a scan's own point": (loop("a", {"x": FLAT}, along=(0, 1)), loop("b", {"a": FLAT}), FUSED),
    "a scan from row to row": (DOWN, loop("b", {"a": FLAT}), FUSED),
    "sizes that are the same symbol": (
        loop("a", {"x": (4, 1)}, (4, 1), (S0, 4)), loop("b", {"a": (4, 1)}, (4, 1), (S0, 4)), FUSED,
    ),
    "rows of a symbol, in one dimension": (
        loop("a", {"x": (4, 1)}, (4, 1), (S0, 4)), loop("b", {"a": (1,)}, (1,), (S0 * 4,)), FUSED,
    ),
    "nothing in common": (POINTS, loop("b", {"y": FLAT}), "they share no buffer"),
    "other rows of the same memory": (
        POINTS, loop("b", {"a": (6, 1)}, (6, 1), (4, 6)), "their shapes do not fit",
    ),
    "a symbol that may be any number": (
        loop("a", {"x": (1,)}, (1,), (S0,)), loop("b", {"a": (4, 1)}, FLAT), "their shapes do not fit",
    ),
    "other elements": (
        POINTS, loop("b", {"x": FLAT, "a": COLUMNS}), "b reads other elements of a than its point's",
    ),
    "the next element": (POINTS, loop("b", {"a": FLAT}, offset=1), "b reads other elements of a than its point's"),
    "a column's sum, by the column": (
        COLUMN_SUM, loop("b", {"x": FLAT, "a": COLUMNS}), "b needs a before its reduction is complete",
    ),
    "everything, by rows with a sum of their own": (
        TOTAL, loop("b", {"x": FLAT, "a": ONE}, ROWS, over=(1,)), "b needs a before its reduction is complete",
    ),
    "rows one way, and another": (
        ROW_SUM, loop("b", {"y": (1, 8), "x": FLAT}, COLUMNS, over=(0,)), "their rows are along different dimensions",
    ),
    "part of a row": (
        loop("a", {"x": DEEP}, (1, 0, 0), (2, 8, 4), over=(1, 2)),
        loop("b", {"x": DEEP}, (4, 0, 1), (2, 8, 4), over=(1,)), "it reduces along the other's rows",
    ),
    "sums of other rows": (
        loop("a", {"x": DEEP}, (0, 0, 1), (2, 8, 4), over=(0, 1)),
        loop("b", {"x": DEEP}, (0, 4, 1), (2, 8, 4), over=(0,)), "one keeps rows that the other reduces",
    ),
    "a scan of what is read several times": (
        loop("a", {"x": FLAT}, along=(0, 1)), loop("b", {"a": (0, 4, 1)}, DEEP, (2, 8, 4)),
        "a runs in order along lines that the other's points share",
    ),
    "a scan from row to row within a row": (
        loop("a", {"x": DEEP}, (1, 0, 0), (2, 8, 4), over=(1, 2)),
        loop("b", {"x": DEEP}, DEEP, (2, 8, 4), along=(0, 1, 0)), "b runs in order along part of the other's rows",
    ),
    "rows in order, and in none": (
        DOWN, loop("b", {"x": FLAT}, COLUMNS, over=(0,)),
        "one needs rows in order, the other in another one or in none",
    ),
    "rows in one order, and in another": (
        loop("a", {"x": DEEP}, DEEP, (2, 8, 4), along=(1, 0, 0)),
        loop("b", {"x": DEEP}, DEEP, (2, 8, 4), along=(0, 1, 0)), "b runs in order along part of the other's rows",
    ),
    "writes at computed places": (
        loop("a", {"x": (1,)}, (1,), (8,)), scatter("b", "a"), "the points of b run in order",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name: str) -> None:
    first, second, expected = PAIRS[name]
    assert verdict(lambda: legal(group(first, 0), group(second, 1))) == expected


def test_devices() -> None:
    first, second = group(POINTS, 0), group(loop("b", {"a": FLAT}), 1, "cuda:0")
    assert verdict(lambda: legal(first, second)) == "they run on cpu and cuda:0"


def test_a_kernel_between_them() -> None:
    """c reads a and b, and b reads a too, in a kernel of its own."""
    first, between, last = (
        group(POINTS, 0), group(loop("b", {"a": FLAT}), 1), group(loop("c", {"a": FLAT, "b": FLAT}), 2),
    )  # fmt: skip
    between.ancestors = first.members
    assert verdict(lambda: check_cycle(first, last, [first, between])) == "b lies between them"
    assert verdict(lambda: check_cycle(between, last, [first, between])) == FUSED


# Where kernels carry nothing from row to row, what is reduced or scanned is within one.
OTHER_ROWS = "their rows are along different dimensions"
WITHOUT_CARRYING: dict[str, tuple[Loop, Loop, str]] = {
    name: (first, second, {
        "sums of rows and of columns": OTHER_ROWS, "everything, beside rows": OTHER_ROWS,
        "a column's sum, by the column": FUSED, "part of a row": OTHER_ROWS, "sums of other rows": OTHER_ROWS,
        "a scan from row to row within a row": OTHER_ROWS, "rows in one order, and in another": OTHER_ROWS,
        "rows in order, and in none": FUSED, "everything, by rows with a sum of their own": OTHER_ROWS,
    }.get(name, expected)) for name, (first, second, expected) in PAIRS.items()
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_CARRYING)
def test_pairs_without_carrying(name: str) -> None:
    first, second, expected = WITHOUT_CARRYING[name]
    assert verdict(lambda: legal(group(first, 0, policy=GPU), group(second, 1, policy=GPU), False)) == expected


# -- what pays -------------------------------------------------------------------------------------------------------
LARGE = (200, 100)
EVERYTHING = "b would wait for one thread to reduce everything"
POLICY_PAIRS: dict[str, tuple[Loop, Loop, str, str]] = {  # on a CPU, on a GPU
    "rows and columns": (ROW_SUM, loop("b", {"x": FLAT}, COLUMNS, over=(0,)), FUSED, OTHER_ROWS),
    "down a few columns": (
        COLUMN_SUM, loop("b", {"x": FLAT, "a": COLUMNS}), "b needs a before its reduction is complete", FUSED,
    ),
    "down columns enough for lanes": (
        loop("a", {"x": (32, 1)}, COLUMNS, (8, 32), over=(0,)),
        loop("b", {"x": (32, 1), "a": COLUMNS}, (32, 1), (8, 32)), FUSED, FUSED,
    ),
    "what is broadcast over rows": (
        loop("a", {"w": (1,)}, (1,), (4,)), loop("b", {"x": FLAT, "a": COLUMNS}),
        "rows would lie across memory", "rows would lie across memory",
    ),
    "a long sum of everything": (
        loop("a", {"x": (100, 1)}, ONE, LARGE, over=(0, 1)), loop("b", {"x": (100, 1), "a": ONE}, (100, 1), LARGE),
        EVERYTHING, EVERYTHING,
    ),
    "rows and the columns of a share of them": (
        loop("a", {"x": (400, 100, 1)}, (2, 1, 0), (96, 4, 100), over=(2,)),
        loop("b", {"x": (400, 100, 1)}, (100, 0, 1), (96, 4, 100), over=(1,)), FUSED, FUSED,
    ),
    "the same by few programs": (
        loop("a", {"x": (400, 100, 1)}, (2, 1, 0), (3, 4, 100), over=(2,)),
        loop("b", {"x": (400, 100, 1)}, (100, 0, 1), (3, 4, 100), over=(1,)), FUSED, "3 programs would walk all rows",
    ),
    "the same of wide rows of halves": (
        loop("a", {"h": (40000, 10000, 1)}, (2, 1, 0), (96, 4, 10000), over=(2,)),
        loop("b", {"h": (40000, 10000, 1)}, (10000, 0, 1), (96, 4, 10000), over=(1,)), FUSED, FUSED,
    ),
    "the same of wide rows of floats": (
        loop("a", {"f": (40000, 10000, 1)}, (2, 1, 0), (96, 4, 10000), over=(2,)),
        loop("b", {"f": (40000, 10000, 1)}, (10000, 0, 1), (96, 4, 10000), over=(1,)), FUSED,
        "rows of 10000 are too wide for a program, but for numbers of two bytes",
    ),
    "the same of wider rows": (
        loop("a", {"x": (80000, 20000, 1)}, (2, 1, 0), (96, 4, 20000), over=(2,)),
        loop("b", {"x": (80000, 20000, 1)}, (20000, 0, 1), (96, 4, 20000), over=(1,)), FUSED,
        "rows of 20000 are too wide for a program that holds them and the sums of their columns",
    ),
    "the same of rows of many buffers": (
        loop("a", {f"x{k}": (32000, 8000, 1) for k in range(5)}, (2, 1, 0), (96, 4, 8000), over=(2,)),
        loop("b", {"x0": (32000, 8000, 1)}, (8000, 0, 1), (96, 4, 8000), over=(1,)), FUSED,
        "5 buffers' rows and 1 sums of columns are more than registers hold",
    ),
    "a scan along rows, beside the columns of a share of them": (
        loop("a", {"x": (400, 100, 1)}, (400, 100, 1), (96, 4, 100), along=(0, 0, 1)),
        loop("b", {"x": (400, 100, 1)}, (100, 0, 1), (96, 4, 100), over=(1,)), FUSED,
        "a scan leaves no registers for the sums of columns",
    ),
    "a scan from row to row, beside whole rows": (
        DOWN, loop("b", {"x": FLAT}, ROWS, over=(1,)),
        "a runs from row to row, which leaves threads nothing to share", OTHER_ROWS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("policy", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("name", POLICY_PAIRS)
def test_what_pays_in_one_nest(name: str, policy: Policy) -> None:
    first, second, *expected = POLICY_PAIRS[name]
    pair = group(first, 0, policy=policy), group(second, 1, policy=policy)
    assert verdict(lambda: merged(*pair, policy)) == expected[policy is GPU]


def graph(*loops: Loop) -> LoopGraph:
    shapes = {name: (8, 4) for one in loops for name in (*one.reads, *one.writes)}
    buffers = {name: Buffer(name, "float32", shape, FLAT) for name, shape in shapes.items()}
    return LoopGraph("forward", ("x",), buffers, loops, (View(loops[-1].name, (8, 4), FLAT),))


def test_large_kernels() -> None:
    loops = POINTS, loop("b", {"a": FLAT, "y": FLAT})
    uses, pair = Uses(graph(*loops)), (group(loops[0], 0), group(loops[1], 1))
    ask = lambda **limits: verdict(lambda: CpuPolicy(replace(CPU.tuned, **limits)).check_pair(uses, *pair))
    assert ask() == FUSED
    assert ask(max_operations=5) == "the kernel would grow past what compiles and runs well"
    assert ask(max_streams=3) == "the kernel would touch too many buffers"


def test_a_small_part_made_early_holds_the_whole() -> None:
    loops = POINTS, loop("b", {"a": FLAT})
    small = graph(*loops)
    whole = Buffer("whole", "float32", (32, 4), FLAT)
    part = replace(small.buffers["b"], alias_of=("whole", 0))
    uses = Uses(replace(small, buffers={**small.buffers, "whole": whole, "b": part}))
    ask = lambda distance: verdict(lambda: CPU.check_pair(uses, group(loops[0], 0), group(loops[1], distance)))
    assert ask(CPU.tuned.part_distance) == FUSED
    assert ask(CPU.tuned.part_distance + 1) == "whole would be held in memory for long"


def test_siblings_share_what_is_of_their_size() -> None:
    loops = loop("a", {"x": FLAT, "w": COLUMNS}), loop("b", {"y": FLAT, "w": COLUMNS}), loop("c", {"x": FLAT})
    uses = Uses(graph(*loops))
    a, b, c = (group(one, position) for position, one in enumerate(loops))
    assert verdict(lambda: CPU.check_siblings(uses, a, b, a)) == "they share only little data"
    assert verdict(lambda: CPU.check_siblings(uses, a, c, merged(a, c, CPU))) == FUSED


def test_what_waits_for_a_sum_is_made_after_it() -> None:
    """d needs the columns' sum, and a, which would be stored beside it only to be read again."""
    loops = POINTS, loop("b", {"x": FLAT}, COLUMNS, over=(0,)), loop("d", {"a": FLAT, "b": COLUMNS})
    uses = Uses(graph(*loops))
    first, second = group(loops[0], 0), group(loops[1], 1)
    ask = lambda policy: verdict(lambda: policy.check_siblings(uses, first, second, merged(first, second, policy)))
    assert ask(CPU) == "what reads a waits for the whole of b"
    assert ask(GPU) == FUSED  # which has the sum when a column is done


# -- every refusal -----------------------------------------------------------------------------------------------------
def refusals() -> Iterator[tuple[str, str]]:
    """The file of each refusal in fuse/ and its text as a regular expression."""
    for path in sorted(Path(fuse.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) != "Refused":
                continue
            (words,) = node.args
            if isinstance(words, ast.Constant | ast.JoinedStr):
                parts = words.values if isinstance(words, ast.JoinedStr) else [words]
                yield path.name, "".join(re.escape(p.value) if isinstance(p, ast.Constant) else ".+" for p in parts)
            else:
                assert (path.name, ast.unparse(words)) == ("legality.py", "why"), "no text, nor that of join"


def test_every_refusal_stands_in_this_file() -> None:
    """Of the one that ``join`` raises by a variable, both texts are here."""
    texts = [node.value for node in ast.walk(ast.parse(Path(__file__).read_text())) if isinstance(node, ast.Constant)]
    said = [text for text in texts if isinstance(text, str)]
    found = list(refusals())
    assert {"they share no buffer", "their shapes do not fit"} <= {*said} and len(found) >= 19
    assert not [(file, words) for file, words in found if not any(re.fullmatch(words, text) for text in said)]
