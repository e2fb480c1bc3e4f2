"""Every instruction at which a graph may break: what ``fullgraph=True`` says there, and that breaking is right.

One row for each name in ``capture.breaks.BREAKERS`` that this Python has; one without a row fails.
"""

import ast
import dis
import re
import sys
from pathlib import Path

import pytest
import torch

import torchglass as tg
from torchglass import capture
from torchglass.capture.entry import breaks

from ..compared import same

ROWS = {}
SPARSE = torch.eye(2).to_sparse()
FLAG = 1


def row(*opnames):
    def register(function):
        ROWS.update({name: function for name in opnames if name in dis.opmap})
        return function

    return register


class Odd:
    """An object none of whose methods can be followed."""

    @tg.disable
    def __init__(self):
        self.__dict__["log"] = []

    @tg.disable
    def said(self, *args):
        self.log.append(args)
        return self

    @tg.disable
    def __bool__(self):
        return True

    @tg.disable
    def __len__(self):
        return 2

    @tg.disable
    def __iter__(self):
        return iter((1, 2))

    @tg.disable
    def __next__(self):
        if len(self.log) > 2:
            raise StopIteration
        self.log.append("next")
        return len(self.log)

    @tg.disable
    def keys(self):
        return ["x", "y"]

    @tg.disable
    def __getitem__(self, key):
        return 5 if key in (0, 1, "x", "y", slice(0, 1)) else int("none")

    @tg.disable
    def __hash__(self):
        return 7

    @tg.disable
    def __eq__(self, other):
        return self is other

    @tg.disable
    def __lt__(self, other):
        return True

    @tg.disable
    def __contains__(self, item):
        return item == 3

    @tg.disable
    def __format__(self, spec):
        return f"odd {spec}"

    @tg.disable
    def __str__(self):
        return "odd"

    @tg.disable
    def __setattr__(self, name, value):
        self.log.append((name, value))

    @tg.disable
    def __delattr__(self, name):
        self.log.append(name)

    @tg.disable
    def __setitem__(self, key, value):
        self.log.append((key, value))

    @tg.disable
    def __delitem__(self, key):
        self.log.append(key)

    @tg.disable
    def __enter__(self):
        self.log.append("enter")
        return 4

    @tg.disable
    def __exit__(self, *args):
        self.log.append("exit")
        return True

    @tg.disable
    def __add__(self, other):
        return other + 1

    @tg.disable
    def __neg__(self):
        return 11

    __invert__ = __pos__ = __neg__
    prop = property(tg.disable(lambda self: abs))


class Leaves:
    """A context manager whose end alone cannot be followed."""

    def __enter__(self):
        return 1

    @tg.disable
    def __exit__(self, kind, error, trace):
        return True


@row("POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_IF_TRUE")
def jump_if_true(x, odd):
    y = x + 1
    if not odd:
        y = y * 3
    return y


@row("POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_IF_FALSE")
def jump_if_false(x, odd):
    y = x + 1
    if y.sum() > 0:
        y = y * 3
    return y


@row("POP_JUMP_BACKWARD_IF_TRUE")
def jump_back_if_true(x, odd):
    y = x + 1
    while y.sum() < 9:
        y = y * 3
    return y


@row("POP_JUMP_BACKWARD_IF_FALSE")
def jump_back_if_false(x, odd):
    y = x + 1
    while not y.sum() > 9:
        y = y * 3
    return y


@row("JUMP_IF_TRUE_OR_POP")
def jump_or(x, odd):
    return odd or x


@row("JUMP_IF_FALSE_OR_POP")
def jump_and(x, odd):
    return odd and x + 1


@row("TO_BOOL")
def to_bool(x, odd):
    return x + (3 if odd else 2)


@row("CALL")
def call(x, odd):
    return x + len(odd.said(x, 1).log)


@row("CALL_KW")
def call_kw(x, odd):
    return x, sorted([3, 1], key=odd.said)


@row("CALL_FUNCTION_EX")
def call_ex(x, odd):
    args = (1, 2)
    return x + 1, odd.said(*args).log


@row("BINARY_OP")
def binary(x, odd):
    return odd + x


@row("COMPARE_OP")
def compare(x, odd):
    return x, odd < 3


@row("CONTAINS_OP")
def contains(x, odd):
    return x, 3 in odd


@row("UNARY_NOT")
def negated(x, odd):
    return x, not odd


@row("UNARY_NEGATIVE")
def negative(x, odd):
    return x + -odd


@row("UNARY_INVERT")
def inverted(x, odd):
    return x + ~odd


@row("UNARY_POSITIVE")
def positive(x, odd):
    return x + +odd


@row("GET_ITER")
def iterated(x, odd):
    for n in odd:
        x = x + n
    return x


@row("FOR_ITER")
def stepped(x, odd):
    for n in map(odd.said, [1, 2]):
        x = x + len(n.log)
    return x


@row("FORMAT_VALUE", "FORMAT_SIMPLE")
def formatted(x, odd):
    return x, f"{odd}"


@row("FORMAT_WITH_SPEC")
def formatted_so(x, odd):
    return x, f"{odd:a}"


@row("CONVERT_VALUE")
def converted(x, odd):
    return x, f"{odd!s}"


@row("LOAD_ATTR")
def attribute(x, odd):
    found = odd.prop
    return found(x)


@row("LOAD_METHOD")
def method(x, odd):
    return x, odd.prop(-3)


@row("STORE_ATTR")
def stored(x, odd):
    odd.a = 3
    return x, odd.log


@row("DELETE_ATTR")
def deleted(x, odd):
    del odd.a
    return x, odd.log


@row("BINARY_SUBSCR")
def item(x, odd):
    return x + odd["x"]


