"""Builtin types and functions as Python's documentation has them: identity, order, errors. Each program runs plain and
compiled, twice, and must give the same; ``cpython.py`` of ``tests/sweep`` finds such cases in CPython's own tests.
"""

import array
import collections
import copy
import decimal
import fractions
import functools
import itertools
import re
import types

import numpy as np
import pytest
import torch

import torchglass as tg

from ..compared import same


def outcome(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


def same_as_plain(function, *args, whole=True):
    expected = outcome(function, *args)
    compiled = tg.compile(function, backend="eager", fullgraph=whole)
    assert outcome(compiled, *args) == expected
    assert outcome(compiled, *args) == expected
    return compiled


def caught(function, *args, **kwargs):
    """The error of a call, as program and not as test: it is interpreted."""
    try:
        return function(*args, **kwargs)
    except (TypeError, ValueError, LookupError, RuntimeError) as error:
        return type(error), str(error)


class Index:
    def __index__(self):
        return 2


class Roots(list):
    pass


class Names(set):
    pass


# --- lists and tuples -------------------------------------------------------------------------------------------------
def multiplied_in_place():
    a = b = [1, 2]
    a *= 2
    a *= Index()
    return a is b, b, 3 * [0], caught(lambda: [1] * 2.0), caught(lambda: "x" * [1])


def whole_tuples_are_the_same_object():
    t = (1, [2])
    return t[:] is t, t * 1 is t, t + () is t, () + t is t, t[::1] is t, t[::-1] is t, t[:1] is t


def read_backwards_while_written():
    items = [1, 2, 3, 4]
    back = reversed(items)
    first = next(back)
    items[2] = "new"
    rest = list(back)
    items.append(5)
    return first, rest, list(back), type(reversed(items)).__name__


def made_anew_by_init():
    items = [1, 2]
    items.__init__()
    again = [3]
    again.__init__("ab")
    return items, again


def indexed_by_other_things():
    items = [1, 2, 3, 4]
    return (
        items[Index()], items[: Index()], caught(lambda: items["a"]), caught(lambda: tuple("a")[None]),
        caught(lambda: items[1.0]), caught(lambda: (1, 2)[::0]),
    )  # fmt: skip


def compared_while_changing():
    left, right = [], []

    class Clears:
        def __eq__(self, other):
            left.clear()
            right.clear()
            return False

    left.append(Clears())
    right.append(Clears())
    return left == right


def subclass_keeps_its_class_in_place():
    items = same = Roots([1])
    items += [2]
    items *= 2
    names = Names("ab")
    names |= {"c"}
    return items is same, type(items), list(items), type(names), sorted(names)


# --- dictionaries -----------------------------------------------------------------------------------------------------
def changed_while_read():
    def moved():
        d = {0: 0}
        for key in d:
            del d[key]
            d[key] = 0

    def replaced():
        d, seen = {1: 1, 2: 2, 3: 3}, []
        for key in d:
            seen.append(key)
            if key == 1:
                del d[2]
                d[4] = 4
        return seen

    def grown():
        d = {1: 1}
        for key in d:
            d[key + 1] = 1

    def ordered():
        d = collections.OrderedDict(a=1, b=2)
        for key in d:
            d.move_to_end(key)

    return caught(moved), caught(replaced), caught(grown), caught(ordered)


def made_from_keys():
    class Mine(dict):
        pass

    mine = Mine.fromkeys("ab", 1)
    return type(mine).__name__, dict(mine), caught(dict.fromkeys), dict.fromkeys([1, 1])


def named_by_other_than_strings():
    def function(**kwargs):
        return kwargs

    return caught(lambda: function(**{1: 2})), caught(lambda: dict(**{1: 2}))


# --- arguments --------------------------------------------------------------------------------------------------------
def called_with_too_much():
    class Pair(tuple):
        pass

    return [
        caught(list, sequence=[]), caught(tuple, sequence=()), caught(lambda: Pair(sequence=())), caught(len),
        caught(lambda: [].append()), caught(lambda: [].pop(1, 2)), caught(lambda: {}.get()), caught(set, 1, 2),
        caught(sorted), caught(lambda: [].sort(1)), caught(getattr, 1), caught(iter), caught(bool, 1, 2),
    ]  # fmt: skip


# --- exceptions -------------------------------------------------------------------------------------------------------
class Refused(OSError):
    def __init__(self, *args):
        super().__init__(*args)
        self.extra = 1


def fields_of_exceptions():
    try:
        raise OSError(2, "gone", "a file")
    except OSError as error:
        found = [error.errno, error.filename, str(error), type(error).__name__, error.args]
    refused = Refused(5, "no")
    wrong = UnicodeEncodeError("ascii", "xy", 0, 1, "why")
    missing = ImportError("m", name="n", path="p")
    try:
        missing.nothing  # noqa: B018
    except AttributeError as error:
        found += [error.name, error.obj is missing]
    return [
        *found, refused.errno, str(refused), refused.extra, str(wrong), wrong.start, missing.name, missing.path,
        SystemExit(3).code, NameError("m", name="n").name, str(SyntaxError("m", ("f", 1, 2, "t"))),
        caught(UnicodeEncodeError, 1),
    ]  # fmt: skip


def fields_of_exceptions_written():
    error = ValueError(1, 2)
    error.args = [3]
    error.__cause__ = KeyError()
    error.add_note("a note")
    refused = [
        caught(setattr, error, name, 3) for name in ("__cause__", "__context__", "__traceback__", "args")
    ] + [caught(error.add_note, 3), caught(setattr, error, "__traceback__", "no")]  # fmt: skip
    return error.args, str(error), repr(error), error.__suppress_context__, error.__notes__, refused


def raised_from_other_things():
    def from_a_class():
        try:
            raise ValueError("a") from KeyError
        except ValueError as error:
            return type(error.__cause__), error.__suppress_context__

    def from_a_number():
        raise ValueError("a") from 3

    return from_a_class(), caught(from_a_number)


def raised_again_within_its_own_handler():
    try:
        try:
            [][0]
        except IndexError as first:
            try:
                {}[0]
            except KeyError:
                raise first  # noqa: B904
    except IndexError as error:
        return type(error.__context__), error.__context__.__context__


def handlers_get_a_traceback():
    seen = []

    class Manager:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, traceback):
            seen.append((kind, traceback is None, error.__traceback__ is None, type(traceback).__name__))
            return True

    with Manager():
        [][0]
    return seen, ValueError().__traceback__


