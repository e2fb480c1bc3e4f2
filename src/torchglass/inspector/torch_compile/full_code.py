"""full_code.py for what torch.compile made of a function: a module that a person reads top to bottom, and that runs.

Input: a ``Function`` of layout.py.  Output::

    def toy_example(a, b):
        L = {'a': a, 'b': b}
        if toy_example_check_0(L, G):
            return toy_example_0(a, b)
        return program.miss("", None, a, b)  # torch.compile would make a new entry
    ...
    def toy_example_0(a, b):
        value = toy_example_0_graph_0(a, b)
        ...

Transformed code stands in it as in the entries' files, with globals of the user's module written as ``G['name']`` and
torch.compile's own names replaced by those of this module. Code whose source is not verified is shown and not run:
where this process has it, torch.compile's own bytecode runs instead.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import keyword
import re
import symtable
from collections.abc import Iterator
from types import CodeType
from typing import Any

from .guards import guard_rows
from .layout import Entry, Function
from .names import GRAPH

_RULE = "# " + "-" * 110
_HEAD = '''"""{name} under torch.compile: everything that a call may run, from top to bottom.

    from full_code import {name}      # runs as the compiled function does

Made of the files that the headings name. Graphs run from their captured.py.
"""

import math  # noqa: F401

import torch

from torchglass.inspector.torch_compile.replay import Program
from torchglass.inspector.torch_compile.support import *  # noqa: F403
from torchglass.inspector.torch_compile.support import dynamo_functions

globals().update({{k: v for k, v in dynamo_functions().items() if k not in globals()}})
program = Program(__file__, {source!r}, {qualified!r}, {line})
G = program.globals
'''


def full_code(function: Function) -> str:
    """The module's text."""
    code = function.code
    qualified = getattr(code, "co_qualname", code.co_name)
    head = _HEAD.format(
        name=identifier(function.name), source=code.co_filename, qualified=qualified, line=code.co_firstlineno
    )
    sections = [part for inner in function.walk() for part in _function(function, inner)]
    return "\n".join([head, *sections]).rstrip() + "\n"


def identifier(name: str) -> str:
    """``name`` as one may be defined: folders are called ``Net.forward`` and ``lambda``."""
    name = re.sub(r"(?a)\W", "_", name)
    return f"{name}_" if keyword.iskeyword(name) or name in ("G", "program", "torch", "math") else name


def _function(top: Function, function: Function) -> Iterator[str]:
    folder = function.folder.relative_to(top.folder).as_posix() if function is not top else ""
    yield _heading(f"{function.name} ({function.code.co_filename}, line {function.code.co_firstlineno})")
    yield _dispatcher(function, folder)
    if function.source:
        yield "# What it continues with, decompiled:"
        yield _commented(function.source)
    name = identifier(function.name)
    for n, entry in enumerate(function.entries):
        path = f"{folder}/entry_{n}".lstrip("/")
        yield _heading(f"{function.name}, entry {n}: {path}/guards.py")
        yield f"def {name}_check_{n}(L, G):\n    return (\n{guard_rows(entry.guards or [])}\n    )\n"
        yield _heading(f"{function.name}, entry {n}: {path}/transformed.py")
        yield from _entry(top, function, entry, n, path)


# --- who is called ---------------------------------------------------------------------------------------------------
def _dispatcher(function: Function, folder: str) -> str:
    """The entries in turn; of a closure over the cells that it is made with, of a user's closure over those found."""
    code = function.code
    names, signature, passed = _parameters(function)
    free = code.co_freevars
    over = "(cells)" if free else ""
    values = ", ".join(f"{n!r}: {n}" for n in names)
    contents = f"**program.contents({free!r}, cells)" if free else ""
    checks = [f"L = {{{', '.join(filter(None, (values, contents)))}}}"]
    found = free and function.parent is None  # among closures that may be nothing like the one that was compiled
    for n in range(len(function.entries)):
        check = f"{identifier(function.name)}_check_{n}"
        checks += [
            f"if program.holds({check}, L):" if found else f"if {check}(L, G):",
            f"    return {identifier(function.name)}_{n}{over}({passed})",
        ]
    given = f", {passed}" if passed else ""
    miss = f"return program.miss({folder!r}, {'cells' if free else 'None'}{given})"
    miss += "  # torch.compile would make a new entry"
    if function.parent is not None and free:
        body = [
            f"def {identifier(function.name)}(cells):",
            f"    def run({signature}):",
            *_indented(checks, 2),
            f"        {miss}",
        ]
        return "\n".join([*body, "", "    return run"]) + "\n"
    lines = [f"def {identifier(function.name)}({signature}):", '    """The entries in turn."""']
    if free:
        lines += ["    cells = None", "    for cells in program.closures():", *_indented(checks, 2)]
    else:
        lines += _indented(checks, 1)
    return "\n".join([*lines, f"    {miss}"]) + "\n"


def _indented(lines: list[str], depth: int) -> list[str]:
    return [f"{'    ' * depth}{line}" for line in lines]


