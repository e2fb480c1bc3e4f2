"""Random programs: a source of choices in, the text of a function ``f`` out, which uses the names of prelude.py.

    >>> print(program(random.Random(7)))
    def f(x, y, n, flag, items, pairs, box):
        ...

Expressions are made by type, statements by kind; both stand in tables with weights. A name is used where it has surely
been assigned, or now and then where it may not have been. Every loop is bounded. The first alternatives are the simple
ones, so that Hypothesis, which shrinks choices towards the first, finds short programs.
"""

from __future__ import annotations

import random

from . import expressions, library, statements, training  # noqa: F401  (they fill the tables)
from .statements import result
from .writer import PARAMETERS, Writer


def program(choices: random.Random, size: int = 14) -> str:
    """The text of one function ``f`` with PARAMETERS."""
    w = Writer(choices, size)
    if w.often(60):
        w.globals.add("counter")
        w.line("global counter")
    for _ in range(3 + w.r.randrange(6)):
        w.statement()
    w.line(f"return {result(w)}")
    return "\n".join([f"def f({', '.join(PARAMETERS)}):", *w.lines, ""])
