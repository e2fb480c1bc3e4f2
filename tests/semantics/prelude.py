"""What every generated program starts with: globals, classes, context managers and helpers for its function to use."""

# ruff: noqa: F401  (generated programs use these)
from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import math
import operator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

counter = 0
log = []
table = {"a": 1, "b": 2, "c": 3}
shared = [4, 5, 6]
weight = torch.tensor([0.5, -1.0, 2.0])


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
