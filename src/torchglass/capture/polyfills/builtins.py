"""Python versions of builtins that the machine interprets instead of knowing them: loops over symbolic values."""

# ruff: noqa: SIM110  (the machine cannot use the builtins that these stand for)
# mypy: ignore-errors

from __future__ import annotations

import functools
import operator

import torch

_MISSING = object()


def iterate_by_index(sequence):
    index = 0
    while True:
        try:
            value = sequence[index]
        except IndexError:
            return
        yield value
        index += 1


def iterate_until(function, sentinel):
    while True:
        value = function()
        if value == sentinel:
            return
        yield value


def count_elements(mapping, iterable):
    for element in iterable:
        mapping[element] = mapping.get(element, 0) + 1


def nlargest(n, iterable, key=None):
    return sorted(iterable, key=key, reverse=True)[:n]


def nsmallest(n, iterable, key=None):
    return sorted(iterable, key=key)[:n]


class Compared:
    """What ``functools.cmp_to_key(compare)`` makes of a value."""

    def __init__(self, compare, value):
        self.compare = compare
        self.obj = value

    def __lt__(self, other):
        return self.compare(self.obj, other.obj) < 0

    def __gt__(self, other):
        return self.compare(self.obj, other.obj) > 0

    def __le__(self, other):
        return self.compare(self.obj, other.obj) <= 0

    def __ge__(self, other):
        return self.compare(self.obj, other.obj) >= 0

    def __eq__(self, other):
        return self.compare(self.obj, other.obj) == 0


def cmp_to_key(mycmp):
    return lambda obj: Compared(mycmp, obj)


# --- torch.autograd.Function ------------------------------------------------------------------------------------------
class FunctionContext:
    """What ``forward`` and ``backward`` get as ``ctx`` while they are rehearsed."""

    def __init__(self, needs_input_grad):
        self.needs_input_grad = needs_input_grad
        self.to_save = ()

    @property
    def saved_tensors(self):
        return self.to_save

    saved_variables = saved_tensors

    def save_for_backward(self, *tensors):
        self.to_save = tensors

    def save_for_forward(self, *tensors):
        pass

    def mark_dirty(self, *tensors):
        pass

    def mark_non_differentiable(self, *tensors):
        pass

    def set_materialize_grads(self, value):
        pass


