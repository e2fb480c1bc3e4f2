"""How far indices reach where sizes change: what lets a graph's kernels count in 32 bits.

elements = joined([768 * s0 * s1, 12 * s0 * s1 * s1])       768*s0*s1 + 12*s0*s1*s1
the entry assumes that these are at most MOST_ELEMENTS
covers(elements, 776 * s0 * s1 + s0)                        True: at most twice as many
"""

from __future__ import annotations

from collections.abc import Iterable

from .sizes import Expr, Monomial, Size, atoms_of, terms_of, without

MOST_ELEMENTS = 2**30 - 2**16
"""Twice as many are fewer than 2**31, counters that go a block past the end included."""


def joined(sizes: Iterable[Size]) -> Size:
    """A sum that none of the sizes is larger than: each of their products, as often as it is in one of them."""
    found: dict[Monomial, int] = {}
    for size in sizes:
        for monomial, coefficient in terms_of(size):
            if coefficient > 0 and all(atom.low >= 0 for atom in monomial):
                found[monomial] = max(found.get(monomial, 0), coefficient)
    total: Size = found.pop((), 0)
    for monomial, coefficient in found.items():
        total = total + Expr(((monomial, coefficient),))
    return total


def covers(elements: Size, size: Size) -> bool:
    """Whether a size, and what is divided on the way to it, is certain to be at most twice ``elements``."""
    room = {monomial: 2 * coefficient for monomial, coefficient in terms_of(elements)}
    for monomial, coefficient in terms_of(size):
        if coefficient <= 0:
            continue
        left = ((m, without(m, monomial)) for m in room if room[m] >= coefficient)
        larger = (m for m, rest in left if rest is not None and all(atom.low >= 1 for atom in rest))
        found = monomial if room.get(monomial, 0) >= coefficient else next(larger, None)
        if found is None:
            return False
        room[found] -= coefficient
    atoms = atoms_of(size)
    divided = (argument for atom in atoms for argument in atom.arguments)
    return all(atom.low >= 0 for atom in atoms) and all(covers(elements, argument) for argument in divided)
