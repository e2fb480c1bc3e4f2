"""Graph breaks: the breaking instruction as Python text, and the calls of the resume functions that follow.

Each breaker gets the emitter and the frame as it was before the instruction. It writes the operation as source and
returns the paths that lead on: a condition (None for the last), the stack there, and the instruction to go on at.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import BuiltinFunctionType

from ...bytecode import Instruction
from ...bytecode.canonical import in_dialect
from ...bytecode.expressions import EXPRESSIONS, Take, place
from ...bytecode.operators import BINARY, CONVERSIONS, NUMBERED, UNARY, unpacked
from ...marks.markers import graph_break
from ...process.tables import enters
from ..errors import CannotResume
from ..interp.frame import Frame
from ..interp.ops.control import call_parts, ex_parts
from ..protocol import Value, to_call
from ..torch_api import operations as tensor_ops
from ..values.binding import home_of
from ..values.constant import ConstantV
from ..values.iterators import GeneratorV
from ..values.methods import MethodV, TensorMethodV
from ..values.tensor import TensorV
from .emitter import Emitter
from .resume_call import slot_text

Stack = list[Value | str]  # symbolic values, or names of variables of the entry code


@dataclass
class Path:
    """Where execution goes on: under ``condition`` (Python text), with ``stack``, at instruction ``index``.

    In a compiled function if it is to ``resume`` there, else in the user's bytecode, to which ``verb`` gives its name.
    """

    condition: str | None
    stack: Stack
    index: int
    verb: str = "resume"


Breaker = Callable[[Emitter, Frame, Instruction], list[Path]]
BREAKERS: dict[str, Breaker] = {}
breaks_at = enters(BREAKERS)


def write_break(e: Emitter, frame: Frame, instruction: Instruction) -> list[Path]:
    """Write the breaking instruction; raises CannotResume when it has no Python form here.

    Functions of the user's that it calls are compiled as functions of their own (``compiled_calls``).
    """
    breaker = BREAKERS.get(instruction.opname)
    if breaker is None:
        raise CannotResume(f"a graph break at the instruction {instruction.opname}")
    start = len(e.body)
    paths = breaker(e, frame, instruction)
    if _may_call_functions(frame, instruction):
        _indent(e, start, "with compiled_calls:")
    return paths


def _may_call_functions(frame: Frame, instruction: Instruction) -> bool:
    name = instruction.opname
    if name in ("CALL", "CALL_KW"):
        function = call_parts(_copy(frame), instruction)[0]
        real = getattr(function, "real", None)
        plain = (
            isinstance(function, TensorMethodV) or real is print or real is graph_break or _looks_at_caller(function)
        )
        # it differentiates the derivatives of the functions that it calls
        plain = plain or str(getattr(real, "__module__", "")).startswith("torch.autograd.functional")
        return not plain and not (isinstance(real, BuiltinFunctionType) and tensor_ops.is_operation(real))
    if name in ("BINARY_OP", "COMPARE_OP", "BINARY_SUBSCR", "GET_ITER", "FOR_ITER", "CONTAINS_OP"):
        operands = frame.stack[-2:] if name not in ("GET_ITER", "FOR_ITER") else frame.stack[-1:]
        return any(not isinstance(v, (TensorV, ConstantV)) for v in operands)
    return name in ("CALL_FUNCTION_EX", "LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR")


# --- what stands around the operation ---------------------------------------------------------------------------------
def call_start(frame: Frame, instruction: Instruction) -> int:
    """The index at which to enter for an instruction to run whole: calls begin with what only prepares them."""
    index = instruction.index
    while index and frame.instructions[index - 1].opname in ("PRECALL", "KW_NAMES"):
        index -= 1
    return index


def shared_cells(e: Emitter, frame: Frame, used: set[str]) -> dict[str, str]:
    """Those of the cells that what follows uses which other objects may refer to, by variable: they are passed on."""
    cells = {n: frame.cells[n] for n in frame.code.co_cellvars if n in used and n in frame.cells}
    return {n: e.expr(cell) for n, cell in cells.items() if cell.real is not None or id(cell) in e.names}


def while_handling(e: Emitter, error: Value, begin: int) -> None:
    """Run the operation written since ``begin`` while ``error`` is what ``sys.exc_info`` gives."""
    name, trace = e.expr(error), e.fresh("trace")
    # with the entry's frame in its traceback it would keep the frame, and the frame it, until the collector comes
    e.body.insert(begin, f"{name}.__traceback__ = {trace}")
    _indent(e, begin, "except BaseException:")
    e.body[begin:begin] = [f"{trace} = {name}.__traceback__", "try:", f"    raise {name}  # it is being handled here"]


def catching(e: Emitter, begin: int) -> str:
    """Catch what the operation written since ``begin`` raises; the name of a list with it, or with nothing, from which
    it is taken: a variable would keep the exception, and its traceback the variable.
    """
    name, caught = e.fresh("raised"), e.fresh("error")
    _indent(e, begin, "try:")
    e.body.insert(begin, f"{name} = []")
    # what happens next must not happen inside `except`, where it would be chained to this error
    e.body += [f"except BaseException as {caught}:", f"    {name}.append({caught})"]
    return name


def settle_conditions(e: Emitter, paths: list[Path]) -> None:
    """Evaluate the paths' conditions with the operation: they may raise as it may."""
    for path in paths:
        if path.condition is not None:
            name = e.fresh("condition")
            e.line(f"{name} = bool({path.condition})")
            path.condition = name


