"""CUDA graphs of a side's kernels: mode="reduce-overhead".

    calls 1 to 3    kernels are launched one by one; where inputs lie is noted
    call 4          captured, on a stream of ours, and replayed
    from then on    replayed where inputs lie as they did; else launched

A parameter is read where it lies; an input that lies elsewhere in each call is copied to a place of the graph's own.
What a replay returns stays valid (csrc/cuda_replay.cpp). Sizes that change have a graph each, ``MOST_SHAPES`` at most,
the one unused longest going first, and so have streams. A graph stays only if replaying it takes no longer, host or
GPU, whichever is slower, than launching its kernels did.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from .._native import GraphReplay, begin_draws, end_draws
from ..process.locks import fork_safe_lock
from ..records.side_call import Layout, Replay
from ..records.size_places import layout_places
from ..torch_compat import executable_of, forget_workspaces

log = logging.getLogger("torchglass")

Kernels = Callable[[list[Any]], Any]

LAUNCHED = 3
"""Calls of a shape before it is captured: the first may tune what PyTorch calls, the others are timed."""
MOST_SHAPES = 8
MOST_KNOWN = 64
"""Shapes whose calls are counted: more than ``MOST_SHAPES``."""
MOST_CAPTURES = 4
"""Of a shape, as the places of inputs change."""
MOST_WAITS = 4
"""Calls that a capture waits for, while more than ``SMALL`` bytes of inputs lie elsewhere than in the call before: the
forward of a backward may have been captured just now.
"""
SMALL = 1 << 20
MOST_COPIED = 256 << 20
"""Bytes of inputs that a replay may copy. Copying so many takes an H100 about 0.2 ms."""
UNUSED = 256 << 20
"""Bytes of PyTorch's cached memory, which launched calls used, that are given back before a capture takes its own."""
TIMED = 3
"""Calls that are timed, with kernels launched and with the graph replayed."""
SLOWER = 1.05
"""A graph that takes longer than this times launching its kernels is dropped."""


class Told(NamedTuple):
    """What became of a side's calls. ``launched`` and ``replayed``: milliseconds of a call, where they were measured;
    ``reason``: why no graph is replayed.
    """

    graphs: int
    replays: int
    bytes: int
    moved_bytes: int
    launched: float | None
    replayed: float | None
    reason: str


class Replayed:
    """A side's kernels, as their wrapper calls them: a list of tensors in, which is emptied, results out."""

    def __init__(self, kernels: Kernels, replay: Replay, inputs: Sequence[Layout | None]) -> None:
        self.kernels, self.replay = kernels, replay
        self.changes = bool(layout_places(inputs))
        self.reason = replay.unsafe
        self.shapes: dict[Any, _Shape] = {}
        self.graphs: list[GraphReplay] = []  # the one replayed last first
        self.timed: _Shape | None = None
        self.lock = fork_safe_lock()

    def __call__(self, inputs: list[Any]) -> Any:
        if self.timed is not None:
            results = self._timed(self.timed, inputs)
            if results is not None:
                return results
        for graph in tuple(self.graphs):
            results = graph(inputs)
            if type(results) is tuple:
                if self.graphs[:1] != [graph]:
                    self._brought_forward(graph)
                return results
        return self._launched(inputs)

    def _brought_forward(self, graph: GraphReplay) -> None:
        """Another thread may have dropped it meanwhile, or be at it."""
        if self.lock.acquire(blocking=False):
            if graph in self.graphs:
                self.graphs.remove(graph)
                self.graphs.insert(0, graph)
            self.lock.release()

    def told(self) -> Told:
        """For people."""
        shapes = list(self.shapes.values())
        reasons = [self.reason, *(shape.reason for shape in shapes)]
        return Told(
            len(self.graphs),
            sum(graph.calls for graph in self.graphs),
            sum(graph.bytes for graph in self.graphs),
            sum(graph.moved_bytes for graph in self.graphs),
            *next((shape.times() for shape in shapes if shape.times() != (None, None)), (None, None)),
            next(filter(None, reasons), "") if not self.graphs else "",
        )

    # --- calls without a graph -------------------------------------------------------------------------------------
    def _launched(self, inputs: list[Any]) -> Any:
        if self.reason or not self.lock.acquire(blocking=False):
            return self.kernels(inputs)
        try:
            return self._settled(inputs)
        finally:
            self.lock.release()

    def _settled(self, inputs: list[Any]) -> Any:
        """Launched and noted, or captured where the calls of its shape have settled."""
        devices = {getattr(x, "device", x) for x in inputs if not (x is None or _is_number(x))}
        device = devices.pop() if devices else None
        if devices or getattr(device, "type", "") != "cuda":
            self.reason = "its inputs are not all on one GPU"
            return self.kernels(inputs)
        with torch.cuda.device(device):
            shape = None if torch.cuda.is_current_stream_capturing() else self._shape_of(inputs)
            if shape is None or shape.reason:
                return self.kernels(inputs)
            if not shape.is_due(inputs, self.replay):
                return shape.launch(self.kernels, inputs)
            results = self._captured(shape, inputs)
        return self.kernels(inputs) if results is None else results

    def _shape_of(self, inputs: Sequence[Any]) -> _Shape:
        stream = torch.cuda.current_stream()
        layouts = tuple((x.shape, x.stride()) for x in inputs if x is not None) if self.changes else ()
        key = stream.device, stream.cuda_stream, layouts
        if key not in self.shapes:
            if len(self.shapes) >= MOST_KNOWN:  # the oldest without a graph
                del self.shapes[next(known for known, shape in self.shapes.items() if shape.graph is None)]
            self.shapes[key] = _Shape()
        return self.shapes[key]

    def _captured(self, shape: _Shape, inputs: list[Any]) -> Any:
        """The results of a first replay; None where there is none."""
        self._forget(shape)
        try:
            shape.capture(self.kernels, inputs, self.replay, self.changes)
        except Exception as error:
            shape.reason = f"it could not be captured: {error}".partition("\n")[0]
            log.info("a CUDA graph could not be captured; its kernels are launched", exc_info=error)
            return None
        assert shape.graph is not None
        self.graphs.insert(0, shape.graph)
        unused = self.graphs[MOST_SHAPES:]
        for key in [key for key, known in self.shapes.items() if known.graph in unused]:
            self._forget(self.shapes.pop(key))
        self.timed = shape
        return self._timed(shape, inputs)

    def _timed(self, shape: _Shape, inputs: list[Any]) -> Any:
        """A call while a new graph is on trial; None where that is not for it."""
        graph = shape.graph
        timer = _Timer(shape.replayed)
        results = None if graph is None else graph(inputs)
        if type(results) is not tuple:
            return None
        timer.end()
        verdict = shape.is_slower()
        if verdict is not None:
            self.timed = None
        if verdict:
            self._forget(shape)
        return results

    def _forget(self, shape: _Shape) -> None:
        """Its graph; the memory of that is there until nobody holds a result."""
        if shape.graph in self.graphs:
            self.graphs.remove(shape.graph)
        shape.graph = None


