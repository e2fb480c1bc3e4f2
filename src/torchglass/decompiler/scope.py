"""What is known of the function around the code that is being read, and what reading it finds out.

Code inside code (functions, lambdas, classes, comprehensions) is read the same way again: ``Attempt`` hands that way
down to whoever meets such code, so that none of them needs to know the pipeline.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from ..bytecode.canonical import VERSION
from .names import identifier

COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


@dataclass
class Attempt:
    """One way of reading a definition and all that is nested in it; ``notes`` are for the reader of the whole text."""

    #: the statements of a scope's code
    decompile_nested: Callable[[Scope], list[ast.stmt]]
    #: the statements of an inlined comprehension's loop: the scope around it, where it starts, the stack there
    decompile_loop: Callable[[Scope, int, list[Any]], list[ast.stmt]]
    #: how instructions are taken for copies of one another, in the order in which this is tried
    modes: tuple[str, ...]
    #: counts other places for what follows a statement, where the likeliest is known to be wrong
    reading: int = 0
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Something a reader of the whole output must be told."""
        if text not in self.notes:
            self.notes.append(text)


class Scope:
    """What the rules need to know about the function around the code, and what they find out about it."""

    def __init__(self, code: CodeType, parent: Scope | None, attempt: Attempt) -> None:
        self.code = code
        self.parent = parent
        self.attempt = attempt
        self.is_class = False
        self.is_comprehension = code.co_name in COMPREHENSIONS
        self.is_generic = code.co_name.startswith("<generic parameters of")
        self.is_generator_expression = code.co_name == "<genexpr>"
        self.exception_width = 1 if VERSION >= (3, 11) else 3
        self.names = set(code.co_varnames) | set(code.co_cellvars) | set(code.co_freevars)
        self.enclosing: set[str] = set()
        if parent is not None:
            self.enclosing = parent.enclosing | (set() if parent.is_class else parent.names)
        self.named_iterators = False
        self.type_parameters: list[Any] = []
        self.instructions: Any = None
        self.machine: Any = None
        self.begin()

    def begin(self) -> None:
        """Forget what an earlier reading of the code has found out."""
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self.constants: set[str] = {".0"}
        self.taken: set[str] = self.names | set(self.code.co_names)
        self.taken |= self.parent.taken if self.parent is not None else set()
        self.counter = 0
        self.spills: set[int] = set()
        self.collector: Any = None

    def nested(self, code: CodeType) -> Scope:
        return Scope(code, self, self.attempt)

    def body(self) -> list[ast.stmt]:
        """The statements of this scope's code."""
        return self.attempt.decompile_nested(self)

    def local(self, name: str) -> str:
        """A local's name in source; the compiler's own names (``.0``) and a tool's are made identifiers."""
        if name.isidentifier() and not keyword.iskeyword(name):
            return name
        if (self.is_comprehension and name == ".0") or self.is_generic:
            return name
        return "_" + identifier(name)

    def temporary(self) -> str:
        while True:
            name = f"_value_{self.counter}"
            self.counter += 1
            if name not in self.taken:
                self.taken.add(name)
                self.constants.add(name)
                return name

    def saw_global(self, name: str) -> None:
        if name in self.enclosing or self.is_class:
            self.globals.add(name)

    def stored_free(self, name: str) -> None:
        if name in self.code.co_freevars:
            self.nonlocals.add(name)

    def declarations(self) -> list[ast.stmt]:
        """``global`` and ``nonlocal`` for what was found to need them."""
        kinds = ((ast.Global, self.globals), (ast.Nonlocal, self.nonlocals))
        return [kind(sorted(names)) for kind, names in kinds if names]
