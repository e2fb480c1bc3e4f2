"""Code object in, canonical instructions out: one small dialect for CPython 3.10 to 3.13.

Readers of bytecode that only care about meaning (the decompiler, the comparison of two codes) should not know which
release renamed what.  ``canonical(code)`` folds EXTENDED_ARG, drops caches, splits super-instructions, gives every
jump its condition as data and every instruction its exception handler (3.10's block stack included):

    >>> [(i.op, i.arg) for i in canonical((lambda x: x if x else 1).__code__)]   # doctest: +SKIP
    [('LOAD_FAST', 'x'), ('BRANCH', 'bool'), ('LOAD_FAST', 'x'), ('RETURN_VALUE', None), ...]

Dialect, where it differs from ``dis``: ``BRANCH`` (arg ``bool`` or ``none``) goes to ``to`` when the test's truth is
``jump_if`` and to ``nxt`` otherwise; ``BRANCH_KEEP`` is JUMP_IF_x_OR_POP; ``BINARY`` carries the operator's text
(``+``, ``+=``); ``CALL`` carries ``(argument count, keyword names or None)``; ``JUMP`` goes to ``to``.
"""

from __future__ import annotations

import dis
import itertools
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

from .decode import PAIRS, Instruction
from .exceptions import handler_table
from .ins import Ins
from .operators import BINARY, CONVERSIONS, NUMBERED

VERSION = sys.version_info[:2]


TERMINAL = frozenset({"RETURN_VALUE", "RAISE", "RERAISE"})
_CACHES = getattr(dis, "_inline_cache_entries", None)
_BINARY = {row.opcode: row.symbol for row in BINARY.values()}
_BINARY |= {"INPLACE" + name[6:]: text + "=" for name, text in _BINARY.items()}
_INTRINSIC_1 = getattr(dis, "_intrinsic_1_descs", None) or ()
_INTRINSIC_2 = getattr(dis, "_intrinsic_2_descs", None) or ()
_HAS_NAME = set(dis.hasname)
_HAS_LOCAL = set(dis.haslocal)
_HAS_FREE = set(dis.hasfree)
_HAS_CONST = set(dis.hasconst)
_JREL = set(dis.hasjrel)
_JABS = set(dis.hasjabs)
_EXTENDED = dis.EXTENDED_ARG
_BACKWARD = {op for op in _JREL if "BACKWARD" in dis.opname[op]}
_OPNAME = dis.opname
_CMP = dis.cmp_op

#: opcodes that never matter to a reader
_SILENT = frozenset(
    {"CACHE", "RESUME", "MAKE_CELL", "COPY_FREE_VARS", "PRECALL", "GEN_START", "TO_BOOL", "END_SEND", "END_FOR",
     "ASYNC_GEN_WRAP", "SETUP_ANNOTATIONS", "EXIT_INIT_CHECK", "NOT_TAKEN"}
)  # fmt: skip


def raw_instructions(code: CodeType) -> list[tuple[int, int, int, int]]:
    """``(offset, start, opcode, oparg)`` of each instruction; ``start`` is where its EXTENDED_ARGs begin."""
    data = code.co_code
    out = []
    extended = 0
    start = -1
    offset = 0
    size = len(data)
    caches = _CACHE_COUNT
    while offset < size:
        op = data[offset]
        arg = data[offset + 1] | extended
        if op == _EXTENDED:
            extended = arg << 8
            if start < 0:
                start = offset
            offset += 2
            continue
        out.append((offset, start if start >= 0 else offset, op, arg))
        extended = 0
        start = -1
        offset += 2 + 2 * caches[op]
    return out


def _cache_counts() -> list[int]:
    if _CACHES is None:
        return [0] * 256
    if isinstance(_CACHES, dict):
        return [_CACHES.get(name, 0) for name in _OPNAME[:256]]
    return list(_CACHES[:256])


_CACHE_COUNT = _cache_counts()


def jump_target(offset: int, op: int, arg: int) -> int:
    """The offset a jump goes to."""
    if op in _JABS:
        return arg * 2
    if VERSION < (3, 11):
        return offset + 2 + arg * 2
    return offset + 2 + 2 * _CACHE_COUNT[op] + (-2 * arg if op in _BACKWARD else 2 * arg)


