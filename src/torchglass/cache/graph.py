"""What runs the graph of a kept entry: texts and libraries in, a callable out. Backwards load when they are needed."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..records.kept_graph import NotKept
from ..records.partition import NO_GRAPH, KeptBackward, Partition, TangentLayout
from ..records.side_call import SideCall
from ..records.tensor_spec import TensorSpec
from ..runtime import library, triton_kernels
from ..runtime.graph_calls import GraphCall, by_kernels, by_operators, with_grad_mode
from ..runtime.inference_mode import making_inference_tensors
from ..runtime.load import load
from ..runtime.reconstruct import Undone
from ..runtime.runtime_wrapper import runtime_wrapper
from ..runtime.store import Artifact, load_python
from .constants import read_objects
from .folder import Damaged, Kept
from .objects import operator_facts
from .values import decoded, encoded

GRAPH = "graph_0/"


class AskedForFunction(Exception):
    """The graph would run as it was captured, which no text could say: the function itself is to run."""


def _ask(*inputs: Any) -> Any:
    raise AskedForFunction


def graph_call(kept: Kept) -> tuple[GraphCall, bool]:
    """The graph of an entry, and whether it can run as it was captured: else it raises AskedForFunction where that is
    needed. Raises Damaged, and NotKept where an operator is another one here.
    """
    facts = kept.json(f"{GRAPH}graph.json")
    for target, *rest in facts["operators"]:
        operator = decoded(target)
        if [encoded(operator), *operator_facts(operator)] != [target, *rest]:
            raise NotKept(f"the operator {operator} has changed")
    objects = facts["objects"]
    captured = _ask if objects is None else _function(kept, GRAPH, "captured.py", objects)
    if facts["partition"] is None:
        return captured, True
    rows = {name: decoded(value) for name, value in facts["partition"].items()}
    backward = NO_GRAPH if facts["training"] else None
    partition = Partition(NO_GRAPH, NO_GRAPH, backward, **rows)
    forward = _side_call(kept, GRAPH, facts["forward"])
    backwards = _Backwards(kept, partition, facts["backwards"])
    if facts["training"]:
        partition = Partition(NO_GRAPH, NO_GRAPH, backward, **rows, again=backwards.again)
    call = runtime_wrapper(partition, forward, backwards.compiled, captured, Undone)
    call = torch.enable_grad()(call) if facts["enters_grad"] else call
    if facts["inference"] is not None:
        call = making_inference_tensors(call, facts["inference"])
    return call, objects is not None


def _function(kept: Kept, folder: str, name: str, objects: Mapping[str, Any]) -> GraphCall:
    """The function of a graph's file."""
    artifact = Artifact(kept.path / folder / name, kept.text(f"{folder}{name}"))
    function: GraphCall = load_python(artifact, after=_objects(kept, folder, objects)).forward
    return function


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
    forward = _Later(functools.partial(_function, kept, folder, f"{name}.py", side["objects"]))
    if not side["wrapper"]:
        return with_grad_mode(by_operators(forward, facts), facts)
    place = f"{folder}{name}_wrapper.py"
    wrapper = Artifact(kept.path / place, kept.text(place))
    building = [_Library(kernels, _library(kept, folder, kernels, of)) for kernels, of in side["libraries"].items()]
    kernels = [Artifact(kept.path / folder / one, kept.text(f"{folder}{one}")) for one in side["libraries"]]
    constants = _objects(kept, folder, side["handed"])
    call = load(wrapper, building, constants=constants, kernels=kernels)  # type: ignore[arg-type]
    return with_grad_mode(by_kernels(call, forward, facts), facts)


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
    """A graph's function, loaded when it is called: kernels run instead."""

    def __init__(self, load: functools.partial[GraphCall]) -> None:
        self.load = load
        self.function: GraphCall | None = None

    def __call__(self, *inputs: Any) -> Any:
        if self.function is None:
            self.function = self.load()
        return self.function(*inputs)


class _Backwards:
    """The backwards that were kept with a graph, and those that later backwards of any process added."""

    def __init__(self, kept: Kept, partition: Partition, rows: list[dict[str, Any]]) -> None:
        self.kept, self.partition, self.rows = kept, partition, rows

    def _all(self) -> Iterator[tuple[str, Kept, str, dict[str, Any]]]:
        """Where each is, by a name for it; those that were compiled first, and of these the latest."""
        for path in sorted((self.kept.path / "graph_0").glob("kept_backward*"), key=_number, reverse=True):
            try:
                later = Kept(path)
                yield path.name, later, "", later.json("backward.json")
            except Damaged:
                continue
        for index, row in enumerate(self.rows):
            yield str(index), self.kept, GRAPH, row

    def again(self, arrived: TangentLayout) -> Partition | None:
        """The partition for gradients that arrive so, if there is one."""
        for name, _, _, row in self._all():
            if _same_layouts(decoded(row["arrived"]), arrived, self.partition.tangents):
                kept = KeptBackward(name, tuple(row["read"]))
                tangents, gradients = decoded(row["tangents"]), decoded(row["gradients"])
                return replace(self.partition, tangents=tangents, gradients=gradients, kept=kept)
        return None

    def compiled(self, partition: Partition) -> GraphCall:
        """What runs the backward that ``again`` found."""
        assert partition.kept is not None
        for name, kept, folder, row in self._all():
            if name == partition.kept.name:
                return _side_call(kept, folder, row["side"])
        raise Damaged(f"{partition.kept.name} is gone from {self.kept.path}")


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