class _Shape:
    """The calls with inputs of one shape, on one stream."""

    def __init__(self) -> None:
        self.graph: GraphReplay | None = None
        self.reason = ""
        self.addresses: list[int] = []  # of the inputs of the call before, which was launched
        self.elsewhere: list[int] = []  # those that a graph was not replayed for
        self.copied: set[int] = set()
        self.moved: set[int] = set()  # since they were read where they lay
        self.calls = self.captures = self.waits = self.missed = 0
        self.replays = 0  # when one was missed last
        self.draws = False  # random numbers
        self.launched: list[_Span] = []
        self.replayed: list[_Span] = []

    def is_due(self, inputs: list[Any], replay: Replay) -> bool:
        """Whether to capture this call, and then which inputs are copied for the graph."""
        before, self.addresses = self.addresses, [0 if x is None else x.data_ptr() for x in inputs]
        self.calls += 1
        if self.graph is not None and not self._has_missed(self.graph, inputs):
            return False
        if self.calls <= LAUNCHED:
            return False
        moved = {place for place, (a, b) in enumerate(zip(before, self.addresses)) if a != b} - self.copied
        if self.graph is not None:  # what has moved once may have moved for good, what moves again will go on
            moved |= self.moved.intersection(self.elsewhere)
            self.moved.update(self.elsewhere)
        self.copied |= {place for place, x in enumerate(inputs) if _is_number(x)}
        if sum(inputs[place].nbytes for place in moved) > SMALL and self.waits < MOST_WAITS:
            self.waits += 1
            return False
        self.copied |= moved
        if sum(inputs[place].nbytes for place in self.copied) > MOST_COPIED:
            self.reason = f"more than {MOST_COPIED >> 20} MiB of its inputs lie elsewhere in each call"
        elif self.copied.intersection(replay.written):
            self.reason = "an input that it writes to lies elsewhere in each call"
        return not self.reason

    def _has_missed(self, graph: GraphReplay, inputs: list[Any]) -> bool:
        """Whether inputs have moved for good: in two calls one after the other."""
        self.elsewhere = graph.elsewhere(inputs)
        if not self.elsewhere or self.captures >= MOST_CAPTURES:
            return False
        self.missed = 1 + (self.missed if self.replays == graph.calls else 0)
        self.replays = graph.calls
        return self.missed > 1

    def launch(self, kernels: Kernels, inputs: list[Any]) -> Any:
        timer = _Timer(self.launched if self.calls > 1 else [])
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        before = generator.get_offset()
        results = kernels(inputs)
        self.draws = generator.get_offset() != before
        timer.end()
        return results

    def capture(self, kernels: Kernels, inputs: list[Any], replay: Replay, changes: bool) -> None:
        """Make the graph. Raises whatever is raised where it cannot be captured."""
        self.captures += 1
        self.missed, self.replayed = 0, []
        with torch.inference_mode(False):
            buffers = tuple(_like(x) if place in self.copied else None for place, x in enumerate(inputs))
        if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > UNUSED:
            torch.cuda.current_stream().synchronize()  # a graph that was dropped may be running in it
            torch.cuda.empty_cache()
        given = [x if buffer is None else buffer for x, buffer in zip(inputs, buffers)]
        graph, results, draws = captured(kernels, given, self.draws)
        returned = len(results) if replay.returned is None else replay.returned
        self.graph = GraphReplay(graph, executable_of(graph), inputs, buffers, tuple(results), returned, changes, draws)

    def times(self) -> tuple[float | None, float | None]:
        return _least(self.launched), _least(self.replayed)

    def is_slower(self) -> bool | None:
        """Whether replaying takes the GPU longer than launching did; None before events tell."""
        if len(self.replayed) < TIMED or not all(span.end.query() for span in (*self.replayed, *self.launched)):
            return None
        launched, replayed = self.times()
        if launched is None or replayed is None or replayed <= SLOWER * launched:
            return False
        self.reason = f"replaying it takes {replayed:.3f} ms, launching its kernels {launched:.3f}"
        return True