class nothing_changes:
    """A context manager that does nothing."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        return None


def without_gradients(function, *args):
    with torch.no_grad():
        return function(*args)


# --- torch ------------------------------------------------------------------------------------------------------------
def group_tensors(lists, with_indices=False):
    """Lists of tensors by device and dtype of the first list's, with the places that they came from. (The order of
    eager's groups is that of a hash table.)
    """
    groups = {}
    for n, first in enumerate(lists[0]):
        rows, places = groups.setdefault((first.device, first.dtype), ([[] for _ in lists], []))
        for row, tensors in zip(rows, lists):
            row.append(tensors[n])
        if with_indices:
            places.append(n)
    return groups


# --- itertools --------------------------------------------------------------------------------------------------------
def chain(*iterables):
    for iterable in iterables:
        yield from iterable


def chain_from_iterable(iterables):
    return _chained(iter(iterables))


def _chained(iterables):
    for iterable in iterables:
        yield from iterable


_ENDLESS = object()


def repeat(object, times=_ENDLESS):
    return _repeated(object, None if times is _ENDLESS else operator.index(times))


def _repeated(value, times):
    count = 0
    while times is None or count < times:
        yield value
        count += 1


def count(start=0, step=1):
    value = start
    while True:
        yield value
        value += step


def cycle(iterable, /):
    return _cycled(iter(iterable))


def _cycled(iterator):
    kept = []
    for value in iterator:
        yield value
        kept.append(value)
    while kept:
        yield from kept


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


def product(*iterables, repeat=1):
    return _product([tuple(i) for i in iterables] * operator.index(repeat))


def _product(pools):
    if not pools:
        yield ()
        return
    for first in pools[0]:
        for rest in _product(pools[1:]):
            yield (first, *rest)


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


def compress(data, selectors):
    return _compressed(zip(data, selectors))


def _compressed(pairs):
    for value, chosen in pairs:
        if chosen:
            yield value


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


def starmap(function, iterable, /):
    return _starred(function, iter(iterable))


def _starred(function, iterator):
    for args in iterator:
        yield function(*args)


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


def combinations(iterable, r):
    return _combined(tuple(iterable), _number_of(r))


def _combined(pool, r):
    if r == 0:
        yield ()
        return
    for n in range(len(pool) - r + 1):
        for rest in _combined(pool[n + 1 :], r - 1):
            yield (pool[n], *rest)


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


def pairwise(iterable, /):
    return _paired(iter(iterable))


def _paired(iterator):
    previous = _MISSING
    for value in iterator:
        if previous is not _MISSING:
            yield (previous, value)
        previous = value


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


def takewhile(predicate, iterable, /):
    return _taken(predicate, iter(iterable))


def _taken(predicate, iterator):
    for value in iterator:
        if not predicate(value):
            return
        yield value


def dropwhile(predicate, iterable, /):
    return _left(predicate, iter(iterable))


def _left(predicate, iterator):
    dropping = True
    for value in iterator:
        if dropping and predicate(value):
            continue
        dropping = False
        yield value


def filterfalse(predicate, iterable, /):
    return _refused(predicate, iter(iterable))


def _refused(predicate, iterator):
    for value in iterator:
        if not (value if predicate is None else predicate(value)):
            yield value


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


# --- operator ---------------------------------------------------------------------------------------------------------
def concat(a, b, /):
    if not hasattr(a, "__getitem__"):
        raise TypeError(f"'{type(a).__name__}' object can't be concatenated")
    return a + b


def iconcat(a, b, /):
    if not hasattr(a, "__getitem__"):
        raise TypeError(f"'{type(a).__name__}' object can't be concatenated")
    a += b
    return a


def itemgetter(key, /, *more):
    if not more:
        return lambda value: value[key]
    return lambda value: tuple([value[k] for k in (key, *more)])


def _attribute(value, path):
    for name in path.split("."):
        value = getattr(value, name)
    return value


def attrgetter(*paths):
    if len(paths) == 1:
        return lambda value: _attribute(value, paths[0])
    return lambda value: tuple([_attribute(value, path) for path in paths])


def methodcaller(name, /, *args, **kwargs):
    return lambda value: getattr(value, name)(*args, **kwargs)


def match_class(subject, cls, positional, names):
    if not isinstance(cls, type):
        raise TypeError("called match pattern must be a class")
    if not isinstance(subject, cls):
        return None
    values, asked = [], []
    given = getattr(cls, "__match_args__", None) if positional else ()
    itself = given is None and issubclass(cls, MATCHED_THEMSELVES)
    if itself:
        values.append(subject)
    elif given is not None and type(given) is not tuple:
        raise TypeError(f"{cls.__name__}.__match_args__ must be a tuple (got {type(given).__name__})")
    allowed = 1 if itself else len(given or ())
    if positional > allowed:
        some = "" if allowed == 1 else "s"
        raise TypeError(f"{cls.__name__}() accepts {allowed} positional sub-pattern{some} ({positional} given)")
    for name in (*(() if itself else given[:positional]), *names):
        if not isinstance(name, str):
            raise TypeError(f"__match_args__ elements must be strings (got {type(name).__name__})")
        if name in asked:
            raise TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
        asked.append(name)
        if not hasattr(subject, name):
            return None
        values.append(getattr(subject, name))
    return tuple(values)


MATCHED_THEMSELVES = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


# --- exception groups -------------------------------------------------------------------------------------------------
def split_group(group, condition):
    if isinstance(condition, (type, tuple)):
        return _split(group, lambda error: isinstance(error, condition))
    return _split(group, condition)


def subgroup(group, condition):
    return split_group(group, condition)[0]


def projected(group, kept):
    """The part of ``group`` whose leaves are leaves of the parts ``kept``."""
    leaves = []
    for part in kept:
        _leaves(part, leaves)

    def is_kept(error):
        if isinstance(error, BaseExceptionGroup):
            return False
        for leaf in leaves:
            if leaf is error:
                return True
        return False

    return _split(group, is_kept)[0]


def _leaves(error, found):
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            _leaves(one, found)
    else:
        found.append(error)


def _split(error, matches):
    if matches(error):
        return error, None
    if not isinstance(error, BaseExceptionGroup):
        return None, error
    found, rest = [], []
    for one in error.exceptions:
        yes, no = _split(one, matches)
        if yes is not None:
            found.append(yes)
        if no is not None:
            rest.append(no)
    return _derived(error, found), _derived(error, rest)


def _derived(group, exceptions):
    if not exceptions:
        return None
    made = group.derive(exceptions)
    if not isinstance(made, BaseExceptionGroup):
        raise TypeError("derive must return an instance of BaseExceptionGroup")
    copy_traces(made, group)
    return made


def copy_traces(made, group):
    """Give ``made`` the traceback, cause, context and notes of ``group``: known to the machine."""
    raise NotImplementedError


def drop_grads_of_module(module):
    for parameter in module.parameters():
        parameter.grad = None


def enter_label(label):
    """``record_function.__enter__`` that records nothing, since operations of a graph have no names of the user's; nor
    does its ``__exit__`` then, which may run behind a break.
    """
    label.run_callbacks_on_exit = False
    return label


def exit_label(label, *_):
    if label.run_callbacks_on_exit:  # entered outside
        torch.ops.profiler._record_function_exit._RecordFunction(label.record)
    label.run_callbacks_on_exit = True


def bound_by_kind(self, instance, owner=None):
    """``functools.singledispatchmethod.__get__``, without the cache that Python 3.13 keeps its results in."""
    dispatch, name = self.dispatcher.dispatch, getattr(self.func, "__name__", "singledispatchmethod method")

    def _method(*args, **kwargs):
        if not args:
            raise TypeError(f"{name} requires at least 1 positional argument")
        return dispatch(args[0].__class__).__get__(instance, owner)(*args, **kwargs)

    _method.__isabstractmethod__ = self.__isabstractmethod__
    _method.register = self.register
    functools.update_wrapper(_method, self.func)
    return _method
