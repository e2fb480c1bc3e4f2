"""Snippets of every kind of statement and expression, each run as written and as decompiled.

``python snippets.py`` runs them all in the current interpreter (no test tool needed) and exits with the number of those
that behave differently.
"""

from __future__ import annotations

import contextlib
import copy
import io
import re
import sys
import types
from typing import Any

import expression_snippets  # noqa: F401
import statement_snippets  # noqa: F401
from snippet_rows import SNIPPETS

VERSION = sys.version_info[:2]


class Context:
    """A context manager that writes a log and swallows ValueError."""

    def __init__(self, log: list[Any], name: Any) -> None:
        self.log, self.name = log, name

    def __enter__(self) -> Any:
        self.log.append(("in", self.name))
        return self.name

    def __exit__(self, kind: Any, *rest: Any) -> bool:
        self.log.append(("out", self.name, kind.__name__ if kind else None))
        return kind is ValueError


def copy_arguments(arguments: tuple[Any, ...]) -> list[Any]:
    return [Context if a == "C" else a if isinstance(a, types.FunctionType) else copy.deepcopy(a) for a in arguments]


def outcome(text: str, arguments: tuple[Any, ...]) -> str:
    """What calling ``f`` of the module ``text`` gives: value or exception, and what it printed."""
    namespace: dict[str, Any] = {"__name__": "snippet"}
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(text, "<snippet>", "exec", 0, True), namespace)
            result = repr(namespace["f"](*copy_arguments(arguments)))
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
    return re.sub(r"0x[0-9a-f]+", "0x", result + out.getvalue())


def decompiled(text: str) -> str:
    """The whole module, decompiled from its code object."""
    from torchglass.decompiler import decompile

    return decompile(compile(text, "<snippet>", "exec", 0, True))


def differing() -> list[str]:
    """The snippets (and calls) that behave differently once decompiled."""
    bad = []
    for name, text, calls, since in SNIPPETS:
        if since > VERSION:
            continue
        try:
            again = decompiled(text)
        except Exception as error:
            bad.append(f"{name}: {error}")
            continue
        for call in calls:
            expected, got = outcome(text, call), outcome(again, call)
            if expected != got:
                bad.append(f"{name}{call}: {expected} and {got}\n{again}")
                break
        else:
            if again.startswith("#"):
                bad.append(f"{name}: {again.splitlines()[0]}")
    return bad


if __name__ == "__main__":
    wrong = differing()
    count = sum(s[3] <= VERSION for s in SNIPPETS)
    for entry in wrong:
        print(entry)
    print(f"{count - len(wrong)} of {count} snippets alike on {sys.version.split()[0]}")
    sys.exit(len(wrong))
