"""Objects of classes derived from list, tuple, dict and set, and views of and iterators over containers."""

import collections
import copy
import types

import pytest
import torch

import torchglass as tg

from ..compared import outcome, same, same_as_plain


class Names(set):
    pass


def test_a_set_of_a_subclass_that_was_there_before():
    names = Names("ab")

    def f(x):
        names.add("c")
        names.discard("a")
        return x + len(names), "b" in names, names | {"d"}, sorted(names), type(names)

    x = torch.zeros(1)
    same_as_plain(f, x)
    assert names == {"b", "c"} and type(names) is Names
    names.update("xyz")
    assert tg.compile(f, backend="eager")(x)[0].item() == 5


def test_a_mapping_proxy_is_read_at_each_call():
    settings = {"scale": 2, "kind": 1}
    compiled = tg.compile(lambda p, x: (x * p["scale"], list(p), p), backend="eager", fullgraph=True)
    proxy, x = types.MappingProxyType(settings), torch.ones(2)
    assert compiled(proxy, x)[0].tolist() == [2, 2]
    settings["scale"] = 3
    found = compiled(proxy, x)
    assert found[0].tolist() == [3, 3] and found[2] is proxy
    settings["more"] = 1
    assert compiled(proxy, x)[1] == ["scale", "kind", "more"]


class Squared(list):
    def __getitem__(self, index):
        return super().__getitem__(index) ** 2


class Starred(tuple):
    def __iter__(self):
        return iter("ab")


class Doubled(dict):
    def __getitem__(self, key):
        return 2 * super().__getitem__(key)

    def __iter__(self):
        return iter("xy")


def test_subclasses_that_answer_otherwise():
    """Their own methods are asked where Python asks them, and guards look at what they hold."""
    numbers, pair, table = Squared([3, 1]), Starred((1, 2)), Doubled(a=1)

    def f(x):
        listed = [*numbers], list(numbers), numbers[0], len(numbers), sorted(numbers)
        first, second = pair
        return listed, first, second, pair[0], tuple(pair), table["a"], table.get("a"), list(table), [*table.items()]

    compiled = same_as_plain(f, 1)
    assert len(tg.explain(compiled).entries) == 1
    numbers.append(2)
    table["b"] = 3
    assert outcome(compiled, 1) == outcome(f, 1)


class Settings(dict):
    """A dictionary whose items are attributes, as programs write their configurations."""

    def __init__(self, **items):
        super().__init__(**items)
        self.__dict__ = self


def read(x, s):
    return s.n * x + s["n"], s.get("n"), {**s}, vars(s) is s


def set_attribute(x, s):
    s.new, s.n = x, s.n + 1
    return s["new"], s["n"], len(s), list(s)


def set_item(x, s):
    s["new"] = x
    s["n"] += 1
    s.update(more=2)
    return s.new * s.n + s.more, hasattr(s, "other"), vars(s) is s


def take_away(x, s):
    del s.n
    s.pop("k")
    return x, "n" in s, hasattr(s, "k"), getattr(s, "n", 5)


@pytest.mark.parametrize("function", [read, set_attribute, set_item, take_away])
def test_items_that_are_attributes(function):
    """Each entry knows whether they are: a deep copy's are not."""
    compiled = tg.compile(function, fullgraph=True, backend="eager")
    for copied in (False, True, False):
        ours, theirs = Settings(n=1, k=2), Settings(n=1, k=2)
        if copied:
            ours, theirs = copy.deepcopy(ours), copy.deepcopy(theirs)
        for _ in range(2):
            same(outcome(compiled, torch.ones(2), ours), outcome(function, torch.ones(2), theirs))
            same(dict(ours), dict(theirs))
            same(dict(vars(ours)), dict(vars(theirs)))


def test_iterators_over_a_deque_live_on_when_its_items_are_written():
    def f(x, kept):
        kept[0], kept[2] = x + 1, 5
        return kept[1]

    for function in (f, tg.compile(f, backend="eager", fullgraph=True)):
        kept = collections.deque([1, 2, 3])
        waiting = iter(kept)
        next(waiting)
        assert function(torch.ones(1), kept) == 2 and list(waiting) == [2, 5]


def test_classes_of_iterators():
    def program(x):
        made = [[1], (1,), {1: 2}, {1: 2}.items(), {1: 2}.values(), {1}, "a", "ä", b"a", range(3), range(2**70)]
        made += [collections.OrderedDict(a=1), collections.deque([1]), frozenset([1])]
        return [type(iter(m)) for m in made], type(reversed([1])), type(zip([1])), x + 1

    same_as_plain(program, torch.ones(()))


def test_a_list_extended_by_itself():
    class Own(list):
        pass

    def program(x, given):
        for made in ([x, 1], Own([x, 1])):
            made.extend(made)
            made += made
            given.append(len(made))
        given.extend(given)
        return x + 1

    plain, compiled = Own([3]), Own([3])
    expected = program(torch.ones(2), plain)
    torch.testing.assert_close(tg.compile(program, backend="eager", fullgraph=True)(torch.ones(2), compiled), expected)
    assert plain == compiled
