"""Lazy specialization: a graph whose sizes are open is compiled again for sizes that many of its calls have.

    call 32 of s0=8, s1=512     in a thread of ours: the captured graph in these numbers, through all its stages
    a later one                 csrc/size_dispatch.cpp: one comparison, and what was compiled for 8 and 512 runs

The entry's guards have been checked for each of these calls, and its code calls the graph as before: nothing is
captured again. What is compiled for numbers has its own folder beside the graph's files, ``s0_8_s1_512``. A graph has
at most ``MOST_VARIANTS``; all other sizes run the one that is for all of them.

TensorRT-RTX does the same for inference ("shape-specialized kernels": docs.nvidia.com/deeplearning/tensorrt-rtx).
"""

from __future__ import annotations

import _thread
import atexit
import functools
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.fx
from torch.fx.node import map_aggregate

from . import torch_compat
from ._native import SizeDispatch
from .cache.keep import keep_sizes
from .compilation.job import alone
from .compilation.timing import compiling
from .graph_pipeline import GraphPipeline, compiling_graph
from .options import CompileOptions
from .process import interrupts, threads
from .records.compilation import Compilation, GraphRecord
from .records.kept_graph import KeptEntry, OpenInput, OpenSizes
from .records.render_graph import sub_graph_of
from .records.size_places import in_numbers, layout_of, shown, size_places, symbols_of
from .runtime.edits import retraced_file
from .runtime.graph_calls import GraphCall
from .runtime.reconstruct import Undone
from .runtime.store import Artifact, Folder, current_store

log = logging.getLogger("torchglass")

MOST_VARIANTS = 4


def by_sizes(
    compilation: Compilation, graph: GraphPipeline, gm: torch.fx.GraphModule, fakes: Sequence[Any]
) -> GraphCall:
    """What runs a graph that has just been compiled from ``gm`` and its fake inputs: itself, or a dispatch by sizes."""
    after = graph.job.options.get("hot_calls")
    if not after or not graph.runs_generated_kernels:
        return compilation.call
    names = symbols_of(fakes)
    if not names or not all(map(torch_compat.is_plain, fakes)):
        return compilation.call
    places = size_places(fakes, names)
    names |= symbols_of((node.args, tuple(node.kwargs.values())) for node in gm.graph.nodes)
    if names - places.keys():  # those that data decide
        return compilation.call
    graph.open_sizes = OpenSizes(tuple(places), tuple(places.values()), _inputs(gm, fakes))
    job, record = graph.job, compilation.record
    captured = functools.partial(_captured_in_numbers, gm, fakes)
    facts = graph.open_sizes.names, job.options, job.folder, record.specialized, graph.entry, graph.undone
    return SizeDispatch(compilation.call, graph.open_sizes.places, after, HotSizes(captured, *facts))


def _inputs(gm: torch.fx.GraphModule, fakes: Sequence[torch.Tensor]) -> tuple[OpenInput, ...]:
    """What later processes need to compile the graph of its text; nothing where that does not say all of it."""
    unsaid = any("checkpoint_region" in node.meta or sub_graph_of(gm, node) is not None for node in gm.graph.nodes)
    if unsaid or any(fake.is_inference() or not fake.is_leaf for fake in fakes):
        return ()
    return tuple(OpenInput(layout_of(fake), str(fake.device), fake.requires_grad) for fake in fakes)


def of_kept(
    options: CompileOptions,
    name: str,
    open_sizes: OpenSizes,
    artifact: Artifact,
    objects: Mapping[str, Any],
    entry: Path | None,
    specialized: list[tuple[str, GraphRecord]],
    kept: int,
) -> HotSizes:
    """Takes sizes of a graph that was found: its file, and what names in that stand for. What is compiled is added to
    ``entry`` if there is one. There are graphs for so many sizes already.
    """

    def kept_in_numbers(at: Mapping[str, int]) -> tuple[torch.fx.GraphModule, list[Any]]:
        mode = torch_compat.new_fake_mode()
        fakes = [_fake_of(mode, one, at) for one in open_sizes.inputs]
        return retraced_file(artifact, objects, fakes), fakes

    folder = current_store().folder(name, artifact).child("kept").child("graph_0")
    facts = open_sizes.names, options, folder, specialized, KeptEntry(entry), Undone
    return HotSizes(kept_in_numbers, *facts, kept + MOST_VARIANTS)


def _fake_of(mode: Any, one: OpenInput, at: Mapping[str, int]) -> torch.Tensor:
    sizes, strides, dtype = one.layout
    with mode:
        fake = torch.empty_strided(in_numbers(sizes, at), in_numbers(strides, at), dtype=dtype, device=one.device)
    return fake.requires_grad_(one.requires_grad)


