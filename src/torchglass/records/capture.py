"""What capture hands on: the graph, what it relies on, and the Python around it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch.fx

from .breaks import GraphBreak, Resume
from .declared_sizes import DeclaredSizes
from .guards import Guard
from .origin import Origin
from .size_environment import SizeEnvironment
from .sources import Source


@dataclass(frozen=True)
class Capture:
    """One captured frame.

    ``graph`` is None when no tensor operation happened. ``example_inputs`` are the real tensors, ``fake_inputs`` their
    fakes, in placeholder order. ``fetch`` lists what the guard table passes to the entry: the graph's inputs first,
    then whatever else the entry reads. ``transformed`` is the entry's source; ``namespace`` has the objects its free
    names stand for. ``may_fail``: the graph has operations that fail for some values of their operands. ``sizes`` are
    the symbols in the graph, of which later stages may assume more. ``answers`` are what functions in Python gave
    (function, arguments, result), ``library_data`` what modules have under names: no guard holds what does not change
    while a process runs.
    """

    name: str
    origin: Origin
    graph: torch.fx.GraphModule | None
    example_inputs: tuple[Any, ...]
    fake_inputs: tuple[Any, ...]
    guards: tuple[Guard, ...]
    fetch: tuple[Source, ...]
    transformed: str
    namespace: dict[str, Any] = field(default_factory=dict)
    resumes: tuple[Resume, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    grad_enabled: bool = True
    written_inputs: tuple[int, ...] = ()
    may_fail: bool = False
    sizes: SizeEnvironment = field(default_factory=SizeEnvironment)
    answers: tuple[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any], ...] = ()
    library_data: dict[tuple[str, str], Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """What capture is asked for: a function and the values of its parameters (co_varnames order), as it was called.

    ``resume_names`` is the register of continuations, by key, of the function and all that continues it: a continuation
    keeps its name from entry to entry. ``changes`` says for how many values of a number or a size, or for how many
    generators, an entry had to be added; numbers in ``varying`` parameters are taken to change from the first.
    ``symbolic``: whether the graph may leave sizes open; ``all_symbolic``: whether it does so with those of all tensors
    that are arguments; ``data_sizes``: whether with those that data decide. ``declared`` is what the program says
    beforehand.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    name: str
    resume_names: dict[Hashable, str] = field(default_factory=dict)
    changes: dict[Source, int] = field(default_factory=dict)
    fullgraph: bool = False
    varying: Collection[str] = ()
    symbolic: bool = False
    all_symbolic: bool = False
    data_sizes: bool = False
    declared: DeclaredSizes = field(default_factory=dict)
