"""What every generated program starts with: globals, classes, context managers and helpers for its function to use."""

# ruff: noqa: F401  (generated programs use these)
from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import math
import operator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

counter = 0
log = []
table = {"a": 1, "b": 2, "c": 3}
shared = [4, 5, 6]
weight = torch.tensor([0.5, -1.0, 2.0])
queue = collections.deque([1, 2, 3], maxlen=5)
counts = collections.Counter("abca")
groups = collections.defaultdict(list, a=[1])
order = collections.OrderedDict(a=1, b=2)
closed = collections.Counter()


class Trouble(Exception):
    def __init__(self, code, note="n"):
        super().__init__(code, note)
        self.code = code


class Deeper(Trouble):
    pass


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Record:
    size: int
    tags: list = field(default_factory=list)


class Box:
    scale = 2

    def __init__(self, value, content=None):
        self.value = value
        self.content = content
        self.items = [value]

    @property
    def double(self):
        return self.value * 2

    @double.setter
    def double(self, new):
        if new < 0:
            raise Trouble(new, "negative")
        self.value = new // 2

    def bump(self, by=1):
        self.value += by
        return self

    @classmethod
    def made(cls, value):
        return cls(value)

    @staticmethod
    def plain(value):
        return value + 1

    def __add__(self, other):
        if isinstance(other, Box):
            return Box(self.value + other.value)
        if isinstance(other, int):
            return Box(self.value + other)
        return NotImplemented

    def __radd__(self, other):
        return Box(other - self.value)

    def __iadd__(self, other):
        self.value += 1
        self.items.append(other)
        return self

    def __getitem__(self, key):
        return self.items[key]

    def __setitem__(self, key, new):
        self.items[key] = new

    def __len__(self):
        return len(self.items)

    def __contains__(self, item):
        return item == self.value

    def __iter__(self):
        return iter(self.items)

    def __call__(self, step, *more, sign=1):
        self.items.append(step)
        return self.value + sign * step + len(more)

    def __bool__(self):
        return self.value > 0

    def __lt__(self, other):
        return self.value < other.value


class Child(Box):
    scale = 3

    def bump(self, by=1):
        super().bump(by * 2)
        log.append("child")
        return self

    def __getattr__(self, name):
        if name.startswith("made_"):
            return len(name)
        raise AttributeError(f"no {name}")


class Manager:
    def __init__(self, name, catches=()):
        self.name = name
        self.catches = catches

    def __enter__(self):
        log.append(f"enter {self.name}")
        return self

    def __exit__(self, kind, error, trace):
        log.append(f"exit {self.name} {kind and kind.__name__}")
        return kind is not None and issubclass(kind, self.catches)


@contextlib.contextmanager
def managed(name):
    log.append(f"begin {name}")
    try:
        yield name
    except KeyError:
        log.append("key")
        raise
    finally:
        log.append(f"end {name}")


def helper(first, *rest, step=2, **others):
    return first + len(rest) * step + sum(others.values())


def tensor_helper(t, factor=2.0):
    log.append(tuple(t.shape))
    return t * factor + 1


def branching(t, n):
    if t.sum() > 0:
        return n + 1
    return n - 1


def failing(n):
    if n % 2:
        raise Trouble(n)
    return n


def produce(n):
    total = 0
    for i in range(n):
        got = yield i + total
        if got is not None:
            total += got
    return total


def chained(n):
    result = yield from produce(n)
    yield result * 10


def countdown(n):
    return 0 if n <= 0 else 1 + countdown(n - 1)


def traced(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        log.append(function.__name__)
        return function(*args, **kwargs)

    return wrapper


def closing(n):
    try:
        yield from range(n)
    finally:
        closed[n] += 1  # how often, not in which order: where a graph broke it is at the end of the call


class Color(enum.Enum):
    RED = 1
    GREEN = 2

    @property
    def other(self):
        return Color.GREEN if self is Color.RED else Color.RED


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


@dataclass(frozen=True, order=True)
class Point:
    x: int
    y: int = 0

    def __post_init__(self):
        if self.y < -5:
            raise Trouble(self.y, "low")

    def moved(self, by):
        return dataclasses.replace(self, x=self.x + by)


class Limited:
    """A data descriptor."""

    def __set_name__(self, owner, name):
        self.name = f"_{name}"

    def __get__(self, instance, owner=None):
        return self if instance is None else getattr(instance, self.name, 0)

    def __set__(self, instance, value):
        log.append(f"set {self.name}")
        setattr(instance, self.name, min(value, 10))


class Slotted:
    __slots__ = ("_size", "left", "right")
    size = Limited()

    def __init__(self, size, left=None):
        self.size = size
        self.left = left

    def __eq__(self, other):
        return isinstance(other, Slotted) and self.size == other.size

    def __hash__(self):
        return hash(self.size)

    def __repr__(self):
        return f"Slotted({self.size})"


class Watched:
    """Notes what is written to it."""

    kinds = []

    def __init_subclass__(cls, **options):
        super().__init_subclass__()
        Watched.kinds.append(cls.__name__)

    def __init__(self, **values):
        for name, value in values.items():
            setattr(self, name, value)

    def __setattr__(self, name, value):
        log.append(f"{name} = {value}")
        object.__setattr__(self, name, value)

    def __delattr__(self, name):
        log.append(f"del {name}")
        object.__delattr__(self, name)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return len(name)

    def __repr__(self):
        return "Watched"

    @functools.cached_property
    def once(self):
        log.append("once")
        return 7


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
        self.register_buffer("calls", torch.zeros(()))
        self.seen = 0

    def forward(self, t, scale=1):
        self.seen += 1
        if self.training:
            self.calls += 1
        return t * self.weight * scale


layer = Layer()


def ordered(first, /, second=2, *, third=3):
    return first * 100 + second * 10 + third


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, factor=1):
        ctx.save_for_backward(t)
        ctx.factor = factor
        return t * t * factor

    @staticmethod
    def backward(ctx, grad):
        (t,) = ctx.saved_tensors
        return grad * 2 * t * ctx.factor, None


torch.manual_seed(0)
# of a column that a ReLU left nearly constant the norm's usual eps makes three hundred times the last bit
net = torch.nn.Sequential(
    torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.BatchNorm1d(3, eps=0.1), torch.nn.Dropout(0.25)
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
batch = torch.randn(4, 3)


def double_output(module, args, out):
    log.append(type(module).__name__)
    return out * 2
