"""Names, paths, keys and attributes of the program's in the files that we write: they are text there, never code."""

import tempfile
import types
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import torchglass as tg
from torchglass.records.literals import identifier, is_name, one_line

EVIL = "f\nhit()\n\"\"\"\nhit()\n\\N{x} \\u ''' */ </script> \r\x0c\u2028hit()"
texts = st.text(st.sampled_from("ab\n\r\t\\\"'*/#{}%N $<>é²ﬁ\x0c\u2028"), min_size=1, max_size=12)


class Holder:
    def __hash__(self):
        return 1


def program(x, holder, table):
    z = torch.relu(x * 2) + table["k"]
    for name in vars(holder):
        z = z + getattr(holder, name)
    for key in table:
        z = z * table[key]
    if z.sum() > 0:
        z = z * 2
    return torch.softmax(z, -1)


def named(text):
    """The program as a function of that name, module and file."""
    path = text.replace("\0", "")
    code = program.__code__.replace(co_filename=path, co_name=text, co_qualname=text)
    function = types.FunctionType(code, {**globals(), "__name__": text}, text)
    function.__qualname__ = function.__module__ = text
    return function


def check_folder(folder):
    for path in Path(folder).rglob("*.py"):
        text = path.read_text("utf-8")
        compile(text, str(path), "exec")
        assert not [line for line in text.splitlines() if line.strip() == "hit()"], path


def run(text, backend, training=False):
    x = torch.ones(2, 3, requires_grad=training)
    holder, table = Holder(), {"k": torch.ones(3), text: 3}
    setattr(holder, text, 2.0)
    with tempfile.TemporaryDirectory() as folder, tg.prepare_debug(folder):
        compiled = tg.compile(named(text), backend=backend)
        result = compiled(x, holder, table)
        if training:
            result.sum().backward()
        assert torch.allclose(result, program(x, holder, table))
        assert not tg.explain(compiled).record.fallbacks
        check_folder(folder)


@pytest.mark.parametrize(("backend", "training"), [("eager", False), ("glass", False), ("glass", True)])
def test_names_that_are_code_run_nothing(backend, training):
    run(EVIL, backend, training)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts)
@example('"""')
@example("\\N")
@example("a\\")
@example("ﬁ")
def test_any_name_is_text(text):
    run(text, "eager")


@given(st.text())
def test_one_line_ends_no_comment_and_no_docstring(text):
    shown = one_line(text)
    spaces = {}
    exec(f'"""{shown}"""\n# {shown}\nvalue = 1', spaces)
    assert spaces["value"] == 1 and "*/" not in shown and not shown.endswith("\\")


@given(st.text())
def test_identifiers_are_names(text):
    assert is_name(identifier(text))
