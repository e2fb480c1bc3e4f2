"""Guards as people are told of them, in ``guards.json``: each source once, as chains share all but their last link.

    {"sources": [["Source.Local", "self"], ["Source.Attr", {"#": 0}, "weight"]], "guards": [[{"#": 1}, "tensor", ...]]}

A guard on an object that no text can say is checked by the table, and not told of.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ..records.guards import Guard
from ..records.kept_graph import NotKept
from ..records.sources import Source
from .values import CLASSES, TAGS, decoded, encoded, field_names

NUMBER = "#"


def guards_text(guards: Iterable[Guard]) -> str:
    """The guards as a file's text."""
    numbers: dict[Source, int] = {}
    sources: list[Any] = []
    rows = []
    for guard in guards:
        try:
            rows.append([_numbered(getattr(guard, name), numbers, sources) for name in field_names(Guard)])
        except NotKept:
            continue
    return json.dumps({"sources": sources, "guards": rows}, separators=(",", ":"))


def _numbered(value: Any, numbers: dict[Source, int], sources: list[Any]) -> Any:
    if not isinstance(value, Source):
        return encoded(value)
    number = numbers.get(value)
    if number is None:
        kind = type(value)
        row = [TAGS[kind], *(_numbered(getattr(value, name), numbers, sources) for name in field_names(kind))]
        number = numbers[value] = len(sources)
        sources.append(row)
    return {NUMBER: number}


def guards_of(text: str) -> list[Guard]:
    """The guards again, but those of objects that are not there any more."""
    kept = json.loads(text)
    sources: list[Any] = []
    for tag, *fields in kept["sources"]:
        try:
            sources.append(CLASSES[tag](*(_found(value, sources) for value in fields)))
        except NotKept as error:
            sources.append(error)
    guards = []
    for row in kept["guards"]:
        try:
            guards.append(Guard(*(_found(value, sources) for value in row)))
        except NotKept:
            continue
    return guards


def _found(value: Any, sources: list[Any]) -> Any:
    if type(value) is not dict or NUMBER not in value:
        return decoded(value)
    source = sources[value[NUMBER]]
    if isinstance(source, NotKept):
        raise source
    return source
