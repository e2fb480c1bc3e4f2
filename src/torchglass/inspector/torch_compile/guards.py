"""The guards of one cache entry of torch.compile, as Python in which every line can be evaluated.

torch.compile prints guards for people: ``___check_type_id(L['m'], 94338), type=<class 'M'>  # x = self.a  # m.py:3 in
forward``.  Here each becomes an expression over ``L`` (arguments) and ``G`` (globals), ``type_name(L['m']) == 'M'``,
with its reason above it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

from .support import object_name, without_addresses

_IDENTITY = re.compile(r"^(not )?___check_(type_id|obj_id)\((.*), \d+\), type=(<.*)$", re.S)
_HINT = re.compile(r"\s*\(HINT: .*\)$")
_CLASS = re.compile(r"<class '([^']*)'>$")
_STATE = re.compile(r"^___check_global_state\(\) against (\{.*\})(.*)$", re.S)
_WHY = re.compile(r"#\s*(.*?)\s*#\s*(\S+:\d+) in (\S+)")
_PLACE = re.compile(r"#\s*(\S+:\d+) in (\S+)")


class GuardLine:
    """``expression`` over L and G ('' if none could be made of it), ``why`` it is there, what torch.compile printed."""

    def __init__(self, expression: str, why: str, printed: str) -> None:
        self.expression = expression
        self.why = why
        self.printed = printed


def guard_lines(manager: Any, globals_of_function: dict[str, Any]) -> list[GuardLine]:
    """The guards of a cache entry's ``guard_manager``, each once, in the order in which they are checked."""
    lines, seen = [], set()
    for part in _parts(manager.root):
        line = _line(part, globals_of_function)
        key = line.expression or line.printed
        if key not in seen:
            seen.add(key)
            lines.append(line)
    return lines


def _parts(node: Any) -> Iterator[str]:
    for leaf in node.get_leaf_guards():
        yield from leaf.verbose_code_parts()
    for child in node.get_child_managers():
        yield from _parts(child)
    pairs = getattr(node, "get_key_value_managers", None)
    for pair in pairs().values() if pairs is not None else ():
        for manager in pair:
            if manager is not None:
                yield from _parts(manager)
    epilogue = getattr(node, "get_epilogue_lambda_guards", None)
    for leaf in epilogue() if epilogue is not None else ():
        yield from leaf.verbose_code_parts()


def _line(part: str, globals_of_function: Any) -> GuardLine:
    why = _why(part)
    for rewrite in _REWRITES:
        expression = rewrite(part, globals_of_function)
        if expression is not None:
            return GuardLine(expression, why, part)
    return GuardLine("", why, part)


def _why(part: str) -> str:
    match = _WHY.search(part)
    if match:
        return f"{match[1]}  ({_last(match[2])} in {match[3]})"
    match = _PLACE.search(part)
    return f"{_last(match[1])} in {match[2]}" if match else ""


def _last(path: str) -> str:
    return path.rsplit("/", 1)[-1]


# -- one kind of text each: the expression, or None if the text is of another kind ----------------------------------
def _typed(part: str, globals_of_function: Any) -> str | None:
    """A check of an id. After ``type=`` stands the repr of the type; torch 2.11 prints that of the object itself."""
    match = _IDENTITY.match(part)
    source = _parsed(match[3]) if match is not None else None
    if match is None or source is None:
        return None
    equals = "!=" if match[1] else "=="
    printed = _HINT.sub("", _without_comment(match[4]))
    of_class = _CLASS.match(printed)
    name = of_class[1] if of_class else ""
    full = name if "." in name else f"builtins.{name}"
    if match[2] == "type_id":
        if of_class:
            return f"type_name({source}) {equals} {full!r}"
        return f"printed(type({source})) {equals} {without_addresses(printed)!r}"
    known = {"NoneType": "None", "ellipsis": "..."}.get(name)
    if known is not None:
        return f"{source} is {'not ' if match[1] else ''}{known}"
    named = _object(match[3], globals_of_function)
    if named is not None:
        return f"object_name({source}) {equals} {named!r}"
    if of_class:
        return f"{full!r} {'not in' if match[1] else 'in'} (type_name({source}), object_name({source}))"
    return f"printed({source}) {equals} {without_addresses(printed)!r}"


def _object(source: str, globals_of_function: Any) -> str | None:
    """The name of the object that ``source`` reaches from the globals."""
    if "L[" in source:
        return None
    try:
        return object_name(eval(source, {"G": globals_of_function}))
    except Exception:
        return None


def _state(part: str, globals_of_function: Any) -> str | None:
    match = _STATE.match(part)
    if match is None:
        return None
    settings = json.loads(match[1])
    return f"global_state({', '.join(f'{name}={value!r}' for name, value in settings.items())})"


def _fixed(part: str, globals_of_function: Any) -> str | None:
    if part.startswith("___check_torch_function_mode_stack()"):
        from .support import torch_function_modes

        return f"torch_function_modes() == {torch_function_modes()}"
    match = re.match(r"torch\._functorch\.aot_autograd\.utils\.top_saved_tensors_hooks ids == (\S+)", part)
    if match:
        return f"saved_tensors_hooks() is {'' if match[1] == 'None' else 'not '}None"
    return None


def _expression(part: str, globals_of_function: Any) -> str | None:
    return _parsed(part)


_REWRITES: tuple[Callable[[str, Any], str | None], ...] = (_typed, _state, _fixed, _expression)


_SPECIAL = re.compile(r"DispatchKeySet|check_tensor|check_no_aliasing|___dict_contains|CURRENT_DEVICE|== False")
_LACKS = re.compile(r"(hasattr\([^#]*\)) == False")


