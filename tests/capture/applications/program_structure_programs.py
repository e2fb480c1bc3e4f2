"""How programs are put together: registries, decorators, dispatch, contexts, records, metrics."""

# ruff: noqa: B018, B019, UP033
from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import typing

import torch

from ..tables import rand, table

PROGRAMS, program = table()


class Batch(typing.TypedDict, total=False):
    image: torch.Tensor
    label: torch.Tensor
    weight: float


class Reduction(enum.Enum):
    MEAN = "mean"
    SUM = "sum"

    def __call__(self, x):
        return getattr(x, self.value)()

    @classmethod
    def of(cls, name):
        return next((member for member in cls if member.value == name), cls.MEAN)


@program
def typed_batches_and_enums():
    def f(batch: Batch, reduction):
        kind = Reduction.of(reduction) if isinstance(reduction, str) else reduction
        loss = kind((batch["image"] - batch.get("label", torch.zeros(3))) ** 2) * batch.get("weight", 1.0)
        out: Batch = Batch(image=batch["image"] + 1, weight=2.0)
        return loss, out, kind.name, kind is Reduction.SUM

    x = rand(3)
    return f, [(Batch(image=x), "sum"), (Batch(image=x, label=x + 1, weight=0.5), Reduction.MEAN), ({"image": x}, "?")]


@program
def registries_and_plugins():
    REGISTRY = {}

    def register(name=None, **defaults):
        def wrap(target):
            REGISTRY[name or target.__name__.lower()] = functools.partial(target, **defaults)
            return target

        return wrap

    @register(slope=0.2)
    def leaky(x, slope):
        return torch.where(x > 0, x, slope * x)

    @register("square")
    class Square:
        def __init__(self, power=2):
            self.power = power

        def __call__(self, x):
            return x**self.power

    def build(spec):
        name, options = (
            (spec, {}) if isinstance(spec, str) else (spec["name"], {k: v for k, v in spec.items() if k != "name"})
        )
        if name not in REGISTRY:
            raise KeyError(f"unknown {name!r}; have {', '.join(sorted(REGISTRY))}")
        return REGISTRY[name], options

    def f(x, *specs):
        for spec in specs:
            made, options = build(spec)
            x = made(**options)(x) if isinstance(made.func, type) else made(x, **options)
        return x

    x = rand(3)
    return f, [
        (x, "leaky", "square"),
        (x, {"name": "leaky", "slope": 0.5}, {"name": "square", "power": 3}),
        (x, "none"),
    ]


@program
def decorators_with_state():
    class Counted:
        def __init__(self, function):
            functools.update_wrapper(self, function)
            self.function, self.calls = function, 0

        def __call__(self, *args, **kwargs):
            self.calls += 1
            return self.function(*args, **kwargs)

        def __get__(self, owner, cls=None):
            return self if owner is None else functools.partial(self, owner)

    def retried(times):
        def wrap(function):
            @functools.wraps(function)
            def inner(*args, **kwargs):
                for attempt in range(times):
                    try:
                        return function(*args, attempt=attempt, **kwargs)
                    except ValueError as error:
                        last = error
                raise RuntimeError("gave up") from last

            return inner

        return wrap

    class Model:
        @Counted
        def scale(self, x):
            return x * 2

        @retried(3)
        def fragile(self, x, needed, attempt):
            if attempt < needed:
                raise ValueError(attempt)
            return x + attempt

    model = Model()

    def f(x, needed):
        return model.scale(x) + model.fragile(x, needed), Model.scale.calls, Model.fragile.__name__

    return f, [(rand(2), n) for n in (0, 1, 5, 1)]


@program
def dispatch_on_types():
    @functools.singledispatch
    def to_tensor(value, scale=1):
        raise TypeError(type(value).__name__)

    @to_tensor.register
    def _(value: torch.Tensor, scale=1):
        return value * scale

    @to_tensor.register(list)
    @to_tensor.register(tuple)
    def _(value, scale=1):
        return torch.stack([to_tensor(v, scale) for v in value])

    @to_tensor.register
    def _(value: float, scale=1):
        return torch.full((2,), value * scale)

    class Visitor:
        @functools.singledispatchmethod
        def visit(self, node):
            return ("?", node)

        @visit.register
        def _(self, node: int):
            return ("int", node + 1)

        @visit.register
        def _(self, node: dict):
            return {k: self.visit(v) for k, v in node.items()}

    visitor = Visitor()

    def f(value):
        return to_tensor(value, scale=2), visitor.visit({"a": 1, "b": {"c": "s"}})

    return f, [(rand(2),), ([rand(2), 1.5],), ((rand(2), [rand(2), 0.5][0]),), ("no",)]


