"""Iterators of ``itertools``, as generators: a graph may break between two items."""

# mypy: ignore-errors

from __future__ import annotations

import itertools
import operator

from .registry import polyfill

_MISSING = object()
_ENDLESS = object()


@polyfill(itertools.chain)
def chain(*iterables):
    for iterable in iterables:
        yield from iterable


@polyfill()
def chain_from_iterable(iterables):
    return _chained(iter(iterables))


def _chained(iterables):
    for iterable in iterables:
        yield from iterable


@polyfill(itertools.repeat)
def repeat(object, times=_ENDLESS):
    return _repeated(object, None if times is _ENDLESS else operator.index(times))


def _repeated(value, times):
    count = 0
    while times is None or count < times:
        yield value
        count += 1


@polyfill(itertools.count)
def count(start=0, step=1):
    value = start
    while True:
        yield value
        value += step


@polyfill(itertools.cycle)
def cycle(iterable, /):
    return _cycled(iter(iterable))


def _cycled(iterator):
    kept = []
    for value in iterator:
        yield value
        kept.append(value)
    while kept:
        yield from kept


@polyfill(itertools.islice)
def islice(iterable, *bounds):
    window = slice(*bounds)
    start = 0 if window.start is None else window.start
    step = 1 if window.step is None else window.step
    if not (window.stop is None or (isinstance(window.stop, int) and window.stop >= 0)):
        subject = "Stop argument" if not isinstance(window.stop, int) or window.stop == -1 else "Indices"
        must = "must be None or an integer: 0 <= x <= sys.maxsize."
        raise ValueError(f"{subject} for islice() {must}")
    if not (isinstance(start, int) and start >= 0):
        raise ValueError("Indices for islice() must be None or an integer: 0 <= x <= sys.maxsize.")
    if not (isinstance(step, int) and step > 0):
        raise ValueError("Step for islice() must be a positive integer or None.")
    return _window(iter(iterable), start, window.stop, step)


def _window(iterator, start, stop, step):
    index, wanted = 0, start
    while stop is None or index < start or index < stop:
        value = next(iterator, _MISSING)
        if value is _MISSING:
            return
        if index == wanted:
            wanted += step
            yield value
        index += 1


@polyfill(itertools.product)
def product(*iterables, repeat=1):
    return _product([tuple(i) for i in iterables] * operator.index(repeat))


def _product(pools):
    if not pools:
        yield ()
        return
    for first in pools[0]:
        for rest in _product(pools[1:]):
            yield (first, *rest)


@polyfill(itertools.zip_longest)
def zip_longest(*iterables, fillvalue=None):
    return _zipped([iter(i) for i in iterables], fillvalue)


def _zipped(iterators, fillvalue):
    active = len(iterators)
    done = [False] * active
    while active:
        row = []
        for n, iterator in enumerate(iterators):
            value = fillvalue
            if not done[n]:
                value = next(iterator, _MISSING)
                if value is _MISSING:
                    done[n] = True
                    active -= 1
                    value = fillvalue
            row.append(value)
        if active:
            yield tuple(row)


@polyfill(itertools.tee)
def tee(iterable, n=2):
    iterator = iter(iterable)
    waiting = [[] for _ in range(n)]

    def take(mine):
        while True:
            if not mine:
                value = next(iterator, _MISSING)
                if value is _MISSING:
                    return
                for theirs in waiting:
                    theirs.append(value)
            yield mine.pop(0)

    return tuple([take(mine) for mine in waiting])


@polyfill(itertools.compress)
def compress(data, selectors):
    return _compressed(zip(data, selectors))


def _compressed(pairs):
    for value, chosen in pairs:
        if chosen:
            yield value


@polyfill(itertools.combinations_with_replacement)
def combinations_with_replacement(iterable, r):
    return _with_replacement(tuple(iterable), _number_of(r))


def _number_of(r):
    r = operator.index(r)
    if r < 0:
        raise ValueError("r must be non-negative")
    return r


