"""What a call of compiled code costs besides its graph: guards, fetching parameters, entering.

    python -m benchmarks.call_overhead --parameters 2 400 --breaks 10 --json overhead.json

A module of nested blocks with so many parameters is compiled with a backend whose graph does nothing, so what is
timed is the call: microseconds, the median of interleaved rounds. ``module()`` is the call of an eager module with an
empty forward, which every compiled module passes through too; ``graph()`` is the backend's function, called by Python
with as many inputs: not a cost of compiled code's, but in the times of both compilers. ``dynamic`` entries take any
number of rows. ``table`` is our native table and dispatcher with guards made by hand, without ``nn.Module.__call__``
and without a graph. ``after a change`` makes a dictionary before each call of ``torchglass``: up to Python 3.11 every
module is then looked at. ``after a swap`` gives all modules other parameters and their own again before each call, as
FSDP2 does; ``swap`` is that alone. ``--breaks`` times a function with so many graph breaks, each around an operation:
once at ``graph_break()``, once at calls of a function that breaks inside.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from torchglass.records.guards import Guard, TensorMeta
from torchglass.records.sources import InstanceDict, Item, Local, Source
from torchglass.runtime.dispatch import compiled_function
from torchglass.runtime.guards import build_table, global_state

from .common import arguments as model_arguments
from .common import write_json


class Block(nn.Module):
    """Up to ten linear layers, two to a child, as deep as a transformer's."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.children_ = nn.ModuleList(nn.Sequential(*(nn.Linear(4, 4) for _ in range(2))) for _ in range(layers // 2))
        self.last = nn.Linear(4, 4) if layers % 2 else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for child in self.children_:
            x = child(x)
        return x if self.last is None else self.last(x)


