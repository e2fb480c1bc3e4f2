"""A symbolic frame: code, locals, stack, cells; and the loop that steps through its instructions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from ...bytecode import Instruction, decode, protection
from ...process import interrupts
from ...records.origin import Origin
from ..errors import StaysInPython, Unsupported, UserError, forget_frames
from ..graph.builder import GraphBuilder
from ..protocol import HandledV, Machine, NotConstant, Value
from ..values.constant import ConstantV
from ..values.containers import CellV
from ..values.exceptions import chain
from ..values.instance import ExceptionV
from ..values.iterators import WaitingGenerators, close_dropped

MAX_DEPTH = 150
MOST_IDLE_STEPS = 1_000_000  # without anything for the graph; capturing so many takes seconds, running them a blink

# Returned by handlers that end a run of the frame.
Finished = tuple[str, Value]


OpHandler = Callable[["Machine", "Frame", Instruction], None]
HANDLERS: dict[str, OpHandler] = {}  # by name of the opcode, as ``ops`` enters them


class Frame:
    """One activation. ``pc`` indexes ``instructions``; ``stack`` holds values (NULL included)."""

    def __init__(
        self,
        code: CodeType,
        namespace: dict[str, Any],
        module: str,
        variables: dict[str, Value],
        closure: list[CellV],
    ) -> None:
        self.code = code
        self.instructions: tuple[Instruction, ...] = decode(code)
        self.namespace = namespace
        self.module = module
        self.locals: dict[str, Value] = variables
        self.cells: dict[str, CellV] = dict(zip(code.co_freevars, closure))
        self.stack: list[Value] = []
        self.pc = 0
        self.kw_names: tuple[str, ...] = ()
        self.finished: Finished | None = None
        self.steps = 0
        self.locals_given: Value | None = None  # the dictionary that locals() gave, up to 3.12
        self.raised: dict[int, tuple[Value, int]] = {}  # exceptions that came to a handler here, and at which step

    # --- the stack -------------------------------------------------------------------------------------------------
    def push(self, value: Value) -> None:
        self.stack.append(value)

    def pop(self) -> Value:
        return self.stack.pop()

    def pop_n(self, n: int) -> list[Value]:
        if n == 0:
            return []
        values = self.stack[-n:]
        del self.stack[-n:]
        return values

    def jump(self, instruction: Instruction) -> None:
        assert instruction.target is not None
        self.pc = instruction.target

    def module_is_ours(self) -> bool:
        """Whether it runs code of this package, which stands for C code."""
        return self.module.startswith("torchglass.")

    def handled(self) -> Value | None:
        """The exception whose handler runs in this frame (``sys.exc_info``), None outside handlers."""
        return next((slot.error for slot in reversed(self.stack) if isinstance(slot, HandledV)), None)

    def is_protected(self) -> bool:
        """Whether a handler of the program's stands around the instruction it is at."""
        entry = protection(self.code, self.instruction().index)
        # which 3.12 puts around all that a generator does
        return entry is not None and self.instructions[entry.target].opname != "CALL_INTRINSIC_1"

    # --- where we are ----------------------------------------------------------------------------------------------
    def instruction(self) -> Instruction:
        return self.instructions[max(self.pc - 1, 0)]

    def origin(self) -> Origin:
        line = self.instruction().line or self.code.co_firstlineno
        return Origin(self.code.co_filename, line, self.code.co_name)

    # --- running ---------------------------------------------------------------------------------------------------
    def step(self, m: Machine) -> None:
        """Execute one instruction; an exception of the user's program goes to its handler in this frame, if any."""
        instruction = self.instructions[self.pc]
        self.pc += 1
        self.steps += 1
        if interrupts.pending:
            interrupts.check()
        m.steps_left -= 1
        if not m.steps_left:
            _refuse_idling(m)
        handler = HANDLERS.get(instruction.opname)
        if handler is None:
            raise Unsupported(f"the bytecode instruction {instruction.opname}")
        try:
            handler(m, self, instruction)
        except NotConstant as error:
            raise Unsupported(f"the value of {error.args[0]} is not known here") from None
        except UserError as error:
            forget_frames(error)
            if not self.unwind(m, error, instruction.index):
                raise
        if m.dropped:
            close_dropped(m)

    def unwind(self, m: Machine, error: UserError, index: int) -> bool:
        """Go to the handler that protects instruction ``index``; False when there is none."""
        entry = protection(self.code, index)
        if entry is None:
            return False
        self.raised.setdefault(id(error.value), (error.value, self.steps - 1))
        chain(m, error.value)
        if isinstance(error.value, ExceptionV) and error.value.trace is None:
            error.value.trace = object()
        del self.stack[entry.depth :]
        if entry.lasti:
            # where it was raised, for tracebacks only; the real number means nothing in a resume function
            self.push(ConstantV(0))
        self.push(error.value)
        self.pc = entry.target
        return True

    def leave(self, m: Machine) -> None:
        """Let go of the variables at the end, as Python does; of a frame that was called, its values die with it."""
        if m.state(WaitingGenerators).watched:
            self.locals, self.cells = {}, {}
            close_dropped(m)

    def run(self, m: Machine) -> Finished:
        """Run until a return or a yield."""
        if len(m.frames) > MAX_DEPTH:
            raise Unsupported(f"calls nested over {MAX_DEPTH} deep")
        self.finished = None
        m.frames.append(self)
        try:
            while self.finished is None:
                self.step(m)
            return self.finished
        except UserError as error:
            self.stack.clear()
            m.kept.append(self)  # a traceback leads to its variables
            if isinstance(error.value, ExceptionV):
                error.value.trace = object()
            raise
        except Unsupported as error:
            # messages name the innermost line of the user's, not the call it happened in
            if error.origin is None:
                error.origin = m.origin()
            raise
        finally:
            m.frames.pop()


@dataclass
class Idle:
    nodes: int = 0  # of the graph, when it was last looked at


def _refuse_idling(m: Machine) -> None:
    """Give up on a frame that goes on and on without a tensor operation: its loop, too, is unrolled."""
    idle, nodes = m.state(Idle), len(m.state(GraphBuilder).graph.nodes)
    if nodes == idle.nodes:
        raise StaysInPython(f"over {MOST_IDLE_STEPS:,} instructions without a tensor operation")
    idle.nodes, m.steps_left = nodes, MOST_IDLE_STEPS
