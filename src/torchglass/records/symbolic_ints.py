"""Sizes that change from call to call, as PyTorch's operators take them: a ``torch.SymInt`` around a ``Size``.

    environment = SizeEnvironment()
    s0 = environment.symbol(source, 7)               # a torch.SymInt named s0
    (s0 * 4 + 2) // 2                                # a SymInt of the size 2*s0 + 1
    bool(s0 < 10)                                    # True, and `s0 < 10` is assumed from here on
    bool(s0 >= 1)                                    # True: proved, nothing is assumed

Meta functions ask sizes for arithmetic and for decisions. Arithmetic is that of ``records.sizes``; a decision is a
proof, or an ``Assumption`` of what the sizes of this compile say, which becomes a guard. PyTorch's own SymNode and
ShapeEnv do the same with SymPy, a thousand times slower for each size, and split every size at 0 and 1. To what asks
"or false" (``guard_or_false``: is this size 1, are these strides contiguous) the answer without a proof is no, as for
sizes that data decide: the general case is right for all of them, and nothing is assumed.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import torch

from .declared_sizes import DeclaredSizes
from .origin import UNKNOWN, Origin
from .sizes import (
    HOLDS,
    NEGATED,
    Assumption,
    Bounds,
    Expr,
    Size,
    Symbol,
    hint,
    maximum,
    minimum,
    proved,
    symbol_name,
    symbols,
)
from .sizes import text as size_text
from .sources import Source


class SizesUnfit(BaseException):
    """Something wants to know of a symbolic size what it cannot be told: these sizes are to be numbers. No error of the
    program's, and nothing that handles errors is to see it. ``by_data``: data decide some of them.
    """

    by_data = False
    torchglass_origin = UNKNOWN  # the line at work


class DecidedByData(Exception):
    """Something wants to know of a size what only the data of a tensor decide: the graph has to end before that."""


class SizeEnvironment:
    """The symbols of one compile: where each is read, and what is assumed of them.

    ``allowed``: whether numbers and sizes may be symbols, ``all_arguments``: whether those of all tensors that are
    arguments are, ``data_allowed``: whether sizes that data decide may be. ``origin`` is the line at work, ``operator``
    what runs there; ``free`` makes a symbol's name one that nothing else has.
    """

    def __init__(self) -> None:
        self.allowed = self.all_arguments = self.data_allowed = False
        self.origin: Callable[[], Origin] = lambda: UNKNOWN
        self.operator = ""
        self.free: Callable[[str], str] = lambda name: name
        self.declared: DeclaredSizes = {}
        self.sources: dict[str, Source] = {}
        self.assumed: dict[tuple[Size, str], Assumption] = {}  # by the difference and its relation to 0
        self.ranges: dict[str, Bounds] = {}  # of symbols, narrowed by what was assumed
        self.by_data: set[str] = set()  # the symbols that data decide: nothing may be assumed of them
        self.made_by_data: list[torch.SymInt] = []  # by the call at hand
        self.chosen: dict[int, tuple[torch.Tensor, int, torch.SymInt]] = {}  # how many a mask of a version chooses
        self.again: list[torch.SymInt] | None = None  # of a call that is made once more: what it makes
        self.general = False  # whether a size that data decide may be taken for one that is neither 0 nor 1
        self._made: dict[Size, torch.SymInt] = {}
        self.closed = False  # whether the guards are made: nothing more may be assumed

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

    def data_symbol(self, estimate: int, most: int | None) -> torch.SymInt:
        """A size that data decide, of 0 to ``most``; ``estimate`` is its hint. Of a call that is made once more it is
        what it was before. Raises SizesUnfit where that call made fewer.
        """
        if self.again is not None:
            if not self.again:
                raise SizesUnfit("a call that makes more sizes than it did before")
            return self.again.pop(0)
        name = self.free(f"u{len(self.by_data)}")
        self.by_data.add(name)
        self.ranges[name] = (0, most)
        size = self.integer(Symbol(name, estimate, high=most))
        self.made_by_data.append(size)
        return size

    def named(self, name: str) -> torch.SymInt:
        """The symbol of this name."""
        return next(size for size in self._made.values() if symbol_name(size_of(size)) == name)

    def integer(self, size: Size) -> Any:
        """A size as an int or a SymInt."""
        if isinstance(size, int):
            return size
        found = self._made.get(size)
        if found is None:
            found = self._made[size] = torch.SymInt(IntNode(self, size))
        return found

    def fixed(self) -> dict[Source, Assumption]:
        """The sources of symbols that were assumed to be one number other than 1, as they would be at each compile, and
        the assumption that came to it.
        """
        last = {single[0]: row for row in self.assumed.values() if (single := _linear(row.left)) is not None}
        return {self.sources[n]: row for n, row in last.items() if self.ranges[n][0] == self.ranges[n][1] != 1}

    # --- what PyTorch's Python asks of its own environment -----------------------------------------------------------
    def evaluate_sym_node(
        self, node: BoolNode, size_oblivious: bool = False, fallback_value: bool | None = None
    ) -> bool:
        """A condition without a guard where there is something to fall back to."""
        if fallback_value is None:
            return node.guard_bool()
        answer = _evaluated(node.value, self.proved)
        return fallback_value if answer is None else answer

    def _maybe_evaluate_static(self, node: BoolNode) -> bool | None:
        return _evaluated(node.value, self.proved)

    @property
    def asker(self) -> str:
        """Who asks for sizes."""
        return f"`{self.operator}`" if self.operator else "an operator"

    # --- decisions -------------------------------------------------------------------------------------------------
    def proved(self, left: Size, relation: str, right: Size) -> bool | None:
        """Whether a relation holds, whatever the symbols are within their ranges; None where that depends on them."""
        difference = _reduced(left - right)
        if (difference, relation) in self.assumed:
            return True
        if (difference, NEGATED[relation]) in self.assumed:
            return False
        return proved(difference, relation, 0, self.ranges)

    def decide(self, left: Size, relation: str, right: Size, why: str = "") -> bool:
        """Whether a relation holds: by proof, or as the sizes of this compile say, which is assumed then."""
        answer = self.proved(left, relation, right)
        if answer is None:
            if not self.by_data.isdisjoint(symbols([left, right])):
                if self.general and relation in ("==", "!=") and (left in (0, 1) or right in (0, 1)):
                    return relation == "!="
                raise DecidedByData(f"whether {size_text(left)} {relation} {size_text(right)}")
            answer = HOLDS[relation](hint(left), hint(right))
            self._assume(_reduced(left - right), relation if answer else NEGATED[relation], why)
        return answer

    def dense(self, sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
        """Whether each dimension's step is what lies inside it, the innermost first: by proof, or no."""
        expected: Size = 1
        for size, stride in zip(sizes, strides):
            if size != 1 and self.proved(stride, "==", expected) is not True:
                return False
            expected = expected * size
        return True

    def specialize(self, size: Size) -> int:
        """A size as a number, which is assumed."""
        self.decide(size, "==", hint(size), f"{self.asker} takes a number" if self.operator else "its value was used")
        return hint(size)

    def _assume(self, difference: Size, relation: str, why: str) -> None:
        if self.closed:
            raise SizesUnfit("a size was asked for when the guards on sizes were made")
        why = why or f"{self.asker} asked for sizes"
        self.assumed[difference, relation] = Assumption(difference, relation, 0, why, self.origin())
        self._narrow(difference, relation)

    def _narrow(self, difference: Size, relation: str) -> None:
        """What an assumption about one symbol says of its range."""
        single = _linear(difference)
        if single is None:
            return
        name, factor, offset = single
        low, high = self.ranges[name]
        if factor < 0:
            factor, offset, relation = -factor, -offset, _MIRRORED.get(relation, relation)
        # factor * s + offset <relation> 0
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


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _reduced(difference: Size) -> Size:
    """A size of the same sign, without the factors that all its terms have: 16*s0*s1 - 16*s0 is s1 - 1."""
    if isinstance(difference, int):
        return difference
    monomials = [monomial for monomial, _ in difference.terms]
    common = [atom for atom in dict.fromkeys(monomials[0]) if atom.low >= 1 and all(atom in m for m in monomials)]
    divisor = math.gcd(*(coefficient for _, coefficient in difference.terms))
    if common:
        for atom in common:
            difference = difference // Expr((((atom,), 1),))
            if isinstance(difference, int):
                return difference
        return _reduced(difference)
    return difference // divisor if divisor > 1 else difference


