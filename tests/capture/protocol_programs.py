"""Programs about Python's own protocols: construction, copying, descriptors and operators, down to the words of errors."""

# ruff: noqa
from __future__ import annotations

import copy

import torch

from .tables import tables

WHOLE, BREAKING, whole, breaking = tables()


def says(function, *args):
    """What calling the function gives, or the words of what it raises."""
    try:
        return function(*args)
    except Exception as error:
        return type(error).__name__, str(error)


@whole
def arguments_of_object_new(x):
    class Plain:
        pass

    class Passing:
        def __new__(cls, *args):
            return super().__new__(cls, *args)

    class Taking:
        def __init__(self, n):
            self.n = n

    class Number(int):
        pass

    return (
        x + 1, says(object.__new__, Plain, 1), says(Passing, 1), says(Plain, 1), says(Number.__new__, Number, 3),
        type(object.__new__(Taking, 1)).__name__, says(object.__new__, Number), type(Passing()).__name__,
    )  # fmt: skip


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
def properties_without_a_function(x):
    """They say the name that they were given first, if any."""

    class Owner:
        named = property(None)

        @property
        def read(self):
            return 1

    Owner.again, Owner.nameless = Owner.read, property()
    owner, said = Owner(), []
    for name in ("named", "again", "nameless", "read"):
        said += [says(getattr, owner, name), says(setattr, owner, name, 1), says(delattr, owner, name)]
        held = vars(Owner)[name]
        said += [says(held.__get__, owner), says(held.__set__, owner, 1), says(held.__delete__, owner)]
    return x + 1, said


@whole
def class_cells_that_a_metaclass_loses(x):
    class Losing(type):
        def __new__(mcs, name, bases, namespace):
            namespace.pop("__classcell__")
            return super().__new__(mcs, name, bases, namespace)

    class Twice(type):
        def __new__(mcs, name, bases, namespace):
            made = super().__new__(mcs, name, bases, namespace)
            super().__new__(mcs, "Other", bases, namespace)
            return made

    class Wrong(type):
        def __new__(mcs, name, bases, namespace):
            return super().__new__(mcs, name, bases, {**namespace, "__classcell__": 5})

    def make(metaclass):
        class Made(metaclass=metaclass):
            def own(self):
                return __class__

    return x + 1, says(make, Losing), says(make, Twice), says(make, Wrong), says(make, type)


@breaking
def names_of_generators(x):
    def count():
        yield 1
        yield 2

    waiting, begun, done = count(), count(), count()
    waiting.__name__, begun.__qualname__ = "first", "second.third"
    next(begun)
    list(done)
    named = [(g.__name__, g.__qualname__) for g in (waiting, begun, done)], says(setattr, done, "__name__", 3)
    print(end="")
    return x + 1, named, [(g.__name__, g.__qualname__) for g in (waiting, begun, done)], list(waiting), list(begun)
