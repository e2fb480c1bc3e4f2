"""Resume functions that transformed code makes itself, as calls of a factory.

torch 2.11 makes the function of a continuation with free variables in the code that calls it; since 2.12 it calls a
global that does.  No source makes a function of a given code object, so the former is rewritten as the latter::

    LOAD_CONST <code of resume at 8>, MAKE_FUNCTION closure   ->   resume_at_8(cells)
"""

from __future__ import annotations

import sys
from functools import partial
from types import CodeType, FunctionType
from typing import Any

_PREFIX = "torch_dynamo_resume_in_"
_CLOSURE = 8
_MAKING = ["LOAD_CONST", "MAKE_FUNCTION", *(["SET_FUNCTION_ATTRIBUTE"] if sys.version_info >= (3, 13) else [])]


def with_factories(code: CodeType, around: dict[str, Any]) -> tuple[CodeType, dict[str, CodeType]]:
    """``code`` with calls of factories, which are put into the globals ``around``, and their names with the codes."""
    found = {c: n for n, c in enumerate(code.co_consts) if isinstance(c, CodeType) and c.co_name.startswith(_PREFIX)}
    if not found:
        return code, {}
    from bytecode import Bytecode  # here, since most functions need none and it is slow to load

    from ...bytecode.pairs import split_pairs

    instructions = split_pairs(Bytecode.from_code(code))
    factories: dict[str, CodeType] = {}
    at = 0
    while at < len(instructions):
        made = _made_at(instructions, at)
        if made is not None:
            name = _name(made, around, found[made])
            factories[name] = made
            instructions[at : at + len(_MAKING)] = _call(name)
        at += 1
    if not factories:
        return code, {}
    for name, made in factories.items():
        around[name] = partial(FunctionType, made, around, None, None)  # no Python frame, which would be compiled, too
    return instructions.to_code(), factories


def _made_at(instructions: Any, at: int) -> CodeType | None:
    """The code of the continuation that the instructions from ``at`` on make."""
    part = instructions[at : at + len(_MAKING)]
    if [getattr(i, "name", "") for i in part] != _MAKING or part[-1].arg != _CLOSURE:
        return None
    made = part[0].arg
    return made if isinstance(made, CodeType) and made.co_name.startswith(_PREFIX) else None


def _name(code: CodeType, around: dict[str, Any], number: int) -> str:
    """torch.compile keeps the code among the globals under the continuation's name."""
    known = next((n for n, value in around.items() if value is code), f"__resume_at_{code.co_name}_{number}")
    return f"{known}_over"


def _call(name: str) -> list[Any]:
    """A call of the global ``name`` with what is on top of the stack."""
    from bytecode import Instr

    null, function = [Instr("PUSH_NULL"), Instr("SWAP", 2)], [Instr("LOAD_GLOBAL", (False, name)), Instr("SWAP", 2)]
    push = [*null, *function] if sys.version_info < (3, 13) else [*function, *null]
    return [*push, *([Instr("PRECALL", 1)] if sys.version_info < (3, 12) else []), Instr("CALL", 1)]