class Tower(nn.Module):
    """Blocks with ``parameters`` parameters in all."""

    def __init__(self, parameters: int) -> None:
        super().__init__()
        layers = parameters // 2
        self.blocks = nn.ModuleList(Block(min(10, layers - start)) for start in range(0, layers, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Empty(nn.Module):
    """A module that does nothing."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def no_op(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., tuple[torch.Tensor]]:
    """A backend whose graph returns the same tensor every time."""
    result = (torch.zeros(3, 4),)
    return lambda *inputs: result


def guards_by_hand(source: Source, module: nn.Module) -> Iterator[tuple[Guard, Source | None]]:
    """Guards as capture makes them for a module: its class, flags, hooks, children and parameters."""
    fields = InstanceDict(source)
    yield Guard(source, "type", type(module)), None
    yield Guard(Item(fields, "training"), "constant", module.training), None
    for hooks in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks"):
        yield Guard(Item(fields, hooks), "length", 0), None
    for name, parameter in module._parameters.items():
        where = Item(Item(fields, "_parameters"), name)
        yield Guard(where, "tensor", TensorMeta.of(parameter)), where
    yield Guard(Item(fields, "_modules"), "dict_keys", tuple(module._modules)), None
    for name, child in module._modules.items():
        if child is not None:
            yield from guards_by_hand(Item(Item(fields, "_modules"), name), child)


def table_alone(model: nn.Module, x: torch.Tensor) -> Callable[..., Any]:
    """Our table and dispatcher on guards made by hand."""

    def forward(self: nn.Module, x: torch.Tensor) -> None: ...

    pairs = list(guards_by_hand(Local("self"), model))
    guards = [guard for guard, _ in pairs]
    guards += [Guard(Local("x"), "tensor", TensorMeta.of(x)), Guard(None, "global_state", global_state())]
    fetch = [source for _, source in pairs if source is not None]
    compiled = compiled_function(forward, lambda arguments: None, bound=(model,))
    compiled.add_entry(build_table(guards, fetch, forward), lambda self, x, fetched: x)
    return compiled


def graph_alone(model: nn.Module, x: torch.Tensor) -> Callable[..., Any]:
    """The backend's function on the inputs that a graph of the model has."""
    graph, inputs = no_op(torch.fx.GraphModule({}, torch.fx.Graph()), ()), (x, *model.parameters())
    return lambda x: graph(*inputs)


def ours(model: nn.Module, x: torch.Tensor, dynamic: bool | None = None) -> Callable[..., Any]:
    import torchglass as tg

    return tg.compile(model, backend=no_op, dynamic=dynamic)


def after_a_change(model: nn.Module, x: torch.Tensor) -> Callable[..., Any]:
    compiled = ours(model, x)
    return lambda x: ({}, compiled(x))


def swap(model: nn.Module, x: torch.Tensor) -> Callable[..., Any]:
    """Puts other parameters in the place of the model's, and these again."""
    own = [(child._parameters, name, p) for child in model.modules() for name, p in child._parameters.items()]
    others = [(rows, name, None if p is None else nn.Parameter(p.detach().clone())) for rows, name, p in own]

    def swapped(x: torch.Tensor) -> None:
        for rows, name, parameter in (*others, *own):
            rows[name] = parameter

    return swapped


def after_a_swap(model: nn.Module, x: torch.Tensor) -> Callable[..., Any]:
    compiled, swapped = ours(model, x), swap(model, x)
    return lambda x: (swapped(x), compiled(x))


SIDES: dict[str, Callable[[nn.Module, torch.Tensor], Callable[..., Any]]] = {
    "module()": lambda model, x: Empty(),
    "graph()": graph_alone,
    "table": table_alone,
    "torchglass": ours,
    "torchglass dynamic": lambda model, x: ours(model, x, dynamic=True),
    "after a change": after_a_change,
    "swap": swap,
    "after a swap": after_a_swap,
    "torch.compile": lambda model, x: torch.compile(model, backend=no_op),
    "torch.compile dynamic": lambda model, x: torch.compile(model, backend=no_op, dynamic=True),
}


def breaking(count: int, graph_break: Callable[[], None]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function with ``count`` graph breaks."""

    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(count):
            x = x + 1
            graph_break()
        return x

    return function


def calling(count: int, graph_break: Callable[[], None]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function with ``count`` calls of one that breaks."""

    def step(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        graph_break()
        return x * 2

    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(count):
            x = step(x)
        return x

    return function


def our_breaks(make: Callable[..., Any], count: int) -> Callable[..., Any]:
    import torchglass as tg

    return tg.compile(make(count, tg.graph_break), backend=no_op)


def their_breaks(make: Callable[..., Any], count: int) -> Callable[..., Any]:
    import torch._dynamo

    return torch.compile(make(count, torch._dynamo.graph_break), backend=no_op)


def measure_breaks(count: int, rounds: int) -> list[Overhead]:
    """Both compilers on functions with ``count`` breaks; ``parameters`` of the rows is the number of breaks."""
    x = torch.zeros(3, 4)
    rows = []
    for make in (breaking, calling):
        with torch.no_grad():
            calls = {"torchglass": our_breaks(make, count), "torch.compile": their_breaks(make, count)}
            first = {side: first_call(call, x) for side, call in calls.items()}
            taken = microseconds(calls, x, rounds)
        for side, samples in taken.items():
            low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
            rows.append(Overhead(f"{side} {make.__name__}", count, median, low, high, first[side]))
    return rows


@dataclass(frozen=True)
class Overhead:
    """Microseconds a call, the median and the quartiles of the rounds; seconds of the first call."""

    side: str
    parameters: int
    median: float
    low: float
    high: float
    first: float


def first_call(call: Callable[..., Any], x: torch.Tensor) -> float:
    begin = time.perf_counter()
    call(x)
    seconds = time.perf_counter() - begin
    for _ in range(20):
        call(x)
    return seconds


def warm_call(call: Callable[..., Any], x: torch.Tensor) -> float:
    """Seconds of a call after others: the first that follows another side's finds the caches full of that one's."""
    first_call(call, x)
    begin = time.perf_counter()
    for _ in range(10):
        call(x)
    return (time.perf_counter() - begin) / 10


def microseconds(calls: dict[str, Callable[..., Any]], x: torch.Tensor, rounds: int) -> dict[str, list[float]]:
    """So many rounds of calls for two milliseconds, at least ten, for each side, turn by turn."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    repeats = {name: max(10, int(2e-3 / warm_call(call, x))) for name, call in calls.items()}
    for _ in range(rounds):
        for name, call in calls.items():
            count = repeats[name]
            begin = time.perf_counter()
            for _ in range(count):
                call(x)
            taken[name].append((time.perf_counter() - begin) / count * 1e6)
    return taken


def measure(parameters: int, sides: Sequence[str], rounds: int) -> list[Overhead]:
    """All sides on one tower, each on a copy of its own."""
    x = torch.zeros(3, 4)
    with torch.no_grad():
        calls = {side: SIDES[side](Tower(parameters), x) for side in sides}
        first = {side: first_call(call, x) for side, call in calls.items()}
        taken = microseconds(calls, x, rounds)
    rows = []
    for side, samples in taken.items():
        low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
        rows.append(Overhead(side, parameters, median, low, high, first[side]))
    return rows


def shown(rows: list[Overhead]) -> list[Overhead]:
    for row in rows:
        quartiles = f"{row.low:.2f} .. {row.high:.2f}"
        print(f"{row.parameters:>10} {row.side:<24} {row.median:>8.2f} {quartiles:>19} {row.first:>13.2f}")
    return rows


def main() -> None:
    parser = model_arguments(__doc__)
    parser.set_defaults(sides=list(SIDES))
    options = next(action for action in parser._actions if action.dest == "sides")
    options.choices = list(SIDES)
    parser.add_argument("--parameters", type=int, nargs="+", default=[2, 400])
    parser.add_argument("--breaks", type=int, nargs="*", default=[10])
    parser.add_argument("--rounds", type=int, default=200)
    chosen = parser.parse_args()
    rows = []
    print(f"{'parameters':>10} {'side':<24} {'µs':>8} {'quartiles':>19} {'first call s':>13}")
    for parameters in chosen.parameters:
        rows += shown(measure(parameters, chosen.sides, chosen.rounds))
    for count in chosen.breaks:
        rows += shown(measure_breaks(count, chosen.rounds))
    write_json(chosen.json, "call_overhead", rows)


if __name__ == "__main__":
    main()
