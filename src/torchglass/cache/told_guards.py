"""Guards as people are told of them, in ``guards.json``: sources and places once, as chains share all but a last link.

    {"parts": [["Source.Local", "self"], ["Source.Attr", {"#": 0}, "weight"]], "guards": [[{"#": 1}, "tensor", ...]]}

A guard on an object that no text can say is checked by the table, and not told of.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ..records.guards import Guard
from ..records.kept_graph import NotKept
from ..records.origin import Origin
from ..records.sources import Source
from .values import CLASSES, PLAIN, TAGS, decoded, encoded, field_names

NUMBER = "#"


def guards_text(guards: Iterable[Guard]) -> str:
    """The guards as a file's text."""
    parts = _Parts()
    rows = []
    for guard in guards:
        try:
            rows.append([parts.encoded(getattr(guard, name)) for name in field_names(Guard)])
        except NotKept:
            continue
    return json.dumps({"parts": parts.rows, "guards": rows}, separators=(",", ":"))


class _Parts:
    """What guards are made of, each part once."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._numbers: dict[Source | Origin, int] = {}
        self._known: dict[int, tuple[Any, Any]] = {}  # by identity: the value, and what it is as JSON

    def encoded(self, value: Any) -> Any:
        """Raises NotKept."""
        if type(value) in PLAIN:
            return value
        if isinstance(value, (Source, Origin)):
            return {NUMBER: self._number(value)}
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = value, encoded(value)
        return known[1]

    def _number(self, part: Source | Origin) -> int:
        number = self._numbers.get(part)
        if number is None:
            kind = type(part)
            row = [TAGS[kind], *(self.encoded(getattr(part, name)) for name in field_names(kind))]
            number = self._numbers[part] = len(self.rows)
            self.rows.append(row)
        return number


def guards_of(text: str) -> list[Guard]:
    """The guards again, but those of objects that are not there any more."""
    kept = json.loads(text)
    parts: list[Any] = []
    for tag, *fields in kept["parts"]:
        try:
            parts.append(CLASSES[tag](*(_found(value, parts) for value in fields)))
        except NotKept as error:
            parts.append(error)
    guards = []
    for row in kept["guards"]:
        try:
            guards.append(Guard(*(_found(value, parts) for value in row)))
        except NotKept:
            continue
    return guards


def _found(value: Any, parts: list[Any]) -> Any:
    if type(value) is not dict or NUMBER not in value:
        return decoded(value)
    part = parts[value[NUMBER]]
    if isinstance(part, NotKept):
        raise part
    return part
