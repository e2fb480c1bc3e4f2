"""Guards as torch 2.13 and 2.11 print them: each becomes an expression that tells values apart."""

import collections
from typing import Any

import pytest
import torch

from torchglass.inspector.torch_compile import support
from torchglass.inspector.torch_compile.guards import _line


def inner(x: Any) -> Any:
    return x


def holds(printed: str, L: dict[str, Any], G: dict[str, Any]) -> bool:
    line = _line(printed, G)
    assert line.expression, printed
    return bool(eval(line.expression, {**vars(support), "torch": torch, "L": L, "G": G}))


CODE = f'<code object inner at 0x7eff423abe10, file "{__file__}", line {inner.__code__.co_firstlineno}>'
CASES = [
    # torch 2.11 prints the object, 2.13 its type
    ("___check_obj_id(G['torch'], 1), type=<module 'torch' from '/a/b.py'>  # x = 1  # m.py:3 in f", torch, len),
    ("___check_obj_id(G['torch'], 1), type=<class 'module'>  # x = 1  # m.py:3 in f", torch, len),
    ("___check_obj_id(L['v'], 1), type=<built-in function len>  # a # b  # m.py:3 in f", len, sum),
    (f"___check_obj_id(L['v'].__code__, 1), type={CODE}  # y = inner(x)  # m.py:3 in f", inner, holds),
    ("___check_obj_id(L['v'], 1), type=<class 'collections.OrderedDict'>", collections.OrderedDict, dict),
    ("___check_obj_id(L['v'], 1), type=<class 'builtin_function_or_method'>", len, dict),
    ("___check_obj_id(L['v'], 1), type=<class 'NoneType'>", None, 0),
    ("___check_type_id(L['v'], 1), type=<class 'dict'>", {}, []),
    ("___check_type_id(L['v'], 1), type=<class 'tuple'> (HINT: type tuple)", (), []),
    ("not ___check_type_id(L['v'], 1), type=<class 'dict'>", [], {}),
    ("hasattr(L['v'], 'real') == False  # x.real  # m.py:3 in f", "text", 1),
    ("L['v'] == 'a  # b'  # if v == 'a  # b':  # m.py:3 in f", "a  # b", "a"),
    ("L['v'] == \"it's 'a'\"  # m.py:3 in f", "it's 'a'", "it's 'b'"),
    ("L['v'] in ('‹1›', '‹0›', r'\\d')  # m.py:3 in f", "‹0›", "‹2›"),
    ("___dict_contains('k', L['v'])", {"k": 1}, {}),
    ("not ___dict_contains('k', L['v'])", {}, {"k": 1}),
]


@pytest.mark.parametrize(("printed", "right", "wrong"), CASES)
def test_printed_guard_is_an_expression(printed: str, right: Any, wrong: Any) -> None:
    for value, expected in ((right, True), (wrong, False)):
        known = {"torch": torch if expected else value}
        if "G['torch']" in printed:  # what the globals held when the guards were written
            line = _line(printed, {"torch": right})
            assert bool(eval(line.expression, {**vars(support), "G": known})) is expected
        else:
            assert holds(printed, {"v": value}, {}) is expected
