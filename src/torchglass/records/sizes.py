"""Sizes: a Python int, or an ``Expr`` in symbols; how to ask about one, and how to print one.

>>> s = Symbol("s0", hint=8)
>>> (s * 6 + 4) // 2, (s * 6 + 4) % 3, s * 0 + 7
(3*s0 + 2, 1, 7)
>>> text(s * 4 // 3, "c"), known(s * 2), hint(s * 2), at_most(s, 100)
('((s0 / 3) + s0)', None, 16, False)

An ``Expr`` is in normal form: a sum of products of atoms with integer coefficients, so equal sizes are equal objects
and hash alike. An atom is a symbol, or a quotient, remainder, maximum or minimum that no rule could resolve. What comes
to a number is an int. Symbols stand for integers of at least 0, all sizes fit 64 bits, divisors are positive. SymPy, in
which PyTorch states its symbols, is a thousand times slower (docs/lower.md) and is not used here.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeGuard

from ..process.cached import cached_property
from .size_functions import FAR, FUNCTIONS, QUOTIENTS, UNBOUNDED, Bounds

Monomial: TypeAlias = "tuple[Atom, ...]"
NAME, HINT = operator.attrgetter("name"), operator.attrgetter("hint")
MOST_STEPS = 32  # of a division of polynomials


@dataclass(frozen=True)
class Atom:
    """A symbol (``function`` is "") or an opaque function of sizes: a row of ``FUNCTIONS``.

    ``hint`` is the number that the size had when the program was compiled; ``low`` and ``high`` (None: open) bound it.
    They tell about the atom and take no part in comparing it.
    """

    name: str
    function: str = ""
    arguments: tuple[Size, ...] = ()
    hint: int = field(default=0, compare=False)
    low: int = field(default=0, compare=False)
    high: int | None = field(default=None, compare=False)

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.arguments))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self.name

    @cached_property
    def is_whole(self) -> bool:
        """Of a quotient by a number: whether it is certain that the division leaves nothing."""
        size, divisor = self.arguments
        return isinstance(divisor, int) and divides(divisor, size)


@dataclass(frozen=True)
class Expr:
    """``sum(coefficient * product(atoms))``; ``terms`` are sorted, coefficients are not 0, and it is no number."""

    terms: tuple[tuple[Monomial, int], ...]

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return text(self).removeprefix("(").removesuffix(")") if len(self.terms) > 1 else text(self)

    __repr__ = __str__

    @cached_property
    def is_plain(self) -> bool:
        """Whether it is made of symbols only: no rule on functions applies to its multiples."""
        return not any(atom.function for monomial, _ in self.terms for atom in monomial)

    def __add__(self, other: Size) -> Size:
        if isinstance(other, int) and other == 0:
            return self
        if isinstance(other, int) and self.is_plain:
            return self._plus(other)
        found = dict(self.terms)
        for monomial, coefficient in terms_of(other):
            found[monomial] = found.get(monomial, 0) + coefficient
        return _sum(found)

    __radd__ = __add__

    def _plus(self, number: int) -> Size:
        """The number is the last term, if there is one."""
        *products, (last, coefficient) = self.terms if self.terms[-1][0] == () else (*self.terms, ((), 0))
        number += coefficient
        return Expr((*products, (last, number)) if number else tuple(products))

    def __pos__(self) -> Size:
        return self

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return self + -other

    def __rsub__(self, other: Size) -> Size:
        return -self + other

    def __mul__(self, other: Size) -> Size:
        if isinstance(other, int) and other in (0, 1):
            return self if other else 0
        if isinstance(other, int) and self.is_plain:
            return Expr(tuple((monomial, other * coefficient) for monomial, coefficient in self.terms))
        found: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in terms_of(other):
                monomial = tuple(sorted(left + right, key=NAME)) if left and right else left or right
                found[monomial] = found.get(monomial, 0) + a * b
        return _sum(found)

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        quotient, rest = _divided(self, other)
        if rest == 0:
            return quotient
        common = _common_factor(rest, other)
        if common != 1:
            return quotient + (rest // common) // (other // common)
        atom = only_atom(rest)
        if atom is not None and atom.function == "floordiv" and isinstance(other, int):
            divided, divisor = atom.arguments
            if isinstance(divisor, int):
                return quotient + divided // (divisor * other)
        return quotient + opaque("floordiv", rest, other)

    def __rfloordiv__(self, other: int) -> Size:
        return 0 if other == 0 else opaque("floordiv", other, self)

    def __mod__(self, other: Size) -> Size:
        _, rest = _divided(self, other)
        if isinstance(other, int):
            rest = _congruent(rest, other)
        if rest == 0 or (isinstance(rest, int) and isinstance(other, int)):
            return rest
        common = _common_factor(rest, other)
        if common != 1:
            return (rest // common) % (other // common) * common
        return opaque("mod", rest, other)

    def __rmod__(self, other: int) -> Size:
        return 0 if other == 0 else opaque("mod", other, self)


Size: TypeAlias = "int | Expr"


def Symbol(name: str, hint: int, low: int = 0, high: int | None = None) -> Expr:
    """A size without a known value, which was ``hint`` when the program was compiled."""
    return Expr((((Atom(name, hint=hint, low=low, high=high),), 1),))


def of_atom(atom: Atom) -> Expr:
    """The size that is an atom alone."""
    return Expr((((atom,), 1),))


def atoms_of(size: Size) -> list[Atom]:
    """The atoms in its terms."""
    return [] if isinstance(size, int) else [atom for monomial, _ in size.terms for atom in monomial]


def only_atom(size: Size) -> Atom | None:
    """The atom that it is, if it is one alone."""
    if isinstance(size, Expr) and len(size.terms) == 1 and size.terms[0][1] == len(size.terms[0][0]) == 1:
        return size.terms[0][0][0]
    return None


def terms_of(size: Size) -> Iterable[tuple[Monomial, int]]:
    """Its products of atoms, and how often each is in it."""
    return size.terms if isinstance(size, Expr) else (((), size),) if size else ()


def _sum(found: dict[Monomial, int]) -> Size:
    left = {m: coefficient for m, coefficient in found.items() if coefficient} if 0 in found.values() else found
    for monomial, coefficient in left.items():
        for atom in monomial:
            if atom.function == "mod" and (filled := _filled_up(left, monomial, coefficient)) is not None:
                return filled
            if atom.function in QUOTIENTS and (whole := _undone(monomial, coefficient, atom)) is not None:
                return _sum({**left, monomial: 0}) + whole
    if not left:
        return 0
    if left.keys() == {()}:
        return left[()]
    if len(left) == 1:
        return Expr(tuple(left.items()))
    return Expr(tuple(sorted(left.items(), key=lambda term: (-len(term[0]), [atom.name for atom in term[0]]))))


def _divided(size: Size, divisor: Size) -> tuple[Size, Size]:
    """``size == quotient * divisor + rest``, as much of it in the quotient as is certain.

    ``4*s + 5`` by 2 is ``2*s + 2``, rest 1. By a number, a rest is of coefficients below it: never negative.
    """
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    if isinstance(divisor, int):
        for monomial, coefficient in terms_of(size):
            quotient[monomial], rest[monomial] = divmod(coefficient, divisor)
    elif len(divisor.terms) == 1:
        ((atoms, factor),) = divisor.terms
        for monomial, coefficient in terms_of(size):
            left = without(monomial, atoms)
            if left is not None and coefficient % factor == 0:
                quotient[left] = coefficient // factor
            else:
                rest[monomial] = coefficient
    else:
        exact = _exactly_divided(size, divisor)
        return (0, size) if exact is None else (exact, 0)
    left_over = _sum(rest)
    more = None if left_over == 0 or isinstance(divisor, int) else _divided_by_quotient(left_over, divisor)
    return (_sum(quotient), left_over) if more is None else (_sum(quotient) + more, 0)


def _divided_by_quotient(size: Size, divisor: Expr) -> Size | None:
    """``size / (x / d)`` as ``size * d / x``, if that leaves nothing."""
    ((atoms, factor),) = divisor.terms
    for atom in atoms:
        if atom.function == "quotient":
            divided, by = atom.arguments
            others = _sum({without(atoms, (atom,)) or (): factor})
            found, rest = _divided(size * by, others * divided)
            if rest == 0:
                return found
    return None


def _filled_up(found: dict[Monomial, int], monomial: Monomial, coefficient: int) -> Size | None:
    """The multiple to which a remainder fills a sum up: ``n + -n % 4`` is ``(n + 3) // 4 * 4``."""
    atom = monomial[0]
    divided, divisor = atom.arguments if atom.function == "mod" else (0, 0)
    rest = {one: factor for one, factor in found.items() if one != monomial}
    if coefficient != 1 or len(monomial) != 1 or not isinstance(divisor, int) or not rest:
        return None
    size = _sum(rest)
    return (size + divisor - 1) // divisor * divisor if (size + divided) % divisor == 0 else None


