"""What Python itself does in C: iterating by index, matching classes."""

# mypy: ignore-errors

from __future__ import annotations

from .registry import polyfill


@polyfill()
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


@polyfill()
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
