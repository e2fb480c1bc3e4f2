"""If-conversion (Allen, Kennedy, Porterfield, Warren, POPL 1983): a branch on sizes that is taken whatever they are,
since what it makes is what was there where the program skips it.

    if batch != ids.shape[0]:              ids.expand(batch, -1) of one row is ids where the batch is one row:
        ids = ids.expand(batch, -1)        one entry for all batches, and no guard

It is tried, and where the two sides differ, or the program could tell them apart by ``is``, the capture begins anew
without. What is expanded is made in the graph: an argument that is returned is the caller's own object.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ...bytecode import Instruction
from ...records.size_environment import SizeEnvironment
from ...records.size_relations import NEGATED
from ...records.sizes import Size
from ...records.symbolic_ints import SizesUnfit, sizes_of
from ..errors import Unsupported, UserError
from ..protocol import Frame, Machine, Value
from ..values.sizes import ComparisonV
from ..values.tensor import TensorV

EXPANDS = ("expand", "expand_as", "broadcast_to")
STRAIGHT = (
    "LOAD_", "CALL", "PRECALL", "KW_NAMES", "PUSH_NULL", "BINARY_", "BUILD_", "LIST_", "NOP", "EXTENDED_ARG",
)  # fmt: skip
"""How instructions begin that go on to the next one and write to nothing but the stack."""
NAMES = (*EXPANDS, "torch", "shape", "size", "len", "dim", "ndim")
"""Of what such code may ask for."""


class SidesDiffer(BaseException):
    """A branch makes something else than what is there where the program skips it. No error of the program's, and
    nothing that handles errors is to see it.
    """


class Pair(NamedTuple):
    """What was there, and what is there now."""

    skipped: TensorV
    taken: TensorV


@dataclass
class Conversions:
    """The branches that one capture takes whatever the sizes are. ``off``: it takes none so."""

    off: bool = False
    made: list[Pair] = field(default_factory=list)


def converted(m: Machine, f: Frame, jump: Instruction, condition: Value, taken_if: bool) -> bool:
    """Whether what a jump would skip has run for both of its ways, which it does if ``condition`` is ``taken_if``.
    Raises SidesDiffer.
    """
    conversions = m.state(Conversions)
    if conversions.off or not isinstance(condition, ComparisonV) or jump.target is None or jump.target <= f.pc:
        return False
    skipped = f.instructions[f.pc : jump.target]
    name = _expanded(skipped)
    before = f.locals.get(name) if name is not None else None
    vanishes = _vanishes(condition, taken_if)
    if name is None or vanishes is None or not isinstance(before, TensorV) or before.node.op == "placeholder":
        return False
    steps = m.steps_left
    try:
        while f.pc != jump.target:
            f.step(m)
    except (Unsupported, UserError, SizesUnfit):
        raise SidesDiffer from None
    after = f.locals[name]
    if not isinstance(after, TensorV) or steps - m.steps_left > len(skipped):  # Python code was called
        raise SidesDiffer
    if not _is_expansion(after, before, vanishes, m.state(SizeEnvironment)):
        raise SidesDiffer
    conversions.made.append(Pair(before, after))
    return True


def refuse_told_apart(m: Machine, values: Iterable[Value]) -> None:
    """Two values that are one object where a branch is skipped are asked for together. Raises SidesDiffer."""
    if made := m.state(Conversions).made:
        asked = set(map(id, values))
        if any(id(pair.skipped) in asked and id(pair.taken) in asked for pair in made):
            raise SidesDiffer


def _expanded(skipped: tuple[Instruction, ...]) -> str | None:
    """The variable that straight code sets to an expanded tensor, and all that it does."""
    *computed, last = skipped
    straight = all(i.target is None and i.opname.startswith(STRAIGHT) for i in computed)
    named = [i.argval for i in computed if i.opname.startswith(("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL"))]
    expands = any(name in EXPANDS for name in named) and all(name in NAMES for name in named)
    return last.argval if straight and expands and last.opname == "STORE_FAST" else None


def _vanishes(condition: ComparisonV, taken_if: bool) -> Size | None:
    """What is 0 whenever the branch is skipped; None where no such size is known."""
    asked, environment = condition.relation, condition.environment
    skips = NEGATED[asked.relation] if taken_if else asked.relation
    bounded = {"==": "==", "<=": ">=", ">=": "<="}.get(skips)
    if bounded is None or (bounded != "==" and environment.proved(asked.left, bounded, asked.right) is not True):
        return None
    return environment.canonical(asked.left - asked.right)


def _is_expansion(after: TensorV, before: TensorV, vanishes: Size, environment: SizeEnvironment) -> bool:
    """Whether ``after`` is ``before`` in other sizes, which are its own where ``vanishes`` is 0."""
    old, new = sizes_of(before.fake.shape), sizes_of(after.fake.shape)
    more = {environment.canonical(now - was) for was, now in zip(old, new)}
    expands = after.node.target in EXPANDS and after.node.args[0] is before.node
    return expands and len(old) == len(new) and more <= {0, vanishes, environment.canonical(-vanishes)}
