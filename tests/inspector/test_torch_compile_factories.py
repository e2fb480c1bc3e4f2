"""Transformed code that makes its continuation itself, as torch 2.11's does, is shown and runs as a factory's call."""

from types import FunctionType
from typing import Any

from torchglass.decompiler import readable
from torchglass.decompiler.compare.sameness import compiled
from torchglass.inspector.torch_compile.factories import with_factories
from torchglass.inspector.torch_compile.names import renamed, shown_names


def transformed(b: int) -> Any:
    b = b * 2

    def torch_dynamo_resume_in_f_at_8(x):
        nonlocal b
        b += 1
        return x + b

    return [torch_dynamo_resume_in_f_at_8(1), torch_dynamo_resume_in_f_at_8(1), b]


def test_a_continuation_made_inside() -> None:
    code, around = transformed.__code__.replace(co_name="f"), {"__builtins__": __builtins__}
    made = next(c for c in code.co_consts if hasattr(c, "co_code"))
    around["__resume_at_30_2"] = made  # where torch 2.11 leaves it
    new, factories = with_factories(code, around)
    assert factories == {"__resume_at_30_2_over": made}
    assert FunctionType(new, around)(5) == transformed(5) == [12, 13, 12]
    names = shown_names(new, dict.fromkeys(factories, "resume_at_8"))
    text = readable(renamed(new, names))
    assert not text.startswith("#") and "resume_at_8((" in text, text
    again = renamed(compiled(text, renamed(new, names), None), {shown: name for name, shown in names.items()})
    assert FunctionType(again, around)(5) == transformed(5)


def test_other_functions_are_left_as_they_are() -> None:
    code = test_a_continuation_made_inside.__code__
    assert with_factories(code, {}) == (code, {})