def _undone(monomial: Monomial, factor: int, quotient: Atom) -> Size | None:
    """The multiple of what was divided that a multiple of a quotient is, if it is one: ``4 * (n // 4)`` is ``n`` where
    4 divides ``n``.
    """
    size, divisor = quotient.arguments
    if quotient.function == "floordiv":
        if not isinstance(divisor, int) or factor % divisor or not quotient.is_whole:
            return None
    elif isinstance(divisor, Expr) and len(divisor.terms) > 1:
        return None
    times, rest = _divided(_sum({without(monomial, (quotient,)) or (): factor}), divisor)
    return size * times if rest == 0 else None


def _congruent(size: Size, divisor: int) -> Size:
    """A size with the same rest: a remainder in it by a multiple of ``divisor`` is as good as what was divided."""

    def divided(atom: Atom) -> Size | None:
        by = atom.arguments[1] if atom.function == "mod" else 0
        return atom.arguments[0] if isinstance(by, int) and by != 0 and by % divisor == 0 else None

    same = rebuilt(size, divided)
    return size if same == size else _congruent(_divided(same, divisor)[1], divisor)


def _common_factor(size: Size, divisor: Size) -> Size:
    """What divides all terms of both: a number, and the atoms of a divisor of one term, which is positive."""
    terms = [*terms_of(size), *terms_of(divisor)]
    common: Size = math.gcd(*(coefficient for _, coefficient in terms))
    if isinstance(divisor, Expr) and len(divisor.terms) == 1:
        for atom in dict.fromkeys(divisor.terms[0][0]):
            if all(atom in monomial for monomial, _ in terms):
                common = common * of_atom(atom)
    return common


