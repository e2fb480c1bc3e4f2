"""What autodiff hands on: forward and backward ATen graphs, what is saved between them, and what the runtime must do.

Input of the record is a captured graph; output are graphs that neither mutate nor alias. All that eager does beside
computing values (writing to inputs, returning inputs and views, marking what needs a gradient) stands here as data.

``cos(cos(x))`` in training gives::

    forward(x)            -> (cos_1,)              saved: x (an input), 4 * numel bytes
    backward(x, t)        -> (grad_x,)
    outputs               =  (Computed(0, requires_grad=True),)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
import torch.fx

from .origin import UNKNOWN, Origin
from .size_places import SizePlaces, has_sizes, in_numbers
from .tensor_spec import TensorSpec


@dataclass(frozen=True)
class TensorRef:
    """Where a tensor is found around a call of the forward graph: ``inputs[index]`` or ``outputs[index]``."""

    kind: str  # "input" or "output"
    index: int


@dataclass(frozen=True)
class SavedTensor:
    """One tensor kept from forward to backward.

    ``name`` is its name in both graphs, ``place`` where the runtime takes it from (an input costs nothing extra),
    ``bytes`` its size, ``reason`` why it is kept rather than computed again, ``origin`` the user's line that made it.
    ``strides`` are those with which the compiled forward leaves it, known once that is lowered; None for eager's.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    bytes: int
    reason: str
    place: TensorRef
    origin: Origin = UNKNOWN
    strides: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Mutation:
    """An input that the user's code writes to: after the forward, ``inputs[input].copy_(outputs[output])``.

    ``tracked``: eager's write was recorded by autograd, so the copy is too. ``bumps_version``: False for writes that
    eager hides from version counters (batch norm's running statistics are written inside the kernel).
    """

    input: int
    output: int
    tracked: bool
    bumps_version: bool = True


@dataclass(frozen=True)
class ViewStep:
    """One view operation: ``target(tensor, *args, **kwargs)``, then item ``item`` where it gives several tensors."""

    target: Any  # an ATen operator, or a function of this signature
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    item: int | None = None

    @property
    def is_symbolic(self) -> bool:
        """Whether it has sizes that change from call to call."""
        return has_sizes((self.args, tuple(value for _, value in self.kwargs)))

    def at(self, sizes: Mapping[str, int]) -> ViewStep:
        """The step with numbers for the sizes that change."""
        kwargs = tuple((name, in_numbers(value, sizes)) for name, value in self.kwargs)
        return replace(self, args=in_numbers(self.args, sizes), kwargs=kwargs)

    def apply(self, tensor: torch.Tensor) -> torch.Tensor:
        """The view of ``tensor``."""
        result: Any = self.target(tensor, *self.args, **dict(self.kwargs))
        return result if self.item is None else result[self.item]


class StorageAlias(NamedTuple):
    """Memory of an input or an output: the tensor at ``base`` after the steps."""

    base: TensorRef
    steps: tuple[ViewStep, ...]


@dataclass(frozen=True)
class Computed:
    """A user output that is a tensor of its own: forward output ``index``. ``leaf``: it requires a gradient but has no
    history, as views made under ``no_grad`` of a tensor that has one. ``shown``: the memory that it shows instead of
    its own, where that is an input's or another output's but gradients are not as a view's (a gradient reversal).
    """

    index: int
    requires_grad: bool
    leaf: bool = False
    shown: StorageAlias | None = None


@dataclass(frozen=True)
class InputItself:
    """A user output that is one of the inputs (after any mutation): the caller's own object."""

    index: int


@dataclass(frozen=True)
class SameAs:
    """A user output that is the very object of an earlier user output."""

    index: int


def view_steps(output: Output) -> tuple[ViewStep, ...]:
    """The steps that make a user output of an input or a result when the graph has run."""
    if isinstance(output, ViewOf):
        return output.steps
    return output.shown[1] if isinstance(output, Computed) and output.shown is not None else ()


@dataclass(frozen=True)
class ViewOf:
    """A user output that shares memory with an input or with another output, made again at run time.

    The steps are applied to the tensor at ``base`` outside the compiled graph, so that autograd sees a view.
    ``detached``: it must not require a gradient though its base may. ``leaf``: it does, but has no history, since it
    was made under ``no_grad``.
    """

    base: TensorRef
    steps: tuple[ViewStep, ...]
    detached: bool
    leaf: bool = False


@dataclass(frozen=True)
class Constant:
    """A user output that is no tensor: None, a number, a string."""

    value: Any


Output = Computed | InputItself | SameAs | ViewOf | Constant


@dataclass(frozen=True)
class Gradient:
    """A gradient that the backward graph computes: ``backward output i`` is for ``inputs[input]``.

    ``tangents`` are the positions of the tangents it depends on: when none of them arrived, eager gives None.
    ``ready`` grows in the order in which the backward comes by its gradients.
    """

    input: int
    tangents: frozenset[int]
    ready: int = 0


