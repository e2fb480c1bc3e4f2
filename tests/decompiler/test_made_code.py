"""Code that a tool made: torch.compile's transformed code and resume functions, and the comparison by values."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch._dynamo.convert_frame import register_bytecode_hook  # noqa: E402

from torchglass.decompiler import decompile, readable  # noqa: E402
from torchglass.decompiler.compare.sameness import compiled, difference  # noqa: E402
from torchglass.inspector.torch_compile.factories import with_factories  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
import broken_programs as programs  # noqa: E402


def run_compiled(name: str, hook: Any) -> tuple[list[Any], list[Any]]:
    """``(results, notes)`` of the program under torch.compile."""
    torch._dynamo.reset()
    function, calls = programs.PROGRAMS[name]()
    programs.LOG.clear()
    handle = register_bytecode_hook(hook) if hook is not None else None
    try:
        compiled_function = torch.compile(function, backend="eager") if hook is not None else function
        return [compiled_function(*call) for call in calls], list(programs.LOG)
    finally:
        if handle is not None:
            handle.remove()


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return isinstance(a, types.FunctionType) or a == b


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_transformed_code_runs_as_decompiled(name: str) -> None:
    """Every code object of torch.compile is decompiled, verified, compiled again, and that is what runs."""

    def hook(old: CodeType, new: CodeType) -> CodeType | None:
        new, _ = with_factories(new, vars(programs))
        for code in (old, new):
            text = decompile(code, verify=True)
        if "# _constant_" in text:  # a code object as a value, which the text only names
            return None
        again = compiled(text, new, None)
        # torch.compile insists on the cells; the decompiled code has none where only dead code shares a variable
        return again if (again.co_freevars, again.co_cellvars) == (new.co_freevars, old.co_cellvars) else None

    results, notes = run_compiled(name, hook)
    expected, expected_notes = run_compiled(name, None)
    assert same(results, expected) and notes == expected_notes


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_our_resume_functions_are_verified(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torchglass as tg
    from torchglass import pipeline

    monkeypatch.setattr(programs, "note", programs.note.__wrapped__)
    codes: list[CodeType] = []
    monkeypatch.setattr(pipeline, "decompiled", lambda resume: codes.append(resume.code) or "")
    function, calls = programs.PROGRAMS[name]()
    compiled_function = tg.compile(function, backend="eager")
    for call in calls:
        compiled_function(*call)
    for code in codes:
        text = readable(code)
        assert not text.startswith(("# Not verified", "# The decompiler cannot show")), text
        assert "_state" not in text


def code_of(text: str) -> CodeType:
    module = compile(text, "<test>", "exec", 0, True)
    return next(c for c in module.co_consts if isinstance(c, CodeType))


ALIKE = [
    ("x = g(a); return h(x, b)", "_1 = g(a); _2 = _1; return h(_2, b)"),
    (f"x = {', '.join('ab' * 20)}; return f(*x)", f"return f({', '.join('ab' * 20)})"),  # a call built in a list
    ("return f(*[a, b])", "x = [b]; x[0:0] = [a]; return f(*x)"),
    ("while a:\n  a = g(a)\nreturn b", "s = 0\nwhile True:\n  if s == 0:\n    if a: s = 1\n    else: s = 2\n"
     "  elif s == 1:\n    a = g(a); s = 0\n  else:\n    return b"),
    ("for x in a:\n  if x: b = x\nreturn b", "for y in a:\n  if not y: continue\n  b = y\nreturn b"),
    ("try:\n  g(a)\nexcept E:\n  b = 1\nreturn b", "try:\n  g(a)\nexcept E:\n  return 1\nelse:\n  return b"),
]  # fmt: skip
DIFFERENT = [
    (f"return f({', '.join('ab' * 20)})", f"return f({', '.join('ab' * 19)}, b, a)"),
    ("return [g(x) for x in a]", "return [g(b) for x in a]"),
    ("return a and b", "return b and a"),
    ("if a: g(b)\nif a: h(b)", "if a:\n  g(b)\n  h(b)"),
    ("return h(g(a), f(b))", "x = f(b); return h(g(a), x)"),
    ("x = g(a); return h(x, b)", "x = g(b); return h(x, b)"),
    ("x = [a]; y = x; y.append(b); return x", "x = [a]; y = [a]; y.append(b); return x"),
    ("while a:\n  a = g(a)\nreturn b", "while a:\n  b = g(a)\nreturn b"),
    ("for x in a:\n  b = x\nreturn b", "c = b\nfor x in a:\n  b = x\nreturn c"),
    ("try:\n  g(a)\nexcept E:\n  b = 1\nreturn b", "g(a)\nreturn b"),
    ("try:\n  b = 1\n  g(a)\nexcept E: pass\nreturn b", "try:\n  g(a)\n  b = 1\nexcept E: pass\nreturn b"),
    ("with a as x:\n  g(x)\nreturn b", "with a as x:\n  g(x)\n  return b"),
    ("if a: b = 1\nreturn b", "if not a: b = 1\nreturn b"),
    ("x = a, b; return x[0]", "x = a, b; return x[1]"),
    ("del a; return b", "return a"),
]


def function(body: str) -> CodeType:
    lines = "\n".join("    " + line for line in body.split("\n"))
    return code_of(f"def f(a, b):\n{lines}")


@pytest.mark.parametrize("one, two", ALIKE)
def test_same_operations_on_the_same_values(one: str, two: str) -> None:
    assert difference(function(one), function(two)) is None
    assert difference(function(two), function(one)) is None


@pytest.mark.parametrize("one, two", DIFFERENT)
def test_another_program_is_told_apart(one: str, two: str) -> None:
    assert difference(function(one), function(two)) is not None
    assert difference(function(two), function(one)) is not None


def test_text_without_shuffling() -> None:
    seen: list[str] = []
    run_compiled("toy", lambda old, new: seen.append(decompile(new, verify=True)))
    assert "_state" not in "".join(seen)
    first = next(text for text in seen if "__resume_at" in text)
    assert "if _value_" in first and first.count("return __resume_at") == 2 and "[], [], b," in first