def _linear(size: Size) -> tuple[str, int, int] | None:
    """The name, factor and offset of a size that is ``factor * symbol + offset``."""
    if isinstance(size, int):
        return None
    offset = dict(size.terms).get((), 0)
    rest = size - offset
    if isinstance(rest, int) or len(rest.terms) != 1:
        return None
    ((atoms, factor),) = rest.terms
    if len(atoms) != 1 or atoms[0].function:
        return None
    return atoms[0].name, factor, offset


Text: TypeAlias = "str"  # whose name a node's method takes


# --- nodes ----------------------------------------------------------------------------------------------------------
class Node:
    """What a SymInt or SymBool of PyTorch's asks. The names are those that PyTorch calls; the rest of its protocol is
    absent: what asks for it (a float of a size) finds that sizes are unfit, and is compiled for numbers.
    """

    constant = None

    def __init__(self, environment: SizeEnvironment) -> None:
        self.environment = environment

    @property
    def shape_env(self) -> SizeEnvironment:
        return self.environment

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise SizesUnfit(f"{self.environment.asker} needs `{name}` of a size that changes")

    def is_int(self) -> bool:
        return False

    is_bool = is_float = is_nested_int = is_constant = is_int

    def is_symbolic(self) -> bool:
        return True

    def has_hint(self) -> bool:
        """Whether PyTorch's C++ may ask what it wants to know: without, it keeps contiguity open and takes what is not
        proved for no. A tensor of one row is contiguous however it is turned, and then ``contiguous()`` is the tensor
        itself, to which the program may write: only where data decide is that left open.
        """
        return not self.environment.by_data

    def maybe_as_int(self) -> int | None:
        return None

    def clone(self) -> Node:
        return self

    def wrap_int(self, number: int) -> IntNode:
        return IntNode(self.environment, number)

    def wrap_bool(self, value: bool) -> BoolNode:
        return BoolNode(self.environment, value)

    @property
    def hint(self) -> int | bool:
        raise NotImplementedError

    @property
    def _hint(self) -> int | bool:
        return self.hint

    # What stands in the place of a SymPy expression: PyTorch looks in it for symbols that data decide, which is none.
    @property
    def expr(self) -> Node:
        return self

    is_number = is_Boolean = False
    free_symbols: frozenset[Any] = frozenset()

    def str(self) -> Text:
        raise NotImplementedError

    def _graph_repr(self) -> Text:
        return self.str()

    def __repr__(self) -> Text:
        return self.str()