@program
def stacks_of_contexts():
    log = []

    @contextlib.contextmanager
    def scope(name, swallow=False):
        log.append(f"+{name}")
        try:
            yield name
        except ZeroDivisionError:
            log.append(f"!{name}")
            if not swallow:
                raise
        finally:
            log.append(f"-{name}")

    def f(x, names, fail):
        log.clear()
        with contextlib.ExitStack() as stack:
            for name in names:
                stack.enter_context(scope(name, swallow=name == "b"))
            stack.callback(log.append, "callback")
            stack.enter_context(torch.no_grad())
            x = x * 2
            if fail:
                1 // 0
            return x, x.requires_grad, list(log)
        return x, list(log)

    return f, [(rand(2, grad=True), ("a", "b"), fail) for fail in (False, True)]


@program
def frozen_records():
    @dataclasses.dataclass(frozen=True)
    class State:
        h: torch.Tensor
        step: int = 0
        tags: tuple = ()

        def next(self, **changes):
            return dataclasses.replace(self, step=self.step + 1, **changes)

        def __post_init__(self):
            object.__setattr__(self, "norm", self.h.norm())

    @dataclasses.dataclass(order=True, slots=True)
    class Item:
        cost: float
        name: str = dataclasses.field(compare=False, default="")

    def f(h):
        state = State(h)
        for n in range(3):
            state = state.next(h=state.h * 0.5 + n, tags=(*state.tags, n))
        best = min(Item(2.0, "b"), Item(1.0, "a"))
        return state.h, state.step, state.tags, state.norm, best.name, dataclasses.asdict(best), Item(1.0) < Item(2.0)

    return f, [(rand(2),)] * 2


@program
def running_metrics():
    class Meter:
        def __init__(self):
            self.reset()

        def reset(self):
            self.sum, self.count, self.history = 0.0, 0, collections.deque(maxlen=2)

        def update(self, value, n=1):
            self.sum += value * n
            self.count += n
            self.history.append(value)

        @property
        def avg(self):
            return self.sum / max(self.count, 1)

        def __format__(self, spec):
            return format(self.avg, spec or ".2f")

    meters = collections.defaultdict(Meter)

    def f(logits, y):
        for k in (1, 2):
            correct = (logits.topk(k, -1).indices == y[:, None]).any(-1).float().mean()
            meters[f"top{k}"].update(correct.item(), len(y))
        confusion = torch.zeros(3, 3, dtype=torch.long)
        confusion.view(-1).scatter_add_(0, y * 3 + logits.argmax(-1), torch.ones_like(y))
        return {k: m.avg for k, m in meters.items()}, [f"{k} {m:.3f}" for k, m in sorted(meters.items())], confusion

    return f, [(rand(4, 3, seed=n), torch.tensor([0, 1, 2, n % 3])) for n in range(4)]


@program
def fluent_pipeline():
    class Pipe:
        def __init__(self, *stages):
            self.stages = stages

        def __or__(self, other):
            return Pipe(*self.stages, *(other.stages if isinstance(other, Pipe) else (other,)))

        def __ror__(self, value):
            for stage in self.stages:
                value = stage(value)
            return value

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda *args, **kwargs: self | (lambda x: getattr(x, name)(*args, **kwargs))

    def f(x):
        return x | (Pipe() | torch.relu).mul(2).sum(-1, keepdim=True) | Pipe(torch.neg)

    return f, [(rand(2, 3),)] * 2


@program
def lazy_and_cached():
    class Table:
        def __init__(self):
            self.made = 0

        @functools.cached_property
        def angles(self):
            self.made += 1
            return torch.outer(torch.arange(4.0), 1.0 / 10 ** torch.arange(2.0))

        @functools.lru_cache(maxsize=None)
        def mask(self, n):
            self.made += 1
            return torch.ones(n, n).tril().bool()

    table = Table()

    def f(x):
        angles = table.angles[: len(x)]
        return x * angles.cos(), x.masked_fill(~table.mask(2)[: len(x)], 0.0), table.made

    return f, [(rand(2, 2),)] * 3
