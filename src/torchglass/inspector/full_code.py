"""full_code.py of a function's folder: its record in, one module that reads from top to bottom out.

    def toy_example(a, b):
        if (fetched := toy_example_check_0(a, b)) is not None:
            return toy_example_0(a, b, fetched)
        return program.miss("", (a, b))  # the compiler: a new entry
    ...
    def toy_example_0(a, b, fetched):
        x, value = toy_example_0_graph_0(*fetched)
        ...

It is put together from the texts of the entries: their functions get names that tell them apart, names are renamed
token by token so that comments stay, and graphs load from their files. What a compiled call executes are those files;
this module gives the same results on the same inputs (runtime/debug_objects.py finds the objects that names stand for).
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..records.compilation import EntryRecord, FunctionRecord
from ..records.literals import identifier, one_line, quoted
from . import show
from .resumed import subfolder

_RULE = "# " + "-" * 110

_SKIPPED = r"#.*|\"\"\"[\s\S]*?\"\"\"|'''[\s\S]*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
"""Comments and strings, triple-quoted ones first."""

_TAKEN = frozenset(
    {"program", "G", "C", "E", "torch", "sys", "reconstruct", "TensorMeta", "GlobalState", "global_state", "Program"}
    | {"same_constant", "same_keys", "tensor_matches", "names_of", "fetched", "check", "transformed"}
)


def full_code(record: FunctionRecord) -> str:
    """The module's text. It always parses; a text of an entry that does not stands in it as comments."""
    names = _names(record)
    imports: dict[str, None] = {
        "import sys": None,
        "import torch": None,
        "from torchglass.runtime.debug_objects import Program": None,
    }
    sections: list[str] = []
    for function in record.walk():
        sections += _function(record, function, names, imports)
    head = (
        f'"""{one_line(record.name)}: everything that a call may run, from top to bottom.\n\n'
        f"    from full_code import {names[id(record)]}      # runs as the compiled function does\n\n"
        "Made of the files that the headings name: those are what a compiled call runs, and what to edit. Here\n"
        "graphs run from their captured.py.\n"
        '"""\n'
    )
    ordered = sorted(imports, key=lambda line: (not line.startswith("from __future__"), line.startswith("from"), line))
    where = f"{record.origin.file!r}, {_qualified(record)!r}"
    setup = f"program = Program(__file__, {where})\nG, C = program.globals, program.cells"
    body, modes = _modes("\n".join(sections))
    return "\n".join([head, *ordered, "", setup, *modes, body]).rstrip() + "\n"


def _modes(text: str) -> tuple[str, list[str]]:
    """The modes that guards ask for under a name each: they are long, and most entries have the same."""
    names: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        name = names.setdefault(found[1], f"MODE_{len(names)}")
        return f"global_state() == {name}): return None"

    text = re.sub(r"(?m)\bglobal_state\(\) == (GlobalState\(.*\))\): return None", named, text)
    return text, [f"{name} = {mode}  # grad mode, default dtype, ..." for mode, name in names.items()]


def _qualified(record: FunctionRecord) -> str:
    return str(getattr(record.function, "__qualname__", record.origin.function))


@dataclass(frozen=True)
class _Text:
    """A text of an entry taken apart: its imports, its other statements, the names that these define."""

    imports: tuple[str, ...]
    body: str
    defined: frozenset[str]
    parameters: tuple[str, ...]


def _names(record: FunctionRecord) -> dict[int, str]:
    """An identifier for every function, by id: its own name, numbered where two are alike."""
    taken: dict[str, int] = {}
    names = {}
    for function in record.walk():
        name = identifier(function.name or "function")
        name += "_" * (name in _TAKEN or name.startswith("MODE_"))
        taken[name] = taken.get(name, 0) + 1
        names[id(function)] = f"{name}_{taken[name]}" if taken[name] > 1 else name
    return names


