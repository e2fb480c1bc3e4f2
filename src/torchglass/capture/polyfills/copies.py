"""``copy.copy`` and ``copy.deepcopy`` as Python that the machine interprets: what pickling would put in, put back.

``is_atomic``, ``identity``, ``copy_of_tensor``, ``slot_names`` and ``attributes`` are answered by the machine
(``copying.py``).
"""

# mypy: ignore-errors

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict
from types import FunctionType, MethodType

EMPTY = {
    list: lambda value, part: [],
    dict: lambda value, part: {},
    set: lambda value, part: set(),
    OrderedDict: lambda value, part: OrderedDict(),
    defaultdict: lambda value, part: defaultdict(part(value.default_factory)),
}
"""Builtin containers that may change, and what makes an empty one like a value; ``part`` copies what it has of it."""


def is_atomic(value):
    """Whether copying ``value`` gives the object itself."""
    raise NotImplementedError


def identity(value):
    """A number for ``value`` that nothing outside the capture sees."""
    raise NotImplementedError


def copy_of_tensor(value):
    """A tensor's deep copy, or NotImplemented for what is no tensor."""
    raise NotImplementedError


def slot_names(cls):
    """The names of the slots of a class and its bases, as they are mangled."""
    raise NotImplementedError


def attributes(value):
    """The attributes of an OrderedDict as a dictionary."""
    raise NotImplementedError


def copy(value):
    if is_atomic(value):
        return value
    cls = type(value)
    if cls is OrderedDict:
        return _with_attributes(value.copy(), value, lambda part: part)
    if cls in EMPTY:
        return value.copy()
    if cls in (tuple, slice, MethodType):
        return value
    if cls is functools.partial:
        made = functools.partial(value.func, *value.args, **value.keywords)
        return _with_attributes(made, value, lambda part: part)
    if hasattr(cls, "__copy__"):
        return cls.__copy__(value)
    return _remade(value, lambda part: part, lambda made: None)


def deepcopy(value, memo=None):
    if is_atomic(value):
        return value
    memo = {} if memo is None else memo
    key = identity(value)
    if key in memo:
        return memo[key]
    copied = copy_of_tensor(value)
    if copied is NotImplemented:
        copied = _deeply(value, memo, key)
    memo[key] = copied
    return copied


def _deeply(value, memo, key):
    def part(inner):
        return deepcopy(inner, memo)

    def remember(made):
        memo[key] = made

    cls = type(value)
    if cls is slice:
        return slice(part(value.start), part(value.stop), part(value.step))
    if cls is MethodType:
        return MethodType(value.__func__, part(value.__self__))
    if cls is functools.partial:
        keywords = {name: part(given) for name, given in value.keywords.items()}
        made = functools.partial(part(value.func), *[part(given) for given in value.args], **keywords)
        return _with_attributes(made, value, part)
    if cls in EMPTY:
        made = EMPTY[cls](value, part)
        remember(made)
        _fill(made, value, part)
        return _with_attributes(made, value, part) if cls is OrderedDict else made
    if cls is tuple:
        copied = [part(item) for item in value]
        return value if all(a is b for a, b in zip(value, copied)) else tuple(copied)
    if hasattr(cls, "__deepcopy__"):
        return value.__deepcopy__(memo)
    return _remade(value, part, remember)


def _with_attributes(made, value, part):
    for name, attribute in attributes(value).items():
        setattr(made, name, part(attribute))
    return made


def _fill(made, value, part):
    """Put the parts of a builtin container into a new one, by the methods of its class, as ``copy`` does."""
    if isinstance(value, dict):
        for name, item in dict.items(value):
            made[part(name)] = part(item)
    elif isinstance(value, set):
        for item in set.__iter__(value):
            made.add(part(item))
    else:
        for item in list.__iter__(value) if isinstance(value, list) else value:
            made.append(part(item))


def _remade(value, part, remember):
    """``value`` anew from what its class says about pickling; ``part`` gives what becomes of each part."""
    cls = type(value)
    if type(cls.__reduce_ex__) is FunctionType:
        return _reconstructed(value.__reduce_ex__(4), value, part, remember)
    if type(cls.__reduce__) is FunctionType or isinstance(value, BaseException):
        return _reconstructed(value.__reduce__(), value, part, remember)
    if isinstance(value, (set, frozenset)):
        made = cls([part(item) for item in value])
    elif isinstance(value, defaultdict):
        made = cls() if value.default_factory is None else cls(part(value.default_factory))
    elif isinstance(value, OrderedDict):
        made = cls()
    elif isinstance(value, tuple) and not hasattr(cls, "_fields"):
        made = cls.__new__(cls, [part(item) for item in value])
    elif hasattr(cls, "__getnewargs_ex__"):
        args, kwargs = value.__getnewargs_ex__()
        made = cls.__new__(cls, *[part(a) for a in args], **{name: part(a) for name, a in kwargs.items()})
    elif hasattr(cls, "__getnewargs__"):
        made = cls.__new__(cls, *[part(a) for a in value.__getnewargs__()])
    else:
        made = cls.__new__(cls)
    remember(made)
    if not isinstance(value, defaultdict):
        _restore(made, _state(value, cls), part)
    if isinstance(value, (list, dict)):
        _fill(made, value, part)
    return made


def _reconstructed(reduced, value, part, remember):
    """What ``__reduce__`` of the user's describes: a callable, its arguments, a state, items, pairs."""
    if isinstance(reduced, str):
        return value
    make, args, state, items, pairs, *_ = (*reduced, None, None, None)
    made = make(*[part(a) for a in args])
    remember(made)
    _restore(made, state, part)
    for item in items or ():
        made.append(part(item))
    for name, item in pairs or ():
        made[part(name)] = part(item)
    return made


def _state(value, cls):
    if type(cls.__getstate__) is FunctionType:
        return value.__getstate__()
    attributes = (value.__dict__ or None) if hasattr(value, "__dict__") else None
    slots = {name: getattr(value, name) for name in slot_names(cls) if hasattr(value, name)}
    return (attributes, slots) if slots else attributes


def _restore(made, state, part):
    if state is None:
        return
    state, slots = part(state), None
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
        return
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if state:
        made.__dict__.update(state)
    if slots:
        for name, item in slots.items():
            setattr(made, name, item)
