"""What the stages left for people, as a kept entry tells it: read when somebody asks, never by a hit.

    text_of(kernels)        # a record of ``torchglass.records``, or several, as JSON
    value_of(text)          # the same again
    Sides(kept)             # what ``GraphRecord.sides`` has of a graph

An object that is met again is a number there. What no text can say (a tensor that a graph holds) is shown as its type.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import logging
from collections.abc import Sequence
from typing import Any, overload

from ..records.compilation import ReprText, SideRecord
from ..records.kept_graph import NotKept
from ..records.packed import Later
from .folder import Damaged, Kept
from .values import decoded, encoded, field_names

NODES, KERNELS = "_nodes.json", "_fused.json"
"""The files of a side, behind its name: the rows of its graph; how it was fused, and its kernels."""

log = logging.getLogger("torchglass.cache")

_RECORDS = f"{__package__.rpartition('.')[0]}.records."
_RECORD, _AGAIN, _VALUE, _SHOWN = "@", "#", "=", "~"


def text_of(value: Any) -> str:
    """Records as JSON. Tuples and lists are one to it."""
    return json.dumps(value, default=_Writer().row, separators=(",", ":"))


def value_of(text: str) -> Any:
    """What was written, lists as tuples."""
    return _Reader().value(json.loads(text))


class _Writer:
    """Gives ``json`` rows for what it does not know."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}

    def row(self, value: Any) -> dict[str, Any]:
        kind: Any = type(value)
        tag = _tag_of(kind)
        if not tag:
            return _of_other(value)
        if id(value) in self.numbers:
            return {_AGAIN: self.numbers[id(value)]}
        self.numbers[id(value)] = len(self.numbers)
        return {tag: [getattr(value, name) for name in field_names(kind)]}


@functools.cache
def _tag_of(kind: Any) -> str:
    """``@kernels.FusedGraph``; "" for what is no record."""
    is_record = kind.__module__.startswith(_RECORDS) and dataclasses.is_dataclass(kind)
    return f"{_RECORD}{kind.__module__.removeprefix(_RECORDS)}.{kind.__name__}" if is_record else ""


def _of_other(value: Any) -> dict[str, Any]:
    try:
        return {_VALUE: encoded(value)}
    except NotKept:
        return {_SHOWN: f"<{type(value).__qualname__}>"}


class _Reader:
    def __init__(self) -> None:
        self.met: list[Any] = []  # in the order in which they were written

    def value(self, row: Any) -> Any:
        if isinstance(row, list):
            return tuple(map(self.value, row))
        if not isinstance(row, dict):
            return row
        tag = next(iter(row), "")
        read = _READERS.get(tag)
        if read is not None:
            return read(self, row[tag])
        if tag.startswith(_RECORD):
            return self._record(tag[1:], row[tag])
        return {key: self.value(part) for key, part in row.items()}

    def _record(self, tag: str, fields: list[Any]) -> Any:
        number = len(self.met)
        self.met.append(None)
        module, _, name = tag.rpartition(".")
        kind = getattr(importlib.import_module(_RECORDS + module), name)
        self.met[number] = made = kind(*map(self.value, fields))
        return made


_READERS = {
    _AGAIN: lambda reader, number: reader.met[number],
    _VALUE: lambda reader, row: decoded(row),
    _SHOWN: lambda reader, text: ReprText(text),
}


# --- records ----------------------------------------------------------------------------------------------------------
class Sides(Sequence[SideRecord]):
    """The sides of a graph of an entry, with the backwards that were added to it until somebody asks."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    @overload
    def __getitem__(self, index: int) -> SideRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[SideRecord]: ...
    def __getitem__(self, index: Any) -> Any:
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> list[SideRecord]:
        found = [_Folder(self._kept, "graph_0/")]
        for path in sorted((self._kept.path / "graph_0").glob("kept_backward*")):
            try:
                found.append(_Folder(type(self._kept)(path), ""))
            except Damaged as error:
                log.info("%s", error)
        return [side for one in found for side in one.sides()]


class _Folder:
    """The files of a graph's sides, or of a backward that was added."""

    def __init__(self, kept: Kept, place: str) -> None:
        self.kept, self.place = kept, place
        self.names = [name.removeprefix(place) for name in kept.names() if name.startswith(place)]

    def sides(self) -> list[SideRecord]:
        """Those of which something is told."""
        ends = (NODES, KERNELS, "joint.py")
        found = [name.removesuffix(end) for name in self.names for end in ends if name.endswith(end)]
        return [self._side(name or "joint") for name in dict.fromkeys(found)]

    def _side(self, name: str) -> SideRecord:
        ends = (f"{name}_kernels.c", f"{name}_kernels.py", f"{name}_wrapper.py")
        files = [file for file in self.names if file in ends]
        later: dict[str, Any] = {
            "text": Later(lambda: self._text(f"{name}.py")),
            "nodes": Later(lambda: self._told(f"{name}{NODES}", ())),
        }
        if f"{name}{KERNELS}" in self.names:
            later["fused"] = Later(lambda: self._told(f"{name}{KERNELS}", (None, ()))[0])
            later["kernels"] = Later(lambda: self._told(f"{name}{KERNELS}", (None, ()))[1])
            later["files"] = Later(lambda: tuple((file, self._text(file)) for file in files))
        return SideRecord(name, **later)

    def _told(self, file: str, nothing: Any) -> Any:
        text = self._text(file)
        return value_of(text) if text else nothing

    def _text(self, file: str) -> str:
        """Nothing where there is none, or it is gone or damaged."""
        try:
            return self.kept.text(f"{self.place}{file}") if file in self.names else ""
        except Damaged as error:
            log.info("%s", error)
            return ""