@dataclass(frozen=True)
class BackwardLiveness:
    """How long what is saved lives: results by their positions in ``Partition.differentiable``.

    ``kills``: for each of them those that eager cannot differentiate after a backward through it that did not retain
    the graph. ``uses``: for each saved tensor, then for each watched one, those whose gradients need it.
    """

    kills: tuple[tuple[int, ...], ...]
    uses: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Part:
    """Results that autograd connects with each other and with no other: by their positions in
    ``Partition.differentiable``. ``kept`` are the positions of what their backward needs, in the saved tensors and then
    the watched ones; ``gradients`` those of what it gives, in ``Partition.gradients``.
    """

    results: tuple[int, ...]
    kept: tuple[int, ...]
    gradients: tuple[int, ...]


TangentLayout = tuple[tuple[Any, ...] | None, ...]
"""The gradients that one backward gets: strides of each tangent, None for one that does not arrive."""


@dataclass(frozen=True)
class PassRecord:
    """What one named pass did: ops before and after it, and a line for each change."""

    name: str
    before: int
    after: int
    changes: tuple[str, ...]


class KeptBackward(NamedTuple):
    """A backward that is in files: a name for where, and the saved tensors that it reads."""

    name: str
    read: tuple[int, ...]


NO_GRAPH = torch.fx.GraphModule({}, torch.fx.Graph())
"""In place of one that is compiled."""


@dataclass(frozen=True)
class Partition:
    """The result of autodiff.

    ``forward``: takes the captured graph's inputs, returns ``(mutated values..., results..., saved...)``, each tensor
    once; the first ``returned`` of them are the mutated values and results. ``backward``: takes ``(saved...,
    tangents...)`` and returns one tensor for each entry of ``gradients``. Both are None-free: tensors in, tensors out.
    ``tangents[i]`` belongs to forward output ``differentiable[i]``. For inference ``backward`` is None, ``joint is
    forward``.

    ``again(arrived)`` gives the partition whose ``backward`` is made for gradients of these strides; it takes the
    tangents that arrive, saves the same tensors and may compute fewer gradients. None where it cannot be made.
    """

    joint: torch.fx.GraphModule
    forward: torch.fx.GraphModule
    backward: torch.fx.GraphModule | None
    saved: tuple[SavedTensor, ...]
    input_names: tuple[str, ...]
    outputs: tuple[Output, ...]
    mutations: tuple[Mutation, ...]
    returned: int
    differentiable: tuple[int, ...] = ()
    tangents: tuple[TensorSpec, ...] = ()
    gradients: tuple[Gradient, ...] = ()
    watched: tuple[int, ...] = ()  # results that show a saved tensor's memory: writing to them must be noticed
    liveness: BackwardLiveness | None = None  # None: one backward kills all results
    parts: tuple[Part, ...] = ()  # (): all results are connected
    passes: tuple[PassRecord, ...] = ()  # in the order in which they ran
    autocast: tuple[str, ...] = ()  # device types whose autocast was on around the call: off while the graphs run
    input_sizes: SizePlaces = field(default_factory=dict)  # where inputs tell the sizes that change
    result_sizes: SizePlaces = field(default_factory=dict)  # where results do
    saved_sizes: SizePlaces = field(default_factory=dict)  # and where saved tensors do
    arrived: TangentLayout | None = None  # the gradients that the backward was made for, if not those assumed
    kept: KeptBackward | None = None  # of a partition without graphs: what is in the files
    again: Callable[[TangentLayout], Partition | None] | None = field(default=None, compare=False, repr=False)

    def after_forward(self) -> Partition:
        """What is left when the forward is compiled: graphs and their fake tensors are most of it."""
        return replace(self, joint=NO_GRAPH, forward=NO_GRAPH)

    def after_backward(self) -> Partition:
        """What is left when ``backward`` is compiled too."""
        return replace(self, joint=NO_GRAPH, forward=NO_GRAPH, backward=NO_GRAPH)

    @property
    def training(self) -> bool:
        return self.backward is not None

    @property
    def read(self) -> tuple[int, ...]:
        """The saved tensors that the backward reads, those that tell a size with them."""
        if self.kept is not None:
            return self.kept.read
        assert self.backward is not None
        placeholders = self.backward.graph.find_nodes(op="placeholder")
        tell = {index for index, _ in self.saved_sizes.values()}
        return tuple(i for i, node in enumerate(placeholders[: len(self.saved)]) if node.users or i in tell)

    @property
    def saved_bytes(self) -> int:
        """Bytes kept for backward, inputs included (they are alive anyway but eager counts them too)."""
        return sum(tensor.bytes for tensor in self.saved)