def _positions(code: CodeType) -> list[Any]:
    """A source position per code unit: (line, column, …) where the interpreter has them, else the line."""
    if hasattr(code, "co_positions"):
        known = [None if p[0] is None else p for p in code.co_positions()]
        return known + [None] * (len(code.co_code) // 2 - len(known))  # a stripped table may be short
    out: list[Any] = [None] * (len(code.co_code) // 2)
    for start, end, line in code.co_lines():
        for unit in range(start // 2, end // 2):
            out[unit] = line
    return out


def canonical(code: CodeType) -> list[Ins]:
    """The canonical instructions of ``code``, indexed by position, with jumps and handlers as indices."""
    raws = raw_instructions(code)
    positions = _positions(code)
    out: list[Ins] = []
    index_at: dict[int, int] = {}
    translate = _TRANSLATE
    state = _State(code)
    for offset, start, op, arg in raws:
        index_at[start] = index_at[offset] = len(out)
        pos = positions[offset // 2]
        rule = translate[op]
        if type(rule) is str:
            out.append(Ins(len(out), offset, rule, None, pos))
        else:
            rule(state, out, offset, op, arg, pos)
    end = len(code.co_code)
    index_at[end] = len(out)
    # An instruction that dissolved into nothing is stood for by the next one: index_at already says so.
    for ins in out:
        if ins.to >= 0:
            ins.to = index_at[ins.to]
        if ins.op in TERMINAL or ins.op == "JUMP":
            ins.nxt = -1
    handler_table(code, out, index_at)
    if VERSION >= (3, 13):
        _name_closures(code, out)
        _protect_branches(out)
    return out


def in_dialect(code: CodeType, i: Instruction) -> tuple[str, Any]:
    """The name and the argument in the dialect of an instruction that is one there, too."""
    rule = _TRANSLATE[i.opcode]
    if type(rule) is str:
        return rule, None
    out: list[Ins] = []
    rule(_State(code), out, i.offset, i.opcode, i.arg or 0, None)
    (ins,) = out
    return ins.op, ins.arg


def _name_closures(code: CodeType, out: list[Ins]) -> None:
    """3.13 writes LOAD_FAST for LOAD_CLOSURE too. In an inlined comprehension it may be another variable's value."""
    shared = {*code.co_cellvars, *code.co_freevars}
    values = {at for ins in out if ins.op == "LOAD_FAST_AND_CLEAR" for at in _reads_in_comprehension(out, ins)}
    for ins in out:
        if ins.op == "LOAD_FAST" and ins.arg in shared and ins.index not in values:
            ins.op = "LOAD_CLOSURE"


def _protect_branches(out: list[Ins]) -> None:
    """3.13 takes the truth of a value before the jump, which raises nothing: here the branch does both."""
    for before, ins in itertools.pairwise(out):
        if ins.op == "BRANCH" and ins.arg == "bool":
            ins.region = before.region


def _reads_in_comprehension(out: list[Ins], start: Ins) -> list[int]:
    """Where the comprehension that begins with ``start`` reads the variable of that name, if it is no cell there."""
    loops = (i for i in out[start.index :] if i.op in ("FOR_ITER", "END_ASYNC_FOR"))
    end = next((i.to if i.op == "FOR_ITER" else i.index for i in loops), start.index)
    uses = [i for i in out[start.index : end] if i.arg == start.arg]
    return [i.index for i in uses] if any(i.op == "STORE_FAST" for i in uses) else []


class _State:
    """What the translation of one code object carries from instruction to instruction."""

    __slots__ = ("code", "consts", "deref", "fast", "kw_names", "names")

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.consts = code.co_consts
        self.names = code.co_names
        cells = [c for c in code.co_cellvars if c not in code.co_varnames] if VERSION >= (3, 11) else []
        if VERSION >= (3, 11):
            self.fast = tuple(code.co_varnames) + tuple(cells) + code.co_freevars
            self.deref = self.fast
        else:
            self.fast = code.co_varnames
            self.deref = code.co_cellvars + code.co_freevars
        self.kw_names: Any = None


Rule = Callable[[_State, "list[Ins]", int, int, int, Any], None]


def _emit(name: str, value: Callable[[_State, int], Any]) -> Rule:
    def rule(state: _State, out: list[Ins], offset: int, op: int, arg: int, pos: Any) -> None:
        out.append(Ins(len(out), offset, name, value(state, arg), pos))

    return rule


def _nothing(state: _State, out: list[Ins], offset: int, op: int, arg: int, pos: Any) -> None:
    out.append(Ins(len(out), offset, "NOP", None, pos))


def _jump(name: str, arg_value: Any = None, jump_if: bool = False) -> Rule:
    def rule(state: _State, out: list[Ins], offset: int, op: int, arg: int, pos: Any) -> None:
        ins = Ins(len(out), offset, name, arg_value, pos)
        ins.to = jump_target(offset, op, arg)
        ins.jump_if = jump_if
        out.append(ins)

    return rule


def _load_global(state: _State, out: list[Ins], offset: int, op: int, arg: int, pos: Any) -> None:
    if VERSION < (3, 11):
        out.append(Ins(len(out), offset, "LOAD_GLOBAL", state.names[arg], pos))
        return
    null = arg & 1
    if null and VERSION < (3, 13):
        out.append(Ins(len(out), offset, "PUSH_NULL", None, pos))
    out.append(Ins(len(out), offset, "LOAD_GLOBAL", state.names[arg >> 1], pos))
    if null and VERSION >= (3, 13):
        out.append(Ins(len(out), offset, "PUSH_NULL", None, pos))


def _load_attr(state: _State, out: list[Ins], offset: int, op: int, arg: int, pos: Any) -> None:
    if VERSION < (3, 12):
        out.append(Ins(len(out), offset, "LOAD_ATTR", state.names[arg], pos))
    else:
        name = "LOAD_METHOD" if arg & 1 else "LOAD_ATTR"
        out.append(Ins(len(out), offset, name, state.names[arg >> 1], pos))


def _pair(first: str, second: str) -> Rule:
    def rule(state: _State, out: list[Ins], offset: int, op: int, arg: int, pos: Any) -> None:
        out.append(Ins(len(out), offset, first, state.fast[arg >> 4], pos))
        out.append(Ins(len(out), offset, second, state.fast[arg & 15], pos))

    return rule


def _return_const(state: _State, out: list[Ins], offset: int, op: int, arg: int, pos: Any) -> None:
    out.append(Ins(len(out), offset, "LOAD_CONST", state.consts[arg], pos))
    out.append(Ins(len(out), offset, "RETURN_VALUE", None, pos))


def _kw_names(state: _State, out: list[Ins], offset: int, op: int, arg: int, pos: Any) -> None:
    state.kw_names = state.consts[arg]
    out.append(Ins(len(out), offset, "NOP", None, pos))


def _call(state: _State, out: list[Ins], offset: int, op: int, arg: int, pos: Any) -> None:
    out.append(Ins(len(out), offset, "CALL", (arg, state.kw_names), pos))
    state.kw_names = None


def _call_kw(state: _State, out: list[Ins], offset: int, op: int, arg: int, pos: Any) -> None:
    """CALL_KW and CALL_FUNCTION_KW: the keyword names are the constant just pushed."""
    names = out[-1]
    if names.op == "LOAD_CONST" and isinstance(names.arg, tuple):
        value = names.arg
        names.op, names.arg = "NOP", None
        op_name = "CALL" if VERSION >= (3, 11) else "CALL_FUNCTION"
        out.append(Ins(len(out), offset, op_name, (arg, value), pos))
    else:
        out.append(Ins(len(out), offset, "CALL_KW_DYNAMIC", arg, pos))


def _compare(state: _State, arg: int) -> str:
    if VERSION >= (3, 13):
        return _CMP[arg >> 5]
    if VERSION >= (3, 12):
        return _CMP[arg >> 4]
    return _CMP[arg]


def _super_attr(state: _State, out: list[Ins], offset: int, op: int, arg: int, pos: Any) -> None:
    out.append(Ins(len(out), offset, "LOAD_SUPER_ATTR", (state.names[arg >> 2], arg & 1, arg & 2), pos))


def _intrinsic(table: Any, prefix: str) -> Rule:
    def rule(state: _State, out: list[Ins], offset: int, op: int, arg: int, pos: Any) -> None:
        name = table[arg].replace("INTRINSIC_", "")
        if name == "ASYNC_GEN_WRAP":
            out.append(Ins(len(out), offset, "NOP", None, pos))
        elif name in ("UNARY_POSITIVE", "LIST_TO_TUPLE", "IMPORT_STAR", "PREP_RERAISE_STAR"):
            out.append(Ins(len(out), offset, name, None, pos))
        else:
            out.append(Ins(len(out), offset, prefix, name, pos))

    return rule


_FORMAT_CONVERSION = (-1, *CONVERSIONS)


def _format(state: _State, arg: int) -> tuple[int, bool]:
    return _FORMAT_CONVERSION[arg & 3], bool(arg & 4)


def _const(state: _State, arg: int) -> Any:
    return state.consts[arg]


def _raw_arg(state: _State, arg: int) -> int:
    return arg


def _local(state: _State, arg: int) -> str:
    return state.fast[arg]


def _deref(state: _State, arg: int) -> str:
    return state.deref[arg]


def _name(state: _State, arg: int) -> str:
    return state.names[arg]


def _translations() -> list[Any]:
    """One rule per opcode number: a plain name, or a function that emits."""
    special: dict[str, Any] = {
        "LOAD_GLOBAL": _load_global,
        "LOAD_ATTR": _load_attr,
        "LOAD_FAST_CHECK": _emit("LOAD_FAST", _local),
        **{name: _pair(*halves) for name, halves in PAIRS.items()},
        "RETURN_CONST": _return_const,
        "KW_NAMES": _kw_names,
        "CALL": _call,
        "CALL_FUNCTION": _emit("CALL_FUNCTION", lambda s, a: (a, None)),
        "CALL_METHOD": _emit("CALL", lambda s, a: (a, None)),
        "CALL_KW": _call_kw,
        "CALL_FUNCTION_KW": _call_kw,
        "CALL_FUNCTION_EX": _emit("CALL_EX", lambda s, a: bool(a & 1)),
        "COMPARE_OP": _emit("COMPARE", _compare),
        "IS_OP": _emit("COMPARE", lambda s, a: "is not" if a else "is"),
        "CONTAINS_OP": _emit("COMPARE", lambda s, a: "not in" if a else "in"),
        "BINARY_OP": _emit("BINARY", lambda s, a: NUMBERED[a][0]),
        "LOAD_SUPER_ATTR": _super_attr,
        "CALL_INTRINSIC_1": _intrinsic(_INTRINSIC_1, "INTRINSIC_1"),
        "CALL_INTRINSIC_2": _intrinsic(_INTRINSIC_2, "INTRINSIC_2"),
        "FORMAT_VALUE": _emit("FORMAT_VALUE", _format),
        "FORMAT_SIMPLE": _emit("FORMAT_VALUE", lambda s, a: (-1, False)),
        "FORMAT_WITH_SPEC": _emit("FORMAT_VALUE", lambda s, a: (-1, True)),
        "CONVERT_VALUE": _emit("CONVERT_VALUE", lambda s, a: _FORMAT_CONVERSION[a]),
        "RAISE_VARARGS": _emit("RAISE", _raw_arg),
        "YIELD_VALUE": "YIELD_VALUE",  # its argument (3.12) says what blocks and SEND around it say, too
        "DUP_TOP": _emit("COPY", lambda s, a: 1),
        "ROT_TWO": _emit("SWAP", lambda s, a: 2),
        "ROT_THREE": _emit("ROT", lambda s, a: 3),
        "ROT_FOUR": _emit("ROT", lambda s, a: 4),
        "ROT_N": _emit("ROT", _raw_arg),
        "JUMP_IF_NOT_EXC_MATCH": _jump("BRANCH", "exc", False),
        "LOAD_CLASSDEREF": _emit("LOAD_CLASSDEREF", _deref),
        "LOAD_FROM_DICT_OR_DEREF": _emit("LOAD_FROM_DICT_OR_DEREF", _deref),
        "LOAD_CLOSURE": _emit("LOAD_CLOSURE", _deref),
        "MAKE_CELL": _nothing,
    }
    rules: list[Any] = ["UNKNOWN"] * 256
    for op in range(256):
        name = _OPNAME[op]
        rules[op] = special.get(name) or _ordinary(op, name)
    return rules


def _ordinary(op: int, name: str) -> Any:
    if name in _SILENT:
        return _nothing
    if name in _BINARY:
        text = _BINARY[name]
        return _emit("BINARY", lambda s, a: text)
    if op in _JREL or op in _JABS:
        return _jump_rule(name)
    if op in _HAS_CONST:
        return _emit(name, _const)
    if op in _HAS_NAME:
        return _emit(name, _name)
    if op in _HAS_LOCAL:
        return _emit(name, _local)
    if op in _HAS_FREE:
        return _emit(name, _deref)
    if op >= dis.HAVE_ARGUMENT or (VERSION >= (3, 13) and op in getattr(dis, "hasarg", ())):
        return _emit(name, _raw_arg)
    return name


def _jump_rule(name: str) -> Rule:
    if name.startswith("JUMP_IF_"):
        return _jump("BRANCH_KEEP", "bool", "TRUE" in name)
    if "NOT_NONE" in name:
        return _jump("BRANCH", "none", False)
    if "IF_NONE" in name:
        return _jump("BRANCH", "none", True)
    if "POP_JUMP" in name:
        return _jump("BRANCH", "bool", "IF_TRUE" in name)
    if name in ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD_NO_INTERRUPT"):
        return _jump("JUMP")
    return _jump(name)


_TRANSLATE = _translations()
