"""What calling something means: one registry, which the functions of this file alone write.

    @handles(sorted)                  sorted(values)      →  Handler(sorted_): code of ours on symbolic values
    means(Polyfill(chain_), chain)    chain(a, b)         →  Polyfill(chain_): Python of ours, interpreted
    folded(json.dumps)                json.dumps(value)   →  Fold(json.dumps): computed while capturing
    answers(False, torch.jit.is_...)  is_scripting()      →  Answer(False)
    refuses(print, "print()", ...)    print(x)            →  Refuse(why, hint): the graph breaks
    @rule(FunctionType)               what functions mean that have no row: Node, Inline, ...

``meaning_of`` looks by identity, by qualified name, then by the class of what is called; a class's rule looks at the
module. Methods of C types stand by class and name. What is entered twice is an error at import.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

from ..errors import Unsupported
from ..protocol import Machine, Value
from ..values.binding import home_of
from ..values.constant import ConstantV
from ..values.known import KnownV

Values = list[Value]
Named = dict[str, Value]

Apply = Callable[[Machine, Values, Named], Value]
Call = Callable[[Machine, KnownV, Values, Named], Value]
Method = Callable[..., Value]


# --- kinds ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Handler:
    """Code of ours that computes on symbolic values."""

    apply: Apply

    def call(self, m: Machine, function: KnownV, args: Values, kwargs: Named) -> Value:
        return self.apply(m, args, kwargs)


class _OfArguments:
    """What needs the arguments alone: it stands in a row, or a rule gives it."""

    __slots__ = ()

    def apply(self, m: Machine, args: Values, kwargs: Named) -> Value:
        raise NotImplementedError

    def call(self, m: Machine, function: KnownV, args: Values, kwargs: Named) -> Value:
        return self.apply(m, args, kwargs)


@dataclass(frozen=True, slots=True)
class Fold(_OfArguments):
    """Computed while capturing; what it gives depends on its arguments alone."""

    function: Any

    def apply(self, m: Machine, args: Values, kwargs: Named) -> Value:
        return m.fold(self.function, args, kwargs)


@dataclass(frozen=True, slots=True)
class Polyfill(_OfArguments):
    """Another Python function is interpreted in its place."""

    function: Any

    def apply(self, m: Machine, args: Values, kwargs: Named) -> Value:
        return m.call(m.wrap(self.function), args, kwargs)


@dataclass(frozen=True, slots=True)
class Answer(_OfArguments):
    """The same whatever the arguments are."""

    value: Any

    def apply(self, m: Machine, args: Values, kwargs: Named) -> Value:
        return ConstantV(self.value)


@dataclass(frozen=True, slots=True)
class Refuse(_OfArguments):
    """The graph breaks."""

    why: str
    hint: str = ""

    def apply(self, m: Machine, args: Values, kwargs: Named) -> Value:
        raise Unsupported(self.why, self.hint)


@dataclass(frozen=True, slots=True)
class OfObject:
    """Code of ours that looks at the object called, too."""

    call: Call


class Node(OfObject):
    """A node of the graph."""


class Inline(OfObject):
    """Followed into its Python code."""


Meaning = Handler | Fold | Polyfill | Answer | Refuse | OfObject
Row = Handler | Fold | Polyfill | Answer | Refuse  # what needs no look at the object called
Rule = Callable[[Any], Meaning]


# --- tables -----------------------------------------------------------------------------------------------------------
class Table(dict[Any, Any]):
    """A table in which each key is entered once; ``places`` says where."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[Any, str] = {}

    def __setitem__(self, key: Any, value: Any) -> None:
        if key in self:
            raise ValueError(f"{value}: already entered at {self.places[key]}")
        frame = sys._getframe(1)
        while frame.f_globals["__name__"] == __name__:
            assert frame.f_back is not None
            frame = frame.f_back
        self.places[key] = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        super().__setitem__(key, value)


