"""Compares two code objects instruction by instruction over their control-flow graphs.

Both are walked in step from their entries; jumps and NOPs are passed over, a branch is compared by where it goes when
true and when false, and an instruction that can raise by its handler.  The graphs of code objects are deterministic,
so meeting a pair of places a second time proves nothing new: the walk ends when no new pair turns up (bisimulation).
"""

from __future__ import annotations

from types import CodeType
from typing import Any

from ...bytecode.canonical import VERSION, Ins, canonical
from ...process.warning_filters import ignored
from ..errors import DecompileError
from ..instructions.flow import branch_ways, skip
from .meaning import value_difference

#: instructions that cannot raise: a handler over them means nothing
_QUIET = frozenset(
    {"NOP", "POP_TOP", "JUMP", "SWAP", "ROT", "COPY", "DUP_TOP_TWO", "LOAD_CONST", "STORE_FAST", "RETURN_VALUE",
     "PUSH_NULL", "POP_EXCEPT", "POP_BLOCK", "STORE_DEREF", "PUSH_EXC_INFO", "SETUP_FINALLY", "LOAD_CLOSURE",
     "LOAD_FAST_AND_CLEAR", "RETURN_GENERATOR", "BUILD_TUPLE", "MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"}
)  # fmt: skip
#: which of the two an attribute of a called name takes depends on whether the module imports that name
_METHOD = {"LOAD_ATTR", "LOAD_METHOD"}
#: a convention of calls, and 3.10's block marks: which handler protects an instruction is compared as such
_MARKS = frozenset({"PUSH_NULL", "SETUP_FINALLY", "SETUP_ASYNC_WITH", "POP_BLOCK"})
_FLAGS = 0x4 | 0x8 | 0x20 | 0x80 | 0x200


def difference(a: CodeType, b: CodeType, name: bool = True) -> str | None:
    """What distinguishes ``b`` from ``a``; None when they mean the same."""
    return outside_difference(a, b, name) or _walk(a, b)


def outside_difference(a: CodeType, b: CodeType, name: bool) -> str | None:
    """Differences that show without looking at the instructions: signature, flags, free variables, docstring."""
    for field in ("co_argcount", "co_posonlyargcount", "co_kwonlyargcount"):
        if getattr(a, field) != getattr(b, field):
            return f"{field}: {getattr(a, field)} and {getattr(b, field)}"
    if (a.co_flags ^ b.co_flags) & _FLAGS:
        return f"flags: {a.co_flags & _FLAGS:#x} and {b.co_flags & _FLAGS:#x}"
    if name and a.co_name != b.co_name:
        return f"name: {a.co_name} and {b.co_name}"
    count = a.co_argcount + a.co_kwonlyargcount + bool(a.co_flags & 4) + bool(a.co_flags & 8)
    if a.co_varnames[:count] != b.co_varnames[:count]:
        return f"parameters: {a.co_varnames[:count]} and {b.co_varnames[:count]}"
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


def _walk(a: CodeType, b: CodeType) -> str | None:
    left, right = canonical(a), canonical(b)
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
            return f"one code ends at {i}, {j}"
        x, y = left[i], right[j]
        reason = None if _is_qualified_name(left, right, x, y) else _instruction(x, y)
        if reason is not None:
            return reason
        if x.op not in _QUIET and not (x.op == "BRANCH" and VERSION >= (3, 13)):  # there TO_BOOL has called __bool__
            if (x.eh < 0) != (y.eh < 0):
                return f"{x.offset}: {x.op} {x.arg!r} is protected in one code only"
            if x.eh >= 0:
                work.append((x.eh, y.eh))
        work.extend(zip(_ways(x), _ways(y)))
    return None


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


def _ways(ins: Ins) -> tuple[int, ...]:
    if ins.op.startswith("BRANCH"):
        return branch_ways(ins)
    if ins.to >= 0 and not ins.op.startswith("SETUP_"):
        return (ins.nxt, ins.to)
    return (ins.nxt,) if ins.nxt >= 0 else ()


def _instruction(x: Ins, y: Ins) -> str | None:
    if x.op != y.op and {x.op, y.op} != _METHOD:
        return f"{x.offset}: {x.op} {_short(x.arg)} and {y.op} {_short(y.arg)}"
    if x.op == "LOAD_CONST":
        why = _constants(x.arg, y.arg)
        return None if why is None else f"{x.offset}: {why}"
    if x.arg != y.arg:
        return f"{x.offset}: {x.op} {_short(x.arg)} and {_short(y.arg)}"
    return None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."


def _constants(a: Any, b: Any) -> str | None:
    if isinstance(a, CodeType) and isinstance(b, CodeType):
        why = difference(a, b)
        return None if why is None else f"in {a.co_name}: {why}"
    if type(a) is not type(b):
        return f"constants {_short(a)} and {_short(b)}"
    if isinstance(a, tuple):
        if len(a) != len(b):
            return f"constants {_short(a)} and {_short(b)}"
        for u, v in zip(a, b):
            why = _constants(u, v)
            if why:
                return why
        return None
    if isinstance(a, (float, complex)):
        return None if repr(a) == repr(b) else f"constants {a!r} and {b!r}"
    if isinstance(a, frozenset):
        key = lambda v: (type(v).__name__, repr(v))
        return None if sorted(map(key, a)) == sorted(map(key, b)) else f"constants {_short(a)} and {_short(b)}"
    return None if a == b else f"constants {_short(a)} and {_short(b)}"


def find_code(module: CodeType, name: str, like: CodeType) -> CodeType | None:
    """The code object called ``name`` in the compiled output, outermost first."""
    level = [module]
    while level:
        following = []
        for code in level:
            for const in code.co_consts:
                if isinstance(const, CodeType):
                    if const.co_name == name:
                        return const
                    following.append(const)
        level = following
    return None


#: what a lambda is called whose body holds statements
LAMBDA = "_lambda"


def compiled(text: str, code: CodeType, name: str | None) -> CodeType:
    """Compile decompiled ``text`` and find the code object that stands for ``code``."""
    try:
        with ignored():
            module = compile(text, code.co_filename, "exec", 0, True)
    except (SyntaxError, ValueError) as error:
        raise DecompileError(f"{code.co_name}: the output does not compile: {error}") from error
    if code.co_name == "<module>":
        return module
    wanted = name or code.co_name
    if wanted == "<lambda>" and f"def {LAMBDA}(" in text:
        wanted = LAMBDA
    if not wanted.isidentifier() and wanted != "<lambda>":
        wanted = "".join(c if c.isalnum() or c == "_" else "_" for c in wanted)
    found = find_code(module, wanted, code)
    if found is None:
        raise DecompileError(f"{code.co_name}: not found in its own output")
    return found


def source_value_difference(text: str, code: CodeType, name: str | None = None) -> str | None:
    """How what the code that ``text`` compiles to does, and with which values, differs from ``code``."""
    other = compiled(text, code, name)
    named = name is None and code.co_name.isidentifier()
    return outside_difference(code, other, named) or value_difference(code, other)


def source_difference(text: str, code: CodeType, name: str | None = None) -> str | None:
    """How the code that ``text`` compiles to differs from ``code``; None when it does not."""
    named = name is None and code.co_name.isidentifier()
    why = difference(code, compiled(text, code, name), name=named)
    if why is not None and VERSION >= (3, 12) and "super" in text:
        # a module that mentions super elsewhere gets the plain call instead of LOAD_SUPER_ATTR
        return difference(code, compiled(text + "\nsuper", code, name), name=named)
    return why