Operation: TypeAlias = Callable[["IntNode", "IntNode"], Any]


class IntNode(Node):
    """An integer: a ``Size``."""

    def __init__(self, environment: SizeEnvironment, size: Size) -> None:
        super().__init__(environment)
        self.size = size

    def is_int(self) -> bool:
        return True

    @property
    def hint(self) -> int:
        return hint(self.size)

    def str(self) -> Text:
        return str(self.size)

    def guard_int(self, file: Text = "", line: int = 0) -> int:
        return self.environment.specialize(self.size)

    int_ = guard_int

    def maybe_as_int(self) -> int | None:
        return self.size if isinstance(self.size, int) else None

    def neg(self) -> IntNode:
        return IntNode(self.environment, -self.size)

    def sym_sum(self, parts: Iterable[IntNode]) -> IntNode:
        total: Size = 0
        for part in parts:
            total = total + part.size
        return IntNode(self.environment, total)

    def pow_by_natural(self, exponent: IntNode) -> IntNode:
        total: Size = 1
        for _ in range(exponent.guard_int()):
            total = total * self.size
        return IntNode(self.environment, total)

    pow = pow_by_natural

    def expect_size(self, file: Text = "", line: int = 0) -> bool:
        return self.environment.decide(self.size, ">=", 0)

    # whether strides are those of a contiguous tensor, and the like: by proof, or no
    def is_contiguous(self, sizes: Sequence[IntNode], strides: Sequence[IntNode]) -> BoolNode:
        return self._dense(sizes, strides, range(len(sizes))[::-1])

    def is_channels_last_contiguous_2d(self, sizes: Sequence[IntNode], strides: Sequence[IntNode]) -> BoolNode:
        return self._dense(sizes, strides, (1, 3, 2, 0))

    def is_channels_last_contiguous_3d(self, sizes: Sequence[IntNode], strides: Sequence[IntNode]) -> BoolNode:
        return self._dense(sizes, strides, (1, 4, 3, 2, 0))

    is_channels_last_strides_2d, is_channels_last_strides_3d = (
        is_channels_last_contiguous_2d,
        is_channels_last_contiguous_3d,
    )

    def is_non_overlapping_and_dense(self, sizes: Sequence[IntNode], strides: Sequence[IntNode]) -> BoolNode:
        order = sorted(range(len(sizes)), key=lambda d: (strides[d].hint, sizes[d].hint))
        return self._dense(sizes, strides, order)

    def is_non_overlapping_and_dense_indicator(self, sizes: Sequence[IntNode], strides: Sequence[IntNode]) -> IntNode:
        return self.wrap_int(int(self.is_non_overlapping_and_dense(sizes, strides).value is True))

    def _dense(self, sizes: Sequence[IntNode], strides: Sequence[IntNode], order: Sequence[int]) -> BoolNode:
        ordered = ([nodes[dim].size for dim in order] for nodes in (sizes, strides))
        return self.wrap_bool(len(sizes) == len(order) and self.environment.dense(*ordered))


