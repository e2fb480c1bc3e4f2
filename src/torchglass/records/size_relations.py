"""Relations of sizes: whether they hold, what is assumed of them, and conditions made of them.

>>> s = Symbol("s0", hint=8, low=1)
>>> proved(s * 2, ">=", 2), proved(s, "<", 9), normal_form(6 - s * 2, "<=")
(True, None, (s0 - 3, '>='))
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .origin import UNKNOWN, Origin
from .size_functions import QUOTIENTS, UNBOUNDED, Bounds
from .sizes import (
    Atom,
    Expr,
    Size,
    at_least,
    atoms_of,
    bounds,
    divides,
    is_known,
    maximum,
    minimum,
    of_atom,
    only_atom,
    opaque,
    rebuilt,
    symbols,
)
from .sizes import text as size_text

HOLDS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip


NEGATED = {"==": "!=", "!=": "==", "<=": ">", ">": "<=", ">=": "<", "<": ">="}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Assumption:
    """A relation of sizes that a stage relied on: ``left relation right``, as a guard will check it.

    ``why`` says in a clause what needed it, ``origin`` for which line of the user's.
    """

    left: Size
    relation: str
    right: Size
    why: str
    origin: Origin = UNKNOWN


def proved(left: Size, relation: str, right: Size, ranges: Mapping[str, Bounds] | None = None) -> bool | None:
    """Whether the relation holds or does not whatever the symbols are, within ``ranges`` where these name them; None
    where that depends on them.
    """
    if is_known(left) and is_known(right):
        return HOLDS[relation](left, right)
    low, top = _ends(left - right, ranges)
    ends = {"<": (top < 0, low >= 0), "<=": (top <= 0, low > 0), ">": (low > 0, top <= 0), ">=": (low >= 0, top < 0)}
    certain, excluded = ends.get(relation, (low == top == 0, low > 0 or top < 0))
    if relation == "!=":
        certain, excluded = excluded, certain
    return True if certain else False if excluded else None


def _ends(size: Size, ranges: Mapping[str, Bounds] | None, depth: int = 2) -> tuple[int, int]:
    """What a size lies between, also by what is certain of the functions in it."""
    low, high = bounds(size, ranges)
    top = UNBOUNDED if high is None else high
    for monomial, factor in size.terms if depth and isinstance(size, Expr) else ():
        if len(monomial) != 1 or not monomial[0].function:
            continue
        scale, *sides = _between(monomial[0])
        rest = (size - factor * of_atom(monomial[0])) * scale
        least, most = sides if factor > 0 else reversed(sides)
        low = max(low, *(-(-_ends(rest + factor * one, ranges, depth - 1)[0] // scale) for one in least), low)
        top = min(top, *(_ends(rest + factor * one, ranges, depth - 1)[1] // scale for one in most), top)
    return low, top


def _between(atom: Atom) -> tuple[int, Sequence[Size], Sequence[Size]]:
    """A number, and what that many times a function of sizes is at least and at most."""
    one, other = atom.arguments
    if atom.function in ("min", "max"):
        return (1, (), atom.arguments) if atom.function == "min" else (1, atom.arguments, ())
    if atom.function in QUOTIENTS and is_known(other):
        return other, (one - other + 1,), (one,)
    return 1, (), (one,) if at_least(one, 0) else ()


def conjuncts(difference: Size, relation: str) -> list[Size]:
    """What must stand in the same relation to 0, each of it, so that a difference does: both arguments of a maximum are
    below what it is below. Empty where it is no such relation.
    """
    for monomial, factor in difference.terms if isinstance(difference, Expr) else ():
        if len(monomial) == 1 and monomial[0].function in ("min", "max"):
            below = (monomial[0].function == "max") == (factor > 0)
            if relation in (("<", "<=") if below else (">", ">=")):
                rest = difference - factor * of_atom(monomial[0])
                return [rest + factor * argument for argument in monomial[0].arguments]
    return []


def normal_form(difference: Size, relation: str) -> tuple[Size, str]:
    """A relation to 0 that holds of the same sizes, of fewer factors and with a first term that is not negative: one
    of ``s0 == s1`` and ``s1 == s0``.
    """
    difference = _reduced(difference)
    if isinstance(difference, Expr) and difference.terms[0][1] < 0:
        difference, relation = -difference, MIRRORED.get(relation, relation)
    undivided = _undivided(difference, relation)
    return (difference, relation) if undivided is None else normal_form(*undivided)


def _undivided(difference: Size, relation: str) -> tuple[Size, str] | None:
    """The same of a number of which a quotient was taken: ``n // 4 >= 2`` is ``n >= 8``."""
    offset = dict(difference.terms).get((), 0) if isinstance(difference, Expr) else 0
    quotient = difference - offset
    atom = only_atom(quotient)
    if atom is None or atom.function not in QUOTIENTS:
        return None
    divided, divisor = atom.arguments
    if not is_known(divisor):
        return None
    least = -offset  # quotient <relation> least
    if relation in ("==", "!=") and least == 0 and at_least(divided, 0):
        relation = "<=" if relation == "==" else ">"
    if relation in (">", "<="):
        relation, least = ">=" if relation == ">" else "<", least + 1
    return (divided - least * divisor, relation) if relation in (">=", "<") else None


