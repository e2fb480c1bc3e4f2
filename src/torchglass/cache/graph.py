"""What runs the graph of a kept entry: texts and libraries in, a callable out. Backwards load when they are needed."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..records.kept_graph import NotKept, OpenSizes
from ..records.partition import NO_GRAPH, KeptBackward, Partition, TangentLayout
from ..records.segments import CutGraph, Groups
from ..records.side_call import SideCall
from ..records.tensor_spec import TensorSpec
from ..runtime import library, triton_kernels
from ..runtime.graph_calls import GraphCall, by_kernels, by_operators, replayed, with_grad_mode
from ..runtime.inference_mode import making_inference_tensors
from ..runtime.load import graph_file, load
from ..runtime.reconstruct import Undone
from ..runtime.runtime_wrapper import runtime_wrapper
from ..runtime.store import Artifact, load_python
from .constants import read_objects
from .folder import Damaged, Kept
from .kept_sizes import KeptSizes, Notice, Specialized
from .operators import target_facts
from .values import decoded

GRAPH = "graph_0/"
log = logging.getLogger("torchglass.cache")


class CompileKept(NamedTuple):
    """What compiles more of an entry, and adds it to that if it may be.

    ``backward``, of which only the graph was kept: its partition, what its callable needs, its file, what names in that
    stand for, and the entry; and, for a ``CutGraph``, the groups of gradients and their buckets. ``sizes``: what takes
    those that ``hot_calls`` calls have, of the open ones, the captured graph's file, what names in that stand for, the
    entry, the list of what runs for some sizes, and for how many there is something already.
    """

    backward: Callable[..., Any]
    sizes: Callable[..., Notice]
    hot_calls: int


class AskedForFunction(Exception):
    """The graph would run as it was captured, which no text could say: the function itself is to run."""


def _ask(*inputs: Any) -> Any:
    raise AskedForFunction


def graph_call(kept: Kept, compile_kept: CompileKept, specialized: Specialized) -> tuple[GraphCall, bool]:
    """The graph of an entry, and whether it can run as it was captured: else it raises AskedForFunction where that is
    needed. Raises Damaged, and NotKept where an operator is another one here.
    """
    facts = kept.json(f"{GRAPH}graph.json")
    for target, *rest in facts["operators"]:
        if target_facts(decoded(target)) != rest:
            raise NotKept(f"{target} has changed")
    objects = facts["objects"]
    if facts["partition"] is None:
        return _Later(kept, GRAPH, "captured.py", objects).now(), True
    captured = _ask if objects is None else _Later(kept, GRAPH, "captured.py", objects)
    rows = {name: decoded(value) for name, value in facts["partition"].items()}
    backward = NO_GRAPH if facts["training"] else None
    partition = Partition(NO_GRAPH, NO_GRAPH, backward, **rows)
    forward = _side_call(kept, GRAPH, facts["forward"])
    backwards = _Backwards(kept, partition, facts["backwards"], compile_kept.backward)
    if facts["training"]:
        partition = Partition(NO_GRAPH, NO_GRAPH, backward, **rows, again=backwards.again)
    call = runtime_wrapper(partition, forward, backwards.compiled, captured, Undone, backwards.segments)
    call = torch.enable_grad()(call) if facts["enters_grad"] else call
    if facts["inference"] is not None:
        call = making_inference_tensors(call, facts["inference"])
    sizes = _sizes(kept, decoded(facts["open_sizes"]), captured, compile_kept, specialized)
    return sizes.around(call), objects is not None


def _sizes(
    kept: Kept, open_sizes: OpenSizes, captured: Any, compile_kept: CompileKept, specialized: Specialized
) -> KeptSizes:
    """What takes the sizes that many calls have."""

    def load(one: Kept) -> GraphCall:
        call, is_whole = graph_call(one, compile_kept, [])
        if not is_whole:
            raise NotKept("it cannot run as it was captured")
        return call

    def compiler(count: int) -> Notice:
        entry = kept.path if kept.is_users else None
        return compile_kept.sizes(open_sizes, captured.artifact, captured.objects, entry, specialized, count)

    says_all = isinstance(captured, _Later) and open_sizes.inputs
    return KeptSizes(kept, open_sizes, load, compile_kept.hot_calls if says_all else 0, compiler, specialized)


def _with_our_operators(text: str) -> str:
    """A text, and the operators of ours registered if it may call one."""
    if "ops.torchglass" in text:
        importlib.import_module("torchglass.operators")
    return text


def _objects(kept: Kept, folder: str, objects: Mapping[str, Any]) -> dict[str, Any]:
    return read_objects(objects, lambda file: kept.content(f"{folder}{file}"))


@dataclass(frozen=True)
class _Library:
    """In the place of a compiler at work: a library that is there."""

    filename: str
    made: Any

    def result(self) -> Any:
        return self.made

    def stop(self) -> None:
        """Nothing is at work."""


def _side_call(kept: Kept, folder: str, side: Mapping[str, Any]) -> GraphCall:
    """A side in kernels, or by its operators where it has none."""
    name, facts = side["name"], decoded(side["call"])
    assert isinstance(facts, SideCall)
    forward = _Later(kept, folder, f"{name}.py", side["objects"])
    if side["kernels"] is None:
        return with_grad_mode(by_operators(forward.now(), facts), facts)
    kernels = _kernels_call(kept, folder, side["kernels"])
    return with_grad_mode(by_kernels(replayed(kernels, facts), forward, facts), facts)


def _kernels_call(kept: Kept, folder: str, graph: Mapping[str, Any]) -> GraphCall:
    """A graph in kernels, those that it calls first."""
    place = f"{folder}{graph['name']}_wrapper.py"
    wrapper = Artifact(kept.path / place, _with_our_operators(kept.text(place)))
    building = [_Library(kernels, _library(kept, folder, kernels, of)) for kernels, of in graph["libraries"].items()]
    kernels = [Artifact(kept.path / folder / one, kept.text(f"{folder}{one}")) for one in graph["libraries"]]
    called = {name: graph_file(kept.path, _kernels_call(kept, folder, one)) for name, one in graph["called"].items()}
    constants = {**_objects(kept, folder, graph["handed"]), **called}
    return load(wrapper, building, constants=constants, kernels=kernels)  # type: ignore[arg-type]


def _library(kept: Kept, folder: str, kernels: str, name: str) -> Any:
    content = kept.content(f"{folder}{name}")
    if not name.endswith(".so"):
        path = kept.path / folder / kernels
        return triton_kernels.compiling(path, kept.text(f"{folder}{kernels}"), True).result()
    try:
        return library.Library(content)
    except OSError as error:
        raise Damaged(f"{name} cannot be loaded: {error}") from None


class _Later:
    """The function of a graph's file, compiled when it is called: kernels run instead. The file is read at once: the
    folder may go while the program runs.
    """

    def __init__(self, kept: Kept, folder: str, name: str, objects: Mapping[str, Any]) -> None:
        self.artifact = Artifact(kept.path / folder / name, kept.text(f"{folder}{name}"))
        self.objects = _objects(kept, folder, objects)
        self.function: GraphCall | None = None

    def now(self) -> GraphCall:
        """The function itself."""
        if self.function is None:
            _with_our_operators(self.artifact.text)
            self.function = load_python(self.artifact, after=self.objects).forward
        return self.function

    def __call__(self, *inputs: Any) -> Any:
        return self.now()(*inputs)


class _KeptGraph(NamedTuple):
    """The graph of a side, and what its callable needs."""

    call: Any  # as it was kept
    forward: _Later

    @classmethod
    def read(cls, kept: Kept, folder: str, side: Mapping[str, Any]) -> _KeptGraph:
        return cls(side["call"], _Later(kept, folder, f"{side['name']}.py", side["objects"]))

    def compiled(self, by: Callable[..., Any], partition: Partition, *rest: Any) -> Any:
        return by(partition, decoded(self.call), self.forward.artifact, self.forward.objects, *rest)

    def by_operators(self) -> GraphCall:
        facts = decoded(self.call)
        return with_grad_mode(by_operators(self.forward.now(), facts), facts)


class _Backwards:
    """The backwards that were kept with a graph, and those that later backwards of any process added.

    What an entry had from the beginning is read with it: whatever becomes of the folder, there is a backward for what
    its forward has saved.
    """

    def __init__(
        self, kept: Kept, partition: Partition, rows: list[dict[str, Any]], compile_backward: Callable[..., Any]
    ) -> None:
        self.kept, self.partition = kept, partition
        self.compile_backward = compile_backward
        self.found: dict[str, tuple[GraphCall, _KeptGraph]] = {}  # by the names that `again` gives them
        self.own = [(row, _KeptGraph.read(kept, GRAPH, row["side"])) for row in rows]

    def again(self, arrived: TangentLayout) -> Partition | None:
        """The partition for gradients that arrive so, if there is one."""
        later = sorted((self.kept.path / "graph_0").glob("kept_backward*"), key=_number, reverse=True)
        for path in later:
            try:
                kept = type(self.kept)(path)
                row = kept.json("backward.json")
                if self._is_for(row, arrived):
                    graph = _KeptGraph.read(kept, "", row["side"])
                    self.found[path.name] = _side_call(kept, "", row["side"]), graph
                    return self._partition(path.name, row)
            except Exception as error:  # damaged, or deleted meanwhile
                log.info("the backward in %s is not used: %s", path, error)
        for index, (row, graph) in enumerate(self.own):
            if self._is_for(row, arrived):
                partition = self._partition(str(index), row)
                self.found[str(index)] = self._own_call(partition, row["side"], graph), graph
                return partition
        return None

    def compiled(self, partition: Partition) -> GraphCall:
        """What runs the backward that ``again`` found."""
        assert partition.kept is not None
        return self.found[partition.kept.name][0]

    def segments(self, partition: Partition, groups: Groups, buckets: Sequence[int | None]) -> CutGraph | None:
        """The same in segments, which each process compiles: where they end depends on the ranks' buckets."""
        assert partition.kept is not None
        _, graph = self.found[partition.kept.name]
        try:  # segments are added to no entry
            cut: CutGraph | None = graph.compiled(self.compile_backward, partition, None, (groups, buckets))
            return cut
        except Exception as error:
            log.info("the backward of %s is not cut: %s", self.kept.path, error, exc_info=error)
            return None

    def _is_for(self, row: dict[str, Any], arrived: TangentLayout) -> bool:
        return _same_layouts(decoded(row["arrived"]), arrived, self.partition.tangents)

    def _partition(self, name: str, row: dict[str, Any]) -> Partition:
        tangents, gradients = decoded(row["tangents"]), decoded(row["gradients"])
        kept = KeptBackward(name, tuple(row["read"]))
        return replace(self.partition, tangents=tangents, gradients=gradients, kept=kept)

    def _own_call(self, partition: Partition, side: Mapping[str, Any], graph: _KeptGraph) -> GraphCall:
        """Its graph compiled now, or in kernels as it was kept; by its operators where neither is possible."""
        try:
            if side["kernels"] is not None:
                return _side_call(self.kept, GRAPH, side)
            entry = self.kept.path if self.kept.is_users else None
            call: GraphCall = graph.compiled(self.compile_backward, partition, entry)
            return call
        except Exception as error:
            log.info("operators run the backward of %s: %s", self.kept.path, error, exc_info=error)
            return graph.by_operators()


def _number(path: Path) -> int:
    return int(path.name.rpartition("_")[2]) if path.name[-1].isdigit() else 1


def _same_layouts(kept: Any, arrived: TangentLayout, specs: tuple[TensorSpec, ...]) -> bool:
    """Whether gradients arrive as a backward was made for: strides of dimensions of size 1 say nothing."""
    return len(kept) == len(arrived) and all(
        (a is None) == (b is None) and (a is None or _told(a, spec) == _told(b, spec))
        for a, b, spec in zip(kept, arrived, specs)
    )


def _told(strides: Any, spec: TensorSpec) -> tuple[Any, ...]:
    return tuple(stride for stride, size in zip(strides, spec.shape) if size != 1)