def _like(x: torch.Tensor) -> torch.Tensor:
    """Memory on the current GPU."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda")


def _is_number(x: Any) -> bool:
    """Whether it is a single number on the CPU, which operators of the GPU take as well."""
    return isinstance(x, torch.Tensor) and x.device.type == "cpu" and x.numel() == 1


class _Span(NamedTuple):
    """A call: events around its kernels, and the milliseconds that the host was at it."""

    begin: torch.cuda.Event
    end: torch.cuda.Event
    host: float

    def milliseconds(self) -> float:
        """What a call costs a program that makes one after the other: what the slower of the two takes."""
        return max(self.begin.elapsed_time(self.end), self.host)


class _Timer:
    """Adds a call to ``spans``, if these are not enough yet."""

    def __init__(self, spans: list[_Span]) -> None:
        self.spans, self.begin = spans, torch.cuda.Event(enable_timing=True)
        if len(spans) < TIMED:
            self.begin.record()
        self.began = time.perf_counter()

    def end(self) -> None:
        host = 1e3 * (time.perf_counter() - self.began)
        if len(self.spans) < TIMED:
            end = torch.cuda.Event(enable_timing=True)
            end.record()
            self.spans.append(_Span(self.begin, end, host))


def _least(spans: Sequence[_Span]) -> float | None:
    """Milliseconds of the shortest of those that are over."""
    return min((span.milliseconds() for span in spans if span.end.query()), default=None)


@functools.cache
def _stream(device: int) -> torch.cuda.Stream:
    """On which graphs of a GPU are captured."""
    return torch.cuda.Stream(device)


def captured(kernels: Kernels, inputs: list[Any], draws: bool) -> tuple[torch.cuda.CUDAGraph, Sequence[Any], Any]:
    """A CUDA graph of ``kernels(inputs)`` on the current device, what it returned, and its kernels that draw random
    numbers, None without ``draws``: nothing has run. Other threads and streams do as they like meanwhile. Raises
    whatever is raised, with the device as it was.
    """
    graph = torch.cuda.CUDAGraph(keep_graph=draws)
    with _turn, torch.cuda.stream(_stream(torch.cuda.current_device())):
        forget_workspaces()
        if draws:
            begin_draws()
        try:
            graph.capture_begin(capture_error_mode="thread_local")
            results = kernels(inputs)
            graph.capture_end()
        except BaseException:
            _abandon(graph)
            raise
        finally:
            drawn = end_draws() if draws else None
    if draws:
        graph.instantiate()
    forget_workspaces()
    return graph, results, drawn


_turn = fork_safe_lock()


def _abandon(graph: torch.cuda.CUDAGraph) -> None:
    """End a capture that failed. The generator that PyTorch registers with each capture is free again after one that
    succeeds.
    """
    with contextlib.suppress(RuntimeError):
        graph.capture_end()
    with contextlib.suppress(RuntimeError):
        again = torch.cuda.CUDAGraph()
        again.capture_begin(capture_error_mode="thread_local")
        torch.zeros((), device="cuda")
        again.capture_end()