BY_IDENTITY: dict[int, tuple[Any, Row]] = Table()
# Python functions by module and name, of modules that are not loaded for the sake of a question that few ask.
BY_NAME: dict[tuple[str, str], Row] = Table()
# Functions that a factory makes anew each time, like the dispatcher of ``functools.singledispatch``, by their code.
BY_CODE: dict[CodeType, OfObject] = Table()
# What things of a class mean that have no row of their own.
BY_CLASS: dict[type, Rule] = Table()
# Modules whose functions are all of one kind.
BY_MODULE: dict[str, type] = Table()
METHODS: dict[tuple[type, str], Method] = Table()
# Methods of C types that look at more than what an object of a class derived from theirs holds.
OF_DERIVED: dict[tuple[type, str], Callable[..., Any]] = Table()
# Methods that every kind of value answers.
PROTOCOLS: dict[str, Method] = Table()
# Operators of ``torch.ops.higher_order``.
HIGHER_ORDER: dict[str, Row] = Table()


def entered(real: Any) -> Row | None:
    """The row of ``real`` itself."""
    found = BY_IDENTITY.get(id(real))
    if found is not None:
        return found[1]
    if type(real) is FunctionType:
        return BY_NAME.get((home_of(real) or "", real.__qualname__))
    if type(real) is BuiltinFunctionType and BY_MODULE.get(real.__module__) is Fold:
        # of a module that was loaded twice
        same = getattr(sys.modules.get(real.__module__), real.__name__, None)
        return entered(same) if same is not None and same is not real else None
    return None


def is_made(function: FunctionType) -> bool:
    """Whether calling what a factory made means something of its own, and its code is not interpreted."""
    return function.__code__ in BY_CODE


def meaning_of(real: Any) -> Meaning:
    """What calling ``real`` means."""
    return entered(real) or ruled(real)


def ruled(real: Any) -> Meaning:
    """What the rule of its class says of what has no row."""
    return next(BY_CLASS[cls] for cls in type(real).__mro__ if cls in BY_CLASS)(real)


# --- registration -----------------------------------------------------------------------------------------------------
def means(meaning: Row, *functions: Any) -> None:
    """Enter what calling ``functions`` means. A version of Python or PyTorch that lacks one has None in its place."""
    for function in functions:
        if function is not None:
            BY_IDENTITY[id(function)] = (function, meaning)


def _row(meaning: Any) -> Row:
    """A function is a handler."""
    return Handler(meaning) if callable(meaning) else meaning


def handles(*functions: Any) -> Callable[[Any], Any]:
    """Register what calling ``functions`` means: a handler, or another row."""

    def register(meaning: Any) -> Any:
        means(_row(meaning), *functions)
        return meaning

    return register


def folded(*functions: Any) -> None:
    for function in functions:
        means(Fold(function), function)


def answers(value: Any, *functions: Any) -> None:
    means(Answer(value), *functions)


def refuses(function: Any, why: str, hint: str = "") -> None:
    means(Refuse(why, hint), function)


def named(module: str, *names: str) -> Callable[[Any], Any]:
    """Register what functions of ``module`` mean, as ``handles`` does."""

    def register(meaning: Any) -> Any:
        for name in names:
            BY_NAME[module, name] = _row(meaning)
        return meaning

    return register


def made_like(code: CodeType) -> Callable[[Call], Call]:
    """Register what calling a function with this code means."""

    def register(function: Call) -> Call:
        BY_CODE[code] = OfObject(function)
        return function

    return register


def rule(*classes: type) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for cls in classes:
            BY_CLASS[cls] = function
        return function

    return register


def of_modules(kind: type, *names: str) -> None:
    for name in names:
        BY_MODULE[name] = kind


def method(*classes: type, name: str | None = None) -> Callable[[Method], Method]:
    """Register a method of ``classes``; its Python name is the function's, less a trailing underscore or prefix."""

    def register(function: Method) -> Method:
        key = name or function.__name__.partition("__")[2] or function.__name__
        for cls in classes:
            if not hasattr(cls, key):
                raise ValueError(f"{cls.__name__} has no method {key}")
            METHODS[cls, key] = function
        return function

    return register


def of_derived(polyfills: dict[tuple[type, str], Any]) -> None:
    for key, polyfill in polyfills.items():
        OF_DERIVED[key] = polyfill


def protocols(methods: dict[str, Method]) -> None:
    for name, function in methods.items():
        PROTOCOLS[name] = function


def higher_order(name: str) -> Callable[[Any], Any]:
    """Register what calling an operator of ``torch.ops.higher_order`` means, as ``handles`` does."""

    def register(meaning: Any) -> Any:
        HIGHER_ORDER[name] = _row(meaning)
        return meaning

    return register
