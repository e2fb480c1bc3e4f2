"""What is wrong with a file that a person edited: its errors in, texts with file and line out."""

from __future__ import annotations

import builtins
import dis
import traceback
from pathlib import Path
from types import FunctionType, ModuleType

from ..bytecode import codes_within


class EditError(RuntimeError):
    """An edited graph file that cannot be compiled; the message says which and why."""


def told(error: BaseException, path: Path | None = None) -> str:
    """An error for a message: its class and text; a SyntaxError with its whole path, where it says the last name, and
    others with the line of the file ``path`` where they were raised.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"SyntaxError: {error.filename}, line {error.lineno}: {error.msg}"
    if isinstance(error, EditError):
        return str(error)
    line = line_of(error, path) if path is not None else ""
    return f"{path}{line}: {type(error).__name__}: {error}" if line else f"{type(error).__name__}: {error}"


def check_names(module: ModuleType, path: Path) -> None:
    """Raise EditError, with the line, for a name in a module's functions that nothing defines: a typo."""
    known = {*vars(module), *vars(builtins)}
    functions = [value.__code__ for value in vars(module).values() if type(value) is FunctionType]
    for code in codes_within(code for code in functions if code.co_filename == str(path)):
        line = code.co_firstlineno
        for instruction in dis.get_instructions(code):
            line = (instruction.positions.lineno if instruction.positions else None) or line
            if instruction.opname == "LOAD_GLOBAL" and instruction.argval not in known:
                raise EditError(f"{path}, line {line}: NameError: name {instruction.argval!r} is not defined")


def line_of(error: BaseException, path: Path) -> str:
    """``, line 12`` where the error was raised in the file."""
    line = line_in(error, path)
    return f", line {line}" if line else ""


def line_in(error: BaseException, path: Path | str) -> int | None:
    """The last line of a file that a traceback passed through; for a folder, of any file in it."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == str(path)]
    return lines[-1] if lines else None
