"""Shorten a program that fails: python -m tests.semantics.shorten program.py prints the shortest one found.

Statements are taken out, compound ones replaced by their bodies, expressions by what stands in them, as long as plain
and compiled runs still differ, and in the same thing (what was raised, what became of an argument, ...).
"""

from __future__ import annotations

import ast
import copy
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torchglass as tg

from .harness import Difference, check

BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def shorten(text: str, fails: Callable[[str], bool]) -> str:
    """A program, not longer than ``text``, for which ``fails`` still holds, and from which no one step leads on."""
    shorter = True
    while shorter:
        shorter = False
        for candidate in candidates(ast.parse(text)):
            if len(candidate) < len(text) and fails(candidate):
                text, shorter = candidate, True
                break
    return text


def candidates(tree: ast.Module) -> Iterator[str]:
    """The program with one thing made simpler, large things first."""
    count = sum(1 for _ in ast.walk(tree))
    for step in (_drop, _unwrap, _inner):
        for n in range(count):
            changed = copy.deepcopy(tree)
            node = list(ast.walk(changed))[n]
            for _ in step(node):
                try:
                    text = ast.unparse(ast.fix_missing_locations(changed)) + "\n"
                    compile(text, "candidate", "exec")
                except (SyntaxError, ValueError, AttributeError, TypeError):
                    continue
                yield text


def _drop(node: ast.AST) -> Iterator[None]:
    for block in BLOCKS:
        held = getattr(node, block, None)
        if not isinstance(held, list):
            continue
        for n in range(len(held)):
            taken = held.pop(n)
            empty = not held and block == "body"
            if empty:
                held.append(ast.Pass())
            if not isinstance(taken, ast.Pass):
                yield
            if empty:
                held.pop()
            held.insert(n, taken)


def _unwrap(node: ast.AST) -> Iterator[None]:
    for block in BLOCKS[:3]:
        held = getattr(node, block, None)
        if not isinstance(held, list):
            continue
        for n, statement in enumerate(list(held)):
            if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                continue
            for inner in BLOCKS[:3]:
                content = getattr(statement, inner, None)
                if isinstance(content, list) and content:
                    held[n : n + 1] = content
                    yield
                    held[n : n + len(content)] = [statement]


def _inner(node: ast.AST) -> Iterator[None]:
    for name, value in ast.iter_fields(node):
        for n, expression in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(expression, ast.expr):
                continue
            parts = [p for p in ast.iter_child_nodes(expression) if isinstance(p, ast.expr)]
            for replacement in [*parts, ast.Name("n", ast.Load()), ast.Constant(1)]:
                _put(node, name, n, replacement)
                yield
                _put(node, name, n, expression)


def _put(node: ast.AST, name: str, n: int, expression: ast.AST) -> None:
    held = getattr(node, name)
    if isinstance(held, list):
        held[n] = expression
    else:
        setattr(node, name, expression)


def differs_in(text: str, backend: str) -> str:
    """Which part of the outcome differs, '' for none."""
    tg.reset()
    with tempfile.TemporaryDirectory() as folder, tg.prepare_debug(folder):
        try:
            check(text, backend=backend)
        except Difference as found:
            return str(found.plain).partition(":")[0][:3]
        except Exception as error:
            print(f"# {type(error).__name__}: {error}", file=sys.stderr)
        return ""


def main() -> None:
    text, backend = Path(sys.argv[1]).read_text(), sys.argv[2] if len(sys.argv) > 2 else "eager"
    part = differs_in(text, backend)
    if not part:
        sys.exit("plain and compiled runs of this program agree")
    print(shorten(text, lambda candidate: differs_in(candidate, backend) == part))


if __name__ == "__main__":
    main()
