"""Builtin types and functions as Python's documentation has them: identity, order, errors. Each program runs plain and
compiled, twice, and must give the same; ``cpython.py`` of ``tests/sweep`` finds such cases in CPython's own tests.
"""

import collections
import itertools
import types

import pytest
import torch

import torchglass as tg

from ..compared import same_as_plain


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
