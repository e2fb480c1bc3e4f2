"""The text of a graph file as rows, for pictures and the report: names, statements, shapes, the user's lines.

Input: what graphs.py wrote.  Output: ``NodeRow``\\ s with the line that each stands on in the file::

    # File: /app/toy.py:3 in f, code: x = a.abs()
    abs_1: "f32[10][1]cpu" = torch.abs(a);  a = None        ->  NodeRow("abs_1", ..., "float32[10]", 22, toy.py:3)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...records.compilation import NodeRow
from ...records.origin import UNKNOWN, Origin
from .support import DTYPES

_PLACE = re.compile(r"^\s*# File: (.*):(\d+) in ([^,]*), code:")
_PARAMETER = re.compile(r'(\w+)\s*(?::\s*"([^"]*)")?\s*(?:,|\)|$)')
_ALIAS = re.compile(r"^\s+(\w+) = (\w+)$")
_STATEMENT = re.compile(r'^        (\w+)(?:\s*:\s*"([^"]*)")? = (.*)$')
_SHAPE = re.compile(r"(\w+)\[([^\]]*)\]")
_WORD = re.compile(r"(?<![\w.'\"])[A-Za-z_]\w*")


def rows_of_text(text: str) -> tuple[NodeRow, ...]:
    """The rows of the file's first graph; () for a text that has none."""
    lines = text.splitlines()
    begin = next((n for n, line in enumerate(lines) if line.lstrip().startswith("def forward(")), None)
    if begin is None:
        return ()
    end = begin
    while end < len(lines) - 1 and not lines[end].split("#")[0].rstrip().endswith("):"):
        end += 1
    parameters = dict(_parameters(lines[begin : end + 1]))
    aliases: dict[str, str] = {}
    rows: list[NodeRow] = []
    known: set[str] = set()
    origin = UNKNOWN
    for number, line in enumerate(lines[end + 1 :], end + 2):
        place = _PLACE.match(line)
        if place is not None:
            origin = Origin(place[1], int(place[2]), place[3])
        elif line.startswith("        return "):
            body = [part.split("#")[0] for part in lines[number - 1 :]]
            name = "output" if "output" not in known else "output_"  # a variable of the user's may be called so
            rows.append(_row(name, "output", " ".join(_until_closed(body)), "", number, UNKNOWN, known))
            break
        elif (alias := _ALIAS.match(line)) is not None and alias[2] in parameters:
            aliases[alias[2]] = alias[1]  # l_x_ = L_x_
        elif (statement := _STATEMENT.match(line)) is not None:
            if not rows:
                rows += _inputs(parameters, aliases)
                known.update(row.name for row in rows)
            name, shape, value = statement[1], statement[2] or "", statement[3].split(";  ")[0]
            rows.append(_row(name, "call_function", f"{name} = {value}", shape, number, origin, known))
            known.add(name)
    if all(row.op == "output" for row in rows):
        rows = [*_inputs(parameters, aliases), *rows]
    return tuple({row.name: row for row in rows}.values())


def _parameters(lines: list[str]) -> Iterator[tuple[str, str]]:
    header = " ".join(line.split("#")[0].strip() for line in lines)
    for name, annotation in _PARAMETER.findall(header.partition("(")[2]):
        if name != "self":
            yield name, annotation


def _inputs(parameters: dict[str, str], aliases: dict[str, str]) -> list[NodeRow]:
    return [
        NodeRow(aliases.get(name, name), "placeholder", aliases.get(name, name), (), shape_text(annotation), 0)
        for name, annotation in parameters.items()
    ]


def _row(name: str, op: str, statement: str, shape: str, line: int, origin: Origin, known: set[str]) -> NodeRow:
    value = statement if op == "output" else statement.partition(" = ")[2]
    inputs = tuple(dict.fromkeys(word for word in _WORD.findall(value) if word in known))
    return NodeRow(name, op, statement.strip(), inputs, shape_text(shape), line, origin)


def _until_closed(lines: list[str]) -> Iterator[str]:
    depth = 0
    for line in lines:
        yield line.strip()
        depth += sum(line.count(c) for c in "([{") - sum(line.count(c) for c in ")]}")
        if depth <= 0:
            return


def shape_text(annotation: str) -> str:
    """``float32[4, 8]`` for ``f32[4, 8][8, 1]cpu``; what is no tensor stays as it is."""
    match = _SHAPE.search(annotation)
    if match is None or match[1] not in DTYPES:
        return annotation
    return f"{str(DTYPES[match[1]]).removeprefix('torch.')}[{match[2]}]"
