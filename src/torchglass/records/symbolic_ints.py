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

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import torch

from . import size_floats
from .origin import UNKNOWN
from .size_floats import Float, as_float, sizes_in, whole_number
from .size_relations import HOLDS, Condition, Joined, Relation, evaluated
from .sizes import Size, hint, is_known, maximum, minimum

if TYPE_CHECKING:
    from .size_environment import SizeEnvironment


class SizesUnfit(BaseException):
    """Something wants to know of a symbolic size what it cannot be told: these sizes are to be numbers. No error of the
    program's, and nothing that handles errors is to see it. ``by_data``: data decide some of them.
    """

    by_data = False
    torchglass_origin = UNKNOWN  # the line at work


Text: TypeAlias = "str"  # whose name a node's method takes


# --- nodes ----------------------------------------------------------------------------------------------------------
class Node:
    """What a SymInt or SymBool of PyTorch's asks. The names are those that PyTorch calls; the rest of its protocol is
    absent: what asks for it (a size of a float) finds that sizes are unfit, and is compiled for numbers.
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
        itself, to which the program may write: see ``capture.graph.open_layouts``.
        """
        return not (self.environment.layouts_open or self.environment.by_data)

    def maybe_as_int(self) -> int | None:
        return None

    def clone(self) -> Node:
        return self

    def wrap_int(self, number: Size) -> IntNode:
        return IntNode(self.environment, number)

    def wrap_bool(self, value: bool) -> BoolNode:
        return BoolNode(self.environment, value)

    def wrap_float(self, number: Float) -> FloatNode:
        return FloatNode(self.environment, number)

    @property
    def hint(self) -> int | bool | float:
        raise NotImplementedError

    @property
    def _hint(self) -> int | bool | float:
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
FloatOperation: TypeAlias = Callable[..., Any]


class IntNode(Node):
    """An integer: a ``Size``."""

    def __init__(self, environment: SizeEnvironment, size: Size) -> None:
        super().__init__(environment)
        self._size, self._version = size, 0

    @property
    def size(self) -> Size:
        """In the one form that all sizes have which were assumed to equal it."""
        if self._version != self.environment.version:
            self._size, self._version = self.environment.canonical(self._size), self.environment.version
        return self._size

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

    def sym_max(self, other: IntNode) -> IntNode:
        """Operators compute strides with ``max(size, 1)``."""
        unknown = [size for size in (self.size, other.size) if not is_known(size)]
        if len(unknown) == 1 and 1 in (self.size, other.size) and self.environment.operator != "sym_max":
            return self.wrap_int(self.environment.filled(unknown[0]))
        return self.wrap_int(maximum(self.size, other.size))

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

    def sym_float(self) -> FloatNode:
        return self.wrap_float(as_float(self.size))

    def truediv(self, other: IntNode) -> FloatNode:
        return self.sym_float().truediv(other.sym_float())

    int_truediv = truediv

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


class FloatNode(Node):
    """A float that is computed of sizes."""

    add: FloatOperation
    sub: FloatOperation
    mul: FloatOperation
    truediv: FloatOperation
    float_truediv: FloatOperation

    def __init__(self, environment: SizeEnvironment, number: Float) -> None:
        super().__init__(environment)
        self.number = number

    def is_float(self) -> bool:
        return True

    @property
    def hint(self) -> float:
        return size_floats.hint(self.number)

    def str(self) -> Text:
        return str(self.number)

    def guard_float(self, file: Text = "", line: int = 0) -> float:
        for size in sizes_in(self.number):
            self.environment.specialize(size)
        return self.hint

    def sym_float(self) -> FloatNode:
        return self

    def maybe_as_float(self) -> float | None:
        return self.number if isinstance(self.number, float) else None


