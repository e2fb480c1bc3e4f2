"""Tensors of which it depends on sizes whether they are one object or two: see ``interp/if_conversion.py``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ..protocol import Machine, Value


class SidesDiffer(BaseException):
    """A branch makes something else than what is there where the program skips it, or the program would see it. No
    error of the program's, and nothing that handles errors is to see it.
    """


class Pair(NamedTuple):
    """What was there, and what is there now."""

    skipped: Value
    taken: Value


@dataclass
class Conversions:
    """The branches that one capture takes whatever the sizes are. ``off``: it takes none so."""

    off: bool = False
    made: list[Pair] = field(default_factory=list)


def refuse_told_apart(m: Machine, one: Value, other: Value) -> None:
    """The program asks whether two values are one object. Raises SidesDiffer where that depends on sizes."""
    if any({id(one), id(other)} == set(map(id, pair)) for pair in m.state(Conversions).made):
        raise SidesDiffer


def refuse_identity(m: Machine, values: Iterable[Value]) -> None:
    """The program sees which objects these are, or changes one as an object. Raises SidesDiffer as above."""
    if made := m.state(Conversions).made:
        asked = set(map(id, values))
        if any(id(value) in asked for pair in made for value in pair):
            raise SidesDiffer


def refuse_escape(m: Machine, values: Iterable[Value]) -> None:
    """These leave the graph, in which what was expanded may be what was there. Raises SidesDiffer as above."""
    if made := m.state(Conversions).made:
        asked = set(map(id, values))
        if any(id(pair.taken) in asked for pair in made):
            raise SidesDiffer
