"""Integers that surely fit 32 bits in 32 bits, on targets whose 64-bit arithmetic is several instructions.

The rules of pooling, padding and resampling compute places in int64, as PyTorch has indices. Counters are bounded by
their dimensions, and so is most of what is made of them::

    t4 = index 2*i1 - 1 : int64              t4 = index 2*i1 - 1 : int32
    t5 = maximum t4 zero : int64        =>   t5 = maximum t4 zero : int32
    store places[i0] t5                      t5_wide = cast t5 : int64; store places[i0] t5_wide
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from ..records.loops import Compute, Const, Index, Loop, Operation, Reduce, Scan, Store
from ..records.sizes import Size, bounds

Range = tuple[int, int]
"""The least and the largest number that a value may be."""
INT32: Range = (-(2**31), 2**31 - 1)
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


def narrowed(loop: Loop, dims: Sequence[Size]) -> Loop:
    """The loop over a nest of ``dims`` with such integers in 32 bits, and widened where others meet them."""
    if not any(isinstance(op, Index) for op in loop.body):
        return loop
    work = _Narrowing(dims)
    for op in loop.body:
        work.add(op)
    return replace(loop, body=tuple(work.body))


@dataclass
class _Narrowing:
    dims: Sequence[Size]
    body: list[Operation] = field(default_factory=list)
    ranges: dict[str, Range] = field(default_factory=dict)  # of values in 32 bits
    numbers: dict[str, Const] = field(default_factory=dict)  # those of them that are constants, as they were
    wide: dict[str, str] = field(default_factory=dict)  # names under which they are in 64

    def add(self, op: Operation) -> None:
        """Append an operation, in 32 bits if it may be."""
        if isinstance(op, (Const, Index, Compute)) and (found := self._range(op)) is not None:
            self.ranges[op.result] = found
            if isinstance(op, Const):
                self.numbers[op.result] = op
            op = replace(op, dtype="int32")
        elif isinstance(op, Compute) and not self._takes_narrow(op):
            op = replace(op, args=tuple(map(self._widened, op.args)))
        elif isinstance(op, (Reduce, Scan, Store)):
            op = replace(op, arg=self._widened(op.arg))
        self.body.append(op)

    def _takes_narrow(self, op: Compute) -> bool:
        """Whether an operation gives the same for its arguments in 32 bits."""
        return op.op == "cast" or (op.op in COMPARISONS and all(arg in self.ranges for arg in op.args))

    def _widened(self, name: str) -> str:
        if name not in self.ranges:
            return name
        if name not in self.wide:
            wide, number = f"{name}_wide", self.numbers.get(name)
            self.wide[name] = wide
            self.body.append(replace(number, result=wide) if number else Compute(wide, "cast", (name,), "int64"))
        return self.wide[name]

    def _range(self, op: Const | Index | Compute) -> Range | None:
        """The range of an operation's result, where that is an integer of 64 bits which 32 have room for."""
        if op.dtype != "int64":
            return None
        found: Range | None = None
        if isinstance(op, Const):
            found = (int(op.value), int(op.value))
        elif isinstance(op, Index):
            found = _ends(op.offset, zip(op.strides, self.dims))
        elif op.op in RULES:
            args = op.args[1:] if op.op == "where" else op.args
            if all(arg in self.ranges for arg in args):
                found = RULES[op.op]([self.ranges[arg] for arg in args])
        return found if found is not None and INT32[0] <= found[0] and found[1] <= INT32[1] else None


def _ends(offset: Size, steps: Iterable[tuple[Size, Size]]) -> Range | None:
    """Of ``offset + sum(stride * counter)``, for counters below sizes; None where no end is known."""
    low, high = bounds(offset)
    for step, size in steps:
        (_, last), (least, most) = bounds(size - 1), bounds(step)
        if high is None or last is None or most is None:
            return None
        corners = [0, least * last, most * last]
        low, high = low + min(corners), high + max(corners)
    return None if high is None else (low, high)


# -- ranges of results -----------------------------------------------------------------------------------------------
def _corners(fn: Callable[[int, int], int]) -> Callable[[list[Range]], Range]:
    """Of a function that is monotonic in each argument."""

    def of(ranges: list[Range]) -> Range:
        found = [fn(a, b) for a, b in product(*ranges)]
        return min(found), max(found)

    return of


def _quotient(ranges: list[Range]) -> Range | None:
    return None if ranges[1][0] <= 0 else _corners(lambda a, b: a // b)(ranges)


def _remainder(ranges: list[Range]) -> Range | None:
    return None if ranges[1][0] <= 0 else (0, ranges[1][1] - 1)


def _either(ranges: list[Range]) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


RULES: dict[str, Callable[[list[Range]], Range | None]] = {
    "add": _corners(lambda a, b: a + b), "sub": _corners(lambda a, b: a - b), "mul": _corners(lambda a, b: a * b),
    "minimum": _corners(min), "maximum": _corners(max), "floordiv": _quotient, "mod": _remainder, "where": _either,
    "neg": lambda ranges: (-ranges[0][1], -ranges[0][0]),
}  # fmt: skip
