"""Print the source of a function, class body or module from its bytecode alone.

``module:qualname``, ``file.py:name`` (the file is compiled, not run) or ``file.pyc:name``; without ``:name`` the whole
module.  Example: ``python -m torchglass decompile json.decoder:JSONDecoder.decode``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import marshal
import os
import sys
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from .api import decompile
from .errors import DecompileError


class _NotFound(Exception):
    """What was asked for does not exist or has no bytecode; the message is for the user."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", help="module:qualname, file.py:name or file.pyc:name")
    parser.add_argument("--verify", action="store_true", help="fail unless the output compiles to the same bytecode")


def run(arguments: argparse.Namespace) -> int:
    try:
        print(decompile(find_target(arguments.target), verify=arguments.verify))
    except (_NotFound, DecompileError, TypeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def find_target(text: str) -> Any:
    """The function or code object that ``text`` names."""
    place, _, name = text.rpartition(":")
    if not place or (os.name == "nt" and len(place) == 1):
        place, name = text, ""
    if place.endswith((".py", ".pyc", ".pyw")):
        return _in_code(_file_code(place), name, place)
    return _in_module(place, name)


def _file_code(path: str) -> CodeType:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise _NotFound(f"cannot read {path}: {error.strerror}") from error
    if not path.endswith(".pyc"):
        try:
            return compile(data, path, "exec", 0, True)
        except (SyntaxError, ValueError) as error:
            raise _NotFound(f"{path} does not compile: {error}") from error
    if data[:4] != importlib.util.MAGIC_NUMBER:
        version = ".".join(map(str, sys.version_info[:2]))
        raise _NotFound(f"{path} was compiled by another Python than this one ({version}); use that one")
    try:
        code = marshal.loads(data[16:])
    except (EOFError, ValueError, TypeError) as error:
        raise _NotFound(f"{path} holds no code: {error}") from error
    if not isinstance(code, CodeType):
        raise _NotFound(f"{path} holds no code")
    return code


def _in_code(code: CodeType, name: str, place: str) -> CodeType:
    for part in [p for p in name.split(".") if p and p != "<locals>"]:
        inner = [c for c in code.co_consts if isinstance(c, CodeType)]
        found = [c for c in inner if c.co_name == part]
        if not found:
            names = ", ".join(sorted({c.co_name for c in inner if not c.co_name.startswith("<")})) or "nothing"
            raise _NotFound(f"no function or class {part!r} in {place}; there is {names}")
        code = found[-1]
    return code


def _in_module(place: str, name: str) -> Any:
    try:
        module = importlib.import_module(place)
    except ImportError as error:
        raise _NotFound(f"cannot import {place!r}: {error}") from error
    target: Any = module
    for part in [p for p in name.split(".") if p]:
        try:
            target = getattr(target, part)
        except AttributeError:
            raise _NotFound(f"no {part!r} in {place}") from None
    if isinstance(target, (ModuleType, type)):
        return _source_of(target, place, name)
    if isinstance(target, property):
        target = target.fget
    if isinstance(target, (FunctionType, MethodType, CodeType)) or hasattr(target, "__wrapped__"):
        return target
    raise _NotFound(f"{place}:{name} is a {type(target).__name__} and has no bytecode")


def _source_of(target: Any, place: str, name: str) -> CodeType:
    """A module's or class's own code only exists in its file."""
    path = getattr(sys.modules.get(getattr(target, "__module__", None) or place), "__file__", None)
    if isinstance(target, ModuleType):
        path = getattr(target, "__file__", None)
    if not path or not path.endswith((".py", ".pyc")):
        raise _NotFound(f"{place}:{name} is built in and has no bytecode")
    qualname = "" if isinstance(target, ModuleType) else target.__qualname__
    return _in_code(_file_code(path), qualname, path)
