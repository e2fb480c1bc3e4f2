"""Where in the user's code something came from. Every node, guard, break, loop and kernel carries one."""

from __future__ import annotations

from dataclasses import dataclass

from .literals import one_line


@dataclass(frozen=True)
class Origin:
    """A line of the user's program, e.g. ``Origin("/app/model.py", 12, "forward")``."""

    file: str
    line: int
    function: str

    def __bool__(self) -> bool:
        """Whether it is known."""
        return self != UNKNOWN

    def __str__(self) -> str:
        return one_line(f"{self.file}:{self.line} in {self.function}")


UNKNOWN = Origin("<unknown>", 0, "<unknown>")
