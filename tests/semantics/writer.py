"""A program being written: its text and the names in scope; the tables of expressions and statements to choose from."""

from __future__ import annotations

import random
from collections.abc import Callable

PARAMETERS = {"x": "tensor", "y": "tensor", "n": "int", "flag": "any", "items": "list", "pairs": "dict", "box": "box"}
GLOBALS = {"counter": "int", "table": "dict", "shared": "list", "weight": "tensor"}

Expression = Callable[["Writer"], str]
Statement = Callable[["Writer"], None]
EXPRESSIONS: dict[str, list[Expression]] = {}
STATEMENTS: list[Statement] = []


def expression(kind: str, weight: int = 1):
    def enter(function: Expression) -> Expression:
        EXPRESSIONS.setdefault(kind, []).extend([function] * weight)
        return function

    return enter


def statement(weight: int = 1):
    def enter(function: Statement) -> Statement:
        STATEMENTS.extend([function] * weight)
        return function

    return enter


LEAVES = {
    "int": ["n", "1", "2", "3", "0", "counter", "box.value"],
    "tensor": ["x", "y", "torch.ones(3)", "weight"],
    "list": ["items", "[1, 2]", "shared", "box.items"],
    "dict": ["pairs", "{'a': 5}", "table"],
    "box": ["box", "Box(2)", "Child(3)"],
    "text": ["'word'", "'a'"],
    "set": ["{1, 2}", "set()"],
    "function": ["helper", "countdown", "box"],
    "bool": ["True", "False", "flag"],
    "any": ["flag", "None", "n", "items"],
}


class Writer:
    """One program being written: its lines, the names that may be used, and how deep we are."""

    def __init__(self, choices: random.Random, size: int) -> None:
        self.r = choices
        self.left = size
        self.lines: list[str] = []
        self.indent = 1
        self.names: dict[str, str] = dict(PARAMETERS)
        self.depth = 0
        self.nesting = 0
        self.loops = 0
        self.number = 0
        self.functions = 0
        self.handlers = 0
        self.globals: set[str] = set()
        self.local = set(PARAMETERS)

    # --- choices ---------------------------------------------------------------------------------------------------
    def pick(self, options):
        return options[self.r.randrange(len(options))]

    def often(self, percent: int) -> bool:
        return self.r.randrange(100) >= 100 - percent

    def fresh(self, hint: str) -> str:
        self.number += 1
        return f"{hint}{self.number}"

    # --- text ------------------------------------------------------------------------------------------------------
    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def body(
        self,
        head: str,
        tail: Callable[[], None] | None = None,
        keep: bool = False,
        first: Callable[[], None] = lambda: None,
    ) -> None:
        """A block under ``head``; names assigned in it are known afterwards only with ``keep``."""
        self.line(head)
        names = dict(self.names)
        self.indent += 1
        self.nesting += 1
        first()
        for _ in range(1 + self.r.randrange(3)):
            self.statement()
        if tail is not None:
            tail()
        self.nesting -= 1
        self.indent -= 1
        if not keep and not self.often(3):
            self.names = names

    def statement(self) -> None:
        if self.left <= 0:
            self.line(f"log.append({self.expr('int')})")
            return
        self.left -= 1
        self.pick(STATEMENTS)(self)

    # --- expressions -----------------------------------------------------------------------------------------------
    def expr(self, kind: str) -> str:
        self.depth += 1
        try:
            if self.depth > 2 + self.often(30):
                return self.leaf(kind)
            return self.pick(EXPRESSIONS[kind])(self)
        finally:
            self.depth -= 1

    def named(self, kind: str) -> list[str]:
        return [name for name, of in self.names.items() if of == kind]

    def walrus(self) -> str:
        """A name to assign within an expression; not where a comprehension's iterable could be around it."""
        return f"{self.fresh('w')} := " if self.depth == 1 else ""

    def quoteless(self, kind: str) -> str:
        """An expression that may stand in an f-string: before Python 3.12 without the quotes of the string."""
        text = self.expr(kind)
        return text if not set("'{\\") & set(text) else "n"

    def leaf(self, kind: str) -> str:
        options = self.named(kind) + LEAVES[kind]
        return self.pick(options)

    def own(self, kind: str) -> list[str]:
        """Names of the function being written, which it may assign."""
        return [name for name in self.named(kind) if name in self.local]

    def declare(self, **kinds: str) -> None:
        self.names |= kinds
        self.local |= set(kinds)

    def assign(self, kind: str, text: str) -> None:
        """Store in a new name, or over one of the same kind."""
        own = self.own(kind)
        name = self.pick(own) if own and self.often(40) else self.fresh(kind[0])
        self.line(f"{name} = {text}")
        self.declare(**{name: kind})

    def kind(self) -> str:
        return self.pick(["int", "tensor", "list", "int", "tensor", "dict", "box", "text", "function", "set", "any"])