class BoolNode(Node):
    """A condition on sizes: true or false, a relation, or conditions joined by "and", "or" and "not"."""

    def __init__(self, environment: SizeEnvironment, value: Condition) -> None:
        super().__init__(environment)
        self.value = value

    def is_bool(self) -> bool:
        return True

    @property
    def hint(self) -> bool:
        return _evaluated(self.value, lambda left, relation, right: HOLDS[relation](hint(left), hint(right))) is True

    def str(self) -> Text:
        return str(self.value)

    def guard_bool(self, file: Text = "", line: int = 0) -> bool:
        return _evaluated(self.value, self.environment.decide) is True

    bool_ = guard_bool

    def expect_true(self, file: Text = "", line: int = 0) -> bool:
        if self.guard_bool():
            return True
        # perhaps only since a size is 1 here, to which the general case, that of a size that is not, does not apply
        raise SizesUnfit(f"what an operator expects of sizes does not hold: {self.value}")

    def statically_known_true(self, file: Text = "", line: int = 0) -> bool:
        return _evaluated(self.value, self.environment.proved) is True

    guard_or_false = guard_size_oblivious = statically_known_true

    def guard_or_true(self, file: Text = "", line: int = 0) -> bool:
        return _evaluated(self.value, self.environment.proved) is not False

    def sym_and(self, other: BoolNode) -> BoolNode:
        return BoolNode(self.environment, Joined("and", (self.value, other.value)))

    def sym_or(self, other: BoolNode) -> BoolNode:
        return BoolNode(self.environment, Joined("or", (self.value, other.value)))

    and_, or_ = sym_and, sym_or

    def sym_not(self) -> BoolNode:
        return BoolNode(self.environment, Joined("not", (self.value,)))

    def eq(self, other: BoolNode) -> BoolNode:
        return self.sym_and(other).sym_or(self.sym_not().sym_and(other.sym_not()))

    def ne(self, other: BoolNode) -> BoolNode:
        return self.eq(other).sym_not()


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