def _indent(e: Emitter, begin: int, head: str) -> None:
    e.body[begin:] = [head, *(f"    {text}" for text in e.body[begin:] or ["pass"])]


def _result(e: Emitter, i: Instruction, stack: Stack, text: str) -> list[Path]:
    name = e.fresh("result")
    e.line(f"{name} = {text}")
    return [Path(None, [*stack, name], i.index + 1)]


def _split(frame: Frame, n: int) -> tuple[Stack, list[Value]]:
    cut = len(frame.stack) - n
    return list(frame.stack[:cut]), frame.stack[cut:]


# --- branches ---------------------------------------------------------------------------------------------------------
def _jump(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    stack, (value,) = _split(frame, 1)
    assert i.target is not None
    text = e.expr(value)
    yes, no = (i.target, i.index + 1) if i.opname.endswith("IF_TRUE") else (i.index + 1, i.target)
    return [Path(text, stack, yes), Path(None, list(stack), no)]


def _jump_or_pop(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    stack, (value,) = _split(frame, 1)
    assert i.target is not None
    text = e.expr(value)
    jump, fall = Path(text, [*stack, value], i.target), Path(None, list(stack), i.index + 1)
    if "FALSE" in i.opname:
        return [Path(text, fall.stack, fall.index), Path(None, jump.stack, jump.index)]
    return [jump, fall]


for _kind in ("TRUE", "FALSE"):
    breaks_at(f"POP_JUMP_FORWARD_IF_{_kind}", f"POP_JUMP_BACKWARD_IF_{_kind}", f"POP_JUMP_IF_{_kind}")(_jump)
breaks_at("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")(_jump_or_pop)


@breaks_at("TO_BOOL")
def _to_bool(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    """What 3.13 puts before a jump that looks at a truth: the two break as the jump does in other versions."""
    jump = frame.instructions[i.index + 1]
    if jump.opname in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE"):
        return _jump(e, frame, jump)
    stack, (value,) = _split(frame, 1)
    return _result(e, i, stack, f"bool({e.expr(value)})")


# --- calls ------------------------------------------------------------------------------------------------------------
@breaks_at("CALL", "CALL_KW")
def _call(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    copy = _copy(frame)
    function, args, kwargs = call_parts(copy, i)
    _refuse_frame_readers(function, args)
    return _result(e, i, list(copy.stack), _call_text(e, frame, function, args, kwargs))


def _call_text(e: Emitter, frame: Frame, function: Value, args: list[Value], kwargs: dict[str, Value]) -> str:
    parts = [e.expr(a) for a in args] + [f"{k}={e.expr(v)}" for k, v in kwargs.items()]
    if len(args) > 2 and getattr(function, "real", None) is warnings.warn:
        parts[2] = f"stacklevel={parts[2]}"
    if _looks_at_caller(function):
        at = frame.origin()
        where = f"{at.file!r}, {at.line}, {at.function!r}, {e.pin(frame.namespace, 'globals_of_function')}"
        return f"reconstruct.call_from({where}, {', '.join([e.expr(function), *parts])})"
    return f"{e.expr(function)}({', '.join(parts)})"


def _looks_at_caller(function: Value) -> bool:
    """Whether a function says where it was called: its own frames must not be entries' either."""
    real = getattr(function.function if isinstance(function, MethodV) else function, "real", None)
    return real is warnings.warn or home_of(real) == "logging"


def _refuse_frame_readers(function: Value, args: list[Value]) -> None:
    """``globals()`` and the like look at the frame that calls them, which would be the entry's."""
    real = getattr(function, "real", None)
    readers = (globals, locals, eval, exec, *(() if args else (vars, dir)))
    if real is not None and any(real is reader for reader in readers):  # not ==, which may be the program's
        raise CannotResume(f"`{real.__name__}()` looks at the frame that calls it")


@breaks_at("CALL_FUNCTION_EX")
def _call_ex(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    copy = _copy(frame)
    function, args, kwargs = ex_parts(copy, i)
    text = f"{e.expr(function)}(*{e.expr(args)}" + (f", **{e.expr(kwargs)})" if kwargs is not None else ")")
    return _result(e, i, list(copy.stack), text)


def _copy(frame: Frame) -> Frame:
    copy = Frame(frame.code, frame.namespace, frame.module, frame.locals, [])
    copy.stack, copy.kw_names = list(frame.stack), frame.kw_names
    return copy


# --- expressions and places -------------------------------------------------------------------------------------------
def _taken(e: Emitter, stack: Stack) -> Take:
    """Pops values as trees, so that what binds less than what they become part of gets its brackets."""

    def take(count: int) -> list[ast.expr]:
        cut = len(stack) - count
        texts = [slot_text(e, value) for value in stack[cut:]]
        del stack[cut:]
        return [ast.parse(text, mode="eval").body for text in texts]

    return take


@breaks_at("COMPARE_OP", "CONTAINS_OP", *UNARY, "BINARY_SUBSCR", "BINARY_SLICE", "BUILD_MAP", "BUILD_SET")
def _expression(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    op, arg = in_dialect(frame.code, i)
    stack: Stack = list(frame.stack)
    return _result(e, i, stack, ast.unparse(EXPRESSIONS[op](arg, _taken(e, stack))))


@breaks_at("BINARY_OP")
def _binary(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    assert i.arg is not None
    symbol, function = NUMBERED[i.arg]
    if symbol in BINARY:
        return _expression(e, frame, i)
    stack, (left, right) = _split(frame, 2)
    return _result(e, i, stack, f"{e.pin(function)}({e.expr(left)}, {e.expr(right)})")


@breaks_at("GET_ITER")
def _iter(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    stack, (value,) = _split(frame, 1)
    return _result(e, i, stack, f"iter({e.expr(value)})")


@breaks_at("STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE")
def _store(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    stack: Stack = list(frame.stack)
    take = _taken(e, stack)
    target = ast.unparse(place(i.opname, i.argval, ast.Store(), take))
    e.line(f"{target} = {ast.unparse(take(1)[0])}")
    return [Path(None, stack, i.index + 1)]


@breaks_at("DELETE_ATTR", "DELETE_SUBSCR")
def _delete(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    stack: Stack = list(frame.stack)
    e.line(f"del {ast.unparse(place(i.opname, i.argval, ast.Del(), _taken(e, stack)))}")
    return [Path(None, stack, i.index + 1)]


@breaks_at("UNPACK_SEQUENCE", "UNPACK_EX")
def _unpack(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    stack, (value,) = _split(frame, 1)
    assert i.arg is not None
    count, starred = unpacked(i.opname, i.arg)
    names = [e.fresh("part") for _ in range(count)]
    targets = [f"*{name}" if n == starred else name for n, name in enumerate(names)]
    e.line(f"[{', '.join(targets)}] = {e.expr(value)}")
    return [Path(None, [*stack, *reversed(names)], i.index + 1)]


# --- formatting and iteration -----------------------------------------------------------------------------------------
@breaks_at("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE")
def _format(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    op, arg = in_dialect(frame.code, i)
    conversion, has_spec = arg if op == "FORMAT_VALUE" else (arg, False)
    stack, values = _split(frame, 1 + has_spec)
    text, *spec = map(e.expr, values)
    if conversion in CONVERSIONS:
        text = f"{CONVERSIONS[conversion].__name__}({text})"
    return _result(e, i, stack, f"format({', '.join([text, *spec])})" if op == "FORMAT_VALUE" else text)


@breaks_at("FOR_ITER")
def _for_iter(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    """One step of a loop over an iterator of Python's: the item goes on in the body, the end behind the loop."""
    stack, (iterator,) = _split(frame, 1)
    assert i.target is not None
    item = e.fresh("item")
    e.line(f"{item} = next({e.expr(iterator)}, reconstruct.END)")
    # 3.12 and 3.13 jump to END_FOR, which would pop what is not there: go on behind it
    skipped = 0 if sys.version_info < (3, 12) else 1 if sys.version_info < (3, 13) else 2
    return [
        Path(f"{item} is reconstruct.END", stack, i.target + skipped),
        Path(None, [*stack, iterator, item], i.index + 1),
    ]


# --- attributes and items ---------------------------------------------------------------------------------------------
@breaks_at("LOAD_ATTR", "LOAD_METHOD")
def _load_attr(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    stack, (owner,) = _split(frame, 1)
    name = e.fresh(i.argval)
    e.line(f"{name} = {e.owner(owner)}.{i.argval}")
    method = in_dialect(frame.code, i)[0] == "LOAD_METHOD"
    return [Path(None, [*stack, *(to_call(name) if method else [name])], i.index + 1)]


@breaks_at("LOAD_GLOBAL")
def _load_global(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    table = e.pin(frame.namespace, "globals_of_function")
    assert i.arg is not None
    value = e.fresh(i.argval)
    e.line(f"{value} = {table}[{i.argval!r}]")
    return [Path(None, [*frame.stack, *(to_call(value) if i.arg & 1 else [value])], i.index + 1)]


# --- with -------------------------------------------------------------------------------------------------------------
@breaks_at("BEFORE_WITH")
def _with(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    stack, (manager,) = _split(frame, 1)
    leave, entered = e.fresh("leave"), e.fresh("entered")
    e.line(f"{leave}, {entered} = reconstruct.enter({e.expr(manager)})")
    return [Path(None, [*stack, leave, entered], i.index + 1)]


@breaks_at("WITH_EXCEPT_START")
def _leave_with(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    leave, error = frame.stack[-4], e.expr(frame.stack[-1])
    return _result(e, i, list(frame.stack), f"{e.expr(leave)}(type({error}), {error}, {error}.__traceback__)")


# --- displays and names -----------------------------------------------------------------------------------------------
ADDITIONS = {
    "LIST_EXTEND": "{}.extend({})", "SET_UPDATE": "{}.update({})", "DICT_UPDATE": "{}.update({})",
    "DICT_MERGE": "reconstruct.merge({}, {})", "SET_ADD": "{}.add({})", "MAP_ADD": "{}[{}] = {}",
}  # fmt: skip


@breaks_at(*ADDITIONS)
def _add(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    """What becomes part of a display or comprehension."""
    stack, values = _split(frame, 2 if i.opname == "MAP_ADD" else 1)
    assert i.arg is not None
    e.line(ADDITIONS[i.opname].format(e.owner(stack[-i.arg]), *map(e.expr, values)))
    return [Path(None, stack, i.index + 1)]


@breaks_at("POP_TOP")
def _drop(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    """The last reference to a generator, which then runs what it leaves open."""
    stack, (value,) = _split(frame, 1)
    text = e.expr(value)
    if not (isinstance(value, GeneratorV) and text.isidentifier()):
        raise CannotResume("a graph break where a generator is dropped")
    e.line(f"del {text}")
    return [Path(None, stack, i.index + 1)]


@breaks_at("GET_LEN")
def _get_len(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    return _result(e, i, list(frame.stack), f"len({e.expr(frame.stack[-1])})")


@breaks_at("IMPORT_FROM")
def _import_from(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    return _result(e, i, list(frame.stack), f"reconstruct.import_from({e.expr(frame.stack[-1])}, {i.argval!r})")


@breaks_at("DELETE_GLOBAL")
def _delete_global(e: Emitter, frame: Frame, i: Instruction) -> list[Path]:
    e.line(f"reconstruct.delete_global({e.pin(frame.namespace, 'globals_of_function')}, {i.argval!r})")
    return [Path(None, list(frame.stack), i.index + 1)]