class BoolNode(Node):
    """A condition on sizes: true or false, a relation, or conditions joined by "and", "or" and "not"."""

    def __init__(self, environment: SizeEnvironment, value: Condition) -> None:
        super().__init__(environment)
        self.value = value

    def is_bool(self) -> bool:
        return True

    @property
    def hint(self) -> bool:
        return _now(self.value)

    def str(self) -> Text:
        return str(self.value)

    def guard_bool(self, file: Text = "", line: int = 0) -> bool:
        return self._decided(self.value)

    bool_ = guard_bool

    def expect_true(self, file: Text = "", line: int = 0) -> bool:
        if self._expected(self.value):
            return True
        # perhaps only since a size is 1 here, to which the general case, that of a size that is not, does not apply
        raise SizesUnfit(f"what an operator expects of sizes does not hold: {self.value}")

    def _expected(self, condition: Condition) -> bool:
        if isinstance(condition, Relation):
            return self.environment.expect(condition.left, condition.relation, condition.right)
        if isinstance(condition, Joined) and condition.how == "and":
            return all(map(self._expected, condition.parts))
        return self._decided(condition)

    def _decided(self, condition: Condition) -> bool:
        """Where one part is enough, as one that holds is of ``or``, nothing is assumed of the others."""
        if not isinstance(condition, Joined) or condition.how == "not":
            return evaluated(condition, self.environment.decide) is True
        known = evaluated(condition, self.environment.proved)
        if known is not None:
            return known
        decisive = condition.how == "or"
        enough = [part for part in condition.parts if _now(part) is decisive]
        for part in enough[:1] or condition.parts:
            if self._decided(part) is decisive:
                return decisive
        return not decisive

    def statically_known_true(self, file: Text = "", line: int = 0) -> bool:
        return evaluated(self.value, self.environment.proved) is True

    def guard_or(self, fallback: bool) -> bool:
        """The answer, or ``fallback`` where it depends on sizes of which nothing is assumed for it."""
        found = evaluated(self.value, self._answer)
        return fallback if found is None else found

    def guard_or_false(self, file: Text = "", line: int = 0) -> bool:
        return self.guard_or(False)

    guard_size_oblivious = guard_or_false

    def guard_or_true(self, file: Text = "", line: int = 0) -> bool:
        return self.guard_or(True)

    def _answer(self, left: Size, relation: Text, right: Size) -> bool | None:
        """By proof alone, but where the program sees whether something is a copy: ``reshape`` asks so, too."""
        return (self.environment.decide if self.has_hint() else self.environment.proved)(left, relation, right)

    def sym_ite(self, then: IntNode, otherwise: IntNode) -> IntNode:
        """One of two sizes: which of them is assumed."""
        return then if self.guard_bool() else otherwise

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


def _arithmetic(function: Callable[[Size, Size], Size]) -> Operation:
    return lambda self, other: IntNode(self.environment, function(self.size, other.size))


def _relation(relation: str) -> Operation:
    return lambda self, other: BoolNode(self.environment, Relation(self.size, relation, other.size))


def _float_arithmetic(function: str) -> FloatOperation:
    return lambda *nodes: nodes[0].wrap_float(size_floats.computed(function, *(node.number for node in nodes)))


def _float_relation(relation: str) -> FloatOperation:
    """Of floats that are whole numbers: of others nothing is assumed."""

    def compare(*nodes: FloatNode) -> BoolNode:
        left, right = (whole_number(node.number) for node in nodes)
        if left is None or right is None:
            raise SizesUnfit(f"{nodes[0].environment.asker} compares a float of a size that changes")
        return BoolNode(nodes[0].environment, Relation(left, relation, right))

    return compare


ARITHMETIC: dict[str, Callable[[Any, Any], Size]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
    "int_floordiv": operator.floordiv, "mod": operator.mod, "sym_min": minimum,
}  # fmt: skip
RELATIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

FLOAT_METHODS = {
    "add": "add", "sub": "sub", "mul": "mul", "neg": "neg", "truediv": "truediv", "float_truediv": "truediv",
    "pow": "pow", "float_pow": "pow",
}  # fmt: skip

for _name, _function in ARITHMETIC.items():
    setattr(IntNode, _name, _arithmetic(_function))
for _name, _symbol in RELATIONS.items():
    setattr(IntNode, _name, _relation(_symbol))
    setattr(FloatNode, _name, _float_relation(_symbol))
for _name, _row in FLOAT_METHODS.items():
    setattr(FloatNode, _name, _float_arithmetic(_row))


# --- for those who meet SymInts -------------------------------------------------------------------------------------
def _now(condition: Condition) -> bool:
    """Whether a condition holds for the sizes of this compile."""
    return evaluated(condition, lambda left, relation, right: HOLDS[relation](hint(left), hint(right))) is True


def size_of(value: int | torch.SymInt) -> Size:
    """The ``Size`` of an int or of a SymInt of ours. Raises SizesUnfit for another SymInt."""
    if not isinstance(value, torch.SymInt):
        return value
    node = value.node
    if not isinstance(node, IntNode):
        raise SizesUnfit("a SymInt of PyTorch's own")
    return node.size


def float_of(value: torch.SymFloat) -> Float:
    """The number of a SymFloat of ours. Raises SizesUnfit for another one."""
    if not isinstance(value.node, FloatNode):
        raise SizesUnfit("a SymFloat of PyTorch's own")
    return value.node.number


def sizes_of(values: Iterable[int | torch.SymInt]) -> tuple[Size, ...]:
    """The same of the sizes or strides of a tensor."""
    return tuple(map(size_of, values))


def sizes_within(value: Any) -> Iterator[Size]:
    """The symbolic sizes in the arguments of a node."""
    if isinstance(value, torch.SymInt):
        yield size_of(value)
    elif isinstance(value, torch.SymFloat):
        yield from sizes_in(float_of(value))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from sizes_within(item)
    elif isinstance(value, slice):
        yield from sizes_within((value.start, value.stop, value.step))
    elif isinstance(value, dict):
        yield from sizes_within(tuple(value.values()))


def environment_of(values: Iterable[Any]) -> SizeEnvironment | None:
    """The environment of the symbolic sizes in arguments or results, if they have any."""
    for value in values:
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            return value.node.environment if isinstance(value.node, Node) else None
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
