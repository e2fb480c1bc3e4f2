"""Compares two code objects instruction by instruction over their control-flow graphs.

Both are walked in step from their entries; jumps and NOPs are passed over, a branch is compared by where it goes when
true and when false, and an instruction that can raise by its handler.  The graphs of code objects are deterministic,
so meeting a pair of places a second time proves nothing new: the walk ends when no new pair turns up (bisimulation).
"""

from __future__ import annotations

from types import CodeType
from typing import Any

from ...bytecode.canonical import VERSION, canonical
from ...bytecode.flow import SAFE, skip, successors
from ...bytecode.ins import Ins
from ...bytecode.parameters import parameter_names
from .difference import Differs, other_instruction

#: instructions that cannot raise: a handler over them means nothing
_QUIET = SAFE | {"DUP_TOP_TWO", "LOAD_FAST_AND_CLEAR", "RETURN_GENERATOR", "BUILD_TUPLE", "MAKE_FUNCTION",
                 "SET_FUNCTION_ATTRIBUTE"}  # fmt: skip
#: which of the two an attribute of a called name takes depends on whether the module imports that name
_METHOD = {"LOAD_ATTR", "LOAD_METHOD"}
#: a convention of calls, and 3.10's block marks: which handler protects an instruction is compared as such
_MARKS = frozenset({"PUSH_NULL", "SETUP_FINALLY", "SETUP_ASYNC_WITH", "POP_BLOCK"})
_FLAGS = 0x4 | 0x8 | 0x20 | 0x80 | 0x200


def instruction_difference(a: CodeType, b: CodeType, name: bool = True) -> str | None:
    """What distinguishes ``b`` from ``a``; None when they have the same instructions."""
    why = outside_difference(a, b, name)
    if why is not None:
        return why
    try:
        _walk(canonical(a), canonical(b))
    except Differs as error:
        return str(error)
    return None


def outside_difference(a: CodeType, b: CodeType, name: bool) -> str | None:
    """Differences that show without looking at the instructions: signature, flags, free variables, docstring."""
    for field in ("co_argcount", "co_posonlyargcount", "co_kwonlyargcount"):
        if getattr(a, field) != getattr(b, field):
            return f"{field}: {getattr(a, field)} and {getattr(b, field)}"
    if (a.co_flags ^ b.co_flags) & _FLAGS:
        return f"flags: {a.co_flags & _FLAGS:#x} and {b.co_flags & _FLAGS:#x}"
    if name and a.co_name != b.co_name:
        return f"name: {a.co_name} and {b.co_name}"
    if parameter_names(a) != parameter_names(b):
        return f"parameters: {parameter_names(a)} and {parameter_names(b)}"
    if set(a.co_freevars) != set(b.co_freevars):
        return f"free variables: {a.co_freevars} and {b.co_freevars}"
    if _docstring(a) != _docstring(b):
        return "docstrings differ"
    return None


def _docstring(code: CodeType) -> Any:
    """The first constant, where it is a docstring (for functions, CPython puts None there if there is none)."""
    if not code.co_flags & 2 or code.co_name.startswith("<") or not code.co_consts:
        return None
    first = code.co_consts[0]
    return first if isinstance(first, str) else None


def _walk(left: list[Ins], right: list[Ins]) -> None:
    seen: set[tuple[int, int]] = set()
    work = [(0, 0)]
    while work:
        i, j = work.pop()
        i, j = _skip(left, i), _skip(right, j)
        if (i, j) in seen:
            continue
        seen.add((i, j))
        if i >= len(left) or j >= len(right):
            if i >= len(left) and j >= len(right):
                continue
            raise Differs(f"one code ends at {i}, {j}")
        x, y = left[i], right[j]
        if not _is_qualified_name(left, right, x, y):
            _compare(x, y)
        if x.op not in _QUIET and not (x.op == "BRANCH" and VERSION >= (3, 13)):  # there TO_BOOL has called __bool__
            if (x.eh < 0) != (y.eh < 0):
                raise Differs("is protected in one code only", x)
            if x.eh >= 0:
                work.append((x.eh, y.eh))
        work.extend(zip(successors(x), successors(y)))


def _is_qualified_name(left: list[Ins], right: list[Ins], x: Ins, y: Ins) -> bool:
    """``__qualname__`` and 3.10's second operand of MAKE_FUNCTION say where a definition stands, not what it does."""
    if x.op != "LOAD_CONST" or y.op != "LOAD_CONST" or type(x.arg) is not type(y.arg):
        return False
    after, other = left[x.nxt], right[y.nxt]
    if after.op != other.op:
        return False
    if after.op == "STORE_NAME" and after.arg == other.arg == "__static_attributes__":
        return set(x.arg) == set(y.arg)
    if after.op == "STORE_NAME" and after.arg == other.arg and after.arg in ("__qualname__", "__firstlineno__"):
        return True
    return after.op == "MAKE_FUNCTION" and type(x.arg) is str


def _skip(code: list[Ins], at: int) -> int:
    at = skip(code, at)
    while at < len(code) and code[at].op in _MARKS:
        at = skip(code, code[at].nxt)
    return at


def _compare(x: Ins, y: Ins) -> None:
    if x.op != y.op and {x.op, y.op} != _METHOD:
        raise other_instruction(x, y)
    if x.op == "LOAD_CONST" and isinstance(x.arg, CodeType) and isinstance(y.arg, CodeType):
        why = instruction_difference(x.arg, y.arg)
        if why is not None:
            raise Differs(f"in {x.arg.co_name}: {why}")
    elif not (_same_constant(x.arg, y.arg) if x.op == "LOAD_CONST" else x.arg == y.arg):
        raise other_instruction(x, y)


def _same_constant(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_same_constant, a, b))
    if isinstance(a, (float, complex)):
        return repr(a) == repr(b)
    if isinstance(a, frozenset):
        key = lambda v: (type(v).__name__, repr(v))
        return sorted(map(key, a)) == sorted(map(key, b))
    return bool(a == b)
