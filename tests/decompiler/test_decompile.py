"""The public entry: what it accepts, what it says, what it never does."""

from __future__ import annotations

import importlib
import json.decoder
import subprocess
import sys
from pathlib import Path
from types import CodeType

import pytest
from bytecode import Bytecode, Instr, Label

from torchglass.decompiler import decompile
from torchglass.decompiler.compare.sameness import compiled, difference

SOURCE = Path(__file__).parents[2] / "src"


def code_of(text: str, name: str = "f") -> CodeType:
    module = compile(text, "<test>", "exec", 0, True)
    return next(c for c in module.co_consts if isinstance(c, CodeType) and c.co_name == name)


def test_function_object_keeps_signature() -> None:
    def f(a, b=3, *c: int, d, e="x", **g) -> float:
        return a

    text = decompile(f, verify=True)
    assert text.startswith("def f(a, b=3, *c: ")
    assert "d, e='x', **g)" in text


def test_rename() -> None:
    assert decompile(code_of("def f(x):\n    return x"), name="other").startswith("def other(x):")


def test_method_and_wrapped() -> None:
    assert "def decode" in decompile(json.decoder.JSONDecoder().decode)


def test_closure_is_wrapped_so_that_it_compiles() -> None:
    def outer(n):
        def inner():
            nonlocal n
            n += 1
            return n

        return inner

    text = decompile(outer(1), verify=True)
    assert "def make_closure(n):" in text
    space: dict[str, object] = {}
    exec(text, space)
    assert space["make_closure"](4)() == 5  # type: ignore[operator]


def test_lambda() -> None:
    assert decompile(code_of("f = lambda x: x if x else 1", "<lambda>")) == "lambda x: x if x else 1"


@pytest.mark.parametrize("thing", [len, 3, "text", int, None])
def test_no_bytecode(thing: object) -> None:
    with pytest.raises(TypeError, match="no bytecode"):
        decompile(thing)


def test_nothing_is_dropped_silently() -> None:
    """What another decompiler got wrong without saying so."""
    text = (
        "def f(a, *, k, b, c, d, m):\n    try:\n        x = {'k': k}\n    except E:\n        x = 1\n    assert x, m\n"
        "    a, b = b, a\n    def g(p, q=1, *, r=2):\n        'doc'\n        return p\n    return {'k': a}\n"
    )
    code = code_of(text)
    again = decompile(code, verify=True)
    for piece in ("try:", "*, k", "assert x, m", "{'k': k}", "a, b = (b, a)", "q=1, *, r=2", '"""doc"""'):
        assert piece in again.replace("a, b = b, a", "a, b = (b, a)"), piece


def test_difference_is_found() -> None:
    original = code_of("def f(a):\n    try:\n        g(a)\n    finally:\n        h()")
    for other in (
        "def f(a):\n    g(a)\n    h()",
        "def f(a):\n    try:\n        g(a)\n    finally:\n        h(1)",
        "def f(*, a):\n    try:\n        g(a)\n    finally:\n        h()",
        "def f(a):\n    'doc'\n    try:\n        g(a)\n    finally:\n        h()",
    ):
        assert difference(original, compiled(other, original, None)) is not None
    assert difference(original, compiled(decompile(original), original, None)) is None


def test_no_duplicated_tails() -> None:
    text = decompile(code_of("def f(a):\n    if a:\n        x = 1\n    else:\n        x = 2\n    g(x)\n    return x"))
    assert text.count("g(x)") == 1 and text.count("return") == 1


def resume(code: CodeType, stack: list[str], names: list[str], occurrence: int) -> CodeType:
    """``code`` entered at its n-th LOAD_GLOBAL of ``print``, as the compiler's resume functions are."""
    body = Bytecode.from_code(code)
    loads = [n for n, i in enumerate(body) if isinstance(i, Instr) and i.name == "LOAD_GLOBAL"]
    prints = [n for n in loads if "print" in str(body[n].arg)]
    target = Label()
    body.insert(prints[occurrence], target)
    start = next(n for n, i in enumerate(body) if isinstance(i, Instr) and i.name == "RESUME") + 1
    prologue = [Instr("LOAD_FAST", s, lineno=1) for s in stack]
    body[start:start] = [*prologue, Instr("JUMP_FORWARD", target, lineno=1)]
    body.argcount, body.argnames, body.name = len(stack + names), stack + names, "resume"
    return body.to_code()


