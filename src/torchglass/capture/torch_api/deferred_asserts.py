"""Branches on a tensor of which one side raises: the graph takes the other, and the entry looks whether it may.

    if (x < 0).any():            any_1, mul = graph_0(*fetched)
        raise ValueError(x)      if any_1:
    return x * 2                     return reconstruct.plainly(...)  # Python runs the call, and raises
                                 return mul

That is how PyTorch's distributions look at their arguments, and what ``assert`` says of tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ...bytecode import Instruction
from ...bytecode.flow import reached
from ..errors import Unchecked
from ..graph.builder import GraphBuilder
from ..protocol import Frame, Machine, Value
from ..values.function_modes import FunctionModes
from ..values.sealing import Sealed
from ..values.sizes import ConditionV
from ..values.tensor import TensorV, known_value

RAISES = ("RAISE_VARARGS", "RERAISE")
# What ends a path without raising; a loop may go on for ever.
GOES_ON = ("RETURN", "YIELD", "SEND", "JUMP_BACKWARD")


@dataclass(frozen=True)
class Check:
    """The program raises where the truth of ``tensor`` is not ``passing``."""

    tensor: TensorV
    passing: bool


@dataclass
class Checks:
    waiting: list[Check] = field(default_factory=list)
    break_here: bool = False  # whether a tensor is looked at before the program goes on


def truth(m: Machine, frame: Frame, value: Value) -> bool:
    """Which way a jump goes that looks at ``value``."""
    if isinstance(value, TensorV) and _may_wait(m, value):
        passing = _passing(frame)
        if passing is not None:
            m.state(Checks).waiting.append(Check(value, passing))
            return passing
    if isinstance(value, ConditionV):
        passing = _passing(frame)
        if passing is not None and value.is_checked(passing):
            return passing
    return m.truth(value)


def _may_wait(m: Machine, value: TensorV) -> bool:
    """Whether the tensor may be looked at when the graph has run."""
    plain = (
        type(m.state(GraphBuilder)) is GraphBuilder and not m.state(FunctionModes).entered and not m.state(Sealed).by
    )
    return plain and not m.state(Checks).break_here and value.fake.numel() == 1 and known_value(m, value) is None


def _passing(frame: Frame) -> bool | None:
    """The truth that does not lead to a ``raise``; None where no side or both do."""
    jump = frame.instructions[frame.pc - 1]
    after = frame.pc
    if jump.opname == "TO_BOOL":
        jump, after = frame.instructions[frame.pc], frame.pc + 1
    if jump.target is None or not jump.opname.startswith("POP_JUMP"):
        return None
    taken, passed = (_raises(frame.instructions, at) for at in (jump.target, after))
    return None if taken is passed else jump.opname.endswith("TRUE") is passed


def _raises(instructions: tuple[Instruction, ...], start: int) -> bool:
    """Whether all paths from here end in a ``raise``."""

    def following(at: int) -> list[int]:
        i = instructions[at]
        return [] if i.opname in RAISES or i.opname.startswith(GOES_ON) else i.successors

    return not any(instructions[at].opname.startswith(GOES_ON) for at in reached([start], following))


def refuse_unfit(m: Machine) -> None:
    """A check that fails is found when the graph has run, and then Python runs the call from the start: nothing may
    have happened that this would do twice.
    """
    checks = m.state(Checks).waiting
    if not checks:
        return
    written = m.state(GraphBuilder).writes_inputs() or any(
        m.state(GraphBuilder).wrote_to(check.tensor.fake) for check in checks
    )
    if written or any(isinstance(held, torch.Generator) for held in m.state(GraphBuilder).held.values()):
        raise Unchecked("a check of a tensor in a graph that cannot be run twice")
