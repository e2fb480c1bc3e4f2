"""If-conversion (Allen, Kennedy, Porterfield, Warren, POPL 1983): a branch on sizes that is taken whatever they are,
since what it makes is what was there where the program skips it.

    if batch != ids.shape[0]:              ids.expand(batch, -1) of one row is ids where the batch is one row:
        ids = ids.expand(batch, -1)        one entry for all batches, and no guard

It is tried, and where the two sides differ, or the program sees whether they are one object, the capture begins anew
without (``values/converted_branches.py``). What is expanded is made in the graph and has no gradient, of which there
would be one for each object.
"""

from __future__ import annotations

from ...bytecode import Instruction
from ...records.size_environment import SizeEnvironment
from ...records.size_relations import NEGATED
from ...records.sizes import Size
from ...records.symbolic_ints import SizesUnfit, sizes_of
from ..errors import Unsupported, UserError
from ..protocol import Frame, Machine, Value
from ..values.constant import ConstantV
from ..values.containers import TupleV
from ..values.converted_branches import Conversions, Pair, SidesDiffer
from ..values.sizes import ComparisonV
from ..values.tensor import TensorV

EXPANDS = ("expand", "expand_as")
STRAIGHT = frozenset([
    "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_CONST", "LOAD_ATTR", "LOAD_METHOD", "BINARY_SUBSCR", "UNARY_NEGATIVE", "CALL",
    "PRECALL", "NOP",
])  # fmt: skip
"""Instructions that go on to the next one, and call nothing but methods of what is in variables."""
NAMES = (*EXPANDS, "shape", "size")
"""Of these methods and attributes,"""
KINDS = (TensorV, ConstantV, TupleV)
"""of such values."""


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
    if name is None or vanishes is None or not isinstance(before, TensorV):
        return False
    plain = all(isinstance(f.locals.get(i.argval), KINDS) for i in skipped if i.opname.startswith("LOAD_FAST"))
    if not plain or before.node.op == "placeholder" or before.fake.requires_grad:
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


def _expanded(skipped: tuple[Instruction, ...]) -> str | None:
    """The variable that straight code sets to an expanded tensor, and all that it does."""
    *computed, last = skipped
    straight = all(i.target is None and i.opname in STRAIGHT for i in computed)
    named = [i.argval for i in computed if i.opname.startswith(("LOAD_ATTR", "LOAD_METHOD"))]
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