# --- generators and loops ---------------------------------------------------------------------------------------------
def generators_misused():
    def stops():
        yield 1
        raise StopIteration

    def asks_itself():
        yield next(again[0])

    def waits():
        yield 1

    again = []
    again.append(asks_itself())
    return caught(lambda: list(stops())), caught(lambda: next(again[0])), caught(waits().send, 3)


def itertools_look_at_their_arguments_at_once():
    seen = []

    def numbers():
        seen.append("begun")
        yield 1

    cycled = itertools.cycle(numbers())
    before = list(seen)
    next(cycled)
    between = list(seen)
    itertools.product(numbers())
    return before, between, seen, [
        caught(itertools.pairwise, 5), caught(itertools.cycle, 5), caught(itertools.takewhile, bool, 5),
        caught(itertools.combinations, [1], -1), caught(itertools.repeat, 1, "a"), list(itertools.repeat(1, -1)),
        list(itertools.product("ab", [1, 2])), list(itertools.product()), list(itertools.permutations("abc", 2)),
        list(itertools.combinations_with_replacement("ab", 2)), list(itertools.zip_longest("ab", "c")),
    ]  # fmt: skip


def exceptions_thrown_into_a_handler():
    def handles():
        try:
            raise KeyError("a")
        except KeyError:
            yield

    class Odd(ValueError):
        def __new__(cls):
            return "no exception"

    generator = handles()
    next(generator)
    try:
        generator.throw(ValueError)
    except ValueError as error:
        return type(error.__context__), caught(handles().throw, Odd)[0]


def iterators_end_where_what_they_call_stops():
    def stops(n):
        if n > 1:
            raise StopIteration
        return n + 1

    numbers = iter([0, 1, 5])
    return (
        list(map(stops, range(5))), list(filter(stops, range(5))), list(itertools.takewhile(stops, range(5))),
        list(iter(lambda: next(numbers), 7)),
    )  # fmt: skip


def frozen_sets_of_a_subclass():
    class Mine(frozenset):
        pass

    mine, exact = Mine(reversed("ab")), frozenset("ab")
    copied = mine.copy()
    return sorted(mine), type(copied), copied == mine, copied is mine, exact.copy() is exact, frozenset(exact) is exact


def long_ranges_left_early():
    for n in range(10**12):
        if n > 3:
            break
    numbers = iter(range(0, 10**15, 3))
    next(numbers)
    return n, next(numbers), type(numbers).__name__


# --- classes ----------------------------------------------------------------------------------------------------------
class Left:
    def __or__(self, other):
        return "left"

    def __ror__(self, other):
        return "right"

    def __lt__(self, other):
        return "left <"

    def __gt__(self, other):
        return "right >"

    def method(self):
        pass


class Own(Left):
    def __ror__(self, other):
        return "own"


class Inherits(Left):
    pass


class Passes:
    def __init__(self, *args):
        super().__init__(*args)


class Closed:
    __slots__ = ()
    fixed = 1


def subclasses_go_first():
    left, own = Left(), Own()
    return left | own, left | Inherits(), own | left, left < own, left > own, left < left


def methods_are_compared_by_what_they_are_bound_to():
    one, other = Left(), Left()
    return one.method == one.method, one.method != one.method, one.method == other.method, one.method in [one.method]


def objects_that_take_no_arguments():
    class Plain:
        pass

    return [
        caught(Plain, 1), caught(Plain, x=1), caught(Passes, 1), caught(object, 1), caught(Plain().__init__, 1),
        isinstance(Passes(), Passes), caught_attribute(Closed(), "fixed"), caught_attribute(Closed(), "other"),
    ]  # fmt: skip


