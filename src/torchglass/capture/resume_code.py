"""Resume functions: the user's own bytecode, entered in the middle.

The code keeps its instructions, constants, exception table, file and lines. Only the parameters change (what was on the
stack, the cells shared with inner functions, then the live locals) and a prologue is put before it that restores the
stack and jumps to the instruction. A try or with block needs nothing else: it protects instructions by their place.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from inspect import CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from types import CodeType
from weakref import WeakKeyDictionary

from bytecode import Bytecode, CellVar, Instr, Label
from bytecode.instr import TryBegin, TryEnd

from ..bytecode import build_table, decode, exception_entries, protection
from ..bytecode.flow import reached
from ..bytecode.pairs import split_pairs
from ..records.entry_point import EntryPoint, Slot
from ..records.sources import SHARED, STACK

# 3.12: the depth of blocks; at 1 (some patch releases) closing the generator would skip the handlers that it waits in.
# 3.13: whether it is part of a `yield from`.
YIELD_ARGUMENT = () if sys.version_info < (3, 12) else (2,) if sys.version_info < (3, 13) else (0,)
READS = ("LOAD_FAST", "DELETE_FAST", "LOAD_DEREF", "LOAD_CLOSURE", "DELETE_DEREF", "LOAD_FROM_DICT")

FRAME_READERS = frozenset(("locals", "eval", "exec"))  # they may read every variable


def receiver(code: CodeType) -> str:
    """The parameter that ``super()`` without arguments means, which no instruction reads: the first. "" if none."""
    return code.co_varnames[0] if "__class__" in code.co_freevars and code.co_argcount else ""


def live_locals(code: CodeType, index: int) -> set[str]:
    """Names of locals and cells that some instruction reachable from ``index`` reads (or deletes)."""
    if not FRAME_READERS.isdisjoint(code.co_names):
        code = users_code(code)
        return {*code.co_varnames, *code.co_cellvars}
    return _used(code, index, READS)


def live_cells(code: CodeType, index: int) -> set[str]:
    """Names of cells that what follows reads or writes: whoever shares a cell sees what is written to it."""
    return _used(code, index, (*READS, "STORE_DEREF")) & {*code.co_cellvars}


def _used(code: CodeType, index: int, by: tuple[str, ...]) -> set[str]:
    instructions = decode(code)

    def following(at: int) -> list[int]:
        handler = protection(code, at)
        return instructions[at].successors + ([] if handler is None else [handler.target])

    used = (instructions[at] for at in reached([index], following))
    return {receiver(code), *(i.argval for i in used if i.opname.startswith(by))} - {""}


def users_code(code: CodeType) -> CodeType:
    """The code that a resume function's continues; other code is its own."""
    return _originals.get(code, (code, 0))[0]


def in_original(code: CodeType, entry: EntryPoint) -> tuple[CodeType, EntryPoint]:
    """The same point in the function that ``code`` continues, or is: a prologue is not put before a prologue, and each
    round of a loop goes on in the same code."""
    original, shift = _originals.get(code, (code, 0))
    return original, replace(entry, index=entry.index - shift)


def resume_code(code: CodeType, entry: EntryPoint, name: str, raises: bool = False) -> CodeType:
    """Code that continues ``code`` at an instruction.

    Its parameters are the receiver, ``stack_0``, ... for the stack's values, ``cell_of_x`` for each shared cell, then
    the variables.

    A generator's code gives, when called, a generator that after one ``next`` waits there, with no value yet. Code that
    ``raises`` holds nothing of the stack in variables: its frame lies in the exception's traceback.
    """
    code, entry = in_original(code, entry)
    body = split_pairs(Bytecode.from_code(code))
    real = [n for n, item in enumerate(body) if isinstance(item, Instr)]
    target = Label()
    line = decode(code)[entry.index].line or code.co_firstlineno
    body.insert(real[entry.index], target)
    prologue = _prologue(code, entry, line, target, raises)
    # `bytecode` would work out the exception table from the flow, which here enters blocks from their side
    body[:] = [*prologue, *(item for item in body if not isinstance(item, (TryBegin, TryEnd)))]
    values = [f"{STACK}{n}" for n, slot in enumerate(entry.stack) if slot in (Slot.VALUE, Slot.HANDLED)]
    body.argnames = [*filter(None, [entry.receiver]), *values, *(f"{SHARED}{c}" for c in entry.cells), *entry.variables]
    body.argcount = len(body.argnames)
    body.posonlyargcount = body.kwonlyargcount = 0
    body.flags = body.flags & ~(CO_VARARGS | CO_VARKEYWORDS)
    body.name = code.co_name  # tracebacks look as the user's own
    body.qualname = f"{code.co_qualname}.{name}"
    made = body.to_code(stacksize=code.co_stacksize + len(entry.stack) + 2, compute_exception_stack_depths=False)
    made = made.replace(co_exceptiontable=_moved_table(code, made, entry, len(prologue)))
    if entry.cells:
        made = _with_cells(made, len(prologue), entry.cells)
    _originals[made] = code, len(prologue)
    return made