def _evaluated(condition: Condition, answer: Callable[[Size, str, Size], bool | None]) -> bool | None:
    """What a condition comes to; None where that is not known of a part on which it depends."""
    if isinstance(condition, bool):
        return condition
    if isinstance(condition, Relation):
        return answer(condition.left, condition.relation, condition.right)
    if condition.how == "not":
        found = _evaluated(condition.parts[0], answer)
        return None if found is None else not found
    decisive, unknown = condition.how == "or", False
    for part in condition.parts:
        found = _evaluated(part, answer)
        if found is decisive:
            return decisive
        unknown = unknown or found is None
    return None if unknown else not decisive


def _arithmetic(function: Callable[[Size, Size], Size]) -> Operation:
    return lambda self, other: IntNode(self.environment, function(self.size, other.size))


def _relation(relation: str) -> Operation:
    return lambda self, other: BoolNode(self.environment, Relation(self.size, relation, other.size))


ARITHMETIC: dict[str, Callable[[Any, Any], Size]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
    "int_floordiv": operator.floordiv, "mod": operator.mod, "sym_max": maximum, "sym_min": minimum,
}  # fmt: skip
RELATIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

for _name, _function in ARITHMETIC.items():
    setattr(IntNode, _name, _arithmetic(_function))
for _name, _symbol in RELATIONS.items():
    setattr(IntNode, _name, _relation(_symbol))


# --- for those who meet SymInts -------------------------------------------------------------------------------------
def size_of(value: int | torch.SymInt) -> Size:
    """The ``Size`` of an int or of a SymInt of ours. Raises SizesUnfit for another SymInt."""
    if not isinstance(value, torch.SymInt):
        return value
    node = value.node
    if not isinstance(node, IntNode):
        raise SizesUnfit("a SymInt of PyTorch's own")
    return node.size


def sizes_of(values: Iterable[int | torch.SymInt]) -> tuple[Size, ...]:
    """The same of the sizes or strides of a tensor."""
    return tuple(map(size_of, values))


def sizes_within(value: Any) -> Iterator[Size]:
    """The symbolic sizes in the arguments of a node."""
    if isinstance(value, torch.SymInt):
        yield size_of(value)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from sizes_within(item)
    elif isinstance(value, slice):
        yield from sizes_within((value.start, value.stop, value.step))
    elif isinstance(value, dict):
        yield from sizes_within(tuple(value.values()))


def integers(sizes: Iterable[Size], like: torch.Tensor) -> list[Any]:
    """Sizes as ints and SymInts of a fake tensor's environment."""
    environment = environment_of([like]) or SizeEnvironment()
    return [environment.integer(size) for size in sizes]


def environment_of(values: Iterable[Any]) -> SizeEnvironment | None:
    """The environment of the symbolic sizes in arguments or results, if they have any."""
    for value in values:
        if isinstance(value, torch.SymInt):
            return value.node.environment if isinstance(value.node, IntNode) else None
        inside: Iterable[Any] = value if isinstance(value, (list, tuple)) else ()
        if isinstance(value, torch.Tensor) and has_symbols(value):
            inside = (*value.shape, *value.stride())
        if (found := environment_of(inside)) is not None:
            return found
    return None


def has_symbols(tensor: torch.Tensor) -> bool:
    """Whether a size or stride of a tensor is a symbol."""
    return bool(tensor._has_symbolic_sizes_strides)


def lies_contiguous(tensor: torch.Tensor) -> bool:
    """Whether a tensor is contiguous whatever its sizes are; nothing is assumed, as it is by ``is_contiguous``."""
    environment = environment_of([tensor])
    if environment is None:
        return tensor.is_contiguous()
    return environment.dense(sizes_of(tensor.shape[::-1]), sizes_of(tensor.stride()[::-1]))
