"""Code that runs at other times or more often than where it stands: it may write to nothing that was there before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..errors import Unsupported
from ..protocol import Machine


@dataclass
class Sealed:
    by: str = ""  # what runs so, if anything does


@contextmanager
def sealed(m: Machine, what: str) -> Iterator[None]:
    """``what`` runs at other times or more often than here: it may write to nothing that was there before."""
    state = m.state(Sealed)
    before, state.by = state.by, what
    try:
        yield
    finally:
        state.by = before


def refuse_when_sealed(m: Machine, written: str = "an object that was there before the call") -> None:
    by = m.state(Sealed).by
    if by:
        raise Unsupported(f"{by}, which writes to {written}")
