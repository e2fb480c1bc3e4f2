"""What the stages make of a captured graph, made once for all graphs of the same content.

Sixteen equal blocks, each compiled by itself, are captured sixteen times; what follows from the graph is found again:

    shared = find(content(rendered, gm, inputs, examples, options, runs), Shared(name))
    partition = shared.partition or ...         # then shared.sides["forward", partition.forward, ()], and so on

Each graph still has its own files and runs them. What is found lives as long as one of the graphs does and it is
among the latest: FX graphs with their fake tensors are megabytes for each entry of a model, and no call needs them.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..options import CompileOptions
from ..process.locks import fork_safe_lock
from ..records.render_graph import Rendered
from ..runtime.global_state import global_state
from ..torch_compat import has_its_numbers

if TYPE_CHECKING:
    from ..records.kernels import KernelSources
    from ..records.loops import LoopGraph
    from ..records.partition import Partition
    from ..records.schedule import ScheduledGraph
    from ..records.segments import CutGraph

SideKey = tuple[str, torch.fx.GraphModule, tuple[Any, ...]]
"""Its name, its graph, how far indices reach, and the strides of what the forward keeps for it."""


@dataclass
class Side:
    """Forward or backward: the graph's text, then loops and kernels where the backend has them."""

    rendered: Rendered
    loops: LoopGraph | None = None
    printed: tuple[ScheduledGraph, KernelSources] | None = None


@dataclass(eq=False)
class Shared:
    """The results of stages for one content. ``name``: whose graph was compiled, as the titles of its texts say it."""

    name: str
    partition: Partition | None = None
    joint: Rendered | None = None
    sides: dict[SideKey, Side] = field(default_factory=dict)
    again: dict[tuple[Any, ...], Partition | None] = field(default_factory=dict)  # by the layout of gradients
    cuts: dict[tuple[Any, ...], CutGraph | None] = field(default_factory=dict)  # by backward, groups and their titles

    def forget(self) -> None:
        """The next graph of this content goes through the stages itself."""
        self.partition = self.joint = None
        self.sides, self.again, self.cuts = {}, {}, {}


MOST_NODES = 1000
"""So many captured nodes have the graphs whose results are kept: enough for a model's blocks, not for whole models."""

_alive: weakref.WeakValueDictionary[str, Shared] = weakref.WeakValueDictionary()
_latest: list[tuple[weakref.ref[Shared], int]] = []  # the newest first
_guard = fork_safe_lock()


def find(key: str | None, empty: Shared) -> Shared:
    """What is known of this content; ``empty``, to keep results in, where there is no key or nothing yet."""
    return empty if key is None else _alive.setdefault(key, empty)


def keep(shared: Shared, nodes: int) -> None:
    """A graph of so many nodes has just been compiled: its results are kept for others, instead of older ones."""
    with _guard:
        room, kept = MOST_NODES, []
        for reference, count in [(weakref.ref(shared), nodes), *(row for row in _latest if row[0]() is not shared)]:
            known = reference()
            if known is not None and count <= room:
                room -= count
                kept.append((reference, count))
            elif known is not None:
                known.forget()
        _latest[:] = kept


def content(
    rendered: Rendered,
    gm: torch.fx.GraphModule,
    inputs: Sequence[Any],
    examples: Sequence[Any],
    options: CompileOptions,
    runs: str,
) -> str | None:
    """A digest of all that the stages after capture look at; None where something is only itself: a tensor, sub-graph
    or object that the graph holds, an input of an unknown kind, a backend without a name.
    """
    if not isinstance(options.backend, str) or rendered.objects or gm.graph.find_nodes(op="get_attr"):
        return None
    storages: dict[int, int] = {}
    facts = [_facts(value, storages) for value in inputs]
    if None in facts:
        return None
    parameters = [isinstance(value, torch.nn.Parameter) for value in examples]
    wishes = (options.backend, options.mode, options.dynamic, sorted((k, repr(v)) for k, v in options.options.items()))
    attention = torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()
    state = (global_state(), torch.get_num_threads(), torch.backends.mkldnn.enabled, attention, runs)
    body = rendered.text.partition("\n")[2]  # the title says whose graph it is
    origins = [row.origin for row in rendered.nodes]
    said = (body, origins, _marks(gm), facts, parameters, wishes, state)
    return hashlib.sha256(repr(said).encode("utf-8", "surrogateescape")).hexdigest()


def _facts(value: Any, storages: dict[int, int]) -> Any:
    """What there is to know of an input's metadata; None for a kind of which that is not certain."""
    if isinstance(value, (bool, int, float)):
        return repr(value)
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    sizes = (*value.shape, *value.stride(), value.storage_offset())
    if not all(type(size) is int for size in sizes):
        return None
    place = storages.setdefault(value.untyped_storage()._cdata, len(storages))
    numbers = value.is_conj(), value.is_neg(), has_its_numbers(value)
    flags = (value.requires_grad, value.is_inference(), value._is_view(), numbers)
    return type(value).__qualname__, len(value.shape), sizes, str(value.dtype), str(value.device), flags, place


def _marks(gm: torch.fx.GraphModule) -> list[tuple[Any, ...]]:
    """What capture notes on nodes beside what their text says."""
    return [(node.meta.get("effect"), node.meta.get("checkpoint_region")) for node in gm.graph.nodes]


def retitled(rendered: Rendered, before: str, after: str) -> Rendered:
    """The text of a graph under another function's name, which its first line says."""
    first, newline, rest = rendered.text.partition("\n")
    return replace(rendered, text=first.replace(f" of {before}.", f" of {after}.") + newline + rest)
