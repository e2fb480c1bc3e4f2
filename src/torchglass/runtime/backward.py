"""The backwards of one graph, compiled as gradients arrive for them.

Input: saved tensors and the gradients of results, as the node in the autograd graph has them
(csrc/graph_function.cpp). Output: the gradients of inputs. ``return loss, logits`` of which only the loss is used, and
later both, has two backwards: each is traced and compiled at the first one of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from .._native import below_autograd
from ..records.partition import NO_GRAPH, Part, Partition, TangentLayout
from ..records.size_places import in_numbers, read_sizes
from ..records.tensor_spec import TensorSpec

Graph = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]
"""A compiled graph: takes a list of tensors, which it may clear, and returns a list or tuple of tensors."""

CompileBackward = Callable[[Partition], Graph]
"""Compiles ``partition.backward``."""

NO_DOUBLE_BACKWARD = (
    "torchglass compiles the first derivative only, and this backward was asked to be differentiable itself "
    "(create_graph=True). Compile the function with backend='eager' to take second derivatives."
)

FREED = (
    "torchglass: trying to backward through the graph a second time, for gradients whose backward needs what the first "
    "one freed. Specify retain_graph=True in the first."
)


class Route(NamedTuple):
    """How gradients that arrive in one way are handled."""

    graph: Graph
    taken: tuple[tuple[int, TensorSpec], ...]  # forward output whose gradient the graph takes, and as what
    given: tuple[int | None, ...]  # for each input that is differentiated: the graph's output, None for no gradient
    read: tuple[int, ...]  # the saved tensors that the graph reads


class Backward:
    """The backwards of one graph. Each is compiled at the first backward whose gradients arrive as they do there: which
    outputs have one, and in what layout. Where none can be made, gradients are copied and zeros stand for those that
    are missing.
    """

    def __init__(self, partition: Partition, compile_backward: CompileBackward) -> None:
        if not partition.saved_sizes:  # symbols may have come to numbers that their sizes do not show
            partition = replace(partition, tangents=tuple(_at(spec, {}) for spec in partition.tangents))
        self.partition = partition
        self.compile_backward = compile_backward
        self.routes: dict[TangentLayout, Route] = {}
        self.made: dict[TangentLayout, Route] = {}  # by what matters of the strides
        self.assumed: tuple[Graph, tuple[int, ...]] | None = None  # the partition's own backward, and what it reads
        self.sizes = partition.saved_sizes
        whatever = (ASSUMED,) * len(partition.tangents)
        self.expected = whatever if self.sizes else tuple(_layout(s.shape, s.strides) for s in partition.tangents)

    def __call__(self, tensors: list[Any], tangents: list[torch.Tensor | None]) -> Any:
        """One gradient, or None, for each of the partition's gradients. ``tensors`` are those saved, None for what an
        earlier backward has freed; both lists are used up.
        """
        route = self.route(tensors, tangents)
        computed = below_autograd(route.graph, tensors)
        return [None if place is None else computed[place] for place in route.given]

    def route(self, tensors: list[Any], tangents: list[torch.Tensor | None]) -> Route:
        """How these are handled. ``tensors`` are then what the route's graph takes, ``tangents`` are used up."""
        if torch.is_grad_enabled():
            raise RuntimeError(NO_DOUBLE_BACKWARD)
        at = self._sizes_of(tensors) if self.sizes else {}
        if self.sizes:
            kind: TangentLayout = tuple(map(_kind, tangents))
        else:
            kind = tuple([None if tangent is None else tangent.stride() for tangent in tangents])
        route = self.routes.get(kind)
        if route is None:
            route = self.routes[kind] = self._made_route(kind)
        if self.partition.liveness is not None and any(tensors[index] is None for index in route.read):
            raise RuntimeError(FREED)
        tensors += [_fit(tangents[index], _at(spec, at) if at else spec) for index, spec in route.taken]
        tangents.clear()
        return route

    def _sizes_of(self, tensors: list[Any]) -> dict[str, int]:
        """The sizes that change, as they are in this call."""
        if any(tensors[index] is None for index, _ in self.sizes.values()):
            raise RuntimeError(FREED)
        return read_sizes(self.sizes, tensors)

    def _made_route(self, kind: TangentLayout) -> Route:
        if self.sizes:
            assumed = tuple(spec.strides for spec in self.partition.tangents)
            arrived = tuple(how if kept is ASSUMED else kept for kept, how in zip(kind, assumed))
            return self._compiled(arrived, kind)
        specs = self.partition.tangents
        layouts = tuple(None if s is None else _layout(spec.shape, s) for s, spec in zip(kind, specs))
        if layouts not in self.made and len(self.made) >= MOST_LAYOUTS:
            kind = tuple(None if strides is None else spec.strides for strides, spec in zip(kind, specs))
            layouts = tuple(None if s is None else known for s, known in zip(kind, self.expected))
        if layouts not in self.made:
            self.made[layouts] = self._compiled(kind, layouts)
        return self.made[layouts]

    def _compiled(self, kind: TangentLayout, layouts: TangentLayout) -> Route:
        partition, missing = self.partition, {i for i, strides in enumerate(kind) if strides is None}
        present = [i for i in range(len(kind)) if i not in missing]
        if layouts != self.expected or self._has_let_go():
            again = self._again(kind) if present else None
            if again is not None:
                self.partition = partition.after_backward()
                partition, missing = again, set()
            else:
                present = list(range(len(kind)))
        # inputs that only unused outputs depend on get None, as in eager, not zeros
        places = {
            gradient.input: place
            for place, gradient in enumerate(partition.gradients)
            if not (gradient.tangents and gradient.tangents <= missing)
        }
        given = tuple(places.get(gradient.input) for gradient in self.partition.gradients)
        if not places:
            return Route(lambda tensors: (), (), given, ())
        graph, read = self._as_assumed() if partition is self.partition else self._made_of(partition)
        return Route(graph, tuple(zip(present, partition.tangents)), given, read)

    def _has_let_go(self) -> bool:
        """Whether the partition's own backward is gone before anybody needed it: the gradients of most programs arrive
        in one way, and a graph with its fake tensors is megabytes.
        """
        return self.assumed is None and self.partition.backward is NO_GRAPH

    def _again(self, kind: TangentLayout) -> Partition | None:
        """The partition for the gradients that arrive: as they lie, or else copied to where they were assumed."""
        partition = self.partition
        if partition.again is None:
            return None
        made = partition.again(kind)
        if made is None and None in kind:
            made = partition.again(
                tuple(None if s is None else spec.strides for s, spec in zip(kind, partition.tangents))
            )
        return made

    def _as_assumed(self) -> tuple[Graph, tuple[int, ...]]:
        if self.assumed is None:
            assumed = tuple(spec.strides for spec in self.partition.tangents)
            partition = self._again(assumed) if self._has_let_go() else self.partition
            if partition is None:
                raise RuntimeError("torchglass: backward cannot be traced a second time")
            self.assumed = self._made_of(partition)
            self.partition = self.partition.after_backward()
        return self.assumed

    def _made_of(self, partition: Partition) -> tuple[Graph, tuple[int, ...]]:
        return self.compile_backward(partition), partition.read


