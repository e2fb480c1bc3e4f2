"""Hooks for saved tensors that the operation at a break may have entered: see ``torch_api/saved_tensor_hooks.py``."""

from __future__ import annotations

from . import breaks
from .emitter import Emitter


def plain_within(e: Emitter, paths: list[breaks.Path], begin: int) -> list[breaks.Path]:
    """The paths behind an operation written since ``begin``: where it left hooks entered, in the user's bytecode."""
    before, changed = e.fresh("hooks"), e.fresh("hooked")
    e.body.insert(begin, f"{before} = reconstruct.saved_tensor_hooks()")
    e.line(f"{changed} = reconstruct.saved_tensor_hooks() != {before}")
    found = []
    for path in paths:
        condition = changed if path.condition is None else f"{changed} and ({path.condition})"
        found.append(breaks.Path(condition, path.stack, path.index, "eagerly"))
    return [*found, *paths]