def caught_attribute(owner, name):
    try:
        setattr(owner, name, 1)
    except AttributeError as error:
        return str(error)


class Equal:
    def __eq__(self, other):
        return True


class Unequal:
    def __ne__(self, other):
        return "unequal"


def inequality_is_asked_of_both_sides():
    return Equal() != 3, 3 != Equal(), {1: 2} != Equal(), Unequal() != 1, 1 != Unequal(), [Equal()] == [1]  # noqa: SIM300


def patterns_that_do_not_fit():
    class Point:
        __match_args__ = ("x", "y")
        x = y = 1

    class Listed:
        __match_args__ = ["x"]

    def too_many(value):
        match value:
            case Point(1, 1, 1):
                return True

    def twice(value):
        match value:
            case Point(1, x=1):
                return True

    def no_tuple(value):
        match value:
            case Listed(1):
                return True

    def none_at_all(value):
        match value:
            case Equal(1):
                return True

    def itself(value):
        match value:
            case int(n):
                return n

    return [
        caught(too_many, Point()), caught(twice, Point()), caught(no_tuple, Listed()), caught(none_at_all, Equal()),
        itself(True), itself("a"),
    ]  # fmt: skip


def protocols_that_are_lacking():
    def unpack(value):
        a, b = value
        return a, b

    plain = Equal()
    return [
        caught(f, plain) for f in (iter, next, len, unpack, list, lambda p: p[0], lambda p: 1 in p, lambda p: p())
    ]  # fmt: skip


WHOLE = [
    exceptions_thrown_into_a_handler,
    inequality_is_asked_of_both_sides, patterns_that_do_not_fit, protocols_that_are_lacking,
    subclasses_go_first, methods_are_compared_by_what_they_are_bound_to, objects_that_take_no_arguments,
    fields_of_exceptions, fields_of_exceptions_written, raised_from_other_things, raised_again_within_its_own_handler,
    iterators_end_where_what_they_call_stops, frozen_sets_of_a_subclass,
    handlers_get_a_traceback, itertools_look_at_their_arguments_at_once, generators_misused, long_ranges_left_early,
    multiplied_in_place, whole_tuples_are_the_same_object, read_backwards_while_written, made_anew_by_init,
    indexed_by_other_things, compared_while_changing, subclass_keeps_its_class_in_place, changed_while_read,
    made_from_keys, named_by_other_than_strings, called_with_too_much,
]  # fmt: skip


@pytest.mark.parametrize("program", WHOLE, ids=lambda p: p.__name__)
def test_the_same_as_plain_python(program):
    same_as_plain(program)


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


def test_an_iterator_that_goes_down_goes_on_behind_a_break():
    def f(items):
        back = reversed(items)
        next(back)
        tg.graph_break()
        items[0] = "new"
        return list(back), list(back)

    assert tg.compile(f, backend="eager")([1, 2, 3]) == ([2, "new"], [])


def test_a_with_block_left_by_an_exception_that_was_raised_while_capturing():
    """CPython takes it that what is handled has a traceback, and dies without."""

    class Strict:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, traceback):
            raise ValueError("not this one") from error

    def f(x):
        with Strict():
            return x[5]

    with pytest.raises(ValueError, match="not this one") as found:
        tg.compile(f, backend="eager")([1])
    assert isinstance(found.value.__cause__, IndexError)


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


def test_iterators_go_on_behind_a_break_as_what_they_were():
    def f():
        numbers, done = iter(range(10**12)), (n for n in ())
        next(numbers), list(done)
        tg.graph_break()
        return next(numbers), type(numbers).__name__, type(done).__name__

    assert tg.compile(f, backend="eager")() == (1, "range_iterator", "generator")


def test_classes_made_inside_as_parameters_of_types():
    def f(x):
        class Pair(tuple):
            __class_getitem__ = classmethod(types.GenericAlias)

        one, many = Pair[int], list[Pair]
        tg.graph_break()
        return x + 1, type(one((1, 2))) is Pair, many.__args__[0] is Pair, one.__origin__ is Pair

    compiled = tg.compile(f, backend="eager")
    for _ in range(2):
        assert compiled(torch.zeros(1))[1:] == (True, True, True)


def test_structures_nested_too_deeply_run_as_plain_python():
    def f(x):
        nested = []
        for _ in range(30_000):
            nested = [nested]
        return x + 1, nested

    compiled = tg.compile(f, backend="eager")
    assert compiled(torch.zeros(1))[0].item() == 1
    assert "RecursionError" in tg.explain(compiled).record.fallbacks[0].reason


def test_a_loop_without_tensors_is_not_unrolled_for_ever():
    def f(x):
        total = 0
        for n in range(400_000):
            total += n % 7
        return x + total

    compiled = tg.compile(f, backend="eager")
    assert compiled(torch.zeros(1)).item() == f(torch.zeros(1)).item()
    assert "without a tensor operation" in tg.explain(compiled).record.fallbacks[0].reason


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
