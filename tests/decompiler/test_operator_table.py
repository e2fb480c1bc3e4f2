"""The tables of operators and expressions say what Python says.  Needs no torch."""

import ast
import dis
import doctest
import sys

import pytest

from torchglass.bytecode import expressions, operators


@pytest.mark.parametrize("module", [operators, expressions], ids=lambda m: m.__name__)
def test_examples(module):
    tried = doctest.testmod(module)
    assert tried.attempted and not tried.failed


@pytest.mark.skipif(sys.version_info < (3, 11), reason="each has an instruction of its own")
def test_numbers_are_those_of_the_instruction():
    assert [text for text, _ in operators.NUMBERED] == [text for _, text in dis._nb_ops][: len(operators.NUMBERED)]


def _says(name):
    return lambda self, *others: name


@pytest.mark.parametrize("row", [*operators.BINARY.values(), *operators.COMPARE.values()], ids=lambda r: r.symbol)
def test_methods_are_those_that_python_asks(row):
    left, right = (type("Asked", (), {name: _says(name)}) for name in (row.method, row.reflected))
    assert row.function(left(), object()) == row.method
    assert row.function(object(), right()) == row.reflected
    assert eval(row.template.format("x", "y"), {"x": left(), "y": object()}) == row.method
    if row.inplace is not None:
        inplace = type("Inplace", (), {row.inplace_method: _says(row.inplace_method)})
        assert row.inplace(inplace(), object()) == row.inplace_method


@pytest.mark.parametrize("row", operators.UNARY.values(), ids=lambda r: r.opcode)
def test_unary_templates(row):
    tree = ast.parse(row.template.format("x"), mode="eval").body
    assert type(tree) is ast.UnaryOp and type(tree.op) is row.tree
    assert row.function(5) == eval(row.template.format("5"))
