"""Every continuation that a function can have: its code, entered behind each of its calls and at each handler.

``continuations(code)`` works out what stands on the stack at each instruction, as capture would know it, and asks
``capture.resume`` for the code that goes on there. Run with file names, it decompiles all of them:

    PYTHONPATH=src python tests/decompiler/continuations.py Lib/argparse.py ...
"""

from __future__ import annotations

import dis
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from torchglass.bytecode import decode, exception_entries
from torchglass.capture.resume_code import EntryPoint, Slot, live_locals, resume_code
from torchglass.decompiler import DecompileError, decompile

BEHIND = ("CALL", "CALL_FUNCTION_EX", "BINARY_OP", "LOAD_ATTR")
CAUGHT = Slot.CAUGHT
GENERATOR = 0x20
#: instructions that put nothing in the place of what they take
KEEPS = ("STORE", "POP", "DELETE", "JUMP", "RERAISE", "LIST_", "SET_", "DICT_", "MAP_", "CHECK_EX",
         "RESUME", "NOP", "PRECALL", "KW_NAMES")  # fmt: skip


def stacks(code: CodeType) -> dict[int, tuple[tuple[Slot, ...], dict[str, int]]]:
    """What is on the stack before each instruction, and the variables that are an exception, by its HANDLED slot."""
    instructions, handlers = decode(code), exception_entries(code)
    known: dict[int, tuple[tuple[Slot, ...], dict[str, int]]] = {}
    work: list[tuple[int, tuple[Slot, ...], dict[str, int]]] = [(0, (), {})]
    while work:
        at, stack, names = work.pop()
        if at in known or at >= len(instructions):
            continue
        known[at] = stack, names
        i = instructions[at]
        for h in handlers:
            if h.start <= at < h.end:
                kept = stack[: h.depth] + ((Slot.VALUE,) if h.lasti else ())
                work.append((h.target, (*kept, Slot.VALUE), names))
        if i.opname == "STORE_FAST":
            names = {n: slot for n, slot in names.items() if n != i.argval}
            if stack[-1] is CAUGHT:
                names[i.argval] = len(stack) - 2
        work += [(to, after(i, stack, to == i.target), names) for to in i.successors]
    return known


def after(i: Any, stack: tuple[Slot, ...], jumps: bool) -> tuple[Slot, ...]:
    """The stack after one instruction."""
    name, arg = i.opname, i.arg
    if name == "PUSH_NULL":
        return (*stack, Slot.NULL)
    if name == "LOAD_GLOBAL":
        return (*stack, *((Slot.NULL,) if arg & 1 else ()), Slot.VALUE)
    if name == "LOAD_METHOD":
        return (*stack[:-1], Slot.VALUE, Slot.VALUE)
    if name == "PUSH_EXC_INFO":
        return (*stack[:-1], Slot.HANDLED, CAUGHT)
    if name == "COPY":
        return (*stack, stack[-arg])
    if name == "SWAP":
        values = list(stack)
        values[-1], values[-arg] = values[-arg], values[-1]
        return tuple(values)
    if name == "MAKE_CELL" or name == "COPY_FREE_VARS":
        return stack
    effect = dis.stack_effect(i.opcode, i.arg if i.opcode >= dis.HAVE_ARGUMENT else None, jump=jumps)
    if effect < 0:
        stack = stack[:effect]
    if stack and effect <= 0 and not name.startswith(KEEPS):
        stack = (*stack[:-1], Slot.VALUE)
    return stack + (Slot.VALUE,) * max(effect, 0)


def continuations(code: CodeType, behind: tuple[str, ...] = BEHIND) -> Iterator[tuple[int, CodeType]]:
    """``(instruction, code)`` of what goes on behind each call, and at each handler."""
    instructions = decode(code)
    handlers = {h.target for h in exception_entries(code)}
    for at, (stack, bound) in stacks(code).items():
        before = instructions[at - 1].opname if at else ""
        if code.co_flags & GENERATOR:  # these wait at a yield, and nowhere else
            if before != "YIELD_VALUE":
                continue
            stack = stack[:-1]
        elif at not in handlers and before not in behind:
            continue
        # what is no longer on top of the slot below is no longer known to be that exception
        slots = list(stack)
        for n, slot in enumerate(slots):
            if slot is CAUGHT and (n == 0 or slots[n - 1] is not Slot.HANDLED):
                slots[n] = Slot.VALUE
        live = live_locals(code, at)
        handled = [n for n, slot in enumerate(slots) if slot is Slot.HANDLED]
        caught = tuple((slot, name) for name, slot in bound.items() if name in live and slot in handled)
        variables = tuple(sorted(live - {name for _, name in caught} - set(code.co_freevars)))
        entry = EntryPoint(at, tuple(slots), variables, (), caught)
        yield at, resume_code(code, entry, f"resume_{at}")


def functions(code: CodeType) -> Iterator[CodeType]:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            if const.co_flags & 2 and not const.co_name.startswith("<"):
                yield const
            yield from functions(const)


def main(paths: list[str]) -> None:
    total = wrong = states = 0
    for path in paths:
        module = compile(Path(path).read_text(), path, "exec", 0, True)
        for code in functions(module):
            if code.co_flags & 0x280:  # async
                continue
            for at, made in continuations(code):
                total += 1
                begin = time.process_time()
                try:
                    text = decompile(made, verify=True)
                except DecompileError as error:
                    wrong += 1
                    print(f"{path}:{code.co_name}:{at}: {str(error).split('): ', 1)[-1]}", flush=True)
                    continue
                if "control flow of" in text:
                    states += 1
                    print(f"{path}:{code.co_name}:{at}: {text.splitlines()[0]}", flush=True)
                if time.process_time() - begin > 5:
                    print(f"{path}:{code.co_name}:{at}: slow: {time.process_time() - begin:.1f} s")
    print(f"{total} continuations, {wrong} not verified, {states} state machines")


if __name__ == "__main__":
    main(sys.argv[1:])
