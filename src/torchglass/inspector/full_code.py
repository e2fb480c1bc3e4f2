"""full_code.py of a function's folder: its record in, one module that reads from top to bottom out.

    def toy_example(a, b):
        if (fetched := toy_example_check_0(a, b)) is not None:
            return toy_example_0(a, b, fetched)
        return compile_and_call(toy_example, a, b)
    ...
    def toy_example_0(a, b, fetched):
        x, value = toy_example_0_graph_0(*fetched)
        ...

It is put together from the texts of the entries: their functions get names that tell them apart, names are
renamed token by token so that comments stay, and graphs load from their files. It is for reading; what runs
are those files.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..records.compilation import EntryRecord, FunctionRecord
from . import show

_RULE = "# " + "-" * 110

_SKIPPED = r"#.*|\"\"\"[\s\S]*?\"\"\"|'''[\s\S]*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
"""Comments and strings, triple-quoted ones first."""

_HELPERS = '''
def graph(path):
    """The function in a graph's file beside this one, loaded at its first call."""

    def call(*inputs):
        if path not in _loaded:
            _loaded[path] = runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), path))["forward"]
        return _loaded[path](*inputs)

    return call


def compile_and_call(function, *arguments):
    """Stands for the compiler: no entry fits these arguments, so a new one would be made here."""
    raise NotImplementedError(f"no entry of {function.__name__} fits")


_loaded = {}
'''


def full_code(record: FunctionRecord) -> str:
    """The module's text. It always parses; a text of an entry that does not stands in it as comments."""
    names = _names(record)
    imports: dict[str, None] = {"import os": None, "import runpy": None}
    sections: list[str] = []
    for function in record.walk():
        sections += _function(record, function, names, imports)
    head = (
        f'"""{_docstring(record.name)}: everything that a call may run, from top to bottom.\n\n'
        "For reading. What runs are the files that the headings name: edit those.\n"
        '"""\n'
    )
    ordered = sorted(imports, key=lambda line: (not line.startswith("from __future__"), line))
    return "\n".join([head, *ordered, "", _HELPERS, *sections]).rstrip() + "\n"


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
        name = re.sub(r"\W", "_", function.name) or "function"
        name = f"_{name}" if name[0].isdigit() else name
        taken[name] = taken.get(name, -1) + 1
        names[id(function)] = f"{name}_{taken[name]}" if taken[name] else name
    return names


def _function(
    top: FunctionRecord, function: FunctionRecord, names: Mapping[int, str], imports: dict[str, None]
) -> Iterator[str]:
    name = names[id(function)]
    where = f"  ({show.place(function.origin)})" if show.place(function.origin) else ""
    yield _heading(f"{function.name}{where}")
    parts = [(entry, *_entry(entry, function, name, names, imports)) for entry in function.entries]
    parameters = next((check.parameters for _, check, _ in parts if check is not None), ())
    yield _dispatcher(name, parameters, parts)
    if function.source_text:
        yield "# What it continues with, decompiled:"
        yield _commented(function.source_text)
    folder = _folder(top, function)
    for entry, check, transformed in parts:
        yield _heading(f"{name}, entry {entry.index}: {folder}entry_{entry.index}/guards.py")
        yield check.body if check is not None else _commented(entry.guards_text)
        yield _heading(f"{name}, entry {entry.index}: {folder}entry_{entry.index}/transformed.py")
        for graph in entry.graphs:
            path = f"{folder}entry_{entry.index}/{graph.name}/captured.py"
            yield f'{name}_{entry.index}_{graph.name} = graph("{path}")  # {show.count(graph.node_count, "operation")}'
        yield ""
        yield transformed.body if transformed is not None else _commented(entry.transformed_text)
        for graph_break in entry.breaks:
            yield f"# graph break: {graph_break.reason} {show.place(graph_break.origin)}".rstrip()


def _entry(
    entry: EntryRecord, function: FunctionRecord, name: str, names: Mapping[int, str], imports: dict[str, None]
) -> tuple[_Text | None, _Text | None]:
    """The guards' and the entry's texts under names that no other entry has."""
    others = {resume.name: names[id(resume)] for resume in function.resumes}
    others |= {graph.name: f"{name}_{entry.index}_{graph.name}" for graph in entry.graphs}
    texts = []
    for text, own in (
        (entry.guards_text, {"check": f"{name}_check_{entry.index}"}),
        (entry.transformed_text, {"transformed": f"{name}_{entry.index}"}),
    ):
        taken_apart = _take_apart(text)
        if taken_apart is not None:
            new = {n: f"{n}_of_{name}_{entry.index}" for n in taken_apart.defined} | others | own
            imports.update(dict.fromkeys(taken_apart.imports))
            body = _rename(taken_apart.body, new)
            taken_apart = _Text(taken_apart.imports, body, taken_apart.defined, taken_apart.parameters)
        texts.append(taken_apart)
    return texts[0], texts[1]


def _dispatcher(
    name: str, parameters: tuple[str, ...], parts: list[tuple[EntryRecord, _Text | None, _Text | None]]
) -> str:
    arguments = ", ".join(parameters)
    lines = [f"def {name}({arguments}):", '    """The entries in turn; a call tries the latest hit first."""']
    for entry, check, transformed in parts:
        if check is not None and transformed is not None:
            lines.append(f"    if (fetched := {name}_check_{entry.index}({arguments})) is not None:")
            lines.append(f"        return {name}_{entry.index}({', '.join((*parameters, 'fetched'))})")
    lines.append(f"    return compile_and_call({', '.join((name, *parameters))})")
    return "\n".join(lines) + "\n"


def _take_apart(text: str) -> _Text | None:
    """None for an empty text and for one that does not parse."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    if not tree.body:
        return None
    lines = text.splitlines()
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


def _folder(top: FunctionRecord, function: FunctionRecord) -> str:
    if function is top or function.folder is None or top.folder is None or function.folder == top.folder:
        return ""
    return function.folder.relative_to(top.folder).as_posix() + "/"


def _heading(text: str) -> str:
    return f"\n{_RULE}\n# {' '.join(text.split())}\n{_RULE}\n"


def _commented(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.replace("\0", "").splitlines())


def _docstring(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', "'''")
