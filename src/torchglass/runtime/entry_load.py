"""Loads an entry's text: transformed.py and what its free names stand for in, the function that runs calls out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import torch_compat
from .graph_calls import Foreign
from .reconstruct import Undoable
from .store import Artifact, load_python


def load_entry(
    artifact: Artifact, names: dict[str, Any], written: tuple[int, ...], may_fail: bool
) -> Callable[..., Any]:
    """The entry's function. ``written`` are the inputs that its graph writes to, ``may_fail``: the graph fails for some
    values (``Undoable``).
    """
    if written and "graph_0" in names:
        names["graph_0"] = Undoable(names["graph_0"], written)
    entry: Callable[..., Any] = load_python(artifact, names).transformed
    torch_compat.hide_from_dynamo(entry.__code__)
    call = names.get("graph_0")
    if isinstance(call, Foreign) or (isinstance(call, Undoable) and not may_fail):
        call.namespaces.append(entry.__globals__)
    return entry
