"""The symbols of one compile, and what is assumed of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .declared_sizes import DeclaredSizes
from .origin import UNKNOWN, Origin
from .size_functions import Bounds
from .size_relations import (
    APPLIED,
    HOLDS,
    MIRRORED,
    NEGATED,
    Assumption,
    conjuncts,
    evaluated,
    linear,
    multiple,
    normal_form,
    paired,
    proved,
    solved,
)
from .sizes import (
    Atom,
    Expr,
    Size,
    Symbol,
    atoms_of,
    hint,
    is_known,
    maximum,
    of_atom,
    only_atom,
    rebuilt,
    symbol_name,
    symbols,
)
from .sizes import text as size_text
from .sources import Source
from .symbolic_ints import BoolNode, IntNode, SizesUnfit, environment_of, size_of

ENDS = {"==": (0, 0), ">=": (0, None), ">": (1, None), "<=": (None, 0), "<": (None, -1)}
"""The least and the most that is in a relation to a number, counted from that; None: no end."""


class DecidedByData(Exception):
    """Something wants to know of a size what only the data of a tensor decide: the graph has to end before that."""


class SizeEnvironment:
    """The symbols of one compile: where each is read, and what is assumed of them.

    ``allowed``: whether numbers and sizes may be symbols, ``all_arguments``: whether those of all tensors are that a
    call brings and nothing of ``lasting`` holds, ``data_allowed``: whether sizes that data decide may be. ``origin`` is
    the line at work, ``operator`` what runs there; ``free`` makes a symbol's name one that nothing else has.
    """

    def __init__(self) -> None:
        self.allowed = self.all_arguments = self.data_allowed = False
        self.lasting = set[Source]()
        self.operator = ""
        self.declared: DeclaredSizes = {}
        self.sources: dict[str, Source] = {}
        self.assumed: dict[tuple[Size, str], Assumption] = {}  # by the difference and its relation to 0
        self.values_used: set[str] = set()  # symbols of which somebody took the value, whatever it is
        self.ranges: dict[str, Bounds] = {}  # of symbols, narrowed by what was assumed
        self.narrowed: dict[tuple[str, str], Assumption] = {}  # what came to the ends ">=" and "<=" of a symbol's range
        self.by_data: dict[str, None] = {}  # symbols that data decide, as they are made: nothing is assumed of them
        self.checked: dict[str, tuple[list[Size], list[Size]]] = {}  # those between what the graph checks that they are
        self.made_by_data: list[torch.SymInt] = []  # by the call at hand
        self.again: list[torch.SymInt] | None = None  # of a call that is made once more: what it makes
        self.layouts_open = False  # whether what is not proved to lie contiguous does not
        self.general = False  # whether a size that data decide may be taken for one that is neither 0 nor 1
        self.replaced: dict[Atom, Size] = {}  # by what they were assumed to equal
        self.version = 0  # of these
        self._canonical: dict[Size, Size] = {}
        self._answers: dict[tuple[Size, str, Size], bool] = {}  # what is known once is known for good
        self._dense: dict[Any, bool] = {}  # of sizes and strides, and how much was assumed then
        self._made: dict[Size, torch.SymInt] = {}
        self.closed = False  # whether the guards are made: nothing more may be assumed
        self.release()

    def release(self) -> None:
        """Forget the stage at work, which holds its fake tensors. The sizes of those hold this in C++, where Python's
        collector of cycles does not look.
        """
        self.origin: Callable[[], Origin] = lambda: UNKNOWN
        self.free: Callable[[str], str] = lambda name: name
        self.told: dict[Any, torch.SymInt] = {}  # the size that a mask or a number tells, by what it is (``contents``)
        self.contents: dict[int, tuple[torch.Tensor, int, Any]] = {}  # of tensors by id: the version, and what is in it

    def symbol(self, source: Source, value: int) -> torch.SymInt:
        """A size that is read at ``source`` and was ``value``, which is at least 1."""
        said = self.declared.get(source)
        source = source if said is None or said.like is None else said.like
        known = (name for name, place in self.sources.items() if place == source)
        name = next(known, None) or self.free(f"s{len(self.sources)}")
        self.sources[name] = source
        low, high = (1, None) if said is None else (max(said.low, 1), said.high)
        self.ranges.setdefault(name, (low, high))
        return self.integer(Symbol(name, value, low, high))

    def is_static(self, source: Source) -> bool:
        """Whether the program says that a size does not change."""
        return source in self.declared and not self.declared[source].changes

    def data_symbol(self, estimate: int, most: int | None, least: int = 0) -> torch.SymInt:
        """A size that data decide, of ``least`` to ``most``; ``estimate`` is its hint. Of a call that is made once more
        it is what it was before. Raises SizesUnfit where that call made fewer.
        """
        if self.again is not None:
            if not self.again:
                raise SizesUnfit("a call that makes more sizes than it did before")
            return self.again.pop(0)
        name = self.free(f"u{len(self.by_data)}")
        self.by_data[name] = None
        self.ranges[name] = (least, most)
        size = self.integer(Symbol(name, estimate, least, most))
        self.made_by_data.append(size)
        return size

    def is_by_data(self, size: Size) -> bool:
        """Whether data decide a size."""
        return not self.by_data.keys().isdisjoint(symbols([size]))

    def named(self, name: str) -> torch.SymInt:
        """The symbol of this name."""
        return next(made for size, made in self._made.items() if symbol_name(size) == name)

    def integer(self, size: Size) -> Any:
        """A size as an int or a SymInt."""
        if is_known(size):
            return size
        found = self._made.get(size)
        if found is None:
            found = self._made[size] = torch.SymInt(IntNode(self, size))
        return found

    def fixed(self) -> dict[Source, Assumption]:
        """The sources of symbols that were assumed to be one number other than 1, and what came to it."""
        last = {single[0]: row for row in self.assumed.values() if (single := linear(row.left)) is not None}
        one = {n: row for n, row in last.items() if self.ranges[n][0] == self.ranges[n][1] != 1}
        return {self.sources[n]: row for n, row in one.items() if n in self.sources}

    def used(self) -> dict[Source, Assumption]:
        """Those of them of which the value was taken, as it would be at each compile: one that met a number, or was
        compared with it, may be open in the next.
        """
        taken = {self.sources[name] for name in self.values_used & self.sources.keys()}
        return {source: row for source, row in self.fixed().items() if source in taken}

    # --- what PyTorch's Python asks of its own environment -----------------------------------------------------------
    def evaluate_sym_node(
        self, node: BoolNode, size_oblivious: bool = False, fallback_value: bool | None = None
    ) -> bool:
        """A condition; where there is something to fall back to, as C++ asks ``guard_or_false`` for it."""
        return node.guard_bool() if fallback_value is None else node.guard_or(fallback_value)

    def _maybe_evaluate_static(self, node: BoolNode) -> bool | None:
        return evaluated(node.value, self.proved)

    @property
    def asker(self) -> str:
        """Who asks for sizes."""
        return f"`{self.operator}`" if self.operator else "an operator"

    # --- decisions -------------------------------------------------------------------------------------------------
    def proved(self, left: Size, relation: str, right: Size) -> bool | None:
        """Whether a relation holds, whatever the symbols are within their ranges; None where that depends on them."""
        answer = self._answers.get((left, relation, right))
        if answer is None:
            difference, normal = normal_form(self.canonical(left - right), relation)
            answer = self._known(difference, normal)
            if answer is not None:
                self._answers[left, relation, right] = answer
                equal = normal == ("==" if answer else "!=")
                if equal and not self.closed and not self.is_by_data(difference):  # later stages read what is written
                    self._replace(solved(difference))
        return answer

    def _known(self, difference: Size, relation: str) -> bool | None:
        """The same of a relation to 0 in normal form."""
        if (difference, relation) in self.assumed:
            return True
        if (difference, NEGATED[relation]) in self.assumed:
            return False
        return proved(difference, relation, 0, self.ranges)

    def decide(self, left: Size, relation: str, right: Size, why: str = "") -> bool:
        """Whether a relation holds: by proof, or as the sizes of this compile say, which is assumed then."""
        answer = self.proved(left, relation, right)
        if answer is not None:
            return answer
        if self.is_by_data(left - right):
            return self._decide_by_data(left, relation, right, why)
        answer = HOLDS[relation](hint(left), hint(right))
        difference, normal = normal_form(self.canonical(left - right), relation)
        normal = normal if answer else NEGATED[normal]
        pairs = paired(difference) if normal == "==" else []
        for one, other in pairs:
            self.decide(one, "==", other, why)
        if not pairs:
            self._assume(difference, normal, why)
        return answer

    def _decide_by_data(self, left: Size, relation: str, right: Size, why: str) -> bool:
        """The same of sizes that data decide, of which there is nothing to go by but what the graph can look at."""
        if self.general and relation in ("==", "!=") and (left in (0, 1) or right in (0, 1)):
            return relation == "!="
        answer = self._of_some(left - right, relation, why)
        if answer is None:
            raise DecidedByData(f"whether {size_text(left)} {relation} {size_text(right)}")
        return answer

    def settle(self, left: Size, relation: str, right: Size) -> bool:
        """``decide`` for how something new lies in memory. After capture it is as the sizes of this compile say: what
        leaves the graph has its strides.
        """
        if not self.closed:
            return self.decide(left, relation, right)
        answer = self.proved(left, relation, right)
        return HOLDS[relation](hint(left), hint(right)) if answer is None else answer

    def expect(self, left: Size, relation: str, right: Size, why: str = "") -> bool:
        """Whether a relation holds, of which the program, or the operator at hand, says that it should: it is assumed
        where the graph can look when it reads the last of the sizes that data decide, and then another way is taken.
        """
        if self.proved(left, relation, right) is None and self.is_by_data(left - right):
            difference, normal = normal_form(self.canonical(left - right), relation)
            if parts := conjuncts(difference, normal):
                return all(self.expect(part, normal, 0, why) for part in parts)
            if (checked := self._check(difference, normal)) is not None:
                last, bound = checked
                self._assume(difference, normal, why)
                if normal == "==" and hint(bound) >= 0:
                    if not is_known(bound):
                        self._assume(*normal_form(self.canonical(bound), ">="), why)
                    self._replace({last: bound})
                return True
        return self.decide(left, relation, right, why)

    def _of_some(self, difference: Size, relation: str, why: str) -> bool | None:
        """Whether a relation to 0 holds of numbers of tensors that are not 0, or more than 1, if that decides it: the
        graph looks that they are so when it reads them, and else Python runs the call.
        """
        names = [name for name in symbols([difference]) if name in self.checked]
        for least in (1, 2) if names else ():
            some = {name: (max(self.ranges[name][0], least), self.ranges[name][1]) for name in names}
            answer = proved(*normal_form(self.canonical(difference), relation), 0, {**self.ranges, **some})
            if answer is not None:
                for name in names:
                    self.expect(size_of(self.named(name)), ">=", least, why)
                return answer
        return None

    def _check(self, difference: Size, relation: str) -> tuple[Atom, Size] | None:
        """Have the graph look at a relation to 0 of one of its numbers and what it has read before. The number, and
        what it is to be compared with; None where the graph cannot.
        """
        read = [name for name in symbols([difference]) if name in self.by_data]
        atoms = {atom.name: atom for atom in atoms_of(difference)}
        last = atoms.get(max(read, key=list(self.by_data).index, default=""))
        if last is None or last.name not in self.checked or relation == "!=":
            return None
        assert isinstance(difference, Expr)
        factor = dict(difference.terms).get((last,), 0)
        bound = (difference - factor * of_atom(last)) * -factor
        if abs(factor) != 1 or last.name in symbols([bound]):
            return None
        relation = relation if factor == 1 else MIRRORED.get(relation, relation)
        for ends, beyond in zip(self.checked[last.name], ENDS[relation]):
            if beyond is not None:
                ends.append(bound + beyond)
        return last, bound

    def dense(self, sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
        """Whether each dimension's step is what lies inside it, the innermost first: by proof, or no."""
        key = tuple(sizes), tuple(strides), len(self.assumed)
        answer = self._dense.get(key)
        if answer is None:
            answer = self._dense[key] = self._is_dense(sizes, strides)
        return answer

    def _is_dense(self, sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
        expected: Size = 1
        for size, stride in zip(sizes, strides):
            if size != 1 and self.proved(stride, "==", expected) is not True:
                return False
            expected = expected * size
        return True

    def filled(self, size: Size) -> Size:
        """A size, and 1 in the place of 0: what a stride counts. That it is not 0 is assumed where it is not proved,
        but after capture: then strides of a tensor without elements are what they come to.
        """
        if self.is_by_data(size):
            return maximum(size, 1)
        if self.closed:
            return size
        factors = map(of_atom, atoms_of(size)) if isinstance(size, Expr) and len(size.terms) == 1 else [size]
        return size if all(self.decide(factor, ">=", 1) for factor in factors) else maximum(size, 1)

    def specialize(self, size: Size) -> int:
        """A size as a number, which is assumed."""
        if self.proved(size, "==", hint(size)) is None:
            if self.is_by_data(size):
                raise DecidedByData(f"the value of {size_text(size)}")
            why = f"{self.asker} takes a number" if self.operator else "its value was used"
            self.decide(size, "==", hint(size), why)
            self.values_used.update(symbols([size]))
        return hint(size)

    def _assume(self, difference: Size, relation: str, why: str) -> None:
        if self.closed:
            raise SizesUnfit("a size was asked for when the guards on sizes were made")
        why = why or f"{self.asker} asked for sizes"
        row = self.assumed[difference, relation] = Assumption(difference, relation, 0, why, self.origin())
        self._narrow(row)
        if relation == "==" and not self.is_by_data(difference):
            self._replace(solved(difference))

    def follows(self, row: Assumption, rows: Iterable[Assumption]) -> bool:
        """Whether an assumption holds wherever others do, of symbols within their ranges."""
        supposed = SizeEnvironment()
        supposed.ranges = dict(self.ranges)
        for symbol, factor in filter(None, map(multiple, rows)):
            part = f"{symbol.name}/{factor}"
            supposed.ranges[part] = 0, None
            supposed.replaced[symbol] = factor * Symbol(part, symbol.hint // factor)
        for other in rows:
            left = supposed.canonical(other.left)
            if not is_known(left):
                supposed._assume(*normal_form(left, other.relation), other.why)
        return supposed.proved(row.left, row.relation, row.right) is True

    def _replace(self, found: dict[Atom, Size]) -> None:
        """From here on some atoms are other sizes, also in what replaced others so far."""
        if not found:
            return
        rows, self.replaced = self.replaced, found
        self._canonical.clear()
        for atom, size in rows.items():
            kept = only_atom(self.canonical(of_atom(atom)))
            found = {**found, **dict.fromkeys([atom, kept or atom], self.canonical(size))}
        self.replaced = found
        self.version += 1
        self._canonical.clear()

    def canonical(self, size: Size) -> Size:
        """A size in the one form that all sizes have which were assumed to equal it."""
        if is_known(size) or not self.replaced:
            return size
        known = self._canonical.get(size)
        if known is None:
            known = self._canonical[size] = rebuilt(size, self._replacement)
        return known

    def _replacement(self, atom: Atom) -> Size | None:
        found = self.replaced.get(atom)
        if found is not None or not atom.function:
            return found
        arguments = tuple(map(self.canonical, atom.arguments))
        if arguments == atom.arguments:
            return None
        return self.canonical(APPLIED[atom.function](*arguments))

    def _narrow(self, row: Assumption) -> None:
        """What an assumption about one symbol says of its range."""
        single, relation = linear(row.left), row.relation
        if single is None:
            return
        name, factor, offset = single
        before = low, high = self.ranges[name]
        # factor * s + offset <relation> 0, with a factor that normal_form made positive
        edge = -offset
        if relation in (">", ">="):
            low = max(low, edge // factor + 1 if relation == ">" else -(-edge // factor))
        elif relation in ("<", "<="):
            top = -(-edge // factor) - 1 if relation == "<" else edge // factor
            high = top if high is None else min(high, top)
        elif relation == "==":
            low = high = edge // factor
        elif edge == low * factor:
            low += 1
        self.ranges[name] = low, high
        for end, was, now in zip((">=", "<="), before, self.ranges[name]):
            if was != now:
                self.narrowed[name, end] = row


def integers(sizes: Iterable[Size], like: torch.Tensor) -> list[Any]:
    """Sizes as ints and SymInts of a fake tensor's environment."""
    environment = environment_of([like]) or SizeEnvironment()
    return [environment.integer(size) for size in sizes]
