"""Copies, shallow and deep, of every kind of object."""

# ruff: noqa: E741, RUF023
from __future__ import annotations

import collections
import collections.abc
import copy
import functools
import types

import torch

from ..shared import THING, Thing, mlp
from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


@whole
def copies(x):
    l = [1, [x, 2]]
    c = copy.copy(l)
    d = copy.deepcopy([1, [2, {"a": 3}]])
    t = copy.copy(THING)
    return c[1] is l[1], c, d, t.v, copy.copy((1, 2)), copy.copy({1, 2}), copy.deepcopy({"a": (1, [2])})


@whole
def deepcopy_instances(x):
    t = Thing([1, 2])
    d = copy.deepcopy(t)
    d.v.append(3)
    return t.v, d.v, x + 1


@breaking
def deepcopy_tensor(x):
    return copy.deepcopy(x), copy.copy(x), copy.deepcopy({"a": x})


class Slotted:
    __slots__ = ("a", "b", "__private")

    def __init__(self, a, b):
        self.a, self.b, self.__private = a, b, 3

    def private(self):
        return self.__private


class Stated:
    def __init__(self, value):
        self.value, self.cache = value, "never copied"

    def __getstate__(self):
        return {"value": self.value}

    def __setstate__(self, state):
        self.__dict__.update(state, cache="made anew")


class Reduced:
    def __init__(self, value):
        self.value, self.log = value, ["init"]

    def __reduce__(self):
        return Reduced, (self.value,), {"extra": 5}


class Tagged(dict):
    tag = None


class Stack(list):
    pass


@whole
def copies_of_every_kind(x):
    found = []
    for do in (copy.copy, copy.deepcopy):
        for value in (
            [x, [1]], {"a": [x]}, {1, 2}, collections.deque([[1], x], maxlen=3), collections.OrderedDict(a=[1]),
            collections.defaultdict(list, a=[1]), collections.Counter("aab"), ([1], x), (1, 2),
        ):  # fmt: skip
            made = do(value)
            found.append((made, made is value, type(made) is type(value)))
    return found


@whole
def copies_of_objects(x):
    found = []
    for do in (copy.copy, copy.deepcopy):
        slotted = do(Slotted(x, [1]))
        stated, reduced = do(Stated([x])), do(Reduced([x]))
        tagged = Tagged(a=[1])
        tagged.tag = [2]
        tag = do(tagged)
        stack = do(Stack([x, [1]]))
        found.append((slotted.a, slotted.b, slotted.private(), vars(stated), vars(reduced)))
        found.append((dict(tag), tag.tag, tag["a"] is tagged["a"], tag.tag is tagged.tag, list(stack), type(stack)))
    return found


@whole
def copies_of_bound_methods_and_partials(x):
    owner = Reduced([1])
    bound = copy.deepcopy(owner.__reduce__)
    partial = copy.deepcopy(functools.partial(list.append, owner.value))
    owner.value.append(2)
    partial(3)
    return bound()[1], owner.value, x


@whole
def copies_keep_cycles_and_sharing(x):
    shared = [x]
    holder = types.SimpleNamespace()
    holder.me, holder.pair = holder, [shared, shared]
    made = copy.deepcopy(holder)
    return made.me is made, made.pair[0] is made.pair[1], made.pair[0] is shared, made.pair


@whole
def copies_of_exceptions(x):
    """Fields that are given by keyword, attributes and the arguments themselves are those of the first."""
    missing = ImportError("no", name="module", path="file")
    missing.more = [2]
    one, other = copy.copy(missing), copy.deepcopy(missing)
    numbers = [1]
    wrong = ValueError("a", numbers)
    wrong.add_note("note")
    file = copy.copy(OSError(2, "none", "file"))
    return (
        x + 1, one.name, one.path, one.args, one.more is missing.more, other.name, other.more is missing.more,
        wrong.args[1] is numbers, copy.copy(wrong).args[1] is numbers, copy.deepcopy(wrong).args[1] is numbers,
        copy.copy(wrong).__notes__, type(file).__name__, file.errno, file.filename, file.args,
        copy.copy(StopIteration(3)).value, copy.copy(ExceptionGroup("group", [wrong])).exceptions,
    )  # fmt: skip


@whole
def copies_of_slices(x):
    made = slice([1], 2)
    copied = copy.deepcopy(made)
    return x + 1, made == copied, made.start is copied.start, copy.copy(made) is made


@breaking
def copies_of_mapping_proxies(x):
    return x + 1, types.MappingProxyType({"a": 1}).copy()


@program
def deepcopy_module():
    net = mlp(3, 2)

    def f(x):
        twin = copy.deepcopy(net)
        with torch.no_grad():
            for p in twin.parameters():
                p.zero_()
        return net(x), twin(x)

    return f, [(rand(2, 3),), (rand(2, 3, seed=1),)]
