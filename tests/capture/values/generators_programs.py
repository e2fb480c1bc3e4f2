"""Generators: their methods, delegation, what they return."""

# ruff: noqa: B904
from __future__ import annotations

import torchglass as tg

from ..shared import says
from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


@whole
def generators(x):
    def produce(n):
        for i in range(n):
            got = yield x * i
            assert got is None
        return "done"

    def outer():
        result = yield from produce(3)
        yield result

    values = list(outer())
    return sum(values[:-1]), values[-1]


@whole
def generator_methods(x):
    log = []

    def produce():
        try:
            got = yield 1
            yield got
        except GeneratorExit:
            log.append("exit")
            raise
        except ValueError as error:
            yield str(error)
        finally:
            log.append("finally")

    first, second = produce(), produce()
    values = [next(first), first.send(5), next(second), second.throw(ValueError("thrown"))]
    first.close()
    return x, values, log, list(second)


def delegated_to(first, log):
    try:
        yield first
        yield first + 1
    except KeyError:
        log.append("key")
        return "returned"
    except ValueError:
        raise TypeError("from within")
    finally:
        log.append("done")


def delegating(first, log):
    try:
        log.append((yield from delegated_to(first, log)))
        yield "after"
    except TypeError as error:
        yield str(error)
    yield from [7, 8]


@whole
def exceptions_thrown_into_generators_that_delegate(x):
    log, out = [], []
    for kind in (KeyError, ValueError, RuntimeError, GeneratorExit):
        generator = delegating(1, log)
        out.append(next(generator))
        try:
            out.append(generator.throw(kind))
            out.append(list(generator))
        except (RuntimeError, GeneratorExit) as error:
            out.append(type(error).__name__)
    closed = delegating(2, log)
    next(closed)
    closed.close()
    return x + 1, out, log, list(closed)


@whole
def membership_in_generators(x):
    seen = []
    numbers = (seen.append(n) or n for n in range(5))
    return 2 in numbers, list(numbers), seen, 9 in map(abs, [-1, -2]), (1, "a") in zip([1], "a"), x + 1


def returning(value=None):
    yield 1
    return value


class Ending:
    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration("over", 2)


@whole
def what_generators_return(x):
    """It is in the exception that says that the generator is over, once."""
    found = []
    for value in None, 5:
        for ask in next, lambda g: g.send(None), lambda g: g.__next__(), list:
            g = returning(value)
            next(g)
            for _ in range(2):
                try:
                    found.append(ask(g))
                except StopIteration as error:
                    found.append((error.args, error.value))
    try:
        next(Ending())
    except StopIteration as error:
        found.append(error.args)
    return x, found, next(Ending(), 3)


@breaking
def names_of_generators(x):
    def count():
        yield 1
        yield 2

    waiting, begun, done = count(), count(), count()
    count.__name__, count.__qualname__ = "counts", "that.counts"
    later = count()
    waiting.__name__, begun.__qualname__ = "first", "second.third"
    next(begun)
    list(done)
    named = [(g.__name__, g.__qualname__) for g in (waiting, begun, done)], says(setattr, done, "__name__", 3)
    tg.graph_break()
    count.__name__ = "again"
    return (
        x + 1,
        named,
        [(g.__name__, g.__qualname__) for g in (waiting, begun, done)],
        list(waiting),
        list(begun),
        later.__name__,
        later.__qualname__,
        count().__name__,
    )


@program
def generator_protocol():
    def gen(x):
        log = []
        total = x
        try:
            while True:
                got = yield total
                if got is None:
                    continue
                total = total + got
        except ValueError as e:
            yield ("caught", str(e))
        finally:
            log.append("end")

    def f(x):
        g = gen(x)
        a = next(g)
        b = g.send(2)
        c = g.throw(ValueError("v"))
        g.close()
        return a, b, c, list(g)

    return f, [(rand(2),)] * 2


@program
def generator_returned():
    def f(x, n):
        return (x * i for i in range(n))

    return lambda x: [t + 1 for t in f(x, 3)], [(rand(2),)] * 2


@program
def generator_with_break_inside():
    def gen(x):
        for i in range(3):
            y = x * i
            if y.sum() > 0:
                yield y
            else:
                yield -y

    return lambda x: list(gen(x)), [(rand(2),), (rand(2, seed=1),)]


@program
def yield_from_and_return():
    def inner(x):
        yield x
        return x + 10

    def outer(x):
        r = yield from inner(x)
        yield r

    return lambda x: list(outer(x)), [(rand(2),)] * 2
