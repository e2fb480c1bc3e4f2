"""Everywhere that a function can be continued, the continuation has a source that means the same."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType

import pytest

pytest.importorskip("torch")

from torchglass.bytecode import decode
from torchglass.capture.resume_code import EntryPoint, Slot, resume_code
from torchglass.decompiler import decompile

sys.path.insert(0, str(Path(__file__).parent))
from continuations import continuations

PROGRAMS = {
    "handlers": """
def f(a, b):
    try:
        g(a)
    except KeyError as error:
        note(error, b)
        b = h(b)
    except (ValueError, g(b)):
        note(b)
    else:
        note("else")
    finally:
        note("done")
    return b
""",
    "handler in handler": """
def f(a):
    try:
        g(a)
    except KeyError as first:
        try:
            note(first)
        except ValueError as second:
            note(first, second)
            raise RuntimeError(a) from first
    return a
""",
    "with": """
def f(a, b):
    with a as x, g(b):
        b = note(x)
        with h(b):
            note(b)
        b = x + note(b)
    return b
""",
    "with in loops": """
def f(rows):
    for row in rows:
        with g(row) as x:
            for item in x:
                if note(item):
                    continue
                note(row)
    return rows
""",
    "ways out of a round": """
def f(a, n):
    try:
        for i in range(n):
            try:
                a = note(i)
            except KeyError as error:
                note("k")
                continue
            finally:
                note("f")
            for x in a:
                if note(x):
                    break
                with g(x):
                    if h(x):
                        continue
                    a = note(a)
            else:
                continue
            a = a - 1
    finally:
        note("outer")
    return a
""",
    "text": """
def f(a, b):
    return f"{g(a)!r:>{h(b)}} of {note(a)}" + str(b)
""",
    "generator": """
def f(a):
    with g(a) as x:
        for item in x:
            try:
                b = yield item
                note(b)
            finally:
                note(a)
""",
    "in place": """
def f(a, b):
    a.x += g(b)
    a[b] -= h(a)
    b *= note(a)
    return a, b
""",
}


def code_of(source: str) -> CodeType:
    module = compile(source, "<test>", "exec", 0, True)
    return next(c for c in module.co_consts if isinstance(c, CodeType))


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_continuation_is_verified(name: str) -> None:
    made = list(continuations(code_of(PROGRAMS[name])))
    assert made
    for _, continuation in made:
        assert "_state" not in decompile(continuation, verify=True)


def test_a_given_cell_is_a_free_variable() -> None:
    code = code_of("def f(a):\n  def inner():\n    return a, b\n  b = inner\n  note(a)\n  b = a\n  return inner")
    behind = next(i.index for i in decode(code) if i.opname == "POP_TOP")
    made = resume_code(code, EntryPoint(behind, (Slot.VALUE,), ("inner",), ("a", "b")), "resume_at_5")
    text = decompile(made, verify=True)
    assert text.startswith("# shared with functions made before, and given as cells: a, b\ndef make_closure(a, b):")
    assert "nonlocal b" in text and "b = a" in text


def test_a_context_that_is_entered_already_is_left() -> None:
    code = code_of(PROGRAMS["with"])
    made = [decompile(c, verify=True) for _, c in continuations(code)]
    text = next(t for t in made if "raise stack_" in t and "reentered" in t)
    seen = []
    namespace = {"note": lambda *a: None, "g": None, "h": None}
    exec(text, namespace)
    count = namespace["f"].__code__.co_argcount
    arguments = [lambda *raised: seen.append(raised[0]) or True, *[ValueError()] * (count - 1)]
    namespace["f"](*arguments)
    assert seen == [ValueError]


def test_handlers_of_continuations_read_as_the_source() -> None:
    code = code_of(PROGRAMS["handler in handler"])
    texts = [decompile(c, verify=True) for _, c in continuations(code)]
    assert any("    try:\n        raise stack_0\n    except BaseException as first:" in t for t in texts)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="comprehensions are inlined; to enter one is refused")
def test_what_cannot_be_verified_is_still_right() -> None:
    """A comprehension's function on the stack wants an iterator, which source can only make by calling ``iter``."""
    namespace: dict[str, object] = {}
    exec("def f(a, n, g):\n    return [x + 1 for x in (g(1), a)], 0 < n < 3 and a", namespace)
    code = namespace["f"].__code__  # type: ignore[attr-defined]
    texts = [decompile(entered) for _, entered in continuations(code)]
    text = next(t for t in texts if "iter(" in t)
    exec(text, namespace)
    for n in (0, 1, 5):
        assert namespace["f"](list, 7, 2, n)[1] == (0 < n < 3 and 2)  # type: ignore[operator]
        assert namespace["f"](list, 7, 2, n)[0] == [7, 2]  # type: ignore[operator]