def _parameters(function: Function) -> tuple[list[str], str, str]:
    """Names, the parameter list, the arguments to hand on. Defaults are asked for: a code object has none."""
    code = function.code
    ordinary = list(code.co_varnames[: code.co_argcount])
    only = list(code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount])
    rest = list(code.co_varnames[code.co_argcount + code.co_kwonlyargcount :])
    star = rest.pop(0) if code.co_flags & inspect.CO_VARARGS else ""
    stars = rest.pop(0) if code.co_flags & inspect.CO_VARKEYWORDS else ""
    defaults = _with_defaults(function)

    def written(name: str) -> str:
        return f"{name}=program.default({name!r})" if name in defaults else name

    signature = [written(n) for n in ordinary]
    if code.co_posonlyargcount:
        signature.insert(code.co_posonlyargcount, "/")
    if star or only:
        signature.append(f"*{star}")
    signature += [written(n) for n in only] + ([f"**{stars}"] if stars else [])
    passed = [
        *ordinary,
        *([f"*{star}"] if star else []),
        *(f"{n}={n}" for n in only),
        *([f"**{stars}"] if stars else []),
    ]
    names = [*ordinary, *only, *filter(None, (star, stars))]
    return names, ", ".join(signature), ", ".join(passed)


def _with_defaults(function: Function) -> set[str]:
    """The parameters that have a default: known from the function where it is found, else any of them may."""
    if function.parent is not None:
        return set()
    code = function.code
    found = found_function(code, function.entries[0].globals if function.entries else {})
    ordinary = code.co_varnames[: code.co_argcount]
    if found is None:
        return set(code.co_varnames[min(1, code.co_argcount) : code.co_argcount + code.co_kwonlyargcount])
    count = len(found.__defaults__ or ())
    return {*ordinary[len(ordinary) - count :], *(found.__kwdefaults__ or {})}


def found_function(code: CodeType, around: Any) -> Any:
    """The function of ``code`` by its qualified name in the globals ``around``; None if another thing is there."""
    parts = getattr(code, "co_qualname", code.co_name).split(".")
    value = around.get(parts[0])
    for part in parts[1:]:
        value = getattr(value, part, None)
    for _ in range(20):
        value = getattr(value, "__func__", value)
        if getattr(value, "__code__", None) is code:
            return value
        value = getattr(value, "_torchdynamo_orig_callable", None) or getattr(value, "__wrapped__", None)
    return None


# --- what runs -------------------------------------------------------------------------------------------------------
def _entry(top: Function, function: Function, entry: Entry, n: int, path: str) -> Iterator[str]:
    own = f"{identifier(function.name)}_{n}"
    names = {}
    by_code = {other.code: identifier(other.name) for other in top.walk()}
    for name in entry.new.co_names:
        shown = entry.names.get(name, name)
        if name.startswith(GRAPH):
            names[shown] = f"{own}_graph_0"
            yield f'{names[shown]} = program.graph("{path}/graph_0/captured.py", "{path}")'
        elif entry.targets.get(name) in by_code:
            names[shown] = by_code[entry.targets[name]]
    text = _module_text(entry, own, names) if entry.runs_own_file else None
    free = bool(entry.new.co_freevars)
    if text is None:
        yield "# Its source is not verified: torch.compile's own bytecode runs, where this process has it."
        yield f'{own} = program.bytecode("{path}"{", closure=True" if free else ""})\n'
        yield _commented(entry.text)
        return
    yield ""
    yield text
    if free:
        yield f"\n{own} = program.over_cells({own}, {len(entry.new.co_freevars)})\n"
    elif list(entry.new.co_varnames[: entry.new.co_argcount]) != list(
        function.code.co_varnames[: function.code.co_argcount]
    ):
        yield "# its parameters have other names than the function's"


def _module_text(entry: Entry, own: str, names: dict[str, str]) -> str | None:
    """Transformed code as part of the module; None if it cannot be."""
    try:
        tree = ast.parse(entry.text)
        bound, free = _names_of(symtable.symtable(entry.text, "transformed.py", "exec"))
    except SyntaxError:
        return None
    outer = next((s for s in tree.body if isinstance(s, ast.FunctionDef)), None)
    known = {n for n in free if n not in names and hasattr(builtins, n)}
    user = free - set(names) - known - {outer.name if outer is not None else ""}
    if outer is None or (user | set(names)) & bound:
        return None  # one name, global here and local there: the rewriting below does not tell them apart
    outer.name = own
    there = {shown: name for name, shown in entry.names.items()}
    tree = _Names(names, {name: there.get(name, name) for name in user}).visit(tree)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _names_of(table: symtable.SymbolTable) -> tuple[set[str], set[str]]:
    """Names that functions in ``table`` bind, and those they take from the globals."""
    bound: set[str] = set()
    free: set[str] = set()
    for inner in table.get_children():
        for symbol in inner.get_symbols():
            (free if symbol.is_global() else bound).add(symbol.get_name())
        more_bound, more_free = _names_of(inner)
        bound |= more_bound
        free |= more_free
    return bound, free


class _Names(ast.NodeTransformer):
    """The module's own names for torch.compile's; ``G['name']`` for the globals, ``user`` has their real names."""

    def __init__(self, new: dict[str, str], user: dict[str, str]) -> None:
        self.new = new
        self.user = user

    def visit_Name(self, node: ast.Name) -> Any:
        if node.id in self.new:
            return ast.Name(self.new[node.id], node.ctx)
        if node.id in self.user:
            return ast.Subscript(ast.Name("G", ast.Load()), ast.Constant(self.user[node.id]), node.ctx)
        return node

    def visit_Global(self, node: ast.Global) -> Any:
        rest = [name for name in node.names if name not in self.user]
        return ast.Global(rest) if rest else ast.Pass()


def _heading(text: str) -> str:
    return f"\n{_RULE}\n# {text}\n{_RULE}\n"


def _commented(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())
