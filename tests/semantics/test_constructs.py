"""Python's constructs by name, each with a tensor in its body and with a number."""

import contextlib
import functools

import pytest
import torch

import torchglass as tg

CONSTRUCTS = {}


def construct(function):
    CONSTRUCTS[function.__name__] = function
    return function


@construct
def for_else_break_continue(t):
    for i in range(5):
        if i == 1:
            continue
        if i == 3:
            break
        t = t + i
    else:
        t = -t
    for _ in ():
        pass
    else:
        t = t * 2
    return t


@construct
def while_else(t):
    n = 0
    while n < 3:
        n += 1
        t = t + n
    else:
        t = t * 2
    return t, n


@construct
def try_except_else_finally(t):
    log = []
    for n in (0, 1):
        try:
            log.append(1 // n)
        except ZeroDivisionError as error:
            log.append(str(error))
        else:
            log.append("else")
        finally:
            log.append("finally")
    return t + 1, log


@construct
def exception_chaining(t):
    try:
        try:
            raise KeyError("a")
        except KeyError as error:
            raise ValueError("b") from error
    except ValueError as error:
        return t, repr(error.__cause__), repr(error.__context__), error.__suppress_context__


@construct
def return_in_finally(t):
    try:
        raise KeyError
    finally:
        return t + 1  # noqa: B012


@construct
def with_that_swallows(t):
    with contextlib.suppress(KeyError):
        t = t + 1
        raise KeyError
    return t * 2


@construct
def match_patterns(t):
    found = []
    for value in (1, "a", [1, 2], {"k": 3}, None):
        match value:
            case int(n):
                found.append(n)
            case [first, *rest]:
                found.append((first, rest))
            case {"k": k}:
                found.append(k)
            case str() | None:
                found.append("other")
    return t + len(found), found


@construct
def walrus(t):
    return [y for i in range(3) if (y := t + i) is not None], (n := 2) + n


@construct
def unpacking_and_stars(t):
    def callee(a, /, b, *args, c=1, **kwargs):
        return a + b + sum(args) + c + sum(kwargs.values())

    first, *middle, last = [t, 1, 2, t]
    return first + last, middle, callee(t, *middle, c=5, **{"d": 6})


@construct
def generators_and_yield_from(t):
    def inner(n):
        got = yield n
        return (got or 0) + n

    def outer():
        result = yield from inner(1)
        yield result + 1

    return t + sum(outer()), list(outer())


@construct
def comprehensions(t):
    table = {i: t + i for i in range(2)}
    return [t + i for i in range(2)], table, {i % 2 for i in range(4)}, sum(t * i for i in range(3))


@construct
def nonlocal_and_closures(t):
    count = 0

    def add(n):
        nonlocal count
        count += n
        return t + count

    return add(1), add(2), count


@construct
def classes_made_inside(t):
    class Base:
        factor = 2

        def run(self, x):
            return x * self.factor

    class Derived(Base):
        def run(self, x):
            return super().run(x) + 1

    return Derived().run(t)


@construct
def properties_and_operators(t):
    class Held:
        def __init__(self, value):
            self._value = value

        @property
        def value(self):
            return self._value

        @value.setter
        def value(self, new):
            self._value = new + 1

        def __add__(self, other):
            return self._value + other

        def __getitem__(self, key):
            return self._value * key

        def __call__(self, x):
            return x - 1

        def __contains__(self, x):
            return x == 7

    held = Held(t)
    held.value = held.value * 2
    return held + 1, held[3], held(t), 7 in held


@construct
def decorators_lambdas_partials(t):
    def twice(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(function(*args))

        return wrapper

    @twice
    def step(x):
        return x + 1

    return step(t), (lambda x, y=2: x * y)(t), functools.partial(lambda a, b: a - b, 5)(t), step.__name__


@construct
def f_strings_and_assert(t):
    n = 3
    assert n > 2, "never"
    return t, f"{n:>4}|{n!r}|{'x' * n}"


@construct
def deletion(t):
    held = [t, 1, 2]
    del held[1]
    with contextlib.suppress(UnboundLocalError):
        del t
        return t  # noqa: F821
    return held


@construct
def except_star(t):
    log = []
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
    except* ValueError as e:
        log.append(len(e.exceptions))
        t = t + 1
    except* TypeError:
        t = t * 2
    return t, log


@construct
def keyword_only_and_positional_only(t):
    def f(a, b=2, /, c=3, *, d, e=5, **rest):
        return a + b + c + d + e, sorted(rest)

    try:
        f(t, b=3, d=1, c=1)
        f(a=t, d=1)
    except TypeError as error:
        return f(t, d=4), f(t, 1, 2, d=3, e=4, x=5, a=6), str(error)


WRITTEN = 0


@construct
def global_writes(t):
    global WRITTEN
    before, WRITTEN = WRITTEN, 5
    try:
        return t + WRITTEN, before
    finally:
        WRITTEN = 0


@construct
def super_in_several_bases(t):
    class A:
        def go(self, t):
            return [*super().go(t), "A"]

    class B:
        def go(self, t):
            return [t, "B"]

    class C(A, B):
        def go(self, t):
            return [*super().go(t + 1), super(A, self).go(t)]

    return C().go(t)


@construct
def bare_raise_and_reraise(t):
    log = []
    for kind in (ValueError, KeyError):
        try:
            try:
                raise kind("x")
            except ValueError:
                log.append("again")
                raise
            finally:
                log.append("inner")
        except (ValueError, KeyError) as error:
            log.append((type(error), error.__context__))
    return t, log


@construct
def with_several_managers(t):
    log = []

    @contextlib.contextmanager
    def manager(name):
        log.append(f"enter {name}")
        try:
            yield name
        except ValueError:
            log.append(f"error in {name}")
            raise
        finally:
            log.append(f"leave {name}")

    try:
        with manager("a") as a, manager("b") as b, contextlib.suppress(KeyError):
            t = t + len(a + b)
            raise ValueError
    except ValueError:
        pass
    return t, log


@construct
def loops_left_from_inside(t):
    seen = []
    for i in range(3):
        for j in range(3):
            try:
                if j == 1:
                    continue
                if i == 1:
                    break
                seen.append((i, j))
            finally:
                seen.append("f")
        else:
            seen.append("else")
    return t, seen


@construct
def chained_comparisons_and_short_circuits(t):
    log = []

    def noted(value):
        log.append(value)
        return value

    return t, noted(1) < noted(2) < noted(0) < noted(9), noted(0) or noted("") or noted(3), noted(1) and noted(0), log


@construct
def uncaught_exceptions(t):
    t = t + 1
    raise ValueError("here", 3)


def seen(function, t):
    try:
        return function(t)
    except Exception as error:
        return type(error), error.args


def same(a, b):
    if isinstance(a, torch.Tensor):
        assert isinstance(b, torch.Tensor)
        torch.testing.assert_close(a, b)
        return
    assert type(a) is type(b)
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for left, right in zip(a, b):
            same(left, right)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        same(list(a.values()), list(b.values()))
    else:
        assert a == b


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


@pytest.mark.parametrize("make", [lambda: torch.arange(3.0), lambda: 4], ids=["tensor", "number"])
@pytest.mark.parametrize("name", CONSTRUCTS)
def test_construct(name, make):
    compiled = tg.compile(CONSTRUCTS[name], backend="eager")
    for _ in range(2):
        same(seen(compiled, make()), seen(CONSTRUCTS[name], make()))
    assert not tg.explain(compiled).record.fallbacks or name == "uncaught_exceptions"