LOOP = """
def f(xs, n, out):
    total = 0
    for x in xs:
        for y in range(x):
            print(x, y)
            total += y
            if total > n:
                break
        else:
            total += 100
        out.append(total)
    while total > 0:
        total -= 1
        print(total)
        if total == 3:
            continue
        total -= 1
    return total, out
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the prologue is written for 3.11 and later")
@pytest.mark.parametrize(
    "stack, occurrence, arguments",
    [
        (["stack_0", "stack_1"], 0, lambda: [iter([4, 5]), iter([2, 3]), 7, 2, 1, 90, []]),
        (["stack_0", "stack_1"], 0, lambda: [iter([4, 5]), iter([]), 7, 2, 1, 0, []]),
        ([], 1, lambda: [7, 2, 9, 0, []]),
    ],
)
def test_resume_inside_loops(stack, occurrence, arguments, capsys) -> None:  # type: ignore[no-untyped-def]
    code = resume(code_of(LOOP), stack, ["x", "y", "total", "n", "out"], occurrence)
    text = decompile(code)
    assert "_state" not in text
    space: dict[str, object] = {}
    exec(text.replace("def resume", "def again"), space)
    import types

    expected = types.FunctionType(code, {"print": print, "range": range})(*arguments())
    first = capsys.readouterr().out
    assert space["again"](*arguments()) == expected  # type: ignore[operator]
    assert capsys.readouterr().out == first


def test_jump_between_branches_is_still_right() -> None:
    """No Python statement has this flow: the second arm jumps into the middle of a loop in the first."""
    text = "def f(a, log):\n    while a:\n        log.append(a)\n        a -= 1\n    return log"
    body = Bytecode.from_code(code_of(text))
    loads = [n for n, i in enumerate(body) if isinstance(i, Instr) and i.name == "LOAD_FAST" and i.arg == "a"]
    middle = Label()
    body.insert(loads[2], middle)
    start = next(n for n, i in enumerate(body) if isinstance(i, Instr) and i.name == "RESUME") + 1
    jump = "POP_JUMP_FORWARD_IF_TRUE" if sys.version_info < (3, 12) else "POP_JUMP_IF_TRUE"
    truth = [Instr("TO_BOOL", lineno=1)] if sys.version_info >= (3, 13) else []  # which jumps there expect
    body[start:start] = [Instr("LOAD_FAST", "log", lineno=1), *truth, Instr(jump, middle, lineno=1)]
    code = body.to_code()
    text = decompile(code)
    space: dict[str, object] = {}
    exec(text, space)
    import types

    for log in ([], [1]):
        expected = types.FunctionType(code, {})(3, list(log))
        assert space["f"](3, list(log)) == expected  # type: ignore[operator]


def test_missing_line_table() -> None:
    code = code_of("def f(a):\n    while a and g(a):\n        a -= 1\n    return [x for x in a if x]")
    bare = code.replace(co_linetable=b"")
    assert difference(code, compiled(decompile(bare), code, None)) is None


def test_works_without_torch() -> None:
    script = "import sys; sys.modules['torch'] = None\nfrom torchglass.decompiler import decompile\n"
    script += "print(decompile(lambda x: x + 1))"
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True)
    assert run.stdout == "lambda x: x + 1\n", run.stderr


@pytest.mark.parametrize(
    "target, message",
    [
        ("json:nothing", "no 'nothing' in json"),
        ("no_such_module:x", "cannot import"),
        ("math:sin", "has no bytecode"),
        ("/nowhere/x.py:f", "cannot read"),
    ],
)
def test_command_errors(target: str, message: str) -> None:
    run = _command(target)
    assert run.returncode == 1 and message in run.stderr and "Traceback" not in run.stderr


def test_command(tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text("class A:\n    def m(self):\n        return 1\n")
    assert _command(f"{path}:A.m").stdout == "def m(self):\n    return 1\n"
    assert "there is A" in _command(f"{path}:B").stderr
    subprocess.run([sys.executable, "-m", "compileall", "-b", "-q", str(path)], check=True)
    assert _command(f"{path}c:A.m").stdout == "def m(self):\n    return 1\n"
    assert "def decode" in _command("json.decoder:JSONDecoder.decode").stdout


def _command(target: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "torchglass", "decompile", target]
    return subprocess.run(arguments, env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True)


def test_a_module_keeps_its_docstring_once() -> None:
    code = compile('"""Doc."""\nX = "2.0"\ndef f():\n    return X\n', "<test>", "exec", 0, True)
    text = decompile(code, verify=True)
    assert text.startswith('"""Doc."""\nX = ') and text.count("Doc.") == 1
    assert decompile(compile("'a' + f()", "<test>", "exec"), verify=True) == "'a' + f()"


def test_what_follows_a_statement_is_found() -> None:
    """Loops and handlers whose end only another reading finds, each once a state machine."""
    source = """
def f(a, b):
    for x in a:
        try:
            y = g(x)
        except KeyError:
            if x not in b:
                return
            try:
                y = h(x)
            except KeyError:
                return
        for z in y:
            if z:
                break
        else:
            continue
        try:
            if z:
                g(z)
        finally:
            if x is not None:
                h(x)
                if z is not None:
                    h(z)
    return a
"""
    module = compile(source, "<test>", "exec", 0, True)
    code = next(c for c in module.co_consts if isinstance(c, CodeType))
    assert "_state" not in decompile(code, verify=True)


@pytest.mark.parametrize("module, name", [("base64", "encode"), ("queue", "Queue.full")])
def test_short_functions_do_not_look_made_by_a_tool(module: str, name: str) -> None:
    """Caches between instructions, of which 3.13 has many, have the place of the instruction before them."""
    thing = importlib.import_module(module)
    for part in name.split("."):
        thing = getattr(thing, part)
    assert "_value_" not in decompile(thing)