def _function(
    top: FunctionRecord, function: FunctionRecord, names: Mapping[int, str], imports: dict[str, None]
) -> Iterator[str]:
    name = names[id(function)]
    where = f"  ({show.place(function.origin)})" if show.place(function.origin) else ""
    yield _heading(f"{function.name}{where}")
    parts = [(entry, *_entry(entry, function, name, names, imports)) for entry in function.entries]
    folder = subfolder(top, function)
    yield _dispatcher(function, name, folder, parts)
    if function.source_text:
        yield f"{show.on_the_stack(function)}# What it continues with, decompiled:"
        yield _commented(function.source_text)
    for entry, check, transformed in parts:
        path = f"{folder}entry_{entry.index}"
        yield _heading(f"{name}, entry {entry.index}: {path}/guards.py")
        if entry.expected:
            yield f"E_of_{name}_{entry.index} = program.expected({quoted(path)})\n\n"
        yield check.body if check is not None else _commented(entry.guards_text)
        yield _heading(f"{name}, entry {entry.index}: {path}/transformed.py")
        yield from _objects(entry, f"{name}_{entry.index}", path)
        yield ""
        yield transformed.body if transformed is not None else _commented(entry.transformed_text)
        for graph_break in entry.breaks:
            yield one_line(f"# graph break: {graph_break.reason} {show.place(graph_break.origin)}").rstrip()


def _objects(entry: EntryRecord, own: str, path: str) -> Iterator[str]:
    """What the entry's free names stand for: graphs by their files, objects by where they are found."""
    for graph in entry.graphs:
        file = f"{path}/{graph.name}/captured.py"
        yield f"{own}_{graph.name} = program.graph({quoted(file)})  # {show.count(graph.node_count, 'operation')}"
    for name, real in entry.names.items():
        importable = _importable(name, real)
        where = f", {quoted(importable)}" if importable else ""
        yield f"{name}_of_{own} = program.object({quoted(path)}, {quoted(name)}{where})"


def _importable(name: str, real: Any) -> str:
    """Where another process finds the object: ``module:qualified.name``, '' for nowhere."""
    if name.startswith("globals_of_") and isinstance(real, dict):
        module = str(real.get("__name__", ""))
        return module if re.fullmatch(r"[\w.]+", module) and module != "__main__" else ""
    home, qualified = getattr(real, "__module__", None), getattr(real, "__qualname__", None)
    if not isinstance(home, str) or not isinstance(qualified, str) or home == "__main__" or "<" in qualified:
        return ""
    return f"{home}:{qualified}"


def _entry(
    entry: EntryRecord, function: FunctionRecord, name: str, names: Mapping[int, str], imports: dict[str, None]
) -> tuple[_Text | None, _Text | None]:
    """The guards' and the entry's texts under names that no other entry has."""
    own_name = f"{name}_{entry.index}"
    others = {resume.name: names[id(resume)] for resume in function.goes_on_in()}
    others |= {free: f"{free}_of_{own_name}" for free in (*entry.names, "E")}
    if "with compiled_calls:" in entry.transformed_text:
        others |= {"compiled_calls": "contextlib.nullcontext()"}  # here, what is called inside runs as it is
        imports["import contextlib"] = None
    others |= {graph.name: f"{name}_{entry.index}_{graph.name}" for graph in entry.graphs}
    texts = []
    for text, own in (
        (entry.guards_text, {"check": f"{name}_check_{entry.index}"}),
        (entry.transformed_text, {"transformed": f"{name}_{entry.index}"}),
    ):
        taken_apart = _take_apart(text)
        if taken_apart is not None:
            new = {n: f"{n}_of_{name}_{entry.index}" for n in taken_apart.defined} | others | own
            imports.update(dict.fromkeys(line for line in taken_apart.imports if "names_of" not in line))
            body = _rename(taken_apart.body, new)
            taken_apart = _Text(taken_apart.imports, body, taken_apart.defined, taken_apart.parameters)
        texts.append(taken_apart)
    return texts[0], texts[1]