def _exactly_divided(size: Size, divisor: Expr) -> Size | None:
    """The quotient of polynomials that leaves nothing, first terms first; None if there is none."""
    (atoms, factor), *_ = divisor.terms
    quotient: Size = 0
    for _ in range(MOST_STEPS):
        if isinstance(size, int):
            break
        (monomial, coefficient), *_ = size.terms
        left = without(monomial, atoms)
        if left is None or coefficient % factor:
            return None
        term = _sum({left: coefficient // factor})
        quotient, size = quotient + term, size - divisor * term
    return quotient if size == 0 else None


def without(monomial: Monomial, atoms: Monomial) -> Monomial | None:
    """The product without these factors; None if it does not have them."""
    left = list(monomial)
    for atom in atoms:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def maximum(a: Size, b: Size) -> Size:
    """The larger of two sizes."""
    return _chosen("max", a, b)


def minimum(a: Size, b: Size) -> Size:
    """The smaller of two sizes."""
    return _chosen("min", a, b)


def _chosen(function: str, a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return FUNCTIONS[function].value(a, b)
    for one, other in ((a, b), (b, a)):
        if at_least(one - other, 0):
            return one if function == "max" else other
    return opaque(function, *sorted((a, b), key=str))


def rebuilt(size: Size, replaced: Callable[[Atom], Size | None]) -> Size:
    """A size with others in the place of some of its atoms."""
    if isinstance(size, int):
        return size
    total: Size = 0
    for monomial, coefficient in size.terms:
        term: Size = coefficient
        for atom in monomial:
            found = replaced(atom)
            term = term * (of_atom(atom) if found is None else found)
        total = total + term
    return total


def opaque(function: str, a: Size, b: Size) -> Size:
    """A row of ``FUNCTIONS`` of two sizes as an atom, or the number that its bounds leave."""
    low, high = FUNCTIONS[function].bounds(bounds(a), bounds(b))
    if low == high:
        return low
    name = _function_text(function, (a, b), "python")
    number = FUNCTIONS[function].value(hint(a), hint(b)) if hint(b) or function in ("max", "min") else 0
    return Expr((((Atom(name, function, (a, b), number, low, high),), 1),))


# -- questions -----------------------------------------------------------------------------------------------------


def known(size: Size) -> int | None:
    """The number, if it is one."""
    return size if isinstance(size, int) else None


def is_known(size: Size) -> TypeGuard[int]:
    """Whether it is a number."""
    return isinstance(size, int)


def all_known(sizes: Iterable[Size]) -> TypeGuard[tuple[int, ...]]:
    """Whether all of them are numbers."""
    return all(isinstance(size, int) for size in sizes)


def hint(size: Size) -> int:
    """The number that it was when the program was compiled: for estimates, never for what must be right."""
    return _evaluated(size, HINT)


def value(size: Size, at: Mapping[str, int]) -> int:
    """The number that it is where the symbols have these values."""

    def number(atom: Atom) -> int:
        arguments = (value(argument, at) for argument in atom.arguments)
        return FUNCTIONS[atom.function].value(*arguments) if atom.function else at[atom.name]

    return _evaluated(size, number)


def _evaluated(size: Size, number: Callable[[Atom], int]) -> int:
    if isinstance(size, int):
        return size
    total = 0
    for monomial, coefficient in size.terms:
        for atom in monomial:
            coefficient *= number(atom)
        total += coefficient
    return total


def symbol_name(size: Size) -> str | None:
    """The name of a size that is a symbol alone."""
    atom = only_atom(size)
    return atom.name if atom is not None and not atom.function else None


def bounds(size: Size, ranges: Mapping[str, Bounds] | None = None) -> Bounds:
    """What it lies between, both included; None: no upper bound is known, or what follows from one. ``ranges``: of
    symbols, where more is known of them than when they were made.
    """
    if isinstance(size, int):
        return size, size
    low = high = 0
    for monomial, coefficient in size.terms:
        ends = [coefficient]
        for atom in monomial:
            first, highest = _atom_bounds(atom, ranges) if ranges else (atom.low, atom.high)
            last = UNBOUNDED if highest is None else highest
            corners = [end * factor for end in ends for factor in (first, last)]
            ends = [min(corners), max(corners)]
        low, high = low + ends[0], high + ends[-1]
    return -UNBOUNDED if low <= -FAR else low, None if high >= FAR else high


def _atom_bounds(atom: Atom, ranges: Mapping[str, Bounds]) -> Bounds:
    if atom.function:
        a, b = (bounds(argument, ranges) for argument in atom.arguments)
        return FUNCTIONS[atom.function].bounds(a, b)
    return ranges.get(atom.name, (atom.low, atom.high))


def magnitude(size: Size) -> Size:
    """Its absolute value."""
    return abs(size) if isinstance(size, int) else maximum(size, -size)


def at_most(size: Size, limit: int) -> bool:
    """Whether it is certain that it is not larger."""
    high = bounds(size)[1]
    return high is not None and high <= limit


def at_least(size: Size, limit: int) -> bool:
    """Whether it is certain that it is not smaller."""
    return bounds(size)[0] >= limit


def divides(divisor: Size, size: Size) -> bool:
    """Whether it is certain that the division leaves nothing."""
    return divisor != 0 and size % divisor == 0


def product(sizes: Iterable[Size]) -> Size:
    """The product of sizes, 1 for none."""
    total: Size = 1
    for size in sizes:
        total = total * size
    return total


def symbols(sizes: Iterable[Size]) -> list[str]:
    """The names of the symbols in sizes, sorted."""
    found: set[str] = set()
    pending = list(sizes)
    while pending:
        for atom in atoms_of(pending.pop()):
            if atom.function:
                pending += atom.arguments
            else:
                found.add(atom.name)
    return sorted(found)


# -- texts ---------------------------------------------------------------------------------------------------------
def _function_text(function: str, arguments: tuple[Size, ...], language: str) -> str:
    row = FUNCTIONS[function]
    signed = language in row.signed and not at_least(arguments[0], 0)
    return row.text([text(argument, language) for argument in arguments], language, signed)


def text(size: Size, language: str = "python") -> str:
    """A size in "python", "c" or "triton", in parentheses where it is more than a number or a name."""
    if isinstance(size, int):
        return str(size)
    parts = [_product_text(monomial, coefficient, language) for monomial, coefficient in size.terms]
    if len(parts) == 1 and (len(size.terms[0][0]), size.terms[0][1]) == (1, 1):
        return parts[0]
    joined = parts[0] + "".join(f" - {part[1:]}" if part.startswith("-") else f" + {part}" for part in parts[1:])
    return f"({joined})"


def _product_text(monomial: Monomial, coefficient: int, language: str) -> str:
    factors = [_function_text(a.function, a.arguments, language) if a.function else a.name for a in monomial]
    if coefficient == -1 and factors:
        return f"-{'*'.join(factors)}"
    return "*".join(factors if coefficient == 1 and factors else [str(coefficient), *factors])