class PartBackward:
    """The backward of a part: that of the graph, which nothing arrives for otherwise."""

    def __init__(self, partition: Partition, part: Part, backward: Backward) -> None:
        self.part = part
        self.backward = backward
        self.saved, self.results = len(partition.saved), len(partition.differentiable)

    def __call__(self, tensors: list[Any], tangents: list[torch.Tensor | None]) -> Any:
        saved = _spread(tensors, self.part.kept, self.saved)
        gradients = self.backward(saved, _spread(tangents, self.part.results, self.results))
        return [gradients[index] for index in self.part.gradients]


def _spread(values: list[Any], places: Sequence[int], count: int) -> list[Any]:
    """The values at their places among ``count``, None elsewhere; the list is used up."""
    spread: list[Any] = [None] * count
    for place, value in zip(places, values):
        spread[place] = value
    values.clear()
    return spread


MOST_LAYOUTS = 4
"""Backwards made for the layouts of gradients; those of further layouts are copied."""


def _layout(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Strides without those that say nothing."""
    if 0 in shape:
        return (0,) * len(shape)
    return tuple(stride if size != 1 else 0 for size, stride in zip(shape, strides))


ASSUMED: Any = "as assumed"
"""How a gradient arrives of a size that changes, if not in one of few other ways."""


def _kind(tangent: torch.Tensor | None) -> Any:
    """How a gradient arrives, whatever the sizes are: not at all, as one number in all places, or as it was assumed,
    to which others are copied.
    """
    if tangent is None:
        return None
    numbers = not any(tangent.stride()) and any(size != 1 for size in tangent.shape)
    return (0,) * tangent.dim() if numbers else ASSUMED


def _at(spec: TensorSpec, at: Mapping[str, int]) -> TensorSpec:
    """A gradient's layout in the sizes of a call."""
    return replace(spec, shape=in_numbers(spec.shape, at), strides=in_numbers(spec.strides, at))


def _fit(tangent: torch.Tensor | None, spec: TensorSpec) -> torch.Tensor:
    """The tangent in the layout backward was made for; zeros where the output was not used."""
    if tangent is None:
        return torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype, device=spec.device).zero_()
    if tangent.dtype == spec.dtype:
        strides = tangent.stride()
        if strides == spec.strides:
            return tangent
        if _layout(spec.shape, strides) == _layout(spec.shape, spec.strides):
            return tangent.as_strided(spec.shape, spec.strides)
    fitted = torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype, device=spec.device)
    return fitted.copy_(tangent)