@dataclass(frozen=True, eq=False)
class HotSizes:
    """Takes sizes that are worth a compile, amid a call of the program's in any of its threads. ``graph``: what is
    compiled, and its inputs, with numbers for the sizes.
    """

    graph: Callable[[Mapping[str, int]], tuple[torch.fx.GraphModule, list[Any]]]
    names: Sequence[str]
    options: CompileOptions
    folder: Folder
    specialized: list[tuple[str, GraphRecord]]
    entry: KeptEntry
    undone: type[Exception] | None
    most: int = MOST_VARIANTS

    def __call__(self, dispatch: SizeDispatch, sizes: tuple[int, ...]) -> bool:
        """Whether these sizes are taken: not while others are, amid a compile, or under modes that would see it.

        Nor while anomalies are detected, which a compile turns off for all threads.
        """
        if compiling.is_at_work() or interrupts.is_handling() or torch_compat.has_modes() or torch.is_anomaly_enabled():
            return False
        if not _turn.one.acquire(blocking=False):
            return False
        device = torch.cuda.current_device() if torch.cuda.is_initialized() else None
        work = functools.partial(self._run, dispatch, sizes, torch_compat.ThreadState(), device)
        begun = threads.start(_turn.run, [work])
        if not begun:
            _turn.one.release()
        return begun

    def _run(self, dispatch: SizeDispatch, sizes: tuple[int, ...], state: Any, device: int | None) -> None:
        at = dict(zip(self.names, sizes))
        try:
            state.restore()
            if device is not None:
                torch.cuda.set_device(device)
            call = compiling.undisturbed(lambda: self._compiled(at))
            if call is not None:
                dispatch.add(sizes, call)
                log.info("`%s` is compiled for %s alone as well", self.folder.function_name, shown(at))
        except BaseException as error:  # the graph for all sizes goes on
            log.debug("compiling `%s` for %s failed", self.folder.function_name, shown(at), exc_info=error)
        finally:
            if dispatch.taken >= self.most:
                dispatch.end()

    def _compiled(self, at: Mapping[str, int]) -> GraphCall | None:
        """The graph for these sizes; None where operators would run it."""
        folder = self.folder.child("_".join(f"{name}_{size}" for name, size in at.items()))
        gm, fakes = alone(self.graph, at)
        with compiling_graph(gm, fakes, self.options, folder, fakes, undone=self.undone) as graph:
            graph.start_backward()
            with _turn.idle():
                graph.wait()
            compilation = graph.finish()
            if compilation.record.fallbacks:
                return None
            if self.entry.path is not None:
                keep_sizes(self.entry.path, [*at.values()], gm, graph.kept)
        self.specialized.append((shown(at), compilation.record))
        return compilation.call


def _captured_in_numbers(
    gm: torch.fx.GraphModule, fakes: Sequence[Any], at: Mapping[str, int]
) -> tuple[torch.fx.GraphModule, list[Any]]:
    """The graph and its inputs with numbers for the sizes that are open, under a fake mode of their own: in that of
    the captured graph another thread may be tracing its backward.
    """
    mode = torch_compat.new_fake_mode()
    known = {id(fake): torch_compat.fake_of(mode, fake, *_layout(fake, at)) for fake in fakes}
    graph, new = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node]()

    def number(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return new[value]
        return known[id(value)] if id(value) in known else _result(mode, value, at)

    for node in gm.graph.nodes:
        args, kwargs = map_aggregate(node.args, number), map_aggregate(node.kwargs, number)
        copy = new[node] = graph.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        copy.meta = {key: map_aggregate(value, number) for key, value in node.meta.items() if key in VALUES}
        copy.meta |= {key: value for key, value in node.meta.items() if key not in VALUES}
    return torch.fx.GraphModule(gm, graph), [known[id(fake)] for fake in fakes]


VALUES = ("val", "example_value")
"""What a node's meta has of its results."""


def _layout(fake: torch.Tensor, at: Mapping[str, int]) -> tuple[Any, Any]:
    return in_numbers(tuple(fake.shape), at), in_numbers(fake.stride(), at)


def _result(mode: Any, value: Any, at: Mapping[str, int]) -> Any:
    """A number in the place of a size, and of a result its layout, for the comments in the graph's file."""
    if not isinstance(value, torch_compat.FakeTensor):
        return in_numbers(value, at)
    return torch_compat.fake_like(mode, value, *_layout(value, at)) if value.layout is torch.strided else None


# --- threads ----------------------------------------------------------------------------------------------------------
class _Turn:
    """``one`` is held while a graph is compiled for its sizes: one at a time. ``busy`` is while a thread of ours may
    have frames of PyTorch's on its stack, as it has when it drops the last of what it made: the interpreter, which ends
    threads wherever they ask for the GIL, must not end one there. It would unwind C++ that cannot be: an abort.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Nobody is at work: in a forked process not even who was, in its parent."""
        self.one, self.busy = _thread.allocate_lock(), _thread.allocate_lock()

    def run(self, work: list[Callable[[], None]]) -> None:
        """``work.pop()()``, so that nothing of it is left afterwards: neither in this thread's frames nor in what
        PyTorch keeps for it, which goes with the thread.
        """
        with self.busy:
            interrupts.may_be_ended.add(_thread.get_ident())
            before = torch_compat.ThreadState()
            try:
                work.pop()()
            finally:
                before.restore()
                interrupts.may_be_ended.discard(_thread.get_ident())
        self.one.release()

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Wait in here, for compilers: the thread may be ended."""
        self.busy.release()
        try:
            yield
        finally:
            self.busy.acquire()

    def end(self) -> None:
        """No thread of ours goes on from here: one at work stops where nothing is half done, and those that wait for a
        lock may be ended.
        """
        interrupts.end_threads()
        self.busy.acquire()


_turn = _Turn()


def wait() -> None:
    """Until nothing is being compiled for its sizes any more."""
    with _turn.one:
        pass


atexit.register(_turn.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_turn.begin)