# For each resume function's code: the code that it continues, and the length of its prologue.
_originals: WeakKeyDictionary[CodeType, tuple[CodeType, int]] = WeakKeyDictionary()


def _prologue(code: CodeType, entry: EntryPoint, line: int, target: Label, raises: bool) -> list[Instr]:
    def instr(name: str, *arg: object) -> Instr:
        return Instr(name, *arg, lineno=line)  # type: ignore[arg-type]

    made: list[Instr] = []
    if code.co_freevars:
        made.append(instr("COPY_FREE_VARS", len(code.co_freevars)))
    made += [instr("MAKE_CELL", CellVar(c)) for c in code.co_cellvars if c not in entry.cells]
    if code.co_flags & CO_GENERATOR:
        made += [instr("RETURN_GENERATOR"), instr("POP_TOP")]
    made.append(instr("RESUME", 0))
    for cell in entry.cells:
        # stored where the code has its cell: ``_with_cells`` puts the slot's number here
        made += [instr("LOAD_FAST", f"{SHARED}{cell}"), instr("STORE_FAST", f"{SHARED}{cell}")]
    for n, slot in enumerate(entry.stack):
        if slot is Slot.NULL:
            made.append(instr("PUSH_NULL"))
        elif slot is not Slot.CAUGHT:
            made.append(instr("LOAD_FAST", f"{STACK}{n}"))
            if raises:
                made.append(instr("DELETE_FAST", f"{STACK}{n}"))
        if slot is Slot.HANDLED:
            made += [instr("PUSH_EXC_INFO"), *_caught(entry, n, instr)]
    if code.co_flags & CO_GENERATOR:
        # it waits here, within the blocks that it waited in: what is thrown into it goes to their handlers
        made += [instr("LOAD_CONST", None), instr("YIELD_VALUE", *YIELD_ARGUMENT), instr("RESUME", 1)]
    made.append(instr("JUMP_FORWARD", target))
    return made


def _caught(entry: EntryPoint, slot: int, instr: Callable[..., Instr]) -> list[Instr]:
    """What becomes of the exception that PUSH_EXC_INFO leaves on the stack."""
    names = [name for n, name in entry.caught if n == slot]
    if entry.stack[slot + 1 : slot + 2] == (Slot.CAUGHT,):
        return [i for name in names for i in (instr("COPY", 1), instr("STORE_FAST", name))]
    copies = [i for name in names[1:] for i in (instr("COPY", 1), instr("STORE_FAST", name))]
    return [*copies, instr("STORE_FAST", names[0]) if names else instr("POP_TOP")]


def _moved_table(code: CodeType, made: CodeType, entry: EntryPoint, by: int) -> bytes:
    """The exception table of ``code`` for ``made``, in which its instructions come ``by`` later."""
    entries = list(exception_entries(code))
    waiting = protection(code, entry.index - 1) if code.co_flags & CO_GENERATOR and entry.index else None
    if waiting is not None and decode(code)[entry.index - 1].opname == "YIELD_VALUE":
        entries.insert(0, replace(waiting, start=-3, end=0))  # the prologue's own yield
    offsets = [i.offset for i in decode(made)] + [len(made.co_code)]

    def first(index: int) -> int:
        """Where the instruction begins, its EXTENDED_ARG included."""
        at = offsets[index + by]
        while at >= 2 and made.co_code[at - 2] == dis.EXTENDED_ARG:
            at -= 2
        return at

    return build_table((first(e.start), first(e.end), first(e.target), e.depth, e.lasti) for e in entries)


def _with_cells(code: CodeType, prologue: int, cells: Iterable[str]) -> CodeType:
    """Point the prologue's stores of cells at the slots in which the code expects them."""
    # the locals come first; a cell that is also a parameter has the parameter's slot
    order = [*code.co_varnames, *(c for c in code.co_cellvars if c not in code.co_varnames)]
    slots = {name: n for n, name in enumerate(order)}
    text = bytearray(code.co_code)
    for i in decode(code)[:prologue]:
        if i.opname == "STORE_FAST" and i.arg is not None:
            slot = slots[i.argval.removeprefix(SHARED)]
            if slot > 255 or i.arg > 255:
                raise ValueError("a shared variable in a function of over 255 variables")
            text[i.offset + 1] = slot
    return code.replace(co_code=bytes(text))