def _without_comment(text: str) -> str:
    return text.partition("  # ")[0].strip()


def _parsed(text: str) -> str | None:
    """``text`` as one Python expression over known names, without its comment; None if it is none.

    A model has thousands of guards that differ in strings alone: these are taken out and put back, so that each form is
    parsed once.
    """
    of_tensor = _TENSOR.match(text)
    if of_tensor is not None:
        source, rest = _parsed(of_tensor[1]), _tensor_rest(of_tensor[2])
        if source is not None and rest is not None:
            return f"is_tensor({source}, {rest})"
    for candidate in (_without_comment(text), text.strip()):  # a string of the guard may have a # of its own
        strings: list[str] = []
        expression = _over_known_names(_PLAIN_STRING.sub(partial(_taken_out, strings), candidate))
        if expression is not None:
            return _TAKEN_OUT.sub(partial(_put_back, strings), expression) if strings else expression
    return None


_PLAIN_STRING = re.compile(r"(?<!\w)'[^'\"\\\n]*'")
"""What differs between the guards of a model's layers: names of modules and parameters."""
_TAKEN_OUT = re.compile("'‹([0-9]+)›'")


def _taken_out(strings: list[str], found: re.Match[str]) -> str:
    strings.append(found[0])
    return f"'‹{len(strings) - 1}›'"


def _put_back(strings: list[str], found: re.Match[str]) -> str:
    return strings[int(found[1])]


@lru_cache(maxsize=1024)
def _over_known_names(text: str) -> str | None:
    lacks = _LACKS.fullmatch(text)
    text = f"not {lacks[1]}" if lacks else text
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return None
    if "#" not in text and "\n" not in text and not _SPECIAL.search(text):
        return text
    return ast.unparse(_Names().visit(tree))


_TENSOR = re.compile(r"check_tensor\((L\[[^#]*?), (\w+, DispatchKeySet\([^#]*\))(?:  # .*)?$", re.S)


@lru_cache(maxsize=256)
def _tensor_rest(rest: str) -> str | None:
    """All but the tensor itself of the arguments of a ``check_tensor``: a model's parameters are of few kinds."""
    whole = _parsed(f"check_tensor(0, {rest}")
    return whole.removeprefix("is_tensor(0, ")[:-1] if whole is not None else None


class _Names(ast.NodeTransformer):
    """torch.compile's own names, as those of ``support``."""

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "DispatchKeySet":
            return ast.Tuple([ast.Constant(a.id) for a in node.args if isinstance(a, ast.Name)], ast.Load())
        if name == "check_tensor":
            kind = node.args[1]
            known = {"Tensor": "torch.Tensor", "Parameter": "torch.nn.Parameter"}
            text = ast.unparse(kind)
            node.func = ast.Name("is_tensor", ast.Load())
            node.args[1] = ast.parse(known.get(text, text), mode="eval").body
            return node
        if name == "check_no_aliasing":
            node.func = ast.Name("no_aliasing", ast.Load())
        if name == "___dict_contains" and len(node.args) == 2:
            return ast.Compare(node.args[0], [ast.In()], [node.args[1]])
        return node

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        right = node.comparators[0]
        is_call = isinstance(node.left, ast.Call) and getattr(node.left.func, "id", "") == "hasattr"
        if is_call and isinstance(right, ast.Constant) and right.value is False and isinstance(node.ops[0], ast.Eq):
            return ast.UnaryOp(ast.Not(), node.left)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id == "utils_device" and node.attr == "CURRENT_DEVICE":
            return ast.Call(ast.Name("default_device", ast.Load()), [], [])
        return self.generic_visit(node)


# -- the file -------------------------------------------------------------------------------------------------------
_HEAD = '''"""When entry {entry} of {name} may be used (torch.compile, {frame}).

L: the arguments by name.  G: the globals of the function's module.  torch.compile runs checks of its own in C++; these
say the same, by names of types and objects where torch.compile compares ids.  Breakpoints in here are hit by whoever
calls ``check``, not by torch.compile.
"""

import math  # noqa: F401

import torch

from torchglass.inspector.torch_compile.support import *  # noqa: F403
from torchglass.inspector.torch_compile.support import dynamo_functions, failing

globals().update({{k: v for k, v in dynamo_functions().items() if k not in globals()}})


def check(L, G):
    """Whether all guards hold."""
    return (
{rows}
    )


def reasons(L, G):
    """The guards that do not hold."""
    return failing(check, L, G)
'''


def guards_file(name: str, entry: str, frame: str, lines: list[GuardLine]) -> str:
    """The text of ``guards.py``."""
    return _HEAD.format(name=name, entry=entry, frame=frame, rows=guard_rows(lines))


def guard_rows(lines: list[GuardLine]) -> str:
    """The guards as operands of one ``and``, each under its reason."""
    rows = ["        True"]
    why = ""
    for line in lines:
        if line.why and line.why != why:
            rows.append(f"        # {line.why}")
        why = line.why
        if line.expression:
            rows.append(f"        and {f'({line.expression})' if _loose(line.expression) else line.expression}")
        else:
            rows.append(f"        # in torch.compile's words only: {' '.join(line.printed.split())}")
    return "\n".join(rows)


_MAY_BE_LOOSE = re.compile(r"\b(or|and|if|lambda)\b|:=")


def _loose(expression: str) -> bool:
    """Whether ``expression`` binds less tightly than ``and``."""
    if not _MAY_BE_LOOSE.search(expression):
        return False
    node = ast.parse(expression, mode="eval").body
    return isinstance(node, (ast.BoolOp, ast.IfExp, ast.Lambda, ast.NamedExpr))