def _dispatcher(
    function: FunctionRecord, name: str, folder: str, parts: list[tuple[EntryRecord, _Text | None, _Text | None]]
) -> str:
    inner = next((check.parameters for _, check, _ in parts if check is not None), ())
    parameters = _parameters(function.function) or inner
    arguments = ", ".join(parameters)
    fetched = "fetched" + "_" * ("fetched" in parameters)
    docstring = '"""The entries in turn; a call tries the latest hit first."""'
    lines = [f"def {name}({_signature(function.function) or arguments}):", f"    {docstring}"]
    for entry, check, transformed in parts:
        if check is not None and transformed is not None:
            lines.append(f"    if ({fetched} := {name}_check_{entry.index}({arguments})) is not None:")
            lines.append(f"        return {name}_{entry.index}({', '.join((*parameters, fetched))})")
    every = f"({arguments}{',' if len(parameters) == 1 else ''})"
    lines.append(f'    return program.miss("{folder.rstrip("/")}", {every})  # the compiler: a new entry')
    return "\n".join(lines) + "\n"


def _parameters(function: Any) -> tuple[str, ...]:
    """Names of the parameters in the order in which ``check`` takes them; () where the function is not known."""
    if function is None:
        return ()
    kinds = inspect.Parameter
    order = (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY, kinds.VAR_POSITIONAL)
    parameters = _signature_of(function).parameters.values()
    rank = {kind: max(n, 1) for n, kind in enumerate((*order, kinds.VAR_KEYWORD))}
    return tuple(p.name for p in sorted(parameters, key=lambda p: rank[p.kind]))


def _signature_of(function: Any) -> inspect.Signature:
    function = getattr(function, "__func__", function)
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    if not all(map(str.isidentifier, names)):  # it continues code that a tool has changed: nothing but positional ones
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(identifier(name), kind) for name in names])
    return inspect.signature(function, follow_wrapped=False)


def _signature(function: Any) -> str:
    """The user's own parameter list; defaults that are no literals are asked for."""
    if function is None:
        return ""
    signature = _signature_of(function)
    parameters = []
    for p in signature.parameters.values():
        default: Any = p.default
        if default is not p.empty and type(default) not in _LITERALS:
            default = _Written(f"program.default({p.name!r})")
        parameters.append(p.replace(default=default, annotation=p.empty))
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))[1:-1]


_LITERALS = (int, str, bytes, bool, type(None))


class _Written:
    """Shows itself as a text that is an expression already."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _take_apart(text: str) -> _Text | None:
    """None for an empty text and for one that does not parse."""
    whole = text
    head, check, rest = text.partition("\ndef check(")
    if check and not re.search(r"\n[^\s]", rest):
        # guards are thousands of lines of one form, and most of what reading takes would go into parsing them
        text = f"{head}{check}{rest.partition(chr(10))[0]} ..."
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    if not tree.body:
        return None
    lines = whole.splitlines()
    imports: list[str] = []
    defined: set[str] = set()
    parameters: tuple[str, ...] = ()
    for position, node in enumerate(tree.body):
        gone = False
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(ast.unparse(node))
            gone = True
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
            if isinstance(node, ast.FunctionDef) and node.name == "check":
                every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                parameters = tuple(a.arg for a in every)
        elif isinstance(node, ast.Assign) and "names_of" in ast.unparse(node.value):
            gone = True  # full_code.py finds them once for all entries
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defined |= {t.id for target in targets for t in ast.walk(target) if isinstance(t, ast.Name)}
        docstring = position == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if gone or docstring or _is_main(node):
            for line in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[line] = ""
    body = re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).strip("\n") + "\n"
    return _Text(tuple(imports), body, frozenset(defined), parameters)


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def _rename(text: str, new: Mapping[str, str]) -> str:
    """``text`` with the names replaced, but for attributes, keyword arguments, and what strings and
    comments say.

    One regular expression that steps over strings and comments; Python's own tokenizer takes ten times as
    long, and guards of a model are a thousand lines. ``name=`` without a blank is a keyword argument:
    generated code has blanks around the ``=`` of an assignment.
    """
    if not new:
        return text
    names = "|".join(map(re.escape, sorted(new, key=len, reverse=True)))
    pattern = re.compile(rf"{_SKIPPED}|(?<![\w.])(?P<name>{names})(?!\w|=(?!=))")
    return pattern.sub(lambda m: new[m["name"]] if m["name"] else m[0], text)


def _heading(text: str) -> str:
    return f"\n{_RULE}\n# {one_line(text)}\n{_RULE}\n"


def _commented(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.replace("\0", "").splitlines())