@row("BINARY_SLICE")
def sliced(x, odd):
    return x + odd[0:1]


@row("STORE_SUBSCR")
def item_stored(x, odd):
    odd["x"] = 3
    return x, odd.log


@row("STORE_SLICE")
def slice_stored(x, odd):
    odd[0:1] = 3
    return x, odd.log


@row("DELETE_SUBSCR")
def item_deleted(x, odd):
    del odd["x"]
    return x, odd.log


@row("UNPACK_SEQUENCE")
def unpacked(x, odd):
    a, b = odd
    return x + a + b


@row("UNPACK_EX")
def unpacked_rest(x, odd):
    a, *b = odd
    return x + a, b


@row("LIST_EXTEND")
def list_extended(x, odd):
    return x, [0, *odd]


@row("SET_UPDATE")
def set_updated(x, odd):
    return x, {0, *odd}


@row("DICT_UPDATE")
def dict_updated(x, odd):
    return x, {"z": 1, **odd}


@row("DICT_MERGE")
def merged(x, odd):
    return x, dict(z=1, **odd)


@row("LOAD_GLOBAL")
def global_read(x, odd):
    return x + SPARSE.to_dense()


@row("DELETE_GLOBAL")
def global_deleted(x, odd):
    global FLAG
    FLAG = 1
    del FLAG
    return x


@row("BEFORE_WITH")
def entered(x, odd):
    with odd as four:
        x = x + four
    return x, odd.log


@row("WITH_EXCEPT_START")
def left(x, odd):
    with Leaves():
        x = x + 1
        raise ValueError(3)
    return x


@row("BUILD_MAP")
def dict_display(x, odd):
    return x, len({odd: 1})


@row("BUILD_SET")
def set_display(x, odd):
    return x, 3 in {odd, 3}


@row("MAP_ADD")
def dict_made(x, odd):
    return x, 7 in {k: k for k in (odd, 7)}


@row("SET_ADD")
def set_made(x, odd):
    return x, 7 in {k for k in (odd, 7)}  # noqa: C416


@row("GET_LEN")
def length_matched(x, odd):
    match Matched():
        case [a, b]:
            x = x + a + b
    return x


class Matched(tuple):
    __slots__ = ()

    def __new__(cls):
        return super().__new__(cls, (1, 2))

    @tg.disable
    def __len__(self):
        return 2


@row("IMPORT_FROM")
def imported(x, odd):
    from .test_break_kinds import SPARSE as found

    return x + found.to_dense()


def closing_odd(odd):
    try:
        yield 1
        yield 2
    finally:
        odd.said("closed")  # whose result is dropped


@row("POP_TOP")  # in the generator too
def dropped(x, odd):
    for n in closing_odd(odd):
        x = x + n
        break
    return x, odd.log


KINDS = [name for name in breaks.BREAKERS if name in dis.opmap]


def test_every_kind_has_a_row():
    assert set(KINDS) == set(ROWS)


# In a comprehension, which is a function of its own in 3.11, the call of it breaks; in a generator that is closed, its
# own code.
INSIDE = ("MAP_ADD", "SET_ADD", "POP_TOP")


@pytest.mark.parametrize("name", ROWS)
def test_message(name):
    tg.reset()
    function = ROWS[name]
    with pytest.raises(tg.GraphBreakError) as caught:
        tg.compile(function, backend="eager", fullgraph=True)(torch.ones(2), Odd())
    found = re.fullmatch(
        rf"fullgraph=True, but the graph of `{function.__name__}` breaks\n"
        rf"  at {re.escape(__file__)}:(\d+) in (\S+)\n  because of (.+)\n  hint: (.+)",
        str(caught.value),
    )
    assert found is not None, str(caught.value)
    code = function.__code__
    if found[2] != function.__name__:
        assert name in INSIDE
        inner = [closing_odd.__code__, *(c for c in code.co_consts if hasattr(c, "co_code"))]
        code = next(c for c in inner if c.co_qualname.endswith(found[2]))
    name = "LOAD_ATTR" if name == "LOAD_METHOD" and sys.version_info >= (3, 12) else name  # one instruction since
    assert name in {i.opname for i in dis.get_instructions(code) if i.positions.lineno == int(found[1])}


@pytest.mark.parametrize("name", ROWS)
def test_as_eager(name):
    tg.reset()
    function = ROWS[name]
    compiled = tg.compile(function, backend="eager")
    for _ in range(2):
        mine, theirs = Odd(), Odd()
        same(plain(compiled(torch.ones(2), mine)), plain(function(torch.ones(2), theirs)))
        same(plain(mine.log), plain(theirs.log))


def plain(value):
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return "odd" if isinstance(value, Odd) else value


# --- the words --------------------------------------------------------------------------------------------------------
REASONS = ("Unsupported", "NeedsData", "Fails", "CannotResume", "GraphBreak")


def reasons():
    """Each reason and hint that capture may give, as written, with what it fills in as {}."""
    for path in Path(capture.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in REASONS:
                for text in [t for a in call.args for t in ((a.body, a.orelse) if isinstance(a, ast.IfExp) else (a,))]:
                    if isinstance(text, ast.JoinedStr):
                        parts = (v.value if isinstance(v, ast.Constant) else "{}" for v in text.values)
                        yield f"{path.name}:{call.lineno}", "".join(parts)
                    elif isinstance(text, ast.Constant) and isinstance(text.value, str):
                        yield f"{path.name}:{call.lineno}", text.value


def test_reasons_and_hints_are_clauses():
    found = list(reasons())
    assert len(found) > 150
    wrong = [(place, text) for place, text in found if not re.fullmatch(r"|[a-z`{.<(].*[^.!\s]", text) or "\n" in text]
    assert wrong == []