def _reduced(difference: Size) -> Size:
    """A size of the same sign, without the factors that all its terms have: 16*s0*s1 - 16*s0 is s1 - 1."""
    if not isinstance(difference, Expr):
        return difference
    monomials = [monomial for monomial, _ in difference.terms]
    common = [atom for atom in dict.fromkeys(monomials[0]) if atom.low >= 1 and all(atom in m for m in monomials)]
    divisor = math.gcd(*(coefficient for _, coefficient in difference.terms))
    if common:
        for atom in common:
            difference = difference // of_atom(atom)
            if not isinstance(difference, Expr):
                return difference
        return _reduced(difference)
    return difference // divisor if divisor > 1 else difference


def linear(size: Size) -> tuple[str, int, int] | None:
    """The name, factor and offset of a size that is ``factor * symbol + offset``."""
    if not isinstance(size, Expr):
        return None
    offset = dict(size.terms).get((), 0)
    rest = size - offset
    if not isinstance(rest, Expr) or len(rest.terms) != 1:
        return None
    ((atoms, factor),) = rest.terms
    if len(atoms) != 1 or atoms[0].function:
        return None
    return atoms[0].name, factor, offset


def solved(difference: Size) -> dict[Atom, Size]:
    """What atoms are where a difference is 0: a symbol is what it equals, a remainder 0 and its quotient exact, another
    function of sizes the number that it equals.
    """
    if not isinstance(difference, Expr):
        return {}
    if (division := _division(difference)) is not None:
        divided, divisor = division
        quotient, left = only_atom(divided // divisor), only_atom(divided % divisor)
        exact: dict[Atom, Size] = {} if left is None else {left: 0}
        return exact if quotient is None else {**exact, quotient: exact_quotient(divided, divisor)}
    atoms = [monomial[0] for monomial, _ in difference.terms if len(monomial) == 1]
    for atom in sorted(atoms, key=lambda a: (a.function == "quotient", str(a)), reverse=True):
        factor = dict(difference.terms)[atom,]
        rest = (difference - factor * of_atom(atom)) * -factor
        if abs(factor) != 1:
            continue
        if is_known(rest):
            return {atom: rest}
        if atom.function == "quotient" and (known := solved(atom.arguments[0] - rest * atom.arguments[1])):
            return known
        if not atom.function and atom.name not in symbols([rest]):
            return {atom: rest}
    return {}


def exact_quotient(size: Size, divisor: Size) -> Size:
    """A quotient of which it is certain that the division leaves nothing, though not by what the sizes are."""
    quotient = size // divisor
    if is_known(quotient) or (is_known(divisor) and divides(divisor, size)):
        return quotient

    def exact(atom: Atom) -> Size | None:
        is_it = atom.function == "floordiv" and atom.arguments[1] == divisor
        return opaque("quotient", *atom.arguments) if is_it else None

    return rebuilt(quotient, exact)


APPLIED: dict[str, Callable[[Size, Size], Size]] = {
    "floordiv": operator.floordiv, "quotient": exact_quotient, "mod": operator.mod, "max": maximum, "min": minimum,
}  # fmt: skip
"""A row of ``FUNCTIONS`` of two sizes, in normal form."""


def multiple(row: Assumption) -> tuple[Atom, int] | None:
    """The symbol and the number of which it is a multiple, where an assumption says that: ``4 * (s0 // 4) == s0``."""
    division = _division(row.left) if row.relation == "==" else None
    if division is None or not is_known(division[1]):
        return None
    symbol = only_atom(division[0])
    return None if symbol is None or symbol.function else (symbol, division[1])


def _division(difference: Size) -> tuple[Size, Size] | None:
    """What is divided by what, where a size is what the division leaves: ``s0 % 4``, or ``s0 - 4 * (s0 // 4)``."""
    for atom in atoms_of(difference):
        if atom.function in ("floordiv", "mod"):
            divided, divisor = atom.arguments
            left = of_atom(atom) if atom.function == "mod" else divided - divisor * of_atom(atom)
            if difference in (left, -1 * left):
                return divided, divisor
    return None


def paired(difference: Size) -> list[tuple[Size, Size]]:
    """The factors of two products whose difference it is, each beside the one that is as large now; none if some are
    not: of ``b * t`` logits and ``c * u`` labels b is c and t is u.
    """
    if not isinstance(difference, Expr) or len(difference.terms) != 2:
        return []
    (one, factor), (other, opposite) = difference.terms
    if factor != -opposite or len(one) != len(other) or len(one) < 2:
        return []
    left, found = list(other), list[tuple[Size, Size]]()
    for atom in one:
        same = next((candidate for candidate in left if candidate.hint == atom.hint), None)
        if same is None:
            return []
        left.remove(same)
        found.append((of_atom(atom), of_atom(same)))
    return found


# --- conditions -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Relation:
    left: Size
    relation: str
    right: Size

    def __str__(self) -> str:
        return f"{size_text(self.left)} {self.relation} {size_text(self.right)}"


@dataclass(frozen=True)
class Joined:
    how: str
    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return f"{self.how}({', '.join(map(str, self.parts))})"


Condition: TypeAlias = bool | Relation | Joined


def evaluated(condition: Condition, answer: Callable[[Size, str, Size], bool | None]) -> bool | None:
    """What a condition comes to; None where that is not known of a part on which it depends."""
    if isinstance(condition, bool):
        return condition
    if isinstance(condition, Relation):
        return answer(condition.left, condition.relation, condition.right)
    if condition.how == "not":
        found = evaluated(condition.parts[0], answer)
        return None if found is None else not found
    decisive, unknown = condition.how == "or", False
    for part in condition.parts:
        found = evaluated(part, answer)
        if found is decisive:
            return decisive
        unknown = unknown or found is None
    return None if unknown else not decisive
