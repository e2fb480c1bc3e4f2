"""Resume functions: the user's own bytecode, entered in the middle.

The code keeps its instructions, constants, file and lines. Only the parameters change (what was on the stack, then the
live locals) and a prologue is put before it that restores the stack and jumps to the instruction.
"""

from __future__ import annotations

import sys
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType

from bytecode import Bytecode, CellVar, Instr, Label

from ..bytecode import decode, exception_entries


def live_locals(code: CodeType, index: int) -> set[str]:
    """Names of locals and cells that some instruction reachable from ``index`` reads (or deletes)."""
    instructions = decode(code)

    handlers = exception_entries(code)
    reached: set[int] = set()
    todo = [index]
    names: set[str] = set()
    while todo:
        at = todo.pop()
        if at in reached or at >= len(instructions):
            continue
        reached.add(at)
        i = instructions[at]
        if i.target is not None:
            todo.append(i.target)
        if i.opname not in ("RETURN_VALUE", "RETURN_CONST", "RERAISE", "RAISE_VARARGS", "JUMP_FORWARD", "JUMP_BACKWARD",
                            "JUMP_BACKWARD_NO_INTERRUPT"):  # fmt: skip
            todo.append(at + 1)
        todo += [h.target for h in handlers if h.start <= at < h.end]
        if i.opname.startswith(
            ("LOAD_FAST", "DELETE_FAST", "STORE_FAST_LOAD", "LOAD_DEREF", "LOAD_CLOSURE", "DELETE_DEREF")
        ):
            names.update(i.argval if isinstance(i.argval, tuple) else (i.argval,))
    return names


def resume_code(code: CodeType, index: int, stack: tuple[bool, ...], variables: tuple[str, ...], name: str) -> CodeType:
    """Code that continues ``code`` at instruction ``index``.

    ``stack`` tells for each stack slot whether it is a NULL; the others come as parameters ``stack_0``, ..., followed
    by ``variables``.
    """
    body = Bytecode.from_code(code)
    real = [n for n, item in enumerate(body) if isinstance(item, Instr)]
    target = Label()
    line = decode(code)[index].line or code.co_firstlineno
    body.insert(real[index], target)
    arguments = [f"stack_{n}" for n, is_null in enumerate(stack) if not is_null] + list(variables)
    prologue: list[Instr] = []
    if code.co_freevars:
        prologue.append(Instr("COPY_FREE_VARS", len(code.co_freevars), lineno=line))
    prologue += [Instr("MAKE_CELL", CellVar(c), lineno=line) for c in code.co_cellvars]
    prologue.append(Instr("RESUME", 0, lineno=line))
    for n, is_null in enumerate(stack):
        prologue.append(Instr("PUSH_NULL", lineno=line) if is_null else Instr("LOAD_FAST", f"stack_{n}", lineno=line))
    prologue.append(Instr("JUMP_FORWARD", target, lineno=line))
    body[:0] = prologue
    body.argcount = len(arguments)
    body.posonlyargcount = body.kwonlyargcount = 0
    body.argnames = arguments
    body.flags = body.flags & ~(CO_VARARGS | CO_VARKEYWORDS)
    body.name = name
    if hasattr(body, "qualname"):
        body.qualname = f"{code.co_qualname}.{name}" if sys.version_info >= (3, 11) else name
    return body.to_code()


def is_protected(code: CodeType, index: int) -> bool:
    """Whether the instruction stands in a try, with or except block."""

    return any(h.start <= index < h.end for h in exception_entries(code))