def _with_replacement(pool, r):
    if r == 0:
        yield ()
        return
    for n in range(len(pool)):
        for rest in _with_replacement(pool[n:], r - 1):
            yield (pool[n], *rest)


@polyfill(itertools.starmap)
def starmap(function, iterable, /):
    return _starred(function, iter(iterable))


def _starred(function, iterator):
    for args in iterator:
        yield function(*args)


@polyfill(itertools.accumulate)
def accumulate(iterable, func=None, *, initial=None):
    return _accumulated(iter(iterable), func, initial)


def _accumulated(iterable, func, initial):
    total = initial
    started = initial is not None
    if started:
        yield total
    for value in iterable:
        if not started:
            total, started = value, True
        else:
            total = total + value if func is None else func(total, value)
        yield total


@polyfill(itertools.combinations)
def combinations(iterable, r):
    return _combined(tuple(iterable), _number_of(r))


def _combined(pool, r):
    if r == 0:
        yield ()
        return
    for n in range(len(pool) - r + 1):
        for rest in _combined(pool[n + 1 :], r - 1):
            yield (pool[n], *rest)


@polyfill(itertools.permutations)
def permutations(iterable, r=None):
    pool = tuple(iterable)
    return _permuted(pool, len(pool) if r is None else _number_of(r))


def _permuted(pool, r):
    if r == 0:
        yield ()
        return
    for n in range(len(pool)):
        for rest in _permuted(pool[:n] + pool[n + 1 :], r - 1):
            yield (pool[n], *rest)


@polyfill(itertools.pairwise)
def pairwise(iterable, /):
    return _paired(iter(iterable))


def _paired(iterator):
    previous = _MISSING
    for value in iterator:
        if previous is not _MISSING:
            yield (previous, value)
        previous = value


@polyfill(getattr(itertools, "batched", None))
def batched(iterable, n, *, strict=False):
    if n < 1:
        raise ValueError("n must be at least one")
    return _batches(iter(iterable), n, strict)


def _batches(iterator, n, strict):
    batch = []
    for value in iterator:
        batch.append(value)
        if len(batch) == n:
            yield tuple(batch)
            batch = []
    if batch and strict:
        raise ValueError("batched(): incomplete batch")
    if batch:
        yield tuple(batch)


@polyfill(itertools.takewhile)
def takewhile(predicate, iterable, /):
    return _taken(predicate, iter(iterable))


def _taken(predicate, iterator):
    for value in iterator:
        if not predicate(value):
            return
        yield value


@polyfill(itertools.dropwhile)
def dropwhile(predicate, iterable, /):
    return _left(predicate, iter(iterable))


def _left(predicate, iterator):
    dropping = True
    for value in iterator:
        if dropping and predicate(value):
            continue
        dropping = False
        yield value


@polyfill(itertools.filterfalse)
def filterfalse(predicate, iterable, /):
    return _refused(predicate, iter(iterable))


def _refused(predicate, iterator):
    for value in iterator:
        if not (value if predicate is None else predicate(value)):
            yield value


@polyfill(itertools.groupby)
def groupby(iterable, key=None):
    """Groups share the iterator: one is over as soon as the next has been asked for."""
    return _grouped(iter(iterable), key)


def _grouped(iterator, key):
    value = rank = wanted = current = _MISSING

    def step():
        nonlocal value, rank
        value = next(iterator, _MISSING)
        if value is not _MISSING:
            rank = value if key is None else key(value)
        return value is not _MISSING

    def group(mine):
        nonlocal value
        while current is mine and (value is not _MISSING or step()) and rank == mine[0]:
            given, value = value, _MISSING
            yield given

    while True:
        current = _MISSING
        while rank is _MISSING or (wanted is not _MISSING and wanted == rank):
            if not step():
                return
        wanted = rank
        current = [rank]
        yield rank, group(current)
