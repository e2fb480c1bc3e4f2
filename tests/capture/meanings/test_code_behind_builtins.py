"""Code of the program that builtins run, or that Python asks in its place: keys, comparisons, registered functions."""

import array
import copy
import decimal
import fractions
import functools
import re
import types

import numpy as np
import pytest
import torch

import torchglass as tg

from ..compared import outcome, same_as_plain


def test_implementations_that_are_registered_later_are_found():
    @functools.singledispatch
    def kind(value):
        return "any"

    kind.register(int, lambda value: "int")
    compiled = tg.compile(lambda x, value: (x + 1, kind(value), kind("text")), backend="eager", fullgraph=True)
    x = torch.zeros(1)
    assert compiled(x, 1)[1:] == ("int", "any")
    kind.register(str, lambda value: "text")
    assert compiled(x, 1)[1:] == ("int", "text")
    kind.register(int, lambda value: "number")
    assert compiled(x, 1)[1:] == ("number", "text")


def test_an_implementation_registered_inside_is_found():
    def f(value):
        @functools.singledispatch
        def kind(value):
            return "any"

        kind.register(int, lambda value: "int")
        return kind(value), kind("text")

    compiled = tg.compile(f, backend="eager")
    assert compiled(1) == compiled(2) == ("int", "any")


def test_a_key_function_runs_in_its_place():
    def made():
        seen, scores = [], {1: 5, 2: 3}

        def key(item):
            seen.append(item)
            return scores[item]

        def f(x):
            seen.append("first")
            return max([1, 2], key=key), min([1, 2], key=key)

        return f, seen, scores

    (plain, seen, scores), (mine, mine_seen, mine_scores) = made(), made()
    compiled = tg.compile(mine, backend="eager", fullgraph=True)
    for score in (5, 5, 1):
        scores[1] = mine_scores[1] = score
        assert compiled(1) == plain(1)
    assert mine_seen == seen


def test_a_function_that_a_pattern_calls():
    count = 0

    def numbered(match):
        nonlocal count
        count += 1
        return str(count)

    compiled = tg.compile(lambda x: (re.sub("a", numbered, "aba"), x), backend="eager")
    assert [compiled(1)[0] for _ in range(3)] == ["1b2", "3b4", "5b6"]


def test_an_update_that_ends_early():
    def pairs():
        yield "a", 1
        raise ValueError("no more")

    def f(x):
        table = {}
        try:
            table.update(pairs())
        except ValueError:
            return x, table

    same_as_plain(f, 1)


def test_a_global_that_is_deleted_twice():
    def f(x):
        global deleted_inside
        del deleted_inside
        return x

    globals()["deleted_inside"] = 1
    compiled = tg.compile(f, backend="eager")
    assert compiled(1) == 1
    assert outcome(compiled, 1) == outcome(f, 1) == (NameError, "name 'deleted_inside' is not defined")


def test_code_of_the_program_behind_builtins_runs_at_every_call():
    class Ranked:
        def __init__(self, rank):
            self.rank = rank

        def __lt__(self, other):
            seen.append((self.rank, other.rank))
            return self.rank < other.rank

        def __class_getitem__(cls, item):
            seen.append(item)
            return item * factor[0]

    def missing(name):
        seen.append(name)
        return factor[0]

    def f(x):
        ordered = sorted([Ranked(3), Ranked(1), Ranked(2)])
        ordered.sort(key=lambda item: -item.rank)
        return [item.rank for item in ordered], Ranked[2], module.scale

    seen, factor, module = [], [1], types.ModuleType("module")
    module.__getattr__ = missing
    compiled = tg.compile(f, backend="eager", fullgraph=True)
    for n in (1, 1, 5):
        factor[0] = n
        seen.clear()
        expected, order = f(1), list(seen)
        seen.clear()
        assert (compiled(1), seen) == (expected, order)


def test_locals_of_a_frame():
    def program(x):
        first = locals()
        first["added"] = 5
        y = len(first)
        second = locals()
        del y
        third = sorted(locals())
        return first is second, sorted(first), sorted(second), third, x + 1

    same_as_plain(program, torch.ones(()))


UNDER_C = {
    "an array and a number": lambda: (np.ones(2), 1),
    "an array and itself": lambda: (np.ones(2),) * 2,
    "an array and a list": lambda: (np.array([0, 1]), [0, 1]),
    "memory and bytes": lambda: (memoryview(b"a"), b"a"),
    "byte arrays": lambda: (bytearray(b"a"), bytearray(b"a")),
    "arrays of Python": lambda: (array.array("i", [1]), array.array("i", [1])),
    "namespaces": lambda: (types.SimpleNamespace(a=1), types.SimpleNamespace(a=1)),
    "numbers of two kinds": lambda: (decimal.Decimal(1), fractions.Fraction(1)),
    "keys": lambda: ({1: 3}.keys(), {1: 2}.keys()),
    "other keys": lambda: ({1: 3}.keys(), {1}),
}


@pytest.mark.parametrize("name", UNDER_C)
def test_what_classes_in_c_compare(name):
    """Their ``==`` is their own: objects that are two may be equal."""

    def program(x, one, other):
        return x + 1, one == other, other != one

    def within(x, one, other):
        return x + 1, one in [other], [one].count(other), (one, 1) == (other, 1), {"a": one} == {"a": other}

    one, other = UNDER_C[name]()
    for function in (program, within):
        expected = outcome(function, torch.ones(1), one, other)
        found = outcome(tg.compile(function, backend="eager"), torch.ones(1), one, other)
        assert repr(found) == repr(expected)


def test_what_cannot_be_copied():
    same_as_plain(lambda x: (x, copy.copy(types))[1], torch.ones(()), whole=False)
