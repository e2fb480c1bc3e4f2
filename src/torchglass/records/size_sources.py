"""Where a size comes from: a ``Size`` in symbols as a ``Source`` of what a call gives.

    2*s0 + 1   ->   Computed(+, Computed(*, 2, x.shape[0]), 1)      renders as (2 * x.shape[0]) + 1

Assumptions become guards on such sources: Python in guards.py, a postfix program in the native table.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping
from functools import reduce

from .declared_sizes import DeclaredSizes
from .guards import Guard
from .origin import UNKNOWN, Origin
from .size_environment import SizeEnvironment
from .size_functions import FUNCTIONS
from .size_relations import HOLDS, Assumption, linear
from .sizes import Atom, Expr, Monomial, Size, symbol_name
from .sources import Computed, Constant, InstanceDict, Item, Local, Source


def size_source(size: Size, symbols: Mapping[str, Source]) -> Source:
    """A size as what is computed of its symbols' sources."""
    if isinstance(size, int):
        return Constant(str(size), size)
    return reduce(_sum, (_product(monomial, factor, symbols) for monomial, factor in size.terms))


def _sum(left: Source, right: Source) -> Source:
    return Computed(operator.add, "{} + {}", (left, right))


def _product(monomial: Monomial, factor: int, symbols: Mapping[str, Source]) -> Source:
    parts = [_atom(atom, symbols) for atom in monomial]
    if factor != 1 or not parts:
        parts.insert(0, Constant(str(factor), factor))
    return reduce(lambda left, right: Computed(operator.mul, "{} * {}", (left, right)), parts)


def _atom(atom: Atom, symbols: Mapping[str, Source]) -> Source:
    if not atom.function:
        return symbols[atom.name]
    row = FUNCTIONS[atom.function]
    return Computed(
        row.value, row.texts["python"], tuple(size_source(argument, symbols) for argument in atom.arguments)
    )


def is_argument(source: Source) -> bool:
    """Whether something is an argument of the call, or in a list, tuple or dictionary of such."""
    while isinstance(source, Item):
        source = source.of
    return isinstance(source, Local)


def is_brought(source: Source, lasting: Collection[Source]) -> bool:
    """The same, or in an object of such that is nothing of ``lasting``, whose tensors stay as they are."""
    while isinstance(source, (Item, InstanceDict)):
        source = source.of
        if source in lasting:
            return False
    return isinstance(source, Local)


MOST_COMPARED = 24
"""Assumptions of a graph that are compared with one another, each with all others."""


def size_guards(environment: SizeEnvironment) -> list[Guard]:
    """What was assumed of sizes and said of them, as an entry's guards; from here on nothing more may be assumed."""
    environment.closed = True
    symbols = environment.sources
    guards = [guard for name in symbols for guard in _range_guards(environment, name)]
    rows = environment.assumed.values()
    asked = [row for row in rows if not (environment.is_by_data(row.left) or _is_of_range(environment, row))]
    for row in _independent(environment, asked):  # of sizes that data decide the graph looks
        left, right = (size_source(size, symbols) for size in _sides(row))
        guards.append(_guard(row.relation, left, right, row.why, row.origin))
    return [*guards, *_declared_guards(environment.declared)]


def _independent(environment: SizeEnvironment, rows: list[Assumption]) -> list[Assumption]:
    """Assumptions without those that follow from others: of what is a multiple of 4 the half is even."""
    if len(rows) > MOST_COMPARED:
        return rows
    kept = list(rows)
    for row in rows:
        others = [other for other in kept if other is not row]
        if environment.follows(row, others):
            kept = others
    return kept


def _range_guards(environment: SizeEnvironment, name: str) -> Iterator[Guard]:
    """What a symbol lies between after all that was assumed of it: each end once, or the number that it is."""
    source, (low, high) = environment.sources[name], environment.ranges[name]
    least, most = (environment.narrowed.get((name, end)) for end in (">=", "<="))
    row = most or least
    if row is not None and low == high:
        yield _guard("==", source, Constant(str(low), low), row.why, row.origin)
        return
    if least is not None:
        yield _guard(">=", source, Constant(str(low), low), least.why, least.origin)
    elif not any(atom.name == name and symbol_name(size) for atom, size in environment.replaced.items()):
        yield _guard(">=", source, Constant(str(low), low), "a size that changes", UNKNOWN)
    if most is not None:
        yield _guard("<=", source, Constant(str(high), high), most.why, most.origin)


def _is_of_range(environment: SizeEnvironment, row: Assumption) -> bool:
    """Whether an assumption says no more than the range of one symbol."""
    single = linear(row.left)
    if single is None:
        return False
    name, factor, offset = single
    low, high = environment.ranges[name]
    inside = low < -offset / factor and (high is None or -offset / factor < high)
    return row.relation != "!=" or not inside


def _declared_guards(declared: DeclaredSizes) -> Iterator[Guard]:
    """What a program says of the sizes of a call."""
    for source, said in declared.items():
        ends = {"==": said.low} if said.low == said.high else {">=": said.low, "<=": said.high}
        for relation, end in ends.items():
            if end or (end == 0 and relation != ">="):
                yield _guard(relation, source, Constant(str(end), end), f"{said.by} says so", UNKNOWN)
        if said.like is not None:
            yield _guard("==", source, said.like, f"{said.by} calls them the same", UNKNOWN)


def _guard(relation: str, left: Source, right: Source, why: str, origin: Origin) -> Guard:
    return Guard(Computed(HOLDS[relation], f"{{}} {relation} {{}}", (left, right)), "constant", True, why, origin)


def _sides(row: Assumption) -> tuple[Size, Size]:
    """Both sides of a relation without negative terms: ``-s0 + 4 <= 0`` is ``4 <= s0``."""
    left: Size = 0
    right: Size = 0
    difference = row.left - row.right
    if isinstance(difference, int):
        return difference, 0
    for monomial, factor in difference.terms:
        term = _term(monomial, abs(factor))
        left, right = (left + term, right) if factor > 0 else (left, right + term)
    return left, right


def _term(monomial: Monomial, factor: int) -> Size:
    return Expr(((monomial, factor),)) if monomial else factor
